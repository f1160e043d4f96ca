//! The memory that a round writes to: allocated before threads are stopped, read when they run again.

use std::time::Duration;

use windows_core::HRESULT;

use crate::id::FunctionId;
use crate::info::Info;
use crate::system;
use crate::walk::stack_writer::{SampledFrame, StackMarks, StackWriter};

/// The initial capacity in frames, for all stacks together: some 50 threads of 300 frames.
const FIRST_ROOM: usize = 16 * 1024;

/// The most frames that there is room for: 2,000 threads of 2,000 frames, in 64 MB.
const MOST_ROOM: usize = 1 << 22;

/// The stacks of one round.
#[derive(Debug)]
pub(crate) struct SampleBuffer {
    frames: Vec<SampledFrame>,
    stacks: Vec<Stack>,
    /// The indices of frames that the runtime did not show, in ascending order.
    unshown: Vec<usize>,
    /// The most frames of one stack.
    depth: usize,
}

/// The result for one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    /// The index among the round's threads.
    pub(crate) thread: usize,
    /// The place of its frames in the buffer.
    start: usize,
    end: usize,
    /// The result of the walk.
    pub(crate) code: HRESULT,
    pub(crate) marks: StackMarks,
    /// Whether it was copied from an earlier round: the thread has not run since.
    pub(crate) is_repeated: bool,
    /// The time that it stands for.
    pub(crate) weight: Duration,
    /// When the thread had it, by [`ticks`](system::ticks).
    pub(crate) ticks: u64,
}

impl SampleBuffer {
    pub(crate) fn new(depth: usize) -> Self {
        Self { frames: Vec::new(), stacks: Vec::new(), unshown: Vec::new(), depth }
    }

    /// Empties the buffer and makes room for the stacks of `threads` threads. If the last round ran out of room, there
    /// is more now, as far as there is memory.
    pub(crate) fn prepare(&mut self, threads: usize) {
        let was_full = self.stacks.iter().any(|stack| stack.marks.lacks_room);
        let wanted = if was_full { 2 * self.frames.capacity() } else { FIRST_ROOM.max(threads * 64) };
        let room = wanted.min(MOST_ROOM);
        self.frames.clear();
        self.stacks.clear();
        self.unshown.clear();
        // Without, there is as much as before.
        let _ = self.frames.try_reserve(room);
        let _ = self.unshown.try_reserve(room);
        let _ = self.stacks.try_reserve(threads);
    }

    /// Lets `walk` write the stack of a thread, and records its result, unless that is none. Allocates no memory.
    pub(crate) fn record(&mut self, thread: usize, walk: impl FnOnce(&mut StackWriter<'_>) -> Option<HRESULT>) {
        if self.stacks.len() == self.stacks.capacity() {
            return; // not prepared for that many
        }
        let start = self.frames.len();
        let mut writer = StackWriter::new(&mut self.frames, self.depth, &mut self.unshown);
        let Some(code) = walk(&mut writer) else { return };
        let marks = writer.marks();
        let end = self.frames.len();
        let weight = Duration::ZERO;
        let ticks = system::ticks();
        self.stacks.push(Stack { thread, start, end, code, marks, is_repeated: false, weight, ticks });
    }

    /// Sets when the thread had the stack that was recorded last.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn set_ticks(&mut self, ticks: u64) {
        if let Some(stack) = self.stacks.last_mut() {
            stack.ticks = ticks;
        }
    }

    /// Records the functions, like all that the runtime hands out. Not while threads are suspended: it may allocate.
    pub(crate) fn record_functions(&self, info: &Info) {
        self.frames.iter().filter_map(|frame| frame.function).for_each(|function| info.note_function(function));
    }

    /// Finds the dynamic methods among what may be frames that the runtime did not show, and removes the rest.
    /// Not while threads are suspended: it may allocate.
    pub(crate) fn show_dynamic_methods(&mut self, mut dynamic_method_at: impl FnMut(usize) -> Option<FunctionId>) {
        let mut removed = Vec::new();
        for index in self.unshown.drain(..) {
            let Some(frame) = self.frames.get_mut(index) else { continue };
            // It is the return address, which may be behind the end of the function.
            frame.function = dynamic_method_at(frame.ip.saturating_sub(1));
            if frame.function.is_none() {
                removed.push(index);
            }
        }
        if removed.is_empty() {
            return;
        }
        let mut index = 0;
        self.frames.retain(|_| {
            index += 1;
            removed.binary_search(&(index - 1)).is_err()
        });
        for stack in &mut self.stacks {
            stack.start -= removed.partition_point(|&place| place < stack.start);
            stack.end -= removed.partition_point(|&place| place < stack.end);
        }
    }

    /// Writes a stack of an earlier round again, as that of this thread. It may allocate.
    pub(crate) fn repeat(&mut self, thread: usize, stack: &Stack, frames: &[SampledFrame]) {
        let start = self.frames.len();
        self.frames.extend_from_slice(frames);
        let end = self.frames.len();
        self.stacks.push(Stack { thread, start, end, is_repeated: true, ticks: system::ticks(), ..*stack });
    }

    /// Adds the stacks of another buffer, all of this thread. It may allocate.
    #[cfg(any(test, all(windows, target_arch = "x86_64")))]
    pub(crate) fn append(&mut self, thread: usize, other: &Self) {
        for stack in &other.stacks {
            let start = self.frames.len();
            self.frames.extend_from_slice(other.frames(stack));
            self.stacks.push(Stack { thread, start, end: self.frames.len(), ..*stack });
        }
    }

    /// Marks the walked threads of which `is_waiting` says so.
    pub(crate) fn mark_waiting(&mut self, mut is_waiting: impl FnMut(usize) -> bool) {
        for stack in &mut self.stacks {
            stack.marks.is_waiting |= is_waiting(stack.thread);
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
    pub(crate) fn remove_waiting(&mut self) -> usize {
        let before = self.stacks.len();
        self.stacks.retain(|stack| !stack.marks.is_waiting);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::S_OK;

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
        assert!(buffer.stacks().iter().all(|stack| !stack.marks.is_cut), "100 frames are allowed");
    }

    #[test]
    fn of_the_frames_that_were_not_shown_dynamic_methods_stay() {
        let function = FunctionId::from_raw;
        let mut buffer = SampleBuffer::new(100);
        buffer.prepare(3);
        for thread in 0..3 {
            write(&mut buffer, thread, 4);
        }
        for index in [1, 2, 6, 9] {
            buffer.frames[index].function = None;
            buffer.unshown.push(index);
        }
        buffer.frames[3].function = None; // native code
        buffer.show_dynamic_methods(|address| function(0x70).filter(|_| address == 2 - 1));
        let read: Vec<Vec<_>> = buffer
            .stacks()
            .iter()
            .map(|stack| buffer.frames(stack).iter().map(|frame| (frame.ip, frame.function)).collect())
            .collect();
        let known = function(8);
        let dynamic = function(0x70);
        assert_eq!(read[0], [(1, known), (2, dynamic), (4, None)]);
        assert_eq!(read[1], [(1, known), (2, known), (4, known)]);
        assert_eq!(read[2], [(1, known), (2, dynamic), (3, known), (4, known)]);
        assert!(buffer.unshown.is_empty());
    }

    #[test]
    fn what_is_too_deep_or_too_much_is_cut_and_said() {
        let mut buffer = SampleBuffer::new(10);
        buffer.prepare(2);
        write(&mut buffer, 0, 11);
        let marks = buffer.stacks()[0].marks;
        assert!(marks.is_cut && !marks.lacks_room);
        assert_eq!(buffer.frames(&buffer.stacks()[0]).len(), 10);
        // One more than it was prepared for: not recorded, and no memory allocated.
        let room = buffer.stacks.capacity();
        (1..=room).for_each(|thread| write(&mut buffer, thread, 1));
        assert_eq!(buffer.stacks().len(), room);

        let mut buffer = SampleBuffer::new(usize::MAX);
        buffer.prepare(1);
        let room = buffer.frames.capacity();
        write(&mut buffer, 0, room + 5);
        assert!(buffer.stacks()[0].marks.is_cut);
        assert_eq!(buffer.frames(&buffer.stacks()[0]).len(), room);
        buffer.prepare(1);
        assert!(buffer.frames.capacity() >= 2 * room, "the next round has more room");
    }

    #[test]
    fn stacks_that_are_too_deep_take_no_more_memory_from_round_to_round() {
        let mut buffer = SampleBuffer::new(10);
        buffer.prepare(1);
        let room = buffer.frames.capacity();
        for _ in 0..10 {
            write(&mut buffer, 0, 11);
            buffer.frames[3].function = None;
            buffer.unshown.push(3);
            buffer.show_dynamic_methods(|_| None);
            assert_eq!(buffer.frames(&buffer.stacks()[0]).len(), 9, "less than are wanted, and none for lack of room");
            buffer.prepare(1);
        }
        assert_eq!(buffer.frames.capacity(), room);

        let mut buffer = SampleBuffer::new(usize::MAX);
        buffer.prepare(1);
        for _ in 0..30 {
            write(&mut buffer, 0, 1);
            buffer.stacks[0].marks.lacks_room = true;
            buffer.prepare(1);
        }
        assert!(buffer.frames.capacity() <= MOST_ROOM, "{}", buffer.frames.capacity());
    }
}
