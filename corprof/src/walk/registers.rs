//! The registers of a frame.
//!
//! The runtime gives them as Windows' `CONTEXT` structure, on every system. For x86-64 and arm64 the registers read
//! here are where Windows' headers have them; the fields behind them differ by version of the runtime.

use std::fmt;

/// The registers at the moment when control returns to a frame.
///
/// Registers that a called function may change freely have a meaning in the leaf only.
#[derive(Clone, Copy)]
pub struct Registers<'w>(&'w [u8]);

/// The offsets of registers in the `CONTEXT` of this architecture, each of eight bytes.
#[cfg(target_arch = "x86_64")]
mod place {
    /// `Rax`, then rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub(super) const GENERAL: usize = 0x78;
    pub(super) const GENERAL_COUNT: usize = 16;
    pub(super) const INSTRUCTION: usize = 0xF8;
    pub(super) const STACK: usize = GENERAL + 4 * 8;
    pub(super) const FRAME: usize = GENERAL + 5 * 8;
}

/// The offsets of registers in the `CONTEXT` of this architecture, each of eight bytes.
#[cfg(target_arch = "aarch64")]
mod place {
    /// `X0` to X28, then Fp and Lr.
    pub(super) const GENERAL: usize = 0x8;
    pub(super) const GENERAL_COUNT: usize = 31;
    pub(super) const INSTRUCTION: usize = 0x108;
    pub(super) const STACK: usize = 0x100;
    pub(super) const FRAME: usize = GENERAL + 29 * 8;
}

impl<'w> Registers<'w> {
    pub(crate) fn new(context: &'w [u8]) -> Self {
        Self(context)
    }

    /// The whole `CONTEXT` structure of this architecture, as the runtime has it.
    pub fn as_bytes(&self) -> &'w [u8] {
        self.0
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Registers<'_> {
    /// The instruction pointer.
    pub fn instruction_pointer(&self) -> u64 {
        self.read(place::INSTRUCTION)
    }

    /// The stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.read(place::STACK)
    }

    /// The frame pointer: rbp, x29. Not every function keeps one.
    pub fn frame_pointer(&self) -> u64 {
        self.read(place::FRAME)
    }

    /// A general register by its number in the instruction set: on x86-64 rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to
    /// r15; on arm64 x0 to x30. None for other numbers.
    pub fn general(&self, number: usize) -> Option<u64> {
        (number < place::GENERAL_COUNT).then(|| self.read(place::GENERAL + 8 * number))
    }

    /// Eight bytes of the structure; 0 if the runtime gave fewer.
    fn read(&self, place: usize) -> u64 {
        let bytes = self.0.get(place..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl fmt::Debug for Registers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registers({} bytes)", self.0.len())
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_from_their_places() {
        let mut context = [0_u8; 1232];
        for (place, value) in [(0x78, 1_u64), (0x98, 2), (0xA0, 3), (0xF0, 4), (0xF8, 5)] {
            context[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        let registers = Registers::new(&context);
        assert_eq!(registers.general(0), Some(1));
        assert_eq!((registers.stack_pointer(), registers.general(4)), (2, Some(2)));
        assert_eq!((registers.frame_pointer(), registers.general(5)), (3, Some(3)));
        assert_eq!((registers.general(15), registers.general(16)), (Some(4), None));
        assert_eq!(registers.instruction_pointer(), 5);
        assert_eq!(Registers::new(&context[..8]).instruction_pointer(), 0, "cut short");
    }
}
