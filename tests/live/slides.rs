//! The examples, which show one thing each, on programs with known behaviour.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, ensure_or_longer, patiently};

use crate::tracer::perfetto_reader;

/// A program under an example, which writes into this folder.
fn run(runtime: &Runtime, example: &str, app: &str, args: &[&str], folder: &Path) -> Result<Outcome> {
    let outcome = Run::new(runtime, app).args(args).profiler(example).inside(folder).run()?;
    outcome.exited_with(0)?;
    Ok(outcome)
}

/// The same for an example that writes no file.
fn told(runtime: &Runtime, example: &str, app: &str, args: &[&str]) -> Result<Outcome> {
    run(runtime, example, app, args, &std::env::temp_dir())
}

#[test]
fn beeper_beeps_at_each_class() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = told(&runtime, "beeper", "Sample", &[])?;
        let beeps = outcome.stderr.len();
        ensure!(beeps > 100 && outcome.stderr == "\u{7}".repeat(beeps), "{runtime}: {beeps} beeps in {outcome}");
    }
    Ok(())
}

#[test]
fn logger_shows_events_with_names() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = told(&runtime, "logger", "Sample", &[])?;
        for expected in [
            " ClassLoadFinished(class: Warehouse.Packer, status: ok)",
            " ExceptionThrown(thrown: Warehouse.OutOfStockException)",
            " JITCompilationStarted(function: Warehouse.Packer.Pack(Warehouse.Sku, int32), is_safe_to_block: ",
            " ExceptionSearchFunctionLeave",
            " GarbageCollectionStarted(generations: gen",
        ] {
            let is_told = outcome.stderr.lines().any(|line| line.contains(expected));
            ensure!(is_told, "{runtime}: no {expected}: {outcome}");
        }
        ensure!(!outcome.stderr.contains("<unknown"), "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn exceptions_prints_class_and_catcher_of_each() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = told(&runtime, "exceptions", "Sample", &[])?;
        let count = |line: &str| outcome.stderr.lines().filter(|found| found.starts_with(line)).count();
        ensure!(count("Warehouse.OutOfStockException thrown") == 90, "{runtime}: {outcome}");
        ensure!(count("  will be caught in Warehouse.Packer.Pack(") == 90, "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn allocations_counts_bytes_and_objects() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = told(&runtime, "allocations", "Alloc", &["40000"])?;
        let has = |line: &str| outcome.stderr.lines().any(|found| found.trim_start() == line);
        ensure!(has("400000 bytes     12500 objects of Circle"), "{runtime}: {outcome}");
        ensure!(outcome.stderr.lines().count() == 10, "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn sampler_draws_what_has_run() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let outcome = run(runtime, "sampler", "Shares", &[&(1000 * times).to_string()], folder.path())?;
        ensure!(outcome.stderr == "sampler: see sampler.svg\n", "{runtime}: {outcome}");
        let picture = fs::read_to_string(folder.path().join("sampler.svg"))?;
        ensure_or_longer!(picture.contains("Shares.Burn(int)"), "{runtime}: {picture}");
        Ok(())
    })
}

#[test]
fn timer_counts_each_call() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = told(&runtime, "timer", "Calls", &["2"])?;
        let line = outcome.stderr.lines().find(|line| line.contains("  Known.Deep("));
        let line = line.with_context(|| format!("{runtime}: {outcome}"))?;
        ensure!(line.split_whitespace().nth(1) == Some("20002"), "{runtime}: {line}");
        ensure!(outcome.stderr.lines().count() == 21, "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn tracer_records_each_call() -> Result<()> {
    for runtime in Runtime::all()? {
        let folder = tempfile::tempdir()?;
        let outcome = run(&runtime, "tracer", "Calls", &["1"], folder.path())?;
        ensure!(outcome.stderr.is_empty(), "{runtime}: {outcome}");
        let trace = perfetto_reader::read(&fs::read(folder.path().join("calls.pftrace"))?);
        let events = || trace.lanes.values().flat_map(|lane| &lane.events);
        let begun = |name: &str| events().filter(|event| event.phase == 'B' && event.name.starts_with(name)).count();
        ensure!(begun("Known.Fib(") == 1973 && begun("Known.Deep(") == 10_001, "{runtime}: {outcome}");
        let [begun, ended] = ['B', 'E'].map(|phase| events().filter(|event| event.phase == phase).count());
        ensure!(begun == ended, "{runtime}: {begun} begun, {ended} ended");
    }
    Ok(())
}

#[test]
fn trace_values_prints_arguments_and_results() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = told(&runtime, "trace_values", "Sample", &[])?;
        for (expected, times) in [
            ("Warehouse.Packer.Pack(Warehouse.Sku, int32) gets ({ Name: \"", 360),
            ("Warehouse.Packer.Pack(Warehouse.Sku, int32) returns void", 360),
            ("Warehouse.Program.Option(string[], string, int32) returns 3", 1),
        ] {
            let found = outcome.stderr.lines().filter(|line| line.starts_with(expected)).count();
            ensure!(found == times, "{runtime}: {found} times {expected}: {outcome}");
        }
        let reads_text =
            |line: &str| line.starts_with("Warehouse.Program.Option(") && line.ends_with(", \"--threads\", 3)");
        ensure!(outcome.stderr.lines().any(reads_text), "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn handlers_prints_arguments_with_what_is_in_objects() -> Result<()> {
    const APP: &str = "Bakery";
    // The archives for Windows and for arm64 have no ASP.NET.
    let has_web = |runtime: &Runtime| !runtime.is_windows() && !runtime.is_emulated();
    for runtime in Runtime::all_for_modern(APP)?.into_iter().filter(has_web) {
        let outcome = told(&runtime, "handlers", APP, &[])?;
        for expected in [
            "Bakery.CakesController.Get(int, string) gets (1, \"cream\")",
            "Bakery.CakesController.Post(Bakery.Order) gets ({ Cake: \"Sacher\", Pieces: 3 })",
            "Bakery.CakesController.Delete(System.Guid) gets ({ _a: 0, ",
            "(string, int?) gets (\"Ada\", { hasValue: true, value: 2 })",
            "(int) gets (1)",
            "(Bakery.Order) gets ({ Cake: \"Linzer\", Pieces: 5 })",
        ] {
            ensure!(outcome.stderr.contains(expected), "{runtime}: no {expected}: {outcome}");
        }
        ensure!(outcome.stderr.lines().count() == 12, "{runtime}: {outcome}");
    }
    Ok(())
}
