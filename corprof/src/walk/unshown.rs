//! Frames that the runtime does not show: it leaves out functions without metadata, such as dynamic methods.
//!
//! Their return addresses are on the stack between the frames that are shown around them. Here only words that may be
//! such addresses are collected, as threads stand still: which of them are in code of dynamic methods is asked later
//! (`SampleBuffer::show_dynamic_methods`). Not found is one that makes a frame and has called a method that makes none;
//! an innermost one is found by `interrupted.rs` if it was interrupted, and not if it waits in the runtime.

use crate::system;

use super::Registers;

/// The most words that are looked at between two frames. The frames of dynamic methods are small.
const MOST: usize = 128;

/// Addresses this close to the stack pointer are in the stack, so they are not code.
const NEAR: usize = 1 << 20;

/// Where a frame is on its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FramePosition {
    stack_pointer: usize,
    frame_pointer: usize,
}

/// Whether such frames can be found on this system. Compiled code uses frame pointers differently on Windows.
pub(crate) const CAN_BE_FOUND: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

impl FramePosition {
    pub(super) const fn new(stack_pointer: usize, frame_pointer: usize) -> Self {
        Self { stack_pointer, frame_pointer }
    }

    pub(super) const fn stack_pointer(self) -> usize {
        self.stack_pointer
    }

    /// The position that a walk shows with a frame, unless it shows none.
    pub(crate) fn of(context: &[u8]) -> Option<Self> {
        if !CAN_BE_FOUND {
            return None;
        }
        let registers = Registers::new(context);
        let stack_pointer = usize::try_from(registers.stack_pointer()).ok().filter(|&pointer| pointer > 0)?;
        Some(Self { stack_pointer, frame_pointer: usize::try_from(registers.frame_pointer()).ok()? })
    }

    /// Calls `found` with the words between this frame and the next one that is shown which may be return addresses,
    /// from the inside, until it returns `false`. Allocates nothing.
    pub(crate) fn find_before(self, next: Self, found: impl FnMut(usize) -> bool) {
        let Some((start, count)) = self.words_before(next) else { return };
        let mut bytes = [0; MOST * size_of::<usize>()];
        let Some(bytes) = bytes.get_mut(..count * size_of::<usize>()) else { return };
        if !system::read_memory(start, bytes) {
            return;
        }
        let (words, _) = bytes.as_chunks();
        let mut words = words.iter().map(|word| usize::from_ne_bytes(*word));
        // Without a use for the result: it says whether `found` wanted more.
        let _ = words.by_ref().filter(|&word| self.may_be_code(word)).all(found);
    }

    /// The first word between the two frames, and how many there are. The last word before the next frame is the return
    /// address to it.
    fn words_before(self, next: Self) -> Option<(usize, usize)> {
        const WORD: usize = size_of::<usize>();
        let has_frame_pointer = (self.stack_pointer..next.stack_pointer).contains(&self.frame_pointer);
        // A frame with a pointer to it ends with two words: what that register was before, and the return address.
        let start = if has_frame_pointer { self.frame_pointer + WORD } else { self.stack_pointer };
        let count = next.stack_pointer.checked_sub(start + WORD)? / WORD;
        (start.is_multiple_of(WORD) && count > 0).then_some((start, count.min(MOST)))
    }

    pub(super) fn may_be_code(self, word: usize) -> bool {
        word > NEAR && word >> 47 == 0 && word.abs_diff(self.stack_pointer) > NEAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(stack_pointer: usize, frame_pointer: usize) -> FramePosition {
        FramePosition { stack_pointer, frame_pointer }
    }

    #[test]
    fn words_between_frames_are_those_of_neither() {
        assert_eq!(at(0x100, 0x120).words_before(at(0x130, 0x200)), None, "it has called that one");
        assert_eq!(at(0x100, 0x120).words_before(at(0x150, 0x200)), Some((0x128, 4)));
        assert_eq!(at(0x100, 0x200).words_before(at(0x118, 0x200)), Some((0x100, 2)), "it has no frame pointer");
        assert_eq!(at(0x100, 0x120).words_before(at(0x9000, 0x9100)), Some((0x128, MOST)));
        assert_eq!(at(0x100, 0x120).words_before(at(0x100, 0x200)), None);
        assert_eq!(at(0x100, 0x121).words_before(at(0x150, 0x200)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_may_be_an_address_of_code_is_found() {
        let code = 0x7F12_3456_7890;
        let mut stack = [0_usize; 8];
        let first = stack.as_ptr().addr();
        stack[2..7].copy_from_slice(&[code, first, 3, usize::MAX, code + 0x40]);
        let inner = at(first, first + size_of::<usize>());
        let outer = at(first + size_of_val(&stack), 0);
        let mut found = Vec::new();
        inner.find_before(outer, |word| {
            found.push(word);
            true
        });
        assert_eq!(found, [code, code + 0x40]);
        let mut times = 0;
        inner.find_before(outer, |_| {
            times += 1;
            false
        });
        assert_eq!(times, 1);
    }
}
