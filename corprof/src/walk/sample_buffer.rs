//! The memory that a round writes to: allocated before threads are stopped, read when they run again.

use std::ffi::c_void;
use std::time::Duration;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{S_FALSE, S_OK};
use crate::id::FunctionId;
use crate::info::Info;

/// A frame of a sampled stack, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct SampledFrame {
    /// The managed function, or `None` for native code: a block of frames, or with
    /// [`Strategy::Seeded`](super::Strategy::Seeded) a single frame.
    pub function: Option<FunctionId>,
    /// The address in the native code; see [`Frame::ip`](crate::walk::Frame::ip).
    pub ip: usize,
}

/// The initial capacity in frames, for all stacks together: some 50 threads of 300 frames.
const FIRST_ROOM: usize = 16 * 1024;

/// The stacks of one round.
#[derive(Debug)]
pub(crate) struct SampleBuffer {
    frames: Vec<SampledFrame>,
    stacks: Vec<Stack>,
    /// The most frames of one stack.
    depth: usize,
}

/// The result for one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    /// The index among the round's threads.
    pub(crate) thread: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The result of the walk.
    pub(crate) code: HRESULT,
    /// Whether there was no room for all frames.
    pub(crate) is_cut: bool,
    /// Whether it was unwound to its end without the runtime.
    pub(crate) is_unwound: bool,
    /// Whether it is a sample even without a managed frame.
    pub(crate) is_kept: bool,
    /// Whether it was copied from an earlier round: the thread has not run since.
    pub(crate) is_again: bool,
    /// Whether the thread was waiting.
    pub(crate) is_waiting: bool,
    /// The time that it stands for.
    pub(crate) weight: Duration,
}

/// Writes the frames of one stack: to a part of the buffer with a fixed size.
pub(crate) struct StackWriter<'t> {
    frames: &'t mut Vec<SampledFrame>,
    #[cfg_attr(not(all(windows, target_arch = "x86_64")), allow(dead_code))]
    start: usize,
    end: usize,
    is_cut: bool,
    is_unwound: bool,
    is_kept: bool,
    is_waiting: bool,
}

impl SampleBuffer {
    pub(crate) fn new(depth: usize) -> Self {
        Self { frames: Vec::new(), stacks: Vec::new(), depth }
    }

    /// Empties the buffer and makes room for the stacks of `threads` threads. If the last round ran out of room, there is more
    /// now.
    pub(crate) fn prepare(&mut self, threads: usize) {
        let was_full = self.stacks.iter().any(|stack| stack.is_cut && stack.end - stack.start < self.depth);
        let room = if was_full { 2 * self.frames.capacity() } else { FIRST_ROOM.max(threads * 64) };
        self.frames.clear();
        self.stacks.clear();
        self.frames.reserve(room);
        self.stacks.reserve(threads);
    }

    /// Lets `walk` write the stack of a thread, and records its result, unless that is none. Allocates no memory.
    pub(crate) fn record(&mut self, thread: usize, walk: impl FnOnce(&mut StackWriter<'_>) -> Option<HRESULT>) {
        if self.stacks.len() == self.stacks.capacity() {
            return; // not prepared for that many
        }
        let start = self.frames.len();
        let end = self.frames.capacity().min(start.saturating_add(self.depth));
        let (is_cut, is_unwound, is_kept, is_waiting) = (false, false, false, false);
        let mut writer = StackWriter { frames: &mut self.frames, start, end, is_cut, is_unwound, is_kept, is_waiting };
        let Some(code) = walk(&mut writer) else { return };
        let StackWriter { is_cut, is_unwound, is_kept, is_waiting, .. } = writer;
        let end = self.frames.len();
        let (is_again, weight) = (false, Duration::ZERO);
        let stack = Stack { thread, start, end, code, is_cut, is_unwound, is_kept, is_again, is_waiting, weight };
        self.stacks.push(stack);
    }

    /// Records the functions, like all that the runtime hands out. Not while threads are suspended: it may allocate.
    pub(crate) fn take_note(&self, info: &Info) {
        self.frames.iter().filter_map(|frame| frame.function).for_each(|function| info.note_function(function));
    }

    /// Writes a stack of an earlier round again. It may allocate.
    pub(crate) fn write_again(&mut self, stack: Stack, frames: &[SampledFrame]) {
        let start = self.frames.len();
        self.frames.extend_from_slice(frames);
        self.stacks.push(Stack { start, end: self.frames.len(), is_again: true, ..stack });
    }

    /// Adds the stacks of another buffer, all of this thread. It may allocate.
    pub(crate) fn append(&mut self, thread: usize, other: &Self) {
        for stack in &other.stacks {
            let start = self.frames.len();
            self.frames.extend_from_slice(other.frames(stack));
            self.stacks.push(Stack { thread, start, end: self.frames.len(), ..*stack });
        }
    }

    /// Records which of the walked threads were waiting.
    pub(crate) fn note_waits(&mut self, mut waits: impl FnMut(usize) -> bool) {
        for stack in &mut self.stacks {
            stack.is_waiting |= waits(stack.thread);
        }
    }

    /// Sets the weights of the stacks by `weigh`.
    pub(crate) fn weigh(&mut self, mut weigh: impl FnMut(&Stack, &[SampledFrame]) -> Duration) {
        for stack in &mut self.stacks {
            let frames = self.frames.get(stack.start..stack.end).unwrap_or_default();
            stack.weight = weigh(stack, frames);
        }
    }

    /// Removes the stacks of waiting threads; returns how many.
    pub(crate) fn leave_out_waits(&mut self) -> usize {
        let before = self.stacks.len();
        self.stacks.retain(|stack| !stack.is_waiting);
        before - self.stacks.len()
    }

    /// The results for the walked threads.
    pub(crate) fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// The frames of a stack, the leaf first.
    pub(crate) fn frames(&self, stack: &Stack) -> &[SampledFrame] {
        self.frames.get(stack.start..stack.end).unwrap_or_default()
    }
}

impl StackWriter<'_> {
    /// Writes a frame, if there is room for it.
    pub(crate) fn write(&mut self, frame: SampledFrame) -> bool {
        if self.frames.len() < self.end {
            self.frames.push(frame); // within the capacity
            true
        } else {
            self.is_cut = true;
            false
        }
    }

    /// Removes what was written of this stack, to begin again.
    #[cfg(all(windows, target_arch = "x86_64"))]
    pub(crate) fn restart(&mut self) {
        self.frames.truncate(self.start);
        self.is_cut = false;
        self.is_waiting = false;
    }

    /// Marks the thread as waiting in a system call.
    #[cfg(all(windows, target_arch = "x86_64"))]
    pub(crate) fn is_waiting(&mut self) {
        self.is_waiting = true;
    }

    /// Makes the stack a sample even without a managed frame.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Marks that outer frames are missing.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Marks that the stack was unwound to its end without the runtime.
    #[cfg(all(windows, target_arch = "x86_64"))]
    pub(crate) fn is_unwound(&mut self) {
        self.is_unwound = true;
    }

    /// The callback for `DoStackSnapshot`: writes each frame, and ends the walk when there is no more room.
    ///
    /// # Safety
    /// `writer` points at a [`StackWriter`] that has no other user during the call.
    pub(crate) unsafe extern "system" fn on_frame(
        function: sys::FunctionID,
        ip: usize,
        _info: sys::COR_PRF_FRAME_INFO,
        _context_size: u32,
        _context: *mut u8,
        writer: *mut c_void,
    ) -> HRESULT {
        // SAFETY: the caller's promise.
        let writer = unsafe { &mut *writer.cast::<StackWriter<'_>>() };
        let frame = SampledFrame { function: FunctionId::from_raw(function), ip };
        if writer.write(frame) { S_OK } else { S_FALSE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(buffer: &mut SampleBuffer, thread: usize, frames: usize) {
        buffer.record(thread, |writer| {
            (1..=frames).all(|ip| writer.write(SampledFrame { function: FunctionId::from_raw(8), ip }));
            Some(S_OK)
        });
    }

    #[test]
    fn stacks_are_read_as_they_were_written() {
        let mut buffer = SampleBuffer::new(100);
        buffer.prepare(3);
        let memory = (buffer.frames.as_ptr(), buffer.stacks.as_ptr());
        for (thread, frames) in [(0, 3), (2, 0), (5, 100)] {
            write(&mut buffer, thread, frames);
        }
        assert_eq!(memory, (buffer.frames.as_ptr(), buffer.stacks.as_ptr()), "no memory was allocated");
        let read: Vec<_> = buffer.stacks().iter().map(|stack| (stack.thread, buffer.frames(stack).len())).collect();
        assert_eq!(read, [(0, 3), (2, 0), (5, 100)]);
        assert_eq!(buffer.frames(&buffer.stacks()[0])[2].ip, 3);
        assert!(buffer.stacks().iter().all(|stack| !stack.is_cut), "100 frames are allowed");
    }

    #[test]
    fn what_is_too_deep_or_too_much_is_cut_and_said() {
        let mut buffer = SampleBuffer::new(10);
        buffer.prepare(2);
        write(&mut buffer, 0, 11);
        assert!(buffer.stacks()[0].is_cut);
        assert_eq!(buffer.frames(&buffer.stacks()[0]).len(), 10);
        // One more than it was prepared for: not recorded, and no memory allocated.
        let room = buffer.stacks.capacity();
        (1..=room).for_each(|thread| write(&mut buffer, thread, 1));
        assert_eq!(buffer.stacks().len(), room);

        let mut buffer = SampleBuffer::new(usize::MAX);
        buffer.prepare(1);
        let room = buffer.frames.capacity();
        write(&mut buffer, 0, room + 5);
        assert!(buffer.stacks()[0].is_cut);
        assert_eq!(buffer.frames(&buffer.stacks()[0]).len(), room);
        buffer.prepare(1);
        assert!(buffer.frames.capacity() >= 2 * room, "the next round has more room");
    }
}
