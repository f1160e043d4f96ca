//! Writes the frames of one stack as numbers, to memory that was allocated before its thread was stopped.

use std::ffi::c_void;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{S_FALSE, S_OK};
use crate::id::FunctionId;
use crate::session::wire;

use super::interrupted;
use super::unshown::FramePosition;

/// A frame of a sampled stack, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct SampledFrame {
    /// The managed function, or `None` for native code: a block of frames, or with
    /// [`Strategy::Seeded`](crate::sampler::Strategy::Seeded) and
    /// [`Strategy::Signals`](crate::sampler::Strategy::Signals) a single frame.
    pub function: Option<FunctionId>,
    /// The address in the native code; see [`Frame::ip`](crate::walk::Frame::ip).
    pub ip: usize,
}

/// What a walk has found out about a stack, besides its frames.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct StackMarks {
    /// Outer frames are missing: there are more than are wanted, or no room for all.
    pub(crate) is_cut: bool,
    /// There was no room for all that are wanted.
    pub(crate) lacks_room: bool,
    /// It was unwound to its end without the runtime.
    pub(crate) is_unwound: bool,
    /// It is a sample even without a managed frame.
    pub(crate) is_kept: bool,
    /// Its thread was waiting.
    pub(crate) is_waiting: bool,
}

/// Writes the frames of one stack: to a part of a buffer with a fixed size. Allocates no memory.
pub(crate) struct StackWriter<'t> {
    frames: &'t mut Vec<SampledFrame>,
    #[cfg_attr(not(all(windows, target_arch = "x86_64")), allow(dead_code))]
    start: usize,
    end: usize,
    /// Whether it is the room that ends there.
    is_end_of_room: bool,
    marks: StackMarks,
    /// The indices of frames that the runtime does not show.
    unshown: &'t mut Vec<usize>,
    /// Where the frame is that was written last.
    last: Option<FramePosition>,
    /// The operating system's id of the thread, where the runtime has suspended it.
    suspended_thread: Option<u32>,
}

impl<'t> StackWriter<'t> {
    /// Writes behind the frames of earlier stacks, at most `depth` frames, and no more than there is room for. The
    /// indices of frames that the runtime does not show go to `unshown`, as far as there is room.
    pub(crate) fn new(frames: &'t mut Vec<SampledFrame>, depth: usize, unshown: &'t mut Vec<usize>) -> Self {
        let start = frames.len();
        let wanted = start.saturating_add(depth);
        let end = frames.capacity().min(wanted);
        let is_end_of_room = end < wanted;
        let marks = StackMarks::default();
        Self { frames, start, end, is_end_of_room, marks, unshown, last: None, suspended_thread: None }
    }

    /// Says whose stack it is: the runtime has suspended this thread, and may have interrupted it in code that it does
    /// not show.
    pub(crate) fn set_suspended_thread(&mut self, os_thread_id: Option<u32>) {
        self.suspended_thread = os_thread_id;
    }

    /// What is known of the stack besides its frames.
    pub(crate) fn marks(&self) -> StackMarks {
        self.marks
    }

    /// Writes a frame, if there is room for it.
    pub(crate) fn write(&mut self, frame: SampledFrame) -> bool {
        if self.frames.len() < self.end {
            self.frames.push(frame); // within the capacity
            true
        } else {
            self.marks.is_cut = true;
            self.marks.lacks_room |= self.is_end_of_room;
            false
        }
    }

    /// Writes what may be frames between the last one and this one that the runtime does not show; before the first
    /// one, where the thread was interrupted.
    fn write_unshown_before(&mut self, position: FramePosition) {
        if self.last.is_none() {
            self.write_interrupted(position);
        }
        let Some(last) = self.last.replace(position) else { return };
        last.find_before(position, |ip| self.write_unshown(ip));
    }

    /// Writes where the thread was interrupted, if that is further in than its first frame.
    fn write_interrupted(&mut self, first: FramePosition) {
        let Some(thread) = self.suspended_thread else { return };
        let Some(found) = interrupted::below(first, thread) else { return };
        // Who looks for its method looks one byte before: a method is not interrupted at its first one.
        self.write_unshown(found.ip);
        self.last = Some(found.position);
    }

    /// Writes what may be a frame that the runtime does not show, if there is room for it.
    fn write_unshown(&mut self, ip: usize) -> bool {
        let has_room = self.unshown.len() < self.unshown.capacity() && self.frames.len() < self.end;
        if has_room {
            self.unshown.push(self.frames.len()); // within the capacity, as is the frame
            self.frames.push(SampledFrame { function: None, ip });
        }
        has_room
    }

    /// Removes what was written of this stack, to begin again.
    #[cfg(all(windows, target_arch = "x86_64"))]
    pub(crate) fn restart(&mut self) {
        self.frames.truncate(self.start);
        self.marks.is_cut = false;
        self.marks.lacks_room = false;
        self.marks.is_waiting = false;
    }

    /// Marks the thread as waiting in a system call.
    #[cfg(all(windows, target_arch = "x86_64"))]
    pub(crate) fn mark_waiting(&mut self) {
        self.marks.is_waiting = true;
    }

    /// Makes the stack a sample even without a managed frame.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn mark_kept(&mut self) {
        self.marks.is_kept = true;
    }

    /// Marks that outer frames are missing.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn mark_cut(&mut self) {
        self.marks.is_cut = true;
    }

    /// Marks that the stack was unwound to its end without the runtime.
    #[cfg(all(windows, target_arch = "x86_64"))]
    pub(crate) fn mark_unwound(&mut self) {
        self.marks.is_unwound = true;
    }

    /// The callback for `DoStackSnapshot`: writes each frame, and ends the walk when there is no more room.
    ///
    /// # Safety
    /// `writer` points at a [`StackWriter`] that has no other user during the call. The context, if there is one, has
    /// that many bytes, which stay during the call.
    pub(crate) unsafe extern "system" fn on_frame(
        function: sys::FunctionID,
        ip: usize,
        _info: sys::COR_PRF_FRAME_INFO,
        context_size: u32,
        context: *mut u8,
        writer: *mut c_void,
    ) -> HRESULT {
        // SAFETY: the caller's promise.
        let (writer, context) =
            unsafe { (&mut *writer.cast::<StackWriter<'_>>(), wire::slice(context_size, context.cast_const())) };
        if let Some(position) = FramePosition::of(context) {
            writer.write_unshown_before(position);
        }
        let frame = SampledFrame { function: FunctionId::from_raw(function), ip };
        if writer.write(frame) { S_OK } else { S_FALSE }
    }
}
