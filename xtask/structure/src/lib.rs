//! The imports between the rooms of `corprof/src`, and their circles; and circles in the other crates. `cargo xtask
//! structure` prints them.
//!
//! A room is a module directly below the root, a folder or a file. An arrow goes from one file to another from which it
//! names an item: by `use`, by a path in the code, or inside a macro call. It ends at the item's definition, not at a
//! re-export. Code for tests, imports for documentation and exported macros do not count.

mod paths;
pub mod safety;
mod tree;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Result;
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use tree::Tree;

/// The rooms from the top down: each imports only from rooms below it. A room is named by its first module; `lib` is
/// the root, and `generated` has files for several rooms.
const ORDER: [&[&str]; 38] = [
    &["lib"],
    &["testing", "generated::contract_table", "generated::fake_info", "generated::fake_metadata"],
    &["adapter", "generated::thunks"],
    &["prelude"],
    &["profiler", "generated::callbacks"],
    &["callback_event", "generated::callback_event"],
    &["wrong_context", "generated::absent"],
    &["calls"],
    &["hooks"],
    &["lock_waits"],
    &["inlined_frames"],
    &["object_chains"],
    &["sampler"],
    &["walk"],
    &["names"],
    &["detach"],
    &["heap_dump"],
    &["instrumentation"],
    &["profiler_thread"],
    &["edit"],
    &["values"],
    &["info"],
    &["args"],
    &["metadata"],
    &["sync"],
    &["context"],
    &["runtime_layout"],
    &["session"],
    &["il_body"],
    &["ffi"],
    &["generated"],
    &["event_mask", "generated::events"],
    &["id"],
    &["error"],
    &["report"],
    &["suspension"],
    &["lock"],
    &["system"],
];

/// The other crates whose files must not import each other in a circle.
pub const CRATES: [&str; 15] = [
    "corprof-sys/gen",
    "corprof-macros",
    "corprof-events",
    "corprof-il",
    "corprof-export",
    "corprof-heap",
    "corprof-nettrace",
    "corprof-async",
    "corprof-diagnostics",
    "profilers",
    "corprof-launch",
    "corprof-cli",
    "tests",
    "xtask",
    "xtask/structure",
];

/// One file names an item of another; both are paths below `src`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Arrow {
    /// The file that names it.
    pub from: String,
    /// The file that defines it.
    pub to: String,
}

/// The rooms of a crate, and the imports between them.
#[derive(Debug)]
pub struct Structure {
    /// The rooms from the top down, each with the number of its files.
    pub rooms: Vec<(String, usize)>,
    /// Between rooms: from, to, and the number of arrows.
    pub between: Vec<(String, String, usize)>,
    /// Files of several rooms that reach each other.
    pub circles: Vec<Vec<String>>,
    /// Arrows from a room to one above it.
    pub upward: Vec<Arrow>,
}

impl Structure {
    /// The structure of `corprof/src` in the workspace at `root`.
    ///
    /// # Errors
    /// If its files cannot be read or parsed, or a room has no place in the order.
    pub fn of_corprof(root: &Path) -> Result<Self> {
        Self::of(&Tree::read(&root.join("corprof/src"))?, &ORDER)
    }

    /// Whether there are neither circles nor arrows up.
    pub fn is_sound(&self) -> bool {
        self.circles.is_empty() && self.upward.is_empty()
    }

    fn of(tree: &Tree, order: &[&[&str]]) -> Result<Self> {
        // The place in the order of each file's room.
        let places: Vec<usize> = tree.files.iter().map(|file| place(&file.module, order)).collect::<Result<_>>()?;
        let arrows = tree.arrows();
        let circles = circles(tree, &arrows, &places);
        let name = |file: usize| tree.name(file);
        let place = |file: usize| places.get(file).copied().unwrap_or_default();

        let upward = arrows.iter().filter(|&&(from, to)| place(to) < place(from));
        let upward = upward.map(|&(from, to)| Arrow { from: name(from), to: name(to) }).collect();
        let mut rooms = Vec::new();
        let mut between = Vec::new();
        let names: Vec<&str> = order.iter().filter_map(|room| room.first().copied()).collect();
        for (at, room) in names.iter().enumerate() {
            let files = places.iter().filter(|&&place| place == at).count();
            if files > 0 {
                rooms.push(((*room).to_owned(), files));
            }
            for (other, target) in names.iter().enumerate().filter(|&(other, _)| other != at) {
                let count = arrows.iter().filter(|&&(from, to)| (place(from), place(to)) == (at, other)).count();
                if count > 0 {
                    between.push(((*room).to_owned(), (*target).to_owned(), count));
                }
            }
        }
        Ok(Self { rooms, between, circles, upward })
    }
}

/// The circles of imports in each of [`CRATES`], of the workspace at `root`: the crate, and the files of a circle.
///
/// # Errors
/// If a file cannot be read or parsed.
pub fn circles_of_crates(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let mut found = Vec::new();
    for name in CRATES {
        let circles = circles_below(&root.join(name).join("src"))?;
        found.extend(circles.into_iter().map(|files| (name, files)));
    }
    Ok(found)
}

/// The circles of files in several modules directly below the root.
fn circles_below(src: &Path) -> Result<Vec<Vec<String>>> {
    let tree = Tree::read(src)?;
    let rooms: Vec<Option<&String>> = tree.files.iter().map(|file| file.module.first()).collect();
    Ok(circles(&tree, &tree.arrows(), &rooms))
}

/// The files that reach each other, if they are of several rooms. `rooms` has that of each file.
fn circles<R: Ord>(tree: &Tree, arrows: &BTreeSet<(usize, usize)>, rooms: &[R]) -> Vec<Vec<String>> {
    let mut graph = DiGraphMap::<usize, ()>::new();
    for &(from, to) in arrows {
        graph.add_edge(from, to, ());
    }
    let mut found = Vec::new();
    for files in tarjan_scc(&graph) {
        let rooms: BTreeSet<_> = files.iter().filter_map(|&file| rooms.get(file)).collect();
        if rooms.len() > 1 {
            let mut names: Vec<String> = files.into_iter().map(|file| tree.name(file)).collect();
            names.sort();
            found.push(names);
        }
    }
    found
}

/// The place of a module's room in the order: the longest entry that the module begins with.
fn place(module: &[String], order: &[&[&str]]) -> Result<usize> {
    let path = if module.is_empty() { "lib".to_owned() } else { module.join("::") };
    let is_of = |part: &str| path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let parts = order.iter().enumerate().flat_map(|(place, room)| room.iter().map(move |part| (place, *part)));
    let found = parts.filter(|(_, part)| is_of(part)).max_by_key(|(_, part)| part.len());
    found.map(|(place, _)| place).ok_or_else(|| {
        anyhow::anyhow!("{path} is of a room without a place: put it into the order in xtask/structure/src/lib.rs")
    })
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Rooms, from the top down, and their imports:")?;
        for (room, files) in &self.rooms {
            let targets = self.between.iter().filter(|(from, ..)| from == room);
            let targets: Vec<_> = targets.map(|(_, to, count)| format!("{to} {count}")).collect();
            writeln!(f, "  {room} ({files} files): {}", targets.join(", "))?;
        }
        writeln!(f, "Circles of files in several rooms: {}", self.circles.len())?;
        for circle in &self.circles {
            writeln!(f, "  {} files: {}", circle.len(), circle.join(" "))?;
        }
        writeln!(f, "Arrows up: {}", self.upward.len())?;
        self.upward.iter().try_for_each(|Arrow { from, to }| writeln!(f, "  {from} -> {to}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structure of a crate of these files, for rooms in this order.
    fn structure(rooms: &[&str], files: &[(&str, &str)]) -> Structure {
        let order: Vec<_> = rooms.iter().map(std::slice::from_ref).collect();
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Structure::of(&Tree::read(dir.path()).unwrap(), &order).unwrap()
    }

    fn shown(arrows: &[Arrow]) -> Vec<String> {
        arrows.iter().map(|Arrow { from, to }| format!("{from} {to}")).collect()
    }

    #[test]
    fn files_of_two_rooms_that_reach_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod high; mod low;"),
            ("high/mod.rs", "mod inner; pub use inner::Thing; use crate::low::Base;"),
            ("high/inner.rs", "pub struct Thing(super::Base);"),
            ("low.rs", "pub struct Base; fn make() -> crate::high::Thing { todo!() }"),
        ];
        let found = structure(&["lib", "high", "low"], &files);
        assert_eq!(shown(&found.upward), ["low.rs high/inner.rs"], "where it is defined, not where it is exported");
        assert_eq!(found.circles, [["high/inner.rs", "low.rs"]]);
        assert!(!found.is_sound());
    }

    #[test]
    fn circles_of_a_crate_without_an_order_are_between_modules_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("lib.rs", "mod one; mod two; mod three; pub struct Root;"),
            ("one.rs", "mod part; pub struct One(part::Part);"),
            ("one/part.rs", "pub struct Part; fn up(_: super::One, _: crate::three::Three) {}"),
            ("two.rs", "pub struct Two(crate::three::Three);"),
            ("three.rs", "pub struct Three; fn back(_: crate::two::Two, _: crate::Root) {}"),
        ];
        std::fs::create_dir(dir.path().join("one")).unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let found = circles_below(dir.path()).unwrap();
        assert_eq!(found, [["three.rs", "two.rs"]], "a module and its own part may name each other");
    }

    #[test]
    fn tests_documentation_and_exported_macros_do_not_count() {
        let files = [
            ("lib.rs", "mod high; mod low; pub use high::Thing;"),
            ("high.rs", "pub struct Thing;"),
            (
                "low.rs",
                "#[cfg(doc)] use crate::high::Thing;
                 #[cfg(all(test, unix))] mod tests;
                 #[macro_export] macro_rules! make { () => { $crate::Thing } }
                 #[cfg(test)] impl Low { fn high() -> crate::high::Thing { todo!() } }
                 struct Low;",
            ),
            ("low/tests.rs", "use crate::high::Thing;"),
        ];
        let found = structure(&["lib", "high", "low"], &files);
        assert!(found.is_sound() && found.upward.is_empty(), "{found}");
        assert_eq!(found.rooms, [("lib".to_owned(), 1), ("high".to_owned(), 1), ("low".to_owned(), 1)]);
    }

    #[test]
    fn paths_of_every_form_are_followed() {
        let high = ["A", "B", "C", "D", "E", "F"].map(|name| format!("pub struct {name};")).join(" ");
        let forms = [
            "use crate::high::A;",
            "use crate::{high::{self, B}};",
            "use crate::high; fn f(_: high::C) {}",
            "use super::high::*;",
            "fn f() { macro_call!(crate::high::E); }",
            "mod inner { use super::super::high::F; }",
            "#[cfg(not(test))] use crate::high::A;",
            "use crate::Exported;",
            "fn f() { quote!(crate::lib::Lib); let _: crate::high::A; }",
        ];
        for low in forms {
            let root = "mod high; mod low; pub use high::A as Exported;";
            let found = structure(&["lib", "high", "low"], &[("lib.rs", root), ("high.rs", &high), ("low.rs", low)]);
            assert_eq!(shown(&found.upward), ["low.rs high.rs"], "{low}");
        }
    }

    #[test]
    fn a_file_without_a_place_is_an_error_and_the_longest_entry_counts() {
        let module = ["generated", "events"].map(str::to_owned);
        assert_eq!(place(&module, &[&["generated"], &["high", "generated::events"]]).unwrap(), 1);
        assert_eq!(place(&module, &[&["generated"], &["generated::event"]]).unwrap(), 0);
        assert!(place(&module, &[&["lib"]]).unwrap_err().to_string().contains("generated::events"));
    }
}
