//! Which methods the runtime would not recompile, often without a word: they are refused before the request.

use corprof_sys as sys;

use crate::context::InCallback;
use crate::edit::{EditError, Refusal};
use crate::error::Error;
use crate::id::ModuleId;
use crate::metadata::{MetadataImport, MethodDef, SUSPENDING, Table, TypeDef, is_suspended_by_the_runtime};
use crate::values::Lookup;

const NON_VERSIONABLE: &str = "System.Runtime.Versioning.NonVersionableAttribute";

/// The types whose methods compiled code calls for casts and for writes to arrays.
const COMPILER_HELPERS: [&str; 2] =
    ["System.Runtime.CompilerServices.CastHelpers", "System.Runtime.CompilerServices.CastCache"];

/// Why a module's methods cannot be recompiled.
#[derive(Clone, Copy)]
pub(super) enum Unfit {
    Refused(Refusal),
    Runtime(Error),
}

impl From<Unfit> for EditError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Refused(why) => why.into(),
            Unfit::Runtime(error) => error.into(),
        }
    }
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}

/// A module whose methods may be recompiled.
pub(super) struct Fit<'cx> {
    metadata: MetadataImport<'cx>,
    /// Only a module that defines or names the attribute has methods with it.
    has_non_versionable: bool,
    /// Those that the module defines: none outside of the runtime's own library.
    compiler_helpers: Vec<TypeDef>,
    /// Whether the runtime recompiles methods that it suspends itself.
    recompiles_suspended: bool,
}

/// Whether the runtime recompiles methods that it suspends itself. Those that do have `Task`s of their own for them
/// (.NET 11); .NET 10 makes them otherwise, and ignores the requests.
pub(super) fn recompiles_suspended(cx: &mut InCallback<'_>) -> bool {
    Lookup::new(cx).core_library_has_nested(SUSPENDING, "RuntimeAsyncTask`1") == Some(true)
}

impl<'cx> Fit<'cx> {
    pub(super) fn new(cx: &'cx InCallback<'_>, module: ModuleId, recompiles_suspended: bool) -> Result<Self, Unfit> {
        let flags = cx.module_info(module)?.flags;
        if flags.contains(sys::COR_PRF_MODULE_DYNAMIC) {
            return Err(Unfit::Refused(Refusal::DynamicModule));
        }
        if flags.contains(sys::COR_PRF_MODULE_COLLECTIBLE) {
            return Err(Unfit::Refused(Refusal::CollectibleModule));
        }
        let metadata = cx.metadata(module)?;
        let has_non_versionable = names_attribute(&metadata)?;
        let mut compiler_helpers = Vec::new();
        for name in COMPILER_HELPERS {
            compiler_helpers.extend(metadata.find_type_def(name, None)?);
        }
        Ok(Self { metadata, has_non_versionable, compiler_helpers, recompiles_suspended })
    }

    pub(super) fn check(&self, method: MethodDef) -> Result<(), EditError> {
        let token = method.token();
        if token.table() != Some(Table::MethodDef) || !self.metadata.is_valid_token(token) {
            return Err(Refusal::NoMethod.into());
        }
        let props = self.metadata.method(method)?;
        let is_il = props.impl_flags.bits() & (sys::miCodeTypeMask.bits() | sys::miUnmanaged.bits()) == 0;
        let no_body = sys::mdAbstract.bits() | sys::mdPinvokeImpl.bits();
        if !is_il || props.code_rva == 0 || props.flags.bits() & no_body != 0 || is_internal(props.impl_flags) {
            return Err(Refusal::NotIl.into());
        }
        if is_suspended_by_the_runtime(&props) && !self.recompiles_suspended {
            return Err(Refusal::RuntimeAsyncReJit.into());
        }
        if self.compiler_helpers.contains(&props.class) {
            return Err(Refusal::CompilerHelper.into());
        }
        if self.has_non_versionable {
            let is_marked = |owner| self.metadata.custom_attribute_named(owner, NON_VERSIONABLE);
            if is_marked(token)?.is_some() || props.class != TypeDef::NIL && is_marked(props.class.token())?.is_some() {
                return Err(Refusal::NonVersionable.into());
            }
        }
        Ok(())
    }
}

fn is_internal(flags: sys::CorMethodImpl) -> bool {
    flags.contains(sys::miInternalCall)
}

fn names_attribute(metadata: &MetadataImport<'_>) -> Result<bool, Error> {
    if metadata.find_type_def(NON_VERSIONABLE, None)?.is_some() {
        return Ok(true);
    }
    for reference in metadata.assembly_refs()? {
        if metadata.find_type_ref(reference, NON_VERSIONABLE)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
