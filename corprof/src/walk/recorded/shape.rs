//! The shape of a compiled function's frame, decoded from its first and last instructions.
//!
//! The runtime's compiler keeps a chain of frame pointers on Linux, but not in every function: a small function with
//! one call or none has a frame of fixed size instead, and the caller of such a function is missing from the chain. In
//! code that continues a loop (on-stack replacement, `replaced.rs`) the chain leads to the caller's caller. At the
//! beginning and the end of every function the frame is not made yet, or is already gone. The instructions show which
//! case applies, and the compiler uses few different ones for this. A live test compares with the runtime's unwinder at
//! each instruction (`tests/live/frames.rs`).

use super::arm64::Frame;
use super::replaced;
use super::steps::{Step, step};

/// How many bytes of a function's beginning are read.
pub(super) const BYTES: usize = 512;

/// How to find the return address in a function's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Shape {
    /// The frame pointer points at the caller's frame pointer, above which the return address lies.
    #[default]
    Chained,
    /// The return address lies this far above the stack pointer.
    Fixed {
        size: usize,
        /// The offset of the caller's frame pointer from the stack pointer, if it is not in its register.
        saved_frame_pointer: Option<usize>,
    },
    /// Code that continues a loop. The frame pointer points at the caller's; the frame of the original code lies
    /// between them and the return address.
    Replaced {
        /// The offset of the return address from the frame pointer, if known.
        size: Option<usize>,
    },
    /// A frame of arm64.
    OnArm64(Frame),
}

const FRAME_POINTER: u8 = 5;

/// The first instructions, as far as they make a frame.
struct Prologue {
    /// The end of each instruction, and the size of the stack by then.
    states: Vec<(usize, usize)>,
    /// Where the frame pointer was saved, as an offset downward from the return address.
    saved: Option<usize>,
    is_chained: bool,
}

fn prologue(code: &[u8]) -> Prologue {
    let mut place = 0;
    let mut size = 0;
    let mut found = Prologue { states: vec![(0, 0)], saved: None, is_chained: false };
    while let Some((step, length)) = code.get(place..).and_then(step) {
        match step {
            Step::Push(register) => {
                size += 8;
                if register == FRAME_POINTER {
                    found.saved = Some(size);
                }
            }
            Step::Sub(more) => size += more,
            Step::SetFramePointer(_) => {
                found.is_chained = found.saved.is_some();
                break;
            }
            Step::Nothing => {}
            Step::Save(_) | Step::Pop(_) | Step::Add(_) | Step::Leave | Step::Jump(_) => break,
        }
        place += length;
        found.states.push((place, size));
    }
    found
}

impl Shape {
    /// The shape of the function with this code, which does not continue a loop.
    pub(super) fn of(code: &[u8]) -> Self {
        let prologue = prologue(code);
        // A large frame is made by other instructions, and nearly always has the chain.
        let Some(&(_, size)) = prologue.states.last() else { return Self::Chained };
        let is_large = matches!(code, [0x55, ..]) && size == 8 && !prologue.is_chained;
        if prologue.is_chained || is_large {
            return Self::Chained;
        }
        Self::Fixed { size, saved_frame_pointer: prologue.saved.map(|saved| size - saved) }
    }

    /// The shape of the top function's frame, if it is not made yet or already gone. `code` has the first bytes of the
    /// `size` that the function has, `offset` is its position in them, and `next` the code from there on.
    pub(super) fn incomplete(code: &[u8], size: usize, offset: usize, next: &[u8]) -> Option<Self> {
        if let Some(left) = epilogue(next, offset, size) {
            return Some(left);
        }
        if let Some(beginning) = replaced::Beginning::of(code) {
            // Until it sets the frame pointer, that is the original code's.
            return (offset < beginning.end).then_some(Self::Chained);
        }
        let prologue = prologue(code);
        let end = prologue.states.last()?.0;
        // At the last of them the frame is complete, unless an instruction to set the frame pointer follows.
        let is_within = offset < end || (offset == end && prologue.is_chained);
        let &(_, size) = prologue.states.iter().rfind(|state| state.0 <= offset).filter(|_| is_within)?;
        // The pushed value is still in its register.
        Some(Self::Fixed { size, saved_frame_pointer: None })
    }
}

/// The size of the frame below the return address, for a function that keeps the chain; none if unknown.
pub(super) fn frame_size(code: &[u8]) -> Option<usize> {
    let prologue = prologue(code);
    prologue.states.last().filter(|_| prologue.is_chained).map(|&(_, size)| size)
}

/// The shape of a frame of which only removal is left, if `next` does that and leaves the function.
fn epilogue(next: &[u8], offset: usize, size: usize) -> Option<Shape> {
    let (added, length) = match step(next)? {
        (Step::Add(added), length) => (added, length),
        _ => (0, 0),
    };
    let popped = pops(next, length, |target| !(0..size as isize).contains(&(offset as isize + target)))?;
    let saved_frame_pointer = popped.frame_pointer.map(|saved| saved + added);
    Some(Shape::Fixed { size: added + popped.size, saved_frame_pointer })
}

/// What a function's last instructions pop.
pub(super) struct Popped {
    /// The return address lies this far above the stack pointer.
    pub(super) size: usize,
    /// The offset of the caller's frame pointer, if it is among them.
    pub(super) frame_pointer: Option<usize>,
}

/// What the instructions from `place` on pop until they leave the function; none if they do something else.
/// `is_outside` says whether a jump to an offset from `code` does.
pub(super) fn pops(code: &[u8], mut place: usize, is_outside: impl Fn(isize) -> bool) -> Option<Popped> {
    let mut popped = Popped { size: 0, frame_pointer: None };
    loop {
        let (step, length) = step(code.get(place..)?)?;
        place += length;
        match step {
            Step::Pop(register) => {
                if register == FRAME_POINTER {
                    popped.frame_pointer = Some(popped.size);
                }
                popped.size += 8;
            }
            Step::Nothing => {}
            Step::Leave => return Some(popped),
            Step::Jump(over) if is_outside(place as isize + over as isize) => return Some(popped),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAINED: [u8; 10] = [0x55, 0x41, 0x57, 0x53, 0x48, 0x8D, 0x6C, 0x24, 0x10, 0x90];

    fn fixed(size: usize, saved_frame_pointer: Option<usize>) -> Shape {
        Shape::Fixed { size, saved_frame_pointer }
    }

    #[test]
    fn frames_are_told_apart_by_their_first_instructions() {
        // push rbp; mov rbp, rsp
        assert_eq!(Shape::of(&[0x55, 0x48, 0x8B, 0xEC, 0x33, 0xC0]), Shape::Chained);
        assert_eq!(Shape::of(&CHAINED), Shape::Chained);
        // push rbp; sub rsp, 80; vzeroupper; lea rbp, [rsp+80]
        let code = [0x55, 0x48, 0x83, 0xEC, 0x50, 0xC5, 0xF8, 0x77, 0x48, 0x8D, 0x6C, 0x24, 0x50, 0x90];
        assert_eq!(Shape::of(&code), Shape::Chained);
        // push rbp; lea r11, [rsp-...]: a large frame.
        assert_eq!(Shape::of(&[0x55, 0x4C, 0x8D, 0x9C, 0x24, 0, 0xF0, 0xFF, 0xFF]), Shape::Chained);
        // push rax; mov edi, 0x4E20
        assert_eq!(Shape::of(&[0x50, 0xBF, 0x20, 0x4E, 0, 0]), fixed(8, None));
        // push r15; push rbp; push rbx; sub rsp, 16; mov: the frame pointer's register holds something else.
        assert_eq!(Shape::of(&[0x41, 0x57, 0x55, 0x53, 0x48, 0x83, 0xEC, 0x10, 0x8B, 0xC7]), fixed(40, Some(24)));
        // mov eax, edi: nothing on the stack.
        assert_eq!(Shape::of(&[0x8B, 0xC7, 0xC3]), fixed(0, None));
    }

    #[test]
    fn frame_sizes_are_read() {
        // push rbp; sub rsp, 80; lea rbp, [rsp+80]
        assert_eq!(frame_size(&[0x55, 0x48, 0x83, 0xEC, 0x50, 0x48, 0x8D, 0x6C, 0x24, 0x50, 0x90]), Some(88));
        assert_eq!(frame_size(&CHAINED), Some(24));
        // A frame without a chain.
        assert_eq!(frame_size(&[0x50, 0xBF, 0x20, 0x4E, 0, 0]), None);
    }

    #[test]
    fn code_that_continues_a_loop_begins_on_the_original_frame() {
        // mov rax, [rbp]; push rax; sub rsp, 32; lea rbp, [rsp+32]; mov eax, [rbp+8]
        let code = [0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x83, 0xEC, 0x20, 0x48, 0x8D, 0x6C, 0x24, 0x20, 0x8B, 0x45, 8];
        let at = |offset: usize| Shape::incomplete(&code, code.len(), offset, &code[offset..]);
        assert_eq!([0, 4, 9, 14].map(at), [Some(Shape::Chained), Some(Shape::Chained), Some(Shape::Chained), None]);
    }

    #[test]
    fn at_the_begin_and_at_the_end_the_frame_is_not_there() {
        let before = |offset: usize| Shape::incomplete(&CHAINED, 200, offset, &CHAINED[offset..]);
        let sizes = [Some(0), Some(8), Some(16), Some(24), None];
        assert_eq!([0, 1, 3, 4, 9].map(before), sizes.map(|size| Some(fixed(size?, None))));
        // add rsp, 16; pop rbx; pop rbp; ret
        let end = [0x48, 0x83, 0xC4, 0x10, 0x5B, 0x5D, 0xC3];
        let after = |offset: usize| Shape::incomplete(&CHAINED, 200, 100, &end[offset..]);
        assert_eq!(after(0), Some(fixed(32, Some(24))));
        assert_eq!(after(4), Some(fixed(16, Some(8))));
        assert_eq!(after(6), Some(fixed(0, None)));
        // pop rbp; rex.w jmp [rax]
        assert_eq!(Shape::incomplete(&CHAINED, 200, 100, &[0x5D, 0x48, 0xFF, 0x20]), Some(fixed(8, Some(0))));
        // pop rbp; jmp, to the function's first byte or beyond it
        let jumps = [-106_i32, -107, 94 - 6].map(|over| [[0x5D, 0xE9].as_slice(), &over.to_le_bytes()].concat());
        let expected = [None, Some(fixed(8, Some(0))), None];
        assert_eq!(jumps.map(|next| Shape::incomplete(&CHAINED, 200, 100, &next)), expected);
        let body = [0x8B, 0xC7, 0xC3];
        assert_eq!(Shape::incomplete(&CHAINED, 200, 100, &body), None);
        // In a fixed frame the prologue ends with the last instruction that changes the stack pointer.
        let small = [0x50, 0xBF, 0x20, 0x4E, 0, 0];
        assert_eq!(Shape::incomplete(&small, 6, 0, &small), Some(fixed(0, None)));
        assert_eq!(Shape::incomplete(&small, 6, 1, &small[1..]), None);
    }
}
