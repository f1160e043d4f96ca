//! The timeline of an operation.

use crate::frame::{Chain, Kind};
use crate::queue::Queued;
use crate::sub_event::DispatcherId;

/// What happened to an operation: it was made, then it ran and waited in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The operation.
    pub dispatcher: DispatcherId,
    /// How its methods were compiled.
    pub kind: Kind,
    /// The operation that made it, or 0.
    pub parent: DispatcherId,
    /// When it was made, in ticks of the trace; for the operation that a [`Request`](crate::Request) came to, when the
    /// request began.
    pub created: u64,
    /// Where it waits from then on, if the source tells.
    pub place: Option<Chain>,
    /// When it ran, in order of time.
    pub runs: Vec<Run>,
    /// When it ended, if it has.
    pub completed: Option<u64>,
}

/// An operation ran on a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The system's number of the thread.
    pub thread: u64,
    /// When it was resumed, in ticks of the trace.
    pub from: u64,
    /// When it was suspended or ended. None while it runs, also if it runs on after the end of the request.
    pub to: Option<u64>,
    /// Since when it is not known whether it runs on: the application ended before the thread had told
    /// ([`Requests::finish_cut_off`](crate::Requests::finish_cut_off)). None if it has an end, or runs on.
    pub unknown_from: Option<u64>,
    /// Its methods when it was resumed, if the source tells.
    pub chain: Option<Chain>,
    /// Where it waits from then on, if the source tells.
    pub place: Option<Chain>,
    /// When the work that the thread ran was in the queue of the thread pool. None if it was not, or if that is not
    /// told.
    pub queued: Option<Queued>,
}

/// A wait of an [`Operation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationWait<'a> {
    /// When it began, in ticks of the trace.
    pub from: u64,
    /// When the operation was resumed. None while it waits.
    pub to: Option<u64>,
    /// Where: its methods at the beginning of the wait, or else at the end.
    pub place: Option<&'a Chain>,
    /// When the work that resumed it was in the queue of the thread pool, within the wait. None if it was not, or if
    /// that is not told.
    pub queued: Option<Queued>,
}

impl Run {
    /// One that begins.
    pub(crate) fn new(thread: u64, from: u64, chain: Option<Chain>, queued: Option<Queued>) -> Self {
        Self { thread, from, to: None, unknown_from: None, chain, place: None, queued }
    }

    /// Up to when it is known to have run, in ticks of the trace; a run that goes on, up to `end`.
    #[must_use]
    pub fn known_until(&self, end: u64) -> u64 {
        self.to.or(self.unknown_from).unwrap_or(end)
    }
}

impl Operation {
    /// When it waited, in order of time.
    pub fn waits(&self) -> impl Iterator<Item = OperationWait<'_>> {
        let first = Some((Some(self.created), self.place.as_ref()));
        let others = self.runs.iter().map(|run| (run.to, run.place.as_ref()));
        first.into_iter().chain(others).enumerate().filter_map(|(index, (from, place))| {
            let from = from?;
            let next = self.runs.get(index);
            let to = next.map(|run| run.from);
            let has_ended = next.is_none() && self.completed.is_some();
            let place = place.or_else(|| next?.chain.as_ref());
            let queued = next.and_then(|run| run.queued?.within(from, run.from));
            // That of a request begins with a run.
            let is_wait = !has_ended && to != Some(from);
            is_wait.then_some(OperationWait { from, to, place, queued })
        })
    }

    /// How long it is known to have run, in ticks of the trace; a run that goes on counts up to `end`.
    #[must_use]
    pub fn running(&self, end: u64) -> u64 {
        self.runs.iter().map(|run| run.known_until(end).saturating_sub(run.from)).fold(0, u64::saturating_add)
    }
}
