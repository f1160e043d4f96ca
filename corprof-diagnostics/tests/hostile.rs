//! Hostile bytes give errors: no panic, no end of memory, no hang. `corprof-diagnostics/fuzz` searches for longer.

mod support;

use corprof_diagnostics::nettrace::Limits;
use fastrand::Rng;
use support::hostile::{decode_message, messages, mutated, read_trace, traces};

/// Of each.
const CASES: u64 = 50_000;

#[test]
fn mutated_traces_are_read_or_refused() {
    let seeds = traces();
    let (mut rng, mut events) = (Rng::with_seed(16), 0);
    for _ in 0..CASES {
        events += read_trace(&mutated(&mut rng, &seeds), Limits::default());
    }
    // Most get past the header, or nothing would be tested.
    assert!(events > CASES / 2, "{events} events in all");
}

#[test]
fn mutated_messages_are_decoded_or_refused() {
    let seeds = messages();
    let (mut rng, mut good) = (Rng::with_seed(16), 0);
    for _ in 0..CASES {
        good += decode_message(&mutated(&mut rng, &seeds));
    }
    assert!(good > CASES / 10, "{good} good ones in all");
}
