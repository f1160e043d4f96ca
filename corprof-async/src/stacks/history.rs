//! What a thread ran at each time.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use rustc_hash::FxHashMap;

use crate::frame::{Chain, Kind};
use crate::oldest;
use crate::sub_event::DispatcherId;

/// Tells runs apart.
pub(super) type RunNumber = NonZeroU64;

/// What a thread ran from one time on. There are some hundred thousand.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) ticks: u64,
    /// The run of the innermost operation.
    pub(super) top: Option<RunNumber>,
    /// The position in its chain of the method that wrapper 0 calls.
    pub(super) base: i32,
    /// How many of its methods have returned.
    pub(super) completed: u32,
}

/// An operation while it runs on a thread.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) kind: Kind,
    pub(super) dispatcher: DispatcherId,
    pub(super) chain: Option<Chain>,
    /// When it was over.
    pub(super) end: Option<u64>,
}

impl Run {
    fn frames(&self) -> usize {
        self.chain.as_ref().map_or(0, |chain| chain.len())
    }
}

/// What a thread ran.
#[derive(Debug, Default)]
pub(super) struct History {
    states: VecDeque<State>,
    runs: FxHashMap<RunNumber, Run>,
    /// How many frames the chains of the runs have.
    frames: usize,
    /// All up to here is known.
    pub(super) known_until: u64,
}

impl History {
    pub(super) fn begin(&mut self, number: RunNumber, run: Run) {
        self.frames += run.frames();
        self.runs.insert(number, run);
    }

    pub(super) fn set_chain(&mut self, number: RunNumber, chain: Chain) {
        if let Some(run) = self.runs.get_mut(&number) {
            self.frames -= run.frames();
            run.chain = Some(chain);
            self.frames += run.frames();
        }
    }

    pub(super) fn end(&mut self, number: RunNumber, ticks: u64) {
        if let Some(run) = self.runs.get_mut(&number) {
            run.end = Some(ticks);
        }
    }

    /// Adds a state. It is older than the last one only where the system has given the number of the thread to another
    /// thread.
    pub(super) fn push(&mut self, state: State) {
        match self.states.back_mut() {
            // No time is between the two.
            Some(last) if last.ticks == state.ticks => *last = state,
            Some(last) if last.ticks > state.ticks => self.insert(state),
            _ => self.states.push_back(state),
        }
    }

    fn insert(&mut self, state: State) {
        let at = self.states.partition_point(|other| other.ticks <= state.ticks);
        self.states.insert(at, state);
    }

    pub(super) fn at(&self, ticks: u64) -> Option<(State, &Run)> {
        let after = self.states.partition_point(|state| state.ticks <= ticks);
        let state = *self.states.get(after.checked_sub(1)?)?;
        let run = self.runs.get(&state.top?)?;
        Some((state, run))
    }

    /// How much memory it takes, in states: four frames take more than one. Equal chains share theirs, so this is at
    /// most.
    pub(super) fn weight(&self) -> usize {
        self.states.len() + self.frames / 4
    }

    /// Drops what was before, but for the state that lasts at that time.
    pub(super) fn release(&mut self, until: u64) {
        let after = self.states.partition_point(|state| state.ticks <= until);
        self.drop_first(after.saturating_sub(1));
    }

    /// Drops the older half. Answers with how many states were dropped.
    pub(super) fn halve(&mut self) -> usize {
        let half = self.states.len() / 2;
        self.drop_first(half);
        half
    }

    fn drop_first(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.states.drain(..count);
        let first = self.states.front().map_or(0, |state| state.ticks);
        oldest::forget(&mut self.runs, |_, run| run.end.is_none_or(|end| end > first));
        self.frames = self.runs.values().map(Run::frames).sum();
        // A deque does not give memory back by itself.
        if self.states.capacity() > 4 * self.states.len() + 256 {
            self.states.shrink_to(2 * self.states.len());
        }
    }
}
