//! The tables of all traces are those that another decoder made (tests/traces/README.md).

#![cfg(feature = "nettrace")]

#[path = "../examples/async_table/table.rs"]
mod table;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use corprof_async::trace::nettrace::Reader;
use corprof_async::trace::{TraceEvent, add_method, classify};
use corprof_async::{Change, Decoder, LogicalStacks, MethodTable};
use lzma_rust2::XzReader;
use serde_json::Value;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Iterators that go on by other numbers, so that the other decoder loses waits of them.
const ITERATORS: [&str; 2] = [
    "Prog+<Nums>d__11.MoveNext",
    "System.Threading.Channels.ChannelReader`1+<ReadAllAsync>d__12[System.Int32].MoveNext",
];

#[test]
fn of_the_repository_they_are_those_of_another_decoder() -> Result {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let traces = compare_all(&package.join("tests/traces"), "")?;
    assert_eq!(traces, 3);
    Ok(())
}

#[test]
fn of_consoles_beside_it_too() -> Result {
    beside("console_")
}

#[test]
fn of_clocks_beside_it_too() -> Result {
    beside("syncclock_")
}

#[test]
fn of_runtime_async_in_services_beside_it_too() -> Result {
    beside("web_ra")
}

#[test]
fn of_state_machines_in_services_beside_it_too() -> Result {
    beside("web_sm")
}

/// Compares traces beside the repository, if they are there.
fn beside(beginning: &str) -> Result {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/nettrace/async");
    if !folder.is_dir() {
        eprintln!("skipped: no {}", folder.display());
        return Ok(());
    }
    let traces = compare_all(&folder, beginning)?;
    assert!(traces > 0, "no trace {beginning}");
    Ok(())
}

/// Compares the traces of a folder whose names begin so. Answers with how many there are.
fn compare_all(folder: &Path, beginning: &str) -> Result<usize> {
    let mut traces = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let trace = name.strip_suffix(".expected.json").filter(|trace| trace.starts_with(beginning));
        if let Some(trace) = trace {
            let expected = serde_json::from_str(&fs::read_to_string(&path)?)?;
            compare(&folder.join(format!("{trace}.nettrace.xz")), &expected)?;
            traces += 1;
        }
    }
    Ok(traces)
}

fn compare(trace: &Path, expected: &Value) -> Result {
    let mut bytes = Vec::new();
    XzReader::new(File::open(trace)?, true).read_to_end(&mut bytes)?;
    let join = &expected["join"];
    let leaf = join["leaf"].as_str().ok_or("no leaf")?;
    let marks = join["by_mark_physical"].as_object().ok_or("no marks")?;
    let marks: Vec<String> = marks.keys().filter(|mark| *mark != "-").cloned().collect();
    let found = table::table(&bytes, leaf, &marks)?;
    let parts = found.as_object().ok_or("no object")?;
    assert_eq!(parts.len(), 7, "{}", trace.display());
    let mut expected = expected.clone();
    let resumed = resumptions(&bytes)?;
    for method in ITERATORS {
        let waits = &parts["waits_ms"][method];
        let others = &mut expected["waits_ms"][method];
        if waits["count"].as_u64() > others["count"].as_u64() {
            // They have waited before each of these.
            assert_eq!(waits["count"].as_u64(), resumed.get(method).copied(), "{}: {method}", trace.display());
            *others = waits.clone();
        }
    }
    let mut differences = Vec::new();
    for (key, found) in parts {
        differ(key, &expected[key], found, &mut differences);
    }
    assert!(differences.is_empty(), "{}: {differences:#?}", trace.display());
    Ok(())
}

/// How often operations were resumed, by their innermost methods.
fn resumptions(bytes: &[u8]) -> Result<HashMap<String, u64>> {
    let mut methods = MethodTable::new();
    let mut decoder = Decoder::new();
    let mut stacks = LogicalStacks::new();
    let mut resumed = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some(event) = reader.next_event()? {
        add_method(&event, &mut methods);
        let Some(TraceEvent::Buffer { payload, written }) = classify(&event) else { continue };
        stacks.take_buffer(&decoder.decode(payload)?, written, |step| {
            if let Change::Resumed { chain: Some(chain) } = step.change {
                resumed.extend(chain.first().map(|frame| frame.address));
            }
        });
    }
    let mut counts = HashMap::new();
    for name in resumed.into_iter().filter_map(|address| methods.name_at(address)) {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

fn differ(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    let (Some(all), Some(others)) = (expected.as_object(), found.as_object()) else {
        if expected != found {
            differences.push(format!("{path}: {expected} expected, {found} found"));
        }
        return;
    };
    let mut keys: Vec<&String> = all.keys().chain(others.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        differ(&format!("{path}/{key}"), &expected[key], &found[key], differences);
    }
}
