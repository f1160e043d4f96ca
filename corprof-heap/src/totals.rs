//! Sums by class and assembly, in which nothing counts twice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{ClassId, Dominators, HeapGraph, ObjectId};

/// Sums over some objects of one snapshot. Only reachable objects count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many objects.
    pub objects: u64,
    /// Bytes of the objects themselves.
    pub shallow: u64,
    /// Bytes that they retain, themselves included. Bytes retained by two of them count once: only objects that none of
    /// the others dominates are summed up.
    pub retained: u64,
}

/// Sums by class and by assembly, and of unreachable objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// By the number of the class.
    classes: Vec<Total>,
    /// Name and sums of each assembly, by name. The empty name is that of unknown assemblies.
    pub assemblies: Vec<(String, Total)>,
    /// All reachable objects. They retain themselves and nothing else.
    pub reachable: Total,
    /// Objects that no root leads to, and their bytes. After a collection there are none but by a loss or a weak table.
    pub unreachable: (u64, u64),
}

impl Totals {
    /// Sums up.
    #[must_use]
    pub fn of(tree: &Dominators<'_>) -> Self {
        let graph = tree.graph();
        let (assembly_of, names) = numbered(graph, |class| class.assembly.clone());
        let own: Vec<u32> = (0..graph.classes().len() as u32).collect();
        let classes = grouped(tree, &own, own.len());
        let assemblies = grouped(tree, &assembly_of, names.len());
        let bytes = tree.reachable_bytes();
        let reachable = Total { objects: tree.reachable_count() as u64, shallow: bytes, retained: bytes };
        let all = graph.objects().fold(0_u64, |sum, object| sum.saturating_add(graph.size(object)));
        let unreachable = (graph.len() as u64 - reachable.objects, all - bytes);
        Self { classes, assemblies: names.into_iter().zip(assemblies).collect(), reachable, unreachable }
    }

    /// The sums of one class.
    #[must_use]
    pub fn class(&self, class: ClassId) -> Total {
        self.classes[class.index()]
    }

    /// All classes, those that retain most first; where they retain the same, by their number.
    #[must_use]
    pub fn by_retained(&self) -> Vec<(ClassId, Total)> {
        let all = self.classes.iter().enumerate().map(|(class, &total)| (ClassId(class as u32), total));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|&(class, total)| (Reverse(total.retained), class));
        all
    }
}

impl Dominators<'_> {
    /// The objects that retain most of those that no object dominates: each keeps its part of the heap alive alone. The
    /// largest first, at most `count`.
    #[must_use]
    pub fn largest(&self, count: usize) -> Vec<ObjectId> {
        let mut largest = BinaryHeap::new();
        for object in self.top() {
            largest.push(Reverse((self.retained_bytes(object), Reverse(object))));
            if largest.len() > count {
                largest.pop();
            }
        }
        largest.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(object)))| object).collect()
    }
}

/// Gives classes with the same key the same number. By class its number; by number its key, in order.
pub(crate) fn numbered<K: Ord + Clone>(graph: &HeapGraph, key: impl Fn(&crate::Class) -> K) -> (Vec<u32>, Vec<K>) {
    let mut keys: Vec<K> = graph.classes().iter().map(&key).collect();
    keys.sort_unstable();
    keys.dedup();
    let number = |class| keys.binary_search(&key(class)).unwrap_or_default() as u32;
    (graph.classes().iter().map(number).collect(), keys)
}

/// Sums of `groups` groups, of which each class has one. One pass: a subtree is a range of positions, so an object has
/// none of its group above it if it is behind the last range of one that had none.
pub(crate) fn grouped(tree: &Dominators<'_>, group_of: &[u32], groups: usize) -> Vec<Total> {
    let graph = tree.graph();
    let mut totals = vec![Total::default(); groups];
    let mut ends = vec![0; groups];
    for (position, object) in tree.order().enumerate() {
        let group = group_of[graph.class_of(object).index()] as usize;
        let total = &mut totals[group];
        total.objects += 1;
        total.shallow = total.shallow.saturating_add(graph.size(object));
        if position >= ends[group] {
            ends[group] = position + tree.count_at(position);
            total.retained = total.retained.saturating_add(tree.bytes_at(position));
        }
    }
    totals
}
