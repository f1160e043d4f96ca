//! Graphs from parts in any order, and the detection of missing, doubled and wrong parts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

mod support;

use corprof_heap::{BulkReader, GraphBuilder, HeapGraph, Losses, RootKind};
use fastrand::Rng;
use support::{Model, Shape, class_name, random};

const SHAPE: Shape = Shape { objects: 60, references: 110, classes: 9, roots: 5, ephemerons: 6, has_tables: true };

#[test]
fn the_order_of_parts_does_not_matter() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..300 {
        let model = random(&mut rng, SHAPE);
        let graph = model.build();
        assert!(graph.losses().is_whole(), "{}", graph.losses());
        assert_eq!(graph, model.build_shuffled(&mut rng));
    }
}

#[test]
fn the_graph_has_what_was_reported() {
    let model = random(&mut Rng::with_seed(2), SHAPE);
    let graph = model.build_shuffled(&mut Rng::with_seed(3));
    assert_eq!((graph.len(), graph.reference_count()), (60, 110));
    for (object, &(address, class, size)) in graph.objects().zip(&model.objects) {
        assert_eq!(graph.object_at(address), Some(object));
        assert_eq!((graph.address(object), graph.size(object)), (address, size));
        assert_eq!((graph.class(graph.class_of(object)).key, graph.class_name(object)), (class, &*class_name(class)));
        let from = object.index();
        let mut references: Vec<usize> =
            model.references.iter().filter(|edge| edge.0 == from).map(|edge| edge.1).collect();
        references.sort_unstable();
        assert_eq!(graph.references(object).map(|to| to.index()).collect::<Vec<_>>(), references);
        for pair in graph.ephemerons_of(object) {
            let pair = (pair.table.map(|table| table.index()), pair.key.index(), pair.value.index());
            assert!(model.ephemerons.contains(&pair), "{pair:?}");
        }
        for root in graph.roots_of(object) {
            assert!(model.roots.contains(&(from, root.kind)));
        }
    }
    let mut roots = model.roots.clone();
    roots.sort_unstable();
    roots.dedup();
    assert_eq!(graph.roots().len(), roots.len());
    let pairs: usize = graph.objects().map(|object| graph.ephemerons_of(object).count()).sum();
    assert_eq!(pairs, graph.ephemeron_count());
    assert_eq!(pairs, 6);
    let names: Vec<_> = graph.classes().iter().map(|class| (&class.assembly, &class.name, class.key)).collect();
    assert!(names.is_sorted());
}

#[test]
fn losses_are_counted_by_what_they_are() {
    let mut builder = GraphBuilder::new("losses");
    builder.object(0x1000, 1, 64);
    builder.object(0x1000, 1, 64);
    builder.object(0x1000, 2, 64);
    builder.object(0x2000, 1, 64);
    builder.reference(0x1000, 0x2000);
    builder.reference(0x1000, 0x3000);
    builder.reference(0x3000, 0x1000);
    builder.reference(0x1000, 0);
    builder.root(0x3000, RootKind::Stack, None);
    builder.root(0x1008, RootKind::Stack, None);
    builder.interior_root(0x103f, RootKind::Stack, None);
    builder.interior_root(0x1040, RootKind::Stack, None);
    builder.ephemeron(None, 0x1000, 0x3000);
    builder.ephemeron(Some(0x3000), 0x1000, 0x2000);
    let graph = builder.finish().unwrap();
    let mut expected = Losses::default();
    expected.repeated_objects = 1;
    expected.conflicting_objects = 1;
    expected.unknown_targets = 1;
    expected.unknown_sources = 1;
    expected.unknown_roots = 3;
    expected.unknown_ephemerons = 2;
    assert_eq!(*graph.losses(), expected);
    assert!(expected.is_cut() && expected.is_doubled() && !expected.is_whole());
    assert_eq!(graph.roots().len(), 1, "the one inside of the first object");
    assert_eq!(graph.class_name(graph.object_at(0x1000).unwrap()), "(class 0x1)");
    assert_eq!(Losses::default().to_string(), "no loss");
}

/// The events of a heap dump: id and payload.
type Events = Vec<(u16, Vec<u8>)>;

/// Blocks of `per_block` entries, numbered.
fn blocks(id: u16, entries: &[Vec<u8>], per_block: usize) -> Events {
    let block = |(index, entries): (usize, &[Vec<u8>])| {
        let mut payload = (index as u32).to_le_bytes().to_vec();
        payload.extend((entries.len() as u32).to_le_bytes());
        payload.extend([1, 0]);
        payload.extend(entries.iter().flatten());
        (id, payload)
    };
    entries.chunks(per_block).enumerate().map(block).collect()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A model as the runtime would report it: nodes, edges, pairs, roots.
fn dump(model: &Model) -> [Events; 4] {
    let mut nodes = Vec::new();
    let mut edges = Vec::new();
    for (number, &(address, class, size)) in model.objects.iter().enumerate() {
        let targets: Vec<u64> =
            model.references.iter().filter(|edge| edge.0 == number).map(|edge| model.address(edge.1)).collect();
        nodes.push(words(&[address, size, class, targets.len() as u64]));
        edges.extend(targets.iter().map(|target| [target.to_le_bytes().as_slice(), &[0; 4]].concat()));
    }
    let pairs: Vec<_> =
        model.ephemerons.iter().map(|&(_, key, value)| words(&[model.address(key), model.address(value), 9])).collect();
    let root = |&(object, kind): &(usize, RootKind)| {
        let (kind, flags) = match kind {
            RootKind::Stack => (0, 4_u32), // interior, and at its beginning
            RootKind::Finalizer => (1, 0),
            RootKind::Handle => (2, 0),
            RootKind::PinnedHandle => (2, 1),
            RootKind::RefCountedHandle => (2, 8),
            _ => (3, 0),
        };
        [&words(&[model.address(object)])[..], &[kind], &flags.to_le_bytes(), &words(&[1])].concat()
    };
    let mut roots: Vec<_> = model.roots.iter().map(root).collect();
    roots.push([&words(&[model.address(0)])[..], &[2], &2_u32.to_le_bytes(), &words(&[1])].concat()); // weak: no root
    [blocks(18, &nodes, 7), blocks(19, &edges, 11), blocks(17, &pairs, 2), blocks(16, &roots, 3)]
}

/// A model without the facts that the events lack.
fn reportable(rng: &mut Rng) -> Model {
    let mut model = random(rng, Shape { has_tables: false, ..SHAPE });
    model.roots.iter_mut().filter(|root| root.1 == RootKind::Static).for_each(|root| root.1 = RootKind::Other);
    model
}

/// Puts the events of several kinds into one sequence that keeps the order of each kind.
fn interleaved(rng: &mut Rng, kinds: &[Events; 4]) -> Events {
    let mut rest: Vec<&[(u16, Vec<u8>)]> = kinds.iter().map(Vec::as_slice).collect();
    let mut all = Vec::new();
    loop {
        rest.retain(|events| !events.is_empty());
        if rest.is_empty() {
            return all;
        }
        let kind = rng.usize(..rest.len());
        all.push(rest[kind][0].clone());
        rest[kind] = &rest[kind][1..];
    }
}

fn read(model: &Model, events: &Events) -> HeapGraph {
    let mut reader = BulkReader::new(GraphBuilder::new("random"), true);
    for (id, payload) in events {
        assert!(reader.event(*id, payload));
    }
    assert!(!reader.event(1, &[]), "the start of a collection is not a part of a dump");
    for &(_, class, _) in &model.objects {
        reader.builder().class(class, &class_name(class), &support::assembly_name(class), 24);
    }
    reader.finish().unwrap()
}

#[test]
fn events_in_any_order_of_kinds_make_the_same_graph() {
    let mut rng = Rng::with_seed(4);
    for _ in 0..200 {
        let model = reportable(&mut rng);
        let events = interleaved(&mut rng, &dump(&model));
        assert_eq!(read(&model, &events), model.build());
    }
}

#[test]
fn a_lost_block_never_looks_whole() {
    let mut rng = Rng::with_seed(5);
    for _ in 0..20 {
        let model = reportable(&mut rng);
        let whole = model.build();
        let events = interleaved(&mut rng, &dump(&model));
        for lost in 0..events.len() {
            let mut rest = events.clone();
            let (id, _) = rest.remove(lost);
            // Of the last block of pairs or roots there is no trace, as nothing announces how many there are.
            let is_last = !rest[lost..].iter().any(|event| event.0 == id);
            if is_last && (id == 17 || id == 16) {
                continue;
            }
            let graph = read(&model, &rest);
            assert!(graph.losses().is_cut() && !graph.losses().is_doubled(), "{}", graph.losses());
            for object in graph.objects() {
                let same = whole.object_at(graph.address(object)).unwrap();
                let known: Vec<u64> = whole.references(same).map(|to| whole.address(to)).collect();
                assert!(graph.references(object).all(|to| known.contains(&graph.address(to))), "a wrong reference");
            }
        }
    }
}

#[test]
fn a_cut_stream_never_looks_whole() {
    let mut rng = Rng::with_seed(6);
    let model = reportable(&mut rng);
    let [nodes, edges, pairs, roots] = dump(&model);
    let events = [nodes, edges, pairs, roots[..1].to_vec()].concat();
    for length in 0..events.len() {
        let graph = read(&model, &events[..length].to_vec());
        assert!(graph.losses().is_cut(), "after {length} blocks");
    }
}

#[test]
fn a_second_dump_is_noticed_and_left_out() {
    let mut rng = Rng::with_seed(7);
    for _ in 0..50 {
        let model = reportable(&mut rng);
        let first = dump(&model);
        let mut events = interleaved(&mut rng, &first);
        let second = dump(&reportable(&mut rng));
        events.extend(interleaved(&mut rng, &second));
        let graph = read(&model, &events);
        assert!(graph.losses().is_doubled() && !graph.losses().is_cut(), "{}", graph.losses());
        let blocks = events.len() - first.iter().map(Vec::len).sum::<usize>();
        assert_eq!(graph.losses().repeated_blocks, blocks as u64);
        assert_eq!(
            graph.objects().map(|object| graph.address(object)).sum::<u64>(),
            model.objects.iter().map(|o| o.0).sum::<u64>()
        );
        assert_eq!(graph.reference_count(), model.references.len());
    }
}

#[test]
fn static_fields_have_names() {
    let mut payload = 2_u32.to_le_bytes().to_vec();
    payload.extend([0; 10]);
    for (field, object, name) in [(1, 0x1000, "items"), (2, 0x2000, "größe")] {
        payload.extend(words(&[field, object, 3]));
        payload.extend([0; 4]);
        payload.extend(name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    }
    let mut reader = BulkReader::new(GraphBuilder::new("statics"), true);
    reader.static_class(2, "Shop.Catalogue");
    reader.static_class(0x2000, "Nothing");
    reader.builder().object(0x1000, 1, 24);
    reader.builder().object(0x2000, 1, 24);
    assert!(reader.event(38, &payload));
    assert!(reader.event(38, &payload), "again");
    for cut in 0..payload.len() {
        assert!(BulkReader::new(GraphBuilder::new(""), true).event(38, &payload[..cut]), "no panic");
    }
    let graph = reader.finish().unwrap();
    let names: Vec<_> = graph.roots().iter().map(|root| root.name.as_deref()).collect();
    assert_eq!(names, [Some("items"), Some("Shop.Catalogue.größe")]);
    assert_eq!((graph.losses().repeated_blocks, graph.losses().missing_end), (1, 1));
}

#[test]
fn bytes_at_random_are_no_dump() {
    let mut rng = Rng::with_seed(8);
    for _ in 0..20_000 {
        let mut reader = BulkReader::new(GraphBuilder::new("noise"), rng.bool());
        for _ in 0..rng.usize(..6) {
            let mut payload: Vec<u8> = (0..rng.usize(..120)).map(|_| rng.u8(..)).collect();
            if payload.len() > 10 && rng.bool() {
                let size = [21, 24, 32, 12][rng.usize(..4)];
                let count = (payload.len() - 10) / size;
                payload.truncate(10 + count * size);
                payload[..8].copy_from_slice(&[rng.u8(..2), 0, 0, 0, count as u8, 0, 0, 0]);
            }
            reader.event([16, 17, 18, 19, 38][rng.usize(..5)], &payload);
        }
        let graph = reader.finish().unwrap();
        assert_eq!(graph.objects().count(), graph.len());
    }
}
