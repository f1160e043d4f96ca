//! The effect of tokens of methods, fields and signatures on the stack; computed once for each.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::kind::{Kind, Scope, Types};
use super::resolve::{MethodInfo, Resolve};
use crate::signature::{MethodSignature, Signature, Type};
use crate::token::{Table, Token, TypeDefOrRef};

/// How many generic parameters of its type and method a body must have, so that all it speaks of are there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    of_type: u32,
    of_method: u32,
}

impl Needs {
    fn of(ty: Option<&Type>) -> Self {
        let mut needs = Self::default();
        ty.into_iter().for_each(|ty| needs.add(ty));
        needs
    }

    fn add(&mut self, ty: &Type) {
        match ty {
            Type::TypeParameter(number) => self.of_type = self.of_type.max(number.saturating_add(1)),
            Type::MethodParameter(number) => self.of_method = self.of_method.max(number.saturating_add(1)),
            Type::Pointer(inner) | Type::ByRef(inner) | Type::SzArray(inner) | Type::Array(inner, _) => self.add(inner),
            Type::Modified { inner, .. } | Type::InternalModified { inner, .. } | Type::Pinned(inner) => {
                self.add(inner)
            }
            Type::Generic { arguments, .. } => arguments.iter().for_each(|ty| self.add(ty)),
            Type::FunctionPointer(signature) => self.add_signature(signature),
            Type::Primitive(_) | Type::Class(_) | Type::ValueType(_) | Type::Internal(_) => {}
        }
    }

    fn add_signature(&mut self, signature: &MethodSignature) {
        signature.parameters.iter().chain([&signature.return_type]).for_each(|ty| self.add(ty));
    }
}

/// A method as a call sees it.
#[derive(Debug)]
pub(super) struct Method {
    /// The owner's kind on the stack: `Object`, a value type, or unknown. Of a `calli`: unknown.
    pub(super) owner: Kind,
    /// The kind of the value that its address as `this` is of; unknown of what is no value type.
    pub(super) holder: Kind,
    pub(super) has_this: bool,
    pub(super) parameters: Box<[Kind]>,
    pub(super) returns: Option<Kind>,
    /// The type in the signature.
    pub(super) return_type: Type,
    pub(super) is_constructor: bool,
    pub(super) is_abstract: bool,
    pub(super) is_virtual: Option<bool>,
    /// Whether no object can be made of the owner.
    pub(super) is_of_abstract: bool,
    /// Whether the owner is a generic type without arguments.
    pub(super) is_of_open: bool,
    /// Whether it is generic, or its owner is.
    pub(super) is_generic: bool,
    /// Whether it is generic and has no arguments.
    pub(super) is_open: bool,
    pub(super) is_vararg: bool,
    /// Whether `void` stands in the signature where no type of a value may be void.
    pub(super) has_misplaced_void: bool,
    pub(super) needs: Needs,
}

/// A field as an access sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) owner: Kind,
    /// The kind of the value that it is a part of; unknown of what is no value type.
    pub(super) holder: Kind,
    pub(super) kind: Kind,
    pub(super) is_static: Option<bool>,
    /// Whether the owner is a generic type without arguments.
    pub(super) is_of_open: bool,
    /// Whether `void` stands in the owner or the type where no type of a value may be void.
    pub(super) has_misplaced_void: bool,
    pub(super) needs: Needs,
}

/// Answers of a [`Resolve`], as the stack sees them.
pub(super) struct Facts<'r, R: Resolve + ?Sized> {
    pub(super) resolve: &'r R,
    pub(super) types: Types,
    methods: FxHashMap<Token, Option<Rc<Method>>>,
    fields: FxHashMap<Token, Option<Field>>,
    /// `Invoke`, by the constructor of the delegate.
    pub(super) delegates: FxHashMap<Token, Option<Rc<Method>>>,
}

impl<'r, R: Resolve + ?Sized> Facts<'r, R> {
    pub(super) fn new(resolve: &'r R) -> Self {
        let methods = FxHashMap::default();
        let fields = FxHashMap::default();
        let delegates = FxHashMap::default();
        let types = Types::new(resolve.native_int());
        Self { resolve, types, methods, fields, delegates }
    }

    /// A method by any token that a call can have; `None` if it names no method.
    pub(super) fn method(&mut self, token: Token) -> Option<Rc<Method>> {
        if let Some(known) = self.methods.get(&token) {
            return known.clone();
        }
        let found = self.find_method(token).map(Rc::new);
        self.methods.insert(token, found.clone());
        found
    }

    fn find_method(&mut self, token: Token) -> Option<Method> {
        match token.table()? {
            Table::MethodDef | Table::MemberRef => self.instantiated(token, None),
            Table::MethodSpec => {
                let (generic, arguments) = self.resolve.method_spec(token)?;
                let mut method = self.instantiated(generic, Some(&arguments))?;
                for argument in &arguments {
                    method.needs.add(argument);
                    method.has_misplaced_void |= argument.is_void() || argument.has_misplaced_void();
                }
                method.is_generic = true;
                Some(method)
            }
            Table::StandAloneSignature => match self.resolve.signature(token)? {
                Signature::Method(signature) => {
                    let mut method = self.called(&signature, Scope::default(), Kind::Unknown);
                    method.needs.add_signature(&signature);
                    Some(method)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn instantiated(&mut self, token: Token, of_method: Option<&[Type]>) -> Option<Method> {
        let info = self.resolve.method(token)?;
        if of_method.is_some_and(|arguments| arguments.len() != info.signature.generic_parameters as usize) {
            return None;
        }
        let (owner, spec) = self.owner(info.owner)?;
        let of_type = arguments(spec.as_deref());
        let scope = Scope { of_type, of_method };
        let MethodInfo { is_constructor, is_abstract, is_virtual, .. } = info;
        let called = self.called(&info.signature, scope, owner);
        let definition = match spec.as_deref().map(Type::unmodified) {
            Some(Type::Generic { definition, .. }) => Some(*definition),
            _ => info.owner,
        };
        let is_of_abstract =
            is_constructor && definition.is_some_and(|definition| self.resolve.is_abstract(definition.token()));
        let is_of_open = self.is_open(info.owner);
        let is_generic = info.signature.generic_parameters > 0 || of_type.is_some();
        let has_misplaced_void = called.has_misplaced_void || spec.as_deref().is_some_and(Type::has_misplaced_void);
        let needs = Needs::of(spec.as_deref());
        let holder = self.holder(info.owner, owner);
        let is_open = of_method.is_none() && info.signature.generic_parameters > 0;
        Some(Method {
            holder,
            is_constructor,
            is_open,
            is_abstract,
            is_virtual,
            is_of_abstract,
            is_of_open,
            is_generic,
            has_misplaced_void,
            needs,
            ..called
        })
    }

    /// The kind of a member's owner on the stack, and its spelling in a type spec.
    fn owner(&mut self, owner: Option<TypeDefOrRef>) -> Option<(Kind, Option<Rc<Type>>)> {
        Some(match owner {
            None => (Kind::Unknown, None),
            Some(TypeDefOrRef::Spec(spec)) => {
                let ty = self.types.spec(self.resolve, spec.token())?;
                let kind = self.types.kind(self.resolve, &ty, Scope::default()).unwrap_or(Kind::Unknown);
                (kind.plain(), Some(ty))
            }
            Some(named) => (self.types.of_token(self.resolve, named.token()).unwrap_or(Kind::Unknown), None),
        })
    }

    /// The kind of the value that a member is of, as far as that may be one of a value type.
    fn holder(&mut self, ty: Option<TypeDefOrRef>, owner: Kind) -> Kind {
        match (owner, ty) {
            (Kind::Unknown, Some(named)) => self.types.holder(self.resolve, named.token()),
            (Kind::Object, _) => Kind::Unknown,
            _ => owner,
        }
    }

    pub(super) fn called(&mut self, signature: &MethodSignature, scope: Scope<'_>, owner: Kind) -> Method {
        let parameters =
            signature.parameters.iter().map(|ty| self.types.kind(self.resolve, ty, scope).unwrap_or(Kind::Unknown));
        let parameters = parameters.collect();
        let returns = self.types.kind(self.resolve, &signature.return_type, scope);
        let has_this = signature.has_this && !signature.explicit_this;
        Method {
            owner,
            holder: Kind::Unknown,
            has_this,
            parameters,
            returns,
            return_type: signature.return_type.clone(),
            is_constructor: false,
            is_abstract: false,
            is_virtual: None,
            is_of_abstract: false,
            is_of_open: false,
            is_generic: false,
            is_open: false,
            is_vararg: signature.is_vararg(),
            has_misplaced_void: signature.has_misplaced_void(),
            needs: Needs::default(),
        }
    }

    /// A field by any token that an access can have; `None` if it names no field.
    pub(super) fn field(&mut self, token: Token) -> Option<Field> {
        if let Some(known) = self.fields.get(&token) {
            return *known;
        }
        let found = self.find_field(token);
        self.fields.insert(token, found);
        found
    }

    fn find_field(&mut self, token: Token) -> Option<Field> {
        let (Table::FieldDef | Table::MemberRef) = token.table()? else { return None };
        let info = self.resolve.field(token)?;
        let (owner, spec) = self.owner(info.owner)?;
        let scope = Scope { of_type: arguments(spec.as_deref()), of_method: None };
        let kind = self.types.kind(self.resolve, &info.ty, scope).unwrap_or(Kind::Unknown);
        let has_misplaced_void =
            info.ty.is_void() || info.ty.has_misplaced_void() || spec.as_deref().is_some_and(Type::has_misplaced_void);
        let is_of_open = self.is_open(info.owner);
        let needs = Needs::of(spec.as_deref());
        let holder = self.holder(info.owner, owner);
        Some(Field { owner, holder, kind, is_static: info.is_static, is_of_open, has_misplaced_void, needs })
    }

    /// Whether a token names a type that can be caught.
    pub(super) fn is_class(&mut self, token: Token) -> bool {
        let found = self.types.operand(self.resolve, token);
        found.is_some_and(|ty| !ty.is_void && !ty.is_by_ref)
    }

    /// The definition that a type is of, as a token of it names it: that of a generic type without its arguments.
    pub(super) fn definition(&mut self, ty: Token) -> Option<Token> {
        match ty.table()? {
            Table::TypeDef | Table::TypeRef => Some(ty),
            _ => match self.types.spec(self.resolve, ty)?.unmodified() {
                Type::Generic { definition, .. } | Type::ValueType(definition) | Type::Class(definition) => {
                    Some(definition.token())
                }
                _ => None,
            },
        }
    }

    /// Whether a token names a generic parameter.
    pub(super) fn is_type_parameter(&mut self, ty: Token) -> bool {
        let spec = (ty.table() == Some(Table::TypeSpec)).then(|| self.types.spec(self.resolve, ty)).flatten();
        let is_parameter = |ty: &Type| matches!(ty, Type::TypeParameter(_) | Type::MethodParameter(_));
        spec.is_some_and(|spec| is_parameter(spec.unmodified()))
    }

    /// Whether values of a type are on the stack only, as far as that is known.
    pub(super) fn is_by_ref_like(&mut self, definition: Token) -> bool {
        self.types.is_argument_pointer(self.resolve, definition) || self.resolve.is_by_ref_like(definition)
    }

    fn is_open(&mut self, owner: Option<TypeDefOrRef>) -> bool {
        owner.is_some_and(|owner| self.types.is_open(self.resolve, owner.token()))
    }

    /// The generic parameters that a type speaks of.
    pub(super) fn needs(&mut self, token: Token) -> Needs {
        let is_spec = token.table() == Some(Table::TypeSpec);
        if is_spec { Needs::of(self.types.spec(self.resolve, token).as_deref()) } else { Needs::default() }
    }
}

pub(super) fn arguments(spec: Option<&Type>) -> Option<&[Type]> {
    match spec?.unmodified() {
        Type::Generic { arguments, .. } => Some(arguments),
        _ => None,
    }
}

/// The method whose body is verified, as its own instructions see it.
pub(super) struct Frame {
    pub(super) arguments: Vec<Kind>,
    pub(super) locals: Vec<Kind>,
    pub(super) returns: Option<Kind>,
    /// The type in the signature.
    pub(super) return_type: Type,
    pub(super) is_vararg: bool,
    pub(super) has_this: bool,
    /// Whether the method can be left by `jmp`.
    pub(super) has_jmp: bool,
    /// Where `void` stands though a value must be there.
    misplaced_void: Option<&'static str>,
    /// How many generic parameters the type and the method have.
    has: Needs,
    /// Those that the local variables speak of.
    local_needs: Needs,
    /// The generic parameters that only reference types can stand for.
    references: Vec<Kind>,
    /// Those that ref structs can stand for.
    ref_structs: Vec<Kind>,
}

impl Frame {
    /// The first generic parameter that is missing, if one is.
    pub(super) fn missing(&self, needs: Needs) -> Option<String> {
        let Needs { of_type, of_method } = needs;
        if of_type > self.has.of_type {
            Some(format!("!{}", of_type - 1))
        } else if of_method > self.has.of_method {
            Some(format!("!!{}", of_method - 1))
        } else {
            None
        }
    }

    /// As [`missing`](Self::missing), of the local variables.
    pub(super) fn missing_in_locals(&self) -> Option<String> {
        self.missing(self.local_needs)
    }

    /// The part of the signatures in which `void` stands though a value must be there.
    pub(super) const fn misplaced_void(&self) -> Option<&'static str> {
        self.misplaced_void
    }

    /// Whether a value of this kind is an object in each instantiation.
    pub(super) fn is_reference(&self, kind: Kind) -> bool {
        kind.plain() == Kind::Object || self.references.contains(&kind)
    }

    /// Whether a value of this kind is a ref struct in some instantiation.
    pub(super) fn may_be_ref_struct(&self, kind: Kind) -> bool {
        self.ref_structs.contains(&kind)
    }

    /// Whether both are references, one or both of a generic parameter that only reference types can stand for.
    #[cold]
    pub(super) fn is_same_reference(&self, a: Kind, b: Kind) -> bool {
        self.is_reference(a) && self.is_reference(b)
    }
}

/// The method that a body belongs to.
#[derive(Clone, Debug)]
pub struct MethodContext {
    /// The type that has the method; `None` for a method of the module.
    pub owner: Option<TypeDefOrRef>,
    /// The signature.
    pub signature: MethodSignature,
    /// The type that the body returns, if it differs from the signature's: methods that the runtime itself suspends
    /// (`async` in MethodImpl, 0x2000) return `Task<T>` by their signature, and `T` in their body.
    pub returns: Option<Type>,
    /// The generic parameters of the method and its type that only reference types can stand for, by their constraints.
    pub references: Vec<Type>,
    /// Those that ref structs can stand for, too (`allows ref struct`).
    pub ref_structs: Vec<Type>,
    /// How many generic parameters the type has; `None` if that is not known, and then nothing is refused because of
    /// it.
    pub type_parameters: Option<u32>,
    /// Whether its calls exclude each other (`synchronized` in MethodImpl, 0x20).
    pub is_synchronized: bool,
}

impl MethodContext {
    /// A method with this signature, of this type.
    pub const fn new(owner: Option<TypeDefOrRef>, signature: MethodSignature) -> Self {
        Self {
            owner,
            signature,
            returns: None,
            references: Vec::new(),
            ref_structs: Vec::new(),
            type_parameters: None,
            is_synchronized: false,
        }
    }
}

impl<R: Resolve + ?Sized> Facts<'_, R> {
    /// The types of a body's arguments and local variables; `None` if these cannot be read.
    pub(super) fn frame(&mut self, context: &MethodContext, locals: Option<Token>) -> Option<Frame> {
        let signature = &context.signature;
        let mut frame = Frame {
            arguments: Vec::with_capacity(signature.parameters.len() + 1),
            locals: Vec::new(),
            returns: None,
            return_type: signature.return_type.clone(),
            is_vararg: signature.is_vararg(),
            has_jmp: signature.generic_parameters == 0
                && context.type_parameters.unwrap_or_default() == 0
                && !context.is_synchronized,
            misplaced_void: signature.has_misplaced_void().then_some("the signature"),
            has_this: signature.has_this && !signature.explicit_this,
            has: Needs {
                of_type: context.type_parameters.unwrap_or(u32::MAX),
                of_method: signature.generic_parameters,
            },
            local_needs: Needs::default(),
            references: Vec::new(),
            ref_structs: Vec::new(),
        };
        for ty in &context.references {
            frame.references.extend(self.types.kind(self.resolve, ty, Scope::default()));
        }
        for ty in &context.ref_structs {
            frame.ref_structs.extend(self.types.kind(self.resolve, ty, Scope::default()));
        }
        if signature.has_this && !signature.explicit_this {
            frame.arguments.push(match self.owner(context.owner).map(|(kind, _)| kind) {
                Some(Kind::Object) => Kind::Object,
                None | Some(Kind::Unknown) => Kind::Unknown,
                // `this` is of the generic type with its own parameters.
                Some(_) if context.type_parameters != Some(0) => Kind::Ref,
                Some(owner) => owner.address(),
            });
        }
        for ty in &signature.parameters {
            frame.arguments.push(self.types.kind(self.resolve, ty, Scope::default()).unwrap_or(Kind::Unknown));
        }
        let returns = context.returns.as_ref().unwrap_or(&signature.return_type);
        frame.returns = self.types.kind(self.resolve, returns, Scope::default());
        if let Some(token) = locals {
            let Signature::Locals(types) = self.resolve.signature(token)? else { return None };
            for ty in &types {
                frame.local_needs.add(ty);
                if ty.is_void() || ty.has_misplaced_void() {
                    frame.misplaced_void = Some("a local variable");
                }
                frame.locals.push(self.types.kind(self.resolve, ty, Scope::default()).unwrap_or(Kind::Unknown));
            }
        }
        Some(frame)
    }
}
