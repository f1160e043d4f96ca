//! The start of a walk that the runtime cannot start by itself.
//!
//! In a slow-path hook .NET 10 no longer has a frame of its own on the stack (dotnet/runtime pull request 107152), so
//! it finds no start, or one too far out. It accepts registers as a start instead.

use crate::session::WalkStart;

/// A `CONTEXT` of this processor with these registers, as the runtime expects it.
///
/// It is longer than all variants: the runtime copies the whole of its own structure, which differs by version and
/// system (1,232 bytes at first, 3,104 since it has room for AVX-512).
#[repr(C, align(16))]
pub(super) struct Seed([u8; 4096]);

/// The flags and offsets of registers in a `CONTEXT`, as in Windows' headers.
#[cfg(target_arch = "x86_64")]
mod place {
    /// `ContextFlags`: `CONTEXT_AMD64 | CONTEXT_CONTROL | CONTEXT_INTEGER`.
    pub(super) const FLAGS: (usize, u32) = (0x30, 0x0010_0003);
    pub(super) const STACK_POINTER: usize = 0x98;
    pub(super) const FRAME_POINTER: usize = 0xA0;
    pub(super) const IP: usize = 0xF8;
}

/// The flags and offsets of registers in a `CONTEXT`, as in Windows' headers.
#[cfg(not(target_arch = "x86_64"))]
mod place {
    /// `ContextFlags`: `CONTEXT_ARM64 | CONTEXT_CONTROL | CONTEXT_INTEGER`.
    pub(super) const FLAGS: (usize, u32) = (0, 0x0040_0003);
    pub(super) const STACK_POINTER: usize = 0x100;
    pub(super) const FRAME_POINTER: usize = 0xF0;
    pub(super) const IP: usize = 0x108;
}

impl Seed {
    pub(super) fn new(start: WalkStart) -> Self {
        let mut context = [0; 4096];
        let mut put = |place: usize, bytes: &[u8]| {
            if let Some(room) = context.get_mut(place..place + bytes.len()) {
                room.copy_from_slice(bytes);
            }
        };
        let (flags, value) = place::FLAGS;
        put(flags, &value.to_le_bytes());
        put(place::STACK_POINTER, &start.stack_pointer.to_le_bytes());
        put(place::FRAME_POINTER, &start.frame_pointer.to_le_bytes());
        put(place::IP, &start.ip.to_le_bytes());
        Self(context)
    }

    /// Address and size, as the runtime expects them.
    pub(super) fn as_raw(&self) -> (*const u8, u32) {
        (self.0.as_ptr(), size_of::<Self>() as u32)
    }
}
