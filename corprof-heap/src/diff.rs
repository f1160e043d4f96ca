//! What has changed between two snapshots.
//!
//! Objects have no identity across collections, so snapshots are compared by what stays: names of classes, and the classes through which
//! objects are kept alive. Where the caller knows which object is which, [`IdentityDiff`] compares objects.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::totals::{grouped, numbered};
use crate::{Dominators, ObjectId, Total};

/// Sums in the first and in the second snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// In the first.
    pub before: Total,
    /// In the second.
    pub after: Total,
}

impl Change {
    /// By how many bytes more is retained; less than 0 if it is fewer.
    #[must_use]
    pub fn retained_growth(&self) -> i64 {
        growth(self.before.retained, self.after.retained)
    }

    /// By how many bytes the objects themselves are more.
    #[must_use]
    pub fn shallow_growth(&self) -> i64 {
        growth(self.before.shallow, self.after.shallow)
    }

    /// How many objects more there are.
    #[must_use]
    pub fn object_growth(&self) -> i64 {
        growth(self.before.objects, self.after.objects)
    }
}

fn growth(before: u64, after: u64) -> i64 {
    after.wrapping_sub(before).cast_signed()
}

/// A class that one of the snapshots has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassChange {
    /// The class's name. Classes of one name and assembly are one, in however many contexts they are loaded.
    pub name: String,
    /// The assembly's name.
    pub assembly: String,
    /// The sums.
    pub change: Change,
}

/// Compares by class: all classes that either has, those that grew most in retained bytes first.
#[must_use]
pub fn by_class(before: &Dominators<'_>, after: &Dominators<'_>) -> Vec<ClassChange> {
    let mut changes: BTreeMap<(String, String), Change> = BTreeMap::new();
    let sums = |tree: &Dominators<'_>| {
        let (number_of, names) = numbered(tree.graph(), |class| (class.assembly.clone(), class.name.clone()));
        let totals = grouped(tree, &number_of, names.len());
        names.into_iter().zip(totals)
    };
    for (name, total) in sums(before) {
        changes.entry(name).or_default().before = total;
    }
    for (name, total) in sums(after) {
        changes.entry(name).or_default().after = total;
    }
    let change = |((assembly, name), change)| ClassChange { name, assembly, change };
    let mut changes: Vec<_> = changes.into_iter().map(change).collect();
    changes.sort_by_key(|class| Reverse(class.change.retained_growth())); // stable: else by name
    changes
}

/// How many classes of a path are told apart; what is deeper counts for the last of them.
pub const DEFAULT_DEPTH: usize = 24;

/// A path of classes, and what it holds in both snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathNode {
    parent: Option<usize>,
    depth: usize,
    class: usize,
    change: Change,
}

/// Two snapshots by dominator path: the classes of the objects that dominate an object, from the top down to itself.
///
/// Neighbours of the same class are one step, so that a list of nodes is one path however long it is. Each path that either
/// snapshot has takes about 80 bytes.
#[derive(Debug)]
pub struct PathDiff {
    /// Assembly and name.
    classes: Vec<(String, String)>,
    nodes: Vec<PathNode>,
}

impl PathDiff {
    /// Compares; `depth` is how many classes of a path are told apart, such as [`DEFAULT_DEPTH`].
    #[must_use]
    pub fn of(before: &Dominators<'_>, after: &Dominators<'_>, depth: usize) -> Self {
        let names =
            |tree: &Dominators<'_>| numbered(tree.graph(), |class| (class.assembly.clone(), class.name.clone()));
        let sides = [(before, names(before)), (after, names(after))];
        let mut classes: Vec<_> = sides.iter().flat_map(|(_, (_, names))| names.iter().cloned()).collect();
        classes.sort_unstable();
        classes.dedup();

        let mut nodes = Vec::new();
        let mut children = FxHashMap::default();
        for (side, (tree, (number_of, names))) in sides.into_iter().enumerate() {
            let common = |name| classes.binary_search(name).unwrap_or_default();
            let class_of: Vec<usize> = number_of.iter().map(|&number| common(&names[number as usize])).collect();
            add(tree, &class_of, depth.max(1), side, &mut nodes, &mut children);
        }
        Self { classes, nodes }
    }

    /// How many paths there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether both snapshots have nothing reachable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What a path holds. Its total counts objects at its end; they retain what they dominate.
    #[must_use]
    pub fn change(&self, path: usize) -> Change {
        self.nodes[path].change
    }

    /// The names of a path's classes, from the top down.
    #[must_use]
    pub fn names(&self, path: usize) -> Vec<&str> {
        let up = std::iter::successors(Some(path), |&node| self.nodes[node].parent);
        let mut names: Vec<&str> = up.map(|node| self.classes[self.nodes[node].class].1.as_str()).collect();
        names.reverse();
        names
    }

    /// The paths that grew most in retained bytes, the most first, at most `count`. A path is left out if another that goes on
    /// from it has four fifths of its growth: the longer one tells more.
    #[must_use]
    pub fn grown(&self, count: usize) -> Vec<usize> {
        let growth = |node: usize| self.nodes[node].change.retained_growth();
        let mut largest_child = vec![0; self.nodes.len()];
        for (node, parent) in self.nodes.iter().enumerate().filter_map(|(node, path)| Some((node, path.parent?))) {
            largest_child[parent] = growth(node).max(largest_child[parent]);
        }
        let tells = |&node: &usize| growth(node) > 0 && largest_child[node] / 4 < growth(node) / 5;
        let mut grown: Vec<usize> = (0..self.nodes.len()).filter(tells).collect();
        grown.sort_by_cached_key(|&node| (Reverse(growth(node)), self.key(node)));
        grown.truncate(count);
        grown
    }

    /// Assemblies and names of a path, to sort by.
    fn key(&self, path: usize) -> Vec<usize> {
        let up = std::iter::successors(Some(path), |&node| self.nodes[node].parent);
        let mut key: Vec<usize> = up.map(|node| self.nodes[node].class).collect();
        key.reverse();
        key
    }
}

/// Adds the paths of one side.
fn add(
    tree: &Dominators<'_>,
    class_of: &[usize],
    depth: usize,
    side: usize,
    nodes: &mut Vec<PathNode>,
    children: &mut FxHashMap<(Option<usize>, usize), usize>,
) {
    let graph = tree.graph();
    let mut node_at: Vec<u32> = Vec::with_capacity(tree.reachable_count());
    for (position, object) in tree.order().enumerate() {
        let above = tree.parent_at(position).map(|parent| node_at[parent] as usize);
        let class = class_of[graph.class_of(object).index()];
        let stays = above.filter(|&above| nodes[above].class == class || nodes[above].depth == depth);
        let node = stays.unwrap_or_else(|| {
            *children.entry((above, class)).or_insert_with(|| {
                let depth = above.map_or(1, |above| nodes[above].depth + 1);
                nodes.push(PathNode { parent: above, depth, class, change: Change::default() });
                nodes.len() - 1
            })
        });
        let change = &mut nodes[node].change;
        let total = if side == 0 { &mut change.before } else { &mut change.after };
        total.objects += 1;
        total.shallow = total.shallow.saturating_add(graph.size(object));
        if stays.is_none() {
            total.retained = total.retained.saturating_add(tree.bytes_at(position));
        }
        node_at.push(node as u32);
    }
}

/// An object of both snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// What the caller calls it.
    pub identity: u64,
    /// Its number in the first.
    pub before: ObjectId,
    /// Its number in the second.
    pub after: ObjectId,
    /// The bytes that it retained in the first.
    pub retained_before: u64,
    /// The bytes that it retains in the second.
    pub retained_after: u64,
}

/// Two snapshots by object, where the caller knows objects by numbers that stay, such as a tracker's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityDiff {
    /// Objects of both, those that grew most in retained bytes first.
    pub survived: Vec<Survivor>,
    /// Objects of the first only, by identity.
    pub gone: Vec<(u64, ObjectId)>,
    /// Objects of the second only, by identity.
    pub appeared: Vec<(u64, ObjectId)>,
    /// How many identities were given to more than one object of a snapshot. They are in none of the lists.
    pub ambiguous: u64,
}

impl IdentityDiff {
    /// Compares the objects that have identities. Others are not looked at.
    #[must_use]
    pub fn of(
        before: &Dominators<'_>,
        identities_before: impl IntoIterator<Item = (u64, ObjectId)>,
        after: &Dominators<'_>,
        identities_after: impl IntoIterator<Item = (u64, ObjectId)>,
    ) -> Self {
        let mut objects: FxHashMap<u64, [Vec<ObjectId>; 2]> = FxHashMap::default();
        for (identity, object) in identities_before {
            objects.entry(identity).or_default()[0].push(object);
        }
        for (identity, object) in identities_after {
            objects.entry(identity).or_default()[1].push(object);
        }
        let mut diff = Self::default();
        for (identity, sides) in objects {
            match (&*sides[0], &*sides[1]) {
                (&[before_id], &[after_id]) => diff.survived.push(Survivor {
                    identity,
                    before: before_id,
                    after: after_id,
                    retained_before: before.retained_bytes(before_id),
                    retained_after: after.retained_bytes(after_id),
                }),
                (&[object], []) => diff.gone.push((identity, object)),
                ([], &[object]) => diff.appeared.push((identity, object)),
                _ => diff.ambiguous += 1,
            }
        }
        diff.survived
            .sort_unstable_by_key(|one| (Reverse(growth(one.retained_before, one.retained_after)), one.identity));
        diff.gone.sort_unstable();
        diff.appeared.sort_unstable();
        diff
    }
}
