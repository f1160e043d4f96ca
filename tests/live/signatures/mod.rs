//! Methods of several hundred signatures work out the same, to the last bit, with hooks and without.

mod program;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, repetitions};
use xtask::managed::{self, Compiler};

/// How often each method is called.
const ROUNDS: usize = 70;
/// The number of rounds with values under Wine, where each read behind a by-ref is a request to its server.
const ROUNDS_OF_VALUES_UNDER_WINE: usize = 5;

#[test]
fn methods_of_all_signatures_return_the_same_bits_with_hooks() -> Result<()> {
    let apps = std::env::var_os("CORPROF_APPS").map(std::path::PathBuf::from);
    let apps = apps.context("CORPROF_APPS is not set: start the live tests by `cargo xtask test --live-only`")?;
    let source = apps.join("Signatures.cs");
    let methods = repetitions(24, 630);
    fs::write(&source, program::write(methods, 0x5EED_0FC0_FFEE))?;
    managed::compile(&Compiler::for_every_runtime()?, &source, &apps)?;

    let mut printed = Vec::new();
    for runtime in Runtime::all()? {
        // It compiles two thousand methods, most of them twice.
        let run_for = |rounds: usize| {
            Run::new(&runtime, "Signatures").args([rounds.to_string()]).timeout(Duration::from_secs(300))
        };
        let run = || run_for(ROUNDS);
        let bare = run().run()?;
        bare.exited_with(0)?;
        let outcome = run().profiler_named("hooks", "CountsCalls").run()?;
        outcome.exited_with(0)?;
        for (without, with) in bare.stdout.lines().zip(outcome.stdout.lines()) {
            ensure!(without == with, "{runtime}: {without} without hooks, {with} with hooks");
        }
        ensure!(bare.stdout == outcome.stdout && bare.stdout.lines().count() == methods, "{outcome}");

        // And when all arguments and results are read.
        let rounds = if runtime.is_windows() { ROUNDS_OF_VALUES_UNDER_WINE } else { ROUNDS };
        let alone = if rounds == ROUNDS { None } else { Some(run_for(rounds).run()?) };
        let alone = alone.as_ref().unwrap_or(&bare);
        alone.exited_with(0)?;
        let slow = run_for(rounds).profiler_named("values", "ReadsValues").run()?;
        slow.exited_with(0)?;
        for (without, with) in alone.stdout.lines().zip(slow.stdout.lines()) {
            ensure!(without == with, "{runtime}: {without} without hooks, {with} with values");
        }
        ensure!(alone.stdout.lines().count() == methods && alone.stdout == slow.stdout, "{slow}");
        ensure!(slow.stderr.contains("unreadable="), "{slow}");

        // Each was hooked, and by the hooks each ended as often as it was called.
        let mut counts = BTreeMap::<usize, u64>::new();
        for row in outcome.stderr.lines().filter_map(|line| line.strip_prefix("row ")) {
            let words: Vec<_> = row.splitn(4, ' ').collect();
            let [entered, left, tail_called, name] = words.as_slice() else { continue };
            let number = |word: &str| word.split_once('=').and_then(|(_, number)| number.parse::<u64>().ok());
            let method = name.split(['(', '<']).next().and_then(|name| name.rsplit_once(".M")?.1.parse().ok());
            let method = method.or_else(|| name.split_once(">.M")?.1.split('(').next()?.parse().ok());
            if let (Some(method), Some(entered)) = (method, number(entered)) {
                let ended = number(left).zip(number(tail_called)).map(|(left, tail_called)| left + tail_called);
                ensure!(ended == Some(entered), "{runtime}: {row}");
                *counts.entry(method).or_default() += entered;
            }
        }
        ensure!(counts.len() == methods, "{runtime}: {} methods were hooked: {outcome}", counts.len());
        for (method, entered) in counts {
            ensure!(entered == ROUNDS as u64, "{runtime}: M{method} was entered {entered} times");
        }
        printed.push(bare.stdout);
    }
    ensure!(printed.windows(2).all(|pair| pair[0] == pair[1]), "the runtimes differ among themselves");
    Ok(())
}
