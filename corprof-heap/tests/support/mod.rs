//! Heaps at random, as plain lists, for tests that build them in several ways and know the answers by brute force.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeSet;

use corprof_heap::{GraphBuilder, HeapGraph, RootKind};
use fastrand::Rng;

/// The kinds that a runtime reports. Ranges of objects that are never collected: `answers.rs`.
const REPORTED: [RootKind; 7] = [
    RootKind::Static,
    RootKind::Stack,
    RootKind::Handle,
    RootKind::PinnedHandle,
    RootKind::RefCountedHandle,
    RootKind::Finalizer,
    RootKind::Other,
];

/// A heap as lists. Objects are numbers; their addresses ascend with these.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Address, class, size.
    pub(crate) objects: Vec<(u64, u64, u64)>,
    pub(crate) references: Vec<(usize, usize)>,
    /// Table, key, value.
    pub(crate) ephemerons: Vec<(Option<usize>, usize, usize)>,
    pub(crate) roots: Vec<(usize, RootKind)>,
}

/// The properties of a generated heap.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) objects: usize,
    pub(crate) references: usize,
    pub(crate) classes: u64,
    pub(crate) roots: usize,
    pub(crate) ephemerons: usize,
    pub(crate) has_tables: bool,
}

pub(crate) fn random(rng: &mut Rng, shape: Shape) -> Model {
    let Shape { objects, references, classes, roots, ephemerons, has_tables } = shape;
    let mut address = 0x7f00_0000_0000;
    let mut model = Model::default();
    for _ in 0..objects {
        let size = 24 + 8 * rng.u64(..4);
        model.objects.push((address, 0x5000 + rng.u64(..classes), size));
        address += size + 8 * rng.u64(..3);
    }
    let any = |rng: &mut Rng| rng.usize(..objects);
    if objects > 0 {
        model.references = (0..references).map(|_| (any(rng), any(rng))).collect();
        model.roots = (0..roots).map(|_| (any(rng), REPORTED[rng.usize(..REPORTED.len())])).collect();
        let pair = |rng: &mut Rng| {
            let table = (has_tables && rng.u8(..4) > 0).then(|| any(rng));
            (table, any(rng), any(rng))
        };
        model.ephemerons = (0..ephemerons).map(|_| pair(rng)).collect();
    }
    model
}

/// One call of a builder.
#[derive(Clone, Copy)]
enum Part {
    Object(usize),
    Reference(usize),
    Ephemeron(usize),
    Root(usize),
    Class(u64),
}

impl Model {
    pub(crate) fn build(&self) -> HeapGraph {
        self.build_in_order(&mut Rng::with_seed(0), false)
    }

    /// Builds it in an order at random.
    pub(crate) fn build_shuffled(&self, rng: &mut Rng) -> HeapGraph {
        self.build_in_order(rng, true)
    }

    fn build_in_order(&self, rng: &mut Rng, shuffled: bool) -> HeapGraph {
        let classes: BTreeSet<u64> = self.objects.iter().map(|object| object.1).collect();
        let mut parts: Vec<Part> = (0..self.objects.len()).map(Part::Object).collect();
        parts.extend((0..self.references.len()).map(Part::Reference));
        parts.extend((0..self.ephemerons.len()).map(Part::Ephemeron));
        parts.extend((0..self.roots.len()).map(Part::Root));
        parts.extend(classes.into_iter().map(Part::Class));
        if shuffled {
            rng.shuffle(&mut parts);
        }
        let mut builder = GraphBuilder::new("random");
        for part in parts {
            match part {
                Part::Object(number) => {
                    let (address, class, size) = self.objects[number];
                    builder.object(address, class, size);
                }
                Part::Reference(number) => {
                    let (from, to) = self.references[number];
                    builder.reference(self.address(from), self.address(to));
                }
                Part::Ephemeron(number) => {
                    let (table, key, value) = self.ephemerons[number];
                    builder.ephemeron(table.map(|table| self.address(table)), self.address(key), self.address(value));
                }
                Part::Root(number) => {
                    let (object, kind) = self.roots[number];
                    builder.root(self.address(object), kind, None);
                }
                Part::Class(key) => builder.class(key, &class_name(key), &assembly_name(key), 24),
            }
        }
        builder.finish().expect("not that large")
    }

    pub(crate) fn address(&self, object: usize) -> u64 {
        self.objects[object].0
    }

    pub(crate) fn size(&self, object: usize) -> u64 {
        self.objects[object].2
    }

    /// Which objects are alive, without `removed`: by the definition, until nothing changes.
    pub(crate) fn alive_without(&self, removed: &[usize]) -> Vec<bool> {
        let mut alive = vec![false; self.objects.len()];
        for &(object, _) in &self.roots {
            alive[object] = !removed.contains(&object);
        }
        loop {
            let mut has_changed = false;
            let mut revive = |object: usize, alive: &mut Vec<bool>| {
                if !alive[object] && !removed.contains(&object) {
                    alive[object] = true;
                    has_changed = true;
                }
            };
            for &(from, to) in &self.references {
                if alive[from] {
                    revive(to, &mut alive);
                }
            }
            for &(table, key, value) in &self.ephemerons {
                if alive[key] && table.is_none_or(|table| alive[table]) {
                    revive(value, &mut alive);
                }
            }
            if !has_changed {
                return alive;
            }
        }
    }
}

/// Names that are not in the order of keys.
pub(crate) fn class_name(key: u64) -> String {
    format!("Shop.Class{}", key.wrapping_mul(7) % 13)
}

pub(crate) fn assembly_name(key: u64) -> String {
    format!("Assembly{}", key % 3)
}
