//! Decodes mutated events, from a seed: `cargo run --release -p corprof-events --example fuzz -- [CASES = 1000000] [SEED = 1]`. A
//! fault is a panic, which names the case.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use fastrand::Rng;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().unwrap_or(1));
    let (cases, seed): (u64, u64) = (args.next().unwrap_or(1_000_000), args.next().unwrap_or(1));
    let start = Instant::now();
    let (mut found, mut slowest) = (0, Duration::ZERO);
    for case in 0..cases {
        let rng = &mut Rng::with_seed(seed.wrapping_add(case));
        let (mut metadata, mut payload) = (support::metadata(rng), support::payload(rng));
        support::mutate(rng, &mut metadata);
        support::mutate(rng, &mut payload);
        let begin = Instant::now();
        match std::panic::catch_unwind(|| support::decode(&metadata, &payload)) {
            Ok(values) => found += values,
            Err(_) => {
                eprintln!("case {case} of seed {seed}: {metadata:02x?} {payload:02x?}");
                std::process::exit(1);
            }
        }
        slowest = slowest.max(begin.elapsed());
    }
    println!("{cases} cases in {:.1} s, {found} values, slowest {slowest:?}", start.elapsed().as_secs_f64());
}
