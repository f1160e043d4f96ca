//! Adds the calls of enter and leave hooks to a body.
//!
//! A call passes the number of the function's record, and the address of a local variable of the method: it is the same in all
//! calls of one call of the method, and lower than those of the callers, so it stands for the stack pointer.

use corprof_il::body::{Body, InsnId};
use corprof_il::signature::{Primitive, Type};
use corprof_il::{Instruction, Opcode, Prefix};

use super::super::counter::entry;
use super::super::{EditError, MethodEdit};
use super::ProbeKinds;
use super::weave::call;
use crate::metadata::StandAloneSignature;

/// The functions that the body calls; those that are `None` are not called.
///
/// Each takes a number and an address, by the C convention.
#[derive(Clone, Copy)]
pub(crate) struct HookCalls {
    /// The number that they receive.
    pub(crate) number: i64,
    pub(crate) enter: Option<i64>,
    pub(crate) leave: Option<i64>,
    pub(crate) tailcall: Option<i64>,
    /// When an exception leaves the method. Not called in a method that has an explicit tail call.
    pub(crate) unwound: Option<i64>,
}

/// How a call is made.
struct Caller {
    number: i64,
    marker: u16,
    signature: StandAloneSignature,
}

impl Caller {
    fn call(&self, function: Option<i64>) -> Result<Vec<Instruction>, EditError> {
        let Some(function) = function else { return Ok(Vec::new()) };
        call(self.number, &[Some(self.marker)], function, self.signature)
    }
}

impl MethodEdit<'_> {
    /// Adds the calls.
    ///
    /// # Safety
    /// The functions in `calls` keep to the contract of a [probe](super::Probe), they may be called with its number as long as the
    /// process runs, and nothing unwinds out of them.
    pub(crate) unsafe fn call_hooks(&mut self, calls: &HookCalls) -> Result<(), EditError> {
        // Values are not passed, and ends by tail calls are announced.
        self.refuse(ProbeKinds::ENTER)?;
        let is_left_otherwise = self.body().iter().any(|(_, insn)| is_tail_call(insn));
        let unwound = calls.unwound.filter(|_| !is_left_otherwise);
        let marker = self.add_local(Type::Primitive(Primitive::Int64))?.number();
        let returns = self.signature_of_method().return_type.unmodified().clone();
        let is_stored = unwound.is_some() && returns != Type::Primitive(Primitive::Void);
        let result = if is_stored { Some(self.add_local(returns)?.number()) } else { None };
        let caller = Caller { number: calls.number, marker, signature: self.probe_signature(1)? };
        let [enter, leave, tailcall] = [calls.enter, calls.leave, calls.tailcall].map(|function| caller.call(function));
        let (enter, leave, tailcall) = (enter?, leave?, tailcall?);

        let body = self.code_mut();
        if unwound.is_some() {
            let mut wrap = body.wrap_all(result)?;
            wrap.with_fault(caller.call(unwound)?)?;
            wrap.finish(leave)?;
        } else {
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

/// Inserts the calls before returns and tail calls. The result stays on the stack meanwhile.
fn announce_ends(body: &mut Body, leave: &[Instruction], tailcall: &[Instruction]) -> Result<(), EditError> {
    let all: Vec<InsnId> = body.iter().map(|(id, _)| id).collect();
    let mut is_after_tail_call = false;
    for id in all {
        let Some(insn) = body.get(id) else { continue };
        let (is_tail_call, is_ret) = (is_tail_call(insn), insn.opcode() == Opcode::Ret);
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
