//! What has started an operation: what waits at the end of the run in which that was made, if one of its methods has
//! called it. The source tells who made it only as far as that had waited before.

use rustc_hash::FxHashSet;

use super::{Awaiters, MOST_TURNS, Operation, Origin, place};
use crate::frame::Chain;
use crate::sub_event::DispatcherId;

/// An operation that waited at the end of a run in which another one was made.
#[derive(Debug, Clone)]
pub(in crate::stacks) struct Starter {
    pub(in crate::stacks) dispatcher: DispatcherId,
    /// Its methods when it went on.
    pub(in crate::stacks) chain: Chain,
    /// When it began to wait, and when it went on.
    waited: u64,
    went_on: u64,
}

impl Awaiters {
    /// What waited at the end of the run in which an operation was made that a thread ran at this time, or that which it
    /// goes on from; the outermost first. If one of these methods has called it, that was in this run, and the others
    /// have called that method.
    ///
    /// An operation that had ended by then is left out: what has called it may have gone on and ended in that run, and
    /// others have begun.
    pub(in crate::stacks) fn starters(&self, dispatcher: DispatcherId, ticks: u64) -> Vec<Starter> {
        let Some(operation) = self.operations.get(&dispatcher) else { return Vec::new() };
        let end = self.last(operation).and_then(|last| last.end);
        let end = end.map_or(ticks, |end| end.ticks);
        let mut starters = self.origin(operation).and_then(|origin| self.starters_of(origin)).unwrap_or_default();
        starters.retain(|starter| starter.waited < end);
        starters
    }

    /// The same, of operations that have ended, too; none if it is not known yet.
    fn starters_of(&self, origin: Origin) -> Option<Vec<Starter>> {
        if let Some(starters) = self.starters.get(&origin) {
            return Some(starters.clone());
        }
        let (made, maker) = origin;
        if self.waits(maker) {
            return None;
        }
        let mut starters = Vec::new();
        let end = maker.began.and_then(|began| self.runs.get(&(maker.dispatcher, began))?.end);
        if let Some(((went_on, chain), waited)) = self.next_run(maker).zip(end) {
            starters.push(Starter { dispatcher: maker.dispatcher, chain: chain.clone(), waited, went_on });
        }
        // The outermost is made last, but for the maker itself. Others that were made later are awaited by one of these.
        // Without a maker, it may be another piece of work.
        for (waited, child) in self.made_in(maker).iter().rev().take_while(|(ticks, _)| *ticks > made) {
            let awaiter = self.awaiter(*child).map(|awaiter| awaiter.dispatcher);
            let is_awaited = starters.iter().any(|starter: &Starter| Some(starter.dispatcher) == awaiter);
            let has_waited = is_awaited || starters.is_empty() || maker.dispatcher == 0;
            let waiting = self.operations.get(child).filter(|_| has_waited);
            let run = waiting.and_then(|operation| operation.ran.clone());
            let starter = |(chain, went_on)| Starter { dispatcher: *child, chain, waited: *waited, went_on };
            starters.extend(run.map(starter));
        }
        Some(starters)
    }

    /// Whether the innermost method of an operation has awaited another one, which has ended then: where it has waited,
    /// it went on at the end of such another time.
    pub(in crate::stacks) fn has_awaited(&self, starter: &Starter, awaited: DispatcherId) -> bool {
        let Some(last) = self.operations.get(&awaited).and_then(|operation| self.last(operation)) else { return false };
        let had_ended = last.end.is_some_and(|end| end.ticks <= starter.went_on);
        let awaits = place(&starter.chain).zip(last.outermost());
        had_ended && awaits.is_some_and(|awaits| self.awaits.contains(&awaits))
    }

    /// The last operation of those that go on from each other, if all its methods have ended.
    fn last<'a>(&'a self, operation: &'a Operation) -> Option<&'a Operation> {
        let mut last = operation;
        for _ in 0..MOST_TURNS {
            if last.end?.is_whole {
                return Some(last);
            }
            let (_, turn) = last.child?;
            last = self.operations.get(&turn).filter(|turn| turn.outermost() == last.outermost())?;
        }
        None
    }

    /// Remembers where operations come from and what has started them, before what tells it is forgotten. Answers with the
    /// runs in which operations were made whose starters are not known yet.
    pub(super) fn remember_origins(&mut self, until: u64) -> FxHashSet<(DispatcherId, u64)> {
        let needed = self.operations.iter().filter(|(_, operation)| operation.is_needed(until));
        let mut origins = FxHashSet::default();
        for id in needed.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.take_origin(id);
            origins.extend(self.operations.get(&id).and_then(|operation| self.origin(operation)));
        }
        self.starters.retain(|origin, _| origins.contains(origin));
        let mut unknown = FxHashSet::default();
        for origin in origins.into_iter().filter(|(made, _)| *made <= until) {
            if self.starters.contains_key(&origin) {
                continue;
            }
            let (_, maker) = origin;
            match self.starters_of(origin).filter(|_| self.is_certain(maker)) {
                Some(starters) => _ = self.starters.insert(origin, starters),
                None => unknown.extend(maker.began.map(|began| (maker.dispatcher, began))),
            }
        }
        unknown
    }
}
