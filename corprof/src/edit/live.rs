//! The metadata of a loaded module, as the verifier asks for them.
//!
//! Types of other modules are looked up there ([`foreign`](super::foreign)). What is not found stays unknown, but for
//! what its name tells, and nothing is refused because of it.

use std::hash::{DefaultHasher, Hash, Hasher};

use corprof_il::verify::{
    Category, Dispatch, FieldInfo, MethodContext, MethodInfo, Resolve, TypeInfo, WellKnown, is_ref_struct_of_system,
};
use corprof_sys as sys;

use super::foreign::Others;
use crate::metadata::signature::{CallingConvention, MethodSignature, Primitive, Signature, Type};
use crate::metadata::{
    FieldDef, MemberRef, MetadataImport, MethodDef, MethodSpec, StandAloneSignature, Table, Token, TypeDef,
    TypeDefOrRef, TypeDefProps, TypeRef, TypeSpec, UserString, awaited, is_suspended_by_the_runtime,
};

/// How deep types can be nested before they are given up.
const MOST_HOPS: usize = 16;

/// `MethodImplAttributes`: its calls exclude each other.
const IMPL_SYNCHRONIZED: u32 = 0x20;

pub(super) struct LiveMetadata<'a> {
    pub(super) import: &'a MetadataImport<'a>,
    pub(super) others: Option<Others<'a>>,
}

impl<'a> LiveMetadata<'a> {
    /// One module alone.
    pub(super) const fn new(import: &'a MetadataImport<'a>) -> Self {
        Self { import, others: None }
    }

    /// A module among the others.
    pub(super) const fn with(import: &'a MetadataImport<'a>, others: Others<'a>) -> Self {
        Self { import, others: Some(others) }
    }

    /// Whether the module of a type is the library that defines `System.Object`.
    pub(super) fn is_core(&self, class: TypeDef) -> bool {
        let Ok(props) = self.import.type_def(class) else { return false };
        if props.extends.is_some_and(|base| !base.token().is_nil()) {
            return self.is_of_core(&props);
        }
        // A type without a base does not tell. This compares the names of all types.
        let object = self.import.find_type_def("System.Object", None).ok().flatten();
        let object = object.and_then(|object| self.import.type_def(object).ok());
        object.is_some_and(|object| object.extends.is_none_or(|base| base.token().is_nil()))
    }

    /// The facts about a method that the verifier needs; `None` if its signature cannot be read.
    pub(super) fn context(&self, method: MethodDef) -> Option<MethodContext> {
        let props = self.import.method(method).ok()?;
        let signature = MethodSignature::decode(&props.signature).ok()?;
        let mut context = MethodContext::new(Some(TypeDefOrRef::Def(props.class)), signature);
        context.is_synchronized = props.impl_flags.bits() & IMPL_SYNCHRONIZED != 0;
        if is_suspended_by_the_runtime(&props) {
            context.returns = awaited(self.import, &context.signature.return_type);
        }
        self.describe_parameters(&mut context, method, Type::MethodParameter);
        self.describe_parameters(&mut context, props.class, Type::TypeParameter);
        let of_type = if props.class.token().is_nil() { Some(0) } else { self.type_parameters(props.class) };
        context.type_parameters = of_type;
        Some(context)
    }

    fn type_parameters(&self, class: TypeDef) -> Option<u32> {
        u32::try_from(self.import.generic_params(class).ok()?.len()).ok()
    }

    /// Finds the generic parameters that ref structs can stand for, and those that only reference types can stand for,
    /// or perhaps only such, if a constraint is a type that is not known.
    fn describe_parameters(&self, context: &mut MethodContext, owner: impl Into<Token>, parameter: fn(u32) -> Type) {
        for param in self.import.generic_params(owner).unwrap_or_default() {
            let ty = parameter(param.index);
            let constraints = || self.import.generic_param_constraints(param.token).unwrap_or_default();
            if param.flags.contains(sys::gpAllowByRefLike) {
                context.ref_structs.push(ty);
            } else if param.flags.contains(sys::gpReferenceTypeConstraint)
                || constraints().into_iter().any(|constraint| self.is_class_constraint(constraint))
            {
                context.references.push(ty);
            }
        }
    }

    fn is_class_constraint(&self, token: Token) -> bool {
        let token = match self.type_spec(token) {
            Some(Type::Generic { value_type: false, definition, .. }) => definition.token(),
            Some(_) => return false,
            None => token,
        };
        let is_interface =
            |definition| self.import.type_def(definition).is_ok_and(|props| props.flags.contains(sys::tdInterface));
        let is_base = |name: String| matches!(&*name, "System.Object" | "System.ValueType" | "System.Enum");
        match token.table() {
            Some(Table::TypeDef) => {
                !is_interface(TypeDef::from_raw(token.as_raw())) && !self.name(token).is_some_and(is_base)
            }
            Some(Table::TypeRef) => {
                let is_interface = self.foreign(token).is_some_and(|foreign| foreign.is_interface);
                !is_interface && !self.name(token).is_some_and(is_base)
            }
            _ => false,
        }
    }

    /// The name of a type, without the enclosing ones.
    fn name(&self, token: Token) -> Option<String> {
        match token.table()? {
            Table::TypeDef => self.import.type_def(TypeDef::from_raw(token.as_raw())).ok().map(|props| props.name),
            Table::TypeRef => self.import.type_ref(TypeRef::from_raw(token.as_raw())).ok().map(|props| props.name),
            _ => None,
        }
    }

    fn of_definition(&self, definition: TypeDef) -> Option<TypeInfo> {
        let props = self.import.type_def(definition).ok()?;
        let is_top = self.import.enclosing_class(definition).ok().flatten().is_none();
        let well_known = props.name.strip_prefix("System.").filter(|name| *name == "Enum" || is_well_known(name));
        let name = well_known.filter(|_| is_top && self.is_of_core(&props));
        let base = props.extends.and_then(|base| self.name(base.token()));
        let category = match base.as_deref() {
            _ if props.flags.contains(sys::tdInterface) || name == Some("Enum") => Category::Reference,
            Some("System.Enum") => self.enum_type(definition).map_or(Category::ValueOrEnum, Category::Enum),
            Some("System.ValueType") => Category::Value,
            _ => Category::Reference,
        };
        let identity = definition.as_raw().into();
        Some(TypeInfo { identity, category, well_known: name.and_then(WellKnown::from_name) })
    }

    /// Whether the base of all its bases is this module's own `System.Object`: then the module is the core library.
    ///
    /// Not by `FindTypeDefByName`, which compares the names of all types, for each method that is verified.
    pub(super) fn is_of_core(&self, props: &TypeDefProps) -> bool {
        let mut at = props.clone();
        for _ in 0..MOST_HOPS {
            let base = at.extends.filter(|base| !base.token().is_nil());
            let Some(base) = base else { return at.name == "System.Object" };
            let TypeDefOrRef::Def(base) = base else { return false };
            let Ok(next) = self.import.type_def(base) else { return false };
            at = next;
        }
        false
    }

    /// The primitive type under an enumeration: that of its one instance field.
    fn enum_type(&self, definition: TypeDef) -> Option<Primitive> {
        for field in self.import.fields(definition).ok()? {
            let props = self.import.field(field).ok()?;
            if !props.flags.contains(sys::fdStatic) {
                return match Type::decode_field(&props.signature).ok()? {
                    Type::Primitive(primitive) => Some(primitive),
                    _ => None,
                };
            }
        }
        None
    }

    fn of_reference(&self, reference: TypeRef) -> Option<TypeInfo> {
        if let Some(foreign) = self.foreign(reference.into()) {
            return Some(foreign.info);
        }
        let mut hasher = DefaultHasher::new();
        let mut at = reference;
        for hop in 0..MOST_HOPS {
            let props = self.import.type_ref(at).ok()?;
            props.name.hash(&mut hasher);
            match props.scope.table() {
                Some(Table::TypeRef) => at = TypeRef::from_raw(props.scope.as_raw()),
                Some(Table::AssemblyRef) => {
                    props.scope.as_raw().hash(&mut hasher);
                    let name = props.name.strip_prefix("System.").filter(|_| hop == 0);
                    let well_known = name.and_then(WellKnown::from_name);
                    let identity = 1 << 63 | hasher.finish();
                    return Some(TypeInfo { identity, category: Category::Unknown, well_known });
                }
                Some(Table::Module) if hop == 0 => {
                    let definition = self.import.find_type_def(&props.name, None).ok().flatten()?;
                    return self.of_definition(definition);
                }
                _ => break,
            }
        }
        Some(TypeInfo { identity: 1 << 63 | hasher.finish(), category: Category::Unknown, well_known: None })
    }

    /// The type that has a member, and whether it is one of this module.
    fn parent(&self, token: Token) -> Option<Option<TypeDefOrRef>> {
        Some(match token.table()? {
            // A call with more arguments than the definition has.
            Table::MethodDef => {
                let method = self.import.method(MethodDef::from_raw(token.as_raw())).ok()?;
                Some(TypeDefOrRef::Def(method.class))
            }
            Table::ModuleRef => None,
            _ => TypeDefOrRef::from_token(token),
        })
    }
}

impl Resolve for LiveMetadata<'_> {
    fn type_info(&self, token: Token) -> Option<TypeInfo> {
        match token.table()? {
            Table::TypeDef => self.of_definition(TypeDef::from_raw(token.as_raw())),
            Table::TypeRef => self.of_reference(TypeRef::from_raw(token.as_raw())),
            _ => None,
        }
    }

    fn type_spec(&self, token: Token) -> Option<Type> {
        if token.table() != Some(Table::TypeSpec) {
            return None;
        }
        Type::decode(&self.import.type_spec(TypeSpec::from_raw(token.as_raw())).ok()?).ok()
    }

    fn method(&self, token: Token) -> Option<MethodInfo> {
        match token.table()? {
            Table::MethodDef => {
                let props = self.import.method(MethodDef::from_raw(token.as_raw())).ok()?;
                Some(MethodInfo {
                    owner: Some(TypeDefOrRef::Def(props.class)),
                    signature: MethodSignature::decode(&props.signature).ok()?,
                    is_constructor: props.name == ".ctor",
                    is_abstract: props.flags.contains(sys::mdAbstract),
                    is_virtual: Some(props.flags.contains(sys::mdVirtual)),
                })
            }
            Table::MemberRef => {
                let reference = MemberRef::from_raw(token.as_raw());
                let props = self.import.member_ref(reference).ok()?;
                let owner = self.parent(props.parent)?;
                let signature = MethodSignature::decode(&props.signature).ok()?;
                let has_this = signature.has_this;
                let found = owner.and_then(|owner| self.foreign_method(reference, owner, &props.name, has_this));
                Some(MethodInfo {
                    owner,
                    signature,
                    is_constructor: props.name == ".ctor",
                    is_abstract: found.is_some_and(|found| found.is_abstract),
                    is_virtual: found.map(|found| found.is_virtual),
                })
            }
            _ => None,
        }
    }

    fn method_spec(&self, token: Token) -> Option<(Token, Vec<Type>)> {
        if token.table() != Some(Table::MethodSpec) {
            return None;
        }
        let props = self.import.method_spec(MethodSpec::from_raw(token.as_raw())).ok()?;
        Some((props.parent, Type::decode_method_spec(&props.signature).ok()?))
    }

    fn field(&self, token: Token) -> Option<FieldInfo> {
        match token.table()? {
            Table::FieldDef => {
                let props = self.import.field(FieldDef::from_raw(token.as_raw())).ok()?;
                Some(FieldInfo {
                    owner: Some(TypeDefOrRef::Def(props.class)),
                    ty: Type::decode_field(&props.signature).ok()?,
                    is_static: Some(props.flags.contains(sys::fdStatic)),
                })
            }
            Table::MemberRef => {
                let reference = MemberRef::from_raw(token.as_raw());
                let props = self.import.member_ref(reference).ok()?;
                let ty = Type::decode_field(&props.signature).ok()?;
                let owner = self.parent(props.parent)?;
                let found = owner.and_then(|owner| self.foreign_field(reference, owner, &props.name));
                Some(FieldInfo { owner, ty, is_static: found.map(|found| found.is_static) })
            }
            _ => None,
        }
    }

    fn signature(&self, token: Token) -> Option<Signature> {
        if token.table() != Some(Table::StandAloneSignature) {
            return None;
        }
        Signature::decode(&self.import.signature(StandAloneSignature::from_raw(token.as_raw())).ok()?).ok()
    }

    fn has_string(&self, token: Token) -> bool {
        token.table() == Some(Table::UserString)
            && self.import.user_string_units(UserString::from_raw(token.as_raw())).is_ok()
    }

    fn is_generic(&self, token: Token) -> bool {
        if let Some(foreign) = self.foreign(token) {
            return foreign.is_generic;
        }
        definition(token).and_then(|definition| self.type_parameters(definition)).is_some_and(|count| count > 0)
    }

    fn is_abstract(&self, token: Token) -> bool {
        if let Some(foreign) = self.foreign(token) {
            return foreign.is_abstract;
        }
        let props = definition(token).and_then(|definition| self.import.type_def(definition).ok());
        props.is_some_and(|props| props.flags.contains(sys::tdAbstract))
    }

    fn is_by_ref_like(&self, token: Token) -> bool {
        const BY_REF_LIKE: &str = "System.Runtime.CompilerServices.IsByRefLikeAttribute";
        if token.table() == Some(Table::TypeDef) {
            return self.import.custom_attribute_named(token, BY_REF_LIKE).is_ok_and(|found| found.is_some());
        }
        if let Some(foreign) = self.foreign(token) {
            return foreign.is_by_ref_like;
        }
        let name = self.name(token);
        name.as_deref().and_then(|name| name.strip_prefix("System.")).is_some_and(is_ref_struct_of_system)
    }

    fn dispatch(&self, value_type: Option<Token>, method: Token) -> Dispatch {
        self.dispatch_on(value_type, method).unwrap_or(Dispatch::Unknown)
    }

    fn delegate(&self, token: Token) -> Option<MethodSignature> {
        if let Some(foreign) = self.foreign(token) {
            return foreign.delegate.clone();
        }
        if token.table() == Some(Table::TypeRef) {
            let props = self.import.type_ref(TypeRef::from_raw(token.as_raw())).ok()?;
            return well_known_delegate(&props.name);
        }
        let definition = definition(token)?;
        let base = self.import.type_def(definition).ok()?.extends?;
        if self.name(base.token())? != "System.MulticastDelegate" {
            return None;
        }
        let invoke = *self.import.methods_named(definition, "Invoke").ok()?.first()?;
        MethodSignature::decode(&self.import.method(invoke).ok()?.signature).ok()
    }
}

fn is_well_known(name: &str) -> bool {
    WellKnown::from_name(name).is_some()
}

/// The definition of a type in this module, if the token is one.
fn definition(token: Token) -> Option<TypeDef> {
    (token.table() == Some(Table::TypeDef)).then(|| TypeDef::from_raw(token.as_raw()))
}

/// `Invoke` of the delegates that most code uses, which other modules define.
fn well_known_delegate(name: &str) -> Option<MethodSignature> {
    let name = name.strip_prefix("System.")?;
    let (name, count) = match name.split_once('`') {
        Some((name, count)) => (name, count.parse::<u32>().ok().filter(|count| (1..=17).contains(count))?),
        None => (name, 0),
    };
    let (parameters, return_type) = match (name, count) {
        ("Action", 0..=16) => (count, Type::Primitive(Primitive::Void)),
        ("Func", 1..) => (count - 1, Type::TypeParameter(count - 1)),
        ("Predicate", 1) => (1, Type::Primitive(Primitive::Bool)),
        ("Converter", 2) => (1, Type::TypeParameter(1)),
        _ => return None,
    };
    Some(MethodSignature {
        convention: CallingConvention::Default,
        has_this: true,
        explicit_this: false,
        generic_parameters: 0,
        return_type,
        parameters: (0..parameters).map(Type::TypeParameter).collect(),
        sentinel: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegates_are_known_by_name() {
        let shape = |name| well_known_delegate(name).map(|invoke| (invoke.parameters.len(), invoke.return_type));
        assert_eq!(shape("System.Action"), Some((0, Type::Primitive(Primitive::Void))));
        assert_eq!(shape("System.Action`16"), Some((16, Type::Primitive(Primitive::Void))));
        assert_eq!(shape("System.Func`1"), Some((0, Type::TypeParameter(0))));
        assert_eq!(shape("System.Func`17"), Some((16, Type::TypeParameter(16))));
        assert_eq!(shape("System.Predicate`1"), Some((1, Type::Primitive(Primitive::Bool))));
        for other in
            ["Action", "System.Action`17", "System.Func", "System.Func`18", "System.Func`x", "System.EventHandler"]
        {
            assert_eq!(shape(other), None, "{other}");
        }
    }
}
