//! The innermost dynamic method, which the runtime does not show.
//!
//! To suspend a thread that runs compiled code, the runtime sends it a signal, and the thread waits in the handler. The
//! system has put the registers of the interrupted code on the thread's stack, below its frame. If that code is of a
//! dynamic method, walks begin with its caller, and this finds the registers.

use crate::system;

use super::unshown::FramePosition;

const WORD: usize = size_of::<usize>();

/// How far below a frame the registers are looked for: the frames of dynamic methods are small, but what the system
/// saves of the processor besides the registers takes 11 kilobytes where it has matrix registers.
const FAR: usize = 16 * 1024;

/// How much is read at once: mostly it is enough.
const PART: usize = 4 * 1024;
const WORDS: usize = PART / WORD;

/// The words from the frame pointer to the stack pointer in the registers that the system saves, and those from there
/// to the others: Linux' `struct sigcontext` for x86-64.
mod place {
    pub(super) const FRAME_POINTER_BEFORE: usize = 5;
    pub(super) const IP: usize = 1;
    pub(super) const FLAGS: usize = 2;
    pub(super) const SEGMENTS: usize = 3;
}

/// The code segment of 64-bit programs, in the lowest bits of the word with the segments.
const CODE_SEGMENT: usize = 0x33;

/// Code that was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interrupted {
    pub(super) ip: usize,
    pub(super) position: FramePosition,
}

/// The code that the runtime has interrupted in a thread, if it is further in than the innermost frame that the runtime
/// shows. Call it while the runtime is suspended. Allocates nothing.
pub(super) fn below(shown: FramePosition, os_thread_id: u32) -> Option<Interrupted> {
    let found = nearest(shown)?;
    // What a handler has left behind that has ended lies deeper than what runs now, but may lie in a gap of that.
    let is_further_in = found.position.stack_pointer() < shown.stack_pointer();
    (is_further_in && system::is_interrupted_by_runtime(os_thread_id)).then_some(found)
}

/// The nearest registers below a frame.
fn nearest(shown: FramePosition) -> Option<Interrupted> {
    let mut bytes = [0; FAR];
    for start in (0..FAR).step_by(PART).rev() {
        let address = shown.stack_pointer().checked_sub(FAR - start)?;
        if !system::read_memory(address, bytes.get_mut(start..start + PART)?) {
            return None;
        }
        let (words, _) = bytes.get(start..)?.as_chunks();
        // Those before the first have a part of theirs further below, and come next.
        let places = (place::FRAME_POINTER_BEFORE..WORDS + place::FRAME_POINTER_BEFORE).rev();
        let found = places.filter_map(|index| registers(words, index, address, shown)).next();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The registers whose stack pointer is the word at an index, if they may be registers of code above them, no further
/// out than this frame. `address` is that of the first word.
fn registers(words: &[[u8; WORD]], index: usize, address: usize, shown: FramePosition) -> Option<Interrupted> {
    /// The bit that is always set, and those that are never set.
    const ALWAYS: usize = 1 << 1;
    const NEVER: usize = !((1 << 22) - 1);
    let word = |index: usize| words.get(index).map(|word| usize::from_ne_bytes(*word));
    let stack_pointer = word(index)?;
    if !(address + index * WORD..=shown.stack_pointer()).contains(&stack_pointer) {
        return None;
    }
    let flags = word(index + place::FLAGS)?;
    let are_registers = flags & ALWAYS != 0
        && flags & NEVER == 0
        && word(index + place::SEGMENTS)? & 0xFFFF == CODE_SEGMENT
        && stack_pointer.is_multiple_of(WORD);
    let frame_pointer = word(index.checked_sub(place::FRAME_POINTER_BEFORE)?)?;
    let position = FramePosition::new(stack_pointer, frame_pointer);
    let ip = word(index + place::IP)?;
    (are_registers && position.may_be_code(ip)).then_some(Interrupted { ip, position })
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;

    const CODE: usize = 0x7F12_3456_7890;

    /// A stack with registers at an index, which a frame above has; the address of its first word, and the frame.
    fn stack(index: usize, own: usize) -> (Vec<usize>, FramePosition) {
        let mut words = vec![0; 2 * FAR / WORD];
        let first = words.as_ptr().addr();
        let at = |index: usize| first + index * WORD;
        let top = words.len() - 8;
        words[index - place::FRAME_POINTER_BEFORE] = at(top - 2);
        words[index] = at(top - own);
        words[index + place::IP] = CODE;
        words[index + place::FLAGS] = 0x246;
        words[index + place::SEGMENTS] = 0x2B_0000_0000_0033;
        (words, FramePosition::new(at(top), 0))
    }

    #[test]
    fn the_registers_of_interrupted_code_are_found_wherever_they_are() {
        let top = 2 * FAR / WORD - 8;
        for below in [20, WORDS - 2, WORDS, WORDS + 3, WORDS + 5, 3 * WORDS, FAR / WORD - 5] {
            let (words, shown) = stack(top - below, 6);
            let found = nearest(shown).unwrap_or_else(|| panic!("not found {below} words below"));
            assert_eq!(found.ip, CODE);
            assert_eq!(found.position.stack_pointer(), shown.stack_pointer() - 6 * WORD);
            drop(words);
        }
    }

    #[test]
    fn what_is_no_registers_is_not_found() {
        let top = 2 * FAR / WORD - 8;
        for (word, value) in [(0, 8), (place::IP, 77), (place::FLAGS, 0x244), (place::SEGMENTS, 0x23)] {
            let (mut words, shown) = stack(top - 100, 6);
            words[top - 100 + word] = value;
            assert_eq!(nearest(shown), None, "word {word}");
            drop(words);
        }
    }

    #[test]
    fn a_thread_that_the_runtime_has_not_interrupted_has_none() {
        let (words, shown) = stack(2 * FAR / WORD - 108, 6);
        assert!(nearest(shown).is_some());
        assert_eq!(below(shown, system::os_thread_id()), None);
        drop(words);
    }
}
