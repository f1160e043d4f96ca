//! Runtimes compile all bodies that the verifier of corprof-il accepts, by the files or inside the process: verdict
//! against outcome.

use anyhow::{Result, ensure};
use corprof_tests::mutants::{Plan, Source, compare};
use corprof_tests::{Run, Runtime, repetitions};

const SEED: u64 = 17;

/// Assemblies of all sorts of code: generics, spans and pointers, iterators, expression trees, text.
const ASSEMBLIES: &[&str] = &[
    "System.Linq",
    "System.Collections",
    "System.Collections.Immutable",
    "System.Private.Uri",
    "System.Text.Json",
    "System.Text.RegularExpressions",
    "System.Net.Http",
    "System.Reflection.Metadata",
    "System.Security.Cryptography",
    "System.Linq.Expressions",
    "System.Private.Xml",
    "Microsoft.VisualBasic.Core",
];

fn none(mutants: &[String], what: &str) -> Result<()> {
    let shown: Vec<&str> = mutants.iter().take(20).map(String::as_str).collect();
    ensure!(mutants.is_empty(), "{} {what}:\n{}", mutants.len(), shown.join("\n\n"));
    Ok(())
}

fn agree(plan: &Plan, most_refused: f64) -> Result<()> {
    for runtime in Runtime::all()? {
        // Verdicts do not depend on the system, and compiling takes ten times as long there.
        if runtime.is_slow() {
            println!("SKIPPED: mutants on {runtime}");
            continue;
        }
        let tally = compare(&runtime, plan)?;
        println!("{tally}");
        none(&tally.holes, "holes in the verifier")?;
        none(&tally.live_holes, "holes in the verifier inside the process, where all references are loaded")?;
        none(&tally.live_refused, "bodies that only the verifier inside the process refuses")?;
        ensure!(tally.compiled * 10 > plan.mutants, "of so few nothing is learned: {tally}");
        ensure!(tally.refused_share() <= most_refused, "too much is refused: {tally}");
    }
    Ok(())
}

#[test]
fn what_the_verifier_takes_is_compiled() -> Result<()> {
    // Of so few, the share that is refused is known to some per cent only.
    let source = Source::Mutated;
    agree(
        &Plan { source, mutants: repetitions(500, 3000), seed: SEED, assemblies: &ASSEMBLIES[..4], every_refused: 4 },
        0.5,
    )
}

#[test]
fn what_is_made_for_the_verifier_is_compiled() -> Result<()> {
    let source = Source::Generated;
    agree(
        &Plan { source, mutants: repetitions(20, 150), seed: SEED, assemblies: &ASSEMBLIES[..4], every_refused: 1 },
        0.0,
    )
}

#[test]
fn what_is_made_without_other_modules_is_refused_where_they_are_loaded() -> Result<()> {
    let source = Source::GeneratedAlone;
    agree(
        &Plan { source, mutants: repetitions(20, 150), seed: SEED, assemblies: &ASSEMBLIES[..4], every_refused: 1 },
        0.3,
    )
}

/// The fact behind `Target` of the verifier: the compiler dies of a body that takes for a reference what a read-only
/// field holds, also if it inlines the method that does so; and not if the field may be written. Nobody calls the body.
#[test]
fn the_compiler_dies_of_references_that_read_only_fields_do_not_hold() -> Result<()> {
    for runtime in Runtime::all()? {
        for reader in ["own", "inlined"] {
            let run = |field: &str| Run::new(&runtime, "FoldedStatics").args([field, reader]);
            let read = |field: &str| run(field).env("DOTNET_DbgEnableMiniDump", "0").run();
            let fixed = read("Fixed")?;
            let is_dead = fixed.status.code().is_none_or(|code| code != 0) && fixed.stdout.is_empty();
            ensure!(is_dead, "{runtime}, {reader}: {fixed}");
            let written = read("Written")?;
            written.exited_with(0)?;
            ensure!(written.stdout.trim() == "compiled", "{runtime}, {reader}: {written}");
        }
    }
    Ok(())
}

mod long {
    use super::*;

    fn variable(name: &str) -> Option<u64> {
        std::env::var(name).ok()?.parse().ok()
    }

    fn agree_on_many(source: Source) -> Result<()> {
        let mutants = variable("CORPROF_IL_MUTANTS").and_then(|number| number.try_into().ok()).unwrap_or(100_000);
        let seed = variable("CORPROF_IL_SEED").unwrap_or(SEED);
        agree(&Plan { source, mutants, seed, assemblies: ASSEMBLIES, every_refused: 10 }, 0.4)
    }

    /// 100,000 mutants, or as many as `CORPROF_IL_MUTANTS` says: `cargo xtask test --live-only -- --ignored il::`.
    #[test]
    #[ignore = "takes many minutes"]
    fn a_hundred_thousand_mutants() -> Result<()> {
        agree_on_many(Source::Mutated)
    }

    /// As many bodies that are made from nothing.
    #[test]
    #[ignore = "takes many minutes"]
    fn a_hundred_thousand_generated_bodies() -> Result<()> {
        agree_on_many(Source::Generated)
    }

    /// As many that are made without a look at other modules.
    #[test]
    #[ignore = "takes many minutes"]
    fn a_hundred_thousand_bodies_made_without_other_modules() -> Result<()> {
        agree_on_many(Source::GeneratedAlone)
    }
}
