//! The changes between two snapshots.
//!
//! Objects have no identity across collections, so snapshots are compared by stable facts: names of classes, and the
//! classes through which objects are kept alive. Where the caller knows which object is which, [`IdentityDiff`]
//! compares objects.
//!
//! A [`Summary`] is all that a comparison needs of a snapshot, so that only one graph is in memory at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::report::Names;
use crate::totals::{grouped, numbered};
use crate::{Dominators, ObjectId, Total};

/// The default number of classes of a path that are distinguished.
pub const DEFAULT_DEPTH: usize = 24;

/// The most paths of a summary: 20 MB, and as much while they are gathered.
const MOST_PATHS: usize = 1 << 18;

/// A path of classes, and the objects at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathSum {
    /// The path without its last class.
    parent: Option<u32>,
    depth: u32,
    class: u32,
    /// Objects at the end of the path, with the objects that they dominate.
    total: Total,
}

/// Sums of a snapshot by class and by dominator path.
///
/// The dominator path of an object are the classes of the objects that dominate it, from the top down to itself.
/// Neighbours of the same class are one step, so that a list of nodes is one path however long it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    title: String,
    is_whole: bool,
    /// Assembly, name and sums, in order. Classes of one name and assembly are one, in however many contexts they are
    /// loaded.
    classes: Vec<((String, String), Total)>,
    paths: Vec<PathSum>,
    merged: u64,
}

impl Summary {
    /// Sums up. `depth` is the number of classes of a path that are distinguished, such as [`DEFAULT_DEPTH`]; deeper
    /// objects count for the last.
    #[must_use]
    pub fn of(tree: &Dominators<'_>, depth: usize) -> Self {
        let graph = tree.graph();
        let (number_of, names) = numbered(graph, |class| (class.assembly.clone(), class.name.clone()));
        let totals = grouped(tree, &number_of, names.len());
        let classes = names.into_iter().zip(totals).collect();
        let title = graph.title().to_owned();
        let is_whole = graph.losses().is_whole();
        let mut summary = Self { title, is_whole, classes, paths: Vec::new(), merged: 0 };
        summary.add_paths(tree, &number_of, depth.max(1) as u32);
        summary
    }

    /// The subject of the snapshot.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether nothing of the snapshot is known to be missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// How many paths there are.
    #[must_use]
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// How many objects count for a shorter path than their own because there were more than 262,144 paths.
    #[must_use]
    pub fn merged_objects(&self) -> u64 {
        self.merged
    }

    fn add_paths(&mut self, tree: &Dominators<'_>, number_of: &[u32], depth: u32) {
        let graph = tree.graph();
        let mut children: FxHashMap<(Option<u32>, u32), u32> = FxHashMap::default();
        let mut path_at: Vec<u32> = Vec::with_capacity(tree.reachable_count());
        for (position, object) in tree.order().enumerate() {
            let above = tree.parent_at(position).map(|parent| path_at[parent]);
            let class = number_of[graph.class_of(object).index()];
            let stays = above.filter(|&above| {
                let above = &self.paths[above as usize];
                above.class == class || above.depth == depth
            });
            let known = stays.or_else(|| children.get(&(above, class)).copied());
            let is_full = self.paths.len() >= MOST_PATHS;
            let path = match (known, above) {
                (Some(path), _) => path,
                (None, Some(above)) if is_full => {
                    self.merged += 1;
                    above
                }
                // Paths without a parent are as many as classes at most, so they have room always.
                (None, _) => {
                    let depth = above.map_or(1, |above| self.paths[above as usize].depth + 1);
                    let path = self.paths.len() as u32;
                    self.paths.push(PathSum { parent: above, depth, class, total: Total::default() });
                    children.insert((above, class), path);
                    path
                }
            };
            let total = &mut self.paths[path as usize].total;
            total.objects += 1;
            total.shallow = total.shallow.saturating_add(graph.size(object));
            if Some(path) != above {
                total.retained = total.retained.saturating_add(tree.bytes_at(position));
            }
            path_at.push(path);
        }
    }
}

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
    /// The class's name.
    pub name: String,
    /// The assembly's name.
    pub assembly: String,
    /// The sums.
    pub change: Change,
}

/// Compares by class: all classes that either has, those that grew most in retained bytes first.
#[must_use]
pub fn by_class(before: &Summary, after: &Summary) -> Vec<ClassChange> {
    let mut changes: BTreeMap<&(String, String), Change> = BTreeMap::new();
    for (name, total) in &before.classes {
        changes.entry(name).or_default().before = *total;
    }
    for (name, total) in &after.classes {
        changes.entry(name).or_default().after = *total;
    }
    let change = |(name, change): (&(String, String), Change)| {
        let (assembly, name) = name.clone();
        ClassChange { name, assembly, change }
    };
    let mut changes: Vec<_> = changes.into_iter().map(change).collect();
    changes.sort_by_key(|class| Reverse(class.change.retained_growth())); // stable: else by name
    changes
}

/// A path that one of the snapshots has.
#[derive(Debug)]
struct PathChange<'s> {
    parent: Option<usize>,
    /// Assembly and name.
    class: &'s (String, String),
    change: Change,
}

/// Two snapshots by dominator path.
#[derive(Debug)]
pub struct PathDiff<'s> {
    paths: Vec<PathChange<'s>>,
}

impl<'s> PathDiff<'s> {
    /// Compares.
    #[must_use]
    pub fn of(before: &'s Summary, after: &'s Summary) -> Self {
        let mut paths: Vec<PathChange<'s>> = Vec::new();
        let mut places = FxHashMap::default();
        let sums: [fn(&mut Change) -> &mut Total; 2] = [|change| &mut change.before, |change| &mut change.after];
        for (summary, sum) in [before, after].into_iter().zip(sums) {
            let mut place_of: Vec<usize> = Vec::with_capacity(summary.paths.len());
            for path in &summary.paths {
                let parent = path.parent.map(|parent| place_of[parent as usize]);
                let class = &summary.classes[path.class as usize].0;
                let place = *places.entry((parent, class)).or_insert_with(|| {
                    paths.push(PathChange { parent, class, change: Change::default() });
                    paths.len() - 1
                });
                *sum(&mut paths[place].change) = path.total;
                place_of.push(place);
            }
        }
        Self { paths }
    }

    /// How many paths there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether both snapshots have nothing reachable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The change of a path: of the objects at its end, with the objects that they dominate.
    #[must_use]
    pub fn change(&self, path: usize) -> Change {
        self.paths[path].change
    }

    /// The path without its last class; `None` for a path of one class.
    #[must_use]
    pub fn parent(&self, path: usize) -> Option<usize> {
        self.paths[path].parent
    }

    /// The names of a path's classes, from the top down.
    #[must_use]
    pub fn names(&self, path: usize) -> Vec<&'s str> {
        self.classes(path).into_iter().map(|(_, name)| name.as_str()).collect()
    }

    /// The same as they are shown.
    #[must_use]
    pub fn shown<'n>(&self, path: usize, names: &'n Names) -> Vec<&'n str>
    where
        's: 'n,
    {
        self.classes(path).into_iter().map(|(assembly, name)| names.named(assembly, name)).collect()
    }

    /// The paths that grew most in retained bytes, the most first, at most `count`. A path is left out if another that
    /// goes on from it has four fifths of its growth: the longer one is more precise.
    #[must_use]
    pub fn grown(&self, count: usize) -> Vec<usize> {
        let growth = |path: usize| self.paths[path].change.retained_growth();
        let mut largest_child = vec![0; self.paths.len()];
        for (path, parent) in self.paths.iter().enumerate().filter_map(|(path, change)| Some((path, change.parent?))) {
            largest_child[parent] = growth(path).max(largest_child[parent]);
        }
        let tells = |&path: &usize| growth(path) > 0 && largest_child[path] / 4 < growth(path) / 5;
        let mut grown: Vec<usize> = (0..self.paths.len()).filter(tells).collect();
        grown.sort_by_cached_key(|&path| (Reverse(growth(path)), self.classes(path)));
        grown.truncate(count);
        grown
    }

    /// Of the objects at the end of a path, the one that retains most: an example. `tree` is of one of the two
    /// snapshots; `None` if it has no such object.
    #[must_use]
    pub fn largest_at(&self, path: usize, tree: &Dominators<'_>) -> Option<ObjectId> {
        let graph = tree.graph();
        let is_step = |(assembly, name): &&(String, String)| -> Vec<bool> {
            graph.classes().iter().map(|class| class.name == *name && class.assembly == *assembly).collect()
        };
        let steps: Vec<Vec<bool>> = self.classes(path).iter().map(is_step).collect();
        // How many steps of the path lead to each object; 0 for one beside it.
        let mut walked: Vec<u32> = Vec::with_capacity(tree.reachable_count());
        let mut largest: Option<(u64, ObjectId)> = None;
        for (position, object) in tree.order().enumerate() {
            let is_at = |step: u32| steps.get(step as usize).is_some_and(|step| step[graph.class_of(object).index()]);
            let above =
                tree.parent_at(position).map_or(Some(0), |parent| Some(walked[parent]).filter(|&steps| steps > 0));
            let here = match above {
                // Neighbours of the same class are one step.
                Some(steps) if steps > 0 && is_at(steps - 1) => steps,
                Some(steps) if is_at(steps) => steps + 1,
                _ => 0,
            };
            walked.push(here);
            let bytes = tree.bytes_at(position);
            if here as usize == steps.len() && above != Some(here) && largest.is_none_or(|(most, _)| bytes > most) {
                largest = Some((bytes, object));
            }
        }
        largest.map(|(_, object)| object)
    }

    fn classes(&self, path: usize) -> Vec<&'s (String, String)> {
        let up = std::iter::successors(Some(path), |&path| self.paths[path].parent);
        let mut classes: Vec<_> = up.map(|path| self.paths[path].class).collect();
        classes.reverse();
        classes
    }
}

/// An object of both snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The caller's identifier for it.
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

/// Two snapshots by object, where the caller knows objects by numbers that stay.
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
