//! Tells return addresses from the other words of a stack: the instruction before one is a call.

use crate::system;

/// The longest call on x86-64 but for its prefix, which need not be looked at.
const LONGEST: usize = 7;

/// Whether the instruction before an address is a call; not if it cannot be read.
pub(super) fn follows_call(address: usize) -> bool {
    let mut before = [0; LONGEST];
    let Some(start) = address.checked_sub(LONGEST) else { return false };
    system::read_memory(start, &mut before) && ends_with_call(&before)
}

fn ends_with_call(before: &[u8; LONGEST]) -> bool {
    if cfg!(target_arch = "aarch64") {
        return before.last_chunk().is_some_and(|last| is_arm64_call(u32::from_le_bytes(*last)));
    }
    (2..=LONGEST).any(|length| before.get(LONGEST - length..).and_then(call_length) == Some(length))
}

/// `bl` or `blr`.
fn is_arm64_call(instruction: u32) -> bool {
    instruction & 0xFC00_0000 == 0x9400_0000 || instruction & 0xFFFF_FC1F == 0xD63F_0000
}

/// The length of the call that `code` begins with, on x86-64.
fn call_length(code: &[u8]) -> Option<usize> {
    match *code {
        [0xE8, ..] => Some(5),
        // call register, or call [memory]
        [0xFF, operand, ref rest @ ..] if operand & 0x38 == 0x10 => Some(2 + operand_length(operand, rest)),
        _ => None,
    }
}

/// The length of what follows the byte of an operand: an index and an offset.
fn operand_length(operand: u8, rest: &[u8]) -> usize {
    let (mode, base) = (operand >> 6, operand & 7);
    let index = if mode != 3 && base == 4 { rest.first() } else { None };
    let offset = match mode {
        0 if index.map_or(base, |index| index & 7) == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    usize::from(index.is_some()) + offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    fn padded(end: &[u8]) -> [u8; LONGEST] {
        let mut before = [0x90; LONGEST];
        before[LONGEST - end.len()..].copy_from_slice(end);
        before
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_x86_64_are_told_from_other_instructions() {
        let calls: [&[u8]; 9] = [
            // call +0x12345; call rax; call [r11]; call [rax+8]; call [rsp+8]
            &[0xE8, 0x45, 0x23, 0x01, 0],
            &[0xFF, 0xD0],
            &[0x41, 0xFF, 0x13],
            &[0xFF, 0x50, 0x08],
            &[0xFF, 0x54, 0x24, 0x08],
            // call [rip+...]; call [rax+0x1234]; call [rsp+0x1234]; call [rbp*8+0x1234]
            &[0xFF, 0x15, 1, 2, 3, 4],
            &[0xFF, 0x90, 0x34, 0x12, 0, 0],
            &[0xFF, 0x94, 0x24, 0x34, 0x12, 0, 0],
            &[0xFF, 0x14, 0xED, 0x34, 0x12, 0, 0],
        ];
        for call in calls {
            assert!(ends_with_call(&padded(call)), "{call:x?}");
        }
        // nop; jmp +0x12345; jmp rax; push [rax+8]; call [rax+8] and one more byte
        let others: [&[u8]; 5] =
            [&[], &[0xE9, 0x45, 0x23, 0x01, 0], &[0xFF, 0xE0], &[0xFF, 0x70, 0x08], &[0xFF, 0x50, 0x08, 0x90]];
        for other in others {
            assert!(!ends_with_call(&padded(other)), "{other:x?}");
        }
    }

    #[test]
    fn calls_of_arm64_are_told_from_other_instructions() {
        // bl; blr x8; b; br x8; ret
        let instructions = [0x9400_0010, 0xD63F_0100, 0x1400_0010, 0xD61F_0100, 0xD65F_03C0];
        assert_eq!(instructions.map(is_arm64_call), [true, true, false, false, false]);
    }

    #[test]
    fn an_own_return_address_follows_a_call() {
        let mut found = false;
        // The innermost is not returned to.
        backtrace::trace(|frame| {
            found = follows_call(frame.ip() as usize);
            !found
        });
        assert!(found);
        assert!(!follows_call(3) && !follows_call(usize::MAX));
    }
}
