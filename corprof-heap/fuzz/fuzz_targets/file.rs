//! The reader of snapshot files on arbitrary bytes: an error, or a snapshot that is consistent.

#![no_main]

use corprof_heap::{Dominators, HeapGraph, Paths, Totals};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A checksum that fits: otherwise it would hide all other faults.
    let file = [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat();
    let Ok(graph) = HeapGraph::read(&*file) else { return };
    let tree = Dominators::of(&graph);
    let totals = Totals::of(&tree);
    assert_eq!(totals.reachable.objects + totals.unreachable.0, graph.len() as u64);
    let paths = Paths::of(&graph);
    for object in graph.objects() {
        assert_eq!(paths.to(object).is_some(), tree.is_reachable(object));
    }
    let mut again = Vec::new();
    graph.write(&mut again).expect("a vector has no end");
    assert_eq!(HeapGraph::read(&*again).expect("what was written"), graph);
});
