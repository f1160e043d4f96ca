//! [`CallLog`]: every call in order, with its time, from the hooks to a reader.

use std::io;
use std::time::Duration;

use super::cold_call::cold_call;
use super::queue::{EventQueue, EventWriter};
use super::reader::{CallEvent, CallReader, Nesting, Ticks};
use super::shadow_stack::ShadowStack;
use crate::context::InTriggers;
use crate::hooks::clock::HookClock;
use crate::hooks::{InHook, StackBoundary};
use crate::id::ThreadId;
use crate::info::Info;
use crate::system;

/// How deep calls are told of. A call that is deeper counts as [dropped](CallLog::finish).
const DEEPEST: usize = 1 << 20;

/// Calls, one by one, in the order and with the times in which they begin and end: hooks write them, each thread into a buffer
/// of its own, and a [`CallReader`] gets them on a thread of the profiler's.
///
/// Each call ends once, after those within it, also when an exception has left it, which the thread's next hook shows.
///
/// Nothing is lost: a thread whose buffer is full waits for the reader ([`EventWriter::push_waiting`]), so the application runs
/// at the speed of the reader's disk. [`folding`](Self::folding) makes that bearable: what is over before it could be seen in
/// a picture is counted, and not told one by one.
///
/// Memory is bounded as with [`EventQueue`]: `room * threads * (size_of::<F>() + 24)` bytes at most, and in each thread
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
///     # fn select(&self, _cx: &mut InTriggers<'_>, _function: FunctionId) -> Hook<()> { Hook::Yes(()) }
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

/// One thread's end of a [`CallLog`].
#[derive(Debug)]
pub struct CallWriter<F: Send + 'static> {
    events: EventWriter<CallEvent<F>>,
    clock: HookClock,
    /// Calls that are over sooner are folded.
    minimum: u64,
    /// The calls that the thread is inside of.
    stack: ShadowStack<Open<F>>,
    /// So many of them, the outermost, have been told of.
    told: usize,
    /// When the first of the others will have lasted long enough to be told of.
    due: u64,
    /// Calls that were folded outside of any call, and the end of the last.
    alone: Ticks,
    last: u64,
    has_begun: bool,
}

/// A call that has not ended.
#[derive(Debug)]
struct Open<F> {
    begun: u64,
    /// None when it has been told of.
    function: Option<F>,
    folded: Ticks,
}

impl<F: Send + 'static> CallLog<F> {
    /// A log with buffers for at most `threads` threads at a time, of `room` beginnings and ends each, as in
    /// [`EventQueue::new`]. It takes up to 200 ms to learn how fast the processor counts.
    pub fn new(room: usize, threads: usize) -> Self {
        let clock = HookClock::new();
        Self { events: EventQueue::new(room, threads), start: clock.now(), clock, minimum: 0 }
    }

    /// Folds calls that are over in less than `minimum` into their callers: these are told how many there were and how long
    /// they took, by [`CallEnd::folded`](super::CallEnd::folded).
    pub fn folding(mut self, minimum: Duration) -> Self {
        // How many ticks that is, by the clock's own rule of three.
        let second = self.clock.between(0, TICKS).as_secs_f64().max(1e-9);
        self.minimum = (minimum.as_secs_f64() / second * TICKS as f64) as u64;
        self
    }

    /// A thread's own end, to be made in [`thread_started`](crate::hooks::FunctionHooks::thread_started).
    pub fn writer(&self) -> CallWriter<F> {
        CallWriter {
            events: self.events.writer(),
            clock: self.clock.clone(),
            minimum: self.minimum,
            stack: ShadowStack::with_bound(DEEPEST),
            told: 0,
            due: 0,
            alone: Ticks::default(),
            last: self.start,
            has_begun: false,
        }
    }

    /// Has `reader` read from now on, `every` so often or sooner, on a thread called `name`: see [`EventQueue::start`].
    ///
    /// # Errors
    /// Those of [`spawn_profiler_thread`](InTriggers::spawn_profiler_thread).
    pub fn start<R: CallReader<F>>(
        &self,
        cx: &InTriggers<'_>,
        name: &str,
        every: Duration,
        reader: R,
    ) -> io::Result<()> {
        let names = Some(Info::clone(cx));
        self.events.start(cx, name, every, Nesting { reader, clock: self.clock.clone(), start: self.start, names })
    }

    /// How long threads have waited for the reader so far, all together.
    pub fn waited(&self) -> Duration {
        self.events.waited()
    }

    /// Reads what is left and ends the calls that have not ended; says how many beginnings and ends were dropped. To be
    /// called in the profiler's `shutdown`.
    ///
    /// Dropped is only what a reader gets that makes no progress for a second, what more threads than there are buffers do,
    /// and calls more than 1,048,576 deep.
    ///
    /// # Errors
    /// That of the reader; or as [`EventQueue::finish`].
    pub fn finish(&self) -> io::Result<u64> {
        self.events.finish()
    }
}

/// A number of ticks that is long enough to tell how long one is.
const TICKS: u64 = 1_000_000_000;

impl<F: Send + 'static> CallWriter<F> {
    /// A function begins: to be called by [`enter`](crate::hooks::FunctionHooks::enter).
    #[inline]
    pub fn enter(&mut self, cx: &InHook<'_>, function: F) {
        if !self.has_begun {
            cold_call(|| self.begin(cx.current_thread().ok().flatten(), system::os_thread_id()));
        }
        self.enter_at(cx.stack_pointer(), function, self.clock.at(cx));
    }

    /// A function ends: to be called by [`leave`](crate::hooks::FunctionHooks::leave) and by
    /// [`tailcall`](crate::hooks::FunctionHooks::tailcall).
    #[inline]
    pub fn leave(&mut self, cx: &InHook<'_>) {
        self.leave_at(cx.stack_pointer(), self.clock.at(cx));
    }

    /// An exception has left functions: to be called by [`unwound`](crate::hooks::FunctionHooks::unwound). They end now.
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
        if self.told == self.stack.depth() {
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

    /// Ends what is gone, after telling of what has lasted long enough.
    #[inline]
    fn unwound_at(&mut self, boundary: StackBoundary, now: u64) {
        if now >= self.due {
            cold_call(|| self.tell(now));
        }
        while let Some(open) = self.stack.pop_gone(boundary) {
            cold_call(|| self.end(open, now));
        }
    }

    /// A call has ended that is off the stack.
    #[inline]
    fn end(&mut self, open: Open<F>, now: u64) {
        if open.function.is_none() {
            // All around it have been told of, too.
            self.told -= 1;
            self.due = u64::MAX;
            cold_call(|| {
                self.last = now;
                self.events.push_waiting(CallEvent::End { at: now, depth: self.told as u32, folded: open.folded })
            });
            return;
        }
        if self.told == self.stack.depth() {
            self.due = u64::MAX;
        }
        // Processors may differ a little in what they count.
        let folded = Ticks { calls: open.folded.calls + 1, ticks: now.saturating_sub(open.begun) };
        match self.stack.top_mut() {
            Some(caller) => caller.folded.add(folded),
            None => {
                self.alone.add(folded);
                self.last = now;
            }
        }
    }

    /// Tells of the calls that have lasted long enough: the outermost of those that have not been told of.
    fn tell(&mut self, now: u64) {
        self.due = u64::MAX;
        for open in self.stack.frames_from(self.told) {
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
            self.events.push_waiting(CallEvent::Begin { at: open.begun, depth: self.told as u32, function });
            self.told += 1;
        }
    }
}

impl<F: Send + 'static> Drop for CallWriter<F> {
    /// The thread ends, or the profiler: calls that the thread is inside of end now.
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
