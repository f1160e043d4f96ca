//! The signal handler. It may interrupt a sampled thread anywhere: in compiled code, in the allocator, with any lock held.
//!
//! So it consists of a few loads and stores:
//! - it calls neither the runtime nor libc, allocates nothing, takes no lock, writes no log and looks nothing up;
//! - it touches no thread-local variable: the thread is identified by its control block, which one instruction finds;
//! - it writes only to the slot, which was made before the first signal and is never freed;
//! - it changes nothing of the thread but its alternate stack, by `uc_stack` of the signal's frame, if that was asked for;
//! - it reads only the thread's own stack, between the stack pointer and the stack's end, which is always mapped;
//! - it makes no system call, so `errno` does not change;
//! - it does not panic: there is no index and no arithmetic that could.

use std::ffi::c_void;
use std::ops::Range;

use super::alternate_stack::is_small;
use super::slot::{FrameRecord, RawSample, Slot};

const WORD: usize = size_of::<usize>();

/// In the value of a signal: the thread is to exchange its alternate stack, not to record a sample.
pub(super) const EXCHANGE: usize = 1 << 31;

/// Its address, for `sigaction`.
pub(super) fn address() -> usize {
    handle as *const () as usize
}

/// The registers of the code that was interrupted.
struct Interrupted {
    ip: usize,
    stack_pointer: usize,
    frame_pointer: usize,
    link: usize,
}

extern "C" fn handle(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes both to a handler with SA_SIGINFO. The value of a signal that was not queued is arbitrary, and
    // is only compared with the numbers of slots.
    let (value, context) = unsafe { ((*info).si_value().sival_ptr.addr(), &mut *context.cast::<libc::ucontext_t>()) };
    let interrupted = interrupted(context);
    let Some(slot) = Slot::numbered(value & !EXCHANGE) else { return };
    if value & EXCHANGE == 0 {
        let has_small_stack = is_small(&context.uc_stack);
        slot.fill(|sample, stack| {
            note(sample, &interrupted, &stack);
            sample.has_small_stack = has_small_stack;
        });
    } else {
        slot.exchange(interrupted.stack_pointer, &mut context.uc_stack);
    }
}

#[cfg(target_arch = "x86_64")]
fn interrupted(context: &libc::ucontext_t) -> Interrupted {
    let [ip, stack_pointer, frame_pointer] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP]
        .map(|register| context.uc_mcontext.gregs.get(register as usize).map_or(0, |&value| value as usize));
    Interrupted { ip, stack_pointer, frame_pointer, link: 0 }
}

#[cfg(target_arch = "aarch64")]
fn interrupted(context: &libc::ucontext_t) -> Interrupted {
    let [frame_pointer, link] =
        [29, 30].map(|register| context.uc_mcontext.regs.get(register).map_or(0, |&value| value as usize));
    let ip = context.uc_mcontext.pc as usize;
    let stack_pointer = context.uc_mcontext.sp as usize;
    Interrupted { ip, stack_pointer, frame_pointer, link }
}

/// Records registers, frames and the top of the stack.
fn note(sample: &mut RawSample, interrupted: &Interrupted, stack: &Range<usize>) {
    let Interrupted { ip, stack_pointer, frame_pointer, link } = *interrupted;
    sample.clear();
    sample.ip = ip;
    sample.stack_pointer = stack_pointer;
    sample.frame_pointer = frame_pointer;
    sample.link = link;
    sample.is_elsewhere = !stack.contains(&stack_pointer);
    if sample.is_elsewhere || !stack_pointer.is_multiple_of(WORD) {
        return;
    }
    // From the stack pointer up to the stack's end everything is in use, so it is mapped.
    let live = stack_pointer..stack.end;
    let mut place = stack_pointer;
    while let Some(word) = read(place, &live) {
        if !sample.push_word(word) {
            break;
        }
        place = place.wrapping_add(WORD);
    }
    let copied = place;
    let mut frame = frame_pointer;
    // Each frame lies above the last, so the chain ends.
    while let (Some(next), Some(return_address)) = (read(frame, &live), read(frame.wrapping_add(WORD), &live)) {
        if frame.wrapping_add(WORD) >= copied && !sample.push_record(FrameRecord { place: frame, next, return_address })
        {
            break;
        }
        if next <= frame {
            break;
        }
        frame = next;
    }
}

/// A word of the stack; none outside it.
#[inline]
fn read(place: usize, live: &Range<usize>) -> Option<usize> {
    let is_live = place >= live.start && place < live.end && live.end.wrapping_sub(place) >= WORD;
    if !is_live || !place.is_multiple_of(WORD) {
        return None;
    }
    // SAFETY: an aligned word between the stack pointer and the end of the calling thread's stack.
    Some(unsafe { std::ptr::with_exposed_provenance::<usize>(place).read_volatile() })
}
