//! Shortest ways from the roots to objects.

use crate::graph::NONE;
use crate::{HeapGraph, ObjectId, Root};

/// How one object of a path leads to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It refers to it.
    Reference,
    /// It is the key of a weak table's pair, and the next is the value.
    WeakTable,
}

/// A way from a root to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'g> {
    /// The root that holds the first object; of several, the first.
    pub root: &'g Root,
    /// The objects after the first, each with how it is reached from the one before. The last is the object itself.
    pub steps: Vec<(Link, ObjectId)>,
}

/// Shortest ways from the roots to all objects. 4 bytes an object, and up to 8 more while it is made.
#[derive(Debug)]
pub struct Paths<'g> {
    graph: &'g HeapGraph,
    /// The object before each on its way; itself for one that is a root, [`NONE`] for an unreachable one.
    before: Vec<u32>,
}

impl<'g> Paths<'g> {
    /// Searches in breadth, from all roots at once.
    #[must_use]
    pub fn of(graph: &'g HeapGraph) -> Self {
        let dead = graph.dead_edges();
        let mut before = vec![NONE; graph.len()];
        let mut reached: Vec<u32> = Vec::new();
        for object in graph.roots().iter().map(|root| root.object.0) {
            if before[object as usize] == NONE {
                before[object as usize] = object;
                reached.push(object);
            }
        }
        let mut next = Vec::new();
        while !reached.is_empty() {
            for from in reached.drain(..) {
                for edge in graph.edges(ObjectId(from)) {
                    let to = graph.targets[edge];
                    if before[to as usize] == NONE && dead.binary_search(&(edge as u32)).is_err() {
                        before[to as usize] = from;
                        next.push(to);
                    }
                }
            }
            std::mem::swap(&mut reached, &mut next);
        }
        Self { graph, before }
    }

    /// A shortest way to the object, always the same one; `None` if it is unreachable.
    #[must_use]
    pub fn to(&self, object: ObjectId) -> Option<Path<'g>> {
        let mut at = object.0;
        let mut steps = Vec::new();
        loop {
            let before = self.before[at as usize];
            if before == NONE {
                return None;
            }
            if before == at {
                break;
            }
            let is_reference = self.graph.references(ObjectId(before)).any(|to| to.0 == at);
            steps.push((if is_reference { Link::Reference } else { Link::WeakTable }, ObjectId(at)));
            at = before;
        }
        steps.reverse();
        let root = self.graph.roots_of(ObjectId(at)).first()?;
        Some(Path { root, steps })
    }
}
