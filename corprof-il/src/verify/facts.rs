//! The effect of tokens of methods, fields and signatures on the stack; computed once for each.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::kind::{Kind, Scope, Types};
use super::resolve::{MethodInfo, Resolve};
use crate::signature::{CallingConvention, MethodSignature, Signature, Type};
use crate::token::{Table, Token, TypeDefOrRef};

/// A method as a call sees it.
#[derive(Debug)]
pub(super) struct Method {
    /// The owner's kind on the stack: `Object`, a value type, or unknown. Of a `calli`: unknown.
    pub(super) owner: Kind,
    pub(super) has_this: bool,
    pub(super) parameters: Box<[Kind]>,
    pub(super) returns: Option<Kind>,
    pub(super) is_constructor: bool,
    pub(super) is_abstract: bool,
    pub(super) is_virtual: Option<bool>,
}

/// A field as an access sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) owner: Kind,
    pub(super) kind: Kind,
    pub(super) is_static: Option<bool>,
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
        let (methods, fields, delegates) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Self { resolve, types: Types::default(), methods, fields, delegates }
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
                self.instantiated(generic, Some(&arguments))
            }
            Table::StandAloneSignature => match self.resolve.signature(token)? {
                Signature::Method(signature) => Some(self.called(&signature, Scope::default(), Kind::Unknown)),
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
        Some(Method { is_constructor, is_abstract, is_virtual, ..called })
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

    pub(super) fn called(&mut self, signature: &MethodSignature, scope: Scope<'_>, owner: Kind) -> Method {
        let parameters =
            signature.parameters.iter().map(|ty| self.types.kind(self.resolve, ty, scope).unwrap_or(Kind::Unknown));
        let parameters = parameters.collect();
        let returns = self.types.kind(self.resolve, &signature.return_type, scope);
        let has_this = signature.has_this && !signature.explicit_this;
        let (is_constructor, is_abstract, is_virtual) = (false, false, None);
        Method { owner, has_this, parameters, returns, is_constructor, is_abstract, is_virtual }
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
        let kind = self.types.kind(self.resolve, &info.ty, scope)?;
        Some(Field { owner, kind, is_static: info.is_static })
    }

    /// Whether a token names a type that can be caught.
    pub(super) fn is_class(&mut self, token: Token) -> bool {
        let found = self.types.operand(self.resolve, token);
        found.is_some_and(|ty| !ty.is_void && !ty.is_by_ref)
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
    pub(super) is_vararg: bool,
    pub(super) has_this: bool,
    /// The generic parameters that only reference types can stand for.
    references: Vec<Kind>,
}

impl Frame {
    /// Whether both are references, one or both of a generic parameter that only reference types can stand for.
    #[cold]
    pub(super) fn is_same_reference(&self, a: Kind, b: Kind) -> bool {
        let is_reference = |kind: Kind| kind.plain() == Kind::Object || self.references.contains(&kind);
        is_reference(a) && is_reference(b)
    }
}

/// The method that a body belongs to.
#[derive(Clone, Debug)]
pub struct MethodContext {
    /// The type that has the method; `None` for a method of the module.
    pub owner: Option<TypeDefOrRef>,
    /// The signature.
    pub signature: MethodSignature,
    /// The type that the body returns, if it differs from the signature's: methods that the runtime itself suspends (`async` in
    /// MethodImpl, 0x2000) return `Task<T>` by their signature, and `T` in their body.
    pub returns: Option<Type>,
    /// The generic parameters of the method and its type that only reference types can stand for, by their constraints.
    pub references: Vec<Type>,
}

impl MethodContext {
    /// A method with this signature, of this type.
    pub const fn new(owner: Option<TypeDefOrRef>, signature: MethodSignature) -> Self {
        Self { owner, signature, returns: None, references: Vec::new() }
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
            is_vararg: signature.convention == CallingConvention::VarArg,
            has_this: signature.has_this && !signature.explicit_this,
            references: Vec::new(),
        };
        for ty in &context.references {
            frame.references.extend(self.types.kind(self.resolve, ty, Scope::default()));
        }
        if signature.has_this && !signature.explicit_this {
            frame.arguments.push(match self.owner(context.owner).map(|(kind, _)| kind) {
                Some(Kind::Object) => Kind::Object,
                None | Some(Kind::Unknown) => Kind::Unknown,
                Some(_) => Kind::Ref,
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
                frame.locals.push(self.types.kind(self.resolve, ty, Scope::default()).unwrap_or(Kind::Unknown));
            }
        }
        Some(frame)
    }
}
