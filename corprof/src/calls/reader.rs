//! [`CallReader`]: what is told of the calls in a [`CallLog`](super::CallLog), and how calls are made of the events of hooks.

use std::time::Duration;

use super::queue::EventReader;
use crate::hooks::clock::HookClock;
use crate::id::ThreadId;
use crate::info::Info;
use crate::profiler::BoxError;

/// What a thread has to tell.
#[derive(Debug)]
pub(super) enum CallEvent<F> {
    /// Which thread it is, before anything else.
    Thread {
        thread: Option<ThreadId>,
        os_id: u32,
    },
    /// `depth` calls are around it.
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
    /// Calls that were folded outside of any call.
    Alone {
        at: u64,
        folded: Ticks,
    },
}

/// Calls that were folded, with their time in ticks.
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

/// A thread whose calls are told of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallThread {
    /// Its number in the order of appearance, by which calls name it.
    pub number: u32,
    /// The system's number for it.
    pub os_id: u32,
    /// Its name, if the application has given it one.
    pub name: Option<String>,
}

/// A call that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallBegin<F> {
    /// The thread, by its number in the order of appearance.
    pub thread: u32,
    /// How many calls it is within, of those that are told of.
    pub depth: usize,
    /// When, since the log was made.
    pub at: Duration,
    /// What is called, as the hook has told it.
    pub function: F,
}

/// The innermost call of a thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallEnd {
    /// The thread, by its number in the order of appearance.
    pub thread: u32,
    /// When, since the log was made.
    pub at: Duration,
    /// The calls right within it that were too short to be told of.
    pub folded: FoldedCalls,
}

/// Calls that were shorter than what the log [folds](super::CallLog::folding).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoldedCalls {
    /// How many there were, those within them included.
    pub calls: u64,
    /// How long they took, all together.
    pub time: Duration,
}

/// What is done with a [`CallLog`](super::CallLog).
///
/// Of one thread everything comes in order, of several it does not. After an error it is told nothing more, and
/// [`CallLog::finish`](super::CallLog::finish) hands out the error. Hooks may wait for it: see [`EventWriter::push_waiting`](super::EventWriter::push_waiting) for what it must not do.
pub trait CallReader<F>: Send + 'static {
    /// A thread is about to tell of its first call; or it has another name than was told before.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn thread(&mut self, thread: &CallThread) -> Result<(), BoxError> {
        let _ = thread;
        Ok(())
    }

    /// A call begins, within those of its thread that have not ended.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn begin(&mut self, call: CallBegin<F>) -> Result<(), BoxError>;

    /// The innermost call of a thread has ended.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn end(&mut self, end: CallEnd) -> Result<(), BoxError>;

    /// Calls have ended that were too short to be told of, and were in no call that is. `end` has their thread, and the end of
    /// the last of them.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn alone(&mut self, end: CallEnd) -> Result<(), BoxError> {
        let _ = end;
        Ok(())
    }

    /// There is nothing more to read for now: whoever buffers may write.
    ///
    /// # Errors
    /// If nothing more is to be read.
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// A reader of events that makes calls of them.
pub(super) struct Nesting<R> {
    pub(super) reader: R,
    pub(super) clock: HookClock,
    pub(super) start: u64,
    /// Where threads' names are; none in tests.
    pub(super) names: Option<Info>,
}

/// A thread, as its events tell.
pub(super) struct Thread {
    told: CallThread,
    id: Option<ThreadId>,
    /// The depths of the calls that it is inside of. Should one be lost, the next event's depth tells what has ended.
    open: Vec<u32>,
    /// When it was last heard of.
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

    /// Ends the innermost calls of a thread, as long as their depth is one that is gone.
    fn end<F>(&mut self, thread: &mut Thread, is_gone: impl Fn(u32) -> bool) -> Result<(), BoxError>
    where
        R: CallReader<F>,
    {
        while thread.open.pop_if(|depth| is_gone(*depth)).is_some() {
            let end = CallEnd { thread: thread.told.number, at: thread.last, folded: FoldedCalls::default() };
            self.reader.end(end)?;
        }
        Ok(())
    }
}

impl<F: Send, R: CallReader<F>> EventReader<CallEvent<F>> for Nesting<R> {
    type Thread = Thread;

    fn thread_started(&mut self, number: u32) -> Thread {
        let told = CallThread { number, os_id: 0, name: None };
        Thread { told, id: None, open: Vec::new(), last: Duration::ZERO }
    }

    fn event(&mut self, thread: &mut Thread, event: CallEvent<F>) -> Result<(), BoxError> {
        let number = thread.told.number;
        match event {
            CallEvent::Thread { thread: id, os_id } => {
                thread.id = id;
                thread.told = CallThread { number, os_id, name: self.name(id) };
                self.reader.thread(&thread.told)
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
                // Else its beginning was lost.
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
            name if name.is_some() && name != thread.told.name => {
                self.reader.thread(&CallThread { name, ..thread.told })
            }
            _ => Ok(()),
        }
    }

    fn pause(&mut self) -> Result<(), BoxError> {
        self.reader.pause()
    }
}
