//! Events that the tests build, byte by byte.
#![allow(clippy::unwrap_used, reason = "a test that has no event fails")]

use corprof_events::views::{
    BulkType, ContentionStart, GcBulkNode, GcGlobalHeapHistory, GcStart, ProfilerMessage, WaitHandleWaitStart,
};
use corprof_events::{
    DecodeError, Description, Event, FieldList, GcKind, GcReason, KeywordSet, Keywords, Layout, Level, Provider, Value,
    private_events, rundown_events, runtime_events, sample_profiler_events,
};

/// Bytes in the order of a payload.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
    fn u8(self, value: u8) -> Self {
        self.raw(&[value])
    }
    fn u16(self, value: u16) -> Self {
        self.raw(&value.to_le_bytes())
    }
    fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }
    fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }
    fn text(self, text: &str) -> Self {
        text.encode_utf16().fold(self, Self::u16).u16(0)
    }
}

fn runtime(id: u32, version: u32, payload: &[u8]) -> Event<'_> {
    Event::new(Provider::RUNTIME, id, version, payload, true)
}

fn shown(event: &Event<'_>) -> String {
    event.fields().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_typed_view_reads_old_and_new_versions_and_no_other_event() -> Result<(), DecodeError> {
    let old = Bytes::default().u32(7).u32(1).u32(0).u32(1).u16(9).0;
    let start: GcStart = runtime(1, 1, &old).decode()?;
    assert_eq!((start.number, start.generation), (7, 1));
    assert_eq!((start.reason, start.kind), (GcReason::SMALL_OBJECTS, GcKind::BACKGROUND));
    assert_eq!(start.client_sequence_number, None);

    let newer = [&old[..], &[5, 0, 0, 0, 0, 0, 0, 0], b"and what a later runtime adds"].concat();
    let event = runtime(1, 3, &newer);
    assert_eq!(event.decode::<GcStart>()?.client_sequence_number, Some(5));
    assert_eq!(event.name(), "GCStart");
    assert!(!event.is_exact(), "there are bytes that nobody knows");
    assert_eq!(shown(&event), "Count=7 Depth=1 Reason=0 Type=1 ClrInstanceID=9 ClientSequenceNumber=5");

    let other = runtime(1, 2, &newer).decode::<ProfilerMessage<'_>>();
    assert!(matches!(other, Err(DecodeError::OtherEvent { expected: "ProfilerMessage", id: 1 })));
    let rundown = Event::new(Provider::RUNDOWN, 1, 2, &newer, true).decode::<GcStart>();
    assert!(matches!(rundown, Err(DecodeError::OtherEvent { .. })), "another provider's event 1");
    assert!(matches!(runtime(1, 0, &old).decode::<GcStart>(), Err(DecodeError::TooOld { version: 0, oldest: 1, .. })));
    assert!(matches!(runtime(1, 1, &old[..15]).decode::<GcStart>(), Err(DecodeError::TooShort { .. })));
    Ok(())
}

#[test]
fn pointers_are_as_wide_as_in_the_process() -> Result<(), DecodeError> {
    let narrow = Bytes::default().u8(0).u16(1).u32(0x1000).u32(0x2000).u64(99).0;
    let event = Event::new(Provider::RUNTIME, 81, 2, &narrow, false);
    let start: ContentionStart = event.decode()?;
    assert_eq!((start.lock_id, start.lock_owner_thread_id), (Some(0x1000), Some(99)));
    assert!(event.is_exact());
    assert!(matches!(event.field("LockID"), Some(Value::Pointer(0x1000))));
    assert!(!runtime(81, 2, &narrow).is_exact());
    let wait = Bytes::default().u8(1).u64(0x70).u16(0).0;
    assert_eq!(runtime(301, 0, &wait).decode::<WaitHandleWaitStart>()?.associated_object_id, 0x70);
    Ok(())
}

#[test]
fn lists_of_structures_are_read_by_type_and_by_name() -> Result<(), DecodeError> {
    let ty = |bytes: Bytes, id, name: &str, parameters: &[u64]| {
        let bytes = bytes.u64(id).u64(0x10).u32(2).u32(8).u8(0x1d).text(name).u32(parameters.len() as u32);
        parameters.iter().copied().fold(bytes, Bytes::u64)
    };
    let bytes = Bytes::default().u32(2).u16(8);
    let payload = ty(ty(bytes, 1, "System.String", &[]), 2, "List`1", &[1, 7]).0;
    let event = runtime(15, 0, &payload);
    assert!(event.is_exact());
    let types: BulkType<'_> = event.decode()?;
    let found: Vec<(u64, String, Vec<u64>)> =
        types.values.map(|ty| (ty.type_id, ty.name.to_string(), ty.type_parameters.collect())).collect();
    assert_eq!(found, [(1, "System.String".into(), vec![]), (2, "List`1".into(), vec![1, 7])]);
    let list = event.field("Values").and_then(Value::as_list).map(|list| list.iter().collect::<Vec<_>>());
    let second = list.as_deref().and_then(|list| list.get(1)?.as_record()?.field("Name")?.as_text());
    assert!(second.is_some_and(|name| name == "List`1"));

    let nodes =
        Bytes::default().u32(3).u32(2).u16(8).u64(0x1000).u64(24).u64(5).u64(1).u64(0x1018).u64(32).u64(6).u64(0);
    let nodes = nodes.0;
    let block: GcBulkNode<'_> = runtime(18, 0, &nodes).decode()?;
    assert_eq!(block.index, 3);
    let objects: Vec<(u64, u64, u64, u64)> =
        block.values.map(|node| (node.address, node.size, node.type_id, node.edge_count)).collect();
    assert_eq!(objects, [(0x1000, 24, 5, 1), (0x1018, 32, 6, 0)]);
    let cut: GcBulkNode<'_> = runtime(18, 0, &nodes[..60]).decode()?;
    assert_eq!(cut.values.count(), 1, "what is there of a block that is cut");

    let history = Bytes::default().u64(1).u32(1).u32(2).u32(0).u32(1).u32(3).u16(8).u32(1).u32(10).u32(0).u32(0);
    let event = history.0;
    assert!(runtime(205, 3, &event).decode::<GcGlobalHeapHistory<'_>>()?.values.is_none());
    let event = Bytes(event).u32(2).u32(70).u32(80).0;
    let times = runtime(205, 4, &event).decode::<GcGlobalHeapHistory<'_>>()?.values;
    assert_eq!(times.map(|times| times.map(|time| time.time).collect::<Vec<_>>()), Some(vec![70, 80]));
    Ok(())
}

#[test]
fn bytes_have_the_length_that_a_field_says() {
    let payload = Bytes::default().text("x").u32(3).raw(&[1, 2, 3]).u16(8).0;
    let event = runtime(39, 0, &payload);
    assert!(event.is_exact());
    assert_eq!(shown(&event), "Name=\"x\" DataSize=3 Data=010203 ClrInstanceID=8");
}

#[test]
fn an_event_of_an_event_source_describes_itself_in_the_first_layout() {
    let description = Bytes::default().u32(4).text("Order").u64(0x10).u32(2).u32(5);
    let description = description.u32(3).u32(9).text("id").u32(18).text("name");
    // An object: its fields come before its name.
    let description = description.u32(1).u32(2).u32(12).text("a").u32(3).text("b").text("inner").0;
    let payload = Bytes::default().u32(42).text("tea").u64(7).u32(1).0;
    let description = Description::read(&description).unwrap();
    assert_eq!((description.version(), description.level(), description.keywords().bits()), (2, 5, 0x10));
    let event = Event::described(Provider::of("Shop"), &description, &payload, true);
    assert_eq!((event.id(), event.version()), (4, 2));
    assert_eq!(event.name(), "Order");
    assert_eq!(shown(&event), "id=42 name=\"tea\" inner={a=7 b=true}");
    assert!(event.is_exact());
}

#[test]
fn an_event_of_an_event_source_describes_itself_in_the_second_layout() {
    // name, then type; the size counts itself.
    let field = |bytes: Bytes, name: &str, ty: &[u32]| {
        let size = 4 + 2 * (name.len() + 1) + 4 * ty.len();
        ty.iter().copied().fold(bytes.u32(size as u32).text(name), Bytes::u32)
    };
    let fields = field(field(Bytes::default().u32(2), "numbers", &[19, 9]), "text", &[19, 4]).0;
    let description = Bytes::default().u32(1).text("Many").u64(0).u32(0).u32(4).u32(0);
    let opcode = |bytes: Bytes| bytes.u32(1).u8(1).u8(10);
    let description = opcode(description).u32(fields.len() as u32).u8(2).raw(&fields).0;
    let payload = Bytes::default().u16(3).u32(1).u32(2).u32(u32::MAX).u16(2).u16(0x68).u16(0x69).0;
    let description = Description::read(&description).unwrap();
    let event = Event::described(Provider::of("Shop"), &description, &payload, true);
    assert_eq!(shown(&event), "numbers=[1, 2, -1] text=\"hi\"");
    assert!(event.is_exact());
    let (list, _) = FieldList::read_v4(&[0; 4]);
    assert!(list.is_some_and(FieldList::is_empty));
}

/// Codes of types in descriptions.
const OBJECT: u32 = 1;
const BOOL: u32 = 3;
const CHAR: u32 = 4;
const I8: u32 = 5;
const U8: u32 = 6;
const I32: u32 = 9;
const I64: u32 = 11;
const DECIMAL: u32 = 15;
const TEXT: u32 = 18;
const ARRAY: u32 = 19;

/// An event of an EventSource with such fields, in the first layout.
fn with_fields<T>(fields: &[(u32, &str)], payload: &[u8], look: impl FnOnce(&Event<'_>) -> T) -> T {
    let description = Bytes::default().u32(1).text("Order").u64(0).u32(0).u32(4).u32(fields.len() as u32);
    let description = fields.iter().fold(description, |bytes, (ty, name)| bytes.u32(*ty).text(name)).0;
    let description = Description::read(&description).unwrap();
    look(&Event::described(Provider::of("Shop"), &description, payload, true))
}

/// The fields, and whether they are the whole payload.
fn shown_and_exact(event: &Event<'_>) -> (String, bool) {
    (shown(event), event.is_exact())
}

#[test]
fn a_bool_has_one_byte_in_a_self_describing_event_and_four_in_another() {
    let fields = [(I32, "n"), (BOOL, "a"), (TEXT, "s"), (BOOL, "c")];
    let narrow = Bytes::default().u32(5).u8(1).text("text").u8(0).0;
    let wide = Bytes::default().u32(5).u32(1).text("text").u32(0).0;
    for payload in [narrow, wide] {
        let found = with_fields(&fields, &payload, shown_and_exact);
        assert_eq!(found, ("n=5 a=true s=\"text\" c=false".into(), true));
    }
    // Four bytes from the beginning would be two bools and the text "t".
    let fields = [(BOOL, "a"), (BOOL, "b"), (TEXT, "s")];
    let narrow = Bytes::default().u8(0).u8(1).text("text").0;
    let wide = Bytes::default().u32(0).u32(1).text("text").0;
    for payload in [narrow, wide] {
        assert_eq!(with_fields(&fields, &payload, shown_and_exact), ("a=false b=true s=\"text\"".into(), true));
    }
}

#[test]
fn objects_and_lists_have_narrow_bools_as_well() {
    let description = Bytes::default().u32(1).text("Nested").u64(0).u32(0).u32(5).u32(1);
    let description = description.u32(OBJECT).u32(2).u32(OBJECT).u32(2).u32(TEXT).text("Name").u32(BOOL).text("Flag");
    let description = description.text("i").u32(I32).text("after").text("").0;
    let description = Description::read(&description).unwrap();
    let payload = Bytes::default().text("in").u8(1).u32(5).0;
    let event = Event::described(Provider::of("Shop"), &description, &payload, true);
    assert_eq!(shown_and_exact(&event), ("={i={Name=\"in\" Flag=true} after=5}".into(), true));

    let field = |bytes: Bytes, name: &str, ty: &[u32]| {
        let size = 4 + 2 * (name.len() + 1) + 4 * ty.len();
        ty.iter().copied().fold(bytes.u32(size as u32).text(name), Bytes::u32)
    };
    let fields = field(field(Bytes::default().u32(2), "flags", &[ARRAY, BOOL]), "after", &[I32]).0;
    let payload = Bytes::default().u16(3).u8(1).u8(0).u8(1).u32(4).0;
    let event = Event::new(Provider::of("Shop"), 1, 0, &payload, true);
    let event = event.with_description("Lists", Some(FieldList::kept(Layout::V2, &fields)));
    assert_eq!(shown_and_exact(&event), ("flags=[true, false, true] after=4".into(), true));
}

#[test]
fn a_decimal_of_an_event_source_is_a_double() {
    // Sixteen bytes would be the number and four characters.
    let payload = Bytes::default().raw(&1.5_f64.to_le_bytes()).text("text").0;
    let found = with_fields(&[(DECIMAL, "d"), (TEXT, "s")], &payload, shown_and_exact);
    assert_eq!(found, ("d=1.5 s=\"text\"".into(), true));
    let sixteen = with_fields(&[(DECIMAL, "d")], &[7; 16], shown_and_exact);
    assert_eq!(sixteen, (format!("d={}", "07".repeat(16)), true));
}

#[test]
fn an_integer_has_the_width_of_the_write_event_that_the_compiler_chose() {
    let payload = Bytes::default().u32(u32::from('x')).u32(55).0;
    let found = with_fields(&[(CHAR, "c"), (I32, "after")], &payload, shown_and_exact);
    assert_eq!(found, ("c=\"x\" after=55".into(), true));
    let payload = Bytes::default().u32(200).u32(-3_i32 as u32).0;
    let found = with_fields(&[(U8, "a"), (I8, "b")], &payload, shown_and_exact);
    assert_eq!(found, ("a=200 b=-3".into(), true));
    let payload = Bytes::default().u64(-5_i64 as u64).u64(6).0;
    let found = with_fields(&[(I32, "a"), (I64, "b")], &payload, shown_and_exact);
    assert_eq!(found, ("a=-5 b=6".into(), true));
    // No byte is this large.
    let payload = Bytes::default().u32(300).u32(1).0;
    assert_eq!(with_fields(&[(U8, "a"), (I8, "b")], &payload, shown_and_exact), (String::new(), false));
}

#[test]
fn where_a_description_does_not_fit_fields_end_before_the_first_that_may_be_wrong() {
    // An enum of bytes is written as an int, the byte after it as a byte.
    let payload = Bytes::default().u32(1).text("n").u32(200).u8(5).text("text").0;
    let fields = [(I32, "id"), (TEXT, "name"), (U8, "e"), (U8, "b"), (TEXT, "s")];
    assert_eq!(with_fields(&fields, &payload, shown_and_exact), ("id=1".into(), false));
    // A text with a NUL in it: where it ends cannot be known.
    let payload = Bytes::default().u32(1).text("a\0b").text("c").0;
    let fields = [(I32, "id"), (TEXT, "name"), (TEXT, "s")];
    assert_eq!(with_fields(&fields, &payload, shown_and_exact), ("id=1".into(), false));
    // What is described as nothing, as arrays of bytes, TimeSpan, DateTimeOffset and Nullable are.
    assert_eq!(with_fields(&[], &[1, 0, 0, 0, 9], shown_and_exact), (String::new(), false));
    assert_eq!(with_fields(&[], &[], shown_and_exact), (String::new(), true));
}

#[test]
fn what_is_not_known_is_bytes() {
    let event = Event::new(Provider::of("Nobody"), 1, 0, &[1, 2, 3], true);
    assert!(event.name().is_empty() && event.fields().next().is_none() && !event.is_known() && !event.is_exact());
    assert_eq!(event.payload(), [1, 2, 3]);
    // Type 99 in the first layout.
    let description = Bytes::default().u32(1).text("New").u64(0).u32(0).u32(4).u32(1).u32(99).text("x").0;
    let description = Description::read(&description).unwrap();
    assert_eq!(description.name(), "New");
    assert!(description.fields().is_none());
    assert!(runtime(9999, 0, &[]).name().is_empty());
}

#[test]
fn the_tables_have_every_event_of_the_manifest_in_order() {
    let rows = include_str!("../manifest/events.tsv").lines().count();
    let lists = [runtime_events(), rundown_events(), private_events(), sample_profiler_events()];
    assert_eq!(lists.iter().map(|events| events.len()).sum::<usize>(), rows);
    for events in lists {
        assert!(events.is_sorted_by_key(|event| (event.id(), event.version())));
        assert!(events.iter().all(|event| !event.name().is_empty()));
    }
    let tick = runtime_events().iter().rfind(|event| event.id() == 10).unwrap();
    assert_eq!((tick.name(), tick.version(), tick.level()), ("GCAllocationTick", 4, 5));
    assert_eq!(tick.keywords(), Keywords::GC);
    assert_eq!(tick.fields().last(), Some("ObjectSize"));
}

#[test]
fn the_private_provider_and_the_sampler_of_the_runtime_have_names_and_fields() {
    let payload = Bytes::default().u64(0x7f00).u64(0x10).u32(2).u32(1).u64(0).u16(9).0;
    let event = Event::new(Provider::of("Microsoft-Windows-DotNETRuntimePrivate"), 194, 0, &payload, true);
    assert_eq!((event.provider(), event.name().to_string()), (Provider::PRIVATE, "PrvSetGCHandle".into()));
    let fields = "HandleID=0x7f00 ObjectID=0x10 Kind=2 Generation=1 AppDomainID=0 ClrInstanceID=9";
    assert_eq!(shown_and_exact(&event), (fields.into(), true));
    // Another event than the runtime's of this number.
    let event = Event::new(Provider::PRIVATE, 1, 1, &[1, 0, 0, 0, 9, 0], true);
    assert_eq!(
        (event.name().to_string(), shown(&event)),
        ("GCDecision".into(), "DoCompact=true ClrInstanceID=9".into())
    );
    assert!(event.decode::<GcStart>().is_err());

    let event = Event::new(Provider::of("Microsoft-DotNETCore-SampleProfiler"), 0, 0, &[2, 0, 0, 0], true);
    assert_eq!((event.provider(), event.name().to_string()), (Provider::SAMPLE_PROFILER, "ThreadSample".into()));
    assert_eq!(shown_and_exact(&event), ("Type=2".into(), true));
}

#[test]
fn keywords_have_names_and_sets_know_what_they_force() {
    assert_eq!(Keywords::of("gcheapdump"), Some(Keywords::GC_HEAP_DUMP));
    assert_eq!(Keywords::of("GCKeyword"), Some(Keywords::GC));
    assert_eq!(Keywords::of("nothing"), None);
    let both = Keywords::JIT | Keywords::LOADER;
    assert_eq!(both.names().collect::<Vec<_>>(), ["LoaderKeyword", "JitKeyword"]);
    let forcing: Vec<&str> =
        KeywordSet::ALL.iter().filter(|(_, set)| set.forces_collections()).map(|&(name, _)| name).collect();
    assert_eq!(forcing, ["heap-dump"]);
    assert_eq!((KeywordSet::GC | KeywordSet::ALLOCATION_TICKS).level(), Level::Verbose);
}
