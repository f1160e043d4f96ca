//! The shape of a compiled function's frame, decoded from its first and last instructions.
//!
//! The runtime's compiler keeps a chain of frame pointers on Linux, but not in every function: a small function with one call
//! or none has a frame of fixed size instead, and the caller of such a function is missing from the chain. In code that
//! continues a loop (on-stack replacement) the chain leads to the caller's caller. At the beginning and the end of every
//! function the frame is not made yet, or is already gone. The instructions show which case applies, and the compiler uses few
//! different ones for this.

/// How many bytes of a function are read: its beginning, and for on-stack replacement all of a short one.
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
        /// The offset of the caller's frame pointer from the stack pointer, if the function uses the register for something
        /// else.
        saved_frame_pointer: Option<usize>,
    },
    /// Code that continues a loop. The frame pointer points at the caller's; above it is an address in the original code, whose
    /// frame is still there, and above that the return address.
    Replaced {
        /// The offset of the return address from the frame pointer; if unknown, the original code shows it ([`frame_size`]).
        size: Option<usize>,
    },
}

/// The incomplete frame of the top function of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Partial {
    /// The return address lies this far above the stack pointer.
    pub(super) size: usize,
    /// The offset of the caller's frame pointer from the stack pointer, if it is not in its register.
    pub(super) saved_frame_pointer: Option<usize>,
}

/// An instruction that makes or removes frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Push(u8),
    Pop(u8),
    Sub(usize),
    Add(usize),
    /// The frame pointer becomes the stack pointer plus this.
    SetFramePointer(usize),
    Return,
    Nothing,
}

const FRAME_POINTER: u8 = 5;

/// The first instruction of `code`, and its length; none for any other instruction.
fn step(code: &[u8]) -> Option<(Step, usize)> {
    let long = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
    Some(match *code {
        [byte @ 0x50..=0x57, ..] => (Step::Push(byte - 0x50), 1),
        [0x41, byte @ 0x50..=0x57, ..] => (Step::Push(byte - 0x50 + 8), 2),
        [byte @ 0x58..=0x5F, ..] => (Step::Pop(byte - 0x58), 1),
        [0x41, byte @ 0x58..=0x5F, ..] => (Step::Pop(byte - 0x58 + 8), 2),
        [0x48, 0x83, 0xEC, size @ 0..=0x7F, ..] => (Step::Sub(size.into()), 4),
        [0x48, 0x81, 0xEC, a, b, c, d, ..] => (Step::Sub(long([a, b, c, d])), 7),
        [0x48, 0x83, 0xC4, size @ 0..=0x7F, ..] => (Step::Add(size.into()), 4),
        [0x48, 0x81, 0xC4, a, b, c, d, ..] => (Step::Add(long([a, b, c, d])), 7),
        [0x48, 0x8B, 0xEC, ..] | [0x48, 0x89, 0xE5, ..] => (Step::SetFramePointer(0), 3),
        [0x48, 0x8D, 0x6C, 0x24, offset @ 0..=0x7F, ..] => (Step::SetFramePointer(offset.into()), 5),
        [0x48, 0x8D, 0xAC, 0x24, a, b, c, d, ..] => (Step::SetFramePointer(long([a, b, c, d])), 8),
        [0xC3, ..] => (Step::Return, 1),
        // vzeroupper
        [0xC5, 0xF8, 0x77, ..] => (Step::Nothing, 3),
        _ => return None,
    })
}

/// The first instructions, as far as they make a frame.
struct Prologue {
    /// The end of each instruction, and the size of the stack by then.
    states: Vec<(usize, usize)>,
    /// Where the frame pointer was saved, as an offset downward from the return address.
    saved: Option<usize>,
    is_chained: bool,
}

fn prologue(code: &[u8]) -> Prologue {
    let (mut place, mut size) = (0, 0);
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
            Step::Pop(_) | Step::Add(_) | Step::Return => break,
        }
        place += length;
        found.states.push((place, size));
    }
    found
}

/// `mov rax, [rbp]; push rax`: the beginning of code that continues a loop.
const REPLACEMENT: [u8; 5] = [0x48, 0x8B, 0x45, 0x00, 0x50];

impl Shape {
    /// The shape of the function with this code.
    pub(super) fn of(code: &[u8]) -> Self {
        if code.starts_with(&REPLACEMENT) {
            return Self::Replaced { size: size_of_replacement(code) };
        }
        let prologue = prologue(code);
        // A large frame is made by other instructions, and nearly always has the chain.
        let Some(&(_, size)) = prologue.states.last() else { return Self::Chained };
        let is_large = matches!(code, [0x55, ..]) && size == 8 && !prologue.is_chained;
        if prologue.is_chained || is_large {
            return Self::Chained;
        }
        Self::Fixed { size, saved_frame_pointer: prologue.saved.map(|saved| size - saved) }
    }

    /// The incomplete frame of the top function, if its frame is not made yet or already gone; `offset` is its position in
    /// `code`, and `next` the code from there on.
    pub(super) fn partial(self, code: &[u8], offset: usize, next: &[u8]) -> Option<Partial> {
        if let Some(partial) = epilogue(next) {
            return Some(partial);
        }
        if code.starts_with(&REPLACEMENT) {
            return None;
        }
        let prologue = prologue(code);
        let end = prologue.states.last()?.0;
        // At the last of them the frame is complete, unless an instruction to set the frame pointer follows.
        let is_within = offset < end || (offset == end && prologue.is_chained);
        let &(_, size) = prologue.states.iter().rfind(|state| state.0 <= offset).filter(|_| is_within)?;
        // The pushed value is still in its register.
        Some(Partial { size, saved_frame_pointer: None })
    }
}

/// How much code that continues a loop removes from the stack at its end, above the frame pointer.
fn size_of_replacement(code: &[u8]) -> Option<usize> {
    let begin = code.get(4..)?;
    // From the stack pointer to the frame pointer.
    let below = (0..begin.len().min(128)).find_map(|place| match step(begin.get(place..)?)? {
        (Step::SetFramePointer(offset), _) => Some(offset),
        _ => None,
    })?;
    let above = (0..begin.len()).find_map(|place| match step(begin.get(place..)?)? {
        (Step::Add(size), length) => Some(size + pops(begin.get(place + length..)?)?.size),
        _ => None,
    })?;
    above.checked_sub(below)
}

/// The size of the frame below the return address, for a function that keeps the chain; none if unknown.
pub(super) fn frame_size(code: &[u8]) -> Option<usize> {
    let prologue = prologue(code);
    prologue.states.last().filter(|_| prologue.is_chained).map(|&(_, size)| size)
}

/// Matches code that only removes a frame, up to the return.
fn epilogue(next: &[u8]) -> Option<Partial> {
    let (size, rest) = match step(next)? {
        (Step::Add(size), length) => (size, next.get(length..)?),
        _ => (0, next),
    };
    let pops = pops(rest)?;
    Some(Partial { size: size + pops.size, saved_frame_pointer: pops.saved_frame_pointer.map(|saved| saved + size) })
}

/// The bytes above which the return address lies, if these instructions pop them; none if they do something else.
fn pops(mut code: &[u8]) -> Option<Partial> {
    let mut popped = Partial { size: 0, saved_frame_pointer: None };
    loop {
        let (step, length) = step(code)?;
        match step {
            Step::Pop(register) => {
                if register == FRAME_POINTER {
                    popped.saved_frame_pointer = Some(popped.size);
                }
                popped.size += 8;
            }
            Step::Nothing => {}
            Step::Return => return Some(popped),
            _ => return None,
        }
        code = code.get(length..)?;
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
    fn code_that_continues_a_loop_is_told_by_its_end() {
        // mov rax, [rbp]; push rax; mov rbp, rsp; mov eax, [rbp+0x34]; ...; add rsp, 96; pop rbp; ret
        let code =
            [0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x8B, 0xEC, 0x8B, 0x45, 0x34, 0x48, 0x83, 0xC4, 0x60, 0x5D, 0xC3];
        assert_eq!(Shape::of(&code), Shape::Replaced { size: Some(104) });
        // ...; push rax; sub rsp, 32; lea rbp, [rsp+32]; add rsp, 128; pop rbx; pop r15; pop rbp; ret
        let code = [
            0x48, 0x8B, 0x45, 0x00, 0x50, 0x48, 0x83, 0xEC, 0x20, 0x48, 0x8D, 0x6C, 0x24, 0x20, 0x48, 0x81, 0xC4, 0x80,
            0, 0, 0, 0x5B, 0x41, 0x5F, 0x5D, 0xC3,
        ];
        assert_eq!(Shape::of(&code), Shape::Replaced { size: Some(128 + 24 - 32) });
        // The size is unknown without an end; the original code shows it: push rbp; sub rsp, 80; lea rbp, [rsp+80]
        assert_eq!(Shape::of(&code[..12]), Shape::Replaced { size: None });
        assert_eq!(frame_size(&[0x55, 0x48, 0x83, 0xEC, 0x50, 0x48, 0x8D, 0x6C, 0x24, 0x50, 0x90]), Some(88));
        assert_eq!(frame_size(&CHAINED), Some(24));
        // A large frame, and one without a chain.
        assert_eq!(frame_size(&[0x55, 0x4C, 0x8D, 0x9C, 0x24, 0, 0xF0, 0xFF, 0xFF]), None);
        assert_eq!(frame_size(&[0x50, 0xBF, 0x20, 0x4E, 0, 0]), None);
    }

    #[test]
    fn at_the_begin_and_at_the_end_the_frame_is_not_there() {
        let shape = Shape::of(&CHAINED);
        let partial = |offset: usize| shape.partial(&CHAINED, offset, &CHAINED[offset..]).map(|partial| partial.size);
        assert_eq!([0, 1, 3, 4, 9].map(partial), [Some(0), Some(8), Some(16), Some(24), None]);
        // add rsp, 16; pop rbx; pop rbp; ret
        let end = [0x48, 0x83, 0xC4, 0x10, 0x5B, 0x5D, 0xC3];
        let partial = |offset: usize| shape.partial(&CHAINED, 100, &end[offset..]).unwrap();
        assert_eq!(partial(0), Partial { size: 32, saved_frame_pointer: Some(24) });
        assert_eq!(partial(4), Partial { size: 16, saved_frame_pointer: Some(8) });
        assert_eq!(partial(6), Partial { size: 0, saved_frame_pointer: None });
        let body = [0x8B, 0xC7, 0xC3];
        assert_eq!(shape.partial(&CHAINED, 100, &body), None);
        // In a fixed frame the prologue ends with the last instruction that changes the stack pointer.
        let fixed = [0x50, 0xBF, 0x20, 0x4E, 0, 0];
        assert_eq!(Shape::of(&fixed).partial(&fixed, 0, &fixed).map(|partial| partial.size), Some(0));
        assert_eq!(Shape::of(&fixed).partial(&fixed, 1, &fixed[1..]), None);
    }
}
