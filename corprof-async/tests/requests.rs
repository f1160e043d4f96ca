//! Requests of traces, whose numbers are known (tests/traces/README.md).

#![cfg(feature = "nettrace")]

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use corprof_async::trace::nettrace::Reader;
use corprof_async::trace::{TraceEvent, add_method, classify};
use corprof_async::{ActivityKind, Decoder, Frame, LogicalStacks, MethodTable, Request, RequestLimits, Requests};
use lzma_rust2::XzReader;
use serde_json::Value;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const MILLISECOND: u64 = 1_000_000;

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    XzReader::new(File::open(path)?, true).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The requests of a trace, in the order in which they are told.
fn requests(bytes: &[u8], is_loop: impl Fn(&[Frame]) -> bool) -> Result<Vec<Request>> {
    let mut told = Vec::new();
    let mut requests = Requests::new(RequestLimits::default(), is_loop);
    let mut stacks = LogicalStacks::new();
    let mut decoder = Decoder::new();
    let mut reader = Reader::new(bytes);
    while let Some(event) = reader.next_event()? {
        match classify(&event) {
            Some(TraceEvent::Buffer { payload, written }) => {
                let buffer = decoder.decode(payload)?;
                stacks.take_buffer(&buffer, written, |step| requests.step(step, |request| told.push(request)));
            }
            Some(TraceEvent::Activity { thread, ticks, is_start: true, activity }) => {
                requests.start(thread, ticks, activity, |request| told.push(request));
            }
            Some(TraceEvent::Activity { ticks, is_start: false, activity, .. }) => {
                requests.stop(ticks, activity, |request| told.push(request));
            }
            _ => {}
        }
    }
    requests.finish(|request| told.push(request));
    Ok(told)
}

#[test]
fn activities_lead_to_operations() -> Result {
    for name in ["requests_ra", "requests_sm"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/{name}.nettrace.xz"));
        let requests = requests(&unpacked(&path)?, |_| false)?;
        let mut counts = BTreeMap::<&str, u32>::new();
        for request in &requests {
            let activity = request.activity.as_ref().ok_or("no activity")?;
            assert_eq!(activity.kind, ActivityKind::Server, "{activity:?}");
            *counts.entry(&activity.display_name).or_default() += 1;
            check(request, &activity.display_name);
        }
        let expected = [("GET /orders", 30), ("GET /slow", 30), ("GET /stock", 30), ("GET /users", 60)];
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected, "{name}");
        // The call of each `/orders` is the parent of a `/stock`, in the same distributed trace.
        let calls: HashSet<_> = requests
            .iter()
            .flat_map(|request| &request.calls)
            .map(|call| (call.activity.trace_id, call.activity.span_id))
            .collect();
        assert_eq!(calls.len(), 30);
        let stocks = requests
            .iter()
            .filter_map(|request| request.activity.as_ref())
            .filter(|activity| activity.parent_span_id != 0);
        assert!(stocks.clone().all(|stock| calls.contains(&(stock.trace_id, stock.parent_span_id))));
        assert_eq!(stocks.count(), 30);
    }
    Ok(())
}

/// Each awaits what its program says: 80 ms, or 5 ms, by timers that may be some milliseconds early.
fn check(request: &Request, name: &str) {
    let duration = request.to - request.from;
    let running = request.running();
    let waits = |at_least: u64| {
        let waits = request.operations.iter().flat_map(|operation| operation.waits());
        waits.filter(|wait| wait.to.is_some_and(|to| to - wait.from >= at_least)).count()
    };
    let (least, calls) = match name {
        "GET /slow" => (70, 0),
        "GET /orders" => (2, 1),
        _ => (1, 0),
    };
    assert!(duration >= least * MILLISECOND, "{duration} ns: {request:#?}");
    // One operation waits for the timer, and the connection for that one.
    assert!(request.operations.len() >= 2 && waits(least * MILLISECOND / 2) >= 2, "{request:#?}");
    assert!(running > 0 && running < duration, "{running} of {duration} ns: {request:#?}");
    assert_eq!((request.calls.len(), request.is_whole, request.left_out), (calls, true, 0), "{request:#?}");
    assert!(request.calls.iter().all(|call| call.from >= request.from && call.to.is_some_and(|to| to <= request.to)));
}

#[test]
fn loops_tell_requests_of_runtime_async_without_activities() -> Result {
    by_loops("web_ra")
}

#[test]
fn loops_tell_requests_of_state_machines_without_activities() -> Result {
    by_loops("web_sm")
}

/// Finds the requests of a trace beside the repository, if it is there, by the loops of connections.
fn by_loops(name: &str) -> Result {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/nettrace/async");
    let path = folder.join(format!("{name}.nettrace.xz"));
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return Ok(());
    }
    let bytes = unpacked(&path)?;
    let mut methods = MethodTable::new();
    let mut reader = Reader::new(&bytes[..]);
    while let Some(event) = reader.next_event()? {
        add_method(&event, &mut methods);
    }
    let has = |frame: &Frame, part: &str| methods.name_at(frame.address).is_some_and(|name| name.contains(part));
    let requests = requests(&bytes, |chain| chain.iter().any(|frame| has(frame, "HttpProtocol.ProcessRequests")))?;
    let endpoints = ["Orders", "Users", "Slow", "Stock"];
    let endpoint = |request: &Request| {
        let frame = request.outermost(|frame| endpoints.iter().any(|endpoint| has(frame, endpoint)))?;
        endpoints.into_iter().find(|endpoint| has(&frame, endpoint))
    };
    let mut counts = BTreeMap::<&str, usize>::new();
    for request in &requests {
        let endpoint = endpoint(request);
        *counts.entry(endpoint.unwrap_or("?")).or_default() += 1;
        if endpoint == Some("Slow") {
            assert!(request.to - request.from > 70 * MILLISECOND, "{request:#?}");
        }
    }
    // At the end of the trace, what some threads did is missing.
    let unknown = requests.iter().filter(|request| request.is_whole && endpoint(request).is_none()).count();
    assert_eq!(unknown, 0, "{name}: {counts:?}");
    // Each awaits one of these once, in the words of another decoder.
    let expected = folder.join(format!("{name}.expected.json"));
    let expected: Value = serde_json::from_str(&fs::read_to_string(expected)?)?;
    let waits = expected["waits_ms"].as_object().ok_or("no waits")?;
    for (endpoint, parts) in
        [("Slow", ["Slow", "Wait80"]), ("Users", ["Users", "Fetch"]), ("Stock", ["Query", "Stock"])]
    {
        let wait = waits.iter().find(|(place, _)| parts.iter().all(|part| place.contains(part)));
        let (_, wait) = wait.ok_or("no such wait")?;
        let found = counts.get(endpoint).copied().unwrap_or_default() as u64;
        let waits = wait["count"].as_u64().ok_or("no count")?;
        assert_eq!(found, waits, "{name}: {endpoint}");
    }
    Ok(())
}
