//! Methods that the compiler puts into their callers. An inserted hook would keep it from that, and cost many times
//! what it tells.

use std::collections::HashSet;

use corprof_il::{Body, Instruction, Opcode, Prefix};
use corprof_sys as sys;

use super::fitness;
use crate::context::InNoGc;
use crate::id::FunctionId;

/// Bodies of at most so many bytes are inlined whatever they do (`ALWAYS_INLINE_SIZE` in jit/inline.h).
const ALWAYS: usize = 16;

/// Bodies of at most so many bytes are inlined if they do not loop, and call one other method at most: they pass a call
/// on.
const SMALL: usize = 32;

/// Methods that nobody calls but the runtime.
const CALLED_BY_THE_RUNTIME: [&str; 2] = [".cctor", "Main"];

/// Whether the compiler inlines a function where it is called. Methods that others may override are not counted among
/// these.
pub(super) fn is_inlined(cx: &InNoGc<'_>, function: FunctionId) -> bool {
    let Ok((metadata, method)) = fitness::method(cx, function) else { return false };
    let flags = method.flags;
    let how = method.impl_flags;
    let is_sealed = || metadata.type_def(method.class).is_ok_and(|class| class.flags.contains(sys::tdSealed));
    let is_overridden = flags.contains(sys::mdVirtual) && !flags.contains(sys::mdFinal) && !is_sealed();
    let is_kept = how.intersects(sys::miNoInlining | sys::miNoOptimization | sys::miSynchronized);
    if is_overridden || is_kept || CALLED_BY_THE_RUNTIME.contains(&method.name.as_str()) {
        return false;
    }
    how.contains(sys::miAggressiveInlining) || is_small(cx, function)
}

fn is_small(cx: &InNoGc<'_>, function: FunctionId) -> bool {
    let Ok(info) = cx.function_info(function) else { return false };
    let Ok(bytes) = cx.il_function_body(info.module, info.token) else { return false };
    let Some(size) = code_size(&bytes).filter(|size| *size <= SMALL) else { return false };
    let Ok(body) = Body::parse(&bytes) else { return false };
    let replaces_itself = |insn: &Instruction| insn.opcode() == Opcode::Jmp || insn.prefixes().contains(&Prefix::Tail);
    if !body.regions().is_empty() || loops(&body) || body.iter().any(|(_, insn)| replaces_itself(insn)) {
        return false;
    }
    size <= ALWAYS || body.iter().filter(|(_, insn)| is_call(insn.opcode())).count() <= 1
}

/// The number of bytes of code, by the body's header.
fn code_size(body: &[u8]) -> Option<usize> {
    let first = *body.first()?;
    if first & 3 == 2 {
        return Some(usize::from(first >> 2));
    }
    let size: [u8; 4] = body.get(4..8)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(size)).ok()
}

const fn is_call(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Call | Opcode::Callvirt | Opcode::Calli | Opcode::Newobj)
}

/// Whether a branch leads backwards.
fn loops(body: &Body) -> bool {
    let mut seen = HashSet::new();
    for (id, insn) in body.iter() {
        seen.insert(id);
        if insn.targets().iter().any(|&label| body.target(label).is_some_and(|target| seen.contains(&target))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tiny body with this code.
    fn body(code: &[u8]) -> Vec<u8> {
        let mut body = vec![(code.len() << 2) as u8 | 2];
        body.extend(code);
        body
    }

    #[test]
    fn a_branch_back_is_a_loop_and_one_ahead_is_none() {
        // br.s to itself; br.s to the ret behind a nop.
        let parsed = |code: &[u8]| Body::parse(&body(code)).unwrap();
        assert!(loops(&parsed(&[0x2b, 0xfe])));
        assert!(!loops(&parsed(&[0x2b, 0x01, 0x00, 0x2a])));
    }

    #[test]
    fn the_size_is_that_of_the_code() {
        assert_eq!(code_size(&body(&[0x2a])), Some(1));
        assert_eq!(code_size(&[0x13, 0x30, 1, 0, 0x2c, 1, 0, 0, 0, 0, 0, 0]), Some(300));
        assert_eq!(code_size(&[]), None);
    }
}
