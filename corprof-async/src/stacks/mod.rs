//! Logical stacks: what each thread runs, who awaits it, and who made it.

mod awaiters;
mod chains;
mod creators;
mod history;
mod join;
mod stream;
mod turn;

use std::borrow::Borrow;

use awaiters::Awaiters;
use chains::Chains;
use creators::Creators;
pub use creators::Segment;
use history::{History, Run, State};
pub use join::{LogicalFrame, LogicalStack, Origin, Outcome, WrapperMatch};
use rustc_hash::{FxHashMap, FxHashSet};
use stream::Stream;
use turn::Turn;

use crate::decoder::{Buffer, StreamId};
use crate::frame::{Chain, Kind};
use crate::oldest;
use crate::step::Step;
use crate::sub_event::{DispatcherId, SubEvent};

/// Bounds of the memory of [`LogicalStacks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Threads. Of more, those that have done nothing for the longest time are forgotten, until their next
    /// [`Reset`](crate::Action::Reset).
    pub threads: usize,
    /// Operations that one thread runs inside of each other. What a thread runs beyond is not followed.
    pub depth: usize,
    /// Methods of one operation, of 16 bytes each. Equal chains share their memory.
    pub frames: usize,
    /// Changes of what threads run, between two [releases](LogicalStacks::release), and a fourth of the methods of what
    /// they ran. Of more, the older half is forgotten. A change takes 24 bytes, and a resumption about 100 besides.
    pub states: usize,
    /// Operations that have not ended and whose creator is known, and a sixteenth of the methods of their creators. Of
    /// more, the oldest are forgotten. An operation takes about 150 bytes, and 40 for each of its creators. About as
    /// many are remembered for who awaited them, of 190 bytes each, and as many runs of about 150.
    pub operations: usize,
    /// Operations in a stack that are known to await each other only since the inner one has ended. With 0, awaiting
    /// methods are those of one chain alone, and others are creators.
    pub awaiters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threads: 16_384, depth: 256, frames: 1024, states: 1 << 20, operations: 1 << 17, awaiters: 16 }
    }
}

/// Counts of what [`LogicalStacks`] has taken and forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Sub-events of threads that had been reset.
    pub sub_events: u64,
    /// Sub-events that were ignored because nothing was known about their thread yet.
    pub ignored: u64,
    /// Ends of methods, of suspensions and of operations whose thread runs no operation of their kind.
    pub unmatched: u64,
    /// Ends of methods of a [`Kind`] while the innermost operation of the thread was of the other.
    pub interleaved: u64,
    /// Resumptions that were not followed because a thread runs too many operations inside of each other.
    pub too_deep: u64,
    /// Changes that were forgotten because of [`Limits::states`].
    pub forgotten_states: u64,
    /// Operations that were forgotten because of [`Limits::operations`].
    pub forgotten_operations: u64,
    /// Threads that were forgotten because of [`Limits::threads`].
    pub forgotten_threads: u64,
}

/// Finds out what each thread ran at each time, from the sub-events of all threads.
///
/// Those of one [stream](StreamId) must come in order of time, those of several may come in any order. Ask about a time
/// when the buffers of that time have come ([`known_until`](Self::known_until)), then [release](Self::release) it: what
/// was before is dropped.
#[derive(Debug, Default)]
pub struct LogicalStacks {
    limits: Limits,
    streams: FxHashMap<StreamId, Stream>,
    threads: FxHashMap<u64, History>,
    creators: Creators,
    awaiters: Awaiters,
    chains: Chains,
    /// How many wrappers the runtime has, if it has told.
    wrappers: Option<u8>,
    /// Ticks a second, if the runtime has told.
    frequency: Option<u64>,
    /// The sum of the weights of all histories.
    weight: usize,
    next: u64,
    stats: Stats,
}

/// The operation that a thread ran at some time.
#[derive(Debug, Clone, Copy)]
pub struct Active<'a> {
    state: State,
    run: &'a Run,
}

impl<'a> Active<'a> {
    /// The operation.
    #[must_use]
    pub fn dispatcher(&self) -> DispatcherId {
        self.run.dispatcher
    }

    /// How its methods were compiled.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.run.kind
    }

    /// Its methods when it was resumed, the innermost first. None if the source has not told them.
    #[must_use]
    pub fn chain(&self) -> Option<&'a Chain> {
        self.run.chain.as_ref()
    }

    /// How many of the methods had returned or were left by exceptions, if the source tells.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.state.completed
    }

    /// The position in the chain of the method that `Continuation_Wrapper_N` calls. It may be outside of the chain.
    #[must_use]
    pub fn position_of_wrapper(&self, n: u8) -> i64 {
        i64::from(self.state.base).saturating_add(n.into())
    }
}

impl LogicalStacks {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With other bounds of memory.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes a buffer, which was written at `written` (the time of its event): all that its thread did up to then is
    /// known. `step` receives what happened to operations.
    pub fn take_buffer(&mut self, buffer: &Buffer<'_>, written: u64, step: impl FnMut(Step)) {
        self.take_all(buffer.stream(), buffer.sub_events(), step);
        self.settle(buffer.stream(), written);
    }

    /// Takes a sub-event of a source. `step` receives what happened to operations.
    pub fn take(&mut self, id: StreamId, sub_event: &SubEvent<'_>, step: impl FnMut(Step)) {
        self.take_all(id, std::iter::once(sub_event), step);
    }

    fn take_all<'a, S: Borrow<SubEvent<'a>>>(
        &mut self,
        id: StreamId,
        sub_events: impl Iterator<Item = S>,
        mut step: impl FnMut(Step),
    ) {
        self.make_room(id);
        let history = self.threads.entry(id.thread).or_default();
        let before = history.weight();
        let mut turn = Turn {
            id,
            ticks: 0,
            limits: &self.limits,
            stream: self.streams.entry(id).or_default(),
            history,
            creators: &mut self.creators,
            awaiters: &mut self.awaiters,
            chains: &mut self.chains,
            wrappers: &mut self.wrappers,
            frequency: &mut self.frequency,
            next: &mut self.next,
            stats: &mut self.stats,
            step: &mut step,
            just_ended: None,
        };
        for sub_event in sub_events {
            turn.take(sub_event.borrow());
        }
        self.weight = self.weight + turn.history.weight() - before;
        self.forget_states();
    }

    /// All that the stream's thread did up to this time has been taken.
    pub fn settle(&mut self, id: StreamId, until: u64) {
        if let Some(history) = self.threads.get_mut(&id.thread) {
            history.known_until = history.known_until.max(until);
        }
    }

    /// All that all threads did up to this time has been taken: they were asked, and have had the
    /// [`ANSWER_TIME`](crate::ANSWER_TIME).
    pub fn settle_all(&mut self, until: u64) {
        self.awaiters.settle_all(until);
    }

    /// Forgets what the thread runs, until its next [`Reset`](crate::Action::Reset): a part of its stream was lost.
    pub fn forget(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        let Some(history) = self.threads.get_mut(&id.thread) else { return };
        for running in &stream.stack {
            history.end(running.number, stream.last);
        }
        let before = history.weight();
        history.push(State { ticks: stream.last, top: None, base: 0, completed: 0 });
        self.weight += history.weight() - before;
    }

    /// The time up to which all is known that the thread did; 0 if none of its sub-events has come. A thread that runs
    /// no async code has nothing to tell, so this may be long ago, unless [all were asked](Self::settle_all).
    #[must_use]
    pub fn known_until(&self, thread: u64) -> u64 {
        self.threads.get(&thread).map_or(0, |history| history.known_until).max(self.awaiters.settled_until)
    }

    /// The innermost operation that the thread ran. After [`known_until`](Self::known_until), it is what ran last,
    /// which may be over.
    #[must_use]
    pub fn active(&self, thread: u64, ticks: u64) -> Option<Active<'_>> {
        let (state, run) = self.threads.get(&thread)?.at(ticks)?;
        Some(Active { state, run })
    }

    /// Who made an operation: the chain that ran then, from the method that ran on, then who made that operation, and
    /// so on. Empty if the source has not told its creation, as of operations from before its start.
    #[must_use]
    pub fn creators(&self, dispatcher: DispatcherId) -> Vec<Segment> {
        self.creators.trail(dispatcher)
    }

    /// Whether buffers that have not come may tell more of who awaited what the thread ran, or has started it: an
    /// operation, or one that awaited it, has not ended, or it is not certain yet, up to [`settle_all`](Self::settle_all),
    /// who made it. What began before `since`, or before the source, is taken for one that does not end.
    #[must_use]
    pub fn awaits_an_end(&self, thread: u64, ticks: u64, since: u64) -> bool {
        self.active(thread, ticks)
            .is_some_and(|active| self.awaiters.is_open(active.dispatcher(), since, self.limits.awaiters))
    }

    /// The operation that made another one, while that has not ended.
    #[must_use]
    pub fn parent(&self, dispatcher: DispatcherId) -> Option<DispatcherId> {
        self.creators.parent(dispatcher)
    }

    /// Drops what is older: the caller will ask about nothing before, and all buffers up to this time have come, as far
    /// as they will.
    pub fn release(&mut self, until: u64) {
        self.settle_all(until);
        for history in self.threads.values_mut() {
            let before = history.weight();
            history.release(until);
            self.weight -= before - history.weight();
        }
        self.creators.release(until);
        self.awaiters.release(until);
    }

    /// Counts of what was taken and forgotten.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// How much is held: what [`Limits::states`] and [`Limits::operations`] bound.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (self.weight, self.creators.weight())
    }

    /// Forgets half of the threads if a new one is one too many.
    fn make_room(&mut self, id: StreamId) {
        if self.streams.len() < self.limits.threads || self.streams.contains_key(&id) {
            return;
        }
        self.stats.forgotten_threads += oldest::forget_half(&mut self.streams, |stream| stream.last) as u64;
        let kept: FxHashSet<u64> = self.streams.keys().map(|stream| stream.thread).collect();
        self.threads.retain(|thread, _| kept.contains(thread));
        self.weight = self.threads.values().map(History::weight).sum();
    }

    /// Forgets the older half of each history if there is too much, and all threads if that does not help.
    fn forget_states(&mut self) {
        if self.weight <= self.limits.states {
            return;
        }
        for history in self.threads.values_mut() {
            self.stats.forgotten_states += history.halve() as u64;
        }
        self.weight = self.threads.values().map(History::weight).sum();
        if self.weight > self.limits.states {
            self.stats.forgotten_threads += self.streams.len() as u64;
            self.streams.clear();
            self.threads.clear();
            self.weight = 0;
        }
    }
}
