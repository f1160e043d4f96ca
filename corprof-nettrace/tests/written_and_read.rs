//! What the writer writes is what the reader reads: arbitrary traces, whole and cut at any byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use std::io::{self, Write};

use corprof_nettrace::events::{FieldList, Layout};
use corprof_nettrace::{
    Error, FormatErrorKind, Item, Label, Limits, Metadata, NewEvent, Reader, Thread, Trace, UtcTime, Uuid, WriteError,
    Writer,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use support::demands;

const BEGAN: UtcTime = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };

fn trace() -> Trace {
    Trace::new(BEGAN, 500, 10_000_000)
}

/// All of an event.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    definition: Metadata,
    about: Thread,
    capture_thread: u64,
    processor: u32,
    ticks: u64,
    is_sorted: bool,
    number: u32,
    stack: Vec<u64>,
    labels: Vec<Label>,
    payload: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
enum Written {
    Event(Box<Row>),
    Point(u64),
}

/// All that can be read, and what the trace ends with.
fn read(bytes: &[u8]) -> (Vec<Written>, Option<FormatErrorKind>) {
    let mut reader = Reader::new(bytes);
    let mut items = Vec::new();
    loop {
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => items.push(Written::Event(Box::new(Row {
                definition: event.metadata().clone(),
                about: event.thread_info().cloned().expect("a thread"),
                capture_thread: event.capture_thread(),
                processor: event.processor(),
                ticks: event.ticks(),
                is_sorted: event.is_sorted(),
                number: event.sequence_number(),
                stack: event.stack().addresses().collect(),
                labels: event.labels().collect(),
                payload: event.payload().to_vec(),
            }))),
            Ok(Some(Item::SequencePoint(point))) => items.push(Written::Point(point.ticks)),
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => return (items, None),
            Err(Error::Format(error)) => return (items, Some(error.kind)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A step of a recording.
#[derive(Debug, Clone)]
enum Step {
    Thread(Option<String>, Option<u64>, Option<u64>, Vec<(String, String)>),
    Definition(Box<Metadata>),
    Event { places: [usize; 3], row: Box<Row>, lost: u32, advance: u64 },
    Remove(usize),
    Lose(usize, u32),
    Point(u64),
    Flush,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-zäß列🦀]{1,6}"]
}

fn properties() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((text(), text()), 0..3)
}

fn label() -> impl Strategy<Value = Label> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(|id| Label::Activity(Uuid::from_bytes(id))),
        any::<[u8; 16]>().prop_map(|id| Label::RelatedActivity(Uuid::from_bytes(id))),
        any::<[u8; 16]>().prop_map(Label::TraceId),
        any::<u64>().prop_map(Label::SpanId),
        (text(), text()).prop_map(|(name, text)| Label::Text(name, text)),
        (text(), any::<i64>()).prop_map(|(name, number)| Label::Number(name, number)),
        any::<u8>().prop_map(Label::Opcode),
        any::<u64>().prop_map(Label::Keywords),
        any::<u8>().prop_map(Label::Level),
        any::<u8>().prop_map(Label::Version),
    ]
}

/// None; a number; an array in an object, in version 6.
const FIELDS: [&[u8]; 3] =
    [&[0, 0], &[1, 0, 4, 0, 2, b'i', b'd', 21], &[1, 0, 13, 0, 3, b'o', b'b', b'j', 1, 1, 0, 4, 0, 1, b'a', 19, 9]];

fn definition() -> impl Strategy<Value = Metadata> {
    let texts = (text(), text(), option::of(text()), option::of(text()), properties());
    let numbers = (any::<u16>(), any::<u64>(), any::<u8>(), any::<u8>(), option::of(any::<u8>()));
    let rest = (option::of(any::<[u8; 16]>()), 0..FIELDS.len());
    (texts, numbers, rest).prop_map(|(texts, numbers, (guid, fields))| {
        let fields = FieldList::kept(Layout::V6, FIELDS[fields]);
        let mut definition = Metadata::new(0, texts.0, numbers.0.into(), texts.1).with_fields(fields);
        (definition.message, definition.description, definition.properties) = (texts.2, texts.3, texts.4);
        (definition.keywords, definition.version, definition.level) = (numbers.1, numbers.2.into(), numbers.3.into());
        definition.opcode = numbers.4;
        definition.provider_guid = guid.map(Uuid::from_bytes);
        definition
    })
}

fn event() -> impl Strategy<Value = Step> {
    // Few different ones, so that they are shared, and some large ones.
    let stack = prop_oneof![4 => vec(1..4_u64, 0..4), 1 => vec(any::<u64>(), 0..300)];
    let labels = prop_oneof![2 => Just(Vec::new()), 1 => vec(label(), 0..4)];
    let payload = prop_oneof![30 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 30_000..=65_535)];
    let advance = prop_oneof![4 => 0..50_u64, 1 => 0..1_u64 << 40];
    let number = (any::<u32>(), any::<bool>(), prop_oneof![5 => Just(0), 1 => 0..5_u32], advance);
    (any::<[usize; 3]>(), stack, labels, payload, number).prop_map(
        |(places, stack, labels, payload, (processor, is_sorted, lost, advance))| {
            let row = Box::new(Row {
                definition: Metadata::default(),
                about: Thread::default(),
                capture_thread: 0,
                processor,
                ticks: 0,
                is_sorted,
                number: 0,
                stack,
                labels,
                payload,
            });
            Step::Event { places, row, lost, advance }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let thread = (option::of(text()), option::of(any::<u64>()), option::of(any::<u64>()), properties());
    prop_oneof![
        3 => thread.prop_map(|(name, process, thread, properties)| Step::Thread(name, process, thread, properties)),
        3 => definition().prop_map(Box::new).prop_map(Step::Definition),
        20 => event(),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), 0..4_u32).prop_map(|(place, lost)| Step::Lose(place, lost)),
        1 => (0..100_u64).prop_map(Step::Point),
        2 => Just(Step::Flush),
    ]
}

/// A recording, and what is expected of it.
struct Recording {
    writer: Writer<Vec<u8>>,
    expected: Vec<Written>,
    /// Lengths of the trace with the number of items that must be in it.
    flushed: Vec<(usize, usize)>,
    definitions: Vec<Metadata>,
    /// With the number and the time of the last event.
    threads: Vec<(Thread, u32, u64)>,
    next_thread: u64,
    oldest_allowed: u64,
    youngest: u64,
    lost: u64,
}

impl Recording {
    fn new() -> Self {
        let writer = Writer::new(Vec::new(), &trace()).unwrap();
        let (expected, flushed, definitions, threads) = Default::default();
        let (next_thread, oldest_allowed, youngest, lost) = (0, 0, 0, 0);
        Self { writer, expected, flushed, definitions, threads, next_thread, oldest_allowed, youngest, lost }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Thread(name, process_id, os_thread_id, properties) => {
                // Also indexes of several bytes.
                let mut thread = Thread::new(self.next_thread * 100);
                self.next_thread += 1;
                (thread.name, thread.process_id) = (name, process_id);
                (thread.os_thread_id, thread.properties) = (os_thread_id, properties);
                self.writer.define_thread(&thread).unwrap();
                self.threads.push((thread, 0, 0));
            }
            Step::Definition(mut definition) => {
                definition.id = self.definitions.len() as u32 * 50 + 1;
                self.writer.define_event(&definition).unwrap();
                self.writer.define_event(&definition).expect("once more the same");
                self.definitions.push(*definition);
            }
            Step::Event { places, row, lost, advance } => self.event(places, row, lost, advance),
            Step::Remove(place) if !self.threads.is_empty() => {
                let (thread, ..) = self.threads.remove(place % self.threads.len());
                self.writer.remove_thread(thread.index).unwrap();
                self.flushed();
            }
            Step::Lose(place, lost) if !self.threads.is_empty() => {
                let place = place % self.threads.len();
                let (thread, number, _) = &mut self.threads[place];
                *number += lost;
                self.lost += u64::from(lost);
                self.writer.lose(thread.index, lost).unwrap();
            }
            Step::Point(advance) => {
                let ticks = self.youngest.max(self.oldest_allowed) + advance;
                self.writer.sequence_point(ticks).unwrap();
                self.oldest_allowed = ticks;
                self.expected.push(Written::Point(ticks));
                self.flushed();
            }
            Step::Flush => {
                self.writer.flush().unwrap();
                self.flushed();
            }
            Step::Remove(_) | Step::Lose(..) => {}
        }
    }

    fn event(&mut self, places: [usize; 3], mut row: Box<Row>, lost: u32, advance: u64) {
        if self.definitions.is_empty() || self.threads.is_empty() {
            return;
        }
        row.definition = self.definitions[places[0] % self.definitions.len()].clone();
        row.about = self.threads[places[1] % self.threads.len()].0.clone();
        let capture = places[2] % self.threads.len();
        let (thread, number, ticks) = &mut self.threads[capture];
        row.capture_thread = thread.index;
        row.ticks = (*ticks).max(self.oldest_allowed) + advance;
        row.number = *number + lost + 1;
        (*number, *ticks) = (row.number, row.ticks);
        let mut event = NewEvent::new(row.definition.id, row.about.index, row.ticks);
        (event.capture_thread, event.processor, event.lost_before) = (row.capture_thread, row.processor, lost);
        (event.is_sorted, event.stack, event.labels) = (row.is_sorted, &row.stack, &row.labels);
        event.payload = &row.payload;
        self.writer.write(&event).unwrap();
        if row.is_sorted {
            self.oldest_allowed = row.ticks;
        }
        self.youngest = self.youngest.max(row.ticks);
        self.lost += u64::from(lost);
        self.expected.push(Written::Event(row));
    }

    fn flushed(&mut self) {
        self.flushed.push((self.writer.get_ref().len(), self.expected.len()));
    }

    fn finish(mut self) -> (Vec<u8>, Vec<Written>, Vec<(usize, usize)>) {
        self.expected.push(Written::Point(self.youngest.max(self.oldest_allowed)));
        let stats = self.writer.stats();
        let bytes = self.writer.finish().unwrap();
        let mut reader = Reader::new(&bytes[..]);
        while reader.next_item().unwrap().is_some() {}
        assert_eq!((reader.stats().events, reader.stats().lost), (stats.events, self.lost));
        assert_eq!((stats.lost, reader.stats().bytes), (self.lost, bytes.len() as u64));
        let found = demands::check(&bytes);
        assert_eq!((found.events, found.lost), (stats.events, self.lost));
        self.flushed.push((bytes.len(), self.expected.len()));
        (bytes, self.expected, self.flushed)
    }
}

/// What can be read of a trace that is cut to `length`.
fn check_cut(bytes: &[u8], length: usize, expected: &[Written], flushed: &[(usize, usize)]) {
    let cut = &bytes[..length];
    let (items, error) = read(cut);
    assert_eq!(error, (length < bytes.len()).then_some(FormatErrorKind::Truncated), "at {length}");
    assert_eq!(items, expected[..items.len()], "at {length}");
    let least = flushed.iter().rfind(|(end, _)| *end <= length).map_or(0, |(_, items)| *items);
    assert!(items.len() >= least, "{} items of {least} at {length}", items.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_comes_back(steps in vec(step(), 0..100), cuts in vec(any::<usize>(), 5)) {
        let mut recording = Recording::new();
        steps.into_iter().for_each(|step| recording.take(step));
        let (bytes, expected, flushed) = recording.finish();
        let (items, error) = read(&bytes);
        prop_assert_eq!(error, None);
        prop_assert_eq!(items, &expected[..]);
        for cut in cuts {
            check_cut(&bytes, cut % bytes.len(), &expected, &flushed);
        }
        for (end, _) in &flushed {
            check_cut(&bytes, *end, &expected, &flushed);
        }
    }

    /// Calls in any order with small numbers, most of which are refused.
    #[test]
    fn what_is_refused_leaves_nothing(calls in vec((0..8_u8, 0..4_u32, 0..4_u64, 0..4_u64, 0..6_u64), 0..60)) {
        let mut writer = Writer::new(Vec::new(), &trace()).unwrap();
        let mut expected = Vec::new();
        for (call, id, thread, capture, ticks) in calls {
            let result = match call {
                0 => writer.define_event(&Metadata::new(id, "Shop", ticks as u32, "")),
                1 => writer.define_thread(&Thread::new(thread)),
                2 if ticks == 0 => writer.remove_thread(thread),
                2 => writer.sequence_point(ticks),
                3 => writer.lose(thread, id),
                _ => {
                    let mut event = NewEvent::new(id, thread, ticks);
                    (event.capture_thread, event.is_sorted) = (capture, call == 4);
                    let result = writer.write(&event);
                    expected.extend(result.is_ok().then_some((id, thread, capture, ticks)));
                    result
                }
            };
            let is_expected = result.as_ref().map_or_else(|error| !matches!(error, WriteError::Io(_)), |()| true);
            prop_assert!(is_expected, "{:?}", result);
        }
        let bytes = writer.finish().unwrap();
        prop_assert_eq!(demands::check(&bytes).events, expected.len() as u64);
        let mut reader = Reader::new(&bytes[..]);
        let mut found = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            found.push((event.metadata().id, event.thread(), event.capture_thread(), event.ticks()));
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_header_comes_back(
        at in any::<[u32; 3]>(), pointers_are_wide in any::<bool>(), properties in properties(),
        numbers in (option::of(any::<u64>()), option::of(any::<u64>())),
    ) {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(u64::from(at[0]) * 50);
        let mut trace = Trace::new(UtcTime::from_system_time(time).unwrap(), at[1].into(), u64::from(at[2]) + 1);
        trace.pointer_size = if pointers_are_wide { 8 } else { 4 };
        (trace.process_id, trace.processors) = numbers;
        trace.properties = properties;
        let bytes = Writer::new(Vec::new(), &trace).unwrap().finish().unwrap();
        let mut read = Reader::new(&bytes[..]).trace().unwrap().clone();
        // The two numbers are among them.
        read.properties.drain(..read.properties.len() - trace.properties.len());
        prop_assert_eq!(read, trace);
    }
}

#[test]
fn a_trace_is_cut_at_each_byte() {
    let mut recording = Recording::new();
    let row = |payload: &[u8]| {
        Box::new(Row {
            definition: Metadata::default(),
            about: Thread::default(),
            capture_thread: 0,
            processor: 3,
            ticks: 0,
            is_sorted: false,
            number: 0,
            stack: vec![0x10, 0x20],
            labels: vec![Label::Text("user".into(), "ann".into())],
            payload: payload.to_vec(),
        })
    };
    for round in 0..6 {
        recording.take(Step::Thread(Some("main".into()), Some(4711), Some(round), Vec::new()));
        recording.take(Step::Definition(Metadata::new(0, "Shop", 1, "Order").into()));
        for event in 0..4 {
            let places = [0, event, event];
            recording.take(Step::Event { places, row: row(b"abc"), lost: 0, advance: 7 });
        }
        recording.take(if round % 2 == 0 { Step::Flush } else { Step::Point(3) });
    }
    let (bytes, expected, flushed) = recording.finish();
    assert_eq!(expected.len(), 24 + 3 + 1);
    for length in 0..=bytes.len() {
        check_cut(&bytes, length, &expected, &flushed);
    }
}

fn is_sorted_trace_with_many_stacks(is_sorted: bool) -> (Vec<u8>, u64) {
    let mut writer = Writer::new(Vec::new(), &trace()).unwrap();
    writer.define_event(&Metadata::new(1, "Shop", 1, "Order")).unwrap();
    writer.define_thread(&Thread::new(1)).unwrap();
    let mut stack = [0; 1000];
    for number in 0..2000 {
        stack[0] = number;
        let mut event = NewEvent::new(1, 1, number);
        (event.stack, event.is_sorted) = (&stack, is_sorted);
        writer.write(&event).unwrap();
    }
    let points = writer.stats().sequence_points;
    (writer.finish().unwrap(), points)
}

#[test]
fn memory_is_bounded_on_both_sides() {
    let (bytes, points) = is_sorted_trace_with_many_stacks(true);
    assert!(points >= 3, "{points} sequence points in {} bytes", bytes.len());
    demands::check(&bytes);
    let mut limits = Limits::default();
    limits.stack_bytes = 5 << 20;
    let mut reader = Reader::with_limits(&bytes[..], limits);
    for number in 0..2000 {
        let event = reader.next_event().unwrap().unwrap();
        assert_eq!(event.stack().addresses().next(), Some(number));
    }
    // A sequence point would be a promise that nobody has made.
    let (bytes, points) = is_sorted_trace_with_many_stacks(false);
    assert_eq!((points, demands::check(&bytes).events), (0, 2000));
}

/// Takes so many bytes, as a full disk does.
struct Full(Vec<u8>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = bytes.len().min(self.1 - self.0.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend(&bytes[..room]);
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failure_of_the_sink_nothing_more_is_written() {
    let mut writer = Writer::new(Full(Vec::new(), 500), &trace()).unwrap();
    writer.define_event(&Metadata::new(1, "Shop", 1, "Order")).unwrap();
    writer.define_thread(&Thread::new(1)).unwrap();
    let mut written = 0;
    let error = loop {
        writer.write(&NewEvent::new(1, 1, written)).unwrap();
        match writer.flush() {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull), "{error}");
    assert!(matches!(writer.write(&NewEvent::new(1, 1, written)), Err(WriteError::Broken)));
    assert!(matches!(writer.flush(), Err(WriteError::Broken)));
    let (items, error) = read(&writer.get_ref().0);
    assert_eq!((items.len() as u64, error), (written, Some(FormatErrorKind::Truncated)));
    assert!(written > 5, "{written} events");
    assert!(matches!(writer.finish(), Err(WriteError::Broken)));
}
