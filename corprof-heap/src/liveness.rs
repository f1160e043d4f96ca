//! Which objects are alive: marking from the roots, as the collector does.

use crate::bits::BitSet;
use crate::graph::NONE;
use crate::{HeapGraph, ObjectId};

/// The memory that the absence of certain objects would free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Objects, those that were taken away among them.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl HeapGraph {
    /// The memory that the absence of these objects would free: theirs, if they are reachable, and that of objects only
    /// they keep alive.
    ///
    /// This is the definition of a retained size, for any set of objects and with weak tables in full: a pair's value
    /// goes with its key and with its table. It marks the whole heap twice, so it is for single questions;
    /// [`Dominators`](crate::Dominators) answers for all objects at once.
    #[must_use]
    pub fn freed_without(&self, removed: &[ObjectId]) -> Freed {
        let mut without = BitSet::new(self.len());
        removed.iter().for_each(|object| _ = without.insert(object.index()));
        let before = self.alive_without(&BitSet::new(self.len()));
        let after = self.alive_without(&without);
        let mut freed = Freed::default();
        for object in self.objects() {
            if before.contains(object.index()) && !after.contains(object.index()) {
                freed.objects += 1;
                freed.bytes = freed.bytes.saturating_add(self.size(object));
            }
        }
        freed
    }

    /// The objects that are reachable if those of `removed` are taken away.
    pub(crate) fn alive_without(&self, removed: &BitSet) -> BitSet {
        let mut marking = Marking::new(self, removed);
        self.roots.iter().for_each(|root| marking.mark(root.object.0));
        marking.run();
        marking.alive
    }

    /// Edges to values whose table is dead, in order. They keep nothing alive.
    pub(crate) fn dead_edges(&self) -> Vec<u32> {
        if self.weak.iter().all(|weak| weak.table == NONE) {
            return Vec::new();
        }
        let alive = self.alive_without(&BitSet::new(self.len()));
        let is_dead = |table: u32| table != NONE && !alive.contains(table as usize);
        self.weak.iter().filter(|weak| is_dead(weak.table)).map(|weak| weak.edge).collect()
    }
}

struct Marking<'g> {
    graph: &'g HeapGraph,
    removed: &'g BitSet,
    alive: BitSet,
    /// Marked, but not yet followed.
    open: Vec<u32>,
    is_table: BitSet,
    /// Table and edge of each pair whose table is known, sorted.
    by_table: Vec<(u32, u32)>,
}

impl<'g> Marking<'g> {
    fn new(graph: &'g HeapGraph, removed: &'g BitSet) -> Self {
        let mut is_table = BitSet::new(graph.len());
        let known = graph.weak.iter().filter(|weak| weak.table != NONE);
        let mut by_table: Vec<(u32, u32)> = known.map(|weak| (weak.table, weak.edge)).collect();
        by_table.sort_unstable();
        by_table.iter().for_each(|&(table, _)| _ = is_table.insert(table as usize));
        Self { graph, removed, alive: BitSet::new(graph.len()), open: Vec::new(), is_table, by_table }
    }

    fn mark(&mut self, object: u32) {
        if !self.removed.contains(object as usize) && self.alive.insert(object as usize) {
            self.open.push(object);
        }
    }

    fn run(&mut self) {
        let graph = self.graph;
        while let Some(object) = self.open.pop() {
            let edges = graph.edges(ObjectId(object));
            let weak = if graph.weak.is_empty() { &[] } else { graph.weak_in(edges.clone()) };
            let (references, values) = graph.targets[edges]
                .split_at_checked(graph.edges(ObjectId(object)).len() - weak.len())
                .unwrap_or_default();
            references.iter().for_each(|&to| self.mark(to));
            for (&value, weak) in values.iter().zip(weak) {
                // A pair whose table is not marked yet is visited again when it is.
                if weak.table == NONE || self.alive.contains(weak.table as usize) {
                    self.mark(value);
                }
            }
            if self.is_table.contains(object as usize) {
                self.mark_values_of(object);
            }
        }
    }

    fn mark_values_of(&mut self, table: u32) {
        let start = self.by_table.partition_point(|&(other, _)| other < table);
        for place in start..self.by_table.len() {
            let (other, edge) = self.by_table[place];
            if other != table {
                break;
            }
            if self.alive.contains(self.graph.source(edge).index()) {
                self.mark(self.graph.targets[edge as usize]);
            }
        }
    }
}
