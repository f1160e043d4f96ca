//! The tracker's record of addresses, updated by the reports of a collection. Independent of the runtime.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::info::GenerationRange;

/// The address of each object. The reports of a collection have consecutive numbers, so that a missed one is noticed.
#[derive(Default, Debug)]
pub(super) struct Ledger {
    objects: HashMap<u64, usize>,
    last_id: u64,
    /// The last report that the addresses include.
    settled: u64,
    collection: Option<Collection>,
}

/// A collection that has started and not finished.
#[derive(Debug)]
struct Collection {
    /// The number of the report of its start.
    start: u64,
    /// The ranges that it collects; none if they are unknown.
    collected: Option<Vec<GenerationRange>>,
    /// The reports of survivors so far.
    heard: HashSet<u64>,
    /// The objects by address, as of the start.
    before: BTreeMap<usize, Vec<u64>>,
    /// The new addresses of the objects that have survived.
    after: HashMap<u64, usize>,
}

impl Ledger {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Brings the record up to `report`; if a report was missed, drops all objects. Returns `false` in the middle of a
    /// collection.
    fn settle(&mut self, report: u64) -> bool {
        if self.settled == report && self.collection.is_none() {
            return true;
        }
        if let Some(collection) = &self.collection {
            // A missed report is certain only when the next collection starts, or this one is found to have ended.
            if report >= collection.start && report - collection.start <= collection.heard.len() as u64 {
                return false;
            }
            self.collection = None;
        }
        self.objects.clear();
        self.settled = report;
        true
    }

    pub(super) fn track(&mut self, address: usize, report: u64) -> Option<u64> {
        if !self.settle(report) {
            return None;
        }
        self.last_id += 1;
        self.objects.insert(self.last_id, address);
        Some(self.last_id)
    }

    pub(super) fn untrack(&mut self, id: u64) {
        self.objects.remove(&id);
        if let Some(collection) = &mut self.collection {
            collection.after.remove(&id);
        }
    }

    /// The address; the inner none if the object is gone, the outer in the middle of a collection.
    pub(super) fn find(&mut self, id: u64, report: u64) -> Option<Option<usize>> {
        self.settle(report).then(|| self.objects.get(&id).copied())
    }

    pub(super) fn started(&mut self, report: u64, collected: Option<Vec<GenerationRange>>) {
        if self.collection.take().is_some() || report != self.settled + 1 {
            self.objects.clear();
        }
        let mut before: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (&id, &address) in &self.objects {
            before.entry(address).or_default().push(id);
        }
        let (heard, after) = (HashSet::new(), HashMap::new());
        self.collection = Some(Collection { start: report, collected, heard, before, after });
    }

    /// Ranges of survivors: old start, new start, length.
    pub(super) fn survived(&mut self, report: u64, ranges: impl Iterator<Item = (usize, usize, usize)>) {
        let Some(collection) = &mut self.collection else { return };
        // Number 0: an older form of a report.
        if report == 0 || !collection.heard.insert(report) {
            return;
        }
        for (old, new, length) in ranges {
            for (&address, ids) in collection.before.range(old..old.saturating_add(length)) {
                for &id in ids {
                    collection.after.insert(id, new.wrapping_add(address - old));
                }
            }
        }
    }

    pub(super) fn finished(&mut self, report: u64) {
        let Some(mut collection) = self.collection.take() else {
            self.objects.clear();
            self.settled = report;
            return;
        };
        let all = collection.start + 1..report;
        let heard_all =
            all.clone().count() == collection.heard.len() && collection.heard.iter().all(|n| all.contains(n));
        self.settled = report;
        if !heard_all {
            self.objects.clear();
            return;
        }
        let collected = collection.collected.take();
        self.objects.retain(|id, address| {
            if let Some(&moved) = collection.after.get(id) {
                *address = moved;
                return true;
            }
            // No report says that it lives, so it lives if its generation was not collected.
            collected.as_ref().is_some_and(|ranges| ranges.iter().all(|range| !range.contains(*address)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Generation;

    fn range(start: usize, length: usize) -> GenerationRange {
        GenerationRange { generation: Generation::Gen0, start, length, reserved: length }
    }

    /// A ledger with objects at these addresses, and their ids.
    fn with<const N: usize>(addresses: [usize; N]) -> (Ledger, [u64; N]) {
        let mut ledger = Ledger::default();
        let ids = addresses.map(|address| ledger.track(address, 0).unwrap());
        (ledger, ids)
    }

    #[test]
    fn compaction_moves_some_keeps_others_and_drops_the_dead() {
        let (mut ledger, [first, second, dead, old]) = with([0x1000, 0x1050, 0x1100, 0x9000]);
        ledger.started(1, Some(vec![range(0x1000, 0x1000)]));
        assert_eq!(ledger.find(first, 1), None, "in the middle of a collection");
        assert_eq!(ledger.track(0x5000, 1), None);
        // The ranges overlap the old addresses of others: 0x1050 moves to the old address of 0x1000.
        ledger.survived(2, [(0x1000, 0x0f00, 0x40), (0x1040, 0x0ff0, 0x40)].into_iter());
        ledger.finished(3);
        assert_eq!(ledger.find(first, 3), Some(Some(0x0f00)));
        assert_eq!(ledger.find(second, 3), Some(Some(0x1000)));
        assert_eq!(ledger.find(dead, 3), Some(None));
        assert_eq!(ledger.find(old, 3), Some(Some(0x9000)), "not collected");
        assert_eq!(ledger.len(), 3);
    }

    #[test]
    fn moves_do_not_chain_within_one_collection() {
        let (mut ledger, [a, b]) = with([0x1000, 0x2000]);
        ledger.started(1, Some(vec![range(0x1000, 0x2000)]));
        ledger.survived(2, [(0x2000, 0x1000, 0x100), (0x1000, 0x0800, 0x100)].into_iter());
        ledger.survived(3, [(0x3000, 0x2000, 0x100)].into_iter());
        ledger.finished(4);
        assert_eq!((ledger.find(a, 4), ledger.find(b, 4)), (Some(Some(0x0800)), Some(Some(0x1000))));
    }

    #[test]
    fn collections_follow_one_another() {
        let (mut ledger, [a]) = with([0x1000]);
        for round in 0..10_u64 {
            let place = 0x1000 + 0x100 * round as usize;
            ledger.started(3 * round + 1, Some(vec![range(place, 0x10)]));
            ledger.survived(3 * round + 2, [(place, place + 0x100, 0x10)].into_iter());
            ledger.finished(3 * round + 3);
        }
        assert_eq!(ledger.find(a, 30), Some(Some(0x1a00)));
    }

    #[test]
    fn a_missed_report_lets_go_of_everything() {
        let (mut ledger, [a]) = with([0x1000]);
        ledger.started(1, Some(vec![range(0x9000, 0x10)]));
        ledger.finished(3); // report 2 was not fed
        assert_eq!(ledger.find(a, 3), Some(None));

        let (mut ledger, [a]) = with([0x1000]);
        assert_eq!(ledger.find(a, 4), Some(None), "a whole collection was not fed");
        let b = ledger.track(0x2000, 4).unwrap();
        assert_eq!(ledger.find(b, 4), Some(Some(0x2000)), "it goes on afterwards");

        let (mut ledger, [a]) = with([0x1000]);
        ledger.started(1, Some(Vec::new()));
        assert_eq!(ledger.find(a, 3), Some(None), "the end was not fed");
    }

    #[test]
    fn feeding_one_report_twice_does_not_make_up_for_another() {
        let (mut ledger, [a]) = with([0x1000]);
        ledger.started(1, Some(vec![range(0x1000, 0x100)]));
        ledger.survived(2, [(0x1000, 0x1000, 0x100)].into_iter());
        ledger.survived(2, [(0x1000, 0x1000, 0x100)].into_iter());
        ledger.finished(4);
        assert_eq!(ledger.find(a, 4), Some(None));
    }

    #[test]
    fn without_bounds_only_the_reported_live() {
        let (mut ledger, [a, b]) = with([0x1000, 0x2000]);
        ledger.started(1, None);
        ledger.survived(2, [(0x1000, 0x1000, 0x100)].into_iter());
        ledger.finished(3);
        assert_eq!((ledger.find(a, 3), ledger.find(b, 3)), (Some(Some(0x1000)), Some(None)));
    }

    #[test]
    fn an_object_may_be_tracked_twice_and_let_go_once() {
        let (mut ledger, [a, b]) = with([0x1000, 0x1000]);
        ledger.started(1, Some(vec![range(0x1000, 0x100)]));
        ledger.untrack(a);
        ledger.survived(2, [(0x1000, 0x2000, 0x100)].into_iter());
        ledger.survived(0, [(0x1000, 0x2000, 0x100)].into_iter());
        ledger.finished(3);
        assert_eq!((ledger.find(a, 3), ledger.find(b, 3)), (Some(None), Some(Some(0x2000))));
        assert_eq!(ledger.find(999, 3), Some(None));
    }
}
