//! Who made each operation: its parent, and what of the parent's chain was left then.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::frame::{Chain, Frame, Kind};
use crate::oldest;
use crate::sub_event::DispatcherId;

/// The part of a chain that made an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    kind: Kind,
    chain: Chain,
    from: usize,
}

impl Segment {
    pub(super) fn new(kind: Kind, chain: Chain, from: usize) -> Self {
        Self { kind, chain, from }
    }

    /// How its methods were compiled.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The methods: the one that ran, and those that awaited it.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        self.chain.get(self.from..).unwrap_or_default()
    }

    /// The address of the outermost method: of a state machine, the same at each await.
    fn outermost(&self) -> Option<u64> {
        self.frames().iter().rfind(|frame| frame.address != 0).map(|frame| frame.address)
    }
}

/// The creator of an operation, the creator of that, and so on.
pub(super) type Trail = Arc<[Segment]>;

/// The longest trail. In state machines, each turn of a loop may make an operation whose parent is that of the turn
/// before.
const LONGEST: usize = 16;

/// The creators of the operations that have not ended.
#[derive(Debug, Default)]
pub(super) struct Creators {
    records: FxHashMap<DispatcherId, Record>,
    /// In the order in which they came, with those that are gone.
    order: VecDeque<(u64, DispatcherId)>,
    /// Those whose trail is not known yet, because their parent's may still come.
    unresolved: Vec<(u64, DispatcherId)>,
    /// Those that have ended, with the time.
    ended: Vec<(u64, DispatcherId)>,
    next: u64,
    /// The sum of the weights of the records.
    weight: usize,
}

#[derive(Debug)]
struct Record {
    /// Which of the records this is: numbers of operations come again.
    serial: u64,
    parent: DispatcherId,
    rest: Option<Segment>,
    trail: Option<Trail>,
    weight: usize,
}

impl Creators {
    /// Takes a creation. Of more than `most` records, forgets the oldest. Answers with how many were forgotten.
    pub(super) fn create(
        &mut self,
        ticks: u64,
        dispatcher: DispatcherId,
        parent: DispatcherId,
        rest: Option<Segment>,
        most: usize,
    ) -> u64 {
        let serial = self.next;
        self.next += 1;
        let weight = weight(rest.as_slice());
        let replaced = self.records.insert(dispatcher, Record { serial, parent, rest, trail: None, weight });
        self.weight = self.weight + weight - replaced.map_or(0, |record| record.weight);
        self.order.push_back((serial, dispatcher));
        self.unresolved.push((ticks, dispatcher));
        let forgotten = self.forget_oldest(most);
        if self.order.len() > 2 * self.records.len() + 1024 {
            let records = &self.records;
            self.order.retain(|(serial, id)| records.get(id).is_some_and(|record| record.serial == *serial));
        }
        if self.unresolved.len() > 2 * most {
            let records = &self.records;
            self.unresolved.retain(|(_, id)| records.contains_key(id));
        }
        forgotten
    }

    fn forget_oldest(&mut self, most: usize) -> u64 {
        let mut forgotten = 0;
        while self.weight > most {
            let Some((serial, id)) = self.order.pop_front() else { break };
            if self.records.get(&id).is_some_and(|record| record.serial == serial) {
                self.remove(id);
                forgotten += 1;
            }
        }
        forgotten
    }

    fn remove(&mut self, dispatcher: DispatcherId) {
        if let Some(record) = self.records.remove(&dispatcher) {
            self.weight -= record.weight;
        }
    }

    /// Takes the end of an operation.
    pub(super) fn complete(&mut self, ticks: u64, dispatcher: DispatcherId, most: usize) {
        self.ended.push((ticks, dispatcher));
        // Without releases, the limit on records holds all the same.
        if self.ended.len() > 2 * most {
            self.ended.drain(..most);
        }
    }

    /// The parent of an operation.
    pub(super) fn parent(&self, dispatcher: DispatcherId) -> Option<DispatcherId> {
        self.records.get(&dispatcher).map(|record| record.parent)
    }

    /// Who made the operation: the innermost first.
    pub(super) fn trail(&self, dispatcher: DispatcherId) -> Vec<Segment> {
        let mut trail = Vec::new();
        let mut next = dispatcher;
        // A parent may be its own: the bound on steps ends that.
        for _ in 0..LONGEST {
            let Some(record) = self.records.get(&next) else { break };
            if let Some(rest) = &record.trail {
                rest.iter().for_each(|segment| push(&mut trail, segment));
                break;
            }
            if let Some(segment) = &record.rest {
                push(&mut trail, segment);
            }
            next = record.parent;
        }
        trail
    }

    /// All up to this time has come: trails become whole, and what has ended is forgotten.
    pub(super) fn release(&mut self, until: u64) {
        let (mut due, later): (Vec<_>, Vec<_>) = self.unresolved.drain(..).partition(|(ticks, _)| *ticks <= until);
        self.unresolved = later;
        // Parents before their children.
        due.sort_unstable();
        for (_, id) in due {
            let trail = self.trail(id);
            if let Some(record) = self.records.get_mut(&id) {
                self.weight -= record.weight;
                record.weight = weight(&trail);
                self.weight += record.weight;
                record.trail = Some(trail.into());
                record.rest = None;
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = self.ended.drain(..).partition(|(ticks, _)| *ticks <= until);
        self.ended = later;
        let gone: FxHashSet<DispatcherId> = due.into_iter().map(|(_, id)| id).collect();
        let weight = &mut self.weight;
        oldest::forget(&mut self.records, |id, record| {
            let is_kept = !gone.contains(id);
            *weight -= if is_kept { 0 } else { record.weight };
            is_kept
        });
    }

    /// How much memory they take, in records.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }
}

/// How much memory a record with these segments takes, in records without: sixteen frames take as much as one.
fn weight(segments: &[Segment]) -> usize {
    let frames: usize = segments.iter().map(|segment| segment.chain.len()).sum();
    1 + frames / 16
}

/// Adds a segment, unless it is of the same operation as the one before: in state machines each await may make an
/// operation whose parent is that of the await before.
fn push(trail: &mut Vec<Segment>, segment: &Segment) {
    let is_repeated = trail.last().is_some_and(|last| last.outermost() == segment.outermost());
    if trail.len() < LONGEST && !is_repeated {
        trail.push(segment.clone());
    }
}
