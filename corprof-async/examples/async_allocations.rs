//! Which endpoint allocates how much: `async_allocations FILE`, for a recording of
//! `corprof record --events cpu,alloc,activity` (.NET 11).

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use corprof_async::trace::nettrace::Reader;
use corprof_async::trace::nettrace::events::views::AllocationSampled;
use corprof_async::trace::{TraceEvent, classify};
use corprof_async::{Decoder, LogicalStacks, Request, RequestLimits, Requests};

/// The bytes that a sample stands for: the runtime samples one of so many.
const SAMPLED_BYTES: u64 = 102_400;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: async_allocations FILE")?;
    let mut reader = Reader::new(BufReader::new(File::open(file)?));
    let mut decoder = Decoder::new();
    let mut stacks = LogicalStacks::new();
    let mut requests = Requests::new(RequestLimits::default(), |_| false);
    let mut told = Vec::new();
    let mut allocations = Vec::new();
    while let Some(event) = reader.next_event()? {
        if event.decoded().decode::<AllocationSampled<'_>>().is_ok() {
            allocations.push((event.os_thread_id(), event.ticks()));
        }
        match classify(&event) {
            Some(TraceEvent::Buffer { payload, written }) => {
                let buffer = decoder.decode(payload)?;
                stacks.take_buffer(&buffer, written, |step| requests.step(step, |request| told.push(request)));
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
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for (thread, ticks) in allocations {
        let request = told.iter().find(|request| works_for(request, thread, ticks));
        let activity = request.and_then(|request| request.activity.as_ref());
        *bytes.entry(activity.map_or("no request", |activity| &activity.display_name)).or_default() += SAMPLED_BYTES;
    }
    for (endpoint, bytes) in bytes {
        println!("{:8.1} MB {endpoint}", bytes as f64 / 1e6);
    }
    Ok(())
}

/// Whether a thread ran an operation of a request at this time.
fn works_for(request: &Request, thread: Option<u64>, ticks: u64) -> bool {
    let mut runs = request.operations.iter().flat_map(|operation| &operation.runs);
    runs.any(|run| Some(run.thread) == thread && (run.from..run.to.unwrap_or(request.to)).contains(&ticks))
}
