//! The cost of decoding: `cargo run --release -p corprof-events --example cost`. Each figure is the best of 2,000
//! rounds, each shorter than a turn on a busy processor, in nanoseconds an event, with the event made of its parts each
//! time as a session's callback does.

use std::hint::black_box;
use std::time::Instant;

use corprof_events::views::{ContentionStart, GcAllocationTick, GcStart, MethodLoadVerbose};
use corprof_events::{Event, Provider, View};

const EVENTS: u32 = 5_000;

fn time(name: &str, mut event: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..2_000 {
        let start = Instant::now();
        for _ in 0..EVENTS {
            event();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(EVENTS));
    }
    println!("{best:6.1} ns  {name}");
}

fn event(id: u32, version: u32, payload: &[u8]) -> Event<'_> {
    let name = black_box("Microsoft-Windows-DotNETRuntime");
    Event::new(Provider::of(name), black_box(id), black_box(version), black_box(payload), true)
}

fn typed<'a, V: View<'a>>(id: u32, version: u32, payload: &'a [u8]) {
    let _ = black_box(event(id, version, payload).decode::<V>());
}

fn main() {
    let text = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let start = [0; 26];
    let contention = [0; 27];
    let tick = [&[0; 26][..], &text("System.Collections.Generic.List`1[System.String]"), &[0; 20]].concat();
    let load =
        [&[0; 36][..], &text("Shop.Orders.Basket"), &text("Add"), &text("void (class Shop.Item)"), &[0; 10]].concat();
    time("GcStart", || typed::<GcStart>(1, 2, &start));
    time("ContentionStart", || typed::<ContentionStart>(81, 2, &contention));
    time("GcAllocationTick, with a name of 48 characters", || typed::<GcAllocationTick<'_>>(10, 4, &tick));
    time("MethodLoadVerbose, with 43 characters", || typed::<MethodLoadVerbose<'_>>(143, 2, &load));
    time("name() of GCStart", || {
        black_box(event(1, 2, &start).name());
    });
    time("field(\"Depth\") of GCStart", || {
        black_box(event(1, 2, &start).field("Depth"));
    });
    time("all fields of GCAllocationTick", || {
        event(10, 4, &tick).fields().for_each(|field| {
            black_box(field);
        })
    });
}
