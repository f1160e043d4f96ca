//! Dominators and retained sizes against two others: brute force, which removes each object and marks the reachable
//! rest, and the algorithm of Cooper, Harvey and Kennedy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

mod support;

use std::collections::BTreeMap;

use corprof_heap::{Dominators, HeapGraph, ObjectId};
use fastrand::Rng;
use support::{Model, Shape, random};

/// Small graphs of all densities; every fourth is a chain with shortcuts and ways back, where semidominators and
/// dominators differ most.
fn small(rng: &mut Rng, has_tables: bool) -> Model {
    let objects = rng.usize(1..13);
    let shape = Shape {
        objects,
        references: rng.usize(..=objects * 2),
        classes: rng.u64(1..4),
        roots: rng.usize(..4),
        ephemerons: rng.usize(..4),
        has_tables,
    };
    let mut model = random(rng, shape);
    if rng.u8(..4) == 0 {
        model.references.truncate(objects / 2);
        model.references.extend((1..objects).map(|object| (object - 1, object)));
        model.roots.truncate(1);
    }
    model
}

/// Immediate dominators by Cooper, Harvey and Kennedy's iteration, over references and the edges from keys to values
/// whose table is alive. `None` for an unreachable object, `Some(None)` where there is no dominator.
fn cooper_harvey_kennedy(model: &Model) -> Vec<Option<Option<usize>>> {
    let alive = model.alive_without(&[]);
    let top = model.objects.len();
    let mut edges = model.references.clone();
    let living = model.ephemerons.iter().filter(|pair| pair.0.is_none_or(|table| alive[table]));
    edges.extend(living.map(|&(_, key, value)| (key, value)));
    edges.extend(model.roots.iter().map(|&(object, _)| (top, object)));

    fn visit(object: usize, edges: &[(usize, usize)], seen: &mut [bool], postorder: &mut Vec<usize>) {
        seen[object] = true;
        for &(_, to) in edges.iter().filter(|edge| edge.0 == object) {
            if !seen[to] {
                visit(to, edges, seen, postorder);
            }
        }
        postorder.push(object);
    }
    let mut postorder = Vec::new();
    visit(top, &edges, &mut vec![false; top + 1], &mut postorder);
    let rank = |object: usize| postorder.iter().position(|&other| other == object).unwrap();

    let mut dominator: Vec<Option<usize>> = vec![None; top + 1];
    dominator[top] = Some(top);
    loop {
        let before = dominator.clone();
        for &object in postorder.iter().rev().filter(|&&object| object != top) {
            let mut new = None;
            for &(from, _) in edges.iter().filter(|edge| edge.1 == object && dominator[edge.0].is_some()) {
                new = Some(new.map_or(from, |mut one: usize| {
                    let mut other = from;
                    while one != other {
                        if rank(one) < rank(other) {
                            one = dominator[one].unwrap();
                        } else {
                            other = dominator[other].unwrap();
                        }
                    }
                    one
                }));
            }
            dominator[object] = new;
        }
        if dominator == before {
            break;
        }
    }
    dominator.truncate(top);
    dominator.into_iter().map(|found| found.map(|object| (object != top).then_some(object))).collect()
}

fn object(graph: &HeapGraph, number: usize) -> ObjectId {
    graph.object(number).unwrap()
}

/// Checks the tree against both; `true` if an object retains more than the tree says, by way of a known table.
fn check(model: &Model) -> bool {
    let graph = model.build();
    let tree = Dominators::of(&graph);
    let alive = model.alive_without(&[]);
    let others = cooper_harvey_kennedy(model);
    let has_tables = model.ephemerons.iter().any(|pair| pair.0.is_some());
    let mut is_more = false;
    for id in graph.objects() {
        let number = id.index();
        assert_eq!(tree.is_reachable(id), alive[number], "{number} of {model:?}");
        let dominator = tree.is_reachable(id).then(|| tree.immediate_dominator(id).map(ObjectId::index));
        assert_eq!(dominator, others[number], "{number} of {model:?}");

        let without = model.alive_without(&[number]);
        let freed = |other: usize| alive[other] && !without[other];
        let mut bytes = 0;
        let mut count = 0;
        for other in 0..model.objects.len() {
            let dominates = tree.dominates(id, object(&graph, other));
            if has_tables {
                assert!(!dominates || freed(other), "{number} does not keep {other} alive: {model:?}");
                is_more |= freed(other) && !dominates;
            } else {
                assert_eq!(dominates, freed(other), "{number} and {other} of {model:?}");
            }
            bytes += if dominates { model.size(other) } else { 0 };
            count += usize::from(dominates);
        }
        assert_eq!((tree.retained_bytes(id), tree.retained_count(id)), (bytes, count), "{number} of {model:?}");
        let expected = (0..model.objects.len()).filter(|&other| freed(other));
        let freed = graph.freed_without(&[id]);
        assert_eq!(freed.bytes, expected.clone().map(|other| model.size(other)).sum::<u64>(), "{number} of {model:?}");
        assert_eq!(freed.objects, expected.count() as u64);
    }
    // The children of each object, collected from the parents.
    let mut parents: BTreeMap<ObjectId, Option<ObjectId>> = tree.top().map(|top| (top, None)).collect();
    for id in graph.objects() {
        parents.extend(tree.dominated_by(id).map(|child| (child, Some(id))));
    }
    let expected = graph.objects().filter(|&id| tree.is_reachable(id)).map(|id| (id, tree.immediate_dominator(id)));
    assert_eq!(parents, expected.collect());
    assert_eq!(tree.reachable_count(), parents.len());
    is_more
}

#[test]
fn dominators_of_20_000_random_graphs_are_exact() {
    let mut rng = Rng::with_seed(11);
    for _ in 0..20_000 {
        assert!(!check(&small(&mut rng, false)));
    }
}

#[test]
fn weak_tables_of_15_000_random_graphs_keep_what_they_should() {
    let mut rng = Rng::with_seed(12);
    let more = (0..15_000).filter(|_| check(&small(&mut rng, true))).count();
    assert!(more > 200, "{more} graphs showed what a known table adds: too few to tell anything");
}

#[test]
fn larger_graphs_agree_with_cooper_harvey_and_kennedy() {
    let mut rng = Rng::with_seed(13);
    for _ in 0..40 {
        let objects = rng.usize(50..120);
        let references = rng.usize(objects..objects * 3);
        let shape = Shape { objects, references, classes: 3, roots: 3, ephemerons: 10, has_tables: false };
        check(&random(&mut rng, shape));
    }
}

#[test]
fn sets_of_objects_are_freed_together() {
    let mut rng = Rng::with_seed(14);
    for _ in 0..5_000 {
        let model = small(&mut rng, true);
        let graph = model.build();
        let removed: Vec<usize> = (0..3).map(|_| rng.usize(..model.objects.len())).collect();
        let alive = model.alive_without(&[]);
        let without = model.alive_without(&removed);
        let expected: u64 = (0..model.objects.len()).filter(|&o| alive[o] && !without[o]).map(|o| model.size(o)).sum();
        let removed: Vec<ObjectId> = removed.into_iter().map(|number| object(&graph, number)).collect();
        assert_eq!(graph.freed_without(&removed).bytes, expected, "{model:?}");
    }
}

#[test]
fn a_list_of_a_million_nodes_needs_no_stack() {
    let nodes = 1_000_000_u64;
    let mut builder = corprof_heap::GraphBuilder::new("list");
    for node in 1..=nodes {
        builder.object(node * 32, 1, 32);
        builder.reference(node * 32, if node < nodes { (node + 1) * 32 } else { 32 });
        builder.reference(node * 32, (node / 2).max(1) * 32);
    }
    builder.root(32, corprof_heap::RootKind::Static, None);
    let graph = builder.finish().unwrap();
    let tree = Dominators::of(&graph);
    for (number, id) in graph.objects().enumerate().step_by(999) {
        assert_eq!(tree.immediate_dominator(id).map(ObjectId::index), number.checked_sub(1));
        assert_eq!(tree.retained_bytes(id), (nodes - number as u64) * 32);
    }
}

#[test]
fn a_heap_without_objects_has_an_empty_tree() {
    let graph = corprof_heap::GraphBuilder::new("nothing").finish().unwrap();
    let tree = Dominators::of(&graph);
    assert_eq!((tree.top().count(), tree.reachable_bytes()), (0, 0));
}
