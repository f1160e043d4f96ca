//! Inserted calls: the program's output shows that they run, where, and with which arguments.

use anyhow::{Result, ensure};
use corprof_tests::{Run, Runtime};

const LIBRARY: &str = "inserts";

#[test]
fn calls_are_inserted_and_the_program_does_what_it_did() -> Result<()> {
    for runtime in &Runtime::all()? {
        let bare = Run::new(runtime, "Inserted").run()?;
        for tiered in ["0", "1"] {
            let run = Run::new(runtime, "Inserted").env("DOTNET_TieredCompilation", tiered);
            let outcome = run.profiler_named(LIBRARY, "Inserts").run()?;
            outcome.exited_with(0)?;
            let own: String =
                outcome.stdout.lines().filter(|line| !line.starts_with('|')).flat_map(|line| [line, "\n"]).collect();
            ensure!(own == bare.stdout, "without: {bare}; with: {outcome}");
            ensure!(outcome.stdout.lines().eq(EXPECTED.iter().copied()), "{outcome}");
        }
    }
    Ok(())
}

/// What the program prints with the calls, whose lines begin with a bar.
const EXPECTED: &[&str] = &[
    "| adds 1",
    "| Add returns",
    "| adds -1",
    "| Add returns",
    "| adds 1",
    "| Add returns",
    "3 -1 -2",
    "| pair System.Int32[] worker null",
    "| worker",
    "| nothing",
    "| element",
    "| sum 0",
    "| element",
    "| sum 1",
    "| element",
    "| sum 3",
    "10",
    "tries 0",
    "| end of what has a catch",
    "| end of what has a finally",
    "ends",
    "| end of finally",
    "| Tried returns 0",
    "tried",
    "tries 1",
    "catches",
    "| end of catch",
    "| end of what has a finally",
    "ends",
    "| end of finally",
    "| Tried returns 1",
    "caught",
    "tries 2",
    "| end of what has a catch",
    "| end of what has a finally",
    "ends",
    "| end of finally",
    "| Tried returns 2",
    "returned",
    "| filter",
    "| end of filter 0",
    "passed",
    "| filter",
    "| end of filter 1",
    "| filtered",
    "takes",
    "| end of filtered 1",
    "filtered",
    "| before a call",
    "| b",
    "| before a call",
    "| b",
    "a1bc2",
    "| True 65535 -128 255 -32768 65535 -2147483648 4294967295 -9223372036854775808 18446744073709551615 0.5 -0.25",
    "| Switched",
    "zero",
    "| True 65535 -128 255 -32768 65535 -2147483648 4294967295 -9223372036854775808 18446744073709551615 0.5 -0.25",
    "| Switched",
    "one",
    "| True 65535 -128 255 -32768 65535 -2147483648 4294967295 -9223372036854775808 18446744073709551615 0.5 -0.25",
    "| Switched",
    "two",
    "| True 65535 -128 255 -32768 65535 -2147483648 4294967295 -9223372036854775808 18446744073709551615 0.5 -0.25",
    "| Switched",
    "many",
];

#[test]
fn calls_are_inserted_where_methods_end_otherwise_than_by_a_return() -> Result<()> {
    for runtime in &Runtime::all()? {
        let bare = Run::new(runtime, "Jumps").run()?;
        let outcome = Run::new(runtime, "Jumps").profiler_named(LIBRARY, "AtEnds").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == bare.stdout && !outcome.stderr.contains("panicked"), "{outcome}");
        for method in ["Jump", "Shared", "Down", "Landed"] {
            ensure!(outcome.stderr.contains(&format!("inserts| {method}: edited\n")), "{method}: {outcome}");
        }
    }
    Ok(())
}
