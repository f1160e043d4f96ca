//! Chains of pending operations: from what is awaited to the method that nobody awaits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use corprof_heap::{HeapGraph, ObjectId};
use serde::Serialize;

use super::names;
use super::pending::{AwaitPlace, Method, Pending};
use crate::async_trace::{self, Awaits};
use crate::heap::inside::TaskFields;
use crate::options::Names;

/// Operations that wait in the same way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Chain {
    /// None of them can ever go on: they await each other, or what nothing can complete.
    pub(super) is_stuck: bool,
    /// What the innermost method awaits.
    pub(super) awaits: String,
    /// The methods, the innermost first. In a circle the innermost one awaits the outermost one.
    pub(super) methods: Vec<String>,
    /// Where each of them awaits, if a PDB tells.
    pub(super) places: Vec<SourceLine>,
    /// Whether a thread stands still until the outermost method ends.
    pub(super) blocks_thread: bool,
    /// Whether a method of the application is among them.
    pub(super) is_mine: bool,
}

/// A line of the source, if it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct SourceLine {
    /// The path, as the compiler was told it.
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// Finds the lines of awaits. A process has few places, and many operations at each.
pub(super) struct Lines {
    pid: u32,
    awaits: Awaits,
    known: HashMap<AwaitPlace, SourceLine>,
}

impl Lines {
    /// Those of a process.
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, awaits: Awaits::default(), known: HashMap::new() }
    }

    fn line(&mut self, method: &Method) -> SourceLine {
        let Some(place) = &method.place else { return SourceLine::default() };
        if let Some(known) = self.known.get(place) {
            return known.clone();
        }
        let (module, token, which) = place;
        let module = async_trace::file(Some(self.pid), module);
        let found = self.awaits.line(&module, *token, *which);
        let (file, line) = found.unzip();
        let found = SourceLine { file, line };
        self.known.insert(place.clone(), found.clone());
        found
    }
}

/// The methods of a circle await each other.
const CIRCLE: &str = "each other, in a circle";
/// What a method awaits of which nothing is known.
const NOTHING: &str = "nothing that was found: it runs, or is queued";

/// A step of a path from an operation that nobody awaits to what it awaits in the end.
struct Link {
    task: usize,
    outer: Option<usize>,
}

/// All chains, with the number of each.
pub(super) fn chains(
    graph: &HeapGraph,
    fields: &TaskFields,
    tasks: &[Pending],
    lines: &mut Lines,
    spelling: Names,
) -> BTreeMap<Chain, usize> {
    let ends = Ends::new(graph, fields, tasks);
    let mut chains = BTreeMap::new();
    for path in paths(tasks) {
        *chains.entry(chain(graph, &ends, tasks, &path, lines, spelling)).or_default() += 1;
    }
    chains
}

/// The places of the tasks of a chain, the innermost first.
struct Path {
    tasks: Vec<usize>,
    is_circle: bool,
}

/// A path for each way from an operation that nobody awaits to what it awaits in the end. What several of them have in
/// common, further paths go only once.
fn paths(tasks: &[Pending]) -> Vec<Path> {
    let mut walk = Walk { links: Vec::new(), is_expanded: vec![false; tasks.len()], paths: Vec::new() };
    for (place, task) in tasks.iter().enumerate() {
        if task.awaiters.is_empty() {
            walk.from(tasks, place);
        }
    }
    // Only circles are left.
    for place in 0..tasks.len() {
        if walk.is_expanded.get(place) == Some(&false) {
            walk.from(tasks, place);
        }
    }
    walk.paths
}

struct Walk {
    links: Vec<Link>,
    is_expanded: Vec<bool>,
    paths: Vec<Path>,
}

impl Walk {
    fn from(&mut self, tasks: &[Pending], start: usize) {
        self.links.clear();
        let mut next = vec![Link { task: start, outer: None }];
        while let Some(link) = next.pop() {
            let Some(task) = tasks.get(link.task) else { continue };
            let was_expanded = self.is_expanded.get_mut(link.task).is_some_and(|is| std::mem::replace(is, true));
            if was_expanded && let Some(circle) = self.circle(&link) {
                self.paths.push(circle);
                continue;
            }
            let place = self.links.len();
            self.links.push(link);
            if task.awaits.is_empty() {
                let tasks = self.path(place).collect();
                self.paths.push(Path { tasks, is_circle: false });
                continue;
            }
            let count = if was_expanded { 1 } else { task.awaits.len() };
            next.extend(task.awaits.iter().take(count).map(|inner| Link { task: *inner, outer: Some(place) }));
        }
    }

    /// The tasks of a path, from this place outwards.
    fn path(&self, from: usize) -> impl Iterator<Item = usize> {
        let link = |place: usize| self.links.get(place);
        std::iter::successors(link(from), move |inner| link(inner.outer?)).map(|link| link.task)
    }

    /// The path up to the same task, if that is on it.
    fn circle(&self, link: &Link) -> Option<Path> {
        let mut tasks: Vec<usize> = self.path(link.outer?).collect();
        let end = tasks.iter().position(|task| *task == link.task)?;
        tasks.truncate(end + 1);
        Some(Path { tasks, is_circle: true })
    }
}

fn chain(graph: &HeapGraph, ends: &Ends, tasks: &[Pending], path: &Path, lines: &mut Lines, spelling: Names) -> Chain {
    let mut methods: Vec<(String, SourceLine)> = Vec::new();
    let mut awaits = None;
    let mut is_stuck = path.is_circle;
    let mut is_mine = false;
    for task in path.tasks.iter().filter_map(|place| tasks.get(*place)) {
        is_mine |= task.methods.iter().any(|method| names::is_mine(&method.name));
        if !task.methods.is_empty() {
            methods.extend(task.methods.iter().map(|method| (spelling.async_method(&method.name), lines.line(method))));
        } else if awaits.is_none() && !path.is_circle {
            awaits = Some(names::task(graph.class_name(task.object), task.is_work));
            is_stuck = ends.cannot_complete(graph, task);
        } else {
            methods.push((names::task(graph.class_name(task.object), task.is_work), SourceLine::default()));
        }
        if awaits.is_none() && !path.is_circle {
            awaits = Some(ends.awaited_by(task.object));
        }
    }
    if path.is_circle {
        // It begins anywhere: always with the same method, so that equal circles are counted together.
        let first = methods.iter().enumerate().min_by_key(|(_, method)| *method).map_or(0, |(place, _)| place);
        methods.rotate_left(first);
    }
    let blocks_thread = path.tasks.iter().filter_map(|place| tasks.get(*place)).any(|task| task.blocks_thread);
    let (methods, places) = methods.into_iter().unzip();
    Chain { is_stuck, awaits: awaits.unwrap_or_else(|| CIRCLE.to_owned()), methods, places, blocks_thread, is_mine }
}

/// What refers to the tasks at the inner ends of chains.
struct Ends {
    /// The classes of the objects that refer to a task, or to a delegate that resumes it: without other tasks, and
    /// without what only resumes or holds tasks.
    classes: HashMap<ObjectId, BTreeSet<String>>,
}

impl Ends {
    fn new(graph: &HeapGraph, fields: &TaskFields, tasks: &[Pending]) -> Self {
        let ends: HashMap<ObjectId, ObjectId> =
            tasks.iter().filter(|task| task.awaits.is_empty()).map(|task| (task.object, task.object)).collect();
        let others: HashSet<ObjectId> = tasks.iter().map(|task| task.object).collect();
        let mut this = Self { classes: HashMap::new() };
        let delegates = this.add(graph, fields, &others, &ends);
        this.add(graph, fields, &others, &delegates);
        this
    }

    /// Adds the classes of the objects that refer to `of`, each of which stands for a task. Returns the delegates among
    /// these objects.
    fn add(
        &mut self,
        graph: &HeapGraph,
        fields: &TaskFields,
        others: &HashSet<ObjectId>,
        of: &HashMap<ObjectId, ObjectId>,
    ) -> HashMap<ObjectId, ObjectId> {
        let mut delegates = HashMap::new();
        for object in graph.objects() {
            for task in graph.references(object).filter_map(|target| of.get(&target)) {
                let class = graph.class_name(object);
                if class.starts_with("System.Action") {
                    delegates.insert(object, *task);
                }
                let is_continuation = fields.continuations.contains_key(&graph.address(object));
                if !others.contains(&object) && !is_continuation && !names::only_holds(class) {
                    self.classes.entry(*task).or_default().insert(class.to_owned());
                }
            }
        }
        delegates
    }

    /// What a method awaits that no task stands for.
    fn awaited_by(&self, task: ObjectId) -> String {
        let Some(classes) = self.classes.get(&task) else { return NOTHING.to_owned() };
        let names: Vec<String> = classes.iter().take(2).map(|class| names::short(class)).collect();
        names.join(" or ")
    }

    /// Whether nothing refers to a promise but what awaits it: neither its source nor anything that could be one.
    fn cannot_complete(&self, graph: &HeapGraph, task: &Pending) -> bool {
        let is_promise = names::of(graph.class_name(task.object), names::PROMISE) && !task.is_work;
        is_promise
            && !task.awaiters.is_empty()
            && !self.classes.contains_key(&task.object)
            && graph.roots_of(task.object).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(object: ObjectId, method: &str, awaiters: &[usize], awaits: &[usize]) -> Pending {
        Pending {
            object,
            methods: if method.is_empty() {
                Vec::new()
            } else {
                vec![Method { name: format!("Shop.{method}()"), place: None }]
            },
            awaiters: awaiters.to_vec(),
            awaits: awaits.to_vec(),
            blocks_thread: false,
            is_work: false,
        }
    }

    fn walked(tasks: &[Pending]) -> Vec<(Vec<usize>, bool)> {
        let mut all: Vec<_> = paths(tasks).into_iter().map(|path| (path.tasks, path.is_circle)).collect();
        all.sort();
        all
    }

    #[test]
    fn each_way_is_a_path_and_shared_parts_are_gone_once() {
        let graph = graph(8);
        let object = |index| graph.object(index).unwrap();
        // 0 <- 1 <- 2, and 0 <- 3
        let tasks = [
            task(object(0), "", &[1, 3], &[]),
            task(object(1), "Load", &[2], &[0]),
            task(object(2), "Request", &[], &[1]),
            task(object(3), "Other", &[], &[0]),
        ];
        assert_eq!(walked(&tasks), [(vec![0, 1, 2], false), (vec![0, 3], false)]);
        // 2 and 3 await 1, which awaits all of 4 to 6
        let tasks = [
            task(object(0), "", &[], &[]),
            task(object(1), "All", &[2, 3], &[4, 5, 6]),
            task(object(2), "First", &[], &[1]),
            task(object(3), "Second", &[], &[1]),
            task(object(4), "", &[1], &[]),
            task(object(5), "", &[1], &[]),
            task(object(6), "", &[1], &[]),
        ];
        let all = walked(&tasks);
        assert_eq!(all.len(), 5, "{all:?}");
        assert!([4, 5, 6].iter().all(|part| all.contains(&(vec![*part, 1, 2], false))), "{all:?}");
        assert_eq!(all.iter().filter(|(path, _)| path.ends_with(&[1, 3])).count(), 1, "{all:?}");
    }

    #[test]
    fn circles_end() {
        let graph = graph(4);
        let object = |index| graph.object(index).unwrap();
        let tasks =
            [task(object(0), "B", &[1], &[1]), task(object(1), "A", &[0, 2], &[0]), task(object(2), "Root", &[], &[1])];
        let paths = paths(&tasks);
        assert!(paths.iter().all(|path| path.is_circle) && !paths.is_empty());
        let chains = chains(&graph, &TaskFields::default(), &tasks, &mut Lines::of(1), Names::default());
        let (chain, count) = chains.first_key_value().unwrap();
        assert_eq!(
            (chain.methods.as_slice(), *count, chain.is_stuck),
            (&["Shop.A()".to_owned(), "Shop.B()".to_owned()][..], 1, true)
        );
        let alone = [task(object(0), "A", &[0], &[0])];
        assert_eq!(walked(&alone), [(vec![0], true)]);
    }

    /// Objects without references.
    fn graph(count: u64) -> HeapGraph {
        let mut builder = corprof_heap::GraphBuilder::new("test");
        builder.class(1, names::PROMISE, "System.Private.CoreLib", 0);
        for index in 0..count {
            builder.object(8 + index * 32, 1, 32);
        }
        builder.finish().unwrap()
    }
}
