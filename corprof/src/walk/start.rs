//! Where a walk begins that the runtime cannot begin by itself.
//!
//! In a hook of the slow path .NET 10 has no frame of its own on the stack any more (dotnet/runtime pull request 107152), so it
//! finds none to begin at, or begins at one further out. It takes registers to begin with instead.

use crate::session::WalkStart;

/// A `CONTEXT` of this processor with these registers, as the runtime takes it.
///
/// It is longer than any: the runtime copies the whole of its own structure, which differs by version and system (1,232 bytes
/// at first, 3,104 since it has room for AVX-512).
#[repr(C, align(16))]
pub(super) struct Seed([u8; 4096]);

/// Which registers a `CONTEXT` holds, and where: as in Windows' headers.
#[cfg(target_arch = "x86_64")]
mod place {
    /// `ContextFlags`: `CONTEXT_AMD64 | CONTEXT_CONTROL | CONTEXT_INTEGER`.
    pub(super) const FLAGS: (usize, u32) = (0x30, 0x0010_0003);
    pub(super) const STACK_POINTER: usize = 0x98;
    pub(super) const FRAME_POINTER: usize = 0xA0;
    pub(super) const IP: usize = 0xF8;
}

/// Which registers a `CONTEXT` holds, and where: as in Windows' headers.
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

    /// Address and size, as the runtime takes them.
    pub(super) fn as_raw(&self) -> (*const u8, u32) {
        (self.0.as_ptr(), size_of::<Self>() as u32)
    }
}
