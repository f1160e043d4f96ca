//! Reads mutated traces and decodes mutated messages, from a seed: `cargo run --release -p corprof-diagnostics --example fuzz
//! -- [CASES = 10000000] [SEED = 1]`. Ends with a panic at the first fault, which names the case.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use corprof_diagnostics::nettrace::Limits;
use fastrand::Rng;
use support::hostile::{decode_message, messages, mutated, read_trace, traces};

/// Peak memory of this process, from `/proc`.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

/// Runs `case` so often, each with a seed of its own, so that one alone can be run again.
fn run(name: &str, cases: u64, seed: u64, seeds: &[Vec<u8>], case: impl Fn(&[u8]) -> u64) {
    let start = Instant::now();
    let (mut found, mut slowest) = (0, (std::time::Duration::ZERO, 0));
    for index in 0..cases {
        let bytes = mutated(&mut Rng::with_seed(seed.wrapping_add(index)), seeds);
        let begin = Instant::now();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&bytes)));
        slowest = slowest.max((begin.elapsed(), index));
        match result {
            Ok(count) => found += count,
            Err(_) => {
                eprintln!("{name}: case {index} of seed {seed}: {bytes:02x?}");
                std::process::exit(1);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: {cases} cases in {seconds:.1} s, {found} found, slowest {slowest:?}, peak memory {}", peak());
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().unwrap_or(1));
    let (cases, seed) = (args.next().unwrap_or(10_000_000), args.next().unwrap_or(1));
    run("messages", cases, seed, &messages(), decode_message);
    run("traces", cases, seed, &traces(), |bytes| read_trace(bytes, Limits::default()));
}
