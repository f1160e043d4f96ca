//! Frames of compiled code on arm64, decoded from its first and last instructions.
//!
//! There the compiler keeps the chain of frame pointers in every method that has a frame, and in code that continues a
//! loop as well: such code is entered with the frame pointer and the link register of the original's caller. So only a
//! method's first and last instructions, and methods without a frame, are not in the chain. How far the caller's frame
//! lies above the frame pointer differs from method to method: the record that the frame pointer points at is mostly at
//! the bottom of the frame.
//!
//! All instructions have four bytes, so a prologue is followed from the first one on: what it has subtracted from the
//! stack pointer, and where it has saved the frame pointer and the link register.

mod steps;

use steps::{FRAME_POINTER, LINK, Step, step};

/// How to find the caller of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) base: Base,
    /// The caller's stack pointer, as an offset from the base.
    pub(super) size: usize,
    /// The offset of the return address from the base; none if it is in the link register.
    pub(super) link: Option<usize>,
    /// The offset of the caller's frame pointer from the base; none if it is in its register.
    pub(super) frame_pointer: Option<usize>,
}

/// The register that a frame is found by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    StackPointer,
    FramePointer,
}

/// The length of an instruction.
const INSTRUCTION: usize = 4;

/// How many bytes before an instruction are needed to know what it does: a constant of 32 bits, and a removal.
pub(super) const BEFORE: usize = 3 * INSTRUCTION;

/// How many bytes an epilogue has at most: ten pairs of saved registers, the frame, and the return.
pub(super) const EPILOGUE: usize = 64;

/// Among so many first instructions is one that takes over a variable from the original code.
const TAKEN_OVER: usize = 4;

/// The bits of an address. Above them a return address may be signed (`pacia`).
const ADDRESS: usize = (1 << 48) - 1;

impl Frame {
    /// The frame of a function that has made none: the return address is in the link register.
    pub(super) const NONE: Self = Self { base: Base::StackPointer, size: 0, link: None, frame_pointer: None };
}

/// A return address without its signature.
pub(super) fn unsigned(address: usize) -> usize {
    address & ADDRESS
}

fn instructions(code: &[u8]) -> impl Iterator<Item = u32> {
    code.as_chunks::<INSTRUCTION>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The registers that hold constants, as the sizes of large frames.
#[derive(Clone, Copy)]
struct Constants([Option<isize>; 32]);

impl Constants {
    const NONE: Self = Self([None; 32]);

    fn get(&self, register: u32) -> Option<isize> {
        *self.0.get(register as usize)?
    }

    fn set(&mut self, register: u32, value: isize) {
        if let Some(place) = self.0.get_mut(register as usize) {
            *place = Some(value);
        }
    }

    fn insert(&mut self, register: u32, shift: u32, bits: u32) {
        if let Some(value) = self.get(register) {
            self.set(register, value & !(0xFFFF_isize << shift) | (bits as isize) << shift);
        }
    }
}

/// A frame that is being made: offsets count downward from the caller's stack pointer.
#[derive(Clone, Copy)]
struct Making {
    size: isize,
    link: Option<isize>,
    saved: Option<isize>,
    /// The place at which the frame pointer points, once it is set.
    frame_pointer: Option<isize>,
    constants: Constants,
}

impl Making {
    const BEGUN: Self = Self { size: 0, link: None, saved: None, frame_pointer: None, constants: Constants::NONE };

    /// What an instruction changes; none if it makes no frame.
    fn after(mut self, step: Step) -> Option<Self> {
        match step {
            Step::Store { registers, before, offset } => {
                self.size -= before;
                for (register, place) in registers.into_iter().zip([offset, offset + 8]) {
                    match register {
                        FRAME_POINTER => self.saved = Some(self.size - place),
                        LINK => self.link = Some(self.size - place),
                        _ => {}
                    }
                }
            }
            Step::Move(by) if by < 0 => self.size -= by,
            Step::MoveBy { register, is_added: false } => self.size += self.constants.get(register)?,
            Step::SetFramePointer(offset) => self.frame_pointer = Some(self.size - offset),
            Step::Constant { register, value } => self.constants.set(register, value),
            Step::Insert { register, shift, bits } => self.constants.insert(register, shift, bits),
            Step::Nothing => {}
            _ => return None,
        }
        Some(self)
    }

    fn frame(&self) -> Option<Frame> {
        let (base, place) = match self.frame_pointer {
            Some(place) => (Base::FramePointer, place),
            None => (Base::StackPointer, self.size),
        };
        let offset = |saved: isize| usize::try_from(place - saved).ok();
        Some(Frame {
            base,
            size: usize::try_from(place).ok()?,
            link: self.link.and_then(offset),
            frame_pointer: self.saved.and_then(offset),
        })
    }
}

/// The frame as the first instructions leave it, and after how many bytes of them it is complete.
fn prologue(code: &[u8]) -> (Making, usize) {
    let mut made = Making::BEGUN;
    let mut end = 0;
    for (number, instruction) in instructions(code).enumerate() {
        let Some(next) = step(instruction).and_then(|step| made.after(step)) else { break };
        // Constants and the like may belong to the body.
        if (next.size, next.link, next.frame_pointer) != (made.size, made.link, made.frame_pointer) {
            end = (number + 1) * INSTRUCTION;
        }
        made = next;
        if made.frame_pointer.is_some() {
            break;
        }
    }
    (made, end)
}

impl Frame {
    /// The complete frame of the function with this code, if it continues no loop.
    pub(super) fn of(code: &[u8]) -> Option<Self> {
        prologue(code).0.frame()
    }

    /// The frame of the top function, if it is not made yet or already gone; `self` is its complete frame. `code` has
    /// the function's first bytes, `offset` is the position in the `size` that it has, `before` the instructions before
    /// it, and `next` the code from there on.
    pub(super) fn incomplete(
        self,
        code: &[u8],
        size: usize,
        offset: usize,
        before: &[u8],
        next: &[u8],
    ) -> Option<Self> {
        let (made, end) = prologue(code);
        if offset < end {
            // The frame of code whose loop it continues is there from the first instruction on.
            let more = self.size.checked_sub(made.frame()?.size)?;
            let frame = prologue(code.get(..offset)?).0.frame()?;
            return Some(Self { size: frame.size + more, ..frame });
        }
        let has_begun = self == Self::NONE || removes(before);
        epilogue(has_begun, before, next, |target| !(0..size.cast_signed()).contains(&(offset.cast_signed() + target)))
    }

    /// The size of the frame above the one that this code makes, if it continues a loop: that of the original code.
    /// `originals` has the sizes of the frames that the function's other code makes.
    ///
    /// Where it returns, it removes both. Code that never returns shows by its first instructions that it takes over
    /// variables of a frame above its own.
    pub(super) fn continued(code: &[u8], originals: &[usize]) -> Option<usize> {
        let (made, end) = prologue(code);
        let is_outside = |target: isize| !(0..code.len().cast_signed()).contains(&target);
        // Behind it come handlers of exceptions, which make frames of their own.
        let makes =
            |instruction: u32| matches!(step(instruction), Some(Step::Store { registers: [FRAME_POINTER, LINK], .. }));
        let handler = instructions(code.get(end..)?).position(makes).map(|place| end + place * INSTRUCTION);
        let places = (0..handler.unwrap_or(code.len())).step_by(INSTRUCTION);
        let removed = places.filter_map(|place| {
            let next = code.get(place..(place + EPILOGUE).min(code.len()))?;
            // Only whole epilogues remove what is more.
            matches!(step(instructions(next).next()?)?, Step::Load { .. }).then_some(())?;
            let left = epilogue(false, &[], next, |over| is_outside(place.cast_signed() + over))?;
            left.frame_pointer.is_some_and(|_| left.base == Base::StackPointer).then_some(left.size)
        });
        let more: Vec<_> = removed.filter_map(|size| size.checked_sub(made.size.cast_unsigned())).collect();
        if !more.is_empty() {
            return more.into_iter().filter(|more| *more > 0 && originals.contains(more)).max();
        }
        let above = made.frame()?.size;
        let first = instructions(code.get(end..)?).take(TAKEN_OVER).filter_map(steps::load_from_frame);
        let taken = first.filter_map(|offset| offset.checked_sub(above)).max()?;
        originals.iter().copied().filter(|&original| taken < original).min()
    }

    /// The size of the whole frame that the function with this code makes.
    pub(super) fn whole(code: &[u8]) -> usize {
        prologue(code).0.size.cast_unsigned()
    }
}

/// The frame of which only removal is left, if `next` does that and leaves the function. `has_begun`: whether a jump
/// leaves it without more ado, as nothing of a frame is there.
fn epilogue(mut has_begun: bool, before: &[u8], next: &[u8], is_outside: impl Fn(isize) -> bool) -> Option<Frame> {
    let mut base = Base::StackPointer;
    let mut moved = 0;
    let mut link = None;
    let mut saved = None;
    let mut constants = Constants::NONE;
    for step in instructions(before).filter_map(step) {
        match step {
            Step::Constant { register, value } => constants.set(register, value),
            Step::Insert { register, shift, bits } => constants.insert(register, shift, bits),
            _ => {}
        }
    }
    for (number, instruction) in instructions(next).enumerate() {
        match step(instruction)? {
            Step::Load { registers, offset, after } => {
                for (register, place) in registers.into_iter().zip([offset, offset + 8]) {
                    match register {
                        FRAME_POINTER => saved = usize::try_from(moved + place).ok(),
                        LINK => link = usize::try_from(moved + place).ok(),
                        _ => {}
                    }
                }
                moved += after;
            }
            Step::Move(by) if by > 0 => moved += by,
            Step::MoveBy { register, is_added: true } => moved += constants.get(register)?,
            // What is already loaded came from another place.
            Step::ToFramePointer(offset) if saved.is_none() && link.is_none() => {
                base = Base::FramePointer;
                moved = offset;
            }
            Step::Constant { register, value } => constants.set(register, value),
            Step::Insert { register, shift, bits } => constants.insert(register, shift, bits),
            Step::Nothing => {}
            Step::Return => break,
            Step::JumpTo if has_begun => break,
            Step::Jump(over) if has_begun && is_outside((number * INSTRUCTION).cast_signed() + over) => break,
            _ => return None,
        }
        has_begun |= matches!(step(instruction), Some(Step::Load { .. } | Step::Move(_) | Step::MoveBy { .. }));
        if (number + 1) * INSTRUCTION >= next.len() {
            return None;
        }
    }
    Some(Frame { base, size: usize::try_from(moved).ok()?, link, frame_pointer: saved })
}

/// Whether this instruction removes a frame.
fn removes(code: &[u8]) -> bool {
    let last = instructions(code).last().and_then(step);
    match last {
        Some(Step::Load { registers, after, .. }) => after > 0 || registers.contains(&LINK),
        Some(Step::Move(by)) => by > 0,
        Some(Step::MoveBy { is_added, .. }) => is_added,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(instructions: &[u32]) -> Vec<u8> {
        instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }

    fn made(base: Base, size: usize, link: usize, frame_pointer: usize) -> Option<Frame> {
        Some(Frame { base, size, link: Some(link), frame_pointer: Some(frame_pointer) })
    }

    /// The frame at each of these instructions, in a function that has nothing else.
    fn at(instructions: &[u32], number: usize) -> Option<Frame> {
        let code = code(instructions);
        let offset = number * INSTRUCTION;
        let before = &code[offset.saturating_sub(BEFORE)..offset];
        Frame::of(&code)?.incomplete(&code, code.len(), offset, before, &code[offset..])
    }

    // stp x29, x30, [sp, #-48]!; stp x19, x20, [sp, #24]; mov x29, sp; mov x19, x0
    // ldp x19, x20, [sp, #24]; ldp x29, x30, [sp], #48; ret
    const SMALL: [u32; 7] = [0xA9BD_7BFD, 0xA901_D3F3, 0x9100_03FD, 0xAA00_03F3, 0xA941_D3F3, 0xA8C3_7BFD, 0xD65F_03C0];

    #[test]
    fn a_frame_is_found_by_the_frame_pointer_once_that_is_set() {
        let chained = made(Base::FramePointer, 48, 8, 0);
        let on_stack = made(Base::StackPointer, 48, 8, 0);
        assert_eq!(Frame::of(&code(&SMALL)), chained);
        let frames: Vec<_> = (0..SMALL.len()).map(|number| at(&SMALL, number)).collect();
        assert_eq!(frames, [Some(Frame::NONE), on_stack, on_stack, None, on_stack, on_stack, Some(Frame::NONE)]);
    }

    #[test]
    fn frames_with_the_record_above_arguments_and_registers_are_read() {
        // sub sp, sp, #96; stp x19, x20, [sp, #80]; stp x29, x30, [sp, #32]; add x29, sp, #32
        let instructions = [0xD101_83FF, 0xA905_53F3, 0xA902_7BFD, 0x9100_83FD, 0xD503_201F];
        assert_eq!(Frame::of(&code(&instructions)), made(Base::FramePointer, 64, 8, 0));
        let link_in_register = Frame { size: 96, ..Frame::NONE };
        assert_eq!(at(&instructions, 2), Some(link_in_register));
        assert_eq!(at(&instructions, 3), made(Base::StackPointer, 96, 40, 32));
    }

    #[test]
    fn large_frames_have_their_size_in_a_register() {
        // movn x9, #0xFFF; movn x1, #0x32DF; ldr wzr, [sp, x9]; sub x9, x9, #1, lsl #12; cmp x1, x9; b.ls -16;
        // mov x1, #0x32F0; sub sp, sp, x1; stp x29, x30, [sp]; mov x29, sp
        let instructions = [
            0x9281_FFE9,
            0x9286_5BE1,
            0xB869_6BFF,
            0xD140_0529,
            0xEB09_003F,
            0x54FF_FF89,
            0xD286_5E01,
            0xCB21_63FF,
            0xA900_7BFD,
            0x9100_03FD,
        ];
        assert_eq!(Frame::of(&code(&instructions)), made(Base::FramePointer, 0x32F0, 8, 0));
        assert_eq!(at(&instructions, 5), Some(Frame::NONE));
        // ldp x29, x30, [sp]; mov x17, #0x32F0; add sp, sp, x17; ret
        let end = [&instructions[..], &[0xA940_7BFD, 0xD286_5E11, 0x8B31_63FF, 0xD65F_03C0]].concat();
        assert_eq!(at(&end, 10), made(Base::StackPointer, 0x32F0, 8, 0));
        assert_eq!(at(&end, 11), Some(Frame { size: 0x32F0, ..Frame::NONE }));
        assert_eq!(at(&end, 12), Some(Frame { size: 0x32F0, ..Frame::NONE }));
        assert_eq!(at(&end, 13), Some(Frame::NONE));
    }

    #[test]
    fn a_frame_of_unknown_size_is_removed_by_the_frame_pointer() {
        // stp x29, x30, [sp, #-32]!; mov x29, sp; nop; mov sp, x29; ldp x29, x30, [sp], #32; br x1
        let instructions = [0xA9BE_7BFD, 0x9100_03FD, 0xD503_201F, 0x9100_03BF, 0xA8C2_7BFD, 0xD61F_0020];
        assert_eq!(at(&instructions, 3), made(Base::FramePointer, 32, 8, 0));
        assert_eq!(at(&instructions, 4), made(Base::StackPointer, 32, 8, 0));
        assert_eq!(at(&instructions, 5), Some(Frame::NONE));
        // A jump that only selects a case.
        assert_eq!(at(&[&instructions[..3], &[0xD61F_0020]].concat(), 3), None);
    }

    #[test]
    fn code_without_a_frame_has_its_caller_in_the_link_register() {
        // ldr w0, [x0, #8]; ret
        let leaf = [0xB940_0800, 0xD65F_03C0];
        assert_eq!(Frame::of(&code(&leaf)), Some(Frame::NONE));
        assert_eq!(at(&leaf, 0), None);
        // A part of a function that begins elsewhere: b to that.
        let complete = Frame { size: 32, ..Frame::NONE };
        assert_eq!(complete.incomplete(&[], 8, 0, &[], &code(&[0x17FF_FF00, 0xD503_201F])), None);
    }

    #[test]
    fn code_that_continues_a_loop_removes_the_original_frame_too() {
        // stp x29, x30, [sp, #-16]!; mov x29, sp; nop; ldp x29, x30, [sp], #16; add sp, sp, #48; ret
        let instructions = [0xA9BF_7BFD, 0x9100_03FD, 0xD503_201F, 0xA8C1_7BFD, 0x9100_C3FF, 0xD65F_03C0];
        let returning = code(&instructions);
        assert_eq!(Frame::continued(&returning, &[16, 48]), Some(48));
        assert_eq!(Frame::continued(&returning, &[16, 64]), None);
        // Without a return: ldr w19, [x29, #76], which lies above the frame of 32 bytes.
        let endless = code(&[0xA9BE_7BFD, 0xA901_53F3, 0x9100_03FD, 0xB940_4FB3, 0x1400_0000]);
        assert_eq!(Frame::continued(&endless, &[32, 48]), Some(48));
        assert_eq!(Frame::continued(&endless, &[32, 40]), None);
        // With a handler, which returns from a frame of its own: stp x29, x30, [sp, #-32]!; ldp x29, x30, [sp], #32;
        // ret
        let handler = code(&[0xA9BE_7BFD, 0xA8C2_7BFD, 0xD65F_03C0]);
        assert_eq!(Frame::continued(&[endless, handler].concat(), &[32, 48]), Some(48));
        let original = code(&[0xA9BD_7BFD, 0x9100_03FD, 0xB900_2FA0, 0x1400_0000]);
        assert_eq!(Frame::continued(&original, &[32, 48]), None);
        assert_eq!(at(&instructions, 3), made(Base::StackPointer, 64, 8, 0));
        assert_eq!(at(&instructions, 4), Some(Frame { size: 48, ..Frame::NONE }));
    }

    #[test]
    fn a_return_address_may_be_signed() {
        assert_eq!(unsigned(0x00AB_5555_1234_5678), 0x5555_1234_5678);
        // paciasp; stp x29, x30, [sp, #-16]!; mov x29, sp; ldp x29, x30, [sp], #16; retaa
        let instructions = [0xD503_233F, 0xA9BF_7BFD, 0x9100_03FD, 0xA8C1_7BFD, 0xD65F_0BFF];
        assert_eq!(Frame::of(&code(&instructions)), made(Base::FramePointer, 16, 8, 0));
        assert_eq!(at(&instructions, 1), Some(Frame::NONE));
        assert_eq!(at(&instructions, 4), Some(Frame::NONE));
    }
}
