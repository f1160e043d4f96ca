//! Trace events, parsed strictly.

use std::fs;
use std::time::Duration;

use corprof_export::{Error, Trace};
use serde::Deserialize;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Event {
    ph: char,
    pid: u32,
    tid: u32,
    ts: f64,
    dur: Option<f64>,
    cat: Option<String>,
    name: Option<String>,
    s: Option<String>,
    args: Option<Args>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Args {
    name: String,
}

fn read(path: &std::path::Path) -> Vec<Event> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn events_come_back_and_the_file_is_whole_after_each_flush() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace.json");
    fs::write(&path, "x".repeat(100_000)).unwrap();
    let mut trace = Trace::create(&path, 7, "sh\"op\n").unwrap();
    assert_eq!(read(&path)[0].args.as_ref().unwrap().name, "sh\"op\n");
    trace.thread_name(3, "main").unwrap();
    trace.begin(3, Duration::from_nanos(1_234_567), "managed", "Main()\u{1}").unwrap();
    trace.flush().unwrap();
    assert_eq!(read(&path).len(), 3);
    trace.complete(3, Duration::from_micros(2_000), Duration::from_nanos(7), "gc", "Collect").unwrap();
    trace.instant(3, Duration::from_micros(2_001), "exception", "Oops").unwrap();
    trace.end(3, Duration::from_secs(3)).unwrap();
    drop(trace);
    let events = read(&path);
    let phases: String = events.iter().map(|event| event.ph).collect();
    assert_eq!(phases, "MMBXiE");
    assert!(events.iter().all(|event| event.pid == 7));
    assert_eq!((events[1].tid, events[1].args.as_ref().unwrap().name.as_str()), (3, "main"));
    assert_eq!((events[2].ts, events[2].name.as_deref()), (1_234.567, Some("Main()\u{1}")));
    assert_eq!((events[3].dur, events[3].cat.as_deref()), (Some(0.007), Some("gc")));
    assert_eq!((events[4].s.as_deref(), events[5].ts), (Some("t"), 3_000_000.0));
}

#[test]
fn a_process_that_dies_leaves_what_was_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace.json");
    let mut trace = Trace::create(&path, 7, "shop").unwrap();
    for index in 0..10_000 {
        trace.begin(1, Duration::from_nanos(index), "managed", "A.Method(int32)").unwrap();
    }
    // As if the process ended here: nothing is flushed any more.
    std::mem::forget(trace);
    let events = read(&path).len();
    assert!((9_000..10_001).contains(&events), "{events} events");
}

#[test]
fn errors_name_the_file() {
    let error = Trace::create("/nowhere/at/all.trace.json", 1, "x").unwrap_err();
    assert!(matches!(error, Error::Create { .. }));
    assert!(error.to_string().contains("/nowhere/at/all.trace.json"), "{error}");
}

/// `/dev/full` opens, and refuses every write.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_not_a_panic() {
    let error = Trace::create("/dev/full", 1, "x").unwrap_err();
    assert!(error.to_string().contains("/dev/full") && error.to_string().contains("disk full"), "{error}");
}
