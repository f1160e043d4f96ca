//! Bodies that are tried whole: hand-written ones of each shape, and those of real assemblies, where there are some.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how it fails")]

use corprof_il::body::{EditError, Range, Region, RegionKind};
use corprof_il::file::{Assemblies, Assembly, InAssembly};
use corprof_il::signature::{CallingConvention, MethodSignature, Primitive, Signature, Type};
use corprof_il::token::Token;
use corprof_il::verify::{FieldInfo, MethodContext, MethodInfo, Resolve, TypeInfo, Verifier};
use corprof_il::{Body, Instruction, Opcode, Operand, Prefix};

const INT32: Type = Type::Primitive(Primitive::Int32);
const OBJECT: Type = Type::Primitive(Primitive::Object);
const VOID: Type = Type::Primitive(Primitive::Void);
/// The token of the local variables of wrapped bodies, which no module has.
const LOCALS: Token = Token::from_raw(0x11ff_fff0);

/// The metadata of a module, or none, and the local variables of one wrapped body.
struct WithLocals<'a> {
    metadata: Option<&'a InAssembly<'a>>,
    locals: Vec<Type>,
}

impl Resolve for WithLocals<'_> {
    fn type_info(&self, token: Token) -> Option<TypeInfo> {
        self.metadata?.type_info(token)
    }
    fn type_spec(&self, token: Token) -> Option<Type> {
        self.metadata?.type_spec(token)
    }
    fn method(&self, token: Token) -> Option<MethodInfo> {
        self.metadata?.method(token)
    }
    fn method_spec(&self, token: Token) -> Option<(Token, Vec<Type>)> {
        self.metadata?.method_spec(token)
    }
    fn field(&self, token: Token) -> Option<FieldInfo> {
        self.metadata?.field(token)
    }
    fn signature(&self, token: Token) -> Option<Signature> {
        if token == LOCALS {
            return Some(Signature::Locals(self.locals.clone()));
        }
        self.metadata?.signature(token)
    }
    fn has_string(&self, token: Token) -> bool {
        self.metadata.is_some_and(|metadata| metadata.has_string(token))
    }
    fn delegate(&self, token: Token) -> Option<MethodSignature> {
        self.metadata?.delegate(token)
    }
}

/// Wraps a body with a fault handler, an observer, and code at its exit; verifies, encodes and parses the result.
fn wrap(body: &mut Body, context: &MethodContext, metadata: Option<&InAssembly<'_>>) -> Result<Body, String> {
    let mut locals = match body.locals().and_then(|token| metadata?.signature(token)) {
        Some(Signature::Locals(locals)) => locals,
        _ => Vec::new(),
    };
    let returns = context.returns.as_ref().unwrap_or(&context.signature.return_type).unmodified().clone();
    let exception = locals.len() as u16;
    locals.push(OBJECT);
    let result = (returns != VOID).then_some(exception + 1);
    locals.extend(result.map(|_| returns));

    let nop = || Instruction::new(Opcode::Nop).unwrap();
    let ends = body.iter().any(|(_, insn)| insn.opcode() == Opcode::Ret);
    let regions = body.regions().len();
    let mut wrap = body.wrap_all(result).map_err(|error| error.to_string())?;
    wrap.with_fault([nop()]).map_err(|error| error.to_string())?;
    wrap.with_observer([Instruction::stloc(exception)]).map_err(|error| error.to_string())?;
    let exit = wrap.finish([nop()]).map_err(|error| error.to_string())?;
    assert_eq!(exit.is_some(), ends, "an exit where the body returns, and only there");
    let rets = body.iter().filter(|(_, insn)| insn.opcode() == Opcode::Ret).count();
    assert_eq!(rets, usize::from(ends));
    assert_eq!(body.regions().len(), regions + 2);
    let [.., fault, filter] = body.regions() else { panic!("the new regions are the outermost") };
    assert_eq!(fault.kind, RegionKind::Fault);
    assert!(matches!(filter.kind, RegionKind::Filter { .. }) && filter.parent().is_none());

    body.set_locals(Some(LOCALS));
    let resolve = WithLocals { metadata, locals };
    let mut verifier = Verifier::new(&resolve);
    verifier.finish(body, context).map_err(|errors| errors[0].to_string())?;
    let bytes = body.encode().map_err(|error| error.to_string())?;
    let parsed = Body::parse(&bytes).map_err(|error| error.to_string())?;
    verifier.verify(&parsed, context).map_err(|errors| errors[0].to_string())?;
    assert_eq!(parsed.encode().unwrap(), bytes);
    Ok(parsed)
}

fn context(returns: Type) -> MethodContext {
    let signature = MethodSignature {
        convention: CallingConvention::Default,
        has_this: false,
        explicit_this: false,
        generic_parameters: 0,
        return_type: returns,
        parameters: vec![INT32],
        sentinel: None,
    };
    MethodContext::new(None, signature)
}

fn plain(opcode: Opcode) -> Instruction {
    Instruction::new(opcode).unwrap()
}

fn text(body: &Body) -> String {
    body.iter().map(|(id, _)| body.instruction_text(id)).collect::<Vec<_>>().join("; ")
}

#[test]
fn each_ret_leaves_to_one_exit_with_the_result() {
    // if (a) return 1; return 2; with a branch to the second `ret`.
    let mut body = Body::new();
    body.append(Instruction::ldarg(0));
    let branch = body.append(plain(Opcode::Nop));
    body.append(Instruction::ldc_i4(1));
    body.append(plain(Opcode::Ret));
    let two = body.append(Instruction::ldc_i4(2));
    body.append(plain(Opcode::Ret));
    let target = body.label_at(two).unwrap();
    body.replace(branch, Instruction::with(Opcode::Brfalse_S, Operand::Target(target)).unwrap()).unwrap();
    let wrapped = wrap(&mut body, &context(INT32), None).unwrap();
    let opcodes: Vec<_> = wrapped.iter().map(|(_, insn)| insn.opcode().name()).collect();
    assert_eq!(
        opcodes.join(" "),
        "ldarg.0 brfalse.s ldc.i4.1 stloc.1 leave.s ldc.i4.2 stloc.1 leave.s \
         nop endfinally stloc.0 ldc.i4.0 endfilter pop rethrow nop ldloc.1 ret"
    );
}

#[test]
fn a_branch_to_ret_brings_its_value_along() {
    let mut body = Body::new();
    body.append(Instruction::ldc_i4(1));
    body.append(Instruction::ldarg(0));
    let branch = body.append(plain(Opcode::Nop));
    body.append(plain(Opcode::Pop));
    body.append(Instruction::ldc_i4(2));
    let ret = body.append(plain(Opcode::Ret));
    let target = body.label_at(ret).unwrap();
    body.replace(branch, Instruction::with(Opcode::Brtrue_S, Operand::Target(target)).unwrap()).unwrap();
    wrap(&mut body, &context(INT32), None).unwrap();
    assert!(body.is_target(ret), "{}", text(&body));
}

#[test]
fn a_body_that_never_returns_has_no_exit() {
    let mut throws = Body::new();
    throws.append(plain(Opcode::Ldnull));
    throws.append(plain(Opcode::Throw));
    let wrapped = wrap(&mut throws, &context(INT32), None).unwrap();
    assert!(text(&wrapped).ends_with("rethrow"), "{}", text(&wrapped));

    let mut loops = Body::new();
    let first = loops.append(plain(Opcode::Nop));
    let target = loops.label_at(first).unwrap();
    loops.append(Instruction::br(target));
    wrap(&mut loops, &context(VOID), None).unwrap();
}

#[test]
fn dead_returns_loops_to_the_start_and_tried_code_are_kept() {
    // throw; a `ret` that nothing reaches, with nothing on the stack.
    let mut dead = Body::new();
    dead.append(plain(Opcode::Ldnull));
    dead.append(plain(Opcode::Throw));
    dead.append(plain(Opcode::Ret));
    wrap(&mut dead, &context(INT32), None).unwrap();

    // try { leave END } finally { endfinally } END: if (a) goto START; ret
    let mut body = Body::new();
    let leave = body.append(plain(Opcode::Nop));
    let handler = body.append(plain(Opcode::Endfinally));
    let end = body.append(Instruction::ldarg(0));
    let branch = body.append(plain(Opcode::Nop));
    body.append(plain(Opcode::Ret));
    let start = body.label_at(leave).unwrap();
    let end = body.label_at(end).unwrap();
    body.replace(leave, Instruction::leave(end)).unwrap();
    body.replace(branch, Instruction::with(Opcode::Brtrue_S, Operand::Target(start)).unwrap()).unwrap();
    let range = |at| Range { first: at, last: at };
    body.add_region(Region::new(RegionKind::Finally, range(leave), range(handler))).unwrap();
    wrap(&mut body, &context(VOID), None).unwrap();
    // Once more: it is a body like others.
    wrap(&mut body, &context(VOID), None).unwrap();
    assert_eq!(body.regions().len(), 5);
}

#[test]
fn a_catch_may_end_a_body_that_never_returned() {
    let mut body = Body::new();
    body.append(plain(Opcode::Ldnull));
    body.append(plain(Opcode::Throw));
    let mut wrap = body.wrap_all(None).unwrap();
    let exit = wrap.exit();
    let object = Token::from_raw(0x0100_0001);
    wrap.with_catch(object, [plain(Opcode::Pop), Instruction::leave(exit)]).unwrap();
    wrap.with_finally([]).unwrap();
    assert!(wrap.finish([]).unwrap().is_some());
    assert_eq!(text(&body).rsplit("; ").next(), Some("ret"), "{}", text(&body));
    assert!(body.encode().is_err(), "its max stack is not known yet");
    body.set_max_stack(1);
    body.encode().unwrap();
}

#[test]
fn what_no_region_may_have_is_refused_and_tail_calls_can_be_dropped() {
    let signature = Token::from_raw(0x1100_0001);
    let mut body = Body::new();
    let call = body.append(Instruction::calli(signature).prefixed([Prefix::Tail]));
    body.append(plain(Opcode::Ret));
    let before = text(&body);
    assert_eq!(body.wrap_all(None).unwrap_err(), EditError::TailCall(call));
    assert_eq!(text(&body), before);
    assert_eq!((body.drop_tail_calls(), body.drop_tail_calls()), (1, 0));
    assert!(body.get(call).unwrap().prefixes().is_empty());
    body.wrap_all(None).unwrap().finish([]).unwrap();

    let mut body = Body::new();
    let method = Operand::Token(Token::from_raw(0x0600_0001));
    let jmp = body.append(Instruction::with(Opcode::Jmp, method).unwrap());
    assert_eq!(body.wrap_all(None).unwrap_err(), EditError::Jmp(jmp));
    assert_eq!(Body::new().wrap_all(None).unwrap_err(), EditError::Empty);
}

#[test]
fn real_bodies_verify_when_they_are_wrapped() {
    let folders = match std::env::var_os("CORPROF_IL_CORPUS") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => {
            let cache = std::env::home_dir().unwrap_or_default().join(".cache/corprof");
            vec![cache.join("dotnet-8.0.4-linux-x64/shared/Microsoft.NETCore.App/8.0.4")]
        }
    };
    let every = std::env::var("CORPROF_IL_EVERY").ok().and_then(|every| every.parse().ok()).unwrap_or(11);
    let mut set = Assemblies::new();
    for folder in &folders {
        for name in ["System.Private.CoreLib", "System.Runtime", "System.Linq", "System.Net.Http", "System.Private.Xml"]
        {
            if let Ok(assembly) = Assembly::open(folder.join(format!("{name}.dll"))) {
                set.add(assembly);
            }
        }
    }
    let mut count = 0;
    for here in set.iter() {
        let assembly = here.assembly();
        for method in assembly.methods().step_by(every) {
            let Ok(Some(bytes)) = assembly.body_bytes(method) else { continue };
            let (Ok((mut body, _)), Some(context)) = (Body::parse_prefix(bytes), here.context(method)) else {
                continue;
            };
            count += 1;
            if let Err(error) = wrap(&mut body, &context, Some(&here)) {
                panic!("{}: {error}\n{}", assembly.method_name(method.token), text(&body));
            }
        }
    }
    println!("{count} bodies");
    assert!(set.iter().next().is_none() || count > 1000, "{count} bodies only");
}
