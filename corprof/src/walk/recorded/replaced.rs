//! Code that continues a loop (on-stack replacement): the size of its frame.
//!
//! The runtime compiles a method's loop anew while it runs, and jumps from the original code into the new one. The
//! original frame stays, and the new one lies below it. Where the return address is, depends on the size of the
//! original frame. From the frame pointer up:
//!
//! - the caller's frame pointer, copied;
//! - a word that differs between runtimes: up to .NET 10 an address in the original code, as if that had called the new
//!   code; on .NET 11 an unused word, as the new code is jumped to;
//! - the original frame, up to and including the saved frame pointer;
//! - the return address.
//!
//! Where the code returns, it removes both frames: its last instructions show the size. Code that never returns has no
//! such instructions; then the original code shows the size, or the place of the first saved register, which lies at
//! the top of the original frame.

use super::shape::pops;
use super::steps::{Step, step};

/// `mov rax, [rbp]; push rax`, which copies the caller's frame pointer.
const COPY: [u8; 5] = [0x48, 0x8B, 0x45, 0x00, 0x50];

/// `push rax`, which .NET 11 has before that: the stack stays aligned as if the code had been called.
const PUSH: u8 = 0x50;

/// The words below the original frame: the copied frame pointer and the one that differs.
const BELOW: usize = 16;

const WORD: usize = size_of::<usize>();

/// The first instructions of such code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Beginning {
    /// The position after the instruction that sets the frame pointer.
    pub(super) end: usize,
    /// The offset of the frame pointer from the stack pointer.
    frame_pointer: usize,
    /// The offset from the stack pointer at which the first register is saved.
    saved: Option<usize>,
}

impl Beginning {
    /// None for code that begins otherwise.
    pub(super) fn of(code: &[u8]) -> Option<Self> {
        let after_push = code.strip_prefix(&[PUSH]).unwrap_or(code);
        let mut rest = after_push.strip_prefix(&COPY)?;
        let mut saved = None;
        loop {
            let (step, length) = step(rest)?;
            rest = rest.get(length..)?;
            match step {
                Step::Sub(_) | Step::Nothing => {}
                Step::Save(offset) => saved = saved.or(Some(offset)),
                Step::SetFramePointer(frame_pointer) => {
                    return Some(Self { end: code.len() - rest.len(), frame_pointer, saved });
                }
                Step::Push(_) | Step::Pop(_) | Step::Add(_) | Step::Leave | Step::Jump(_) => return None,
            }
        }
    }

    /// The offset of the return address from the frame pointer, if it is found. `code` is all of the code, and
    /// `originals` has the sizes of the frames that the function's other code makes.
    pub(super) fn size(self, code: &[u8], originals: &[usize]) -> Option<usize> {
        // Registers are saved from the top of the original frame down, below those that the original code has saved.
        // The frame pointer is always one of these.
        let first = self.saved.and_then(|saved| (saved + 2 * WORD).checked_sub(self.frame_pointer));
        let least = first.unwrap_or(BELOW + WORD);
        let by_originals = || originals.iter().map(|size| size + BELOW).filter(|&size| size >= least);
        // Handlers of exceptions in the same code have smaller frames of their own, without these registers.
        let by_returns = || self.removed(code).filter(|&size| size >= least);
        by_returns()
            .find(|size| by_originals().any(|original| original == *size))
            .or_else(|| by_returns().next())
            .or_else(|| by_originals().min())
            .or(first)
    }

    /// How much the code removes from the stack above the frame pointer, wherever it returns.
    fn removed(self, code: &[u8]) -> impl Iterator<Item = usize> {
        (0..code.len()).filter_map(move |place| {
            let rest = code.get(place..)?;
            let (Step::Add(size), length) = step(rest)? else { return None };
            let is_outside = |target: isize| !(0..code.len() as isize).contains(&(place as isize + target));
            let popped = pops(rest, length, is_outside).filter(|popped| popped.frame_pointer.is_some())?;
            (size + popped.size).checked_sub(self.frame_pointer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mov rax, [rbp]; push rax; sub rsp, 16; mov [rsp+0x58], r15; mov [rsp+0x50], rbx; lea rbp, [rsp+16]
    const SAVES: [u8; 24] = [
        0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x83, 0xEC, 0x10, 0x4C, 0x89, 0x7C, 0x24, 0x58, 0x48, 0x89, 0x5C, 0x24,
        0x50, 0x48, 0x8D, 0x6C, 0x24, 0x10,
    ];

    /// add rsp, 0x60; pop rbp; ret
    const RETURN: [u8; 6] = [0x48, 0x83, 0xC4, 0x60, 0x5D, 0xC3];

    fn size(code: &[u8], originals: &[usize]) -> Option<usize> {
        Beginning::of(code)?.size(code, originals)
    }

    #[test]
    fn both_beginnings_are_known() {
        let beginning = Beginning { end: 24, frame_pointer: 16, saved: Some(0x58) };
        assert_eq!(Beginning::of(&SAVES), Some(beginning));
        let newer = [&[PUSH], SAVES.as_slice()].concat();
        assert_eq!(Beginning::of(&newer), Some(Beginning { end: 25, ..beginning }));
        // mov rax, [rbp]; push rax; mov rbp, rsp
        let small = [0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x8B, 0xEC];
        assert_eq!(Beginning::of(&small), Some(Beginning { end: 8, frame_pointer: 0, saved: None }));
        // push rax; push rbp; mov rbp, rsp: other code.
        assert_eq!(Beginning::of(&[0x50, 0x55, 0x48, 0x8B, 0xEC]), None);
        assert_eq!(Beginning::of(&SAVES[..12]), None, "cut off");
    }

    #[test]
    fn the_size_is_told_by_the_return() {
        let small = [0x50, 0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x8B, 0xEC, 0x8B, 0x45, 0x34];
        assert_eq!(size(&[small.as_slice(), &RETURN].concat(), &[]), Some(0x60 + 8));
        // add rsp, 0x48; pop rbx; pop r15; pop rbx; pop rbp; ret: the original code has saved rbx.
        let end = [0x48, 0x83, 0xC4, 0x48, 0x5B, 0x41, 0x5F, 0x5B, 0x5D, 0xC3];
        assert_eq!(size(&[SAVES.as_slice(), &end].concat(), &[]), Some(0x48 + 32 - 16));
    }

    #[test]
    fn without_a_return_the_original_code_or_the_saved_registers_tell_it() {
        assert_eq!(size(&SAVES, &[0x48]), Some(0x48 + 16));
        assert_eq!(size(&SAVES, &[]), Some(0x58 + 16 - 16));
        assert_eq!(size(&[0x50, 0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x8B, 0xEC], &[]), None);
        // Another of the function's frames is too small for the saved registers.
        assert_eq!(size(&SAVES, &[0x20, 0x50]), Some(0x50 + 16));
    }

    #[test]
    fn returns_of_handlers_are_told_apart() {
        // add rsp, 16; pop rbp; ret
        let handler = [0x48, 0x83, 0xC4, 0x10, 0x5D, 0xC3];
        assert_eq!(size(&[SAVES.as_slice(), &handler].concat(), &[0x48]), Some(0x58));
        // The function's frame is among those that its other code makes.
        let handler = [0x48, 0x81, 0xC4, 0x00, 0x01, 0, 0, 0x5D, 0xC3];
        let code = [SAVES.as_slice(), &handler, &[0x48, 0x83, 0xC4, 0x50, 0x5B, 0x41, 0x5F, 0x5D, 0xC3]].concat();
        assert_eq!(size(&code, &[0x48]), Some(0x58));
    }
}
