//! Sums, paths and diffs against their definitions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use corprof_heap::diff::{self, DEFAULT_DEPTH, IdentityDiff, PathDiff, Summary};
use corprof_heap::report::{Changes, Names};
use corprof_heap::{Dominators, GraphBuilder, HeapGraph, Link, ObjectId, Paths, RootKind, Total, Totals};
use fastrand::Rng;
use support::{Model, Shape, assembly_name, class_name, random};

fn small(rng: &mut Rng, has_tables: bool) -> Model {
    let objects = rng.usize(1..25);
    let shape = Shape {
        objects,
        references: rng.usize(..=objects * 2),
        classes: rng.u64(1..6),
        roots: rng.usize(..5),
        ephemerons: rng.usize(..4),
        has_tables,
    };
    random(rng, shape)
}

/// The objects freed without any one of these: the union, so that nothing counts twice.
fn retained_by(model: &Model, members: &[usize]) -> u64 {
    let alive = model.alive_without(&[]);
    let mut freed = BTreeSet::new();
    for &member in members.iter().filter(|&&member| alive[member]) {
        let without = model.alive_without(&[member]);
        freed.extend((0..model.objects.len()).filter(|&other| alive[other] && !without[other]));
    }
    freed.into_iter().map(|object| model.size(object)).sum()
}

fn total(model: &Model, is_member: impl Fn(u64) -> bool) -> Total {
    let alive = model.alive_without(&[]);
    let members: Vec<usize> = (0..model.objects.len()).filter(|&o| alive[o] && is_member(model.objects[o].1)).collect();
    Total {
        objects: members.len() as u64,
        shallow: members.iter().map(|&object| model.size(object)).sum(),
        retained: retained_by(model, &members),
    }
}

#[test]
fn sums_by_class_and_assembly_count_nothing_twice() {
    let mut rng = Rng::with_seed(21);
    for _ in 0..3_000 {
        let model = small(&mut rng, false);
        let graph = model.build();
        let tree = Dominators::of(&graph);
        let totals = Totals::of(&tree);
        let by_retained = totals.by_retained();
        assert_eq!(by_retained.len(), graph.classes().len());
        assert!(by_retained.is_sorted_by_key(|&(class, total)| (std::cmp::Reverse(total.retained), class)));
        for (class, sums) in by_retained {
            let key = graph.class(class).key;
            assert_eq!(sums, total(&model, |other| other == key), "{model:?}");
        }
        for (name, sums) in &totals.assemblies {
            assert_eq!(*sums, total(&model, |class| assembly_name(class) == *name), "{model:?}");
        }
        let all: u64 = model.objects.iter().map(|object| object.2).sum();
        assert_eq!(totals.reachable.shallow + totals.unreachable.1, all);
        assert_eq!(totals.reachable, total(&model, |_| true));
    }
}

#[test]
fn objects_that_are_never_collected_are_roots() {
    let mut builder = GraphBuilder::new("shop");
    for address in [0x1000, 0x1018, 0x2000, 0x2018, 0x2030] {
        builder.object(address, 7, 24);
    }
    builder.root(0x1000, RootKind::Static, None);
    builder.reference(0x1000, 0x2018);
    builder.frozen(0x2000, 0x30);
    builder.frozen(0x9000, 0x30);
    let graph = builder.finish().unwrap();
    assert!(graph.losses().is_whole());
    let roots: Vec<_> = graph.roots().iter().map(|root| (graph.address(root.object), root.kind)).collect();
    let expected = [(0x1000, RootKind::Static), (0x2000, RootKind::Frozen), (0x2018, RootKind::Frozen)];
    assert_eq!(roots, expected);
    let totals = Totals::of(&Dominators::of(&graph));
    assert_eq!(totals.unreachable.0, 2, "0x1018, and 0x2030 behind the range");
    let mut file = Vec::new();
    graph.write(&mut file).unwrap();
    assert_eq!(HeapGraph::read(file.as_slice()).unwrap().roots(), graph.roots());
}

#[test]
fn the_largest_objects_are_those_that_nothing_dominates() {
    let mut rng = Rng::with_seed(22);
    for _ in 0..500 {
        let graph = small(&mut rng, false).build();
        let tree = Dominators::of(&graph);
        let mut expected: Vec<ObjectId> =
            graph.objects().filter(|&o| tree.is_reachable(o) && tree.immediate_dominator(o).is_none()).collect();
        expected.sort_by_key(|&object| std::cmp::Reverse(tree.retained_bytes(object)));
        expected.truncate(3);
        assert_eq!(tree.largest(3), expected);
    }
}

#[test]
fn paths_to_roots_are_shortest() {
    let mut rng = Rng::with_seed(23);
    let mut weak_links = 0;
    for _ in 0..3_000 {
        let model = small(&mut rng, true);
        let graph = model.build();
        let paths = Paths::of(&graph);
        let alive = model.alive_without(&[]);
        let leads = |from: usize, to: usize, link: Link| match link {
            Link::Reference => model.references.contains(&(from, to)),
            Link::WeakTable => model
                .ephemerons
                .iter()
                .any(|&(table, key, value)| (key, value) == (from, to) && table.is_none_or(|table| alive[table])),
        };
        // Distances by definition: rounds in which all that is reached passes on.
        let mut distance: Vec<Option<usize>> = vec![None; model.objects.len()];
        model.roots.iter().for_each(|root| distance[root.0] = Some(0));
        for round in 0..model.objects.len() {
            let reached: Vec<usize> = (0..model.objects.len()).filter(|&o| distance[o] == Some(round)).collect();
            for (from, to) in reached.into_iter().flat_map(|from| (0..model.objects.len()).map(move |to| (from, to))) {
                if leads(from, to, Link::Reference) || leads(from, to, Link::WeakTable) {
                    distance[to].get_or_insert(round + 1);
                }
            }
        }
        for object in graph.objects() {
            let Some(path) = paths.to(object) else {
                assert!(!alive[object.index()]);
                continue;
            };
            assert_eq!(distance[object.index()], Some(path.steps.len()), "{model:?}");
            let mut at = path.root.object.index();
            assert!(model.roots.contains(&(at, path.root.kind)));
            for (link, next) in path.steps {
                assert!(leads(at, next.index(), link), "{model:?}");
                weak_links += usize::from(link == Link::WeakTable);
                at = next.index();
            }
            assert_eq!(at, object.index());
        }
    }
    assert!(weak_links > 100);
}

#[test]
fn a_diff_by_class_has_the_sums_of_both() {
    let mut rng = Rng::with_seed(24);
    for _ in 0..300 {
        let before = small(&mut rng, false);
        let after = small(&mut rng, false);
        let first = before.build();
        let second = after.build();
        let changes = diff::by_class(&sums(&first, DEFAULT_DEPTH), &sums(&second, DEFAULT_DEPTH));
        let names: BTreeSet<_> = changes.iter().map(|class| (&class.assembly, &class.name)).collect();
        assert_eq!(names.len(), changes.len());
        let known = [&first, &second].into_iter().flat_map(HeapGraph::classes);
        assert_eq!(names, known.map(|class| (&class.assembly, &class.name)).collect());
        assert!(changes.is_sorted_by_key(|class| -class.change.retained_growth()));
        for class in &changes {
            let is_it = |key: u64| class_name(key) == class.name && assembly_name(key) == class.assembly;
            assert_eq!(class.change.before, total(&before, is_it));
            assert_eq!(class.change.after, total(&after, is_it));
        }
    }
}

fn sums(graph: &HeapGraph, depth: usize) -> Summary {
    Summary::of(&Dominators::of(graph), depth)
}

/// A graph by hand: objects with class names, references and one root; classes get keys that differ from `salt` to
/// `salt`.
fn by_hand(salt: u64, objects: &[(&str, u64)], references: &[(u64, u64)]) -> HeapGraph {
    let mut builder = GraphBuilder::new("by hand");
    for (number, &(name, size)) in objects.iter().enumerate() {
        let key = salt + name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
        builder.class(key, name, "Shop", 0);
        builder.object(salt + (number as u64 + 1) * 0x1000, key, size);
    }
    references.iter().for_each(|(from, to)| builder.reference(salt + from * 0x1000, salt + to * 0x1000));
    builder.root(salt + 0x1000, RootKind::Static, None);
    builder.finish().unwrap()
}

#[test]
fn a_diff_by_path_finds_what_grew_below_what() {
    let before = by_hand(0, &[("Cache", 24), ("Node", 32), ("Order", 100), ("Log", 50)], &[(1, 2), (2, 3), (1, 4)]);
    // The list has grown, and so have the orders that hang on its nodes.
    let after = by_hand(
        0x10_0000,
        &[
            ("Cache", 24),
            ("Node", 32),
            ("Order", 100),
            ("Log", 50),
            ("Node", 32),
            ("Order", 300),
            ("Node", 32),
            ("Order", 300),
        ],
        &[(1, 2), (2, 3), (1, 4), (2, 5), (5, 6), (5, 7), (7, 8)],
    );
    let shallow = [sums(&before, 2), sums(&after, 2)];
    let first = Dominators::of(&before);
    let second = Dominators::of(&after);
    let before = sums(&before, DEFAULT_DEPTH);
    let after = sums(&after, DEFAULT_DEPTH);
    let diff = PathDiff::of(&before, &after);
    let mut paths: BTreeMap<String, (i64, i64, i64)> = BTreeMap::new();
    for path in 0..diff.len() {
        let change = diff.change(path);
        let growth = (change.object_growth(), change.shallow_growth(), change.retained_growth());
        paths.insert(diff.names(path).join(">"), growth);
    }
    let expected = [
        ("Cache", (0, 0, 664)),
        ("Cache>Log", (0, 0, 0)),
        ("Cache>Node", (2, 64, 664)),
        ("Cache>Node>Order", (2, 600, 600)),
    ];
    assert_eq!(paths, expected.map(|(name, growth)| (name.to_owned(), growth)).into());
    let grown: Vec<String> = diff.grown(10).into_iter().map(|path| diff.names(path).join(">")).collect();
    assert_eq!(grown, ["Cache>Node>Order"]);
    let largest_at = |names: &str, tree: &Dominators<'_>| {
        let path = (0..diff.len()).find(|&path| diff.names(path).join(">") == names)?;
        diff.largest_at(path, tree).map(|object| (tree.graph().size(object), tree.retained_bytes(object)))
    };
    assert_eq!(largest_at("Cache>Node>Order", &second), Some((300, 300)));
    assert_eq!(largest_at("Cache>Node>Order", &first), Some((100, 100)));
    assert_eq!(largest_at("Cache>Node", &second), Some((32, 796)), "the head of the list");
    assert_eq!(largest_at("Cache", &second), Some((24, 870)));
    let shallow = PathDiff::of(&shallow[0], &shallow[1]);
    let changes = Changes::of(&before, &after, 2, 10, &Names::default());
    let mut text = Vec::new();
    changes.write_text(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("              +600               +600             +2  Cache -> Node -> Order\n"), "{text}");
    assert!(text.contains("and 1 more classes have changed") && !text.contains("Warning"), "{text}");
    let mut json = Vec::new();
    changes.write_json(&mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["paths"][0]["classes"], serde_json::json!(["Cache", "Node", "Order"]));
    assert_eq!(
        (&json["classes"][0]["retained_growth"], &json["classes"][0]["before"]),
        (&664.into(), &serde_json::json!([1, 24, 206]))
    );
    assert_eq!(shallow.len(), 3, "what is deeper counts for the second class");
    let back = PathDiff::of(&after, &before);
    assert!(back.grown(10).is_empty());
}

#[test]
fn every_path_of_a_snapshot_has_an_example_there() {
    let mut rng = Rng::with_seed(26);
    for _ in 0..500 {
        let graph = small(&mut rng, true).build();
        let tree = Dominators::of(&graph);
        let nothing = by_hand(0, &[], &[]);
        let all = Summary::of(&tree, DEFAULT_DEPTH);
        let nothing = sums(&nothing, DEFAULT_DEPTH);
        let diff = PathDiff::of(&nothing, &all);
        for path in 0..diff.len() {
            let object = diff.largest_at(path, &tree).unwrap();
            assert_eq!(Some(&graph.class_name(object)), diff.names(path).last());
            assert!(tree.retained_bytes(object) <= diff.change(path).after.retained);
        }
    }
}

#[test]
fn paths_sum_up_to_the_heap() {
    let mut rng = Rng::with_seed(25);
    for _ in 0..500 {
        let before = small(&mut rng, true).build();
        let after = small(&mut rng, true).build();
        let before = Dominators::of(&before);
        let after = Dominators::of(&after);
        let summaries = [Summary::of(&before, 4), Summary::of(&after, 4)];
        assert_eq!(summaries.iter().map(Summary::merged_objects).sum::<u64>(), 0);
        let diff = PathDiff::of(&summaries[0], &summaries[1]);
        let all = |sum: fn(diff::Change) -> u64| (0..diff.len()).map(|path| sum(diff.change(path))).sum::<u64>();
        assert_eq!(all(|change| change.before.objects), before.reachable_count() as u64);
        assert_eq!(all(|change| change.after.shallow), after.reachable_bytes());
        let top = (0..diff.len()).filter(|&path| diff.names(path).len() == 1);
        assert_eq!(top.map(|path| diff.change(path).after.retained).sum::<u64>(), after.reachable_bytes());
        assert_eq!(diff.is_empty(), before.reachable_count() + after.reachable_count() == 0);
    }
}

#[test]
fn objects_with_identities_are_followed() {
    let before = by_hand(0, &[("Cache", 24), ("Order", 10), ("Order", 20)], &[(1, 2), (1, 3)]);
    let after = by_hand(0x8000_0000, &[("Cache", 24), ("Order", 20), ("Order", 70)], &[(1, 2), (1, 3)]);
    let first = Dominators::of(&before);
    let second = Dominators::of(&after);
    let at = |graph: &HeapGraph, number| graph.object(number).unwrap();
    let diff = IdentityDiff::of(
        &first,
        [(1, at(&before, 0)), (2, at(&before, 1)), (3, at(&before, 2)), (5, at(&before, 1))],
        &second,
        [(1, at(&after, 0)), (3, at(&after, 1)), (4, at(&after, 2)), (5, at(&after, 2)), (5, at(&after, 1))],
    );
    let survived: Vec<_> =
        diff.survived.iter().map(|one| (one.identity, one.retained_before, one.retained_after)).collect();
    assert_eq!(survived, [(1, 54, 114), (3, 20, 20)]);
    assert_eq!(diff.gone, [(2, at(&before, 1))]);
    assert_eq!(diff.appeared, [(4, at(&after, 2))]);
    assert_eq!(diff.ambiguous, 1);
}
