//! A stack that is made up, and the runtime's walk of it.

use std::cell::Cell;
use std::ffi::c_void;

use corprof::prelude::*;
use corprof::sys;
use windows_core::HRESULT;

/// How many words it has: more than the frames of the framework.
pub(crate) const WORDS: usize = 32 * 1024;

/// The stack pointer points at this word: what was removed from a frame lies below.
const BELOW: usize = 4 * 1024;

/// The frame pointer points so many words above, unless the code says where it points.
pub(crate) const FRAME: usize = WORDS / 2;

pub(crate) const WORD: usize = size_of::<usize>();

/// The places of registers in the runtime's `CONTEXT`, as in Windows' headers.
#[cfg(target_arch = "x86_64")]
mod place {
    pub(super) const FLAGS: usize = 0x30;
    pub(super) const STACK_POINTER: usize = 0x98;
    pub(super) const FRAME_POINTER: usize = 0xA0;
    pub(super) const LINK: Option<usize> = None;
    pub(super) const IP: usize = 0xF8;
    /// `CONTEXT_AMD64 | CONTEXT_CONTROL | CONTEXT_INTEGER`.
    pub(super) const ALL: u32 = 0x0010_0003;
}

/// The same on arm64.
#[cfg(target_arch = "aarch64")]
mod place {
    pub(super) const FLAGS: usize = 0;
    pub(super) const FRAME_POINTER: usize = 0xF0;
    pub(super) const LINK: Option<usize> = Some(0xF8);
    pub(super) const STACK_POINTER: usize = 0x100;
    pub(super) const IP: usize = 0x108;
    /// `CONTEXT_ARM64 | CONTEXT_CONTROL | CONTEXT_INTEGER`.
    pub(super) const ALL: u32 = 0x0040_0003;
}

/// A `CONTEXT`, with room for all versions of it.
#[repr(C, align(16))]
struct Context([u8; 4096]);

/// Words, each a different address in managed code, and the one in the link register.
pub(crate) struct Stack<'m>(&'m [Cell<usize>; WORDS], usize);

/// A value that a function has on its stack.
pub(crate) struct Cookie {
    pub(crate) value: usize,
    /// Whether its offset counts from the frame pointer, or from the stack pointer.
    pub(crate) is_from_frame_pointer: bool,
    pub(crate) offset: isize,
}

/// The walk so far.
#[derive(Default)]
struct Walk {
    ip: usize,
    has_begun: bool,
    is_shown: bool,
    caller: Option<[usize; 3]>,
}

impl<'m> Stack<'m> {
    /// `memory` is part of the calling thread's own stack.
    pub(crate) fn of(memory: &'m [Cell<usize>; WORDS], link: usize) -> Self {
        Self(memory, link)
    }

    pub(crate) fn link(&self) -> usize {
        self.1
    }

    /// The words from the stack pointer on.
    pub(crate) fn words(&self) -> Vec<usize> {
        self.0.iter().skip(BELOW).map(Cell::get).collect()
    }

    /// Exchanges values with those at their places, where the frame pointer points at this offset from the stack
    /// pointer, and so much of the frame is gone.
    pub(crate) fn exchange(&self, cookies: &mut [Cookie], frame_pointer: isize, removed: isize) {
        let start = -((BELOW * WORD) as isize);
        let end = ((WORDS - BELOW - 1) * WORD) as isize;
        let exchange = |cookie: &mut Cookie| {
            let base = if cookie.is_from_frame_pointer { frame_pointer } else { -removed };
            let offset = base + cookie.offset;
            if !(start..end).contains(&offset) {
                return;
            }
            // SAFETY: eight bytes within the words, which are cells of this thread's.
            unsafe {
                let place = self.0.as_ptr().byte_offset(offset - start).cast::<usize>().cast_mut();
                let before = place.read_unaligned();
                place.write_unaligned(cookie.value);
                cookie.value = before;
            }
        };
        cookies.iter_mut().for_each(exchange);
        // Of two at one place the first is put back last.
        cookies.reverse();
    }

    pub(crate) fn stack_pointer(&self) -> usize {
        self.0.as_ptr().expose_provenance() + BELOW * WORD
    }

    /// The word at an address.
    pub(crate) fn read(&self, address: usize) -> Option<usize> {
        self.0.get(BELOW + address.checked_sub(self.stack_pointer())? / WORD).map(Cell::get)
    }

    /// The runtime's answer: the caller's instruction, stack and frame pointer, if a thread was at `ip` on this stack.
    pub(crate) fn caller(&self, cx: &InNoGc<'_>, ip: usize, frame_pointer: usize) -> Option<[usize; 3]> {
        self.walk(cx, ip, frame_pointer)?.caller
    }

    /// Whether the runtime shows the function at `ip`: it hides those of its own that handle exceptions.
    pub(crate) fn shows(&self, cx: &InNoGc<'_>, ip: usize) -> bool {
        self.walk(cx, ip, self.stack_pointer()).is_some_and(|walk| walk.is_shown)
    }

    fn walk(&self, cx: &InNoGc<'_>, ip: usize, frame_pointer: usize) -> Option<Walk> {
        let mut context = Context([0; 4096]);
        let mut put = |place: usize, bytes: &[u8]| context.0[place..place + bytes.len()].copy_from_slice(bytes);
        put(place::FLAGS, &place::ALL.to_le_bytes());
        put(place::STACK_POINTER, &self.stack_pointer().to_le_bytes());
        put(place::FRAME_POINTER, &frame_pointer.to_le_bytes());
        put(place::IP, &ip.to_le_bytes());
        if let Some(link) = place::LINK {
            put(link, &self.link().to_le_bytes());
        }
        let mut walk = Walk { ip, ..Walk::default() };
        let flags = sys::COR_PRF_SNAPSHOT_REGISTER_CONTEXT;
        // SAFETY: the copy lives for this call only, in a callback. 0 is the calling thread. The context is longer than
        // the runtime's, and its registers point into readable memory; `see` gets the walk, during this call only.
        unsafe {
            let info = cx.as_raw::<sys::ICorProfilerInfo2>().ok()?;
            let walk = (&raw mut walk).cast();
            let context = (&raw const context).cast();
            let _ = info.DoStackSnapshot(0, Some(see), flags.bits(), walk, context, size_of::<Context>() as u32);
        }
        Some(walk)
    }

    /// The places on the stack, as offsets from the stack pointer; in brackets what is there.
    pub(crate) fn describe(&self, caller: Option<[usize; 3]>) -> String {
        let Some(places) = caller else { return "nothing".to_owned() };
        let name = |value: usize| {
            let offset = value.wrapping_sub(self.stack_pointer());
            let word = self.0.iter().skip(BELOW).position(|word| word.get() == value);
            match word {
                _ if offset < (WORDS - BELOW) * WORD => format!("sp+{offset:#x}"),
                Some(at) => format!("[sp+{:#x}]", at * WORD),
                None if value == self.link() => "link".to_owned(),
                None => format!("{value:#x}"),
            }
        };
        places.map(name).join(", ")
    }
}

/// Sees a frame: the first is the one that the walk begins in, the second the caller.
unsafe extern "system" fn see(
    _: sys::FunctionID,
    ip: usize,
    _: sys::COR_PRF_FRAME_INFO,
    size: u32,
    context: *mut u8,
    walk: *mut c_void,
) -> HRESULT {
    // SAFETY: the walk that was passed, which has no other user meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // The runtime does not show its own functions that handle exceptions.
    if !std::mem::replace(&mut walk.has_begun, true) && ip == walk.ip {
        walk.is_shown = true;
        return HRESULT(0);
    }
    if size as usize > place::IP + WORD {
        let read = |place: usize| {
            // SAFETY: the context has so many bytes.
            unsafe { context.add(place).cast::<usize>().read_unaligned() }
        };
        walk.caller = Some([ip, read(place::STACK_POINTER), read(place::FRAME_POINTER)]);
    }
    HRESULT(1)
}
