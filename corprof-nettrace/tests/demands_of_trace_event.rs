//! What TraceEvent demands of a trace, each demand of the crate's documentation by itself. That arbitrary traces meet
//! those that are not errors is tested in `written_and_read.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use corprof_nettrace::events::{EventDefinition, FieldDefinition, FieldList, FieldType, Keywords, Level};
use corprof_nettrace::{Item, Label, Metadata, NewEvent, Reader, Thread, Trace, UtcTime, WriteError, Writer};
use support::{demands, v4, v6};

const BEGAN: UtcTime = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };

/// A writer with one definition and two threads.
fn writer() -> Writer<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &Trace::new(BEGAN, 0, 1000)).unwrap();
    writer.define_event(&Metadata::new(1, "Shop", 1, "Order")).unwrap();
    writer.define_thread(&Thread::new(1)).unwrap();
    writer.define_thread(&Thread::new(2)).unwrap();
    writer
}

fn unsorted(thread: u64, ticks: u64) -> NewEvent<'static> {
    let mut event = NewEvent::new(1, thread, ticks);
    event.is_sorted = false;
    event
}

/// How many blocks of a kind.
fn count(bytes: &[u8], kind: u8) -> usize {
    demands::check(bytes).blocks.iter().filter(|block| **block == kind).count()
}

#[test]
fn the_header_has_a_date_and_a_clock() {
    let refusal = |change: fn(&mut Trace)| {
        let mut trace = Trace::new(BEGAN, 0, 1000);
        change(&mut trace);
        let result = Writer::new(Vec::new(), &trace);
        assert!(matches!(result, Err(WriteError::Impossible(_))), "{trace:?}");
    };
    refusal(|trace| trace.started_utc.month = 13);
    refusal(|trace| trace.started_utc.month = 0);
    refusal(|trace| trace.started_utc.year = 0);
    refusal(|trace| trace.started_utc.day = 31);
    refusal(|trace| (trace.started_utc.month, trace.started_utc.day) = (2, 29));
    refusal(|trace| trace.started_utc.second = 60);
    refusal(|trace| trace.ticks_per_second = 0);
    refusal(|trace| trace.ticks_per_second = 1 << 63);
    refusal(|trace| trace.started_ticks = u64::MAX);
    refusal(|trace| trace.pointer_size = 2);
    let mut leap = Trace::new(BEGAN, 0, 1000);
    (leap.started_utc.year, leap.started_utc.month, leap.started_utc.day) = (2000, 2, 29);
    assert!(Writer::new(Vec::new(), &leap).is_ok());
}

#[test]
fn the_header_has_the_day_of_the_week_and_the_date_of_a_clock() {
    let bytes = Writer::new(Vec::new(), &Trace::new(BEGAN, 0, 1000)).unwrap().finish().unwrap();
    assert_eq!(bytes[24..40], support::utc().0, "a Sunday");
    let date = |seconds: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        UtcTime::from_system_time(time).map(|utc| (utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second))
    };
    // By `date -u -d @…`.
    assert_eq!(date(0), Some((1970, 1, 1, 0, 0, 0)));
    assert_eq!(date(951_827_696), Some((2000, 2, 29, 12, 34, 56)));
    assert_eq!(date(4_107_542_399), Some((2100, 2, 28, 23, 59, 59)));
    assert_eq!(date(4_107_542_400), Some((2100, 3, 1, 0, 0, 0)));
    assert_eq!(date(253_402_300_799), Some((9999, 12, 31, 23, 59, 59)));
    assert_eq!(date(253_402_300_800), None);
    let before = std::time::UNIX_EPOCH.checked_sub(std::time::Duration::from_secs(1)).unwrap();
    assert_eq!(UtcTime::from_system_time(before), None);
}

#[test]
fn what_an_event_refers_to_comes_before_it() {
    let mut writer = writer();
    assert!(matches!(writer.write(&NewEvent::new(2, 1, 0)), Err(WriteError::UnknownEvent(2))));
    assert!(matches!(writer.write(&NewEvent::new(1, 3, 0)), Err(WriteError::UnknownThread(3))));
    let mut event = NewEvent::new(1, 1, 0);
    event.capture_thread = 4;
    assert!(matches!(writer.write(&event), Err(WriteError::UnknownThread(4))));
    assert!(matches!(writer.remove_thread(5), Err(WriteError::UnknownThread(5))));
    assert!(matches!(writer.lose(6, 1), Err(WriteError::UnknownThread(6))));
    let mut event = NewEvent::new(1, 1, 0);
    (event.stack, event.labels) = (&[1], &[Label::Level(1)]);
    writer.write(&event).unwrap();
    let bytes = writer.finish().unwrap();
    let order = [v6::TRACE, v6::METADATA, v6::THREADS, v6::STACKS, v6::LABELS, v6::EVENTS, v6::SEQUENCE_POINT, 0];
    assert_eq!(demands::check(&bytes).blocks, order);
}

#[test]
fn a_number_is_given_once() {
    let mut writer = writer();
    writer.define_event(&Metadata::new(1, "Shop", 1, "Order")).expect("the same once more is none");
    let other = Metadata::new(1, "Shop", 1, "Sale");
    let redefined = |result, what, number| {
        let Err(WriteError::Redefined { what: of, number: by }) = result else { panic!("{result:?}") };
        assert_eq!((of, by), (what, number));
    };
    redefined(writer.define_event(&other), "definition", 1);
    redefined(writer.define_thread(&Thread::new(2)), "thread", 2);
    for id in [0, 1 << 31] {
        let result = writer.define_event(&Metadata::new(id, "Shop", 1, "Order"));
        assert!(matches!(result, Err(WriteError::Impossible(_))), "{id}: {result:?}");
    }
    writer.remove_thread(2).unwrap();
    // TraceEvent forgets a thread at the next sequence point.
    redefined(writer.define_thread(&Thread::new(2)), "thread", 2);
    assert!(matches!(writer.write(&NewEvent::new(1, 2, 0)), Err(WriteError::UnknownThread(2))));
    writer.sequence_point(0).unwrap();
    writer.define_thread(&Thread::new(2)).unwrap();
    demands::check(&writer.finish().unwrap());
}

#[test]
fn stacks_and_labels_are_written_anew_after_a_sequence_point() {
    let mut writer = writer();
    let mut event = NewEvent::new(1, 1, 0);
    (event.stack, event.labels) = (&[1], &[Label::Level(1)]);
    for ticks in 0..4 {
        event.ticks = ticks;
        writer.write(&event).unwrap();
        if ticks == 1 {
            writer.sequence_point(1).unwrap();
        }
    }
    let bytes = writer.finish().unwrap();
    assert_eq!((count(&bytes, v6::STACKS), count(&bytes, v6::LABELS)), (2, 2));
}

#[test]
fn an_unsorted_event_of_another_thread_begins_a_block() {
    let mut writer = writer();
    for event in [unsorted(1, 10), unsorted(1, 20), unsorted(2, 12), unsorted(2, 22), unsorted(1, 30)] {
        writer.write(&event).unwrap();
    }
    assert_eq!(count(&writer.finish().unwrap(), v6::EVENTS), 3);
    // A sorted one says itself which thread it is of.
    let mut writer = self::writer();
    for (thread, ticks) in [(1, 10), (2, 11), (1, 12), (2, 13)] {
        writer.write(&NewEvent::new(1, thread, ticks)).unwrap();
    }
    assert_eq!(count(&writer.finish().unwrap(), v6::EVENTS), 1);
}

#[test]
fn time_goes_forward_in_a_block() {
    let mut writer = writer();
    writer.write(&unsorted(1, 20)).unwrap();
    writer.write(&NewEvent::new(1, 2, 10)).unwrap();
    assert_eq!(count(&writer.finish().unwrap(), v6::EVENTS), 2);
}

#[test]
fn promises_about_time_are_kept() {
    let mut writer = writer();
    let refused = |result, ticks, after| {
        let Err(WriteError::OutOfOrder { ticks: found, after: allowed }) = result else { panic!("{result:?}") };
        assert_eq!((found, allowed), (ticks, after));
    };
    writer.write(&unsorted(1, 20)).unwrap();
    refused(writer.write(&unsorted(1, 19)), 19, 20);
    writer.write(&unsorted(2, 15)).unwrap();
    refused(writer.sequence_point(19), 19, 20);
    writer.write(&NewEvent::new(1, 2, 18)).unwrap();
    refused(writer.write(&unsorted(2, 17)), 17, 18);
    writer.sequence_point(30).unwrap();
    refused(writer.write(&unsorted(2, 29)), 29, 30);
    refused(writer.sequence_point(29), 29, 30);
    writer.write(&unsorted(2, 30)).unwrap();
    let late = 1 << 63;
    assert!(matches!(writer.write(&unsorted(2, late)), Err(WriteError::Impossible(_))));
    assert!(matches!(writer.sequence_point(late), Err(WriteError::Impossible(_))));
    assert_eq!(demands::check(&writer.finish().unwrap()).events, 4, "what was refused is not there");
}

#[test]
fn events_are_numbered_from_1_and_gaps_are_losses() {
    let mut writer = writer();
    writer.write(&NewEvent::new(1, 1, 0)).unwrap();
    let mut event = NewEvent::new(1, 1, 1);
    event.lost_before = 2;
    writer.write(&event).unwrap();
    // Nothing follows that would show it.
    writer.lose(2, 5).unwrap();
    assert_eq!(writer.stats().lost, 7);
    let bytes = writer.finish().unwrap();
    assert_eq!(demands::check(&bytes).lost, 7);
    let mut reader = Reader::new(&bytes[..]);
    let mut numbers = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        numbers.push(event.sequence_number());
    }
    assert_eq!((numbers, reader.stats().lost), (vec![1, 4], 7));
}

#[test]
fn an_event_fits_into_an_event_record() {
    let mut writer = writer();
    let long = vec![0; 65_536];
    let too_long = |result: Result<(), WriteError>, name| {
        let Err(WriteError::TooLong { what, size, limit }) = result else { panic!("{result:?}") };
        assert!(what == name && size > limit, "{what} {size} {limit}");
    };
    let mut event = NewEvent::new(1, 1, 0);
    event.payload = &long;
    too_long(writer.write(&event), "the payload of an event");
    event.payload = &long[1..];
    writer.write(&event).unwrap();
    let stack = vec![1; 8191];
    event.stack = &stack;
    too_long(writer.write(&event), "a stack");
    event.stack = &stack[1..];
    writer.write(&event).unwrap();
    let text = "x".repeat(65_536);
    too_long(writer.define_event(&Metadata::new(2, "Shop", 2, text.as_str())), "the definition of an event");
    let mut thread = Thread::new(3);
    thread.name = Some(text.clone());
    too_long(writer.define_thread(&thread), "a thread");
    let labels = [Label::Text(String::new(), text.repeat(20))];
    event.labels = &labels;
    too_long(writer.write(&event), "a list of labels");
    let impossible = |metadata: Metadata| {
        let result = self::writer().define_event(&metadata);
        assert!(matches!(result, Err(WriteError::Impossible(_))), "{result:?}");
    };
    impossible(Metadata::new(2, "Shop", 65_536, "Order"));
    let mut metadata = Metadata::new(2, "Shop", 2, "Order");
    metadata.version = 256;
    impossible(metadata.clone());
    (metadata.version, metadata.level) = (255, 256);
    impossible(metadata);
    assert_eq!(demands::check(&writer.finish().unwrap()).events, 2);
}

#[test]
fn addresses_are_as_wide_as_pointers() {
    let mut trace = Trace::new(BEGAN, 0, 1000);
    trace.pointer_size = 4;
    let mut writer = Writer::new(Vec::new(), &trace).unwrap();
    writer.define_event(&Metadata::new(1, "Shop", 1, "Order")).unwrap();
    writer.define_thread(&Thread::new(1)).unwrap();
    let mut event = NewEvent::new(1, 1, 0);
    event.stack = &[1 << 32];
    assert!(matches!(writer.write(&event), Err(WriteError::Impossible(_))));
    event.stack = &[u32::MAX as u64, 7];
    writer.write(&event).unwrap();
    let bytes = writer.finish().unwrap();
    let mut reader = Reader::new(&bytes[..]);
    let event = reader.next_event().unwrap().unwrap();
    assert!(event.stack().addresses().eq([u32::MAX.into(), 7]));
    assert_eq!(event.stack().as_bytes().len(), 8);
}

#[test]
fn fields_of_unknown_types_are_left_out() {
    // The second definition has a field of a type that nobody knows.
    let bytes = v6::sample();
    let mut reader = Reader::new(&bytes[..]);
    let mut writer = Writer::new(Vec::new(), &reader.trace().unwrap().clone()).unwrap();
    while let Some(event) = reader.next_event().unwrap() {
        writer.copy(&event).unwrap();
    }
    let copy = writer.finish().unwrap();
    demands::check(&copy);
    let mut reader = Reader::new(&copy[..]);
    let mut fields = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        fields.push(event.metadata().fields().map(|fields| fields.to_string()));
    }
    let known = "Count: varuint, Numbers: [i32], Four: [utf8; 4], Where: location, Inner: {Deep: u8}".to_owned();
    assert_eq!(fields, [Some(known.clone()), Some(known.clone()), Some(String::new()), Some(known)]);
}

#[test]
fn a_trace_ends_with_a_sequence_point_and_an_end() {
    let mut writer = writer();
    writer.write(&unsorted(1, 20)).unwrap();
    let bytes = writer.finish().unwrap();
    assert!(demands::check(&bytes).blocks.ends_with(&[v6::EVENTS, v6::SEQUENCE_POINT, 0]));
    let mut reader = Reader::new(&bytes[..]);
    reader.next_event().unwrap().unwrap();
    let Some(Item::SequencePoint(point)) = reader.next_item().unwrap() else { panic!("no sequence point") };
    assert_eq!(point.ticks, 20);
    assert!(reader.next_item().unwrap().is_none());
}

#[test]
fn an_event_that_is_a_struct_has_its_definition() {
    let field = |name, ty, is_list| FieldDefinition { name, ty, is_list };
    let fields = [field("Id", FieldType::Int32, false), field("Items", FieldType::String, true)];
    let event = EventDefinition {
        provider: "Shop",
        name: "Order",
        id: 7,
        version: 2,
        level: Level::Warning,
        keywords: Keywords::from_bits(0x10),
        opcode: 1,
        needs_stack: false,
        fields: Box::leak(Box::new(fields)),
    };
    let metadata = Metadata::of(3, &event).unwrap();
    let mut writer = writer();
    writer.define_event(&metadata).unwrap();
    let mut order = NewEvent::new(3, 1, 0);
    order.payload = &[42, 0, 0, 0, 1, 0, b'a', 0, 0, 0];
    writer.write(&order).unwrap();
    let bytes = writer.finish().unwrap();
    let mut reader = Reader::new(&bytes[..]);
    let read = reader.next_event().unwrap().unwrap();
    assert_eq!(read.metadata(), &metadata);
    let numbers = (metadata.id, metadata.event_id, metadata.version, metadata.level, metadata.keywords);
    assert_eq!((numbers, metadata.opcode), ((3, 7, 2, 3, 0x10), Some(1)));
    let values: Vec<_> = read.decoded().fields().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(values, ["Id=42", "Items=[\"a\"]"]);
}

#[test]
fn definitions_of_profilers_and_of_older_versions_have_their_fields() {
    let definition = v4::simple_fields(v4::definition_of(1, "Test-Provider", 5, "First")).0;
    // A session of a profiler has neither number nor provider in front.
    let start = 4 + 2 * "Test-Provider\0".len();
    let metadata = Metadata::described(1, "Test-Provider", &definition[start..]).unwrap();
    assert_eq!((metadata.name.as_str(), metadata.event_id, metadata.keywords), ("First", 5, 0x10));
    let mut writer = Writer::new(Vec::new(), &Trace::new(BEGAN, 0, 1000)).unwrap();
    writer.define_event(&metadata).unwrap();
    writer.define_thread(&Thread::new(1)).unwrap();
    writer.write(&NewEvent::new(1, 1, 0)).unwrap();
    let bytes = writer.finish().unwrap();
    let mut reader = Reader::new(&bytes[..]);
    let read = reader.next_event().unwrap().unwrap().metadata().clone();
    assert_eq!(read.fields().map(|fields| fields.to_string()), metadata.fields().map(|fields| fields.to_string()));
    assert_eq!(read.fields().unwrap().to_string(), "Number: i32, Inner: {Text: utf16z, Id: guid}");
    let mut description = Vec::new();
    read.fields().unwrap().write_v6(&mut description).unwrap();
    let (again, rest) = FieldList::read_v6(&description).unwrap();
    assert_eq!((again.to_string(), rest.len()), (read.fields().unwrap().to_string(), 0));
}
