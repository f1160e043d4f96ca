//! Immediate dominators by the semi-NCA algorithm (Georgiadis, Tarjan: "Finding dominators revisited", 2004), without
//! recursion.
//!
//! It is exact. In theory it is quadratic, on graphs of programs and heaps it is as fast as Lengauer and Tarjan's, with
//! fewer arrays. All numbers are those of the depth-first search, where a dominator's number is lower than its
//! children's.

use crate::{HeapGraph, ObjectId};

use super::depth_first::{self, DepthFirst};

/// The dominator tree in numbers of the depth-first search; 0 stands above all roots.
pub(super) struct Tree {
    /// The object of each number.
    pub(super) object: Vec<u32>,
    /// The number of each immediate dominator.
    pub(super) dominator: Vec<u32>,
}

/// Peak: the graph, 20 bytes for each reachable object, and 4 for each edge that is not in the search's tree.
pub(super) fn dominators(graph: &HeapGraph, dead: &[u32]) -> Tree {
    let DepthFirst { object, parent, number } = depth_first::search(graph, dead);
    let (mut offsets, predecessors) = predecessors(graph, dead, &object, &parent, &number);
    drop(number);
    let mut forest = Forest::new(&parent);
    for w in (1..object.len()).rev() {
        let mut semidominator = parent[w];
        for &v in &predecessors[offsets[w] as usize..offsets[w + 1] as usize] {
            semidominator = semidominator.min(forest.lowest(v, w as u32));
        }
        forest.label[w] = semidominator;
        // The old value was read for the last time: rows are read backwards. Reusing it saves 4 bytes an object.
        offsets[w + 1] = semidominator;
    }
    drop((forest, predecessors));

    let mut dominator = parent;
    for w in 1..object.len() {
        let semidominator = offsets[w + 1];
        let mut candidate = dominator[w];
        while candidate > semidominator {
            candidate = dominator[candidate as usize];
        }
        dominator[w] = candidate;
    }
    Tree { object, dominator }
}

/// For each number the numbers that lead to it, in rows. Those of tree edges are left out, as `parent` has them.
fn predecessors(
    graph: &HeapGraph,
    dead: &[u32],
    object: &[u32],
    parent: &[u32],
    number: &[u32],
) -> (Vec<u32>, Vec<u32>) {
    let for_each = |take: &mut dyn FnMut(u32, u32)| {
        for v in 1..object.len() as u32 {
            for edge in graph.edges(ObjectId(object[v as usize])) {
                let w = number[graph.targets[edge] as usize];
                // A dead edge may lead to an unreachable object.
                if w != 0 && w != v && parent[w as usize] != v && dead.binary_search(&(edge as u32)).is_err() {
                    take(v, w);
                }
            }
        }
        let mut last = None;
        for root in graph.roots().iter().map(|root| root.object).filter(|&object| last.replace(object) != Some(object))
        {
            let w = number[root.index()];
            if parent[w as usize] != 0 {
                take(0, w);
            }
        }
    };
    // As in the builder: after the sums, `offsets[w + 1]` is the place of the next entry of row w, and in the end its
    // end.
    let mut offsets = vec![0_u32; object.len() + 2];
    for_each(&mut |_, w| offsets[w as usize + 2] += 1);
    let mut sum = 0;
    for offset in &mut offsets {
        sum += *offset;
        *offset = sum;
    }
    let mut predecessors = vec![0; sum as usize];
    for_each(&mut |v, w| {
        let next = &mut offsets[w as usize + 1];
        predecessors[*next as usize] = v;
        *next += 1;
    });
    (offsets, predecessors)
}

/// The numbers above the current one, linked to their parents, with compressed paths.
struct Forest {
    ancestor: Vec<u32>,
    /// The lowest semidominator on the way from a number up to, and without, its ancestor.
    label: Vec<u32>,
}

impl Forest {
    fn new(parent: &[u32]) -> Self {
        Self { ancestor: parent.to_vec(), label: (0..parent.len() as u32).collect() }
    }

    /// The lowest semidominator of the numbers above `limit` on the way from `v` towards the root; `v` if it is not
    /// above.
    ///
    /// Afterwards all of them have the first number that is not above `limit` as ancestor. On the way up each ancestor
    /// is turned round to point back: a stack could be as deep as the heap.
    fn lowest(&mut self, v: u32, limit: u32) -> u32 {
        if v <= limit {
            return v;
        }
        let mut below = 0;
        let mut at = v;
        while self.ancestor[at as usize] > limit {
            let above = self.ancestor[at as usize];
            self.ancestor[at as usize] = below;
            below = at;
            at = above;
        }
        let end = self.ancestor[at as usize];
        let mut lowest = self.label[at as usize];
        while below != 0 {
            let next = self.ancestor[below as usize];
            lowest = lowest.min(self.label[below as usize]);
            self.label[below as usize] = lowest;
            self.ancestor[below as usize] = end;
            below = next;
        }
        lowest
    }
}
