//! The machine code of a call: whether it calls the code of a function by itself.

use crate::runtime_layout::memory::word;
use crate::system;

/// The greatest instruction that is read.
const LONGEST: usize = 6;

/// Whether the call that returns to this address goes to one of these pieces of code, straight or by the runtime's stub
/// for it. A call by a register is not recognised, nor one on processors other than x86-64.
///
/// Memory is read by the system, so a wrong address is an answer and no fault.
pub(super) fn calls_one_of(return_address: usize, codes: &[usize]) -> bool {
    let Some(target) = target_before(return_address) else { return false };
    if codes.contains(&target) {
        return true;
    }
    // A method that may be compiled again has a stub, which jumps to its newest code.
    let by_stub = target.checked_add(LONGEST).and_then(|end| by_cell(end, JUMP_BY_CELL));
    by_stub.is_some_and(|target| codes.contains(&target))
}

/// `call [rip + n]` and `jmp [rip + n]`, without the number.
const CALL_BY_CELL: [u8; 2] = [0xff, 0x15];
const JUMP_BY_CELL: [u8; 2] = [0xff, 0x25];
/// `call n`.
const CALL: u8 = 0xe8;

/// Where the call leads that returns to this address.
fn target_before(return_address: usize) -> Option<usize> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    if let Some(target) = by_cell(return_address, CALL_BY_CELL) {
        return Some(target);
    }
    let [_, opcode, distance @ ..] = bytes_before(return_address)?;
    (opcode == CALL).then(|| relative(return_address, distance))
}

/// Where an instruction leads that ends at an address and takes its target from a word of memory.
fn by_cell(end: usize, opcode: [u8; 2]) -> Option<usize> {
    let [first, second, distance @ ..] = bytes_before(end)?;
    if [first, second] != opcode {
        return None;
    }
    word(relative(end, distance))
}

fn bytes_before(end: usize) -> Option<[u8; LONGEST]> {
    let mut bytes = [0; LONGEST];
    system::read_memory(end.checked_sub(LONGEST)?, &mut bytes).then_some(bytes)
}

/// The address that is so far behind the end of an instruction, or before it.
fn relative(end: usize, distance: [u8; 4]) -> usize {
    end.wrapping_add_signed(i32::from_le_bytes(distance) as isize)
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::*;

    /// Code in memory, and the address behind it.
    fn end(code: &[u8]) -> usize {
        std::hint::black_box(code).as_ptr().addr() + code.len()
    }

    #[test]
    fn a_call_leads_where_its_number_says() {
        let code = [0x90, CALL, 0x10, 0, 0, 0];
        assert!(calls_one_of(end(&code), &[end(&code) + 0x10]));
        assert!(!calls_one_of(end(&code), &[end(&code) + 0x11]));
        let back = [0x90, CALL, 0xfc, 0xff, 0xff, 0xff];
        assert!(calls_one_of(end(&back), &[end(&back) - 4]));
    }

    #[test]
    fn a_call_by_a_cell_leads_where_the_cell_says() {
        // The cell lies behind the call.
        let mut code = [0xff, 0x15, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let return_address = code.as_ptr().addr() + LONGEST;
        code[6..].copy_from_slice(&0x1234_usize.to_ne_bytes());
        // The system reads it, which the compiler does not see.
        std::hint::black_box(&code);
        assert!(calls_one_of(return_address, &[7, 0x1234]));
        assert!(!calls_one_of(return_address, &[7]));
        // By a stub of the runtime, in the same memory.
        let stub = [0xff_u8, 0x25, 0, 0, 0, 0, 0x78, 0x56, 0, 0, 0, 0, 0, 0];
        code[6..].copy_from_slice(&std::hint::black_box(&stub).as_ptr().addr().to_ne_bytes());
        std::hint::black_box(&code);
        assert!(calls_one_of(return_address, &[0x5678]));
        std::hint::black_box(&stub);
    }

    #[test]
    fn what_is_no_call_leads_nowhere() {
        let code = [0x90; LONGEST];
        assert!(!calls_one_of(end(&code), &[end(&code), 0]));
        assert!(!calls_one_of(0, &[0]));
        assert!(!calls_one_of(usize::MAX, &[0]));
    }
}
