//! The instructions that make and remove frames, decoded.

/// An instruction that makes or removes frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Push(u8),
    Pop(u8),
    /// The stack grows by so many bytes.
    Sub(usize),
    Add(usize),
    /// A register is saved so far above the stack pointer.
    Save(usize),
    /// The frame pointer becomes the stack pointer plus this.
    SetFramePointer(usize),
    /// A return, or a jump into another function, which returns to the caller.
    Leave,
    /// A jump over so many bytes: into another function if it goes beyond the own one.
    Jump(i32),
    Nothing,
}

/// The first instruction of `code`, and its length; none for any other instruction.
pub(super) fn step(code: &[u8]) -> Option<(Step, usize)> {
    let long = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
    Some(match *code {
        [byte @ 0x50..=0x57, ..] => (Step::Push(byte - 0x50), 1),
        [0x41, byte @ 0x50..=0x57, ..] => (Step::Push(byte - 0x50 + 8), 2),
        [byte @ 0x58..=0x5F, ..] => (Step::Pop(byte - 0x58), 1),
        [0x41, byte @ 0x58..=0x5F, ..] => (Step::Pop(byte - 0x58 + 8), 2),
        [0x48, 0x83, 0xEC, size @ 0..=0x7F, ..] => (Step::Sub(size.into()), 4),
        [0x48, 0x81, 0xEC, a, b, c, d, ..] => (Step::Sub(long([a, b, c, d])), 7),
        // lea r11, [rsp-size]; call, which touches the pages between; mov rsp, r11
        [0x4C, 0x8D, 0x9C, 0x24, a, b, c, d, 0xE8, _, _, _, _, 0x49, 0x8B, 0xE3, ..] => {
            (Step::Sub(long([a, b, c, d].map(|byte| !byte)) + 1), 16)
        }
        [0x4C, 0x8D, 0x9C, 0x24, a, b, c, d, 0xFF, 0x15, _, _, _, _, 0x49, 0x8B, 0xE3, ..] => {
            (Step::Sub(long([a, b, c, d].map(|byte| !byte)) + 1), 17)
        }
        [0x48, 0x83, 0xC4, size @ 0..=0x7F, ..] => (Step::Add(size.into()), 4),
        [0x48, 0x81, 0xC4, a, b, c, d, ..] => (Step::Add(long([a, b, c, d])), 7),
        // mov [rsp+offset], register
        [0x48 | 0x4C, 0x89, register, 0x24, offset @ 0..=0x7F, ..] if register & 0xC7 == 0x44 => {
            (Step::Save(offset.into()), 5)
        }
        [0x48 | 0x4C, 0x89, register, 0x24, a, b, c, d, ..] if register & 0xC7 == 0x84 => {
            (Step::Save(long([a, b, c, d])), 8)
        }
        [0x48, 0x8B, 0xEC, ..] | [0x48, 0x89, 0xE5, ..] => (Step::SetFramePointer(0), 3),
        [0x48, 0x8D, 0x6C, 0x24, offset @ 0..=0x7F, ..] => (Step::SetFramePointer(offset.into()), 5),
        [0x48, 0x8D, 0xAC, 0x24, a, b, c, d, ..] => (Step::SetFramePointer(long([a, b, c, d])), 8),
        [0xC3, ..] => (Step::Leave, 1),
        // The compiler marks a jump that leaves the function by the prefix for 64 bits, which it would not need.
        [0x48 | 0x49, 0xFF, operand, ..] if operand & 0x38 == 0x20 => (Step::Leave, 3),
        // jmp [rip+...]
        [0xFF, 0x25, ..] => (Step::Leave, 6),
        [0xE9, a, b, c, d, ..] => (Step::Jump(i32::from_le_bytes([a, b, c, d])), 5),
        // vzeroupper
        [0xC5, 0xF8, 0x77, ..] => (Step::Nothing, 3),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_frames_are_decoded() {
        assert_eq!(step(&[0x41, 0x57]), Some((Step::Push(15), 2)));
        // mov [rsp+0x58], r15; mov [rsp+0xC20], rbx; mov [rbp-0x10], rsp
        assert_eq!(step(&[0x4C, 0x89, 0x7C, 0x24, 0x58]), Some((Step::Save(0x58), 5)));
        assert_eq!(step(&[0x48, 0x89, 0x9C, 0x24, 0x20, 0x0C, 0, 0]), Some((Step::Save(0xC20), 8)));
        assert_eq!(step(&[0x48, 0x89, 0x65, 0xF0]), None);
        // lea r11, [rsp-0x3300]; call; mov rsp, r11
        let pages = [0x4C, 0x8D, 0x9C, 0x24, 0, 0xCD, 0xFF, 0xFF, 0xE8, 0x08, 0xB8, 0x68, 0x7E, 0x49, 0x8B, 0xE3];
        assert_eq!(step(&pages), Some((Step::Sub(0x3300), 16)));
        assert_eq!(step(&pages[..12]), None);
        // ret; rex.w jmp [rax]; rex.w jmp [r11]; jmp rax, which stays in the function; rex.w call [rax]
        let codes: [&[u8]; 5] = [&[0xC3], &[0x48, 0xFF, 0x20], &[0x49, 0xFF, 0x23], &[0xFF, 0xE0], &[0x48, 0xFF, 0x10]];
        let leave = |length| Some((Step::Leave, length));
        assert_eq!(codes.map(step), [leave(1), leave(3), leave(3), None, None]);
    }
}
