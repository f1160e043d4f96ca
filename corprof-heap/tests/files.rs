//! Snapshot files: written ones read back the same, and damaged ones are refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

#[path = "support/hostile.rs"]
mod hostile;
mod support;

use corprof_heap::file::ReadError;
use corprof_heap::{GraphBuilder, HeapGraph, RootKind};
use fastrand::Rng;
use support::{Shape, random};

fn bytes_of(graph: &HeapGraph) -> Vec<u8> {
    let mut bytes = Vec::new();
    graph.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn snapshots_come_back_and_are_the_same_bytes() {
    let mut rng = Rng::with_seed(41);
    for _ in 0..500 {
        let objects = rng.usize(..200);
        let references = rng.usize(..400);
        let roots = rng.usize(..9);
        let ephemerons = rng.usize(..9);
        let model = random(&mut rng, Shape { objects, references, classes: 12, roots, ephemerons, has_tables: true });
        let graph = model.build();
        let bytes = bytes_of(&graph);
        assert_eq!(bytes, bytes_of(&model.build_shuffled(&mut rng)));
        assert_eq!(HeapGraph::read(&*bytes).unwrap(), graph);
    }
}

#[test]
fn what_is_said_about_a_snapshot_comes_back() {
    let mut builder = GraphBuilder::new("größe");
    builder.set_taken(u64::MAX);
    builder.set_cut();
    builder.object(u64::MAX, u64::MAX, u64::MAX);
    builder.object(1, u64::MAX, 0);
    builder.reference(1, 77);
    builder.root(1, RootKind::Static, Some("field"));
    let graph = builder.finish().unwrap();
    let read = HeapGraph::read(&*bytes_of(&graph)).unwrap();
    assert_eq!((read.title(), read.taken(), read.losses().unknown_targets), ("größe", Some(u64::MAX), 1));
    assert_eq!(read, graph);
}

#[test]
fn other_files_and_versions_are_named() {
    let whole = bytes_of(&GraphBuilder::new("empty").finish().unwrap());
    assert!(matches!(HeapGraph::read(&b""[..]), Err(ReadError::NotASnapshot)));
    assert!(matches!(HeapGraph::read(&b"{\"snapshot\":{\"meta\":{}}}"[..]), Err(ReadError::NotASnapshot)));
    let mut newer = whole.clone();
    newer[13] = 3;
    let error = HeapGraph::read(&*newer).unwrap_err();
    assert!(matches!(error, ReadError::Version(3)) && error.to_string().contains("version 3"));
    for length in 13..whole.len() {
        assert!(matches!(HeapGraph::read(&whole[..length]), Err(ReadError::Damaged { .. })), "cut to {length} bytes");
    }
}

#[test]
fn a_length_alone_takes_no_memory() {
    // A file that claims four billion classes, and one with a text of 2^63 bytes.
    for tail in
        [&[0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd, 0xff, 0xff, 0xff, 0x0f][..], &[0xff; 8], &[0x80; 9]]
    {
        let bytes = [b"corprof heap\0\x02", tail].concat();
        assert!(matches!(HeapGraph::read(&*bytes), Err(ReadError::Damaged { .. })));
    }
}

#[test]
fn pairs_of_weak_tables_that_are_not_there_are_refused() {
    let mut builder = GraphBuilder::new("pair");
    builder.object(8, 1, 24);
    builder.object(32, 1, 24);
    builder.ephemeron(None, 8, 32);
    let mut bytes = bytes_of(&builder.finish().unwrap());
    let end = bytes.len() - 4;
    // One weak edge: number, table; no roots.
    assert_eq!(bytes[end - 4..end], [1, 0, 0, 0]);
    for (at, value, what) in [(end - 3, 1, "a weak edge is not there"), (end - 2, 3, "a weak table is not there")] {
        let before = std::mem::replace(&mut bytes[at], value);
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        let error = HeapGraph::read(&*bytes).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        bytes[at] = before;
    }
}

#[test]
fn damaged_files_are_errors_or_consistent_snapshots() {
    let mut rng = Rng::with_seed(42);
    let mut accepted = 0;
    for _ in 0..1_000 {
        let file = hostile::file(&mut rng);
        assert!(hostile::read_all(&file));
        for _ in 0..100 {
            let bytes = hostile::mutated(&mut rng, &file);
            accepted += u32::from(hostile::read_all(&bytes));
        }
    }
    assert!(accepted > 1_000, "the mutations hardly ever get past the reader: {accepted}");
}
