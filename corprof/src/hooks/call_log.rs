//! [`CallLog`]: every call in order, with its time, from the hooks to a reader.

use std::io;
use std::time::Duration;

use super::events::{EventReader, EventWriter, Events};
use super::{HookClock, InHook};
use crate::context::InTriggers;
use crate::profiler::BoxError;

/// [`Events`] about calls: hooks write when functions begin and end, and the reader is told of calls that nest.
///
/// An exception leaves functions without a hook, and what there is no room for is dropped; but each event has a stack
/// pointer, and the next one shows what has ended. So for the reader each call ends once, after those within it, whatever
/// was lost; at the time of that next event.
///
/// Memory is bounded as with [`Events`]: `room * threads * (size_of::<F>() + 24)` bytes at most, and 8 bytes on the
/// reader's side for each call that a thread is inside of.
///
/// ```
/// use corprof::hooks::{Call, CallLog, CallReader, CallWriter};
/// use corprof::prelude::*;
/// use std::time::Duration;
///
/// struct Calls(CallLog<FunctionId>);
///
/// impl FunctionHooks for Calls {
///     type Function = ();
///     type Thread = CallWriter<FunctionId>;
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
/// }
///
/// struct Print;
///
/// impl CallReader<FunctionId> for Print {
///     fn begin(&mut self, call: Call<FunctionId>) -> Result<(), BoxError> {
///         println!("{:?} thread {} calls {:?}", call.at, call.thread, call.function);
///         Ok(())
///     }
///     fn end(&mut self, thread: u32, at: Duration) -> Result<(), BoxError> {
///         println!("{at:?} thread {thread} is back");
///         Ok(())
///     }
/// }
/// ```
#[derive(Debug)]
pub struct CallLog<F> {
    events: Events<Event<F>>,
    clock: HookClock,
    start: u64,
}

/// A beginning or an end.
#[derive(Debug)]
struct Event<F> {
    /// None for an end.
    function: Option<F>,
    stack_pointer: usize,
    at: u64,
}

/// A call that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<F> {
    /// The thread, by its number in the order of appearance.
    pub thread: u32,
    /// How many calls it is within, of those in the log.
    pub depth: usize,
    /// When, since the log was made.
    pub at: Duration,
    /// What is called, as the hook has told it.
    pub function: F,
}

/// What is done with a [`CallLog`].
///
/// After an error it is told nothing more, and [`CallLog::finish`] hands out the error.
pub trait CallReader<F>: Send + 'static {
    /// A call begins, within those of its thread that have not ended.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn begin(&mut self, call: Call<F>) -> Result<(), BoxError>;

    /// The innermost call of a thread has ended, at that time since the log was made.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn end(&mut self, thread: u32, at: Duration) -> Result<(), BoxError>;

    /// There is nothing more to read for now: whoever buffers may write.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// One thread's end of a [`CallLog`].
#[derive(Debug)]
pub struct CallWriter<F> {
    events: EventWriter<Event<F>>,
    clock: HookClock,
}

impl<F: Send + 'static> CallLog<F> {
    /// A log with buffers for at most `threads` threads at a time, of `room` beginnings and ends each, as in
    /// [`Events::new`]. It takes up to 200 ms to learn how fast the processor counts.
    pub fn new(room: usize, threads: usize) -> Self {
        let clock = HookClock::new();
        Self { events: Events::new(room, threads), start: clock.now(), clock }
    }

    /// A thread's own end, to be made in [`thread_started`](super::FunctionHooks::thread_started).
    pub fn writer(&self) -> CallWriter<F> {
        CallWriter { events: self.events.writer(), clock: self.clock.clone() }
    }

    /// Has `reader` read from now on, `every` so often, on a thread called `name`: see [`Events::start`].
    ///
    /// # Errors
    /// Those of [`spawn_own_thread`](InTriggers::spawn_own_thread).
    pub fn start<R: CallReader<F>>(
        &self,
        cx: &InTriggers<'_>,
        name: &str,
        every: Duration,
        reader: R,
    ) -> io::Result<()> {
        let (clock, start) = (self.clock.clone(), self.start);
        self.events.start(cx, name, every, Nesting { reader, clock, start })
    }

    /// Reads what is left and ends the calls that have not ended; says how many beginnings and ends were dropped. To be
    /// called in the profiler's `shutdown`.
    ///
    /// # Errors
    /// That of the reader; or as [`Events::finish`].
    pub fn finish(&self) -> io::Result<u64> {
        self.events.finish()
    }
}

impl<F: Send + 'static> CallWriter<F> {
    /// A function begins. Dropped and counted if there is no room.
    #[inline]
    pub fn enter(&mut self, cx: &InHook<'_>, function: F) {
        self.events.push(Event { function: Some(function), stack_pointer: cx.stack_pointer(), at: self.clock.at(cx) });
    }

    /// A function ends, by returning or in a tail call. Dropped and counted if there is no room.
    #[inline]
    pub fn leave(&mut self, cx: &InHook<'_>) {
        self.events.push(Event { function: None, stack_pointer: cx.stack_pointer(), at: self.clock.at(cx) });
    }
}

/// A reader of events that makes calls of them.
struct Nesting<R> {
    reader: R,
    clock: HookClock,
    start: u64,
}

/// A thread, as its events tell.
struct Thread {
    number: u32,
    /// The stack pointers of the callers that it is inside of.
    callers: Vec<usize>,
    /// When it was last heard of.
    last: u64,
}

impl<R> Nesting<R> {
    fn since_start(&self, at: u64) -> Duration {
        self.clock.between(self.start, at)
    }
}

impl<F: Send, R: CallReader<F>> EventReader<Event<F>> for Nesting<R> {
    type Thread = Thread;

    fn thread_started(&mut self, number: u32) -> Thread {
        Thread { number, callers: Vec::new(), last: self.start }
    }

    fn event(&mut self, thread: &mut Thread, event: Event<F>) -> Result<(), BoxError> {
        thread.last = event.at;
        let at = self.since_start(event.at);
        // Callers lie above what they call: so what is not above this call's caller has ended, itself included.
        while thread.callers.pop_if(|caller| *caller <= event.stack_pointer).is_some() {
            self.reader.end(thread.number, at)?;
        }
        let Some(function) = event.function else { return Ok(()) };
        let call = Call { thread: thread.number, depth: thread.callers.len(), at, function };
        thread.callers.push(event.stack_pointer);
        self.reader.begin(call)
    }

    fn thread_ended(&mut self, thread: Thread) -> Result<(), BoxError> {
        let at = self.since_start(thread.last);
        thread.callers.iter().try_for_each(|_| self.reader.end(thread.number, at))
    }

    fn pause(&mut self) -> Result<(), BoxError> {
        self.reader.pause()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts down what it is told, until it is told of '!'.
    #[derive(Default)]
    struct Notes(String);

    impl CallReader<char> for Notes {
        fn begin(&mut self, call: Call<char>) -> Result<(), BoxError> {
            if call.function == '!' {
                return Err("full".into());
            }
            self.0 += &format!("{}{} ", call.function, call.depth);
            Ok(())
        }
        fn end(&mut self, _thread: u32, _at: Duration) -> Result<(), BoxError> {
            self.0 += "end ";
            Ok(())
        }
    }

    fn notes(events: &[(Option<char>, usize)]) -> String {
        let mut reader = Nesting { reader: Notes::default(), clock: HookClock::new(), start: 0 };
        let mut thread = EventReader::<Event<char>>::thread_started(&mut reader, 0);
        for &(function, stack_pointer) in events {
            reader.event(&mut thread, Event { function, stack_pointer, at: 0 }).unwrap();
        }
        EventReader::<Event<char>>::thread_ended(&mut reader, thread).unwrap();
        reader.reader.0
    }

    #[test]
    fn calls_nest() {
        let events = [(Some('a'), 9), (Some('b'), 8), (None, 8), (Some('c'), 8), (None, 8), (None, 9)];
        assert_eq!(notes(&events), "a0 b1 end c1 end end ");
    }

    #[test]
    fn what_an_exception_left_has_ended_before_the_next_call() {
        assert_eq!(
            notes(&[(Some('a'), 9), (Some('b'), 8), (Some('c'), 7), (Some('d'), 8)]),
            "a0 b1 c2 end end d1 end end "
        );
    }

    #[test]
    fn whatever_is_lost_each_call_ends_once() {
        // The end of `b`; the beginning of what ends at 8; the end of all.
        assert_eq!(notes(&[(Some('a'), 9), (Some('b'), 8), (None, 9)]), "a0 b1 end end ");
        assert_eq!(notes(&[(Some('a'), 9), (None, 8), (None, 9)]), "a0 end ");
        assert_eq!(notes(&[(Some('a'), 9), (Some('b'), 8)]), "a0 b1 end end ");
    }
}
