//! `.gcdump` files, read as PerfView's `GCHeapDump`, `MemoryGraph` and `Deserializer` read them; and by Microsoft's
//! dotnet-gcdump.
//!
//! `cargo xtask test` names a `dotnet` and dotnet-gcdump in CORPROF_GCDUMP, if it has them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

mod support;

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use corprof_heap::{Dominators, GraphBuilder, HeapGraph, RootKind, gcdump};
use fastrand::Rng;
use support::{Shape, random};

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn int(&mut self) -> i32 {
        i32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn long(&mut self) -> i64 {
        i64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    /// `MemoryStreamReader.ReadString`.
    fn text(&mut self) -> Option<String> {
        let count = self.int();
        if count < 0 {
            return None;
        }
        let mut units = Vec::new();
        for _ in 0..count {
            let first = u16::from(self.byte());
            let unit = match first {
                ..0x80 => first,
                0x80..0xe0 => (first & 0x1f) << 6 | u16::from(self.byte() & 0x3f),
                _ => (first & 0xf) << 12 | u16::from(self.byte() & 0x3f) << 6 | u16::from(self.byte() & 0x3f),
            };
            units.push(unit);
        }
        Some(String::from_utf16(&units).unwrap())
    }

    /// `Node.ReadCompressedInt`.
    fn compressed(&mut self) -> i32 {
        let mut byte = self.byte();
        let mut value = i32::from(byte) << 25 >> 25;
        while byte & 0x80 != 0 {
            byte = self.byte();
            value = value << 7 | i32::from(byte & 0x7f);
        }
        value
    }

    /// The begin of an object with its type, whose type is null.
    fn begin(&mut self, name: &str) -> (i32, i32) {
        assert_eq!(self.take(3), [4, 4, 1]);
        let versions = (self.int(), self.int());
        assert_eq!(self.text().as_deref(), Some(name));
        assert_eq!(self.byte(), 6);
        versions
    }
}

#[derive(Debug, PartialEq)]
struct Node {
    name: String,
    module: Option<String>,
    address: u64,
    /// The size of its class.
    class_size: i32,
    size: i32,
    children: Vec<usize>,
}

struct Dump {
    nodes: Vec<Node>,
    root: usize,
    process: Option<String>,
    pid: i32,
    ticks: i64,
}

fn read(bytes: &[u8]) -> Dump {
    let mut reader = Reader(bytes);
    assert_eq!(reader.text().as_deref(), Some("!FastSerialization.1"));
    assert_eq!(reader.begin("GCHeapDump"), (10, 8));
    assert_eq!(reader.begin("Graphs.MemoryGraph"), (1, 0));
    let total = reader.long();
    let root = reader.int() as usize;
    let types: Vec<_> = (0..reader.int()).map(|_| (reader.text().unwrap(), reader.int(), reader.text())).collect();
    let labels: Vec<_> = (0..reader.int()).map(|_| reader.int() as u32 as usize).collect();
    let length = reader.int() as usize;
    let blob = reader.take(length);
    let addresses: Vec<_> = (0..reader.int()).map(|_| reader.long() as u64).collect();
    assert_eq!(addresses.len(), labels.len());
    assert_eq!(reader.take(3), [8, 1, 6], "64-bit, and the end");

    let node = |(index, (&label, address)): (usize, (&usize, u64))| {
        let mut node = Reader(&blob[label..]);
        let kind = node.compressed();
        let (name, type_size, module) = types[(kind >> 1) as usize].clone();
        let size = if kind & 1 == 1 { node.compressed() } else { type_size };
        let children = (0..node.compressed()).map(|_| (node.compressed() + index as i32) as usize).collect();
        Node { name, module, address, class_size: type_size, size, children }
    };
    let nodes: Vec<Node> = labels.iter().zip(addresses).enumerate().map(node).collect();
    assert_eq!(nodes.iter().map(|node| i64::from(node.size)).sum::<i64>(), total);
    assert!(nodes.iter().all(|node| node.children.iter().all(|&child| child < nodes.len())));

    assert_eq!(reader.byte(), 1);
    assert_eq!(reader.take(8), [1.0_f32.to_le_bytes(), 1.0_f32.to_le_bytes()].concat());
    assert_eq!((reader.byte(), reader.byte()), (1, 1), "no JavaScript, no segments");
    assert_eq!(reader.text(), None);
    let ticks = reader.long();
    assert_eq!(reader.text(), None);
    let process = reader.text();
    let pid = reader.int();
    assert_eq!((reader.long(), reader.long(), reader.int()), (0, 0, 0));
    assert_eq!(reader.take(6), [12, 0, 0, 0, 0, 1], "a region with nothing in it");
    let region_end = bytes.len() - reader.0.len();
    assert_eq!(reader.byte(), 13);
    assert_eq!(reader.text().as_deref(), Some("corprof"));
    assert_eq!(reader.take(2), [6, 6], "the ends of the object and of all objects");
    let table = bytes.len() - reader.0.len();
    assert_eq!((reader.int(), reader.int() as usize), (1, region_end));
    let trailer = bytes.len() - reader.0.len();
    assert_eq!((reader.int() as usize, reader.int() as usize), (table, trailer));
    assert!(reader.0.is_empty());
    Dump { nodes, root, process, pid, ticks }
}

fn written(graph: &HeapGraph) -> (Dump, gcdump::Written) {
    let mut bytes = Vec::new();
    let written = gcdump::write(&Dominators::of(graph), 4711, &mut bytes).unwrap();
    (read(&bytes), written)
}

#[test]
fn every_object_reference_and_root_is_there() {
    let mut rng = Rng::with_seed(51);
    for round in 0..200 {
        let objects = if round == 0 { 40_000 } else { rng.usize(..60) };
        let references = rng.usize(..=objects * 2);
        let roots = rng.usize(..9);
        let shape = Shape { objects, references, classes: 200, roots, ephemerons: 5, has_tables: true };
        let model = random(&mut rng, shape);
        let graph = model.build_shuffled(&mut rng);
        let tree = Dominators::of(&graph);
        let (dump, result) = written(&graph);
        assert_eq!((result.objects as usize, result.clamped), (objects, 0));
        for (object, node) in graph.objects().zip(&dump.nodes) {
            let class = graph.class(graph.class_of(object));
            assert_eq!((&node.name, node.module.as_ref()), (&class.name, Some(&class.assembly)));
            assert_eq!((node.address, node.size as u64), (graph.address(object), graph.size(object)));
            let live =
                graph.ephemerons_of(object).filter(|pair| pair.table.is_none_or(|table| tree.is_reachable(table)));
            let expected = graph.references(object).chain(live.map(|pair| pair.value)).map(|to| to.index());
            assert_eq!(node.children, expected.collect::<Vec<_>>());
        }
        let mut first_sizes = BTreeMap::new();
        for (object, node) in graph.objects().zip(&dump.nodes) {
            let first = first_sizes.entry(graph.class_of(object)).or_insert(node.size);
            assert_eq!(node.class_size, *first);
        }
        let root = &dump.nodes[dump.root];
        assert_eq!((&*root.name, root.address, root.size), ("[.NET Roots]", 0, 0));
        let mut below: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &kind in &root.children {
            below.insert(&dump.nodes[kind].name, dump.nodes[kind].children.clone());
        }
        let of = |kind: RootKind| -> Vec<usize> {
            graph.roots().iter().filter(|root| root.kind == kind).map(|root| root.object.index()).collect()
        };
        for (name, kind) in [
            ("[static vars]", RootKind::Static),
            ("[local vars]", RootKind::Stack),
            ("[strong Handles]", RootKind::Handle),
            ("[other Roots]", RootKind::Other),
        ] {
            assert_eq!(below.remove(name).unwrap_or_default(), of(kind), "{name}");
        }
        let rest: usize = below.values().map(Vec::len).sum();
        let kinds = [RootKind::PinnedHandle, RootKind::RefCountedHandle, RootKind::Finalizer];
        assert_eq!(rest, kinds.into_iter().map(|kind| of(kind).len()).sum::<usize>());
    }
}

#[test]
fn names_sizes_and_the_time_come_back() {
    let mut builder = GraphBuilder::new("Größe 🦀");
    builder.set_taken(1_795_371_907_000);
    builder.object(0x1000, 1, 1 << 40);
    builder.object(0xffff_ffff_ffff_fff8, 2, 24);
    builder.class(1, "Ärger<T>", "", 24);
    builder.class(2, "列🦀", "Shop", 24);
    builder.root(0x1000, RootKind::Static, Some("Shop.Größe"));
    let (dump, result) = written(&builder.finish().unwrap());
    assert_eq!((dump.process.as_deref(), dump.pid, result.clamped), (Some("Größe 🦀"), 4711, 1));
    assert_eq!(dump.ticks, 639_309_687_070_000_000, "2026-11-22 18:25:07 as .NET counts");
    let names: Vec<_> = dump.nodes.iter().map(|node| (&*node.name, node.module.as_deref(), node.size)).collect();
    let static_field = "[static field Shop.Größe]";
    let expected = [
        ("Ärger<T>", None, i32::MAX),
        ("列🦀", Some("Shop"), 24),
        (static_field, None, 0),
        ("[static vars]", None, 0),
        ("[.NET Roots]", None, 0),
    ];
    assert_eq!(names, expected);
    let children: Vec<_> = dump.nodes.iter().map(|node| node.children.clone()).collect();
    assert_eq!(children, [vec![], vec![], vec![0], vec![2], vec![3]]);
}

/// The report of dotnet-gcdump about the file. None without dotnet-gcdump.
fn report(file: &Path) -> Option<String> {
    let Some(programs) = env::var_os("CORPROF_GCDUMP") else {
        eprintln!("skipped: there is no dotnet-gcdump in CORPROF_GCDUMP");
        return None;
    };
    let programs: Vec<_> = env::split_paths(&programs).collect();
    let [host, tool] = &programs[..] else { panic!("not a host and a tool: {programs:?}") };
    let mut command = Command::new(host);
    command.arg("exec").arg(tool).arg("report").arg(file).env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    Some(stdout)
}

#[test]
fn dotnet_gcdump_shows_each_class() {
    let mut builder = GraphBuilder::new("shop");
    builder.set_taken(1_795_371_907_000);
    // As a dump over the diagnostics port has them: without sizes of classes.
    builder.class(1, "Shop.Basket", "Shop", 0);
    builder.class(2, "System.String", "System.Private.CoreLib", 0);
    for index in 0..5 {
        builder.object(0x1000 + index * 0x100, 1, 40);
    }
    builder.object(0x8000, 2, 64);
    builder.object(0x8100, 2, 72);
    builder.root(0x1000, RootKind::Static, Some("Shop.all"));
    let graph = builder.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.gcdump");
    gcdump::write(&Dominators::of(&graph), 4711, File::create(&file).unwrap()).unwrap();

    let Some(report) = report(&file) else { return };
    let total = 5 * 40 + 64 + 72;
    assert!(report.contains(&format!("{total}  GC Heap bytes")), "{report}");
    for (size, count, name) in [(40, 5, "Shop.Basket"), (64, 2, "System.String")] {
        let line = report.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name}: {report}"));
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..3], [size.to_string().as_str(), count.to_string().as_str(), name], "{report}");
    }
}
