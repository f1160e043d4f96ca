//! The instructions of arm64 that make and remove frames, decoded.

pub(super) const FRAME_POINTER: u32 = 29;
pub(super) const LINK: u32 = 30;
/// The stack pointer, where an instruction takes it; the register of zeros elsewhere.
const STACK_POINTER: u32 = 31;

/// An instruction that makes or removes frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The stack pointer moves by `before`, then the registers are stored at `offset` from it.
    Store {
        registers: [u32; 2],
        before: isize,
        offset: isize,
    },
    /// The registers are loaded from `offset` above the stack pointer, which then moves by `after`.
    Load {
        registers: [u32; 2],
        offset: isize,
        after: isize,
    },
    /// The stack pointer moves.
    Move(isize),
    /// The stack pointer moves by the value of a register, added or subtracted.
    MoveBy {
        register: u32,
        is_added: bool,
    },
    /// The frame pointer becomes the stack pointer plus this.
    SetFramePointer(isize),
    /// The stack pointer becomes the frame pointer plus this.
    ToFramePointer(isize),
    /// A register gets a value.
    Constant {
        register: u32,
        value: isize,
    },
    /// Sixteen of a register's bits get a value.
    Insert {
        register: u32,
        shift: u32,
        bits: u32,
    },
    /// It touches the pages of a large frame, signs or checks the return address, or does nothing.
    Nothing,
    Return,
    /// A jump to the address in a register.
    JumpTo,
    /// A jump over so many bytes.
    Jump(isize),
}

/// The lowest `bits` of `value` as a number with a sign.
fn signed(value: u32, bits: u32) -> isize {
    let shift = 32 - bits;
    ((value << shift).cast_signed() >> shift) as isize
}

/// What an instruction does to a frame; none for any other instruction.
pub(super) fn step(instruction: u32) -> Option<Step> {
    let field = |from: u32, bits: u32| instruction >> from & ((1 << bits) - 1);
    let first = field(0, 5);
    let base = field(5, 5);
    let second = field(10, 5);
    let is_on_stack = base == STACK_POINTER;
    // A pair of registers of 64 bits, general or floating-point: by the bits for the way of addressing.
    if is_on_stack && matches!(instruction >> 30, 0b10 | 0b01) && matches!(field(25, 5), 0b10100 | 0b10110) {
        let is_general = field(26, 1) == 0;
        let is_long = instruction >> 30 == 0b10;
        // Only the general ones are of interest; others have the number of none.
        let registers = if is_general && is_long { [first, second] } else { [STACK_POINTER; 2] };
        let offset = signed(field(15, 7), 7) * if is_long && !is_general { 16 } else { 8 };
        return pair(registers, offset, field(23, 2), field(22, 1) == 1);
    }
    // One register of 64 bits.
    if is_on_stack && matches!(field(22, 10), 0b11_1110_0100 | 0b11_1110_0101 | 0b11_1111_0100 | 0b11_1111_0101) {
        let registers = if field(26, 1) == 0 { [first, STACK_POINTER] } else { [STACK_POINTER; 2] };
        let offset = field(10, 12) as isize * 8;
        let is_load = field(22, 1) == 1;
        return pair(registers, offset, 0b10, is_load);
    }
    if is_on_stack && matches!(field(21, 11), 0b111_1100_0000 | 0b111_1100_0010 | 0b111_1110_0000 | 0b111_1110_0010) {
        let registers = if field(26, 1) == 0 { [first, STACK_POINTER] } else { [STACK_POINTER; 2] };
        return match field(10, 2) {
            way @ (0b01 | 0b11) => pair(registers, signed(field(12, 9), 9), way, field(22, 1) == 1),
            _ => None,
        };
    }
    // An addition to or a subtraction from the stack pointer or the frame pointer.
    if matches!(field(23, 9), 0b1_0010_0010 | 0b1_1010_0010) {
        let amount = (field(10, 12) << (12 * field(22, 1))) as isize;
        let amount = if field(30, 1) == 0 { amount } else { -amount };
        return match (first, base) {
            (STACK_POINTER, STACK_POINTER) => Some(Step::Move(amount)),
            (FRAME_POINTER, STACK_POINTER) => Some(Step::SetFramePointer(amount)),
            (STACK_POINTER, FRAME_POINTER) => Some(Step::ToFramePointer(amount)),
            // The next page to touch.
            (FRAME_POINTER | LINK | STACK_POINTER, _) => None,
            (_, _) if first == base => Some(Step::Nothing),
            _ => None,
        };
    }
    // sub sp, sp, xN, and add
    if matches!(field(21, 11), 0b110_0101_1001 | 0b100_0101_1001) && is_on_stack && first == STACK_POINTER {
        return Some(Step::MoveBy { register: field(16, 5), is_added: field(30, 1) == 0 });
    }
    // movz, movn and movk with 64 bits; movz with 32, which clears the others
    let bits = field(5, 16);
    let shift = 16 * field(21, 2);
    match field(23, 9) {
        0b1_1010_0101 | 0b0_1010_0101 => {
            return Some(Step::Constant { register: first, value: ((bits as usize) << shift).cast_signed() });
        }
        0b1_0010_0101 => {
            return Some(Step::Constant { register: first, value: (!((bits as usize) << shift)).cast_signed() });
        }
        0b1_1110_0101 => return Some(Step::Insert { register: first, shift, bits }),
        _ => {}
    }
    // mov xN, #immediate with a pattern of bits
    if field(23, 9) == 0b1_0110_0100 && base == STACK_POINTER {
        return Some(Step::Constant { register: first, value: pattern(field(22, 1), field(16, 6), field(10, 6))? });
    }
    Some(match instruction {
        // ldr wzr, [sp, xN], and ldr wzr, [sp]
        _ if is_on_stack && first == STACK_POINTER && instruction & 0xFFE0_FC00 == 0xB860_6800 => Step::Nothing,
        _ if is_on_stack && first == STACK_POINTER && instruction & 0xFFC0_0000 == 0xB940_0000 => Step::Nothing,
        // cmp xN, xM; b.cond backward
        _ if instruction & 0xFFE0_FC1F == 0xEB00_001F => Step::Nothing,
        _ if instruction & 0xFF00_0010 == 0x5400_0000 && signed(field(5, 19), 19) < 0 => Step::Nothing,
        // Hints: nop, bti, paciasp, autiasp, …
        _ if instruction & 0xFFFF_F01F == 0xD503_201F => Step::Nothing,
        // ret, and with a check of the signature
        0xD65F_0BFF | 0xD65F_0FFF => Step::Return,
        _ if instruction & 0xFFFF_FC1F == 0xD65F_0000 => Step::Return,
        _ if instruction & 0xFFFF_FC1F == 0xD61F_0000 => Step::JumpTo,
        _ if instruction & 0xFC00_0000 == 0x1400_0000 => Step::Jump(signed(field(0, 26), 26) * 4),
        _ => return None,
    })
}

/// A load or store of registers: after the move of the stack pointer (1), with none (2) or before it (3).
fn pair(registers: [u32; 2], offset: isize, way: u32, is_load: bool) -> Option<Step> {
    Some(match (way, is_load) {
        (0b10, false) => Step::Store { registers, before: 0, offset },
        (0b11, false) => Step::Store { registers, before: offset, offset: 0 },
        (0b10, true) => Step::Load { registers, offset, after: 0 },
        (0b01, true) => Step::Load { registers, offset: 0, after: offset },
        _ => return None,
    })
}

/// The offset from the frame pointer at which an instruction loads a register or two.
pub(super) fn load_from_frame(instruction: u32) -> Option<usize> {
    let field = |from: u32, bits: u32| instruction >> from & ((1 << bits) - 1);
    let is_general = field(26, 1) == 0;
    let kind = field(30, 2);
    let is_load = if is_general { field(22, 2) != 0 } else { field(22, 1) == 1 };
    let offset = match (field(27, 3), field(23, 3)) {
        // A pair, with an offset.
        (0b101, 0b010) if field(22, 1) == 1 => {
            let size = if is_general { 4 << (kind >> 1) } else { 4 << kind };
            signed(field(15, 7), 7) * size
        }
        // One, with an offset in units of its size.
        (0b111, 0b010 | 0b011) if is_load => {
            let is_of_16_bytes = !is_general && field(23, 1) == 1;
            field(10, 12) as isize * if is_of_16_bytes { 16 } else { 1 << kind }
        }
        _ => return None,
    };
    if field(5, 5) == FRAME_POINTER { usize::try_from(offset).ok() } else { None }
}

/// The value of an immediate of the logical instructions, with 64 bits.
fn pattern(n: u32, rotation: u32, size: u32) -> Option<isize> {
    let length = 31_u32.checked_sub((n << 6 | (!size & 0x3F)).leading_zeros())?;
    let width = 1_u32 << length;
    let ones = (size & (width - 1)) + 1;
    let rotation = rotation & (width - 1);
    if ones >= 64 || width == 1 {
        return None;
    }
    let element = (1_u64 << ones) - 1;
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let rotated = if rotation == 0 { element } else { (element >> rotation | element << (width - rotation)) & mask };
    let repeated = (0..64).step_by(width as usize).fold(0, |all, at| all | rotated << at);
    Some(repeated.cast_signed() as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_from_the_frame_are_read() {
        // ldr w19, [x29, #76]; ldr x2, [x29, #48]; ldr d16, [x29, #24]; ldr q16, [x29, #32]; ldrb w0, [x29, #3];
        // ldp d16, d0, [x29, #88]; ldp w19, w20, [x29, #28]
        let loads = [0xB940_4FB3, 0xF940_1BA2, 0xFD40_0FB0, 0x3DC0_0BB0, 0x3940_0FA0, 0x6D45_83B0, 0x2943_D3B3];
        assert_eq!(loads.map(load_from_frame), [76, 48, 24, 32, 3, 88, 28].map(Some));
        // str w0, [x29, #44]; ldr x0, [sp, #8]; add x0, x29, #16
        assert_eq!([0xB900_2FA0, 0xF940_07E0, 0x9100_43A0].map(load_from_frame), [None; 3]);
    }

    #[test]
    fn constants_are_read() {
        // mov x9, #0xFFFFFFFFFFFF0000, by bits; movz x9, #1, lsl #16; movk x9, #2
        let constant = |value| Some(Step::Constant { register: 9, value });
        assert_eq!(step(0xB270_BFE9), constant(-0x1_0000));
        assert_eq!(step(0xD2A0_0029), constant(0x1_0000));
        assert_eq!(step(0xF280_0049), Some(Step::Insert { register: 9, shift: 0, bits: 2 }));
    }
}
