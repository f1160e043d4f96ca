//! Calls in their order: trace events, parsed strictly, and Perfetto's own format, read by its rules.

use std::fs;
use std::path::Path;
use std::time::Duration;

use corprof_export::{Error, Short, Trace};
use serde::Deserialize;

use crate::perfetto_reader::{self, Event as PerfettoEvent};

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Event {
    ph: char,
    pid: u32,
    tid: u32,
    ts: f64,
    name: String,
    s: Option<String>,
    args: Option<Args>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Args {
    name: Option<String>,
    short_calls: Option<u64>,
    short_calls_ns: Option<u64>,
}

fn read(path: &Path) -> Vec<Event> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const SHORT: Short = Short { calls: 300, time: Duration::from_nanos(4_000) };

/// Two threads, one of them without a name at first; the second goes by its number.
fn write(path: &Path) {
    let mut trace = Trace::create(path, 7, "sh\"op\n").unwrap();
    trace.thread(0, 4711, None).unwrap();
    trace.begin(0, Duration::from_nanos(1_234_567), "Main()\u{1}").unwrap();
    trace.begin(0, Duration::from_nanos(1_234_568), "Work()").unwrap();
    trace.begin(5, Duration::from_micros(5), "Work()").unwrap();
    trace.end(0, Duration::from_micros(2_000), SHORT).unwrap();
    trace.end(5, Duration::from_micros(6), Short::default()).unwrap();
    // Without a beginning, and on a thread that has none.
    trace.end(5, Duration::from_micros(7), Short::default()).unwrap();
    trace.end(6, Duration::from_micros(7), Short::default()).unwrap();
    trace.short(5, Duration::from_micros(8), SHORT).unwrap();
    trace.thread(0, 4711, Some("main")).unwrap();
    trace.end(0, Duration::from_secs(3), Short::default()).unwrap();
    trace.flush().unwrap();
}

#[test]
fn trace_events_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace.json");
    fs::write(&path, "x".repeat(100_000)).unwrap();
    write(&path);
    let events = read(&path);
    let phases: String = events.iter().map(|event| event.ph).collect();
    assert_eq!(phases, "MBBBEEiME");
    assert!(events.iter().all(|event| event.pid == 7));
    let threads: Vec<_> = events.iter().map(|event| event.tid).collect();
    assert_eq!(threads, [0, 4711, 4711, 5, 4711, 5, 5, 4711, 4711]);
    let argument = |at: usize| events[at].args.as_ref().and_then(|args| args.name.as_deref());
    assert_eq!((argument(0), argument(7)), (Some("sh\"op\n"), Some("main")));
    assert_eq!((events[1].ts, events[1].name.as_str()), (1_234.567, "Main()\u{1}"));
    let names: Vec<_> = events.iter().filter(|event| event.ph == 'E').map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["Work()", "Work()", "Main()\u{1}"], "ends have names");
    let short = |at: usize| events[at].args.as_ref().map(|args| (args.short_calls, args.short_calls_ns));
    assert_eq!((short(4), short(5)), (Some((Some(300), Some(4_000))), None));
    assert_eq!((events[6].s.as_deref(), short(6)), (Some("t"), Some((Some(300), Some(4_000)))));
    assert_eq!(events[8].ts, 3_000_000.0);
}

#[test]
fn perfetto_s_own_format_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pftrace");
    fs::write(&path, "x".repeat(100_000)).unwrap();
    write(&path);
    let read = perfetto_reader::read(&fs::read(&path).unwrap());
    assert_eq!(read.process, "sh\"op\n");
    let lanes: Vec<_> = read.lanes.values().collect();
    let [main, other] = lanes[..] else { panic!("two threads: {lanes:?}") };
    assert_eq!((main.process, main.thread, main.name.as_deref()), (7, 4711, Some("main")));
    assert_eq!((other.process, other.thread, other.name.as_deref()), (7, 5, None));
    let event = |phase, at, name: &str, short: Option<Short>| PerfettoEvent {
        phase,
        at,
        name: name.to_owned(),
        arguments: short
            .into_iter()
            .flat_map(|it| [("short_calls", it.calls), ("short_calls_ns", it.time.as_nanos() as u64)])
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    };
    let expected = [
        event('B', 1_234_567, "Main()\u{1}", None),
        event('B', 1_234_568, "Work()", None),
        event('E', 2_000_000, "", Some(SHORT)),
        event('E', 3_000_000_000, "", None),
    ];
    assert_eq!(main.events, expected);
    let expected =
        [event('B', 5_000, "Work()", None), event('E', 6_000, "", None), event('i', 8_000, "short calls", Some(SHORT))];
    assert_eq!(other.events, expected);
}

#[test]
fn an_event_takes_at_most_twenty_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pftrace");
    let mut trace = Trace::create(&path, 7, "shop").unwrap();
    let names: Vec<_> = (0..2000).map(|number| format!("Shop.Orders.Method{number}(int32)")).collect();
    let file = |path: &Path| fs::metadata(path).unwrap().len();
    // Ten threads that call everything, as often as it takes for names not to count.
    let mut at = 0;
    let mut call = |trace: &mut Trace, thread: u32, name: &str| {
        at += 70_000;
        trace.begin(thread, Duration::from_nanos(at), name).unwrap();
        trace.end(thread, Duration::from_nanos(at + 1_700), Short { calls: at % 3, ..Short::default() }).unwrap();
    };
    (0..10).for_each(|thread| names.iter().for_each(|name| call(&mut trace, thread, name)));
    trace.flush().unwrap();
    let before = file(&path);
    (0..10).for_each(|thread| names.iter().for_each(|name| call(&mut trace, thread, name)));
    trace.flush().unwrap();
    let each = (file(&path) - before) as f64 / (2.0 * 10.0 * 2000.0);
    assert!(each <= 20.0, "{each} bytes");
}

#[test]
fn a_process_that_dies_leaves_what_was_flushed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.trace.json", "a.pftrace"] {
        let path = dir.path().join(name);
        let mut trace = Trace::create(&path, 7, "shop").unwrap();
        for index in 0..10_000 {
            trace.begin(1, Duration::from_nanos(index), "A.Method(int32)").unwrap();
        }
        // As if the process ended here: nothing is flushed any more.
        std::mem::forget(trace);
        let events = match name {
            "a.pftrace" => {
                perfetto_reader::read(&fs::read(&path).unwrap()).lanes.values().map(|it| it.events.len()).sum()
            }
            _ => read(&path).len(),
        };
        assert!((5_000..10_001).contains(&events), "{events} events in {name}");
    }
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
