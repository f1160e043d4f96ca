//! [`CallReader`]: receives the calls of a [`CallLog`](super::CallLog). Also turns the events of hooks into calls.

use std::time::Duration;

use super::queue::EventReader;
use crate::hooks::clock::HookClock;
use crate::id::ThreadId;
use crate::info::Info;
use crate::profiler::BoxError;

/// An event of a thread.
#[derive(Debug)]
pub(super) enum CallEvent<F> {
    /// The thread's identity, before anything else.
    Thread {
        thread: Option<ThreadId>,
        os_id: u32,
    },
    /// A call begins within `depth` others.
    Begin {
        at: u64,
        depth: u32,
        function: F,
    },
    End {
        at: u64,
        depth: u32,
        folded: Ticks,
    },
    /// Calls that were folded outside any call.
    Alone {
        at: u64,
        folded: Ticks,
    },
}

/// Folded calls, with their time in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    pub(super) calls: u64,
    pub(super) ticks: u64,
}

impl Ticks {
    pub(super) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.ticks += other.ticks;
    }
}

/// A thread with recorded calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallThread {
    /// Its number, in the order of appearance; calls refer to it.
    pub number: u32,
    /// The operating system's id of the thread.
    pub os_id: u32,
    /// Its name, if the application has set one.
    pub name: Option<String>,
}

/// A call that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallBegin<F> {
    /// The number of the thread.
    pub thread: u32,
    /// How many recorded calls it is within.
    pub depth: usize,
    /// The time since the log was made.
    pub at: Duration,
    /// The called function, as the hook wrote it.
    pub function: F,
}

/// The end of a thread's innermost call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallEnd {
    /// The number of the thread.
    pub thread: u32,
    /// The time since the log was made.
    pub at: Duration,
    /// The calls directly within it that were too short to be recorded.
    pub folded: FoldedCalls,
}

/// Calls shorter than the minimum of [`CallLog::folding`](super::CallLog::folding).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoldedCalls {
    /// How many calls, including those within them.
    pub calls: u64,
    /// Their total time.
    pub time: Duration,
}

/// Receives the calls of a [`CallLog`](super::CallLog).
///
/// Calls of one thread come in order, those of different threads do not. After an error the reader receives nothing
/// more, and [`CallLog::finish`](super::CallLog::finish) returns the error. Hooks may wait for it: see
/// [`EventWriter::push_waiting`](super::EventWriter::push_waiting) for what it must not do.
pub trait CallReader<F>: Send + 'static {
    /// A thread is about to write its first call, or its name has changed.
    ///
    /// # Errors
    /// An error ends the reading.
    fn thread(&mut self, thread: &CallThread) -> Result<(), BoxError> {
        let _ = thread;
        Ok(())
    }

    /// A call begins, within those of its thread that have not ended.
    ///
    /// # Errors
    /// An error ends the reading.
    fn begin(&mut self, call: CallBegin<F>) -> Result<(), BoxError>;

    /// The innermost call of a thread has ended.
    ///
    /// # Errors
    /// An error ends the reading.
    fn end(&mut self, end: CallEnd) -> Result<(), BoxError>;

    /// Calls have ended that were too short to be recorded, and were outside any recorded call. `end` has their thread,
    /// and the end of the last of them.
    ///
    /// # Errors
    /// An error ends the reading.
    fn alone(&mut self, end: CallEnd) -> Result<(), BoxError> {
        let _ = end;
        Ok(())
    }

    /// All events so far have been read: a reader that buffers its output may write it now.
    ///
    /// # Errors
    /// An error ends the reading.
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Reads events and passes calls to a [`CallReader`].
pub(super) struct Nesting<R> {
    pub(super) reader: R,
    pub(super) clock: HookClock,
    pub(super) start: u64,
    /// The source of threads' names; none in tests.
    pub(super) names: Option<Info>,
}

/// The state of a thread, by its events.
pub(super) struct Thread {
    described: CallThread,
    id: Option<ThreadId>,
    /// The depths of the calls that it is inside of. If an event is lost, the depth of the next one shows which calls
    /// have ended.
    open: Vec<u32>,
    /// The time of its last event.
    last: Duration,
}

impl<R> Nesting<R> {
    fn since_start(&self, at: u64) -> Duration {
        self.clock.between(self.start, at)
    }

    fn folded(&self, folded: Ticks) -> FoldedCalls {
        FoldedCalls { calls: folded.calls, time: self.clock.between(0, folded.ticks) }
    }

    fn name(&self, thread: Option<ThreadId>) -> Option<String> {
        self.names.as_ref()?.thread_names().of(thread?).map(|name| name.to_string())
    }

    /// Ends the innermost calls of a thread as long as `is_gone` is true of their depth.
    fn end<F>(&mut self, thread: &mut Thread, is_gone: impl Fn(u32) -> bool) -> Result<(), BoxError>
    where
        R: CallReader<F>,
    {
        while thread.open.pop_if(|depth| is_gone(*depth)).is_some() {
            let end = CallEnd { thread: thread.described.number, at: thread.last, folded: FoldedCalls::default() };
            self.reader.end(end)?;
        }
        Ok(())
    }
}

impl<F: Send, R: CallReader<F>> EventReader<CallEvent<F>> for Nesting<R> {
    type Thread = Thread;

    fn thread_started(&mut self, number: u32) -> Thread {
        let described = CallThread { number, os_id: 0, name: None };
        Thread { described, id: None, open: Vec::new(), last: Duration::ZERO }
    }

    fn event(&mut self, thread: &mut Thread, event: CallEvent<F>) -> Result<(), BoxError> {
        let number = thread.described.number;
        match event {
            CallEvent::Thread { thread: id, os_id } => {
                thread.id = id;
                thread.described = CallThread { number, os_id, name: self.name(id) };
                self.reader.thread(&thread.described)
            }
            CallEvent::Begin { at, depth, function } => {
                thread.last = self.since_start(at);
                self.end(thread, |open| open >= depth)?;
                let call = CallBegin { thread: number, depth: thread.open.len(), at: thread.last, function };
                thread.open.push(depth);
                self.reader.begin(call)
            }
            CallEvent::End { at, depth, folded } => {
                thread.last = self.since_start(at);
                self.end(thread, |open| open > depth)?;
                let end = CallEnd { thread: number, at: thread.last, folded: self.folded(folded) };
                // Otherwise its beginning was lost.
                if thread.open.pop_if(|open| *open == depth).is_some() { self.reader.end(end) } else { Ok(()) }
            }
            CallEvent::Alone { at, folded } => {
                thread.last = self.since_start(at);
                self.end(thread, |_| true)?;
                self.reader.alone(CallEnd { thread: number, at: thread.last, folded: self.folded(folded) })
            }
        }
    }

    fn thread_ended(&mut self, mut thread: Thread) -> Result<(), BoxError> {
        self.end(&mut thread, |_| true)?;
        // It may have been named while it ran.
        match self.name(thread.id) {
            name if name.is_some() && name != thread.described.name => {
                self.reader.thread(&CallThread { name, ..thread.described })
            }
            _ => Ok(()),
        }
    }

    fn pause(&mut self) -> Result<(), BoxError> {
        self.reader.pause()
    }
}
