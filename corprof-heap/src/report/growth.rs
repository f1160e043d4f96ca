//! What has grown from one snapshot to another, and the way from a root to it.

use serde::Serialize;

use super::Names;
use crate::diff::{PathDiff, Summary};
use crate::{Dominators, ObjectId, Paths};

/// Groups that have grown by fewer bytes are left out.
const LEAST: i64 = 1000;

/// What has grown from one snapshot to another.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    application: String,
    seconds_between: f64,
    /// Those that have grown most first.
    groups: Vec<Group>,
}

/// Objects of one class, which objects of the same classes keep.
#[derive(Clone, Debug, Serialize)]
struct Group {
    class: String,
    /// By how much what they keep has grown.
    bytes: i64,
    /// How many more of them there are.
    objects: i64,
    /// What holds the first object of the way to one of them.
    root: Option<String>,
    way: Vec<Step>,
}

/// Objects on the way from a root.
#[derive(Clone, Debug, Serialize)]
struct Step {
    class: String,
    /// How many of this class follow one another.
    in_a_row: usize,
    /// How many more there are of those without which the objects of the group would be freed.
    objects: i64,
}

impl Growth {
    /// The groups of objects that have grown most, `top` at most. `tree` is that of the second snapshot, of which
    /// `after` has the sums.
    #[must_use]
    pub fn of(
        before: &Summary,
        after: &Summary,
        tree: &Dominators<'_>,
        top: usize,
        seconds_between: f64,
        names: &Names,
    ) -> Self {
        let graph = tree.graph();
        let diff = PathDiff::of(before, after);
        let paths = Paths::of(graph);
        let mut found = diff.grown(top);
        found.retain(|&group| diff.change(group).retained_growth() >= LEAST);
        let mut groups = Vec::new();
        for group in found {
            let change = diff.change(group);
            let class = diff.shown(group, names).last().copied().unwrap_or_default().to_owned();
            let path = diff.largest_at(group, tree).and_then(|object| paths.to(object));
            // Those of the way without which the object would be freed.
            let mut keepers: Vec<usize> = std::iter::successors(Some(group), |&group| diff.parent(group)).collect();
            let mut way = Vec::new();
            if let Some(path) = &path {
                let steps = path.steps.iter().map(|&(_, object)| object);
                let objects: Vec<ObjectId> = std::iter::once(path.root.object).chain(steps).collect();
                for run in objects.chunk_by(|one, next| graph.class_name(*one) == graph.class_name(*next)) {
                    let Some(&first) = run.first() else { continue };
                    let name = graph.class_name(first);
                    let keeper = keepers.pop_if(|&mut keeper| diff.names(keeper).last() == Some(&name));
                    let objects = keeper.map_or(0, |keeper| diff.change(keeper).object_growth());
                    let class = names.of_object(graph, first).to_owned();
                    way.push(Step { class, in_a_row: run.len(), objects });
                }
            }
            groups.push(Group {
                class,
                bytes: change.retained_growth(),
                objects: change.object_growth(),
                root: path.map(|path| names.root(path.root)),
                way,
            });
        }
        Self { application: graph.title().to_owned(), seconds_between, groups }
    }

    /// The lines for a terminal.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Self { application, seconds_between, groups } = self;
        let mut lines = vec![
            String::new(),
            format!("What has grown in {application} in {seconds_between:.0} s, and what keeps it:"),
        ];
        if groups.is_empty() {
            lines.push("nothing".to_owned());
        }
        for group in groups {
            let Group { class, bytes, objects, root, way } = group;
            lines.push(String::new());
            lines.push(format!("{:+} kB: {objects:+} objects of {class}", bytes / 1000));
            lines.extend(root.iter().map(|root| format!("    {root}")));
            for Step { class, in_a_row, objects } in way {
                let more = if *objects > 0 { format!("  {objects:+}") } else { String::new() };
                let row = if *in_a_row > 1 { format!(", {in_a_row} in a row") } else { String::new() };
                lines.push(format!("    -> {class}{row}{more}"));
            }
        }
        lines.push(String::new());
        lines
    }
}
