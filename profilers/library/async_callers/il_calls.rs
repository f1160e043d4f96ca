//! The methods that the IL of a method calls, by their names. So it is known which of the methods that wait has started
//! an operation: its stack was gone before anybody could look at it.

use std::collections::HashMap;

use corprof::metadata::signature::Type;
use corprof::metadata::{MemberRef, MetadataImport, MethodDef, MethodSpec, Token, TypeDefOrRef};
use corprof::prelude::*;
use corprof_il::{Body, Opcode};

/// What the IL of methods calls.
#[derive(Default)]
pub(super) struct IlCalls {
    calls: HashMap<FunctionId, Vec<Call>>,
    /// The names of async methods; none of those that cannot be read.
    names: HashMap<FunctionId, Option<MethodName>>,
}

struct Call {
    method: MethodName,
    /// Whether a method of another class may be called by this name.
    may_be_virtual: bool,
}

/// A method without its parameters.
#[derive(PartialEq, Eq)]
struct MethodName {
    /// Without the classes around it.
    class: String,
    name: String,
}

impl IlCalls {
    /// Whether a method calls an async one, itself or by its lambdas and local functions. No, if that cannot be read.
    pub(super) fn is_call(&mut self, cx: &InNoGc<'_>, caller: FunctionId, called: FunctionId) -> bool {
        let called = self.names.entry(called).or_insert_with(|| async_method(cx, called).ok());
        let Some(called) = called else { return false };
        let calls = self.calls.entry(caller).or_insert_with(|| calls(cx, caller).unwrap_or_default());
        calls.iter().any(|call| call.method == *called || call.may_be_virtual && call.method.name == called.name)
    }
}

/// The name of an async method: of a state machine, that of the method that it is made of.
fn async_method(cx: &InNoGc<'_>, function: FunctionId) -> Result<MethodName> {
    let info = cx.function_info(function)?;
    let metadata = cx.metadata(info.module)?;
    let method = metadata.method(info.token)?;
    let class = metadata.type_def(method.class)?.name;
    if let Some(name) = of_state_machine(&class)
        && let Some(outer) = metadata.enclosing_class(method.class)?
    {
        return Ok(MethodName { class: metadata.type_def(outer)?.name, name: name.to_owned() });
    }
    // One that implements a method of an interface by name has the interface in its own.
    let name = method.name.rsplit('.').next().unwrap_or_default().to_owned();
    Ok(MethodName { class, name })
}

/// The method that a state machine is made of, by the name that the compiler gives it: `<Load>d__3`.
fn of_state_machine(class: &str) -> Option<&str> {
    let (name, _) = class.strip_prefix('<')?.rsplit_once(">d")?;
    Some(name)
}

fn calls(cx: &InNoGc<'_>, function: FunctionId) -> Result<Vec<Call>> {
    let info = cx.function_info(function)?;
    let metadata = cx.metadata(info.module)?;
    let mut calls = Vec::new();
    let mut inner = Vec::new();
    calls_of_body(cx, &metadata, info.module, info.token, &mut calls, &mut inner)?;
    for method in inner {
        calls_of_body(cx, &metadata, info.module, method, &mut calls, &mut Vec::new())?;
    }
    Ok(calls)
}

/// The calls in a body, and the lambdas and local functions of the method.
fn calls_of_body(
    cx: &InNoGc<'_>,
    metadata: &MetadataImport<'_>,
    module: ModuleId,
    method: MethodDef,
    calls: &mut Vec<Call>,
    inner: &mut Vec<MethodDef>,
) -> Result<()> {
    let bytes = cx.il_function_body(module, method)?;
    let Ok(body) = Body::parse(&bytes) else { return Ok(()) };
    for (_, insn) in body.iter() {
        let is_call = matches!(insn.opcode(), Opcode::Call | Opcode::Callvirt | Opcode::Ldftn | Opcode::Ldvirtftn);
        let Some(token) = insn.token().filter(|_| is_call) else { continue };
        let Some((method, definition)) = called(metadata, token)? else { continue };
        inner.extend(definition.filter(|_| method.name.starts_with('<')));
        let may_be_virtual = matches!(insn.opcode(), Opcode::Callvirt | Opcode::Ldvirtftn);
        calls.push(Call { method, may_be_virtual });
    }
    Ok(())
}

/// The method of a token, and its definition if it is of this module.
fn called(metadata: &MetadataImport<'_>, token: Token) -> Result<Option<(MethodName, Option<MethodDef>)>> {
    let token = MethodSpec::try_from(token).map_or(Ok(token), |spec| Ok(metadata.method_spec(spec)?.parent))?;
    if let Ok(definition) = MethodDef::try_from(token) {
        let method = metadata.method(definition)?;
        let class = metadata.type_def(method.class)?.name;
        return Ok(Some((MethodName { class, name: method.name }, Some(definition))));
    }
    let Ok(reference) = MemberRef::try_from(token) else { return Ok(None) };
    let member = metadata.member_ref(reference)?;
    let Some(class) = class_name(metadata, member.parent)? else { return Ok(None) };
    Ok(Some((MethodName { class, name: member.name }, None)))
}

/// The name of the class that a reference belongs to; none of an array.
fn class_name(metadata: &MetadataImport<'_>, parent: Token) -> Result<Option<String>> {
    match TypeDefOrRef::from_token(parent) {
        Some(TypeDefOrRef::Def(class)) => Ok(Some(metadata.type_def(class)?.name)),
        Some(TypeDefOrRef::Ref(class)) => Ok(Some(metadata.type_ref(class)?.name)),
        Some(TypeDefOrRef::Spec(spec)) => match Type::decode(&metadata.type_spec(spec)?) {
            Ok(Type::Generic { definition, .. }) => class_name(metadata, definition.token()),
            _ => Ok(None),
        },
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_machines_have_the_names_of_their_methods() {
        assert_eq!(of_state_machine("<Load>d__3"), Some("Load"));
        assert_eq!(of_state_machine("<Load>d__3`1"), Some("Load"));
        assert_eq!(of_state_machine("<<Users>b__0_1>d"), Some("<Users>b__0_1"));
        assert_eq!(of_state_machine("<<Users>g__Ask|0_0>d"), Some("<Users>g__Ask|0_0"));
        assert_eq!(of_state_machine("<>c__DisplayClass0_0"), None);
        assert_eq!(of_state_machine("Shop"), None);
    }
}
