//! Written files, read back by independent readers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

mod support;

use corprof_heap::report::{Names, Options, Report};
use corprof_heap::{Dominators, GraphBuilder, HeapGraph, RootKind, Totals, chrome, gcdump, perfetto};
use fastrand::Rng;
use serde_json::Value;
use support::{Model, Shape, random};

fn model(rng: &mut Rng) -> Model {
    let objects = rng.usize(1..40);
    let references = rng.usize(..=objects * 2);
    let roots = rng.usize(1..4);
    random(rng, Shape { objects, references, classes: 5, roots, ephemerons: 2, has_tables: true })
}

type Writer = fn(&Dominators<'_>, &mut Vec<u8>) -> std::io::Result<()>;

fn report(tree: &Dominators<'_>) -> Report {
    Report::of(tree, Options { classes: 4, objects: 3, steps: 4 }, &Names::default())
}

const WRITERS: [(&str, Writer); 7] = [
    ("text", |tree, out| report(tree).write_text(out)),
    ("JSON", |tree, out| report(tree).write_json(out)),
    ("HTML", |tree, out| report(tree).write_html(out)),
    ("Chrome", |tree, out| chrome::write(tree, 1000, out).map(|_| ())),
    ("Perfetto", |tree, out| perfetto::write(tree, 4711, out)),
    ("gcdump", |tree, out| gcdump::write(tree, 4711, out).map(|_| ())),
    ("Chrome, capped", |tree, out| chrome::write(tree, 5, out).map(|_| ())),
];

#[test]
fn the_same_heap_gives_the_same_bytes() {
    let mut rng = Rng::with_seed(31);
    for _ in 0..100 {
        let model = model(&mut rng);
        let one = model.build();
        let other = model.build_shuffled(&mut rng);
        let one = Dominators::of(&one);
        let other = Dominators::of(&other);
        for (name, write) in WRITERS {
            let mut bytes = Vec::new();
            let mut again = Vec::new();
            write(&one, &mut bytes).unwrap();
            write(&other, &mut again).unwrap();
            assert_eq!(bytes, again, "{name}");
        }
    }
}

/// A heap with hostile names.
fn hostile() -> HeapGraph {
    let mut builder = GraphBuilder::new("<script>alert(1)</script>");
    builder.object(0x1000, 1, 4_000_000_000_000);
    builder.object(0x2000, 2, 24);
    builder.reference(0x1000, 0x2000);
    builder.class(1, "</td><img src=x onerror=alert(1)>\u{1b}[31m\u{202e}", "\"&'", 0);
    builder.class(2, "{{classes}}\n", "", 0);
    builder.root(0x1000, RootKind::Static, Some("<b>field</b>"));
    builder.set_taken(1_795_371_907_999);
    builder.finish().unwrap()
}

#[test]
fn names_are_no_markup_and_no_commands() {
    let graph = hostile();
    let tree = Dominators::of(&graph);
    let written = |write: Writer| {
        let mut bytes = Vec::new();
        write(&tree, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let html = written(WRITERS[2].1);
    for part in ["<img", "<script>alert", "<b>field", "\u{1b}", "\u{202e}"] {
        assert!(!html.contains(part), "{part:?}");
    }
    assert!(html.contains("&lt;/td&gt;&lt;img src=x onerror=alert(1)&gt;") && html.contains("&quot;&amp;&#39;"));
    assert!(html.contains("{{classes}}"), "a name that looks like a place in the page stays a name");
    for part in ["http:", "https:", "src=\"", "url(", "@import"] {
        assert!(!html.contains(part), "the page asks the network: {part}");
    }
    let text = written(WRITERS[0].1);
    assert!(!text.contains('\u{1b}') && text.contains("4,000,000,000,024") && text.contains("2026-11-22 18:25:07 UTC"));
    let snapshot: Value = serde_json::from_str(&written(WRITERS[3].1)).unwrap();
    let title = snapshot["nodes"][1].as_u64().unwrap() as usize;
    assert_eq!(snapshot["strings"][title], "<script>alert(1)</script>");
    let sizes = (1..3).map(|node| snapshot["nodes"][node * 7 + 3].as_u64().unwrap());
    assert_eq!(sizes.collect::<Vec<_>>(), [u64::from(u32::MAX), 24], "more than the viewer's 32 bits");
    assert_eq!(chrome::write(&tree, 10, &mut Vec::new()).unwrap().clamped, 1);
}

#[test]
fn the_report_has_the_figures_of_the_tree() {
    let mut rng = Rng::with_seed(32);
    for _ in 0..300 {
        let model = model(&mut rng);
        let graph = model.build();
        let tree = Dominators::of(&graph);
        let mut json = Vec::new();
        report(&tree).write_json(&mut json).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let totals = Totals::of(&tree);
        assert_eq!(json["objects"], tree.reachable_count());
        assert_eq!(json["bytes"], tree.reachable_bytes());
        assert_eq!(json["unreachable_objects"], graph.len() - tree.reachable_count());
        assert_eq!(json["whole"], true);
        let classes = json["classes"].as_array().unwrap();
        for (row, (class, total)) in classes.iter().zip(totals.by_retained()) {
            assert_eq!(row["name"], *graph.class(class).name);
            assert_eq!(
                [&row["objects"], &row["shallow"], &row["retained"]].map(Value::as_u64),
                [total.objects, total.shallow, total.retained].map(Some)
            );
        }
        assert_eq!(json["other_classes"], graph.classes().len() - classes.len());
        let told: u64 = classes.iter().filter_map(|row| row["shallow"].as_u64()).sum();
        assert_eq!(told + json["other_shallow"].as_u64().unwrap(), tree.reachable_bytes());
        for (row, object) in json["largest"].as_array().unwrap().iter().zip(tree.largest(3)) {
            assert_eq!(row["retained"], tree.retained_bytes(object));
            assert_eq!(row["address"], format!("{:#x}", graph.address(object)));
            let path = row["path"].as_array().unwrap();
            assert!(path.len() >= 2 && path.len() <= 7);
            assert_eq!(path.last().unwrap().as_str().unwrap().split(" (").next(), Some(graph.class_name(object)));
        }
        let mut html = Vec::new();
        report(&tree).write_html(&mut html).unwrap();
        let html = String::from_utf8(html).unwrap();
        let cells =
            classes.len() + json["assemblies"].as_array().unwrap().len() + json["largest"].as_array().unwrap().len();
        assert_eq!(html.matches("data-v=").count(), 3 * cells);
        assert!(html.ends_with("</html>\n"));
    }
}

/// A `.heapsnapshot` as a viewer reads it: names, sizes and edges of nodes.
struct ReadSnapshot {
    names: Vec<String>,
    sizes: Vec<u64>,
    edges: Vec<Vec<usize>>,
    counts: [u64; 2],
}

/// Reads by the file's own description, and checks all rules that viewers rely on.
fn read_snapshot(bytes: &[u8]) -> ReadSnapshot {
    let file: Value = serde_json::from_slice(bytes).unwrap();
    let meta = &file["snapshot"]["meta"];
    let fields = |kind: &str| -> Vec<String> {
        meta[kind].as_array().unwrap().iter().map(|field| field.as_str().unwrap().to_owned()).collect()
    };
    let numbers =
        |kind: &str| -> Vec<u64> { file[kind].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect() };
    let node_fields = fields("node_fields");
    let edge_fields = fields("edge_fields");
    let field = |fields: &[String], name: &str| fields.iter().position(|field| field == name).unwrap();
    assert_eq!(meta["node_types"].as_array().unwrap().len(), node_fields.len());
    assert_eq!(meta["edge_types"].as_array().unwrap().len(), edge_fields.len());
    let nodes = numbers("nodes");
    let edges = numbers("edges");
    let node_count = &file["snapshot"]["node_count"];
    let edge_count = &file["snapshot"]["edge_count"];
    assert_eq!(nodes.len(), node_count.as_u64().unwrap() as usize * node_fields.len());
    assert_eq!(edges.len(), edge_count.as_u64().unwrap() as usize * edge_fields.len());
    assert!(nodes.iter().chain(&edges).all(|&number| u32::try_from(number).is_ok()), "viewers keep 32 bits");

    let strings: Vec<&str> = file["strings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let node_types = meta["node_types"][0].as_array().unwrap();
    let edge_types = meta["edge_types"][0].as_array().unwrap();
    let mut read = ReadSnapshot { names: Vec::new(), sizes: Vec::new(), edges: Vec::new(), counts: [0; 2] };
    let mut ids = Vec::new();
    let mut rest = &edges[..];
    for node in nodes.chunks(node_fields.len()) {
        assert!((node[field(&node_fields, "type")] as usize) < node_types.len());
        read.names.push(strings[node[field(&node_fields, "name")] as usize].to_owned());
        read.sizes.push(node[field(&node_fields, "self_size")]);
        ids.push(node[field(&node_fields, "id")]);
        // Edges stand in the order of nodes.
        let count = node[field(&node_fields, "edge_count")] as usize * edge_fields.len();
        let (own, others) = rest.split_at(count);
        rest = others;
        let target = |edge: &[u64]| {
            let kind = edge_types[edge[field(&edge_fields, "type")] as usize].as_str().unwrap();
            let name = edge[field(&edge_fields, "name_or_index")] as usize;
            assert!(kind == "element" || kind == "hidden" || name < strings.len());
            let to = edge[field(&edge_fields, "to_node")] as usize;
            assert!(to.is_multiple_of(node_fields.len()) && to < nodes.len());
            to / node_fields.len()
        };
        read.edges.push(own.chunks(edge_fields.len()).map(target).collect());
    }
    assert!(rest.is_empty(), "edges of no node");
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]) && ids.iter().all(|id| id % 2 == 1));
    let counts = &file["snapshot"]["corprof"];
    read.counts = ["objects_written", "objects_left_out"].map(|name| counts[name].as_u64().unwrap());
    read
}

impl ReadSnapshot {
    fn reached_without(&self, removed: Option<usize>) -> Vec<bool> {
        let mut reached = vec![false; self.sizes.len()];
        let mut open = vec![0];
        while let Some(node) = open.pop() {
            if Some(node) != removed && !std::mem::replace(&mut reached[node], true) {
                open.extend(&self.edges[node]);
            }
        }
        reached
    }

    fn retained(&self, node: usize) -> u64 {
        let without = self.reached_without(Some(node));
        (0..self.sizes.len()).filter(|&other| !without[other]).map(|other| self.sizes[other]).sum()
    }
}

#[test]
fn chrome_snapshots_keep_the_format_and_the_retained_sizes() {
    let mut rng = Rng::with_seed(33);
    for _ in 0..400 {
        let graph = model(&mut rng).build();
        let tree = Dominators::of(&graph);
        let all: Vec<_> = graph.objects().filter(|&object| tree.is_reachable(object)).collect();
        for cap in [usize::MAX, all.len(), all.len().saturating_sub(1), all.len() / 2, 3, 1, 0] {
            let mut bytes = Vec::new();
            let written = chrome::write(&tree, cap, &mut bytes).unwrap();
            let read = read_snapshot(&bytes);
            let count = all.len().min(cap);
            assert_eq!([written.objects, written.left_out], [count as u64, (all.len() - count) as u64]);
            assert_eq!(read.counts, [written.objects, written.left_out]);
            assert_eq!(written.unreachable as usize, graph.len() - all.len());
            assert_eq!(read.sizes.iter().sum::<u64>(), tree.reachable_bytes(), "nothing is lost, whatever the cap");
            assert!(read.reached_without(None).into_iter().all(|reached| reached));

            let mut retained: Vec<u64> = (1..=count).map(|node| read.retained(node)).collect();
            if count == all.len() {
                assert_eq!(retained, all.iter().map(|&object| tree.retained_bytes(object)).collect::<Vec<_>>());
                assert_eq!(read.sizes.len(), count + 1);
                assert!(all.iter().zip(&read.names[1..]).all(|(&object, name)| graph.class_name(object) == name));
            } else {
                // Those that retain most, each with all that it retains.
                let mut expected: Vec<u64> = all.iter().map(|&object| tree.retained_bytes(object)).collect();
                expected.sort_unstable_by(|a, b| b.cmp(a));
                expected.truncate(count);
                retained.sort_unstable_by(|a, b| b.cmp(a));
                assert_eq!(retained, expected);
                let note = format!("({count} of {} objects are here;", all.len());
                assert_eq!(read.names.iter().filter(|name| name.starts_with(&note)).count(), 1, "the cap is said");
            }
        }
    }
}

/// The fields of a protobuf message: number and value, or number and bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn numbers(message: &[u8], number: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (field, value) in fields(message) {
        match value {
            Field::Number(value) if field == number => found.push(value),
            Field::Bytes(mut packed) if field == number => {
                while !packed.is_empty() {
                    found.push(varint(&mut packed));
                }
            }
            _ => {}
        }
    }
    found
}

fn messages(message: &[u8], number: u64) -> Vec<&[u8]> {
    let bytes = |(field, value)| match value {
        Field::Bytes(bytes) if field == number => Some(bytes),
        _ => None,
    };
    fields(message).into_iter().filter_map(bytes).collect()
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    numbers(message, field).first().copied()
}

fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(messages(message, field)[0].to_vec()).unwrap()
}

/// Reads as Perfetto's importer does (`heap_graph_module.cc`), with the numbers of `heap_graph.proto`.
#[test]
fn perfetto_traces_have_the_whole_graph() {
    let mut rng = Rng::with_seed(34);
    for round in 0..100 {
        let model = if round > 0 {
            model(&mut rng)
        } else {
            let shape =
                Shape { objects: 70_000, references: 90_000, classes: 5, roots: 3, ephemerons: 9, has_tables: true };
            random(&mut rng, shape)
        };
        let graph = model.build();
        let tree = Dominators::of(&graph);
        let mut bytes = Vec::new();
        perfetto::write(&tree, 4711, &mut bytes).unwrap();
        let packets = messages(&bytes, 1);
        let heaps: Vec<&[u8]> = packets.iter().flat_map(|packet| messages(packet, 56)).collect();
        assert!(round > 0 || heaps.len() > 2, "large heaps come in several packets");
        let mut types = vec![String::new()];
        let mut names = vec![String::new()];
        let mut objects = Vec::new();
        let mut roots = Vec::new();
        let mut id = 0;
        for (index, heap) in heaps.iter().enumerate() {
            assert_eq!((number(heap, 1), number(heap, 6).unwrap_or(0)), (Some(4711), index as u64));
            assert_eq!(number(heap, 5).unwrap_or(0) == 1, index + 1 < heaps.len(), "continued");
            for kind in messages(heap, 9) {
                assert_eq!(number(kind, 1), Some(types.len() as u64));
                types.push(text(kind, 3));
            }
            for name in messages(heap, 4) {
                assert_eq!(number(name, 1), Some(names.len() as u64));
                names.push(text(name, 2));
            }
            for object in messages(heap, 2) {
                id = number(object, 7)
                    .filter(|&delta| delta > 0)
                    .map_or_else(|| number(object, 1).unwrap(), |delta| id + delta);
                let references = numbers(object, 5);
                assert_eq!(numbers(object, 4).len(), references.len(), "the importer drops objects where these differ");
                let base = number(object, 6).unwrap_or(0);
                let references: Vec<(u64, u64)> =
                    numbers(object, 4).into_iter().zip(references.into_iter().map(|to| to + base)).collect();
                objects.push((id, number(object, 2).unwrap(), number(object, 3).unwrap_or(0), references));
            }
            for root in messages(heap, 7) {
                roots.extend(numbers(root, 1).into_iter().map(|object| (object, number(root, 2).unwrap_or(0))));
            }
        }
        assert!(
            packets
                .iter()
                .filter(|packet| !messages(packet, 56).is_empty())
                .all(|packet| number(packet, 8).is_some() && number(packet, 10) == Some(1))
        );
        assert_eq!(objects.len(), graph.len());
        for (object, (id, kind, size, references)) in graph.objects().zip(objects) {
            assert_eq!((id, size), (object.index() as u64 + 1, graph.size(object)));
            assert_eq!(types[kind as usize], graph.class_name(object));
            let known = graph.references(object).map(|to| ("reference", to.index() as u64 + 1));
            let pairs =
                graph.ephemerons_of(object).filter(|pair| pair.table.is_none_or(|table| tree.is_reachable(table)));
            let known = known.chain(pairs.map(|pair| ("value in a weak table", pair.value.index() as u64 + 1)));
            let read = references.iter().map(|&(name, to)| (&*names[name as usize], to));
            assert_eq!(read.collect::<Vec<_>>(), known.collect::<Vec<_>>());
        }
        let kind = |kind| match kind {
            RootKind::Static => 5,
            RootKind::Stack => 3,
            RootKind::Handle | RootKind::PinnedHandle | RootKind::RefCountedHandle => 1,
            RootKind::Finalizer => 10,
            _ => 0,
        };
        let mut expected: Vec<_> =
            graph.roots().iter().map(|root| (root.object.index() as u64 + 1, kind(root.kind))).collect();
        expected.sort_unstable();
        roots.sort_unstable();
        assert_eq!(roots, expected);
    }
}
