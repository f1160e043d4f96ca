//! Microsoft's reader of traces, in dotnet-trace, finds in traces of the writer what was written.
//!
//! `cargo xtask test` names a `dotnet` and dotnet-trace in CORPROF_DOTNET_TRACE, if it has them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use corprof_nettrace::events::Provider;
use corprof_nettrace::events::universal::{ExistingProcess, Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::{Label, Metadata, NewEvent, Thread, Trace, UtcTime, Uuid, Writer};
use lzma_rust2::XzReader;
use support::{Bytes, demands};

const BEGAN: UtcTime = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };

/// Runs dotnet-trace in `dir`. None without it.
fn dotnet_trace(dir: &Path, arguments: &[&str]) -> Option<String> {
    let Some(programs) = env::var_os("CORPROF_DOTNET_TRACE") else {
        eprintln!("skipped: there is no dotnet-trace in CORPROF_DOTNET_TRACE");
        return None;
    };
    let programs: Vec<_> = env::split_paths(&programs).collect();
    let [host, tool] = &programs[..] else { panic!("not a host and a tool: {programs:?}") };
    let mut command = Command::new(host);
    command.arg("exec").arg(tool).args(arguments).current_dir(dir).env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("ERROR"), "{arguments:?}: {stdout}{stderr}");
    Some(stdout)
}

/// The report about a trace: inclusive and exclusive percent by method.
fn report(dir: &Path, file: &str) -> Option<HashMap<String, (f64, f64)>> {
    let text = dotnet_trace(dir, &["report", file, "topN", "-n", "100"])?;
    let percent = |word: &str| word.strip_suffix('%').unwrap().parse().unwrap();
    let rows = text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, name @ .., inclusive, exclusive] = &words[..] else { panic!("{line}") };
        (name.join(" "), (percent(inclusive), percent(exclusive)))
    });
    Some(rows.collect())
}

/// Milliseconds of each managed method as the innermost, by thread and method.
fn speedscope(dir: &Path, file: &str) -> Option<HashMap<(String, String), f64>> {
    dotnet_trace(dir, &["convert", "--format", "Speedscope", file, "-o", "out"])?;
    let json = fs::read(dir.join("out.speedscope.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let name = |index: usize| json["shared"]["frames"][index]["name"].as_str().unwrap().to_owned();
    let mut times = HashMap::new();
    for profile in json["profiles"].as_array().unwrap() {
        assert_eq!(profile["unit"], "milliseconds");
        let thread = profile["name"].as_str().unwrap();
        let mut open = Vec::new();
        let mut since = 0.0;
        for event in profile["events"].as_array().unwrap() {
            let at = event["at"].as_f64().unwrap();
            let innermost = open.iter().rev().find_map(|frame| Some(name(*frame).rsplit_once("!")?.1.to_owned()));
            if let (Some(innermost), true) = (innermost, at > since) {
                let method = innermost.rsplit_once('.').map_or(innermost.as_str(), |(_, method)| method);
                *times.entry((thread.to_owned(), method.to_owned())).or_default() += at - since;
            }
            since = at;
            match event["type"].as_str() {
                Some("O") => open.push(event["frame"].as_u64().unwrap() as usize),
                _ => drop(open.pop()),
            }
        }
    }
    Some(times)
}

/// Ticks of a millisecond.
const MS: u64 = 1_000_000;

/// The addresses of methods, and their names.
const MAIN: u64 = 0x7f00_0000_1000;
const ORDER: u64 = 0x7f00_0000_2000;
const PAY: u64 = 0x7f00_0000_3000;

fn method(start: u64, name: &str) -> Vec<u8> {
    let bytes = Bytes::default().u64(start).u64(1).u64(start).u32(0x100).u32(1).u32(0);
    bytes.utf16z("Shop.Basket").utf16z(name).utf16z("void  ()").u16(1).u64(0).0
}

#[test]
fn dotnet_trace_finds_the_samples_that_were_written() {
    let mut writer = Writer::new(Vec::new(), &Trace::new(BEGAN, 0, 1000 * MS)).unwrap();
    let mut sample = Metadata::new(1, "Microsoft-DotNETCore-SampleProfiler", 0, "");
    sample.level = 4;
    let mut end = Metadata::new(2, "Microsoft-Windows-DotNETRuntimeRundown", 144, "");
    (end.version, end.level, end.keywords) = (2, 4, 0x30);
    writer.define_event(&sample).unwrap();
    writer.define_event(&end).unwrap();
    for (index, id) in [(5, 1000), (600, 2000)] {
        let mut thread = Thread::new(index);
        (thread.os_thread_id, thread.process_id, thread.name) = (Some(id), Some(4711), Some(format!("worker {id}")));
        writer.define_thread(&thread).unwrap();
    }
    let labels = [Label::Activity(Uuid::from_bytes([7; 16])), Label::Text("user".to_owned(), "ann".to_owned())];
    // The first thread has 30 ms of `Order` and 70 of `Pay` in `Main`, the second 100 of `Main`. Each comes in a batch
    // of 10 ms, and not in order with the other.
    for batch in 0..=10_u64 {
        for thread in [5, 600] {
            for part in 0..10 {
                let at = batch * 10 + part;
                let both = if at < 30 { [ORDER + 8, MAIN + 4] } else { [PAY + 8, MAIN + 4] };
                let mut event = NewEvent::new(1, thread, (at + 1) * MS);
                event.payload = &[2, 0, 0, 0];
                event.stack = if thread == 5 { &both } else { &[MAIN + 4] };
                event.labels = &labels;
                event.is_sorted = thread == 5 && part == 0;
                event.lost_before = u32::from(part == 5);
                writer.write(&event).unwrap();
            }
        }
        if batch % 4 == 3 {
            writer.sequence_point((batch * 10 + 10) * MS).unwrap();
        }
        writer.flush().unwrap();
    }
    for (start, name) in [(MAIN, "Main"), (ORDER, "Order"), (PAY, "Pay")] {
        let payload = method(start, name);
        let mut event = NewEvent::new(2, 600, 120 * MS);
        event.payload = &payload;
        writer.write(&event).unwrap();
    }
    writer.remove_thread(5).unwrap();
    let bytes = writer.finish().unwrap();
    demands::check(&bytes);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("shop.nettrace"), bytes).unwrap();

    let Some(report) = report(dir.path(), "shop.nettrace") else { return };
    // From the first sample of each thread to the last.
    let all = 2.0 * 109.0;
    for (name, inclusive, exclusive) in
        [("Basket.Main()", all, 109.0), ("Basket.Order()", 30.0, 30.0), ("Basket.Pay()", 79.0, 79.0)]
    {
        let found = report[name];
        let is_near = |found: f64, expected: f64| (found - expected / all * 100.0).abs() < 0.01;
        assert!(is_near(found.0, inclusive) && is_near(found.1, exclusive), "{name} {found:?}");
    }
    let times = speedscope(dir.path(), "shop.nettrace").unwrap();
    let thread = |id: u64| format!("Thread ({id})");
    let expected = [
        ((thread(1000), "Order()".to_owned()), 30.0),
        ((thread(1000), "Pay()".to_owned()), 79.0),
        ((thread(2000), "Main()".to_owned()), 109.0),
    ];
    assert_eq!(times, HashMap::from(expected));
}

#[test]
fn dotnet_trace_finds_samples_and_symbols_of_a_machine() {
    let mut writer = Writer::new(Vec::new(), &Trace::new(BEGAN, 0, 1000 * MS)).unwrap();
    let system = Provider::UNIVERSAL_SYSTEM.name();
    let process = Metadata::new(1, system, ExistingProcess::ID, ExistingProcess::NAME);
    let mapping = Metadata::new(2, system, ProcessMapping::ID, ProcessMapping::NAME);
    let symbol = Metadata::new(3, system, ProcessSymbol::ID, ProcessSymbol::NAME);
    let cpu = Metadata::new(4, Provider::UNIVERSAL_EVENTS.name(), 1, Measured::CPU);
    writer.define_event(&process.with_fields(ExistingProcess::fields())).unwrap();
    writer.define_event(&mapping.with_fields(ProcessMapping::fields())).unwrap();
    writer.define_event(&symbol.with_fields(ProcessSymbol::fields())).unwrap();
    writer.define_event(&cpu.with_fields(Measured::fields())).unwrap();
    let mut thread = Thread::new(1);
    (thread.os_thread_id, thread.process_id) = (Some(1000), Some(4711));
    writer.define_thread(&thread).unwrap();
    let mut write = |id, ticks, stack: &[u64], payload: &[u8]| {
        let mut event = NewEvent::new(id, 1, ticks);
        (event.stack, event.payload) = (stack, payload);
        writer.write(&event).unwrap();
    };
    let mut payload = Vec::new();
    let shop = ExistingProcess { namespace_id: 4711, name: "shop".into(), namespace_name: "".into() };
    shop.write(&mut payload).unwrap();
    write(1, 0, &[], &payload);
    payload.clear();
    let code = ProcessMapping {
        id: 1,
        start_address: MAIN,
        end_address: PAY + 0xfff,
        file_offset: 0,
        file_name: "/memfd:doublemapper".into(),
        metadata_id: 0,
    };
    code.write(&mut payload).unwrap();
    write(2, 0, &[], &payload);
    for (id, start, name) in [(1, MAIN, "Shop.Main()"), (2, ORDER, "Shop.Order()"), (3, PAY, "Shop.Pay()")] {
        payload.clear();
        let symbol =
            ProcessSymbol { id, mapping_id: 1, start_address: start, end_address: start + 0xff, name: name.into() };
        symbol.write(&mut payload).unwrap();
        write(3, 0, &[], &payload);
    }
    for at in 0..=100 {
        let leaf = if at < 30 { ORDER + 8 } else { PAY + 8 };
        write(4, (at + 1) * MS, &[leaf, MAIN + 4], &[1]);
    }
    let bytes = writer.finish().unwrap();
    demands::check(&bytes);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("shop.nettrace"), bytes).unwrap();

    let Some(report) = report(dir.path(), "shop.nettrace") else { return };
    for (method, inclusive) in [("Main()", 100.0), ("Order()", 30.0), ("Pay()", 70.0)] {
        let found = report.get(&format!("memfd:doublemapper!Shop.{method}"));
        assert_eq!(found, Some(&(inclusive, 0.0)), "{method} in {report:#?}");
    }
    // Both are frames to it, inside of the method.
    assert_eq!(report.get("EventData: Value=0x00000001"), Some(&(100.0, 0.0)));
    assert_eq!(report.get("EventName: Universal.Events/cpu"), Some(&(100.0, 100.0)));
}

#[test]
fn dotnet_trace_finds_the_same_in_a_copy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/sampled.nettrace.xz");
    let mut bytes = Vec::new();
    XzReader::new(File::open(path).unwrap(), false).read_to_end(&mut bytes).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("four.nettrace"), &bytes).unwrap();
    fs::write(dir.path().join("six.nettrace"), corprof_nettrace::copy(&bytes[..], Vec::new()).unwrap().0).unwrap();

    let Some(expected) = report(dir.path(), "four.nettrace") else { return };
    assert!(expected.len() > 50, "{} methods", expected.len());
    assert_eq!(report(dir.path(), "six.nettrace").unwrap(), expected);
    let expected = speedscope(dir.path(), "four.nettrace").unwrap();
    assert!(expected.values().sum::<f64>() > 4000.0, "{expected:?}");
    assert_eq!(speedscope(dir.path(), "six.nettrace").unwrap(), expected);
}
