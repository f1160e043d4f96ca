//! Reads damaged snapshot files, from a seed: `cargo run --release -p corprof-heap --example fuzz -- [CASES = 10000000] [SEED = 1]`.
//! Ends with a panic at the first fault; the seed of its round is the last one printed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "that is how it ends")]

#[path = "../tests/support/hostile.rs"]
mod hostile;
#[path = "../tests/support/mod.rs"]
mod support;

use fastrand::Rng;

/// Cases of one file.
const ROUND: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let cases: u64 = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let mut accepted = 0_u64;
    for round in 0..cases / ROUND {
        if round % 1000 == 0 {
            println!("{} cases, {accepted} of them snapshots; seed {}", round * ROUND, seed + round);
        }
        let mut rng = Rng::with_seed(seed + round);
        let file = hostile::file(&mut rng);
        accepted += (0..ROUND).filter(|_| hostile::read_all(&hostile::mutated(&mut rng, &file))).count() as u64;
    }
    println!("{cases} cases, {accepted} of them snapshots, no fault");
    Ok(())
}
