//! What TraceEvent demands of a trace of version 6, checked block by block with no code of the reader's but its cursor.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "that is how a test fails")]

use std::collections::{HashMap, HashSet};

use corprof_nettrace::bytes::{Cursor, Malformed};

use super::v6;

/// What a trace has had so far, as TraceEvent keeps it.
#[derive(Default)]
struct Seen {
    definitions: HashSet<u32>,
    /// The last number and the last time of each thread.
    threads: HashMap<u64, (u32, u64)>,
    /// Since the last sequence point.
    removed: HashSet<u64>,
    stacks: HashSet<u32>,
    labels: HashSet<u32>,
    oldest_allowed: u64,
    youngest: u64,
    lost: u64,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) events: u64,
    pub(crate) lost: u64,
    pub(crate) blocks: Vec<u8>,
}

/// Panics if the whole trace breaks a demand.
pub(crate) fn check(trace: &[u8]) -> Found {
    let mut cursor = Cursor::new(trace);
    assert_eq!(cursor.bytes(20), Ok(&v6::header(6, 0).0[..]));
    let mut seen = Seen::default();
    let mut found = Found::default();
    while !cursor.is_empty() {
        let header = cursor.u32().unwrap();
        let kind = header.to_le_bytes()[3];
        let contents = cursor.bytes((header & 0xff_ffff) as usize).expect("a block is whole");
        found.events += seen.block(kind, contents).expect("a block has all its rows");
        found.blocks.push(kind);
    }
    assert_eq!(found.blocks.first(), Some(&v6::TRACE));
    assert!(found.blocks.ends_with(&[v6::SEQUENCE_POINT, 0]), "events that are not sorted wait for a sequence point");
    found.lost = seen.lost;
    found
}

impl Seen {
    fn block(&mut self, kind: u8, contents: &[u8]) -> Result<u64, Malformed> {
        let mut cursor = Cursor::new(contents);
        match kind {
            v6::EVENTS => return self.events(contents),
            v6::METADATA => {
                assert_eq!(cursor.u16()?, 0);
                while !cursor.is_empty() {
                    let size = cursor.u16()?;
                    let id = Cursor::new(cursor.bytes(size.into())?).varuint32()?;
                    assert!((1..=0x7fff_ffff).contains(&id), "definition {id}");
                    assert!(self.definitions.insert(id), "two definitions have the number {id}");
                }
            }
            v6::SEQUENCE_POINT => {
                let ticks = cursor.u64()?;
                assert!(ticks >= self.youngest.max(self.oldest_allowed), "a sequence point is older than an event");
                assert_eq!(cursor.u32()?, 0, "flags");
                for _ in 0..cursor.u32()? {
                    let (thread, number) = (cursor.varuint64()?, cursor.varuint32()?);
                    self.reached(thread, number);
                }
                self.oldest_allowed = ticks;
                self.removed.clear();
                self.stacks.clear();
                self.labels.clear();
            }
            v6::STACKS | v6::LABELS => {
                let (first, count) = (cursor.u32()?, cursor.u32()?);
                assert!(first > 0 && count > 0);
                let rows = if kind == v6::STACKS { &mut self.stacks } else { &mut self.labels };
                for number in first..first + count {
                    assert!(rows.insert(number), "two stacks or labels have the number {number}");
                }
            }
            v6::THREADS => {
                while !cursor.is_empty() {
                    let size = cursor.u16()?;
                    let index = Cursor::new(cursor.bytes(size.into())?).varuint64()?;
                    assert!(!self.removed.contains(&index), "the thread {index} comes again too early");
                    assert_eq!(self.threads.insert(index, (0, 0)), None, "two threads have the number {index}");
                }
            }
            v6::REMOVED_THREADS => {
                let (thread, number) = (cursor.varuint64()?, cursor.varuint32()?);
                self.reached(thread, number);
                self.threads.remove(&thread);
                self.removed.insert(thread);
            }
            v6::TRACE | 0 => {}
            other => panic!("a block of the kind {other}"),
        }
        Ok(0)
    }

    fn reached(&mut self, thread: u64, number: u32) {
        let (last, _) = self.threads.get_mut(&thread).expect("a thread is known");
        self.lost += u64::from(number.wrapping_sub(*last));
        *last = number;
    }

    fn events(&mut self, contents: &[u8]) -> Result<u64, Malformed> {
        let mut cursor = Cursor::new(contents);
        assert_eq!((cursor.u16()?, cursor.u16()?), (20, 1));
        let (oldest, youngest) = (cursor.u64()?, cursor.u64()?);
        let (mut definition, mut number, mut capture, mut thread) = (0, 0_u32, 0, 0);
        let (mut stack, mut labels, mut ticks, mut size) = (0, 0, 0_u64, 0);
        let mut times = Vec::new();
        while !cursor.is_empty() {
            let flags = cursor.u8()?;
            let has = |flag: u8| flags & flag != 0;
            let before = capture;
            if has(1) {
                definition = cursor.varuint32()?;
            }
            if has(2) {
                number = number.wrapping_add(cursor.varuint32()?);
                capture = cursor.varuint64()?;
                cursor.varuint32()?;
            }
            number = number.wrapping_add(1);
            if has(4) {
                thread = cursor.varuint64()?;
            }
            if has(8) {
                stack = cursor.varuint32()?;
            }
            ticks = ticks.checked_add(cursor.varuint64()?).expect("a difference of times has no sign");
            if has(16) {
                labels = cursor.varuint32()?;
            }
            if has(128) {
                size = cursor.varuint32()?;
            }
            cursor.bytes(size as usize)?;
            let is_sorted = has(64);
            assert!(size <= 0xffff && !has(32));
            assert!(self.definitions.contains(&definition), "no definition {definition}");
            assert!(self.threads.contains_key(&thread), "no thread {thread}");
            assert!(stack == 0 || self.stacks.contains(&stack), "no stack {stack}");
            assert!(labels == 0 || self.labels.contains(&labels), "no labels {labels}");
            assert!(times.is_empty() || capture == before || is_sorted, "a block changes to an unsorted event");
            assert!(ticks >= self.oldest_allowed && i64::try_from(ticks).is_ok(), "{ticks} is too old");
            let (last, last_ticks) = self.threads.get_mut(&capture).expect("a thread is known");
            assert!(ticks >= *last_ticks, "a thread goes back in time");
            self.lost += u64::from(number.wrapping_sub(*last).wrapping_sub(1));
            (*last, *last_ticks) = (number, ticks);
            if is_sorted {
                self.oldest_allowed = ticks;
            }
            self.youngest = self.youngest.max(ticks);
            times.push(ticks);
        }
        assert_eq!((times.iter().min(), times.iter().max()), (Some(&oldest), Some(&youngest)));
        Ok(times.len() as u64)
    }
}
