//! Hostile traces give errors: no panic, no end of memory, no hang. `corprof-nettrace/fuzz` searches for longer.

mod support;

use std::hint::black_box;

use corprof_nettrace::{Item, Limits, Reader};
use fastrand::Rng;
use support::mutated::mutated;
use support::{v4, v6};

const CASES: u64 = 50_000;

#[test]
fn mutated_traces_are_read_or_refused() {
    let seeds = [v4::sample(4), v4::sample(5), v6::sample()];
    let mut rng = Rng::with_seed(16);
    let mut events = 0;
    for _ in 0..CASES {
        events += read_trace(&mutated(&mut rng, &seeds), Limits::default());
    }
    // Most get past the header, or nothing would be tested.
    assert!(events > CASES / 2, "{events} events in all");
}

/// Reads a trace to its end or to its error, and looks at all of each event. Answers with how many events there were.
fn read_trace(bytes: &[u8], limits: Limits) -> u64 {
    let mut reader = Reader::with_limits(bytes, limits);
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Event(event) = item {
            let frames: u64 = event.stack().addresses().fold(0, u64::wrapping_add);
            let labels = event.labels().count();
            let ids = (event.activity(), event.related_activity(), event.os_thread_id(), event.process_id());
            let metadata = (&event.metadata().provider, event.thread_info());
            let decoded = event.decoded();
            black_box((decoded.name().is_empty(), decoded.fields().count(), decoded.is_exact()));
            black_box((frames, labels, ids, metadata, event.since_start(), event.payload().len()));
        }
    }
    // An event takes at least two bytes, so there is no end to reading only if there is none to the source.
    let events = reader.stats().events;
    assert!(events <= bytes.len() as u64, "{events} events in {} bytes", bytes.len());
    events
}
