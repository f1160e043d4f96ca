//! Undocumented facts of the runtime's wrapper around slow-path hooks.
//!
//! The API calls `COR_PRF_ELT_INFO` opaque. Its first word has pointed to the wrapper's notes about the call ever since
//! the slow path exists (`PROFILE_PLATFORM_SPECIFIC_DATA`, in vm/amd64/asmconstants.h and vm/arm64/asmconstants.h). Two
//! facts are read from there, and tests check each: the stack pointer of the function's caller, and the function's
//! registers at its call of the hook.

use corprof_sys as sys;

use crate::session::WalkStart;

/// Offsets in the wrapper's notes, in words.
#[cfg(target_arch = "x86_64")]
mod place {
    /// The function's rbp.
    pub(super) const FRAME_POINTER: usize = 1;
    /// The function's rsp after the hook has returned (`probeRsp`).
    pub(super) const STACK_POINTER: usize = 2;
    /// The hook's return address in the function.
    pub(super) const IP: usize = 3;
    /// The stack pointer of the function's caller (`profiledRsp`).
    pub(super) const CALLERS_STACK_POINTER: usize = 4;
}

/// Offsets in the wrapper's notes, in words.
#[cfg(not(target_arch = "x86_64"))]
mod place {
    /// The function's x29.
    pub(super) const FRAME_POINTER: usize = 0;
    /// The function's sp after the hook has returned (`probeSp`).
    pub(super) const STACK_POINTER: usize = 28;
    /// The hook's return address in the function.
    pub(super) const IP: usize = 1;
    /// The stack pointer of the function's caller (`profiledSp`).
    pub(super) const CALLERS_STACK_POINTER: usize = 29;
}

/// The greatest distance from the wrapper to the frame of the function's caller: more than any stack is long.
const FARTHEST: usize = 1 << (usize::BITS / 2 + 2);

/// The wrapper's notes.
fn notes(elt: sys::COR_PRF_ELT_INFO) -> *mut usize {
    // SAFETY: `elt` belongs to a hook under way, and begins with the address of the notes (fact: hook-values).
    unsafe { std::ptr::with_exposed_provenance::<*mut usize>(elt).read() }
}

/// The stack pointer of the function's caller. If the notes differ from those up to .NET 10, the result is their own
/// address: its distance from that stack pointer is the same in all calls of a function.
pub(super) fn stack_pointer(elt: sys::COR_PRF_ELT_INFO) -> usize {
    let noted = note(elt, place::CALLERS_STACK_POINTER);
    if is_above_wrapper(elt, noted) { noted } else { notes(elt).addr() }
}

/// The registers of the function that has called the hook; none if the notes differ from those up to .NET 10.
pub(super) fn walk_start(elt: sys::COR_PRF_ELT_INFO) -> Option<WalkStart> {
    let [ip, stack_pointer, frame_pointer] =
        [place::IP, place::STACK_POINTER, place::FRAME_POINTER].map(|place| note(elt, place));
    is_above_wrapper(elt, stack_pointer).then_some(WalkStart { ip, stack_pointer, frame_pointer })
}

/// One word of the notes.
fn note(elt: sys::COR_PRF_ELT_INFO, place: usize) -> usize {
    // SAFETY: the notes are longer than 30 words on every processor with hooks (fact: hook-values).
    unsafe { notes(elt).add(place).read() }
}

/// Whether this can be a stack pointer of the function that has called the wrapper, or of its caller.
fn is_above_wrapper(elt: sys::COR_PRF_ELT_INFO, stack_pointer: usize) -> bool {
    let wrapper = notes(elt).addr();
    stack_pointer > wrapper && stack_pointer - wrapper < FARTHEST && stack_pointer.is_multiple_of(size_of::<usize>())
}
