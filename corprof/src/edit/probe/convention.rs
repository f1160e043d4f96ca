//! How compiled code calls a probe: without a transition, so that the thread stays in cooperative mode and no object
//! moves.
//!
//! That is an unmanaged call with `CallConvSuppressGCTransition`. Where the compiler makes a stub for it (in handlers),
//! the runtime loads this type. A trimmed application may lack it, and gets a call by the managed convention: in 64-bit
//! processes it passes integers as the native one does, and makes no transition either.
//!
//! A method that native code calls (`UnmanagedCallersOnly`) always gets the latter. After an unmanaged call without a
//! transition the code checks whether a collection waits. The compilers of .NET 10 and 11 put that check at the end of
//! the block, in such a method after it has left cooperative mode. The check returns in cooperative mode, so the
//! process dies in the next call of such a method. Elsewhere the managed convention would be wrong in a loop: the
//! compiler takes the call for a place where a collection can stop the thread. `apart.rs` keeps these calls out of
//! other methods.

use std::sync::OnceLock;

use corprof_il::signature::{CallingConvention, MethodSignature, Primitive, Type};
use corprof_sys as sys;

use super::super::{EditError, MethodEdit};
use crate::context::InCallback;
use crate::error::Result;
use crate::info::Row;
use crate::metadata::{
    AssemblyIdentity, AssemblyRef, CORE_LIBRARY, MetadataImport, NATIVE, StandAloneSignature, Token, TypeDefOrRef,
};
use crate::session::Observer;
use crate::values::Lookup;

const SUPPRESSION: &str = "System.Runtime.CompilerServices.CallConvSuppressGCTransition";

/// The library that has forwarded the public types of the core library since .NET 5, when the type became one.
const FORWARDER: &str = "System.Runtime";

/// The token of the public key that all core libraries are signed with.
const CORE_KEY: [u8; 8] = [0x7c, 0xec, 0x85, 0xd7, 0xbe, 0xa7, 0x79, 0x8e];

/// Whether the core library has the modifier, once that was found out.
#[derive(Default)]
struct HasSuppression(OnceLock<bool>);

impl Observer for HasSuppression {}

impl InCallback<'_> {
    /// Finds out, once, whether the core library has the modifier.
    pub(crate) fn find_suppression(&mut self) {
        if self.extension::<HasSuppression>().0.get().is_some() {
            return;
        }
        if let Some(has) = Lookup::new(self).core_library_has(SUPPRESSION) {
            let _ = self.extension::<HasSuppression>().0.set(has); // another thread was faster
        }
    }
}

impl MethodEdit<'_> {
    /// The signature of a probe with the site and so many addresses.
    pub(super) fn probe_signature(&self, addresses: usize) -> std::result::Result<StandAloneSignature, EditError> {
        let void = Type::Primitive(Primitive::Void);
        let (convention, return_type) = match self.suppression()? {
            Some(modifier) => {
                (CallingConvention::Unmanaged, Type::Modified { required: false, modifier, inner: Box::new(void) })
            }
            None => (CallingConvention::Default, void),
        };
        let address = Type::Primitive(Primitive::NativeInt);
        let mut parameters = vec![Type::Primitive(Primitive::Int64)];
        parameters.extend(std::iter::repeat_n(address, addresses));
        self.signature(&MethodSignature {
            convention,
            has_this: false,
            explicit_this: false,
            generic_parameters: 0,
            return_type,
            parameters,
            sentinel: None,
        })
    }

    /// The modifier in the method's module; none where the managed convention is used.
    fn suppression(&self) -> Result<Option<TypeDefOrRef>> {
        if self.context().extension::<HasSuppression>().0.get() != Some(&true) || self.is_called_by_native_code()? {
            return Ok(None);
        }
        let token = self.found_row(Row::Suppression, || self.find_suppression(), || self.define_suppression())?;
        Ok(TypeDefOrRef::from_token(token))
    }

    fn is_called_by_native_code(&self) -> Result<bool> {
        let import = self.metadata();
        let method = self.method();
        let is_static = import.method(method)?.flags.contains(sys::mdStatic);
        Ok(is_static && import.custom_attribute_named(method, NATIVE)?.is_some())
    }

    /// That of the core library itself, or the module's own reference.
    fn find_suppression(&self) -> Result<Option<Token>> {
        let import = self.metadata();
        if import.find_type_def("System.Object", None)?.is_some()
            && let Some(own) = import.find_type_def(SUPPRESSION, None)?
        {
            return Ok(Some(own.into()));
        }
        match find_reference(import)? {
            Some(core) => Ok(import.find_type_ref(core, SUPPRESSION)?.map(Into::into)),
            None => Ok(None),
        }
    }

    fn define_suppression(&self) -> Result<Token> {
        let core = match find_reference(self.metadata())? {
            Some(core) => core.into(),
            None => self.row(Row::AssemblyRef(CORE_LIBRARY.into()), || {
                let identity = AssemblyIdentity {
                    name: CORE_LIBRARY.to_owned(),
                    version: [4, 0, 0, 0],
                    public_key: CORE_KEY.to_vec(),
                    ..AssemblyIdentity::default()
                };
                self.emit().define_assembly_ref(&identity).map(Into::into)
            })?,
        };
        let row = Row::TypeRef(core.as_raw(), SUPPRESSION.into());
        let scope = AssemblyRef::from_raw(core.as_raw());
        self.row(row, || self.references().define_type_ref(scope, SUPPRESSION).map(Into::into))
    }
}

/// The module's own reference to the core library, or to the library that forwards the type to it. A new one would call
/// for `ApplyMetaData`, which precompiled code may not survive.
fn find_reference(import: &MetadataImport<'_>) -> Result<Option<AssemblyRef>> {
    let mut forwarder = None;
    for reference in import.assembly_refs()? {
        let name = import.assembly_ref(reference)?.name;
        if name == CORE_LIBRARY {
            return Ok(Some(reference));
        }
        if name == FORWARDER {
            forwarder = Some(reference);
        }
    }
    Ok(forwarder)
}
