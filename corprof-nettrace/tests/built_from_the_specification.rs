//! Traces of versions 4, 5 and 6 that are built as the documents of the format say: nothing at hand writes 5 and 6.

mod support;

use corprof_nettrace::{Error, FormatErrorKind, Item, Label, Limits, Metadata, Reader, UtcTime, Uuid};
use support::{Bytes, v4, v6};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const STARTED: UtcTime = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };

/// An event in a line.
fn lines(trace: &[u8]) -> Result<Vec<String>> {
    let mut reader = Reader::new(trace);
    let mut lines = Vec::new();
    while let Some(item) = reader.next_item()? {
        lines.push(match item {
            Item::Event(event) => format!(
                "{}.{} thread {} ({:?}) number {} at {:?} sorted {} stack {:x?} payload {:?}",
                event.metadata().provider,
                event.metadata().event_id,
                event.thread(),
                event.os_thread_id(),
                event.sequence_number(),
                event.since_start(),
                event.is_sorted(),
                event.stack().addresses().collect::<Vec<_>>(),
                event.payload(),
            ),
            Item::SequencePoint(point) => format!("point at {}", point.ticks),
            other => format!("{other:?}"),
        });
    }
    let stats = reader.stats();
    lines.push(format!("{} events, {} lost, {} skipped", stats.events, stats.lost, stats.skipped_blocks));
    assert_eq!(stats.bytes, trace.len() as u64);
    Ok(lines)
}

#[test]
fn versions_4_and_5_have_all_their_blocks_read() -> Result {
    for version in [4, 5] {
        let expected = [
            "Test-Provider.5 thread 77 (Some(77)) number 1 at 0ns sorted true stack [10, ffffffffffffffff] payload [1, 2, 3]",
            "Test-Provider.5 thread 77 (Some(77)) number 2 at 0ns sorted false stack [10, ffffffffffffffff] payload [4, 5, 6]",
            "Test-Provider.6 thread 78 (Some(78)) number 3 at 0ns sorted true stack [1234] payload []",
            "point at 1200",
            // The sequence point has ended the stacks.
            "Test-Provider.5 thread 77 (Some(77)) number 5 at 30µs sorted true stack [] payload [9]",
            // The two of thread 77 that its sequence point counts, and the two before the first of 78.
            "4 events, 4 lost, 1 skipped",
        ];
        assert_eq!(lines(&v4::sample(version))?, expected, "version {version}");
    }
    Ok(())
}

#[test]
fn the_header_of_versions_4_and_5_is_read() -> Result {
    let bytes = v4::sample(5);
    let mut reader = Reader::new(&bytes[..]);
    let trace = reader.trace()?.clone();
    assert_eq!((trace.version, trace.pointer_size, trace.process_id, trace.processors), (5, 8, Some(4711), Some(8)));
    assert_eq!((trace.started_utc, trace.started_ticks, trace.ticks_per_second), (STARTED, 1000, 10_000_000));
    let event = reader.next_event()?.ok_or("no event")?;
    assert_eq!(event.activity(), Some("00010203-0405-0607-0809-0a0b0c0d0e0f".parse()?));
    assert_eq!(event.related_activity(), None);
    assert_eq!((event.processor(), event.capture_thread(), event.process_id()), (3, 77, Some(4711)));
    Ok(())
}

/// The fields of a definition.
fn fields(metadata: &Metadata) -> Option<String> {
    metadata.fields().map(|fields| fields.to_string())
}

#[test]
fn definitions_have_their_fields_in_both_layouts() -> Result {
    let bytes = v4::sample(5);
    let mut reader = Reader::new(&bytes[..]);
    let first = reader.next_event()?.ok_or("no event")?.metadata().clone();
    assert_eq!((first.id, first.name.as_str(), first.keywords, first.version, first.level), (1, "First", 0x10, 2, 4));
    assert_eq!(fields(&first).as_deref(), Some("Number: i32, Inner: {Text: utf16z, Id: guid}"));
    reader.next_event()?;
    let second = reader.next_event()?.ok_or("no event")?.metadata().clone();
    assert_eq!(second.opcode, Some(7));
    assert_eq!(fields(&second).as_deref(), Some("Numbers: [u32], Number: i32"));
    Ok(())
}

#[test]
fn version_6_has_all_its_blocks_read() -> Result {
    let expected = [
        "Test-Provider.5 thread 1 (Some(300)) number 1 at 0ns sorted true stack [10, ffffffff] payload [1, 2, 3]",
        "Test-Provider.5 thread 1 (Some(300)) number 2 at 0ns sorted false stack [10, ffffffff] payload [4, 5, 6]",
        "Test-Provider.6 thread 2 (None) number 3 at 0ns sorted true stack [] payload [63]",
        "point at 1200",
        "Test-Provider.5 thread 1 (Some(300)) number 5 at 30µs sorted true stack [] payload [97, 98, 99]",
        "point at 1200",
        // Two of 1 by its sequence point, two of 2 before its first, three when it is removed.
        "4 events, 7 lost, 1 skipped",
    ];
    assert_eq!(lines(&v6::sample())?, expected);
    Ok(())
}

#[test]
fn version_6_tells_of_threads_labels_and_processes() -> Result {
    let bytes = v6::sample();
    let mut reader = Reader::new(&bytes[..]);
    let trace = reader.trace()?;
    assert_eq!((trace.version, trace.pointer_size, trace.process_id, trace.processors), (6, 4, Some(4711), Some(16)));
    assert_eq!(trace.started_utc, STARTED);
    assert_eq!(trace.properties[2], ("Host".to_owned(), "größer".to_owned()));
    let event = reader.next_event()?.ok_or("no event")?;
    let thread = event.thread_info().ok_or("no thread")?;
    assert_eq!((thread.name.as_deref(), thread.process_id), (Some("main"), Some(9000)));
    assert_eq!(event.process_id(), Some(9000));
    assert_eq!(event.activity(), Some(Uuid::from_bytes([7; 16])));
    assert_eq!(event.related_activity(), Some(Uuid::from_bytes([8; 16])));
    let text = |text: &str| text.to_owned();
    let others = [
        Label::TraceId([9; 16]),
        Label::SpanId(5),
        Label::Text(text("user"), text("ann")),
        Label::Number(text("try"), -2),
    ];
    assert_eq!(event.labels().skip(2).collect::<Vec<_>>(), others);
    reader.next_event()?;
    let event = reader.next_event()?.ok_or("no event")?;
    let others = [Label::Opcode(1), Label::Keywords(2), Label::Level(3), Label::Version(4)];
    assert_eq!(event.labels().collect::<Vec<_>>(), others);
    assert_eq!(event.process_id(), Some(4711));
    assert_eq!(event.thread_info().ok_or("no thread")?.properties, [(text("kind"), text("fiber"))]);
    Ok(())
}

#[test]
fn version_6_has_its_definitions_read() -> Result {
    let bytes = v6::sample();
    let mut reader = Reader::new(&bytes[..]);
    let first = reader.next_event()?.ok_or("no event")?.metadata().clone();
    let expected = "Count: varuint, Numbers: [i32], Four: [utf8; 4], Where: location, Inner: {Deep: u8}";
    assert_eq!(fields(&first).as_deref(), Some(expected));
    assert_eq!((first.opcode, first.keywords, first.level, first.version), (Some(7), 0x10, 4, 2));
    assert_eq!((first.message.as_deref(), first.description.as_deref()), (Some("{0}"), Some("What it is")));
    assert_eq!(first.provider_guid, Some(Uuid::from_bytes([1; 16])));
    reader.next_event()?;
    let later = reader.next_event()?.ok_or("no event")?.metadata().clone();
    assert_eq!((later.event_id, fields(&later)), (6, None), "its type is not known, its bytes are there");
    Ok(())
}

/// The error that a trace ends with.
fn error(trace: &[u8], limits: Limits) -> Option<FormatErrorKind> {
    let mut reader = Reader::with_limits(trace, limits);
    let error = loop {
        match reader.next_item() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(Error::Format(error)) => break error,
            Err(_) => return None,
        }
    };
    let again = reader.next_item().err().map(|error| error.to_string());
    assert_eq!(again, Some(error.to_string()), "the reader forgets that it has failed");
    Some(error.kind)
}

#[test]
fn every_prefix_of_a_trace_is_truncated() {
    for trace in [v4::sample(4), v4::sample(5), v6::sample()] {
        assert_eq!(error(&trace, Limits::default()), None);
        for length in 0..trace.len() {
            assert_eq!(error(&trace[..length], Limits::default()), Some(FormatErrorKind::Truncated), "{length}");
        }
    }
}

#[test]
fn what_is_no_trace_is_told_from_one_of_another_version() {
    let kind = |bytes: &[u8]| error(bytes, Limits::default());
    assert_eq!(kind(b"PK\x03\x04 and so on"), Some(FormatErrorKind::NotNettrace));
    assert_eq!(kind(b"x"), Some(FormatErrorKind::NotNettrace));
    let netperf = Bytes::default().u32(20).bytes("!FastSerialization.1").0;
    assert_eq!(kind(&netperf), Some(FormatErrorKind::NotNettrace));
    let version = |version, known| Some(FormatErrorKind::Version { what: "it", version, known });
    assert_eq!(kind(&v6::header(7, 0).0), version(7, 6));
    let newer = v4::block_needing(v4::start(4, 8), "EventBlock", 3, &Bytes::default());
    assert!(matches!(kind(&newer.0), Some(FormatErrorKind::Version { version: 3, known: 2, .. })));
    assert!(matches!(kind(&v4::start(4, 5).0), Some(FormatErrorKind::Corrupt(_))), "pointers of 5 bytes");
}

#[test]
fn memory_is_limited_by_name() {
    let name = |limits| match error(&v6::sample(), limits) {
        Some(FormatErrorKind::Limit { name, .. }) => name,
        _ => "",
    };
    let default = Limits::default;
    let mut limits = default();
    limits.block_bytes = 100;
    assert_eq!(name(limits), "block_bytes");
    limits = default();
    limits.metadata_bytes = 300;
    assert_eq!(name(limits), "metadata_bytes");
    limits = default();
    limits.stack_bytes = 10;
    assert_eq!(name(limits), "stack_bytes");
    limits = default();
    limits.label_bytes = 10;
    assert_eq!(name(limits), "label_bytes");
    limits = default();
    limits.thread_bytes = 10;
    assert_eq!(name(limits), "thread_bytes");
    limits = default();
    limits.threads = 1;
    assert_eq!(name(limits), "threads");
}

#[test]
fn a_size_that_is_a_lie_takes_no_memory() {
    let lie = v4::start(4, 8).u8(5).u8(5).u8(1).u32(2).u32(2).u32(10).bytes("StackBlock").u8(6).u32(16 << 20);
    assert_eq!(error(&lie.0, Limits::default()), Some(FormatErrorKind::Truncated));
    let mut limits = Limits::default();
    limits.block_bytes = 1 << 20;
    assert!(matches!(error(&lie.0, limits), Some(FormatErrorKind::Limit { name: "block_bytes", .. })));
}

#[test]
fn an_event_without_a_definition_is_an_error() {
    let event = v4::Event { metadata: 9, skipped: 0, thread: 1, stack: 0, ticks: 0, payload: &[] };
    let trace = v4::end(v4::block(v4::start(4, 8), "EventBlock", &event.compressed(v4::events(true))));
    assert!(matches!(error(&trace, Limits::default()), Some(FormatErrorKind::Corrupt(_))));
}
