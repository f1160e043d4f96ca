//! Writes `.heapsnapshot` files, which Chrome's developer tools and Visual Studio Code show.
//!
//! The viewers work out dominators and retained sizes themselves, and hold everything in memory: files above some
//! hundred megabytes are too large for them. So the number of objects is capped. Those that retain most are written;
//! the others are summed up in a node below their dominator, so that retained sizes are still right.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::graph::NONE;
use crate::{Dominators, HeapGraph, ObjectId};

mod selection;

use selection::Selection;

/// The most objects that are written unless the caller says otherwise.
pub const DEFAULT_CAP: usize = 1_000_000;

/// Numbers of written and omitted objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Objects that have a node of their own.
    pub objects: u64,
    /// Reachable objects that are summed up under their dominators.
    pub left_out: u64,
    /// Unreachable objects. Viewers have no place for them.
    pub unreachable: u64,
    /// Nodes whose size is more than the format holds. They are written with 4,294,967,295 bytes.
    pub clamped: u64,
}

/// Numbers that a node and an edge have.
const NODE_FIELDS: u64 = 7;

/// Places in `node_types`.
const OBJECT: u64 = 3;
const SYNTHETIC: u64 = 9;

/// Places in `edge_types`.
const ELEMENT: u64 = 1;
const PROPERTY: u64 = 2;
const INTERNAL: u64 = 3;

/// The beginning of the file: the fields that follow, as V8 names them.
const META: &str = concat!(
    r#"{"node_fields":["type","name","id","self_size","edge_count","trace_node_id","detachedness"],"#,
    r#""node_types":[["hidden","array","string","object","code","closure","regexp","number","native","synthetic","#,
    r#""concatenated string","sliced string","symbol","bigint","object shape"],"#,
    r#""string","number","number","number","number","number"],"#,
    r#""edge_fields":["type","name_or_index","to_node"],"#,
    r#""edge_types":[["context","element","property","internal","hidden","shortcut","weak"],"string_or_number","node"],"#,
    r#""trace_function_info_fields":["function_id","name","script_name","script_id","line","column"],"#,
    r#""trace_node_fields":["id","function_info_index","count","size","children"],"#,
    r#""sample_fields":["timestamp_us","last_assigned_id"],"#,
    r#""location_fields":["object_index","script_id","line","column"]}"#
);

/// Writes the reachable objects, at most `cap`: those that retain most.
///
/// Where some are left out, the file says so in a node below its root, and its field `snapshot.corprof` counts them.
///
/// # Errors
/// Those of `writer`.
pub fn write(tree: &Dominators<'_>, cap: usize, writer: impl Write) -> io::Result<Written> {
    // An edge names its target by the place in the list of nodes, in 32 bits; each object may need a second node, for
    // the omitted ones.
    let cap = cap.min(u32::MAX as usize / NODE_FIELDS as usize / 2 - 2);
    let selection = Selection::of(tree, cap);
    Snapshot { tree, graph: tree.graph(), selection, strings: Strings::default(), clamped: 0 }.write(writer)
}

/// Texts by number, in order of first use.
#[derive(Default)]
struct Strings {
    numbers: FxHashMap<String, u64>,
    all: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

struct Snapshot<'t, 'g> {
    tree: &'t Dominators<'g>,
    graph: &'g HeapGraph,
    selection: Selection,
    strings: Strings,
    clamped: u64,
}

/// Numbers with commas between them, a record a line.
struct List<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> List<W> {
    fn record(&mut self, numbers: &[u64]) -> io::Result<()> {
        for (place, number) in numbers.iter().enumerate() {
            let separator = if self.is_first { "" } else { "," };
            let line = if place == 0 { "\n" } else { "" };
            write!(self.out, "{separator}{line}{number}")?;
            self.is_first = false;
        }
        Ok(())
    }
}

/// An edge: type, name or index, node.
type Edge = [u64; 3];

impl Snapshot<'_, '_> {
    fn write(mut self, mut out: impl Write) -> io::Result<Written> {
        // The order of nodes: the root, objects by address, then the nodes for the omitted ones.
        let tops = self.edges_of_root();
        let mut edges = tops.len() as u64;
        let mut buffer = Vec::new();
        for place in 0..self.selection.objects.len() {
            self.edges(place, &mut buffer);
            edges += buffer.len() as u64;
        }
        let nodes = 1 + self.selection.objects.len() as u64 + self.selection.rests.len() as u64;
        let written = self.selection.objects.len() as u64;
        let left_out = self.tree.reachable_count() as u64 - written;
        let unreachable = (self.graph.len() - self.tree.reachable_count()) as u64;
        write!(
            out,
            "{{\"snapshot\":{{\"meta\":{META},\n\"node_count\":{nodes},\"edge_count\":{edges},\"trace_function_count\":0,"
        )?;
        let counts =
            format!(r#""objects_written":{written},"objects_left_out":{left_out},"objects_unreachable":{unreachable}"#);
        write!(out, "\"corprof\":{{{counts}}}}},\n\"nodes\":[")?;
        self.nodes(&mut List { out: &mut out, is_first: true }, tops.len() as u64)?;

        write!(out, "],\n\"edges\":[")?;
        let mut list = List { out: &mut out, is_first: true };
        tops.iter().try_for_each(|edge| list.record(edge))?;
        for place in 0..self.selection.objects.len() {
            self.edges(place, &mut buffer);
            buffer.iter().try_for_each(|edge| list.record(edge))?;
        }
        write!(
            out,
            "],\n\"trace_function_infos\":[],\"trace_tree\":[],\"samples\":[],\"locations\":[],\n\"strings\":["
        )?;
        for (place, text) in self.strings.all.iter().enumerate() {
            write!(out, "{}\n{}", if place == 0 { "" } else { "," }, serde_json::to_string(text)?)?;
        }
        writeln!(out, "]}}")?;
        out.flush()?;
        Ok(Written { objects: written, left_out, unreachable, clamped: self.clamped })
    }

    fn nodes(&mut self, list: &mut List<impl Write>, root_edges: u64) -> io::Result<()> {
        let mut id = 1;
        let mut node = |kind, name, size: u64, edges, clamped: &mut u64| {
            let held = size.min(u64::from(u32::MAX));
            *clamped += u64::from(held < size);
            let record = [kind, name, id, held, edges, 0, 0];
            id += 2;
            list.record(&record)
        };
        let name = self.strings.number(self.graph.title());
        node(SYNTHETIC, name, 0, root_edges, &mut self.clamped)?;
        let mut buffer = Vec::new();
        for place in 0..self.selection.objects.len() {
            self.edges(place, &mut buffer);
            let object = ObjectId(self.selection.objects[place]);
            let name = self.strings.number(self.graph.class_name(object));
            node(OBJECT, name, self.graph.size(object), buffer.len() as u64, &mut self.clamped)?;
        }
        for place in 0..self.selection.rests.len() {
            let rest = self.selection.rests[place];
            let name = match rest.below {
                NONE => {
                    let all = self.tree.reachable_count();
                    format!(
                        "({} of {all} objects are here; of the others, {} are not below one of them)",
                        self.selection.objects.len(),
                        rest.objects
                    )
                }
                _ => format!("({} objects left out)", rest.objects),
            };
            let name = self.strings.number(&name);
            node(SYNTHETIC, name, rest.bytes, 0, &mut self.clamped)?;
        }
        Ok(())
    }

    fn edges_of_root(&mut self) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut is_root = vec![false; self.selection.objects.len()];
        for root in self.graph.roots() {
            if let Some(place) = self.selection.place(root.object) {
                edges.push([PROPERTY, self.strings.number(&root.to_string()), node_of(place)]);
                is_root[place] = true;
            }
        }
        for (place, _) in is_root.iter().enumerate().filter(|&(_, &is_root)| !is_root) {
            if self.tree.immediate_dominator(ObjectId(self.selection.objects[place])).is_none()
                && !self.selection.is_whole()
            {
                edges.push([INTERNAL, self.strings.number("through objects left out"), node_of(place)]);
            }
        }
        if let Some(rest) = self.selection.rest_of(NONE) {
            edges.push([INTERNAL, self.strings.number("left out"), node_of(self.selection.objects.len() + rest)]);
        }
        edges
    }

    /// The edges of an object's node, by its place among those that are written.
    fn edges(&mut self, place: usize, edges: &mut Vec<Edge>) {
        edges.clear();
        let object = ObjectId(self.selection.objects[place]);
        for (index, to) in self.graph.references(object).enumerate() {
            if let Some(to) = self.selection.place(to) {
                edges.push([ELEMENT, index as u64, node_of(to)]);
            }
        }
        let live = |table: Option<ObjectId>| table.is_none_or(|table| self.tree.is_reachable(table));
        for pair in self.graph.ephemerons_of(object).filter(|pair| live(pair.table)) {
            if let Some(to) = self.selection.place(pair.value) {
                edges.push([INTERNAL, self.strings.number("value in a weak table"), node_of(to)]);
            }
        }
        if self.selection.is_whole() {
            return;
        }
        // The objects it dominates may be reachable only through omitted ones.
        let mut direct: Vec<u64> = edges.iter().map(|edge| edge[2]).collect();
        direct.sort_unstable();
        for below in self.tree.dominated_by(object) {
            if let Some(to) = self.selection.place(below).map(node_of).filter(|to| direct.binary_search(to).is_err()) {
                edges.push([INTERNAL, self.strings.number("through objects left out"), to]);
            }
        }
        if let Some(rest) = self.selection.rest_of(object.0) {
            edges.push([INTERNAL, self.strings.number("left out"), node_of(self.selection.objects.len() + rest)]);
        }
    }
}

/// The number by which an edge names the node at a place after the root.
fn node_of(place: usize) -> u64 {
    (place as u64 + 1) * NODE_FIELDS
}
