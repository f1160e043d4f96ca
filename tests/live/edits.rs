//! Edited bodies: the program's output shows that they run, once, in both modes of the compiler; refused ones are not
//! run.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

const LIBRARY: &str = "edits";

/// Runs the program under a profiler, optimised at once and by tiers.
fn in_both_modes(profiler: &str, args: &[&str], check: impl Fn(&Outcome) -> Result<()>) -> Result<()> {
    for runtime in Runtime::all()? {
        for tiered in ["0", "1"] {
            let run = Run::new(&runtime, "Edits").args(args).env("DOTNET_TieredCompilation", tiered);
            let outcome = run.profiler_named(LIBRARY, profiler).run()?;
            outcome.exited_with(0)?;
            ensure!(!outcome.stderr.contains("panicked"), "tiered {tiered}: {outcome}");
            check(&outcome)?;
        }
    }
    Ok(())
}

/// What the program prints behind the greetings: numbers of calls and rounds, a method that was not changed, and two
/// that cannot be.
const REST: &str = "goodbye Int32, goodbye String\n\
                    300000, 300001 rounds, 100000 calls\n\
                    as it was, 7\n\
                    dynamic method, dynamic module\n";

#[test]
fn methods_are_edited_when_they_are_compiled() -> Result<()> {
    in_both_modes("WhenCompiled", &[], |outcome| {
        ensure!(outcome.stdout == format!("goodbye\n{REST}"), "{outcome}");
        let lines: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("edits| ")).collect();
        for expected in [
            "Loop: true",
            "Seen: true",
            "dynamic: a dynamic method, or a stub of the runtime, has no body that could be replaced",
            "tail calls: the runtime makes explicit tail calls by this method, and may not be able to compile another body",
            "BuiltMethod: None: the module is dynamic: the application still adds to it",
            "100000 calls",
        ] {
            ensure!(lines.contains(&expected), "not told: {expected}: {outcome}");
        }
        // Once for the class, and once for all instantiations of the generic class; then it comes again.
        ensure!(lines.iter().filter(|line| **line == "Greet: true").count() == 2, "{outcome}");
        ensure!(lines.contains(&"Greet: false"), "{outcome}");
        for refused in ["Unsound: Some(StackUnexpected)", "UnsoundOfAny: Some(Assignment)"] {
            let is_refused = |line: &&str| line.starts_with(&format!("{refused}: the edited body breaks "));
            ensure!(lines.iter().any(is_refused), "{refused}: {outcome}");
        }
        Ok(())
    })
}

#[test]
fn methods_are_edited_by_rejit() -> Result<()> {
    in_both_modes("ByReJit", &["wait"], |outcome| {
        let expected = format!("hello\ngoodbye\n{}", REST.replace("goodbye ", "hello "));
        ensure!(outcome.stdout == expected, "{outcome}");
        for expected in ["edits| 3 requested: Ok(())", "edits| Unsound: Some(StackUnexpected)", "edits| given: Ok(())"]
        {
            ensure!(outcome.stderr.contains(expected), "not told: {expected}: {outcome}");
        }
        ensure!(!outcome.stderr.contains("not compiled"), "{outcome}");
        Ok(())
    })
}

#[test]
fn calls_are_redirected_only_where_arguments_and_results_fit() -> Result<()> {
    for runtime in &Runtime::all()? {
        let bare = Run::new(runtime, "Calls").args(["1"]).run()?;
        let outcome = Run::new(runtime, "Calls").args(["1"]).profiler_named(LIBRARY, "Redirects").run()?;
        outcome.exited_with(0)?;
        // Fifteen steps down are 15.
        let expected = bare.stdout.replace("fib 610 deep", "fib 15 deep");
        ensure!(outcome.stdout == expected && bare.stdout.contains("fib 610"), "without: {bare}; with: {outcome}");
        let told = outcome.stderr.lines().find_map(|line| line.strip_prefix("edits| refused="));
        let (refused, redirected) = told.and_then(|told| told.split_once(" redirected=")).context("no counts")?;
        ensure!(redirected == "1" && refused.parse::<u32>()? > 190, "{outcome}");
    }
    Ok(())
}
