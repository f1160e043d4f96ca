//! Which objects are written, and the sums of those omitted below each.

use crate::bits::BitSet;
use crate::graph::NONE;
use crate::{Dominators, ObjectId};

/// The sum of the objects omitted below an object, without those below another written one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// The object, or [`NONE`] for objects that no written one dominates.
    pub(super) below: u32,
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

/// The objects that retain most. With an object its dominators are written, as they retain more.
pub(super) struct Selection {
    /// By address.
    pub(super) objects: Vec<u32>,
    /// By object, [`NONE`] last.
    pub(super) rests: Vec<Rest>,
}

impl Selection {
    pub(super) fn of(tree: &Dominators<'_>, cap: usize) -> Self {
        let count = tree.reachable_count();
        let mut is_written = BitSet::new(tree.graph().len());
        if count <= cap {
            let mut objects: Vec<u32> = tree.order().map(|object| object.0).collect();
            objects.sort_unstable();
            return Self { objects, rests: Vec::new() };
        }
        // All that retain more than the limit, and of those that retain as much the first ones: dominators come first.
        let limit = if cap == 0 {
            u64::MAX
        } else {
            let mut retained: Vec<u64> = (0..count).map(|position| tree.bytes_at(position)).collect();
            *retained.select_nth_unstable(count - cap).1
        };
        let more = (0..count).filter(|&position| tree.bytes_at(position) > limit).count();
        let mut equal = cap.saturating_sub(more);
        let mut objects = Vec::with_capacity(cap);
        for (position, object) in tree.order().enumerate() {
            let bytes = tree.bytes_at(position);
            let is_chosen = bytes > limit || (bytes == limit && equal > 0);
            equal -= usize::from(is_chosen && bytes == limit);
            if is_chosen {
                is_written.insert(object.index());
                objects.push(object.0);
            }
        }
        objects.sort_unstable();
        let rests = rests(tree, &objects, &is_written);
        Self { objects, rests }
    }

    /// Whether nothing is left out.
    pub(super) fn is_whole(&self) -> bool {
        self.rests.is_empty()
    }

    /// The object's place in the file, if it is written.
    pub(super) fn place(&self, object: ObjectId) -> Option<usize> {
        self.objects.binary_search(&object.0).ok()
    }

    /// The place in `rests` of the objects omitted below an object.
    pub(super) fn rest_of(&self, object: u32) -> Option<usize> {
        self.rests.binary_search_by_key(&object, |rest| rest.below).ok()
    }
}

fn rests(tree: &Dominators<'_>, objects: &[u32], is_written: &BitSet) -> Vec<Rest> {
    let rest = |below: u32, children: &mut dyn Iterator<Item = ObjectId>| {
        let left_out = children.filter(|child| !is_written.contains(child.index()));
        left_out.fold(Rest { below, objects: 0, bytes: 0 }, |rest, child| Rest {
            objects: rest.objects + tree.retained_count(child) as u64,
            bytes: rest.bytes.saturating_add(tree.retained_bytes(child)),
            ..rest
        })
    };
    let below = objects.iter().map(|&object| rest(object, &mut tree.dominated_by(ObjectId(object))));
    let mut rests: Vec<Rest> = below.filter(|rest| rest.objects > 0).collect();
    let top = rest(NONE, &mut tree.top());
    // Without any other rest the top's is there all the same: it says that the file is capped.
    rests.push(top);
    rests
}
