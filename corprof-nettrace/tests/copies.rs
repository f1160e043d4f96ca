//! Copies in version 6 read to the same events as the traces they are of.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use corprof_nettrace::events::Text;
use corprof_nettrace::{Item, Label, Reader};
use lzma_rust2::XzReader;
use support::{Bytes, START, demands, v4};

/// What an event is, in a line; and how many were lost.
fn lines(trace: &[u8]) -> (Vec<String>, u64) {
    let mut reader = Reader::new(trace);
    let mut lines = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        let Item::Event(event) = item else {
            let Item::SequencePoint(point) = item else { panic!("{item:?}") };
            lines.push(format!("point at {}", point.ticks));
            continue;
        };
        let metadata = event.metadata();
        let decoded = event.decoded();
        let name: Text<'_> = decoded.name();
        let values: Vec<String> = decoded.fields().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(format!(
            "{} {} {}: {} {} {} {:?} {:?} ({name}: {} {}) of {} by {} ({:?} in {:?}) on {} number {} at {} sorted {} \
             stack {:x?} in {:?} by {:?}: {:x?}",
            metadata.id,
            metadata.provider,
            metadata.event_id,
            metadata.name,
            metadata.version,
            metadata.level,
            metadata.keywords,
            metadata.opcode,
            values.join(" "),
            decoded.is_exact(),
            event.thread(),
            event.capture_thread(),
            event.os_thread_id(),
            event.process_id(),
            event.processor(),
            event.sequence_number(),
            event.ticks(),
            event.is_sorted(),
            event.stack().addresses().collect::<Vec<_>>(),
            event.activity(),
            event.related_activity(),
            event.payload(),
        ));
    }
    (lines, reader.stats().lost)
}

fn check_copy(trace: &[u8]) -> Vec<u8> {
    let (mut expected, lost) = lines(trace);
    let (copy, was_cut) = corprof_nettrace::copy(trace, Vec::new()).unwrap();
    assert!(!was_cut);
    let (found, found_lost) = lines(&copy);
    // The copy ends with a sequence point of its own.
    expected.push(found.last().unwrap().clone());
    assert!(found.last().unwrap().starts_with("point"));
    if let Some((expected, found)) = expected.iter().zip(&found).find(|(expected, found)| expected != found) {
        panic!("{expected}\n{found}");
    }
    assert_eq!((found.len(), found_lost), (expected.len(), lost));
    assert_eq!(demands::check(&copy).lost, lost);
    let header = |bytes: &[u8]| {
        let trace = Reader::new(bytes).trace().unwrap().clone();
        let processes = (trace.process_id, trace.processors, trace.pointer_size);
        (trace.started_utc, trace.started_ticks, trace.ticks_per_second, processes)
    };
    assert_eq!(header(&copy), header(trace));
    copy
}

#[test]
fn traces_of_dotnet_trace_are_copied() {
    for (name, most) in [("gc", 1_820_000), ("sampled", 440_000)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/{name}.nettrace.xz"));
        let mut bytes = Vec::new();
        XzReader::new(File::open(path).unwrap(), false).read_to_end(&mut bytes).unwrap();
        let copy = check_copy(&bytes);
        assert!(copy.len() < most, "{name}: {} bytes become {}", bytes.len(), copy.len());
        assert!(check_copy(&copy).len() <= copy.len() + 100, "version 6 is copied as well");
    }
}

#[test]
fn all_that_versions_4_and_5_have_is_copied() {
    for version in [4, 5] {
        let copy = check_copy(&v4::sample(version));
        let mut reader = Reader::new(&copy[..]);
        let event = reader.next_event().unwrap().unwrap();
        let activity = Label::Activity("00010203-0405-0607-0809-0a0b0c0d0e0f".parse().unwrap());
        assert_eq!(event.labels().collect::<Vec<_>>(), [activity]);
        let fields = |metadata: &corprof_nettrace::Metadata| metadata.fields().unwrap().to_string();
        assert_eq!(fields(event.metadata()), "Number: i32, Inner: {Text: utf16z, Id: guid}");
        reader.next_event().unwrap();
        let second = reader.next_event().unwrap().unwrap().metadata().clone();
        let expected = if version == 5 { "Numbers: [u32], Number: i32" } else { "" };
        assert_eq!((fields(&second).as_str(), second.opcode), (expected, (version == 5).then_some(7)));
    }
}

/// A trace of version 4 with these events of the thread 77, by their numbers, and what it has reached at the end.
fn numbered(numbers: &[u32], reached: u32) -> Vec<u8> {
    let definition = v4::definition(v4::events(true), &v4::definition_of(1, "Test-Provider", 5, "First").u32(0));
    let bytes = v4::block(v4::start(4, 8), "MetadataBlock", &definition);
    let events = numbers.iter().zip(START..).fold(v4::events(false), |bytes, (number, ticks)| {
        let event = v4::Event { metadata: 1, skipped: *number, thread: 77, stack: 0, ticks, payload: &[] };
        event.whole(bytes, true)
    });
    let bytes = v4::block(bytes, "EventBlock", &events);
    let point: Bytes = v4::sequence_point(START + 100, &[(77, reached)]);
    v4::end(v4::block(bytes, "SPBlock", &point))
}

#[test]
fn a_trace_that_was_cut_gets_an_end() {
    let whole = check_copy(&numbered(&[1, 2, 3], 3));
    let (expected, _) = lines(&whole);
    // In the sequence point at the end.
    let cut = &whole[..whole.len() - 10];
    assert!(Reader::new(cut).next_event().unwrap().is_some());
    let (mended, was_cut) = corprof_nettrace::copy(cut, Vec::new()).unwrap();
    assert!(was_cut);
    demands::check(&mended);
    assert_eq!(lines(&mended).0[..3], expected[..3]);
    assert!(corprof_nettrace::copy(&whole[..30], Vec::new()).is_err(), "not even a header");
    let mut damaged = whole.clone();
    let last = damaged.len() - 4;
    damaged[last..].copy_from_slice(&[0, 0, 0, 1]);
    assert!(corprof_nettrace::copy(&damaged[..], Vec::new()).is_err(), "something else than an end");
}

#[test]
fn losses_are_copied() {
    let lost = |trace: &[u8]| {
        let (copy, _) = corprof_nettrace::copy(trace, Vec::new()).unwrap();
        let lost = lines(&copy).1;
        assert_eq!(lost, lines(trace).1);
        assert_eq!(demands::check(&copy).lost, lost);
        lost
    };
    assert_eq!(lost(&numbered(&[1, 2, 3], 3)), 0);
    assert_eq!(lost(&numbered(&[3, 4, 7], 7)), 4);
    assert_eq!(lost(&numbered(&[1, 2], 6)), 4, "after the last");
    // Another thread of the system with the same number.
    assert_eq!(lost(&numbered(&[1, 2, 3, 2, 3], 3)), 1);
    check_copy(&numbered(&[3, 4, 7], 7));
}
