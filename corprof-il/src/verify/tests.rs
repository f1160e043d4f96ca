//! Rules one by one, on bodies made by hand.

use super::*;
use crate::body::{Instruction, Operand, Range, Region, RegionKind};
use crate::opcode::Opcode as O;
use crate::signature::{CallingConvention, MethodSignature, Primitive, Signature, Type};
use crate::token::{Token, TypeDef, TypeDefOrRef};

const OBJECT: u32 = 0x0200_0001;
const POINT: u32 = 0x0200_0002;
const SIZE: u32 = 0x0200_0003;
const COLOUR: u32 = 0x0200_0004;
const STATIC_INT: u32 = 0x0600_0001; // static int32 (int32)
const VIRTUAL: u32 = 0x0600_0002; // instance void ()
const CTOR: u32 = 0x0600_0003;
const TAKES_POINT: u32 = 0x0600_0004; // static void (Point)
const STATIC_VIRTUAL: u32 = 0x0600_0005; // static void ()
const STATIC_VOID: u32 = 0x0600_0007; // static void (int32)
const VOID_OF_INT: u32 = 0x0600_0008; // instance void (int32)
const DELEGATE_CTOR: u32 = 0x0600_0009; // of a delegate with `void Invoke(int32)`
const FIELD: u32 = 0x0400_0001; // Point Object::field
const STATIC_FIELD: u32 = 0x0400_0002;
const LOCALS: u32 = 0x1100_0001; // int32, Point, Size, native int
const CALL_SIGNATURE: u32 = 0x1100_0002; // void (int64)
const STRING: u32 = 0x7000_0001;

struct Metadata;

fn value(token: u32) -> Type {
    Type::ValueType(TypeDefOrRef::Def(TypeDef::from_raw(token)))
}

fn primitive(primitive: Primitive) -> Type {
    Type::Primitive(primitive)
}

fn signature(has_this: bool, parameters: Vec<Type>, return_type: Type) -> MethodSignature {
    let convention = CallingConvention::Default;
    MethodSignature {
        convention,
        has_this,
        explicit_this: false,
        generic_parameters: 0,
        return_type,
        parameters,
        sentinel: None,
    }
}

impl Resolve for Metadata {
    fn type_info(&self, token: Token) -> Option<TypeInfo> {
        let category = match token.as_raw() {
            OBJECT => Category::Reference,
            POINT | SIZE => Category::Value,
            COLOUR => Category::Enum(Primitive::Int32),
            _ => return None,
        };
        Some(TypeInfo { identity: token.as_raw().into(), category, well_known: None })
    }

    fn type_spec(&self, _: Token) -> Option<Type> {
        None
    }

    fn method(&self, token: Token) -> Option<MethodInfo> {
        let (signature, is_constructor) = match token.as_raw() {
            STATIC_INT => (signature(false, vec![primitive(Primitive::Int32)], primitive(Primitive::Int32)), false),
            VIRTUAL => (signature(true, vec![], primitive(Primitive::Void)), false),
            CTOR => (signature(true, vec![], primitive(Primitive::Void)), true),
            STATIC_VIRTUAL => (signature(false, vec![], primitive(Primitive::Void)), false),
            STATIC_VOID => (signature(false, vec![primitive(Primitive::Int32)], primitive(Primitive::Void)), false),
            VOID_OF_INT => (signature(true, vec![primitive(Primitive::Int32)], primitive(Primitive::Void)), false),
            DELEGATE_CTOR => {
                let parameters = vec![primitive(Primitive::Object), primitive(Primitive::NativeInt)];
                (signature(true, parameters, primitive(Primitive::Void)), true)
            }
            TAKES_POINT => (signature(false, vec![value(POINT)], primitive(Primitive::Void)), false),
            _ => return None,
        };
        let owner = if token.as_raw() == DELEGATE_CTOR { COLOUR + 1 } else { OBJECT };
        let owner = Some(TypeDefOrRef::Def(TypeDef::from_raw(owner)));
        let is_virtual = Some(token.as_raw() == STATIC_VIRTUAL);
        Some(MethodInfo { owner, signature, is_constructor, is_abstract: false, is_virtual })
    }

    fn method_spec(&self, _: Token) -> Option<(Token, Vec<Type>)> {
        None
    }

    fn field(&self, token: Token) -> Option<FieldInfo> {
        let is_static = match token.as_raw() {
            FIELD => false,
            STATIC_FIELD => true,
            _ => return None,
        };
        let owner = Some(TypeDefOrRef::Def(TypeDef::from_raw(OBJECT)));
        Some(FieldInfo { owner, ty: value(POINT), is_static: Some(is_static) })
    }

    fn signature(&self, token: Token) -> Option<Signature> {
        Some(match token.as_raw() {
            LOCALS => Signature::Locals(vec![
                primitive(Primitive::Int32),
                value(POINT),
                value(SIZE),
                primitive(Primitive::NativeInt),
            ]),
            CALL_SIGNATURE => {
                Signature::Method(signature(false, vec![primitive(Primitive::Int64)], primitive(Primitive::Void)))
            }
            _ => return None,
        })
    }

    fn has_string(&self, token: Token) -> bool {
        token.as_raw() == STRING
    }

    fn delegate(&self, token: Token) -> Option<MethodSignature> {
        let invoke = || signature(true, vec![primitive(Primitive::Int32)], primitive(Primitive::Void));
        (token.as_raw() == COLOUR + 1).then(invoke)
    }
}

/// Code under test; branches go to instructions by number.
enum I {
    P(O),
    T(O, u32),
    V(O, u16),
    N(i32),
    B(O, usize),
    S(Vec<usize>),
}
use I::{B, N, P, S, T, V};

fn body(code: &[I]) -> Body {
    let mut body = Body::new();
    let ids: Vec<_> = code.iter().map(|_| body.append(Instruction::new(O::Nop).unwrap())).collect();
    for (id, insn) in ids.iter().zip(code) {
        let insn = match insn {
            P(opcode) => Instruction::new(*opcode),
            T(opcode, token) => Instruction::with(*opcode, Operand::Token(Token::from_raw(*token))),
            V(opcode, number) => Instruction::with(*opcode, Operand::Variable(*number)),
            N(number) => Ok(Instruction::ldc_i4(*number)),
            B(opcode, to) => Instruction::with(*opcode, Operand::Target(body.label_at(ids[*to]).unwrap())),
            S(to) => {
                let labels = to.iter().map(|to| body.label_at(ids[*to]).unwrap()).collect();
                Instruction::with(O::Switch, Operand::Targets(labels))
            }
        };
        body.replace(*id, insn.unwrap()).unwrap();
    }
    body.set_locals(Some(Token::from_raw(LOCALS)));
    body
}

/// Adds a region by the numbers of instructions.
fn region(body: &mut Body, kind: RegionKind, tried: (usize, usize), handler: (usize, usize)) {
    let ids: Vec<_> = body.iter().map(|(id, _)| id).collect();
    let range = |(first, last): (usize, usize)| Range { first: ids[first], last: ids[last] };
    body.add_region(Region::new(kind, range(tried), range(handler))).unwrap();
}

/// Verifies it as `static void (int32)` and answers the rules that were broken.
fn rules_of(body: &Body) -> Vec<Rule> {
    let method =
        MethodContext::new(None, signature(false, vec![primitive(Primitive::Int32)], primitive(Primitive::Void)));
    match Verifier::new(&Metadata).verify(body, &method) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.rule).collect(),
    }
}

fn rules(code: &[I]) -> Vec<Rule> {
    rules_of(&body(code))
}

#[track_caller]
fn max_stack(code: &[I]) -> u16 {
    let method =
        MethodContext::new(None, signature(false, vec![primitive(Primitive::Int32)], primitive(Primitive::Void)));
    Verifier::new(&Metadata).verify(&body(code), &method).unwrap().max_stack
}

#[test]
fn max_stack_is_exact() {
    assert_eq!(max_stack(&[P(O::Ret)]), 0);
    assert_eq!(max_stack(&[N(1), N(2), P(O::Add), P(O::Pop), P(O::Ret)]), 2);
    assert_eq!(
        max_stack(&[
            P(O::Ldarg_0),
            B(O::Brtrue_S, 5),
            N(1),
            P(O::Dup),
            B(O::Br_S, 7),
            N(1),
            N(2),
            P(O::Pop),
            P(O::Pop),
            P(O::Ret)
        ]),
        2
    );
    // Dead code counts for nothing, and neither do loops.
    assert_eq!(max_stack(&[P(O::Ret), N(1), N(2), N(3), P(O::Ret)]), 0);
    assert_eq!(max_stack(&[N(1), P(O::Pop), B(O::Br_S, 0)]), 1);
    let mut declared = body(&[N(1), N(2), P(O::Pop), P(O::Pop), P(O::Ret)]);
    declared.set_max_stack(1);
    assert_eq!(rules_of(&declared), [Rule::StackOverflow]);
    declared.set_max_stack(2);
    assert_eq!(rules_of(&declared), []);
    let mut much: Vec<I> = (0..65_535).map(N).collect();
    much.push(P(O::Localloc));
    assert!(rules(&much).contains(&Rule::MethodFallthrough));
    for (count, expected) in [(65_535, vec![]), (65_536, vec![Rule::StackOverflow])] {
        let mut code: Vec<I> = (0..count).map(|_| P(O::Ldnull)).collect();
        code.push(P(O::Throw));
        assert_eq!(rules(&code), expected);
    }
}

#[test]
fn finish_sets_what_an_edit_needs() {
    let mut edited = body(&[N(1), N(2), P(O::Pop), P(O::Pop), P(O::Ret)]);
    let method = MethodContext::new(None, signature(false, vec![], primitive(Primitive::Void)));
    assert!(edited.encode().is_err());
    Verifier::new(&Metadata).finish(&mut edited, &method).unwrap();
    assert_eq!(edited.max_stack(), Some(2));
    assert!(edited.encode().is_ok());
}

#[test]
fn paths_must_agree() {
    let join = |a: I, b: I| rules(&[P(O::Ldarg_0), B(O::Brtrue_S, 4), a, B(O::Br_S, 5), b, P(O::Pop), P(O::Ret)]);
    assert_eq!(join(N(1), N(2)), []);
    assert_eq!(join(N(1), V(O::Ldloc_S, 3)), [], "int32 and native int become native int");
    assert_eq!(join(V(O::Ldloc_S, 3), N(1)), []);
    assert_eq!(join(P(O::Ldnull), N(1)), [Rule::PathStackUnexpected]);
    assert_eq!(join(V(O::Ldloc_S, 1), V(O::Ldloc_S, 1)), []);
    assert_eq!(join(V(O::Ldloc_S, 1), V(O::Ldloc_S, 2)), [Rule::PathStackUnexpected]);
    assert_eq!(join(N(1), P(O::Nop)), [Rule::PathStackDepth]);
    assert_eq!(rules(&[N(1), B(O::Br_S, 0)]), [Rule::PathStackDepth]);
    assert_eq!(rules(&[P(O::Ldarg_0), S(vec![2, 3, 3]), P(O::Nop), P(O::Ret)]), []);
}

#[test]
fn the_stack_is_checked_by_kind() {
    use Rule::{Assignment, BinaryOperands, ReturnStack, StackUnderflow, StackUnexpected};
    assert_eq!(rules(&[P(O::Pop), P(O::Ret)]), [StackUnderflow]);
    assert_eq!(rules(&[N(1), P(O::Ret)]), [ReturnStack]);
    assert_eq!(rules(&[P(O::Ldnull), N(1), P(O::Add), P(O::Pop), P(O::Ret)]), [BinaryOperands]);
    assert_eq!(rules(&[V(O::Ldloca_S, 1), N(1), P(O::Add), P(O::Pop), P(O::Ret)]), []);
    assert_eq!(rules(&[P(O::Ldnull), P(O::Ldnull), P(O::Clt), P(O::Pop), P(O::Ret)]), [BinaryOperands]);
    assert_eq!(rules(&[P(O::Ldnull), P(O::Ldnull), P(O::Cgt_Un), P(O::Pop), P(O::Ret)]), []);
    let compared =
        |comparison| rules(&[T(O::Ldftn, TAKES_POINT), V(O::Ldloca_S, 1), P(comparison), P(O::Pop), P(O::Ret)]);
    assert_eq!(compared(O::Ceq), []);
    assert_eq!(compared(O::Clt), [BinaryOperands], "an order of a function's address");
    assert_eq!(rules(&[P(O::Ldnull), P(O::Stloc_0), P(O::Ret)]), [Assignment]);
    assert_eq!(rules(&[V(O::Ldloc_S, 1), V(O::Stloc_S, 2), P(O::Ret)]), [Assignment], "value types by name");
    assert_eq!(rules(&[V(O::Ldloc_S, 2), T(O::Call, TAKES_POINT), P(O::Ret)]), [Assignment]);
    assert_eq!(rules(&[V(O::Ldloc_S, 1), T(O::Call, TAKES_POINT), P(O::Ret)]), []);
    assert_eq!(rules(&[N(0), P(O::Ldind_I4), P(O::Pop), P(O::Ret)]), [StackUnexpected]);
    assert_eq!(rules(&[N(3), T(O::Box, COLOUR), P(O::Pop), P(O::Ret)]), [], "enumerations are numbers");
    assert_eq!(rules(&[N(3), T(O::Box, POINT), P(O::Pop), P(O::Ret)]), [Assignment]);
    assert_eq!(rules(&[V(O::Ldloc_S, 1), B(O::Brtrue_S, 2), P(O::Ret)]), [StackUnexpected]);
    // All of them, not the first.
    let all = rules(&[P(O::Pop), P(O::Ldnull), P(O::Stloc_0), N(1), P(O::Ret)]);
    assert_eq!(all, [StackUnderflow, Assignment, ReturnStack]);
}

#[test]
fn tokens_must_fit() {
    assert_eq!(rules(&[N(1), T(O::Call, STATIC_INT), P(O::Pop), P(O::Ret)]), []);
    assert_eq!(rules(&[T(O::Call, 0x0600_0099), P(O::Ret)]), [Rule::BadToken]);
    assert_eq!(rules(&[T(O::Call, FIELD), P(O::Ret)]), [Rule::BadToken]);
    assert_eq!(rules(&[T(O::Ldstr, 0x7000_0002), P(O::Pop), P(O::Ret)]), [Rule::BadToken]);
    assert_eq!(rules(&[T(O::Ldstr, STRING), T(O::Callvirt, VIRTUAL), P(O::Ret)]), []);
    assert_eq!(rules(&[N(1), T(O::Callvirt, VIRTUAL), P(O::Ret)]), [Rule::StackUnexpected]);
    assert_eq!(rules(&[N(1), T(O::Callvirt, STATIC_INT), P(O::Pop), P(O::Ret)]), [Rule::CallVirtOnStatic]);
    assert_eq!(rules(&[T(O::Newobj, CTOR), P(O::Pop), P(O::Ret)]), []);
    assert_eq!(rules(&[N(1), T(O::Newobj, STATIC_INT), P(O::Pop), P(O::Ret)]), [Rule::CtorExpected]);
    assert_eq!(rules(&[T(O::Ldsfld, STATIC_FIELD), V(O::Stloc_S, 1), P(O::Ret)]), []);
    assert_eq!(rules(&[T(O::Ldsfld, FIELD), V(O::Stloc_S, 1), P(O::Ret)]), [Rule::FieldStatic]);
    assert_eq!(rules(&[P(O::Ldnull), T(O::Ldfld, FIELD), V(O::Stloc_S, 1), P(O::Ret)]), []);
    assert_eq!(rules(&[V(O::Ldloc_S, 1), T(O::Ldfld, FIELD), V(O::Stloc_S, 1), P(O::Ret)]), [Rule::StackUnexpected]);
    assert_eq!(rules(&[P(O::Ldnull), T(O::Unbox, OBJECT), P(O::Pop), P(O::Ret)]), [Rule::BadType]);
    let calli = |argument: I| rules(&[argument, V(O::Ldloc_S, 3), T(O::Calli, CALL_SIGNATURE), P(O::Ret)]);
    assert_eq!(calli(P(O::Ldarg_0)), [Rule::Assignment]);
    assert_eq!(rules(&[N(1), P(O::Conv_I8), V(O::Ldloc_S, 3), T(O::Calli, CALL_SIGNATURE), P(O::Ret)]), []);
    assert_eq!(rules(&[V(O::Ldarg_S, 1), P(O::Pop), P(O::Ret)]), [Rule::UnrecognizedArgumentNumber]);
    assert_eq!(rules(&[V(O::Ldloca_S, 4), P(O::Pop), P(O::Ret)]), [Rule::UnrecognizedLocalNumber]);
}

const CATCH: RegionKind = RegionKind::Catch(Token::from_raw(OBJECT));

#[test]
fn regions_are_left_and_entered_as_they_may() {
    let tried = |code: &[I], kind: RegionKind, tried: (usize, usize), handler: (usize, usize)| {
        let mut body = body(code);
        region(&mut body, kind, tried, handler);
        rules_of(&body)
    };
    let leave = || B(O::Leave_S, 4);
    // 0: nop 1: leave 4 | 2: pop 3: leave 4 | 4: ret
    assert_eq!(tried(&[P(O::Nop), leave(), P(O::Pop), leave(), P(O::Ret)], CATCH, (0, 1), (2, 3)), []);
    let end = || P(O::Endfinally);
    assert_eq!(tried(&[P(O::Nop), leave(), P(O::Nop), end(), P(O::Ret)], RegionKind::Finally, (0, 1), (2, 3)), []);
    assert_eq!(
        tried(&[P(O::Nop), leave(), P(O::Nop), leave(), P(O::Ret)], RegionKind::Finally, (0, 1), (2, 3)),
        [Rule::LeaveOutOfFinally]
    );
    assert_eq!(
        tried(&[P(O::Nop), B(O::Br_S, 4), P(O::Pop), leave(), P(O::Ret)], CATCH, (0, 1), (2, 3)),
        [Rule::BranchOutOfTry]
    );
    assert_eq!(
        tried(&[P(O::Nop), leave(), P(O::Pop), B(O::Br_S, 4), P(O::Ret)], CATCH, (0, 1), (2, 3)),
        [Rule::BranchOutOfHandler]
    );
    assert_eq!(
        tried(&[P(O::Ret), P(O::Nop), P(O::Pop), P(O::Ret), P(O::Ret)], CATCH, (0, 1), (2, 3)),
        [Rule::ReturnFromTry, Rule::FallthroughOutOfRegion, Rule::FallthroughIntoHandler, Rule::ReturnFromHandler]
    );
    // From outside to the middle of tried code, and into the handler; to the first instruction is legal.
    let outside = |to| [B(O::Br_S, to), P(O::Nop), B(O::Leave_S, 5), P(O::Pop), B(O::Leave_S, 5), P(O::Ret)];
    assert_eq!(tried(&outside(1), CATCH, (1, 2), (3, 4)), []);
    assert_eq!(tried(&outside(2), CATCH, (1, 2), (3, 4)), [Rule::BranchIntoTry]);
    let into = tried(&outside(3), CATCH, (1, 2), (3, 4));
    assert_eq!(into.first(), Some(&Rule::BranchIntoHandler), "{into:?}");
    assert_eq!(
        tried(&[N(1), P(O::Pop), leave(), end(), P(O::Ret)], RegionKind::Fault, (1, 2), (3, 3)),
        [Rule::TryNonEmptyStack, Rule::StackUnderflow][..1]
    );
    // `rethrow`, `endfinally` and `localloc` have their places.
    assert_eq!(tried(&[P(O::Nop), leave(), P(O::Pop), P(O::Rethrow), P(O::Ret)], CATCH, (0, 1), (2, 3)), []);
    assert_eq!(rules(&[P(O::Rethrow)]), [Rule::RethrowOutsideCatch]);
    assert_eq!(rules(&[P(O::Ret), P(O::Endfinally)]), [Rule::EndfinallyOutsideHandler], "in dead code as well");
    assert_eq!(rules(&[P(O::Ret), P(O::Endfilter)]), [Rule::EndfilterOutsideFilter], "in dead code as well");
    let localloc = [P(O::Nop), B(O::Leave_S, 6), N(8), P(O::Localloc), P(O::Pop), P(O::Endfinally), P(O::Ret)];
    assert_eq!(tried(&localloc, RegionKind::Finally, (0, 1), (2, 5)), [Rule::LocallocInHandler]);
    assert_eq!(rules(&[N(1), N(8), P(O::Localloc), P(O::Pop), P(O::Pop), P(O::Ret)]), [Rule::LocallocStack]);
}

#[test]
fn filters_end_with_their_answer() {
    // 0: leave 5 | filter 1: pop 2: ldc 3: endfilter | 4: handler | 5: ret
    let code = |answer: I| {
        let mut body = body(&[
            B(O::Leave_S, 7),
            P(O::Pop),
            answer,
            P(O::Nop),
            P(O::Endfilter),
            P(O::Pop),
            B(O::Leave_S, 7),
            P(O::Ret),
        ]);
        let first = body.iter().nth(1).unwrap().0;
        region(&mut body, RegionKind::Filter { first }, (0, 0), (5, 6));
        body
    };
    assert_eq!(rules_of(&code(N(0))), []);
    assert_eq!(rules_of(&code(P(O::Ldnull))), [Rule::StackUnexpected]);
    let mut wrong = code(N(0));
    let endfilter = wrong.iter().nth(4).unwrap().0;
    wrong.replace(endfilter, Instruction::new(O::Nop).unwrap()).unwrap();
    let found = rules_of(&wrong);
    assert!(found.contains(&Rule::FilterEnd) && found.contains(&Rule::FallthroughIntoHandler), "{found:?}");
}

#[test]
fn prefixes_stand_where_they_mean_something() {
    use crate::body::Prefix;
    let prefixed = |insn: Instruction, prefixes: Vec<Prefix>, before: &[I], after: &[I]| {
        let mut body = body(before);
        body.append(insn.prefixed(prefixes));
        for insn in after {
            if let P(opcode) = insn {
                body.append(Instruction::new(*opcode).unwrap());
            }
        }
        rules_of(&body)
    };
    let load = || Instruction::new(O::Ldind_I4).unwrap();
    let after = [P(O::Pop), P(O::Ret)];
    let address = [V(O::Ldloca_S, 0)];
    assert_eq!(prefixed(load(), vec![Prefix::Volatile, Prefix::Unaligned(1)], &address, &after), []);
    assert_eq!(prefixed(load(), vec![Prefix::Unaligned(4), Prefix::Volatile], &address, &after), []);
    assert_eq!(prefixed(load(), vec![Prefix::Unaligned(3)], &address, &after), [Rule::BadPrefix]);
    assert_eq!(prefixed(load(), vec![Prefix::Volatile, Prefix::Volatile], &address, &after), [Rule::BadPrefix]);
    assert_eq!(prefixed(load(), vec![Prefix::Readonly], &address, &after), [Rule::BadPrefix]);
    assert_eq!(prefixed(load(), vec![Prefix::No(1)], &address, &after), [Rule::NoPrefixUnknown]);
    let call = || Instruction::call(Token::from_raw(VIRTUAL));
    assert_eq!(prefixed(call(), vec![Prefix::Tail], &[P(O::Ldnull)], &[P(O::Ret)]), []);
    assert_eq!(prefixed(call(), vec![Prefix::Readonly], &[P(O::Ldnull)], &[P(O::Ret)]), []);
    let both = vec![Prefix::Tail, Prefix::Readonly];
    assert_eq!(prefixed(call(), both, &[P(O::Ldnull)], &[P(O::Ret)]), [Rule::BadPrefix]);
    assert_eq!(
        prefixed(call(), vec![Prefix::Tail], &[P(O::Ldnull)], &[P(O::Nop), P(O::Ret)]),
        [Rule::TailCallWithoutRet]
    );
    let found = prefixed(call(), vec![Prefix::Tail], &[N(1), P(O::Ldnull)], &[P(O::Ret)]);
    assert_eq!(found, [Rule::TailCallStack, Rule::ReturnStack]);
}

/// Bodies that runtimes refused or crashed on, found by compiling mutants: see `tests/live/il.rs`.
#[test]
fn what_runtimes_choke_on_is_refused() {
    // .NET 8 dies of a static method that is not virtual.
    let constrained = |opcode, token, after: &[O]| {
        let code: Vec<I> = [O::Nop].iter().chain(after).map(|opcode| P(*opcode)).collect();
        let mut code = body(&code);
        let insn = Instruction::with(opcode, Operand::Token(Token::from_raw(token))).unwrap();
        let prefix = crate::body::Prefix::Constrained(Token::from_raw(POINT));
        code.replace(code.first().unwrap(), insn.prefixed([prefix])).unwrap();
        rules_of(&code)
    };
    assert_eq!(constrained(O::Call, STATIC_VIRTUAL, &[O::Ret]), []);
    assert_eq!(constrained(O::Ldftn, STATIC_VIRTUAL, &[O::Pop, O::Ret]), []);
    assert_eq!(constrained(O::Ldftn, STATIC_INT, &[O::Pop, O::Ret]), [Rule::ConstrainedCall]);
    assert!(constrained(O::Call, STATIC_INT, &[O::Ret]).contains(&Rule::ConstrainedCall));
    assert!(constrained(O::Call, VIRTUAL, &[O::Ret]).contains(&Rule::ConstrainedCall));
    // A reference into an array of values.
    let array =
        |class| rules(&[N(1), T(O::Newarr, class), P(O::Dup), N(0), P(O::Ldnull), P(O::Stelem_Ref), P(O::Throw)]);
    assert_eq!(array(OBJECT), []);
    assert_eq!(array(POINT), [Rule::StackUnexpected]);
    // From a static method into one with `this`.
    assert_eq!(rules(&[T(O::Jmp, STATIC_VOID)]), []);
    assert_eq!(rules(&[T(O::Jmp, VOID_OF_INT)]), [Rule::BadJmp]);
    // A delegate of a method that does not fit, or of a number.
    let delegate = |load| rules(&[P(O::Ldnull), load, T(O::Newobj, DELEGATE_CTOR), P(O::Pop), P(O::Ret)]);
    assert_eq!(delegate(T(O::Ldftn, STATIC_VOID)), []);
    assert_eq!(delegate(T(O::Ldftn, VOID_OF_INT)), []);
    for method in [STATIC_INT, VIRTUAL, STATIC_VIRTUAL, TAKES_POINT, CTOR] {
        assert_eq!(delegate(T(O::Ldftn, method)), [Rule::DelegateCtor], "{method:#x}");
    }
    assert_eq!(delegate(V(O::Ldloc_S, 3)), [Rule::DelegateCtor]);
    // A finally handler beside another handler of the same code.
    let mut shared = body(&[B(O::Leave_S, 3), P(O::Endfinally), P(O::Endfinally), P(O::Ret)]);
    region(&mut shared, RegionKind::Finally, (0, 0), (1, 1));
    region(&mut shared, RegionKind::Fault, (0, 0), (2, 2));
    assert_eq!(rules_of(&shared), [Rule::SharedTry]);
}

#[test]
fn an_error_says_where_and_what() {
    let bytes = [0x0e, 0x14, 0x0a, 0x2a]; // ldnull; stloc.0; ret
    let mut body = Body::parse(&bytes).unwrap();
    body.set_locals(Some(Token::from_raw(LOCALS)));
    let method = MethodContext::new(None, signature(false, vec![], primitive(Primitive::Void)));
    let errors = Verifier::new(&Metadata).verify(&body, &method).unwrap_err();
    assert_eq!(errors.len(), 1);
    let expected = "Assignment at IL_0001 `stloc.0`: found object, expected int32 for the local variable";
    assert_eq!(errors[0].to_string(), expected);
    assert_eq!((errors[0].offset, errors[0].index), (Some(1), Some(1)));
}

#[test]
fn hostile_bodies_take_bounded_memory_and_time() {
    // A deep stack at very many targets.
    let mut code: Vec<I> = (0..20_000).map(|_| P(O::Ldnull)).collect();
    for at in 0..20_000 {
        code.push(B(O::Br_S, 20_000 + at + 1));
    }
    code.push(P(O::Throw));
    assert_eq!(rules(&code), [Rule::TooComplex]);
    // Regions without number.
    let mut many = body(&[B(O::Leave_S, 2), P(O::Endfinally), P(O::Ret)]);
    let ids: Vec<_> = many.iter().map(|(id, _)| id).collect();
    let range = |at: usize| Range { first: ids[at], last: ids[at] };
    many.add_region(Region::new(RegionKind::Finally, range(0), range(1))).unwrap();
    many.set_max_stack(1);
    let mut bytes = many.encode().unwrap();
    let section = bytes.len() - 16;
    let clause = bytes[section + 4..].to_vec();
    let [flags, _, t0, t1, tl, h0, h1, hl, ..] = clause[..] else { panic!("{clause:?}") };
    bytes.truncate(section);
    let count = 100_000_usize;
    let [a, b, c, ..] = (count * 24 + 4).to_le_bytes();
    bytes.extend([0x41, a, b, c]);
    for _ in 0..count {
        let words = [
            flags.into(),
            u16::from_le_bytes([t0, t1]).into(),
            tl.into(),
            u16::from_le_bytes([h0, h1]).into(),
            hl.into(),
            0_u32,
        ];
        bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
    }
    let parsed = Body::parse(&bytes).unwrap();
    assert_eq!(parsed.encode().unwrap(), bytes);
    assert_eq!(rules_of(&parsed), [Rule::TooComplex]);
}
