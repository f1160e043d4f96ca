//! Adds the calls of enter and leave hooks to a body.
//!
//! A call passes the number of the function's record, and the address of a local variable of the method: it is the same
//! in all calls of one call of the method, and lower than those of the callers, so it stands for the stack pointer.
//! Calls of hooks that receive values pass the addresses of copies as well.

use corprof_il::body::{Body, InsnId};
use corprof_il::signature::{Primitive, Type};
use corprof_il::{Instruction, Opcode, Prefix};

use super::super::counter::entry;
use super::super::{EditError, MethodEdit, Refusal};
use super::ProbeKinds;
use super::copies::{Copies, is_readable};
use super::weave::call;
use crate::metadata::is_suspended_by_the_runtime;

/// The functions that the body calls; those that are `None` are not called.
///
/// Each takes a number and the address of the marker, by the C convention.
#[derive(Clone, Copy)]
pub(crate) struct HookCalls {
    /// The number that they receive.
    pub(crate) number: i64,
    /// The function for the beginning that takes so many addresses: the marker's, and those of the arguments.
    pub(crate) enter: Option<fn(usize) -> Option<i64>>,
    /// It also takes the address of the result, or 0, if that is passed.
    pub(crate) leave: Option<i64>,
    pub(crate) tailcall: Option<i64>,
    /// When an exception leaves the method. Not called in a method that has an explicit tail call.
    pub(crate) unwound: Option<i64>,
    /// Whether the arguments are passed.
    pub(crate) has_arguments: bool,
    /// Whether the result is passed.
    pub(crate) has_result: bool,
}

impl HookCalls {
    /// Whether ends of calls are reported: where a method goes on after a suspension, its stack is another one, and so
    /// its end would be told of a frame that nobody has seen begin.
    fn has_ends(&self) -> bool {
        self.leave.is_some() || self.tailcall.is_some() || self.unwound.is_some()
    }
}

impl MethodEdit<'_> {
    /// Adds the calls.
    ///
    /// # Safety
    /// The functions in `calls` keep to the contract of a [probe](super::Probe), they may be called with its number as
    /// long as the process runs, and nothing unwinds out of them.
    pub(crate) unsafe fn call_hooks(&mut self, calls: &HookCalls) -> Result<(), EditError> {
        // The end need not be in the method: ends by tail calls are announced.
        self.refuse(ProbeKinds::ENTER)?;
        let props = self.metadata().method(self.method())?;
        if calls.has_ends() && is_suspended_by_the_runtime(&props) {
            return Err(Refusal::RuntimeAsync.into());
        }
        let is_left_otherwise = self.body().iter().any(|(_, insn)| is_tail_call(insn));
        let unwound = calls.unwound.filter(|_| !is_left_otherwise);
        let marker = self.add_local(Type::Primitive(Primitive::Int64))?.number();
        let copies = if calls.has_arguments { self.copy_arguments()? } else { Copies::default() };
        let returns = self.type_of_result();
        let has_result = returns != Type::Primitive(Primitive::Void);
        let is_passed = calls.has_result && calls.leave.is_some();
        let is_shown = is_passed && is_readable(&returns);
        let is_stored = has_result && (is_passed || unwound.is_some());
        let result = if is_stored { Some(self.add_local(returns)?.number()) } else { None };
        let [one, two] = [1, 2].map(|addresses| self.probe_signature(addresses));
        let one = one?;
        let two = two?;
        let all = self.probe_signature(1 + copies.len())?;

        let marked = |function: Option<i64>| match function {
            Some(function) => call(calls.number, &[Some(marker)], function, one),
            None => Ok(Vec::new()),
        };
        let tailcall = marked(calls.tailcall)?;
        let fault = marked(unwound)?;
        let leave = match calls.leave.filter(|_| is_passed) {
            Some(function) => call(calls.number, &[Some(marker), result.filter(|_| is_shown)], function, two)?,
            None => marked(calls.leave)?,
        };
        let mut enter = Vec::new();
        if let Some(function) = calls.enter.and_then(|enter| enter(1 + copies.len())) {
            let places: Vec<_> = std::iter::once(Some(marker)).chain(copies.places()).collect();
            enter.extend(copies.store());
            enter.extend(call(calls.number, &places, function, all)?);
            enter.extend(copies.forget()?);
        }

        let body = self.code_mut();
        if unwound.is_some() {
            let mut wrap = body.wrap_all(result)?;
            wrap.with_fault(fault)?;
            wrap.finish(leave)?;
        } else {
            // Otherwise the result stays on the stack.
            let store = result.map(Instruction::stloc);
            let load = result.map(Instruction::ldloc);
            let leave: Vec<_> = store.into_iter().chain(leave).chain(load).collect();
            announce_ends(body, &leave, &tailcall)?;
        }
        if !enter.is_empty() {
            let first = entry(body)?;
            insert(body, first, &enter, false)?;
        }
        Ok(())
    }
}

/// Whether the frame of the method is gone when the instruction has run.
fn is_tail_call(insn: &Instruction) -> bool {
    insn.opcode() == Opcode::Jmp || insn.prefixes().contains(&Prefix::Tail)
}

/// Inserts the calls before returns and tail calls.
fn announce_ends(body: &mut Body, leave: &[Instruction], tailcall: &[Instruction]) -> Result<(), EditError> {
    let all: Vec<InsnId> = body.iter().map(|(id, _)| id).collect();
    let mut is_after_tail_call = false;
    for id in all {
        let Some(insn) = body.get(id) else { continue };
        let is_tail_call = is_tail_call(insn);
        let is_ret = insn.opcode() == Opcode::Ret;
        if is_tail_call {
            insert(body, id, tailcall, true)?;
        } else if is_ret && is_after_tail_call {
            // A tail call must be followed by its return, which branches may lead to as well.
            if body.is_target(id) {
                let before = body.prev(id).ok_or(corprof_il::body::EditError::Empty)?;
                let _ = body.after(before)?.push(Instruction::new(Opcode::Ret)?);
                insert(body, id, leave, true)?;
            }
        } else if is_ret {
            insert(body, id, leave, true)?;
        }
        is_after_tail_call = is_tail_call;
    }
    Ok(())
}

fn insert(body: &mut Body, before: InsnId, code: &[Instruction], retargets: bool) -> Result<(), EditError> {
    let place = body.before(before)?;
    let mut place = if retargets { place } else { place.without_retargeting() };
    for insn in code {
        place = place.push(insn.clone());
    }
    Ok(())
}
