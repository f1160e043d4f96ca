//! Instrumentation by ReJIT: the program's output shows what took effect, and each outcome is what it must be by
//! construction.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

const LIBRARY: &str = "instrumentation";

/// The program gives up after five minutes.
const LONGEST: Duration = Duration::from_secs(330);

/// What the program has seen, whether the compiler optimises at once or by tiers.
const SEEN: &str = "Greet: hello > goodbye > hello > again > hello > last but one > last\n\
                    Both: one > three > one\n\
                    Direct: inlined > changed > inlined\n\
                    Caller: inlined > changed > inlined\n\
                    Broken: whole > MissingMethodException > whole\n\
                    Unsound: as it was\n\
                    Kept: kept\n\
                    Box: box of Int32, box of String, box of Object > crate of Int32, crate of String, crate of Object\n\
                    built, unloaded True\n";

/// What the profiler has heard, in order.
const HEARD: [&str; 21] = [
    "Greet: active",
    "Greet: reverted",
    "Greet: active",
    "Greet: reverted",
    "Greet: superseded",
    "Greet: active",
    "Both: active",
    "Both: refused: on purpose",
    "Both: active",
    "Both: active",
    "Broken: failed in 1: ",
    "Unsound: rejected: [StackUnexpected",
    "Never: waiting",
    "Shape.Name: refused: the method has no IL",
    "no method: refused: the module has no such method",
    "nil: refused: the module has no such method",
    "another table: refused: the module has no such method",
    "Generics.dll: refused: the module is collectible",
    "dynamic: refused: the module is dynamic",
    "Throw.dll: unloaded",
    "spans: true",
];

#[test]
fn every_outcome_is_told_and_its_effect_is_seen() -> Result<()> {
    for runtime in Runtime::all()? {
        for tiered in ["0", "1"] {
            let run = Run::new(&runtime, "Instrumented").env("DOTNET_TieredCompilation", tiered);
            let outcome = run.profiler_named(LIBRARY, "Outcomes").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            // The first client's edit may be in effect before the second one comes.
            let seen = outcome.stdout.replace("Both: one > two > three", "Both: one > three");
            ensure!(seen == SEEN, "tiered {tiered}: {outcome}");
            let heard: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("outcomes| ")).collect();
            eprintln!("{heard:#?}");
            for expected in HEARD {
                ensure!(heard.iter().any(|line| line.starts_with(expected)), "{expected}: {outcome}");
            }
        }
    }
    Ok(())
}

/// The profiler's count under `name`; none is 0.
fn count(outcome: &Outcome, line: &str, name: &str) -> Result<u64> {
    let mut lines = outcome.stderr.lines().filter_map(|told| told.strip_prefix(line));
    let told = lines.rfind(|told| told.contains('=')).with_context(|| format!("no {line:?} in {outcome}"))?;
    let value = told.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(value.map_or(Ok(0), str::parse)?)
}

#[test]
fn methods_of_the_framework_are_rebuilt_and_the_program_prints_the_same() -> Result<()> {
    for runtime in Runtime::all()? {
        // A tenth of some 40,000: all of them take 4 s of processor time, which a busy machine does not give in
        // minutes.
        let runs = if runtime.major % 4 == 0 { [("rebuilt", "1")] } else { [("counter", "0")] };
        for (how, tiered) in runs {
            let bare = Run::new(&runtime, "World").run()?;
            let run = Run::new(&runtime, "World")
                .env("DOTNET_TieredCompilation", tiered)
                .env("INSTRUMENTED", how)
                .env("INSTRUMENTED_SHARE", "10");
            let outcome = run.profiler_named(LIBRARY, "Whole").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
            ensure!(!outcome.stderr.contains("panicked") && !outcome.stderr.contains("InvalidProgram"), "{outcome}");
            let [active, failed, rejected, preparing] =
                ["active", "failed", "rejected", "preparing"].map(|name| count(&outcome, "whole| ", name));
            let active = active?;
            let failed = failed?;
            eprintln!("{runtime}, {how}, tiered {tiered}: {}", outcome.stderr);
            ensure!(failed == 0 && rejected? == 0 && preparing? == 0, "{outcome}");
            ensure!(active > 20, "{outcome}");
            ensure!(!outcome.stderr.contains("whole| refused: "), "refused for a reason of its own: {outcome}");
        }
    }
    Ok(())
}

/// A selection of a whole assembly, and a wait for it: it is over when each method is requested or refused, not before.
#[test]
fn a_selection_is_waited_for_until_all_its_methods_are_prepared() -> Result<()> {
    for runtime in Runtime::all()? {
        for how in ["counter", "rebuilt"] {
            let assembly = "System.Linq";
            let run = Run::new(&runtime, "Loads").args([assembly]).env("INSTRUMENTED_ASSEMBLIES", assembly);
            let outcome = run.env("INSTRUMENTED", how).profiler_named(LIBRARY, "Selected").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            eprintln!("{runtime}, {how} {assembly}: {}", outcome.stderr);
            let told = outcome.stderr.lines().find_map(|line| line.strip_prefix("selected| Done: "));
            let told = told.with_context(|| format!("not waited for: {outcome}"))?;
            let methods = told.split(' ').next().context("no number")?.parse::<usize>()?;
            ensure!(methods > 1000 && told.ends_with(" 0 preparing"), "{outcome}");
        }
    }
    Ok(())
}

/// The assemblies whose methods are all compiled with other bodies.
const COMPILED: [&str; 2] = ["System.Linq", "System.Private.Uri"];

/// Compares a program that has all methods of these assemblies compiled, bare and with each kind of edit.
fn compile_all(runtime: &Runtime, names: &[&str], ways: &[(&str, &str)]) -> Result<()> {
    let framework = runtime.framework()?.display().to_string();
    for (how, tiered) in ways {
        // Precompiled code is of the old bodies.
        let run = || {
            let run = Run::new(runtime, "Prepares").args([&framework]).args(names).env("DOTNET_ReadyToRun", "0");
            run.env("DOTNET_TieredCompilation", tiered).timeout(Duration::from_secs(1800))
        };
        let bare = run().run()?;
        bare.exited_with(0)?;
        let outcome = run().env("INSTRUMENTED", how).profiler_named(LIBRARY, "Compiled").run()?;
        println!("{runtime}, {how}, tiered {tiered}: {}{}", outcome.stdout, outcome.stderr);
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == bare.stdout, "without: {bare}\nwith: {outcome}");
        let edited = outcome.stderr.lines().find_map(|line| line.strip_prefix("compiled| ")?.strip_suffix(" edited"));
        ensure!(edited.context("no count")?.parse::<usize>()? > 1000, "{outcome}");
        ensure!(!outcome.stderr.contains("failed") && !outcome.stderr.contains("panicked"), "{outcome}");
        ensure!(*how == "rebuilt" || outcome.stderr.contains("called: true"), "{outcome}");
    }
    Ok(())
}

/// Large assemblies that need no native library of the system when their types are initialised.
const LARGE: &str = "System.Private.CoreLib System.Linq System.Collections System.Text.Json System.Private.Xml \
                     System.Linq.Expressions";

mod long {
    use super::*;

    #[test]
    fn all_methods_of_some_assemblies_are_compiled_with_other_bodies() -> Result<()> {
        for runtime in Runtime::all()? {
            compile_all(&runtime, &COMPILED, &[("rebuilt", "1"), ("counter", "1"), ("probes", "0")])?;
        }
        Ok(())
    }

    /// Every method of large assemblies, in each way: `cargo xtask test --live-only -- --ignored instrumentation::`.
    /// `INSTRUMENTED_ASSEMBLIES` names others.
    #[test]
    #[ignore = "takes many minutes"]
    fn every_method_of_large_assemblies_is_compiled_with_another_body() -> Result<()> {
        let names = std::env::var("INSTRUMENTED_ASSEMBLIES").unwrap_or_else(|_| LARGE.to_owned());
        let names: Vec<_> = names.split_whitespace().collect();
        for runtime in Runtime::all()? {
            if runtime.is_slow() {
                println!("SKIPPED: every method on {runtime}");
                continue;
            }
            for tiered in ["0", "1"] {
                compile_all(&runtime, &names, &[("rebuilt", tiered), ("counter", tiered), ("probes", tiered)])?;
            }
        }
        Ok(())
    }
}
