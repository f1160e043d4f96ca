//! The requests of a trace by endpoint, and where the slowest one waited: `async_requests FILE`, for a `.nettrace` or a
//! `.nettrace.xz`.
//!
//! The trace has the provider of async call stacks with the keywords `0xF4DD`, and activities by
//! [`ACTIVITY_ARGUMENTS`](corprof_async::trace::ACTIVITY_ARGUMENTS); names of methods if it has a rundown.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;

use corprof_async::trace::nettrace::Reader;
use corprof_async::trace::{TraceEvent, add_method, classify};
use corprof_async::{Decoder, LogicalStacks, MethodTable, Request, RequestLimits, Requests};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: async_requests FILE")?;
    let mut bytes = std::fs::read(&file)?;
    if file.ends_with(".xz") {
        let packed = std::mem::take(&mut bytes);
        lzma_rust2::XzReader::new(&packed[..], true).read_to_end(&mut bytes)?;
    }
    let mut methods = MethodTable::new();
    let mut told = Vec::new();
    let mut requests = Requests::new(RequestLimits::default(), |_| false);
    let mut stacks = LogicalStacks::new();
    let mut decoder = Decoder::new();
    let mut reader = Reader::new(&bytes[..]);
    let milliseconds = 1e3 / reader.trace()?.ticks_per_second as f64;
    while let Some(event) = reader.next_event()? {
        add_method(&event, &mut methods);
        match classify(&event) {
            Some(TraceEvent::Buffer { payload, written }) => {
                let buffer = decoder.decode(payload)?;
                stacks.take_buffer(&buffer, written, |step| requests.step(step, |request| told.push(request)));
                // This program asks nothing about stacks.
                stacks.release(written.saturating_sub(5_000_000_000));
            }
            Some(TraceEvent::Activity { thread, ticks, is_start: true, activity }) => {
                requests.start(thread, ticks, activity, |request| told.push(request));
            }
            Some(TraceEvent::Activity { ticks, activity, .. }) => {
                requests.stop(ticks, activity, |request| told.push(request));
            }
            _ => {}
        }
    }
    requests.finish(|request| told.push(request));

    let mut endpoints = BTreeMap::<&str, Vec<&Request>>::new();
    for request in &told {
        let name = request.activity.as_ref().map_or("?", |activity| &activity.display_name);
        endpoints.entry(name).or_default().push(request);
    }
    for (name, mut requests) in endpoints {
        requests.sort_by_key(|request| request.to - request.from);
        let in_ms = |ticks: u64| ticks as f64 * milliseconds;
        let total: f64 = requests.iter().map(|request| in_ms(request.to - request.from)).sum();
        let running: f64 = requests.iter().map(|request| in_ms(request.running())).sum();
        let Some(slowest) = requests.last() else { continue };
        println!(
            "{name}: {} requests, mean {:.2} ms ({:.2} running), longest {:.2} ms:",
            requests.len(),
            total / requests.len() as f64,
            running / requests.len() as f64,
            in_ms(slowest.to - slowest.from)
        );
        for operation in &slowest.operations {
            for wait in operation.waits() {
                let frames = wait.place.map(|chain| &chain[..]).unwrap_or_default();
                let frame = frames.iter().find(|frame| frame.address != 0);
                let place = frame.map_or("?", |frame| methods.name_at(frame.address).unwrap_or("?"));
                let to = wait.to.unwrap_or(slowest.to).min(slowest.to);
                let at = in_ms(wait.from.saturating_sub(slowest.from));
                let waited = in_ms(to.saturating_sub(wait.from));
                println!("  +{at:.2} ms: {waited:.2} ms at {place} ({})", operation.dispatcher);
            }
        }
    }
    Ok(())
}
