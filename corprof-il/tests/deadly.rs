//! Bodies that .NET 10 refuses, or that kill it: each breaks a rule. Metadata are a table, as a running application
//! knows its own module only.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use corprof_il::body::{Prefix, Range, Region, RegionKind};
use corprof_il::signature::{ArrayShape, CallingConvention, MethodSignature, Primitive, Signature, Type};
use corprof_il::token::{Token, TypeDef, TypeDefOrRef, TypeRef};
use corprof_il::verify::{
    Category, Dispatch, FieldInfo, MethodContext, MethodInfo, Resolve, Rule, TypeInfo, Verifier, WellKnown,
};
use corprof_il::{Body, Instruction, Opcode as O, Operand};

const CLASS: u32 = 0x0200_0001;
const REF_STRUCT: u32 = 0x0200_0002;
const STRUCT: u32 = 0x0200_0003;
const TYPED_REFERENCE: u32 = 0x0100_0001;
const DATE: u32 = 0x0100_0002; // of another module, which is not at hand
const STATIC: u32 = 0x0600_0001; // static void ()
const GENERIC: u32 = 0x0600_0002; // static void <T>()
const TAKES_NATIVE: u32 = 0x0600_0003; // static void (native int)
const VARARG: u32 = 0x0600_0004; // static vararg void ()
const TAKES_VOID: u32 = 0x0600_0005; // static void (void[])
const OWN: u32 = 0x0600_0006; // instance void ()
const TAKES_REF: u32 = 0x0600_0009; // static void (int32&)
const TAKES_TEXT: u32 = 0x0600_000a; // static void (string&)
const BOXED: u32 = 0x0600_0007;
const UNRELATED: u32 = 0x0600_0008;
const OF_DATE: u32 = 0x0a00_0001; // instance void () of DATE
const GENERIC_OF_VOID: u32 = 0x2b00_0001;
const GENERIC_OF_INT: u32 = 0x2b00_0002;
const BYTES: u32 = 0x0400_0001; // static uint8
const VOIDS: u32 = 0x0400_0002; // static void[]
const TEXT: u32 = 0x0400_0003; // static string
const IN_STRUCT: u32 = 0x0400_0004; // string of STRUCT
const PARAMETER: u32 = 0x1b00_0001; // !!0
const POINTER: u32 = 0x1b00_0002; // uint8*
const LOCALS: u32 = 0x1100_0001;

/// A module with these types of local variables, of which a native int is this integer.
#[derive(Default)]
struct Module {
    locals: Vec<Type>,
    native_int: Option<Primitive>,
    has_varargs: bool,
}

const fn primitive(primitive: Primitive) -> Type {
    Type::Primitive(primitive)
}

const VOID: Type = primitive(Primitive::Void);

fn named(token: u32) -> TypeDefOrRef {
    TypeDefOrRef::from_token(Token::from_raw(token)).unwrap()
}

fn array(of: Type) -> Type {
    Type::SzArray(Box::new(of))
}

fn signature(has_this: bool, parameters: Vec<Type>) -> MethodSignature {
    MethodSignature {
        convention: CallingConvention::Default,
        has_this,
        explicit_this: false,
        generic_parameters: 0,
        return_type: VOID,
        parameters,
        sentinel: None,
    }
}

impl Resolve for Module {
    fn type_info(&self, token: Token) -> Option<TypeInfo> {
        let (category, well_known) = match token.as_raw() {
            CLASS => (Category::Reference, None),
            REF_STRUCT | STRUCT => (Category::Value, None),
            TYPED_REFERENCE => (Category::Unknown, Some(WellKnown::Primitive(Primitive::TypedRef))),
            DATE => (Category::Unknown, None),
            _ => return None,
        };
        Some(TypeInfo { identity: token.as_raw().into(), category, well_known })
    }

    fn type_spec(&self, token: Token) -> Option<Type> {
        match token.as_raw() {
            PARAMETER => Some(Type::MethodParameter(0)),
            POINTER => Some(Type::Pointer(Box::new(primitive(Primitive::UInt8)))),
            _ => None,
        }
    }

    fn method(&self, token: Token) -> Option<MethodInfo> {
        let mut signature = match token.as_raw() {
            STATIC | GENERIC | VARARG => signature(false, vec![]),
            TAKES_NATIVE => signature(false, vec![primitive(Primitive::NativeInt)]),
            TAKES_REF => signature(false, vec![Type::ByRef(Box::new(primitive(Primitive::Int32)))]),
            TAKES_TEXT => signature(false, vec![Type::ByRef(Box::new(primitive(Primitive::String)))]),
            TAKES_VOID => signature(false, vec![array(VOID)]),
            OWN | BOXED | UNRELATED | OF_DATE => signature(true, vec![]),
            _ => return None,
        };
        signature.generic_parameters = u32::from(token.as_raw() == GENERIC);
        if token.as_raw() == VARARG {
            signature.convention = CallingConvention::VarArg;
        }
        let owner = Some(named(if token.as_raw() == OF_DATE { DATE } else { CLASS }));
        Some(MethodInfo { owner, signature, is_constructor: false, is_abstract: false, is_virtual: None })
    }

    fn method_spec(&self, token: Token) -> Option<(Token, Vec<Type>)> {
        let argument = match token.as_raw() {
            GENERIC_OF_VOID => VOID,
            GENERIC_OF_INT => primitive(Primitive::Int32),
            _ => return None,
        };
        Some((Token::from_raw(GENERIC), vec![argument]))
    }

    fn field(&self, token: Token) -> Option<FieldInfo> {
        let ty = match token.as_raw() {
            BYTES => primitive(Primitive::UInt8),
            VOIDS => array(VOID),
            TEXT | IN_STRUCT => primitive(Primitive::String),
            _ => return None,
        };
        let is_in_struct = token.as_raw() == IN_STRUCT;
        let owner = Some(named(if is_in_struct { STRUCT } else { CLASS }));
        Some(FieldInfo { owner, ty, is_static: Some(!is_in_struct) })
    }

    fn signature(&self, token: Token) -> Option<Signature> {
        (token.as_raw() == LOCALS).then(|| Signature::Locals(self.locals.clone()))
    }

    fn has_string(&self, _: Token) -> bool {
        false
    }

    fn is_by_ref_like(&self, token: Token) -> bool {
        token.as_raw() == REF_STRUCT
    }

    fn dispatch(&self, _: Option<Token>, method: Token) -> Dispatch {
        match method.as_raw() {
            OWN => Dispatch::Own,
            BOXED => Dispatch::Boxed,
            UNRELATED => Dispatch::Unrelated,
            _ => Dispatch::Unknown,
        }
    }

    fn native_int(&self) -> Option<Primitive> {
        self.native_int
    }

    fn has_varargs(&self) -> bool {
        self.has_varargs
    }
}

fn token(opcode: O, token: u32) -> Instruction {
    Instruction::with(opcode, Operand::Token(Token::from_raw(token))).unwrap()
}

fn plain(opcode: O) -> Instruction {
    Instruction::new(opcode).unwrap()
}

fn body(code: impl IntoIterator<Item = Instruction>) -> Body {
    let mut body = Body::new();
    for insn in code {
        body.append(insn);
    }
    body.set_locals(Some(Token::from_raw(LOCALS)));
    body
}

impl Module {
    fn with_locals(locals: impl Into<Vec<Type>>) -> Self {
        Self { locals: locals.into(), ..Self::default() }
    }

    /// The rules that a body of this method breaks.
    fn rules_of(&self, body: &Body, method: &MethodContext) -> Vec<Rule> {
        match Verifier::new(self).verify(body, method) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(|error| error.rule).collect(),
        }
    }

    /// The rules that a body breaks that takes the one value or the other.
    fn joined(&self, first: Instruction, second: Instruction, end: Instruction) -> Vec<Rule> {
        let mut body = body([plain(O::Ldc_I4_0), plain(O::Nop), first, plain(O::Nop), second, end, plain(O::Ret)]);
        let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
        for (at, opcode, to) in [(1, O::Brtrue_S, 4), (3, O::Br_S, 5)] {
            let target = body.label_at(ids[to]).unwrap();
            body.replace(ids[at], Instruction::with(opcode, Operand::Target(target)).unwrap()).unwrap();
        }
        self.rules_of(&body, &MethodContext::new(None, signature(false, vec![])))
    }

    /// The rules that a `static void` method with this body breaks, which has one generic parameter.
    fn rules(&self, code: impl IntoIterator<Item = Instruction>) -> Vec<Rule> {
        let mut method = MethodContext::new(None, signature(false, vec![]));
        method.signature.generic_parameters = 1;
        self.rules_of(&body(code), &method)
    }
}

#[test]
fn no_ref_struct_is_boxed() {
    let module = Module::with_locals([
        Type::ValueType(named(REF_STRUCT)),
        Type::ValueType(named(STRUCT)),
        primitive(Primitive::TypedRef),
    ]);
    let boxed = |local: u16, class| {
        module.rules([Instruction::ldloc(local), token(O::Box, class), plain(O::Pop), plain(O::Ret)])
    };
    assert_eq!(boxed(0, REF_STRUCT), [Rule::ByRefLikeBoxed]);
    assert_eq!(boxed(1, STRUCT), []);
    assert_eq!(boxed(2, TYPED_REFERENCE), [Rule::ByRefLikeBoxed]);
    let called = |local, class, method| {
        let call = token(O::Callvirt, method).prefixed([Prefix::Constrained(Token::from_raw(class))]);
        module.rules([Instruction::ldloca(local), call, plain(O::Ret)])
    };
    assert_eq!(called(0, REF_STRUCT, OWN), []);
    assert_eq!(called(0, REF_STRUCT, BOXED), [Rule::ByRefLikeBoxed]);
    assert_eq!(called(1, STRUCT, BOXED), []);
}

#[test]
fn a_value_that_may_be_a_ref_struct_is_boxed_for_a_test_only() {
    let module = Module::with_locals([Type::MethodParameter(0)]);
    let rules = |ref_structs: &[Type], code: &[Instruction]| {
        let mut method = MethodContext::new(None, signature(false, vec![]));
        method.signature.generic_parameters = 1;
        method.ref_structs = ref_structs.to_vec();
        let boxed = [Instruction::ldloc(0), token(O::Box, PARAMETER)];
        let end = [plain(O::Pop), plain(O::Ret)];
        module.rules_of(&body(boxed.into_iter().chain(code.iter().cloned()).chain(end)), &method)
    };
    let unbox = token(O::Unbox_Any, PARAMETER);
    let is_class = token(O::Isinst, CLASS);
    let call = token(O::Call, STATIC);
    let allowed = &[Type::MethodParameter(0)];
    for tests in [
        vec![unbox.clone()],
        vec![is_class.clone(), unbox.clone()],
        vec![is_class.clone(), plain(O::Ldnull), plain(O::Ceq)],
    ] {
        assert_eq!(rules(allowed, &tests), []);
        for at in 0..tests.len() {
            let mut parted = tests.clone();
            parted.insert(at, call.clone());
            assert_eq!(rules(allowed, &parted), [Rule::ByRefLikeBoxed], "{at}");
            assert_eq!(rules(&[], &parted), []);
        }
    }
    assert_eq!(rules(allowed, &[]), [Rule::ByRefLikeBoxed]);
}

#[test]
fn a_constrained_call_is_of_a_method_that_the_value_has() {
    let module = Module::with_locals([
        Type::ValueType(named(STRUCT)),
        Type::MethodParameter(0),
        primitive(Primitive::Object),
        Type::Pointer(Box::new(primitive(Primitive::UInt8))),
    ]);
    let mut context = MethodContext::new(None, signature(false, vec![]));
    context.signature.generic_parameters = 1;
    let called = |local, class, method| {
        let call = token(O::Callvirt, method).prefixed([Prefix::Constrained(Token::from_raw(class))]);
        module.rules_of(&body([Instruction::ldloca(local), call, plain(O::Ret)]), &context)
    };
    assert_eq!(called(0, STRUCT, OWN), []);
    assert_eq!(called(0, STRUCT, UNRELATED), [Rule::ConstrainedCall]);
    assert_eq!(called(1, PARAMETER, UNRELATED), [Rule::ConstrainedCall]);
    assert_eq!(called(2, CLASS, UNRELATED), [], "classes are not compared");
    assert_eq!(called(3, POINTER, OWN), [Rule::ConstrainedCall]);
    assert_eq!(called(1, STRUCT, OWN), [Rule::StackUnexpected], "another value is there");
}

/// .NET 10 dies of a static method that is not virtual, and of this one it is not known.
#[test]
fn what_a_type_chooses_is_known_to_be_virtual() {
    let module = Module::with_locals([Type::ValueType(named(STRUCT))]);
    let pointer = token(O::Ldftn, STATIC).prefixed([Prefix::Constrained(Token::from_raw(STRUCT))]);
    assert_eq!(module.rules([pointer, plain(O::Pop), plain(O::Ret)]), [Rule::ConstrainedCall]);
    let call = token(O::Call, STATIC).prefixed([Prefix::Constrained(Token::from_raw(STRUCT))]);
    assert_eq!(module.rules([call, plain(O::Ret)]), [Rule::ConstrainedCall]);
}

/// The optimiser of .NET 10 and 11 reads a read-only field while it compiles, takes what it finds for an object, and
/// dies: also through a local variable, and in a method that it inlines.
#[test]
fn no_reference_is_read_where_a_static_field_holds_a_value() {
    let module = Module::with_locals([Type::ByRef(Box::new(primitive(Primitive::Object)))]);
    let at = |field, code: &[Instruction]| {
        let code = [&[token(O::Ldsflda, field)], code, &[plain(O::Ret)]].concat();
        module.rules(code)
    };
    let call = token(O::Callvirt, OWN).prefixed([Prefix::Constrained(Token::from_raw(CLASS))]);
    let reads: [(Rule, &[Instruction]); 7] = [
        (Rule::StackUnexpected, &[plain(O::Ldind_Ref), plain(O::Pop)]),
        (Rule::StackUnexpected, &[token(O::Ldobj, CLASS), plain(O::Pop)]),
        (Rule::StackUnexpected, &[call]),
        (Rule::Assignment, &[Instruction::stloc(0)]),
        (Rule::Assignment, &[token(O::Call, TAKES_TEXT)]),
        (Rule::StackUnexpected, &[plain(O::Dup), plain(O::Ldind_Ref), plain(O::Pop), plain(O::Pop)]),
        (Rule::StackUnexpected, &[plain(O::Ldc_I4_8), plain(O::Add), plain(O::Ldind_Ref), plain(O::Pop)]),
    ];
    for (rule, read) in reads {
        assert_eq!(at(BYTES, read), [rule], "{read:?}");
        assert_eq!(at(TEXT, read), [], "{read:?}");
    }
    let of_a_field = [token(O::Ldflda, BYTES), plain(O::Ldind_Ref), plain(O::Pop)];
    assert!(at(BYTES, &of_a_field).contains(&Rule::StackUnexpected));
    assert_eq!(at(BYTES, &[token(O::Call, TAKES_REF)]), []);
    assert_eq!(at(BYTES, &[plain(O::Ldind_U1), plain(O::Pop)]), []);
}

/// As before, of a reference in a value: a method of it, or an instruction, reads it where another value is.
#[test]
fn no_value_is_read_where_another_is() {
    let value = |ty| Type::ValueType(named(ty));
    let module = Module::with_locals([value(STRUCT), value(DATE), primitive(Primitive::Int32)]);
    let at = |local: u16, code: &[Instruction]| {
        module.rules([&[Instruction::ldloca(local)], code, &[plain(O::Ret)]].concat())
    };
    let reads: [(u16, &[Instruction]); 3] = [
        (0, &[token(O::Ldobj, STRUCT), plain(O::Pop)]),
        (0, &[token(O::Ldfld, IN_STRUCT), plain(O::Pop)]),
        (1, &[token(O::Call, OF_DATE)]),
    ];
    for (own, read) in reads {
        for local in 0..3 {
            let expected: &[Rule] = if local == own { &[] } else { &[Rule::StackUnexpected] };
            assert_eq!(at(local, read), expected, "{read:?} of {local}");
        }
    }
    assert_eq!(at(0, &[plain(O::Ldind_I4), plain(O::Pop)]), [], "all are read as numbers");
}

/// The compiler takes the length of an array, and what is computed of it, for an int32: it does not take it for the
/// address that a parameter is.
#[test]
fn a_length_is_no_address() {
    let module = Module::with_locals([primitive(Primitive::Int32)]);
    let passed = |code: &[Instruction]| {
        let length = [plain(O::Ldnull), plain(O::Ldlen)];
        let code = [&length, code, &[token(O::Call, TAKES_REF), plain(O::Ret)]].concat();
        module.rules(code)
    };
    assert_eq!(passed(&[]), [Rule::Assignment]);
    assert_eq!(passed(&[plain(O::Neg)]), [Rule::Assignment]);
    assert_eq!(passed(&[plain(O::Not)]), [Rule::Assignment]);
    assert_eq!(passed(&[plain(O::Ldc_I4_1), plain(O::Add)]), [Rule::Assignment]);
    assert_eq!(passed(&[plain(O::Ldc_I4_1), plain(O::Shl)]), [Rule::Assignment]);
    assert_eq!(passed(&[plain(O::Conv_U)]), []);
    assert_eq!(passed(&[Instruction::ldloca(0), plain(O::Add)]), []);
}

/// `try { leave } filter { pop, a region, answer } { pop, leave }`, with this region in the filter or in the handler.
fn nested(kind: RegionKind, is_in_filter: bool) -> Body {
    let inner = |is_here: bool, end: O| -> Vec<O> {
        if !is_here {
            vec![]
        } else if kind == RegionKind::Finally {
            vec![O::Leave_S, O::Nop, O::Endfinally, end]
        } else {
            vec![O::Leave_S, O::Pop, O::Leave_S, end]
        }
    };
    let mut opcodes = vec![O::Leave_S, O::Pop];
    opcodes.extend(inner(is_in_filter, O::Nop));
    let filter_end = opcodes.len() + 1;
    opcodes.extend([O::Ldc_I4_0, O::Endfilter, O::Pop]);
    let handler = filter_end + 1;
    opcodes.extend(inner(!is_in_filter, O::Nop));
    let leave = opcodes.len();
    opcodes.extend([O::Leave_S, O::Ret]);
    let mut body = body(opcodes.iter().map(|opcode| plain(if *opcode == O::Leave_S { O::Nop } else { *opcode })));
    let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
    let from = if is_in_filter { 2 } else { handler + 1 };
    for (at, opcode) in opcodes.iter().enumerate().filter(|(_, opcode)| **opcode == O::Leave_S) {
        let to = if (from..from + 3).contains(&at) { from + 3 } else { leave + 1 };
        let target = body.label_at(ids[to]).unwrap();
        body.replace(ids[at], Instruction::with(*opcode, Operand::Target(target)).unwrap()).unwrap();
    }
    let range = |first: usize, last: usize| Range { first: ids[first], last: ids[last] };
    body.add_region(Region::new(kind, range(from, from), range(from + 1, from + 2))).unwrap();
    let filter = RegionKind::Filter { first: ids[1] };
    body.add_region(Region::new(filter, range(0, 0), range(handler, leave))).unwrap();
    body
}

#[test]
fn a_filter_protects_nothing() {
    let method = MethodContext::new(None, signature(false, vec![]));
    let rules = |kind, is_in_filter| Module::default().rules_of(&nested(kind, is_in_filter), &method);
    for kind in [RegionKind::Finally, RegionKind::Catch(Token::from_raw(CLASS))] {
        assert_eq!(rules(kind, true), [Rule::RegionInFilter]);
        assert_eq!(rules(kind, false), []);
    }
}

#[test]
fn jmp_is_from_and_to_methods_that_are_not_generic() {
    let method = || MethodContext::new(None, signature(false, vec![]));
    let rules = |to, method: &MethodContext| Module::default().rules_of(&body([token(O::Jmp, to)]), method);
    assert_eq!(rules(STATIC, &method()), []);
    assert_eq!(rules(GENERIC_OF_INT, &method()), [Rule::BadJmp]);
    let mut generic = method();
    generic.signature.generic_parameters = 1;
    assert_eq!(rules(STATIC, &generic), [Rule::BadJmp]);
    let of_generic = MethodContext { type_parameters: Some(1), ..method() };
    assert_eq!(rules(STATIC, &of_generic), [Rule::BadJmp]);
    for (own, fits) in [(VOID, true), (primitive(Primitive::Int32), false)] {
        let mut other = method();
        other.signature.return_type = own;
        assert_eq!(rules(STATIC, &other).is_empty(), fits);
    }
    let synchronized = MethodContext { is_synchronized: true, ..method() };
    assert_eq!(rules(STATIC, &synchronized), [Rule::BadJmp]);
}

#[test]
fn a_generic_method_is_called_by_its_method_spec() {
    let rules = |code: Vec<Instruction>| Module::default().rules(code.into_iter().chain([plain(O::Ret)]));
    assert_eq!(rules(vec![token(O::Call, GENERIC_OF_INT)]), []);
    assert_eq!(rules(vec![token(O::Call, GENERIC)]), [Rule::BadType]);
    assert_eq!(rules(vec![token(O::Ldftn, GENERIC), plain(O::Pop)]), [Rule::BadType]);
    assert_eq!(rules(vec![plain(O::Ldnull), token(O::Ldvirtftn, GENERIC), plain(O::Pop)]), [Rule::BadType]);
    assert_eq!(rules(vec![token(O::Ldtoken, GENERIC), plain(O::Pop)]), []);
}

#[test]
fn elements_of_an_array_of_a_type_parameter_may_be_no_references() {
    let rules = |of: Type, references: Vec<Type>| {
        let module = Module::with_locals([array(of)]);
        let mut method = MethodContext::new(None, signature(false, vec![]));
        method.signature.generic_parameters = 1;
        method.references = references;
        let store = [Instruction::ldloc(0), plain(O::Ldc_I4_0), plain(O::Ldnull), plain(O::Stelem_Ref), plain(O::Ret)];
        module.rules_of(&body(store), &method)
    };
    assert_eq!(rules(primitive(Primitive::Object), vec![]), []);
    assert_eq!(rules(Type::MethodParameter(0), vec![]), [Rule::StackUnexpected]);
    assert_eq!(rules(Type::MethodParameter(0), vec![Type::MethodParameter(0)]), []);
}

#[test]
fn variable_arguments_are_for_windows() {
    let mut method = MethodContext::new(None, signature(false, vec![]));
    method.signature.convention = CallingConvention::VarArg;
    let windows = Module { has_varargs: true, ..Module::default() };
    let arglist = || body([plain(O::Arglist), plain(O::Pop), plain(O::Ret)]);
    assert_eq!(windows.rules_of(&arglist(), &method), []);
    assert_eq!(Module::default().rules_of(&arglist(), &method), [Rule::VarArgUnsupported]);
    for code in [vec![token(O::Call, VARARG)], vec![token(O::Ldftn, VARARG), plain(O::Pop)]] {
        let code = || code.clone().into_iter().chain([plain(O::Ret)]);
        assert_eq!(windows.rules(code()), []);
        assert_eq!(Module::default().rules(code()), [Rule::VarArgUnsupported]);
    }
}

#[test]
fn void_is_returned_or_pointed_to() {
    let local = |ty: Type| Module::with_locals([ty]).rules([plain(O::Ret)]);
    let function = |parameters, return_type| {
        Type::FunctionPointer(Box::new(MethodSignature { return_type, ..signature(false, parameters) }))
    };
    let modified = |inner| Type::Modified { required: false, modifier: named(CLASS), inner: Box::new(inner) };
    let generic = |argument| Type::Generic { value_type: false, definition: named(CLASS), arguments: vec![argument] };
    let shape = ArrayShape { rank: 2, sizes: vec![], lower_bounds: vec![] };
    let wrong = [
        VOID,
        modified(VOID),
        Type::Pinned(Box::new(VOID)),
        array(VOID),
        array(array(VOID)),
        Type::Array(Box::new(VOID), shape),
        Type::ByRef(Box::new(VOID)),
        Type::Pointer(Box::new(array(VOID))),
        generic(VOID),
        function(vec![VOID], VOID),
        function(vec![], array(VOID)),
    ];
    for ty in wrong {
        assert_eq!(local(ty.clone()), [Rule::BadSignature], "{ty}");
    }
    let pointer = || Type::Pointer(Box::new(VOID));
    let right = [pointer(), Type::Pointer(Box::new(modified(VOID))), array(pointer()), function(vec![pointer()], VOID)];
    for ty in right {
        assert_eq!(local(ty.clone()), [], "{ty}");
    }
    let module = Module::default();
    assert_eq!(module.rules([plain(O::Ldnull), token(O::Call, TAKES_VOID), plain(O::Ret)]), [Rule::BadSignature]);
    assert_eq!(module.rules([token(O::Call, GENERIC_OF_VOID), plain(O::Ret)]), [Rule::BadSignature]);
    assert_eq!(module.rules([token(O::Call, GENERIC_OF_INT), plain(O::Ret)]), []);
    assert_eq!(module.rules([token(O::Ldsfld, VOIDS), plain(O::Pop), plain(O::Ret)]), [Rule::BadSignature]);
    let method = MethodContext::new(None, signature(false, vec![VOID]));
    assert_eq!(module.rules_of(&body([plain(O::Ret)]), &method), [Rule::BadSignature]);
}

#[test]
fn a_value_type_that_is_not_at_hand_is_no_object() {
    let module = Module::with_locals([
        Type::ValueType(named(DATE)),
        primitive(Primitive::Object),
        Type::ByRef(Box::new(primitive(Primitive::Int32))),
        array(Type::ValueType(named(DATE))),
        Type::ValueType(TypeDefOrRef::Ref(TypeRef::NIL)),
        primitive(Primitive::Int32),
        Type::Generic {
            value_type: true,
            definition: named(DATE),
            arguments: vec![Type::Class(TypeDefOrRef::Def(TypeDef::from_raw(CLASS)))],
        },
    ]);
    let rules = |code: Vec<Instruction>| module.rules(code.into_iter().chain([plain(O::Ret)]));
    let load = Instruction::ldloc;
    for date in [0, 4, 6] {
        assert_eq!(module.rules([load(date), plain(O::Throw)]), [Rule::StackUnexpected], "local {date}");
        assert_eq!(rules(vec![load(date), Instruction::stloc(1)]), [Rule::Assignment]);
        assert_eq!(rules(vec![load(1), Instruction::stloc(date)]), [Rule::Assignment]);
        assert_eq!(rules(vec![load(2), Instruction::stloc(date)]), [Rule::Assignment]);
        assert_eq!(rules(vec![load(date), plain(O::Ldind_I4), plain(O::Pop)]), [Rule::StackUnexpected]);
        assert_eq!(rules(vec![load(date), plain(O::Ldnull), plain(O::Ceq), plain(O::Pop)]), [Rule::BinaryOperands]);
        assert_eq!(rules(vec![load(date), token(O::Castclass, CLASS), plain(O::Pop)]), [Rule::StackUnexpected]);
        assert_eq!(rules(vec![load(date), token(O::Callvirt, OF_DATE)]), [Rule::StackUnexpected]);
        // It may be an enumeration.
        assert_eq!(rules(vec![load(date), plain(O::Ldc_I4_1), plain(O::Add), Instruction::stloc(5)]), []);
        assert_eq!(rules(vec![load(5), Instruction::stloc(date)]), []);
        assert_eq!(rules(vec![load(date), plain(O::Ldc_I4_1), plain(O::Shl), plain(O::Conv_I), plain(O::Pop)]), []);
    }
    assert_eq!(rules(vec![Instruction::ldloca(0), token(O::Call, OF_DATE)]), []);
    assert_eq!(rules(vec![Instruction::ldloca(4), token(O::Call, OF_DATE)]), []);
    let store = vec![load(3), plain(O::Ldc_I4_0), plain(O::Ldnull), plain(O::Stelem_Ref)];
    assert_eq!(rules(store), [Rule::StackUnexpected]);
    let joined = |first, second| module.joined(first, second, plain(O::Pop));
    assert_eq!(joined(load(0), load(0)), []);
    assert_eq!(joined(load(0), load(4)), []);
    assert_eq!(joined(load(0), load(5)), []);
    assert_eq!(joined(load(0), load(1)), [Rule::PathStackUnexpected]);
    assert_eq!(joined(load(2), load(0)), [Rule::PathStackUnexpected]);
}

#[test]
fn an_int32_goes_where_a_native_int_is_wanted_and_a_smaller_one_to_no_parameter() {
    let module = Module::with_locals([
        primitive(Primitive::Int32),
        primitive(Primitive::UInt8),
        array(primitive(Primitive::Char)),
        primitive(Primitive::NativeInt),
    ]);
    let passed =
        |code: Vec<Instruction>| module.rules(code.into_iter().chain([token(O::Call, TAKES_NATIVE), plain(O::Ret)]));
    let byte = || Instruction::ldloc(1);
    assert_eq!(passed(vec![Instruction::ldc_i4(-1)]), []);
    assert_eq!(passed(vec![Instruction::ldloc(0)]), []);
    assert_eq!(passed(vec![byte()]), [Rule::Assignment]);
    assert_eq!(passed(vec![token(O::Ldsfld, BYTES)]), [Rule::Assignment]);
    let element = vec![Instruction::ldloc(2), plain(O::Ldc_I4_0), plain(O::Ldelem_U2)];
    assert_eq!(passed(element), [Rule::Assignment]);
    assert_eq!(passed(vec![byte(), plain(O::Dup), plain(O::Pop)]), [Rule::Assignment]);
    // .NET leaves out what adds nothing.
    assert_eq!(passed(vec![byte(), plain(O::Ldc_I4_0), plain(O::Add)]), [Rule::Assignment]);
    assert_eq!(passed(vec![byte(), plain(O::Ldc_I4_0), plain(O::Shl)]), [Rule::Assignment]);
    assert_eq!(passed(vec![byte(), plain(O::Neg)]), []);
    assert_eq!(passed(vec![byte(), plain(O::Conv_U1)]), []);
    assert_eq!(passed(vec![byte(), plain(O::Ldc_I4_0), plain(O::Ceq)]), []);
    // Elsewhere all are widened.
    assert_eq!(module.rules([byte(), Instruction::stloc(3), plain(O::Ret)]), []);
}

#[test]
fn what_is_an_int32_on_one_path_is_no_managed_pointer() {
    let module = Module::with_locals([
        primitive(Primitive::Int32),
        primitive(Primitive::NativeInt),
        Type::ByRef(Box::new(primitive(Primitive::Int32))),
    ]);
    let passed = |first, second, to| module.joined(Instruction::ldloc(first), Instruction::ldloc(second), to);
    assert_eq!(passed(0, 1, token(O::Call, TAKES_NATIVE)), []);
    assert_eq!(passed(1, 1, token(O::Call, TAKES_REF)), []);
    assert_eq!(passed(0, 1, token(O::Call, TAKES_REF)), [Rule::Assignment]);
    assert_eq!(passed(1, 0, token(O::Call, TAKES_REF)), [Rule::Assignment]);
    assert_eq!(passed(0, 2, plain(O::Pop)), [Rule::PathStackUnexpected]);
}

#[test]
fn code_for_one_width_of_processors_takes_its_integers_for_native_ints() {
    let locals = vec![primitive(Primitive::Int64), primitive(Primitive::Int32), primitive(Primitive::NativeInt)];
    let module = |native_int| Module { locals: locals.clone(), native_int, ..Module::default() };
    let through = |local: u16| {
        let read = [Instruction::ldloc(local), plain(O::Ldind_I4), plain(O::Pop)];
        let kept = [Instruction::ldloc(local), Instruction::ldloc(2), plain(O::Add), Instruction::stloc(2)];
        read.into_iter().chain(kept).chain([plain(O::Ret)])
    };
    let wide = Some(Primitive::Int64);
    let narrow = Some(Primitive::Int32);
    assert_eq!(module(wide).rules(through(0)), []);
    assert_eq!(module(narrow).rules(through(1)), []);
    for (native_int, local) in [(None, 0), (None, 1), (wide, 1), (narrow, 0)] {
        assert_ne!(module(native_int).rules(through(local)), [], "{native_int:?}, local {local}");
    }
    let cut = || [Instruction::ldloc(0), Instruction::stloc(1), plain(O::Ret)];
    assert_eq!(module(wide).rules(cut()), []);
    assert_eq!(module(None).rules(cut()), [Rule::Assignment]);
    assert_eq!(module(narrow).rules(cut()), [Rule::Assignment]);
}
