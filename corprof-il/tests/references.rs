//! References that fit the table of their instruction, and which no runtime can follow in the body that has them.

#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use corprof_il::body::{Range, Region, RegionKind};
use corprof_il::signature::{CallingConvention, MethodSignature, Primitive, Signature, Type};
use corprof_il::token::{Token, TypeDef, TypeDefOrRef};
use corprof_il::verify::{Category, FieldInfo, MethodContext, MethodInfo, Resolve, Rule, TypeInfo, Verifier};
use corprof_il::{Body, Instruction, Opcode, Operand};

const ABSTRACT: u32 = 0x0200_0002;
const GENERIC: u32 = 0x0200_0003;
const CTOR: u32 = 0x0600_0001; // of ABSTRACT
const STATIC: u32 = 0x0600_0002; // static void ()
const OF_GENERIC: u32 = 0x0600_0003; // static void () of GENERIC
const OF_TYPE: u32 = 0x1b00_0001; // !1
const OF_METHOD: u32 = 0x1b00_0002; // class GENERIC<!!0[]>
const SPEC: u32 = 0x2b00_0001; // STATIC<!!0>
const FIELD_OF: u32 = 0x0a00_0001; // static int32 of OF_METHOD
const LOCALS: u32 = 0x1100_0001; // !1&
const CALL_SIGNATURE: u32 = 0x1100_0002; // void (!1)

struct Metadata;

fn signature(has_this: bool, generic_parameters: u32, parameters: Vec<Type>) -> MethodSignature {
    MethodSignature {
        convention: CallingConvention::Default,
        has_this,
        explicit_this: false,
        generic_parameters,
        return_type: Type::Primitive(Primitive::Void),
        parameters,
        sentinel: None,
    }
}

fn named(token: u32) -> TypeDefOrRef {
    TypeDefOrRef::Def(TypeDef::from_raw(token))
}

impl Resolve for Metadata {
    fn type_info(&self, token: Token) -> Option<TypeInfo> {
        let is_class = [ABSTRACT, GENERIC].contains(&token.as_raw());
        let identity = token.as_raw().into();
        is_class.then_some(TypeInfo { identity, category: Category::Reference, well_known: None })
    }

    fn type_spec(&self, token: Token) -> Option<Type> {
        let array = || Type::SzArray(Box::new(Type::MethodParameter(0)));
        match token.as_raw() {
            OF_TYPE => Some(Type::TypeParameter(1)),
            OF_METHOD => {
                Some(Type::Generic { value_type: false, definition: named(GENERIC), arguments: vec![array()] })
            }
            _ => None,
        }
    }

    fn method(&self, token: Token) -> Option<MethodInfo> {
        let is_constructor = token.as_raw() == CTOR;
        let generic_parameters = u32::from(token.as_raw() == STATIC);
        let signature = signature(is_constructor, generic_parameters, Vec::new());
        let owner = Some(named(if token.as_raw() == OF_GENERIC { GENERIC } else { ABSTRACT }));
        let info = MethodInfo { owner, signature, is_constructor, is_abstract: false, is_virtual: Some(false) };
        [CTOR, STATIC, OF_GENERIC].contains(&token.as_raw()).then_some(info)
    }

    fn method_spec(&self, token: Token) -> Option<(Token, Vec<Type>)> {
        (token.as_raw() == SPEC).then(|| (Token::from_raw(STATIC), vec![Type::MethodParameter(0)]))
    }

    fn field(&self, token: Token) -> Option<FieldInfo> {
        let owner = TypeDefOrRef::from_token(Token::from_raw(OF_METHOD));
        let info = FieldInfo { owner, ty: Type::Primitive(Primitive::Int32), is_static: Some(true) };
        (token.as_raw() == FIELD_OF).then_some(info)
    }

    fn signature(&self, token: Token) -> Option<Signature> {
        match token.as_raw() {
            LOCALS => Some(Signature::Locals(vec![Type::ByRef(Box::new(Type::TypeParameter(1)))])),
            CALL_SIGNATURE => Some(Signature::Method(signature(false, 0, vec![Type::TypeParameter(1)]))),
            _ => None,
        }
    }

    fn has_string(&self, _: Token) -> bool {
        false
    }

    fn is_generic(&self, token: Token) -> bool {
        token.as_raw() == GENERIC
    }

    fn is_abstract(&self, token: Token) -> bool {
        token.as_raw() == ABSTRACT
    }
}

fn body(code: &[(Opcode, u32)]) -> Body {
    let mut body = Body::new();
    for (opcode, token) in code {
        let insn = match token {
            0 => Instruction::new(*opcode),
            token => Instruction::with(*opcode, Operand::Token(Token::from_raw(*token))),
        };
        body.append(insn.unwrap());
    }
    body
}

/// The rules that are broken in a `static void` method with so many generic parameters, of a type with so many.
fn rules(body: &Body, of_method: u32, of_type: Option<u32>) -> Vec<Rule> {
    let mut method = MethodContext::new(None, signature(false, of_method, Vec::new()));
    method.type_parameters = of_type;
    match Verifier::new(&Metadata).verify(body, &method) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.rule).collect(),
    }
}

#[test]
fn generic_parameters_are_those_of_the_method_and_its_type() {
    use Opcode as O;
    let of_type = [
        body(&[(O::Sizeof, OF_TYPE), (O::Pop, 0), (O::Ret, 0)]),
        body(&[(O::Ldtoken, OF_TYPE), (O::Pop, 0), (O::Ret, 0)]),
        body(&[
            (O::Ldnull, 0),
            (O::Unbox_Any, OF_TYPE),
            (O::Ldc_I4_0, 0),
            (O::Conv_I, 0),
            (O::Calli, CALL_SIGNATURE),
            (O::Ret, 0),
        ]),
        {
            let mut body = body(&[(O::Ret, 0)]);
            body.set_locals(Some(Token::from_raw(LOCALS)));
            body
        },
        {
            let mut body = body(&[(O::Ldnull, 0), (O::Throw, 0), (O::Pop, 0), (O::Rethrow, 0)]);
            let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
            let range = |first: usize, last: usize| Range { first: ids[first], last: ids[last] };
            let kind = RegionKind::Catch(Token::from_raw(OF_TYPE));
            body.add_region(Region::new(kind, range(0, 1), range(2, 3))).unwrap();
            body
        },
    ];
    for body in &of_type {
        assert_eq!(rules(body, 0, Some(2)), [], "{}", body.display());
        assert_eq!(rules(body, 0, None), [], "{}", body.display());
        let broken = rules(body, 2, Some(1));
        assert!(!broken.is_empty() && broken.iter().all(|rule| *rule == Rule::GenericParameter), "{}", body.display());
    }
    let of_method = [
        body(&[(O::Ldnull, 0), (O::Castclass, OF_METHOD), (O::Pop, 0), (O::Ret, 0)]),
        body(&[(O::Ldsfld, FIELD_OF), (O::Pop, 0), (O::Ret, 0)]),
        body(&[(O::Call, SPEC), (O::Ret, 0)]),
        body(&[(O::Ldftn, SPEC), (O::Pop, 0), (O::Ret, 0)]),
    ];
    for body in &of_method {
        assert_eq!(rules(body, 1, Some(0)), [], "{}", body.display());
        assert_eq!(rules(body, 0, Some(1)), [Rule::GenericParameter], "{}", body.display());
    }
}

#[test]
fn a_generic_type_without_arguments_can_only_be_named() {
    use Opcode as O;
    assert_eq!(rules(&body(&[(O::Ldtoken, GENERIC), (O::Pop, 0), (O::Ret, 0)]), 0, None), []);
    let cast = body(&[(O::Ldnull, 0), (O::Castclass, GENERIC), (O::Pop, 0), (O::Ret, 0)]);
    assert_eq!(rules(&cast, 0, None), [Rule::BadType]);
    assert_eq!(rules(&body(&[(O::Call, OF_GENERIC), (O::Ret, 0)]), 0, None), [Rule::BadType]);
    assert_eq!(rules(&body(&[(O::Ldtoken, OF_GENERIC), (O::Pop, 0), (O::Ret, 0)]), 0, None), []);
}

#[test]
fn no_object_is_made_of_an_abstract_class() {
    use Opcode as O;
    assert_eq!(rules(&body(&[(O::Newobj, CTOR), (O::Pop, 0), (O::Ret, 0)]), 0, None), [Rule::NewobjAbstract]);
    // As a constructor of a derived class does.
    assert_eq!(rules(&body(&[(O::Ldnull, 0), (O::Call, CTOR), (O::Ret, 0)]), 0, None), []);
}
