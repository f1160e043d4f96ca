//! Traces of dotnet-trace, compared with TraceEvent's reading of them (tests/traces/README.md).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use corprof_nettrace::events::views::{GcAllocationTick, GcEnd, GcHeapStats, GcStart, MethodDCEndVerbose};
use corprof_nettrace::events::{GcReason, Provider, Value};
use corprof_nettrace::{Item, Reader};
use lzma_rust2::XzReader;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

fn unpacked(name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    XzReader::new(File::open(file(&format!("{name}.nettrace.xz")))?, false).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// TraceEvent names providers by their GUIDs, and a trace of version 4 by their names.
fn guid(provider: &str) -> &str {
    match provider {
        "Microsoft-Windows-DotNETRuntime" => "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4",
        "Microsoft-Windows-DotNETRuntimeRundown" => "a669021c-c450-4609-a035-5af59af4df18",
        "Microsoft-DotNETCore-SampleProfiler" => "3c530d44-97ae-513a-1e6d-783e8f8e03a9",
        "Microsoft-DotNETCore-EventPipe" => "92f528a6-f5b8-5160-a7ee-b33da7739e29",
        other => other,
    }
}

/// TraceEvent's counts, by name.
fn expected(name: &str) -> Result<HashMap<String, String>> {
    let text = fs::read_to_string(file(&format!("{name}.nettrace.expected.tsv")))?;
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// The same by this reader, from a source that hands out `at_once` bytes at a time.
fn found(bytes: &[u8], at_once: usize) -> Result<HashMap<String, String>> {
    struct Pieces<'a>(&'a [u8], usize);
    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(self.1);
            self.0.read(&mut buffer[..most])
        }
    }
    let mut reader = Reader::new(Pieces(bytes, at_once));
    let version = reader.trace()?.version;
    let pointer = reader.trace()?.pointer_size;
    assert_eq!(version, 4);
    let mut events = Vec::new();
    let mut kinds = BTreeMap::<String, u64>::new();
    let mut threads = BTreeSet::new();
    let mut frames = 0;
    let mut last_point = 0;
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Event(event) => {
                let metadata = event.metadata();
                let provider = guid(&metadata.provider);
                let kind = format!("{provider}/Provider({provider})/{}/{}", metadata.event_id, metadata.version);
                *kinds.entry(kind).or_default() += 1;
                threads.insert(event.thread());
                frames += event.stack().addresses().len();
                assert!(event.ticks() >= last_point, "an event is older than the sequence point before it");
                events.push((event.since_start(), event.payload().to_vec()));
            }
            Item::SequencePoint(point) => last_point = point.ticks,
            other => return Err(format!("{other:?}").into()),
        }
    }
    assert!(frames > 1000, "{frames} frames");
    let stats = reader.stats();
    assert_eq!(stats.bytes, bytes.len() as u64);
    assert_eq!(stats.events, events.len() as u64);
    assert_eq!(stats.skipped_blocks, 0);
    assert!(stats.sequence_points > 0);
    events.sort_by_key(|(time, _)| *time);
    let payloads = || events.iter().flat_map(|(_, payload)| payload);
    let fnv = payloads()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let last = events.last().map_or(0.0, |(time, _)| time.as_secs_f64() * 1e3);
    let mut facts: HashMap<String, String> = kinds.into_iter().map(|(kind, count)| (kind, count.to_string())).collect();
    facts.extend([
        ("events".to_owned(), events.len().to_string()),
        ("lost".to_owned(), stats.lost.to_string()),
        ("payload_bytes".to_owned(), payloads().count().to_string()),
        ("threads".to_owned(), threads.len().to_string()),
        ("last_ms".to_owned(), format!("{last:.3}")),
        ("pointer".to_owned(), pointer.to_string()),
        ("payload_fnv1a_in_order".to_owned(), format!("{fnv:016x}")),
    ]);
    Ok(facts)
}

#[test]
fn trace_event_and_this_reader_agree() -> Result {
    for name in ["gc", "sampled"] {
        let bytes = unpacked(name)?;
        let expected = expected(name)?;
        for at_once in [usize::MAX, 4099] {
            let found = found(&bytes, at_once)?;
            let differences: Vec<_> = expected
                .keys()
                .chain(found.keys())
                .filter(|key| expected.get(*key) != found.get(*key))
                .map(|key| format!("{key}: {:?} expected, {:?} found", expected.get(key), found.get(key)))
                .collect();
            assert!(differences.is_empty(), "{name}: {differences:#?}");
        }
    }
    Ok(())
}

#[test]
fn every_event_of_the_runtime_is_decoded_to_its_last_byte() -> Result {
    let mut ticks = 0;
    let mut methods = 0;
    let mut samples = 0;
    let mut starts = BTreeSet::new();
    let mut ends = BTreeSet::new();
    for name in ["gc", "sampled"] {
        let bytes = unpacked(name)?;
        let mut reader = Reader::new(&bytes[..]);
        let mut seen = BTreeMap::<String, u64>::new();
        while let Some(event) = reader.next_event()? {
            let event = event.decoded();
            let is_runtimes =
                [Provider::RUNTIME, Provider::RUNDOWN, Provider::SAMPLE_PROFILER].contains(&event.provider());
            if !is_runtimes {
                continue;
            }
            *seen.entry(event.name().to_string()).or_default() += 1;
            assert!(event.is_exact(), "{name}: {} {}: {:02x?}", event.name(), event.version(), event.payload());
            if let Ok(start) = event.decode::<GcStart>() {
                assert!(start.generation <= 2 && start.reason.name().is_some(), "{start:?}");
                assert!(starts.insert(start.number), "{start:?} came before");
            }
            if event.name() == "GCFitBucketInfo" {
                // The manifest omits that the entries are padded. Their sum shows that they are read correctly.
                let buckets = event.field("Values").and_then(Value::as_list).ok_or("no buckets")?;
                let sizes = buckets.iter().filter_map(|bucket| bucket.as_record()?.field("Size")?.as_u64());
                assert_eq!(Some(sizes.sum()), event.field("TotalSize").and_then(Value::as_u64));
            }
            if let Ok(end) = event.decode::<GcEnd>() {
                ends.insert(end.number);
            }
            if let Ok(stats) = event.decode::<GcHeapStats>() {
                assert!(stats.pinned_object_size.is_some(), "{stats:?}");
            }
            if let Ok(tick) = event.decode::<GcAllocationTick<'_>>() {
                assert!(tick.allocation_amount >= 8192 && tick.object_size.is_some_and(|size| size >= 24), "{tick:?}");
                assert_eq!(event.field("TypeName").and_then(|name| name.as_text()), Some(tick.type_name));
                ticks += 1;
            }
            if event.name() == "ThreadSample" {
                // Of code that is not managed, or of managed code.
                let kind = event.field("Type").and_then(Value::as_u64);
                assert!(matches!(kind, Some(1 | 2)), "{kind:?}");
                samples += 1;
            }
            if let Ok(method) = event.decode::<MethodDCEndVerbose<'_>>() {
                assert!(method.start_address > 0 && method.method_size > 0 && !method.method_name.is_empty());
                methods += 1;
            }
        }
        // As TraceEvent counts them, by number.
        let expected = expected(name)?;
        let of_number = |number: u32| {
            let counts = expected.iter().filter(|(kind, _)| {
                let mut parts = kind.split('/').skip(2);
                kind.starts_with("e13c0d23") && parts.next() == Some(&number.to_string())
            });
            counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum::<u64>()
        };
        let numbers =
            [("GCStart", 1), ("GCEnd", 2), ("GCAllocationTick", 10), ("GCPerHeapHistory", 204), ("GCTriggered", 35)];
        for (name, number) in numbers {
            assert_eq!(seen.get(name).copied().unwrap_or_default(), of_number(number), "{name}");
        }
    }
    assert_eq!((starts.len(), ticks, samples), (83, 13_618, 15_064));
    assert_eq!(starts, ends);
    assert!(methods > 2000, "{methods}");
    assert_eq!(GcReason::SMALL_OBJECTS.to_string(), "small objects allocated");
    Ok(())
}
