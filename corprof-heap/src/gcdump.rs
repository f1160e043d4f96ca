//! Writes `.gcdump` files, which Visual Studio and PerfView show.
//!
//! The format is PerfView's serialization of its class `GCHeapDump`, version 10: everything is little-endian, lengths
//! and places have 32 bits. Roots hang on nodes with names in brackets, such as `[static vars]`, below the node `[.NET
//! Roots]`. Values of weak tables are references of their keys.

use std::io::{self, Write};

use crate::{Dominators, HeapGraph, ObjectId, RootKind};

mod stream;

use stream::{Stream, compressed_length};

/// The time of `DateTime.Ticks` at the beginning of 1970, and the ticks of a millisecond.
const TICKS_OF_1970: u64 = 621_355_968_000_000_000;
const TICKS_PER_MILLISECOND: u64 = 10_000;

/// Numbers of written objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Objects, unreachable ones among them.
    pub objects: u64,
    /// Objects whose size is more than the format holds. They are written with 2,147,483,647 bytes.
    pub clamped: u64,
}

/// A node that is not an object: one above roots.
struct Heading {
    name: String,
    /// Numbers of nodes.
    children: Vec<u32>,
}

/// The nodes of the file: first the objects, then the headings, of which the last is the root.
struct Nodes<'t, 'g> {
    tree: &'t Dominators<'g>,
    graph: &'g HeapGraph,
    headings: Vec<Heading>,
    /// The size of each class: nodes of another size have their own.
    class_sizes: Vec<i32>,
}

/// Writes the whole graph as the heap of the process `pid`.
///
/// # Errors
/// Those of `writer`, and `InvalidInput` if the nodes take more than 2 GB, which is the most that readers bear.
pub fn write(tree: &Dominators<'_>, pid: u32, writer: impl Write) -> io::Result<Written> {
    let graph = tree.graph();
    let nodes = Nodes { tree, graph, headings: headings(graph), class_sizes: class_sizes(graph) };
    let mut out = Stream::new(writer);
    out.text(Some("!FastSerialization.1"))?;
    out.begin("GCHeapDump", 10, 8)?;
    out.begin("Graphs.MemoryGraph", 1, 0)?;
    let clamped = nodes.write(&mut out)?;
    out.end()?;
    out.byte(1)?; // 64-bit
    out.float(1.0)?; // no sampling: of counts
    out.float(1.0)?; // and of sizes
    out.null()?; // heap of JavaScript
    out.null()?; // segments
    out.text(None)?; // log
    let ticks =
        graph.taken().map_or(0, |taken| taken.saturating_mul(TICKS_PER_MILLISECOND).saturating_add(TICKS_OF_1970));
    out.long(ticks)?;
    out.text(None)?; // machine
    out.text(Some(graph.title()))?;
    out.int(pid)?;
    out.long(0)?; // commit
    out.long(0)?; // working set
    out.int(0)?; // factors of types, where objects were sampled
    out.skippable_null()?; // COM
    out.tagged_text("corprof")?;
    out.end()?;
    out.finish()?;
    Ok(Written { objects: graph.len() as u64, clamped })
}

fn headings(graph: &HeapGraph) -> Vec<Heading> {
    let mut headings: Vec<Heading> = Vec::new();
    let mut kinds = Vec::new();
    let first = graph.len() as u32;
    for kind in RootKind::ALL {
        let mut children = Vec::new();
        for root in graph.roots().iter().filter(|root| root.kind == kind) {
            match &root.name {
                Some(name) => {
                    children.push(first + headings.len() as u32);
                    headings.push(Heading { name: format!("[{} {name}]", kind.name()), children: vec![root.object.0] });
                }
                None => children.push(root.object.0),
            }
        }
        if !children.is_empty() {
            kinds.push(first + headings.len() as u32);
            headings.push(Heading { name: heading(kind).to_owned(), children });
        }
    }
    headings.push(Heading { name: "[.NET Roots]".to_owned(), children: kinds });
    headings
}

fn heading(kind: RootKind) -> &'static str {
    match kind {
        RootKind::Static => "[static vars]",
        RootKind::Stack => "[local vars]",
        RootKind::Handle => "[strong Handles]",
        RootKind::PinnedHandle => "[pinned Handles]",
        RootKind::RefCountedHandle => "[ref-counted Handles]",
        RootKind::Finalizer => "[finalizer Handles]",
        RootKind::Other => "[other Roots]",
        RootKind::Frozen => "[frozen objects]",
    }
}

/// The size of each class, which is that of its first object, as other writers of the format have it: of a string or an
/// array no other size is known. Readers show no class of size 0.
fn class_sizes(graph: &HeapGraph) -> Vec<i32> {
    let mut sizes: Vec<Option<i32>> = vec![None; graph.classes().len()];
    for object in graph.objects() {
        sizes[graph.class_of(object).index()].get_or_insert(clamped(graph.size(object)));
    }
    let instance_sizes = graph.classes().iter().map(|class| clamped(class.instance_size));
    sizes.into_iter().zip(instance_sizes).map(|(size, instance)| size.unwrap_or(instance)).collect()
}

/// A size as the format holds it.
fn clamped(size: u64) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}

impl Nodes<'_, '_> {
    /// Writes the object `MemoryGraph`; how many sizes were clamped.
    fn write(&self, out: &mut Stream<impl Write>) -> io::Result<u64> {
        let graph = self.graph;
        let count = graph.len() + self.headings.len();
        let is_clamped = |object: &ObjectId| i32::try_from(graph.size(*object)).is_err();
        let total = graph.objects().fold(0_u64, |sum, object| sum.saturating_add(clamped(graph.size(object)) as u64));
        out.long(total)?;
        out.int(self.number(count - 1)?)?;

        out.int(self.number(graph.classes().len() + self.headings.len())?)?;
        for (class, size) in graph.classes().iter().zip(&self.class_sizes) {
            out.text(Some(&class.name))?;
            out.int(size.cast_unsigned())?;
            out.text(Some(class.assembly.as_str()).filter(|assembly| !assembly.is_empty()))?;
        }
        for heading in &self.headings {
            out.text(Some(&heading.name))?;
            out.int(0)?;
            out.text(None)?;
        }

        // Where each node begins comes before the nodes, so these are gone through twice.
        out.int(self.number(count)?)?;
        let mut at = 0;
        for node in 0..count {
            out.int(self.number(at)?)?;
            self.node(node, &mut |value| {
                at += compressed_length(value);
                Ok(())
            })?;
        }
        out.int(self.number(at)?)?;
        for node in 0..count {
            self.node(node, &mut |value| out.compressed(value))?;
        }

        out.int(self.number(count)?)?;
        graph.addresses.iter().try_for_each(|address| out.long(address))?;
        self.headings.iter().try_for_each(|_| out.long(0))?;
        out.tagged_byte(1)?; // 64-bit
        Ok(graph.objects().filter(is_clamped).count() as u64)
    }

    /// A number that readers take for a signed one of 32 bits.
    fn number(&self, number: usize) -> io::Result<u32> {
        let too_large = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the heap is too large for a .gcdump file, which ends at 2 GB of nodes: write another format",
            )
        };
        // Node and class numbers are doubled or subtracted.
        if i32::try_from(number).is_ok() { Ok(number as u32) } else { Err(too_large()) }
    }

    /// The numbers that a node consists of: twice its type, and 1 if its size follows; the size; how many children;
    /// their distances.
    fn node(&self, node: usize, out: &mut dyn FnMut(i32) -> io::Result<()>) -> io::Result<()> {
        let graph = self.graph;
        let distance = |to: u32| to.wrapping_sub(node as u32).cast_signed();
        if let Some(heading) = node.checked_sub(graph.len()) {
            out(((graph.classes().len() + heading) << 1) as i32)?;
            let children = &self.headings[heading].children;
            out(children.len() as i32)?;
            return children.iter().try_for_each(|&child| out(distance(child)));
        }
        let object = ObjectId(node as u32);
        let class = graph.class_of(object);
        let size = clamped(graph.size(object));
        if size == self.class_sizes[class.index()] {
            out((class.0 << 1).cast_signed())?;
        } else {
            out((class.0 << 1 | 1).cast_signed())?;
            out(size)?;
        }
        let is_live = |table: Option<ObjectId>| table.is_none_or(|table| self.tree.is_reachable(table));
        let values = || graph.ephemerons_of(object).filter(|pair| is_live(pair.table)).map(|pair| pair.value);
        out((graph.references(object).count() + values().count()) as i32)?;
        graph.references(object).chain(values()).try_for_each(|to| out(distance(to.0)))
    }
}
