//! The frames of signal handlers that have not returned yet, on the calling thread's stack.
//!
//! Each holds the alternate stack that the system sets when its handler returns (`uc_stack` in the `ucontext_t`).
//! Called in the handler: it reads and writes the thread's own stack, and does nothing else.

use std::mem::offset_of;
use std::ops::Range;

const WORD: usize = size_of::<usize>();

/// `uc_flags` and `uc_link`, then `uc_stack`.
const WORDS_BEFORE: usize = 2;
const _: () = assert!(offset_of!(libc::ucontext_t, uc_stack) == WORDS_BEFORE * WORD);
const _: () = assert!(offset_of!(libc::stack_t, ss_size) == 2 * WORD && size_of::<libc::stack_t>() == 3 * WORD);

/// The system's flags of a context are few bits; a link leads nowhere.
const HIGHEST_FLAGS: usize = 0xff;

/// Replaces `before` by `new` in the frames that lie in this part of the thread's stack.
pub(super) fn exchange(live: Range<usize>, before: &libc::stack_t, new: &libc::stack_t) {
    let mut context = live.start.next_multiple_of(WORD);
    let end = live.end.saturating_sub((WORDS_BEFORE + 3) * WORD);
    while context <= end {
        if holds(context, before) {
            let place = std::ptr::with_exposed_provenance_mut::<libc::stack_t>(context + WORDS_BEFORE * WORD);
            // SAFETY: aligned, within the live part of the calling thread's own stack, which the signal has
            // interrupted.
            unsafe { place.write_volatile(*new) };
        }
        context += WORD;
    }
}

/// Whether a handler that has not returned may have its frame on this alternate stack. The runtime's handler of faults
/// leaves it so: it runs on on the thread's own stack, and returns over the alternate one. Such code holds an address
/// of the alternate stack, in a register or on the thread's own stack.
pub(super) fn may_use(
    live: &Range<usize>,
    mut registers: impl Iterator<Item = usize>,
    alternate: &libc::stack_t,
) -> bool {
    let start = alternate.ss_sp.addr();
    let stack = start..start.saturating_add(alternate.ss_size);
    registers.any(|register| stack.contains(&register)) || words(live).any(|word| stack.contains(&word))
}

/// The words of a live part of the calling thread's stack.
fn words(live: &Range<usize>) -> impl Iterator<Item = usize> {
    let first = live.start.next_multiple_of(WORD);
    let last = live.end.saturating_sub(WORD);
    (first..=last).step_by(WORD).map(|place| {
        // SAFETY: aligned, within the live part of the calling thread's own stack, which the signal has interrupted.
        unsafe { std::ptr::with_exposed_provenance::<usize>(place).read_volatile() }
    })
}

/// Whether a context with this alternate stack begins here.
fn holds(context: usize, stack: &libc::stack_t) -> bool {
    let word = |index: usize| {
        // SAFETY: aligned, and `exchange` keeps all five words within the live part of the stack.
        unsafe { std::ptr::with_exposed_provenance::<usize>(context + index * WORD).read_volatile() }
    };
    // The rarest first: this is asked at each word.
    word(WORDS_BEFORE) == stack.ss_sp.addr()
        && word(WORDS_BEFORE + 2) == stack.ss_size
        && word(WORDS_BEFORE + 1) as u32 == stack.ss_flags.cast_unsigned()
        && word(1) == 0
        && word(0) <= HIGHEST_FLAGS
}
