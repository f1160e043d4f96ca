//! The dominator tree: the objects through which every path from the roots to an object leads.

use crate::graph::NONE;
use crate::{HeapGraph, ObjectId};

mod depth_first;
mod semi_nca;

use semi_nca::Tree;

/// Positions whose sum of sizes is kept once. Reading one adds up half as many sizes on average.
const SUM_BLOCK: usize = 32;

/// The dominator tree of a heap, exact.
///
/// An object dominates another if every path from the roots to the other leads through it: without it the other would
/// be freed. The nearest such object is the other's immediate dominator, its parent in this tree; an object that is a
/// root, or is reached by separate ways from several, has none. An object retains itself and the objects that it
/// dominates.
///
/// # Weak tables
///
/// A pair's value is reachable if its key and, where it is known, its table are. In the tree it belongs to the key, so
/// that no byte counts twice. If tables are unknown, as in dumps of CoreCLR, that is all. A known table retains the
/// value as well, and neither need dominate the other, so no tree can show both: everything that the tree says an
/// object retains is freed with it, but with a table more may be. [`HeapGraph::freed_without`] computes how much.
///
/// # Memory
///
/// While it is made, at most 24 bytes an object, or 20 and 4 for each reference above the number of objects, on top of
/// the graph. Afterwards 17 bytes an object.
#[derive(Debug)]
pub struct Dominators<'g> {
    graph: &'g HeapGraph,
    /// Reachable objects, each before those that it dominates: a subtree is a range of positions.
    order: Vec<u32>,
    /// The position of each object; [`NONE`] if it is unreachable.
    position: Vec<u32>,
    /// By position: the number of positions of the subtree.
    count: Vec<u32>,
    /// By position: the position of the immediate dominator, or [`NONE`].
    parent: Vec<u32>,
    /// The sum of sizes before every [`SUM_BLOCK`]th position, and of all at the end.
    sums: Vec<u64>,
}

impl<'g> Dominators<'g> {
    /// Works out the tree.
    #[must_use]
    pub fn of(graph: &'g HeapGraph) -> Self {
        let dead = graph.dead_edges();
        let tree = semi_nca::dominators(graph, &dead);
        let (order, count, parent) = in_preorder(tree);
        let mut position = vec![NONE; graph.len()];
        for (at, &object) in order.iter().enumerate() {
            position[object as usize] = at as u32;
        }
        let mut sums = Vec::with_capacity(order.len() / SUM_BLOCK + 2);
        let mut sum = 0_u64;
        for block in order.chunks(SUM_BLOCK) {
            sums.push(sum);
            sum = block.iter().fold(sum, |sum, &object| sum.saturating_add(graph.size(ObjectId(object))));
        }
        sums.push(sum);
        Self { graph, order, position, count, parent, sums }
    }

    /// The graph that this is the tree of.
    #[must_use]
    pub fn graph(&self) -> &'g HeapGraph {
        self.graph
    }

    /// Whether any root leads to the object.
    #[must_use]
    pub fn is_reachable(&self, object: ObjectId) -> bool {
        self.position_of(object).is_some()
    }

    /// How many objects are reachable.
    #[must_use]
    pub fn reachable_count(&self) -> usize {
        self.order.len()
    }

    /// The bytes of all reachable objects.
    #[must_use]
    pub fn reachable_bytes(&self) -> u64 {
        self.sums.last().copied().unwrap_or_default()
    }

    /// The nearest object without which this one would be unreachable. `None` if there is none, or it is unreachable
    /// anyway.
    #[must_use]
    pub fn immediate_dominator(&self, object: ObjectId) -> Option<ObjectId> {
        match self.parent[self.position_of(object)?] {
            NONE => None,
            parent => Some(ObjectId(self.order[parent as usize])),
        }
    }

    /// Whether `object` is reachable, and all ways to it lead through `dominator`. Each reachable object dominates
    /// itself.
    #[must_use]
    pub fn dominates(&self, dominator: ObjectId, object: ObjectId) -> bool {
        match (self.position_of(dominator), self.position_of(object)) {
            (Some(start), Some(at)) => (start..start + self.count[start] as usize).contains(&at),
            _ => false,
        }
    }

    /// Objects that no object dominates, in no particular but always the same order.
    pub fn top(&self) -> impl Iterator<Item = ObjectId> {
        self.siblings(0, self.order.len())
    }

    /// Objects whose immediate dominator this one is.
    pub fn dominated_by(&self, object: ObjectId) -> impl Iterator<Item = ObjectId> {
        let range = self.position_of(object).map_or(0..0, |at| at + 1..at + self.count[at] as usize);
        self.siblings(range.start, range.end)
    }

    /// How many objects it retains, itself among them; 0 if it is unreachable.
    #[must_use]
    pub fn retained_count(&self, object: ObjectId) -> usize {
        self.position_of(object).map_or(0, |at| self.count[at] as usize)
    }

    /// The bytes that would be freed without this object, its own among them; 0 if it is unreachable.
    #[must_use]
    pub fn retained_bytes(&self, object: ObjectId) -> u64 {
        self.position_of(object).map_or(0, |at| self.bytes_at(at))
    }

    fn siblings(&self, start: usize, end: usize) -> impl Iterator<Item = ObjectId> {
        let first = (start < end).then_some(start);
        let next = move |&at: &usize| Some(at + self.count[at] as usize).filter(|&at| at < end);
        std::iter::successors(first, next).map(|at| ObjectId(self.order[at]))
    }

    fn position_of(&self, object: ObjectId) -> Option<usize> {
        self.position
            .get(object.index())
            .copied()
            .filter(|&position| position != NONE)
            .map(|position| position as usize)
    }

    /// Reachable objects, each before those that it dominates.
    pub(crate) fn order(&self) -> impl ExactSizeIterator<Item = ObjectId> {
        self.order.iter().map(|&object| ObjectId(object))
    }

    /// The number of positions of the subtree at a position.
    pub(crate) fn count_at(&self, position: usize) -> usize {
        self.count[position] as usize
    }

    /// The position of the immediate dominator.
    pub(crate) fn parent_at(&self, position: usize) -> Option<usize> {
        Some(self.parent[position]).filter(|&parent| parent != NONE).map(|parent| parent as usize)
    }

    /// Bytes that the object at a position retains.
    pub(crate) fn bytes_at(&self, position: usize) -> u64 {
        match self.count[position] {
            1 => self.graph.size(ObjectId(self.order[position])),
            count => self.sum_before(position + count as usize) - self.sum_before(position),
        }
    }

    fn sum_before(&self, position: usize) -> u64 {
        let block = position / SUM_BLOCK;
        if position == self.order.len() {
            return self.reachable_bytes();
        }
        let rest = &self.order[block * SUM_BLOCK..position];
        rest.iter().fold(self.sums[block], |sum, &object| sum.saturating_add(self.graph.size(ObjectId(object))))
    }
}

/// Objects in preorder of the tree; by position the number of objects of the subtree, and the parent's position.
///
/// Each array is made of those before and then frees them: at most six are there at a time.
fn in_preorder(tree: Tree) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let Tree { object, dominator } = tree;
    let reachable = object.len() - 1;
    // A dominator's number is lower than its children's, so a backward sweep counts, and a forward sweep places.
    let mut count = vec![1_u32; object.len()];
    for w in (1..object.len()).rev() {
        count[dominator[w] as usize] += count[w];
    }
    // Where the next child goes. Position 0 is the node above all roots; it is cut off below.
    let mut next = vec![0_u32; object.len()];
    next[0] = 1;
    for w in 1..object.len() {
        let place = &mut next[dominator[w] as usize];
        let start = *place;
        *place += count[w];
        next[w] = start + 1;
    }
    // All children are placed: `next` is the end of the subtree.
    let position = |w: usize| next[w] - count[w] - 1;

    let mut count_at = vec![0; reachable];
    let mut parent_at = vec![NONE; reachable];
    for w in 1..object.len() {
        count_at[position(w) as usize] = count[w];
        if dominator[w] != 0 {
            parent_at[position(w) as usize] = position(dominator[w] as usize);
        }
    }
    drop(dominator);
    let mut order = vec![0; reachable];
    for w in 1..object.len() {
        order[position(w) as usize] = object[w];
    }
    (order, count_at, parent_at)
}
