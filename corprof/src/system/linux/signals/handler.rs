//! The signal handler. It may interrupt a sampled thread anywhere: in compiled code, in the allocator, with any lock
//! held.
//!
//! So it consists of a few loads and stores:
//! - it calls neither the runtime nor libc, but for `clock_gettime`, which POSIX allows in handlers; it allocates
//!   nothing, takes no lock, writes no log and looks nothing up;
//! - it touches no thread-local variable: the thread is identified by its control block, which one instruction finds;
//! - it writes only to the slot, which was made before the first signal and is never freed;
//! - it changes nothing of the thread but its alternate stack, by `uc_stack` of the signal's frame, if that was asked
//!   for;
//! - it reads only the thread's own stack, between the stack pointer and the stack's end, which is always mapped;
//! - it makes no system call, unless the kernel lets no process read the clock by itself, and that call does not fail:
//!   so `errno` does not change;
//! - it does not panic: there is no index and no arithmetic that could.

use std::ffi::c_void;
use std::ops::Range;

use super::alternate_stack::is_small;
use super::sample_slot::{FrameRecord, RawSample, SampleSlot};

const WORD: usize = size_of::<usize>();

/// How far an original frame is looked for.
const MOST_SEARCHED: usize = 64 * 1024;

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
    // SAFETY: the system passes both to a handler with SA_SIGINFO. The value of a signal that was not queued is
    // arbitrary, and is only compared with the numbers of slots.
    let (value, context) = unsafe { ((*info).si_value().sival_ptr.addr(), &mut *context.cast::<libc::ucontext_t>()) };
    let interrupted = interrupted(context);
    let Some(slot) = SampleSlot::numbered(value & !EXCHANGE) else { return };
    if value & EXCHANGE == 0 {
        let has_small_stack = is_small(&context.uc_stack);
        slot.fill(|sample, stack| {
            note(sample, &interrupted, &stack);
            sample.has_small_stack = has_small_stack;
            sample.ticks = crate::system::ticks();
        });
    } else {
        slot.exchange(interrupted.stack_pointer, registers(&context.uc_mcontext), &mut context.uc_stack);
    }
}

/// All general registers.
#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::mcontext_t) -> impl Iterator<Item = usize> {
    context.gregs.iter().map(|&register| register as usize)
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::mcontext_t) -> impl Iterator<Item = usize> {
    context.regs.iter().map(|&register| register as usize)
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
    record_frames(sample, frame_pointer, place, &live);
}

/// Records the chain of frames that begins at `frame`, beyond the part of the stack that was copied.
fn record_frames(sample: &mut RawSample, frame: usize, copied: usize, live: &Range<usize>) {
    let mut frame = frame;
    // Each frame lies above the last, so the chain ends.
    while let Some(record) = read_record(frame, live) {
        let above = frame.wrapping_add(WORD);
        if above >= copied && !sample.push_record(record) {
            return;
        }
        if record.next <= frame {
            return;
        }
        let unseen = above.wrapping_add(WORD).max(copied.wrapping_sub(WORD));
        if let Some(original) = original_record(record.next, unseen, live)
            && !sample.push_record(original)
        {
            return;
        }
        frame = record.next;
    }
}

/// The record of the original frame, in the frame of code that continues a loop (on-stack replacement). Such code
/// copies the caller's frame pointer, `next`, into a record of its own; the original frame above has it once more,
/// below the return address. Looks from `start` on. Where a word has that value by chance, the record is needless and
/// does no harm.
fn original_record(next: usize, start: usize, live: &Range<usize>) -> Option<FrameRecord> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let end = next.min(start.saturating_add(MOST_SEARCHED));
    let mut place = start;
    while place < end && read(place, live)? != next {
        place = place.wrapping_add(WORD);
    }
    if place >= end {
        return None;
    }
    read_record(place, live)
}

/// The record at this address.
fn read_record(place: usize, live: &Range<usize>) -> Option<FrameRecord> {
    let next = read(place, live)?;
    let return_address = read(place.wrapping_add(WORD), live)?;
    Some(FrameRecord { place, next, return_address })
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

#[cfg(test)]
mod tests {
    use super::super::sample_slot::WORDS;
    use super::*;

    /// The sample of a stack of these words, with the frame pointer at a word of it.
    fn sample_of(stack: &[usize], frame_pointer: usize) -> RawSample {
        let start = stack.as_ptr().expose_provenance();
        let place = |word: usize| start + word * WORD;
        let interrupted = Interrupted { ip: 1, stack_pointer: start, frame_pointer: place(frame_pointer), link: 0 };
        let mut sample = RawSample::with_room(100);
        note(&mut sample, &interrupted, &(start..place(stack.len())));
        sample
    }

    #[test]
    #[cfg_attr(not(target_arch = "x86_64"), ignore = "elsewhere such code makes one record")]
    fn beyond_the_copied_part_both_records_of_a_continued_loop_are_kept() {
        // From a frame in the copied part the chain leads to one of a continued loop beyond it, and to its caller's
        // caller.
        let mut stack = vec![0; WORDS + 100];
        let start = stack.as_ptr().expose_provenance();
        let place = |word: usize| start + word * WORD;
        let continued = WORDS + 10;
        let original = WORDS + 30;
        let caller = WORDS + 60;
        (stack[5], stack[6]) = (place(continued), 100);
        (stack[continued], stack[continued + 1]) = (place(caller), 200);
        (stack[original], stack[original + 1]) = (place(caller), 300);
        stack[caller + 1] = 400;
        let sample = sample_of(&stack, 5);
        let read = |word: usize| sample.read(place(word));
        assert_eq!([continued + 1, original, original + 1].map(read), [Some(200), Some(place(caller)), Some(300)]);
        assert_eq!(read(caller + 1), Some(400));
        assert_eq!(read(original + 2), None, "what belongs to no record");
    }

    #[test]
    #[cfg_attr(not(target_arch = "x86_64"), ignore = "elsewhere such code makes one record")]
    fn an_original_frame_at_the_edge_of_the_copied_part_is_kept() {
        let original = WORDS - 1;
        let caller = WORDS + 60;
        let mut stack = vec![0; WORDS + 100];
        let start = stack.as_ptr().expose_provenance();
        let place = |word: usize| start + word * WORD;
        (stack[5], stack[6]) = (place(caller), 100);
        (stack[original], stack[original + 1]) = (place(caller), 300);
        stack[caller + 1] = 400;
        let sample = sample_of(&stack, 5);
        let read = |word: usize| sample.read(place(word));
        assert_eq!([original, original + 1, caller + 1].map(read), [Some(place(caller)), Some(300), Some(400)]);
    }
}
