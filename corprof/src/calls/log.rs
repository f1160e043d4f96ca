//! [`CallLog`]: passes every call in order, with its times, from the hooks to a reader.

use std::io;
use std::time::Duration;

use super::cold_call::cold_call;
use super::queue::{EventQueue, EventWriter};
use super::reader::{CallEvent, CallReader, Nesting, Ticks};
use super::shadow_stack::ShadowStack;
use crate::context::InCallback;
use crate::hooks::clock::HookClock;
use crate::hooks::{InHook, StackBoundary};
use crate::id::ThreadId;
use crate::info::Info;
use crate::system;

/// The greatest depth of a call that is recorded. Deeper calls count as [dropped](CallLog::finish).
const DEEPEST: usize = 1 << 20;

/// Records calls one by one, in the order and with the times of their beginnings and ends. Hooks write them, each
/// thread into its own buffer, and a [`CallReader`] receives them on a profiler thread.
///
/// Each call ends once, after the calls within it. This includes a call that an exception has unwound: the thread's
/// next hook shows it.
///
/// No call is lost: a thread with a full buffer waits for the reader ([`EventWriter::push_waiting`]), so the
/// application is as slow as the reader's disk. [`folding`](Self::folding) makes this bearable: calls that are too
/// short to be seen in a picture are counted, and not recorded one by one.
///
/// Memory is bounded as for [`EventQueue`]: at most `room * threads * (size_of::<F>() + 24)` bytes, and in each thread
/// `size_of::<F>() + 40` bytes for each call that it is inside of.
///
/// ```
/// use corprof::calls::{CallBegin, CallEnd, CallLog, CallReader, CallWriter};
/// use corprof::hooks::StackBoundary;
/// use corprof::prelude::*;
/// use std::time::Duration;
///
/// struct Calls(CallLog<FunctionId>);
///
/// impl FunctionHooks for Calls {
///     type Function = ();
///     type Thread = CallWriter<FunctionId>;
///     const UNWINDS: bool = true;
///     # fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> { Hook::Inlinable(()) }
///     fn thread_started(&self) -> CallWriter<FunctionId> {
///         self.0.writer()
///     }
///     fn enter(&self, cx: &InHook<'_>, calls: &mut CallWriter<FunctionId>, _function: &()) {
///         calls.enter(cx, cx.function());
///     }
///     fn leave(&self, cx: &InHook<'_>, calls: &mut CallWriter<FunctionId>, _function: &()) {
///         calls.leave(cx);
///     }
///     fn unwound(&self, calls: &mut CallWriter<FunctionId>, boundary: StackBoundary) {
///         calls.unwound(boundary);
///     }
/// }
///
/// struct Print;
///
/// impl CallReader<FunctionId> for Print {
///     fn begin(&mut self, call: CallBegin<FunctionId>) -> Result<(), BoxError> {
///         println!("{:?} thread {} calls {:?}", call.at, call.thread, call.function);
///         Ok(())
///     }
///     fn end(&mut self, end: CallEnd) -> Result<(), BoxError> {
///         println!("{:?} thread {} is back; {} calls were too short to tell", end.at, end.thread, end.folded.calls);
///         Ok(())
///     }
/// }
/// ```
#[derive(Debug)]
pub struct CallLog<F> {
    events: EventQueue<CallEvent<F>>,
    clock: HookClock,
    start: u64,
    minimum: u64,
}

/// One thread's writer to a [`CallLog`].
#[derive(Debug)]
pub struct CallWriter<F: Send + 'static> {
    events: EventWriter<CallEvent<F>>,
    clock: HookClock,
    /// Shorter calls are folded.
    minimum: u64,
    /// The calls that the thread is inside of.
    stack: ShadowStack<Open<F>>,
    /// How many of them, from the outermost on, have been written.
    written: usize,
    /// The time when the outermost of the others will have lasted long enough to be written.
    due: u64,
    /// Calls that were folded outside any call, and the end of the last.
    alone: Ticks,
    last: u64,
    has_begun: bool,
}

/// A call that has not ended.
#[derive(Debug)]
struct Open<F> {
    begun: u64,
    /// None once it has been written.
    function: Option<F>,
    folded: Ticks,
}

impl<F: Send + 'static> CallLog<F> {
    /// A log with buffers for at most `threads` threads at a time, each with room for `room` beginnings and ends, as in
    /// [`EventQueue::new`]. The first log takes up to 200 ms to measure the frequency of the processor's counter.
    pub fn new(room: usize, threads: usize) -> Self {
        let clock = HookClock::new();
        Self { events: EventQueue::new(room, threads), start: clock.now(), clock, minimum: 0 }
    }

    /// Folds calls shorter than `minimum` into their callers: the number and the total time of a caller's folded calls
    /// are in [`CallEnd::folded`](super::CallEnd::folded).
    pub fn folding(mut self, minimum: Duration) -> Self {
        self.minimum = self.clock.ticks(minimum);
        self
    }

    /// A thread's writer; make it in [`thread_started`](crate::hooks::FunctionHooks::thread_started).
    pub fn writer(&self) -> CallWriter<F> {
        CallWriter {
            events: self.events.writer(),
            clock: self.clock.clone(),
            minimum: self.minimum,
            stack: ShadowStack::with_bound(DEEPEST),
            written: 0,
            due: 0,
            alone: Ticks::default(),
            last: self.start,
            has_begun: false,
        }
    }

    /// Drains into `reader` every `every` or sooner, on a thread called `name`: see [`EventQueue::start`].
    ///
    /// # Errors
    /// Those of [`spawn_profiler_thread`](InCallback::spawn_profiler_thread).
    pub fn start<R: CallReader<F>>(
        &self,
        cx: &InCallback<'_>,
        name: &str,
        every: Duration,
        reader: R,
    ) -> io::Result<()> {
        let names = Some(Info::clone(cx));
        self.events.start(cx, name, every, Nesting { reader, clock: self.clock.clone(), start: self.start, names })
    }

    /// How long threads have waited for the reader so far, summed over all threads.
    pub fn waited(&self) -> Duration {
        self.events.waited()
    }

    /// Reads the remaining events, ends the calls that have not ended, and returns how many beginnings and ends were
    /// dropped. Call it in the profiler's `shutdown`.
    ///
    /// Events are dropped only if the reader makes no progress for a second, for threads beyond the number of buffers,
    /// and for calls more than 1,048,576 deep.
    ///
    /// # Errors
    /// The reader's error; or as [`EventQueue::finish`].
    pub fn finish(&self) -> io::Result<u64> {
        self.events.finish()
    }
}

impl<F: Send + 'static> CallWriter<F> {
    /// A function begins: call this in [`enter`](crate::hooks::FunctionHooks::enter).
    #[inline]
    pub fn enter(&mut self, cx: &InHook<'_>, function: F) {
        if !self.has_begun {
            cold_call(|| self.begin(cx.current_thread().ok().flatten(), system::os_thread_id()));
        }
        self.enter_at(cx.stack_pointer(), function, self.clock.at(cx));
    }

    /// A function ends: call this in [`leave`](crate::hooks::FunctionHooks::leave) and
    /// [`tailcall`](crate::hooks::FunctionHooks::tailcall).
    #[inline]
    pub fn leave(&mut self, cx: &InHook<'_>) {
        self.leave_at(cx.stack_pointer(), self.clock.at(cx));
    }

    /// The runtime suspends a function: call this in [`suspended`](crate::hooks::FunctionHooks::suspended). Its call
    /// ends now, and another one begins when it goes on.
    pub fn suspended(&mut self, cx: &InHook<'_>) {
        self.suspended_at(cx.stack_pointer(), self.clock.at(cx));
    }

    /// An exception has unwound functions: call this in [`unwound`](crate::hooks::FunctionHooks::unwound). Their calls
    /// end now.
    pub fn unwound(&mut self, boundary: StackBoundary) {
        self.unwound_at(boundary, self.clock.now());
    }

    #[cold]
    fn begin(&mut self, thread: Option<ThreadId>, os_id: u32) {
        self.has_begun = true;
        self.events.push_waiting(CallEvent::Thread { thread, os_id });
    }

    #[inline]
    fn enter_at(&mut self, stack_pointer: usize, function: F, now: u64) {
        self.unwound_at(StackBoundary::of_caller(stack_pointer), now);
        if self.written == self.stack.depth() {
            self.due = now.saturating_add(self.minimum);
        }
        let open = Open { begun: now, function: Some(function), folded: Ticks::default() };
        self.stack.enter_at(stack_pointer, open, drop);
    }

    #[inline]
    fn leave_at(&mut self, stack_pointer: usize, now: u64) {
        self.unwound_at(StackBoundary(stack_pointer), now);
        if let Some(open) = self.stack.leave_at(stack_pointer, drop) {
            self.end(open, now);
        }
    }

    fn suspended_at(&mut self, stack_pointer: usize, now: u64) {
        self.unwound_at(StackBoundary::of_caller(stack_pointer), now);
        if let Some(open) = self.stack.suspended_at(stack_pointer, drop) {
            self.end(open, now);
        }
    }

    /// Ends the calls that are gone, after writing those that have lasted long enough.
    #[inline]
    fn unwound_at(&mut self, boundary: StackBoundary, now: u64) {
        if now >= self.due {
            cold_call(|| self.tell(now));
        }
        while let Some(open) = self.stack.pop_gone(boundary) {
            cold_call(|| self.end(open, now));
        }
    }

    /// Ends a call that is off the stack.
    #[inline]
    fn end(&mut self, open: Open<F>, now: u64) {
        if open.function.is_none() {
            // All calls around it have been written, too.
            self.written -= 1;
            self.due = u64::MAX;
            cold_call(|| {
                self.last = now;
                self.events.push_waiting(CallEvent::End { at: now, depth: self.written as u32, folded: open.folded })
            });
            return;
        }
        if self.written == self.stack.depth() {
            self.due = u64::MAX;
        }
        // The counters of two processors may differ a little.
        let folded = Ticks { calls: open.folded.calls + 1, ticks: now.saturating_sub(open.begun) };
        match self.stack.top_mut() {
            Some(caller) => caller.folded.add(folded),
            None => {
                self.alone.add(folded);
                self.last = now;
            }
        }
    }

    /// Writes the calls that have lasted long enough: the outermost of those that are not written yet.
    fn tell(&mut self, now: u64) {
        self.due = u64::MAX;
        for open in self.stack.frames_from(self.written) {
            let due = open.begun.saturating_add(self.minimum);
            if due > now {
                self.due = due;
                return;
            }
            let Some(function) = open.function.take() else { return };
            if self.alone.calls > 0 {
                let folded = std::mem::take(&mut self.alone);
                self.events.push_waiting(CallEvent::Alone { at: self.last, folded });
            }
            self.events.push_waiting(CallEvent::Begin { at: open.begun, depth: self.written as u32, function });
            self.written += 1;
        }
    }
}

impl<F: Send + 'static> Drop for CallWriter<F> {
    /// The thread or the profiler ends: the calls that the thread is inside of end now.
    fn drop(&mut self) {
        self.unwound_at(StackBoundary(usize::MAX), self.clock.now());
        if self.alone.calls > 0 {
            self.events.push_waiting(CallEvent::Alone { at: self.last, folded: self.alone });
        }
        self.events.note_dropped(self.stack.lost());
    }
}

#[cfg(test)]
mod tests;
