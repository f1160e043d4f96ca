//! Types and members that other modules define, as the verifier asks for them: in the metadata of the loaded ones.
//!
//! What is not loaded stays unknown, and so does what several loaded assemblies of one name may mean.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use corprof_il::verify::{Dispatch, Resolve};
use corprof_sys as sys;

use super::foreign_types::{ForeignMember, ForeignType};
use super::live::LiveMetadata;
use crate::context::InCallback;
use crate::id::ModuleId;
use crate::info::Definitions;
use crate::metadata::signature::{MethodSignature, Type};
use crate::metadata::{MemberRef, MetadataImport, MethodDef, MethodSpec, Table, Token, TypeDef, TypeDefOrRef, TypeRef};
use crate::session::liveness::Lifeline;

const EDIT: &str = "edit_method";

/// Finds what a module names and other modules define.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    cx: &'a InCallback<'a>,
    module: ModuleId,
    lifeline: &'a Lifeline,
}

/// The definition of a type, and whether it is an interface.
struct Definition {
    module: ModuleId,
    definition: TypeDef,
    is_interface: bool,
}

impl<'a> Others<'a> {
    pub(super) const fn new(cx: &'a InCallback<'a>, module: ModuleId, lifeline: &'a Lifeline) -> Self {
        Self { cx, module, lifeline }
    }

    /// The type that a reference means; `None` if that is not certain.
    pub(super) fn ty(self, reference: TypeRef) -> Option<Arc<ForeignType>> {
        // What the next module at this address names is something else.
        let _loaded = self.lifeline.pin(EDIT).ok()?;
        let types = self.cx.foreign_types();
        let known = types.ty(self.module, reference.as_raw());
        let ty = match known.filter(|known| known.is_certain()) {
            Some(known) => known,
            None => {
                let found = Arc::new(self.find(reference)?);
                types.keep_type(self.module, reference.as_raw(), Arc::clone(&found));
                found
            }
        };
        ty.is_certain().then_some(ty)
    }

    fn find(self, reference: TypeRef) -> Option<ForeignType> {
        let definitions = Definitions::new(self.cx);
        let (module, definition) = definitions.resolve(self.module, TypeDefOrRef::Ref(reference)).ok()?;
        let import = self.cx.metadata(module).ok()?;
        let there = LiveMetadata::new(&import);
        let token = Token::from(definition);
        let mut info = there.type_info(token)?;
        let mut delegate = there.delegate(token);
        if module != self.module {
            info.identity = identity(module, definition);
            // Nothing is known of a nil type.
            delegate.iter_mut().for_each(|invoke| invoke.rename(&mut |_| TypeDefOrRef::Ref(TypeRef::NIL)));
        }
        Some(ForeignType {
            module,
            definition,
            info,
            is_interface: import.type_def(definition).ok()?.flags.contains(sys::tdInterface),
            is_abstract: there.is_abstract(token),
            is_by_ref_like: there.is_by_ref_like(token),
            is_generic: there.is_generic(token),
            delegate,
            relied_on: definitions.into_relied_on(),
        })
    }

    /// The member that a reference means; `None` if its type is unknown, or has none of that name.
    fn member(
        self,
        reference: MemberRef,
        owner: &Definition,
        look: impl FnOnce(&MetadataImport<'_>) -> Option<ForeignMember>,
    ) -> Option<ForeignMember> {
        let _loaded = self.lifeline.pin(EDIT).ok()?;
        let types = self.cx.foreign_types();
        if let Some(known) = types.member(self.module, reference.as_raw()) {
            return Some(known);
        }
        let found = look(&self.cx.metadata(owner.module).ok()?)?;
        types.keep_member(self.module, reference.as_raw(), found);
        Some(found)
    }
}

impl LiveMetadata<'_> {
    /// A type of another module; `None` for others, and if it is not certain which it is.
    pub(super) fn foreign(&self, token: Token) -> Option<Arc<ForeignType>> {
        let reference = (token.table() == Some(Table::TypeRef)).then(|| TypeRef::from_raw(token.as_raw()))?;
        self.others?.ty(reference)
    }

    /// The definition of a member's owner, without the arguments of a generic one.
    fn definition_of(&self, owner: TypeDefOrRef) -> Option<Definition> {
        let others = self.others?;
        match owner {
            TypeDefOrRef::Def(definition) => {
                let is_interface = self.import.type_def(definition).ok()?.flags.contains(sys::tdInterface);
                Some(Definition { module: others.module, definition, is_interface })
            }
            TypeDefOrRef::Ref(reference) => {
                let ty = others.ty(reference)?;
                Some(Definition { module: ty.module, definition: ty.definition, is_interface: ty.is_interface })
            }
            TypeDefOrRef::Spec(spec) => match self.type_spec(spec.token())?.unmodified() {
                Type::Generic { definition, .. } if !matches!(definition, TypeDefOrRef::Spec(_)) => {
                    self.definition_of(*definition)
                }
                _ => None,
            },
        }
    }

    /// The method that a reference means.
    pub(super) fn foreign_method(
        &self,
        reference: MemberRef,
        owner: TypeDefOrRef,
        name: &str,
        has_this: bool,
    ) -> Option<ForeignMember> {
        let owner = self.definition_of(owner)?;
        self.others?.member(reference, &owner, |import| {
            let flags = |method| import.method(method).ok().map(|props| props.flags);
            let methods = import.methods_named(owner.definition, name).ok()?;
            let is_it = |flags: &sys::CorMethodAttr| flags.contains(sys::mdStatic) != has_this;
            let alike: Vec<_> = methods.into_iter().filter_map(flags).filter(is_it).collect();
            let is_virtual = alike.first()?.contains(sys::mdVirtual);
            let is_abstract = alike.iter().all(|flags| flags.contains(sys::mdAbstract));
            Some(ForeignMember { is_static: !has_this, is_virtual, is_abstract })
        })
    }

    /// The field that a reference means.
    pub(super) fn foreign_field(&self, reference: MemberRef, owner: TypeDefOrRef, name: &str) -> Option<ForeignMember> {
        let owner = self.definition_of(owner)?;
        self.others?.member(reference, &owner, |import| {
            let fields = import.fields(owner.definition).ok()?.into_iter();
            let field = fields.filter_map(|field| import.field(field).ok()).find(|props| props.name == name)?;
            let is_static = field.flags.contains(sys::fdStatic);
            Some(ForeignMember { is_static, is_virtual: false, is_abstract: false })
        })
    }

    /// As [`Resolve::dispatch`], but for methods of interfaces; `None` if it could not be found out.
    pub(super) fn dispatch_on(&self, value_type: Option<Token>, method: Token) -> Option<Dispatch> {
        let method = match method.table()? {
            Table::MethodSpec => self.import.method_spec(MethodSpec::from_raw(method.as_raw())).ok()?.parent,
            _ => method,
        };
        let info = self.method(method)?;
        let owner = self.definition_of(info.owner?)?;
        if owner.is_interface {
            return None;
        }
        let receiver = value_type.and_then(TypeDefOrRef::from_token).and_then(|ty| self.definition_of(ty));
        if self.is_base_of_values(&owner)? {
            let name = self.name_of_method(method)?;
            let is_own = self.has_method(&receiver?, &name, info.signature.parameters.len())?;
            return Some(if is_own { Dispatch::Own } else { Dispatch::Boxed });
        }
        if value_type.is_some() && receiver.is_none() {
            return None;
        }
        let is_own = receiver.is_some_and(|of| (of.module, of.definition) == (owner.module, owner.definition));
        Some(match (is_own, info.is_virtual) {
            (true, Some(false)) => Dispatch::Boxed,
            (true, _) => Dispatch::Own,
            (false, _) => Dispatch::Unrelated,
        })
    }

    fn name_of_method(&self, method: Token) -> Option<String> {
        match method.table()? {
            Table::MethodDef => self.import.method(MethodDef::from_raw(method.as_raw())).ok().map(|props| props.name),
            _ => self.import.member_ref(MemberRef::from_raw(method.as_raw())).ok().map(|props| props.name),
        }
    }

    fn is_base_of_values(&self, ty: &Definition) -> Option<bool> {
        let import = self.others?.cx.metadata(ty.module).ok()?;
        let props = import.type_def(ty.definition).ok()?;
        let is_named = matches!(&*props.name, "System.Object" | "System.ValueType" | "System.Enum");
        Some(is_named && LiveMetadata::new(&import).is_of_core(&props))
    }

    fn has_method(&self, ty: &Definition, name: &str, parameters: usize) -> Option<bool> {
        let import = self.others?.cx.metadata(ty.module).ok()?;
        let count = |method: &MethodDef| {
            let signature = MethodSignature::decode(&import.method(*method).ok()?.signature).ok()?;
            Some(signature.parameters.len())
        };
        Some(import.methods_named(ty.definition, name).ok()?.iter().any(|method| count(method) == Some(parameters)))
    }
}

/// The same for each token that means this type, and for no other.
fn identity(module: ModuleId, definition: TypeDef) -> u64 {
    let mut hasher = DefaultHasher::new();
    (module.as_raw(), definition.as_raw()).hash(&mut hasher);
    1 << 63 | hasher.finish()
}
