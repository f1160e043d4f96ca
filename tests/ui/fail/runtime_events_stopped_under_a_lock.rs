//! The stop waits for deliveries, and a delivery may wait for the lock.
use corprof::info::RuntimeEvents;
use corprof::prelude::*;
use corprof::profiler_thread::ProfilerThread;
use corprof::sync::Mutex;

fn stop(events: RuntimeEvents, count: &Mutex<u32>, cx: &mut ProfilerThread<'_>) -> Result<()> {
    let mut count = count.lock(cx);
    events.stop(cx)?;
    *count += 1;
    Ok(())
}

fn main() {}
