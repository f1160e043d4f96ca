//! What a request did at each time.

use corprof_async::{Chain, Operation, Request};

/// A part of a request's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// In ticks of the trace.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) does: Does,
    /// The methods of the operation that ran, the innermost first; of those that waited, what goes on first comes
    /// first.
    pub(super) chains: Vec<Chain>,
}

/// The most operations that wait at once whose methods are kept.
const MOST_CHAINS: usize = 8;

/// What it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// No operation is known to have run or waited.
    Nothing,
    Waits,
    /// It waits, and what will resume it is in the queue of the thread pool.
    Queued,
    Runs,
}

impl Does {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "unknown",
            Self::Waits => "waits",
            Self::Queued => "queued",
            Self::Runs => "runs",
        }
    }

    pub(super) fn is_wait(self) -> bool {
        matches!(self, Self::Waits | Self::Queued)
    }
}

impl Part {
    pub(super) fn length(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The parts of a request's time, which add up to the whole. Where several of its operations run or wait at once, a run
/// counts, and then what goes on first: what the others wait for ends before they go on. When they were made does not
/// tell it: at its first wait, an inner method is suspended before those that await it, at others it was called by
/// these.
pub(super) fn parts(request: &Request) -> Vec<Part> {
    let spans = spans(request);
    let mut bounds: Vec<u64> = spans.iter().flat_map(|span| [span.from, span.to]).collect();
    bounds.extend([request.from, request.to]);
    bounds.sort_unstable();
    bounds.dedup();
    let mut parts: Vec<Part> = Vec::new();
    for (from, to) in bounds.iter().zip(bounds.iter().skip(1)) {
        let mut there: Vec<&Span<'_>> = spans.iter().filter(|span| span.from <= *from && *to <= span.to).collect();
        there.sort_by_key(|span| span.goes_on);
        let shown = there.iter().find(|span| span.does == Does::Runs).or(there.first()).copied();
        let does = shown.map_or(Does::Nothing, |span| span.does);
        let chains = match shown {
            Some(wait) if does.is_wait() => waiting(wait, &there),
            shown => shown.and_then(|span| span.chain.cloned()).into_iter().collect(),
        };
        match parts.last_mut() {
            Some(last) if last.does == does && last.chains == chains => last.to = *to,
            _ => parts.push(Part { from: *from, to: *to, does, chains }),
        }
    }
    parts
}

/// The methods of the operations that wait, those of `first` first; none if its are not told.
fn waiting(first: &Span<'_>, there: &[&Span<'_>]) -> Vec<Chain> {
    let mut chains: Vec<Chain> = first.chain.cloned().into_iter().collect();
    let others = if chains.is_empty() { &[] } else { there };
    for chain in others.iter().filter_map(|span| span.chain) {
        if !chains.contains(chain) {
            chains.push(chain.clone());
        }
    }
    chains.truncate(MOST_CHAINS);
    chains
}

/// A run or a wait of one operation, within the request's time.
struct Span<'r> {
    from: u64,
    to: u64,
    does: Does,
    chain: Option<&'r Chain>,
    /// When the run or the whole wait ends.
    goes_on: u64,
}

/// What one operation of a request did, in order of time.
pub(super) fn parts_of(request: &Request, operation: &Operation) -> Vec<Part> {
    let mut spans = spans_of(request, operation);
    spans.sort_by_key(|span| span.from);
    let part = |span: Span<'_>| {
        let chains = span.chain.cloned().into_iter().collect();
        Part { from: span.from, to: span.to, does: span.does, chains }
    };
    spans.into_iter().map(part).collect()
}

/// Of all operations, in the order in which they were made.
fn spans(request: &Request) -> Vec<Span<'_>> {
    request.operations.iter().flat_map(|operation| spans_of(request, operation)).collect()
}

fn spans_of<'r>(request: &Request, operation: &'r Operation) -> Vec<Span<'r>> {
    let mut spans = Vec::new();
    let mut add = |from: u64, to: Option<u64>, does, chain, goes_on: Option<u64>| {
        let from = from.max(request.from);
        let to = to.unwrap_or(request.to).min(request.to);
        if from < to {
            spans.push(Span { from, to, does, chain, goes_on: goes_on.unwrap_or(u64::MAX) });
        }
    };
    for run in &operation.runs {
        add(run.from, Some(run.known_until(request.to)), Does::Runs, run.chain.as_ref(), run.to);
    }
    for wait in operation.waits() {
        let Some(queued) = wait.queued else {
            add(wait.from, wait.to, Does::Waits, wait.place, wait.to);
            continue;
        };
        add(wait.from, Some(queued.from), Does::Waits, wait.place, wait.to);
        add(queued.from, Some(queued.to), Does::Queued, wait.place, wait.to);
        add(queued.to, wait.to, Does::Waits, wait.place, wait.to);
    }
    spans
}

#[cfg(test)]
mod tests {
    use corprof_async::{DispatcherId, Frame, Kind, Operation, Queued, Run};

    use super::*;

    fn chain(address: u64) -> Chain {
        [Frame { address, state: 0 }].into()
    }

    fn operation(created: u64, runs: &[(u64, u64)], address: u64) -> Operation {
        let run = |(from, to): &(u64, u64)| Run {
            thread: 1,
            from: *from,
            to: Some(*to),
            chain: Some(chain(address)),
            place: Some(chain(address + 1)),
            queued: None,
            unknown_from: None,
        };
        Operation {
            dispatcher: DispatcherId::default(),
            kind: Kind::Runtime,
            parent: DispatcherId::default(),
            created,
            place: Some(chain(address + 1)),
            runs: runs.iter().map(run).collect(),
            completed: runs.last().map(|(_, to)| *to),
        }
    }

    fn request(operations: Vec<Operation>) -> Request {
        Request { activity: None, from: 100, to: 200, operations, calls: Vec::new(), is_whole: true, left_out: 0 }
    }

    #[test]
    fn the_parts_add_up_and_the_innermost_counts() {
        let request = Request {
            activity: None,
            from: 100,
            to: 200,
            // The first runs from 100 to 110 and from 190 on; the second was made at 105, runs from 150 to 160, ends.
            operations: vec![operation(100, &[(100, 110), (190, 230)], 10), operation(105, &[(150, 160)], 20)],
            calls: Vec::new(),
            is_whole: true,
            left_out: 0,
        };
        let found = parts(&request);
        let shown: Vec<_> = found
            .iter()
            .map(|part| {
                let addresses: Vec<u64> = part.chains.iter().map(|chain| chain[0].address).collect();
                (part.from, part.to, part.does, addresses)
            })
            .collect();
        let expected = [
            (100, 110, Does::Runs, vec![10]),
            (110, 150, Does::Waits, vec![21, 11]),
            (150, 160, Does::Runs, vec![20]),
            (160, 190, Does::Waits, vec![11]),
            (190, 200, Does::Runs, vec![10]),
        ];
        assert_eq!(shown, expected);
        assert_eq!(found.iter().map(Part::length).sum::<u64>(), 100);
    }

    /// As in a service with a middleware: the inner method was suspended first, and then what awaits it. The thread
    /// that resumed it was taken from the queue once for all.
    #[test]
    fn waits_are_at_the_innermost_method() {
        let mut outer = operation(111, &[(172, 180)], 30);
        outer.runs[0].queued = Some(Queued { from: 140, to: 148 });
        let mut inner = operation(110, &[(150, 160)], 20);
        inner.runs[0].queued = Some(Queued { from: 140, to: 148 });
        let mut next = operation(158, &[(170, 172)], 20);
        next.runs[0].queued = Some(Queued { from: 165, to: 170 });
        let request = request(vec![operation(100, &[(100, 112), (190, 200)], 10), inner, outer, next]);
        let found = parts(&request);
        let waits: Vec<(u64, u64, u64)> = found
            .iter()
            .filter(|part| part.does.is_wait())
            .map(|part| (part.from, part.to, part.chains[0][0].address))
            .collect();
        let expected = [(112, 140, 21), (140, 148, 21), (148, 150, 21), (160, 165, 21), (165, 170, 21), (180, 190, 11)];
        assert_eq!(waits, expected);
    }

    #[test]
    fn the_queue_of_the_pool_is_told_from_what_is_awaited() {
        let mut waits = operation(100, &[(110, 120), (170, 200)], 10);
        // Only the part within the wait counts.
        waits.runs[0].queued = Some(Queued { from: 90, to: 104 });
        waits.runs[1].queued = Some(Queued { from: 130, to: 165 });
        let request = request(vec![waits]);
        let shown: Vec<_> = parts(&request).iter().map(|part| (part.from, part.to, part.does)).collect();
        let alone = parts_of(&request, &request.operations[0]);
        assert_eq!(alone, parts(&request), "there is no other operation");
        let expected = [
            (100, 104, Does::Queued),
            (104, 110, Does::Waits),
            (110, 120, Does::Runs),
            (120, 130, Does::Waits),
            (130, 165, Does::Queued),
            (165, 170, Does::Waits),
            (170, 200, Does::Runs),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_was_not_told_is_unknown() {
        let mut runs = operation(100, &[(110, 200)], 10);
        runs.completed = None;
        runs.runs[0].to = None;
        runs.runs[0].unknown_from = Some(150);
        let request = request(vec![runs]);
        let shown: Vec<_> = parts(&request).iter().map(|part| (part.from, part.to, part.does)).collect();
        assert_eq!(shown, [(100, 110, Does::Waits), (110, 150, Does::Runs), (150, 200, Does::Nothing)]);
    }

    #[test]
    fn a_request_without_operations_did_nothing_that_is_known() {
        let request =
            Request { activity: None, from: 5, to: 9, operations: vec![], calls: vec![], is_whole: true, left_out: 0 };
        assert_eq!(parts(&request), [Part { from: 5, to: 9, does: Does::Nothing, chains: vec![] }]);
    }
}
