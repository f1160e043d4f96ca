//! Traces that dotnet-trace wrote, against what TraceEvent reads of them (tests/traces/README.md).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use corprof_diagnostics::nettrace::{Item, Reader};
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

/// What TraceEvent found, by name.
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
    let (version, pointer) = (reader.trace()?.version, reader.trace()?.pointer_size);
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
        let (bytes, expected) = (unpacked(name)?, expected(name)?);
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
