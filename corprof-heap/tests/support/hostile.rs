//! Damaged snapshot files.

use corprof_heap::{Dominators, HeapGraph, Paths, Totals};
use fastrand::Rng;

use crate::support::{Shape, random};

/// A file of a small heap.
pub(crate) fn file(rng: &mut Rng) -> Vec<u8> {
    let objects = rng.usize(..40);
    let references = rng.usize(..80);
    let roots = rng.usize(..6);
    let ephemerons = rng.usize(..5);
    let graph = random(rng, Shape { objects, references, classes: 6, roots, ephemerons, has_tables: true }).build();
    let mut bytes = Vec::new();
    graph.write(&mut bytes).unwrap();
    bytes
}

/// Changes some bytes, cuts, or repeats a part; nine times in ten with a checksum that fits, so that it hides nothing.
pub(crate) fn mutated(rng: &mut Rng, file: &[u8]) -> Vec<u8> {
    let mut bytes = file[..file.len() - 4].to_vec();
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(14..bytes.len());
        match rng.u8(..8) {
            0 => bytes.truncate(at.max(15)),
            1 => {
                let end = (at + rng.usize(..20)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            2 => drop(bytes.splice(at..at, std::iter::repeat_n(0xff, rng.usize(..12)).collect::<Vec<_>>())),
            3 => bytes[at] ^= 1 << rng.u8(..8),
            4 => drop(bytes.remove(at)),
            5 => bytes[at] = bytes[at].wrapping_add(1),
            6 => bytes[rng.usize(..14)] = rng.u8(..),
            _ => bytes[at] = rng.u8(..),
        }
        if bytes.len() < 16 {
            break;
        }
    }
    let checksum = if rng.u8(..10) == 0 { rng.u32(..) } else { crc32fast::hash(&bytes) };
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Reads the bytes and, if they are a snapshot, does with it all that can be done. True if they are.
pub(crate) fn read_all(bytes: &[u8]) -> bool {
    let Ok(graph) = HeapGraph::read(bytes) else { return false };
    let tree = Dominators::of(&graph);
    let totals = Totals::of(&tree);
    assert_eq!(totals.reachable.objects + totals.unreachable.0, graph.len() as u64);
    let paths = Paths::of(&graph);
    for object in graph.objects() {
        assert_eq!(paths.to(object).is_some(), tree.is_reachable(object));
        let _ = (graph.address(object), tree.retained_bytes(object), graph.references(object).count());
    }
    let mut again = Vec::new();
    graph.write(&mut again).unwrap();
    assert_eq!(HeapGraph::read(&*again).unwrap(), graph);
    true
}
