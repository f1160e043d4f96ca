//! Probes: what they see is what the program did, and the program does not notice.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

const LIBRARY: &str = "probes";
const MODES: [&str; 2] = ["0", "1"];

fn run(runtime: &Runtime, app: &str, args: &[&str], tiered: &str) -> Run {
    Run::new(runtime, app).args(args).env("DOTNET_TieredCompilation", tiered)
}

/// Runs a program bare, and under a profiler optimised at once and by tiers: it must print the same.
fn in_both_modes(
    runtime: &Runtime,
    app: &str,
    args: &[&str],
    profiler: &str,
    check: impl Fn(&Outcome) -> Result<()>,
) -> Result<()> {
    for tiered in MODES {
        let bare = run(runtime, app, args, tiered).run()?;
        bare.exited_with(0)?;
        let outcome = run(runtime, app, args, tiered).profiler_named(LIBRARY, profiler).run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == bare.stdout, "tiered {tiered}: without: {bare}\nwith: {outcome}");
        check(&outcome).with_context(|| format!("tiered {tiered}: {outcome}"))?;
    }
    Ok(())
}

fn lines(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter_map(|line| line.strip_prefix("probes| ")).collect()
}

/// Whether these lines come one right after the other.
fn has(lines: &[&str], expected: &[&str]) -> Result<()> {
    let found = lines.windows(expected.len()).any(|window| window == expected);
    ensure!(found, "not seen: {expected:#?}");
    Ok(())
}

#[test]
fn probes_see_what_methods_receive_and_return() -> Result<()> {
    for runtime in Runtime::all()? {
        in_both_modes(&runtime, "Probes", &[], "WritesAll", |outcome| {
            let seen = lines(outcome);
            ensure!(!outcome.stderr.contains("panicked"), "a panic");
            for expected in [
                &["Probes.Main (object)", "Probes.Once ()", "Probes.Nothing ()", "Probes.Nothing = void"][..],
                &["Probes.Add (2, -3)", "Probes.Add = -1"],
                &["Probes.Mix (1.5, 2.25, 1099511627776, -8, true, 'x', 65535)", "Probes.Mix = 1099511693426.75"],
                &["Probes.Join (\"text\", null, object)", "Probes.Join = \"textTrue3\""],
                &["Probes.Join (\"\", object, object)", "Probes.Join = \"False0\""],
                &["Probes.Other (enum 1)", "Probes.Other = enum 2"],
                &["Probes.Grow ({1 2 3 4 0.5 \"f\"}, 10)", "Probes.Grow = {11 2 3 4 0.5 \"f10\"}"],
                &["Pair.Plus &{7 ?ObjectBehindByRef}.(3)", "Pair.Plus = 10"],
                &["Probes.Swap (&5, &?ObjectBehindByRef, &0)", "Probes.Swap = void"],
                &["Probes.Same<float64> (?TypeParameter, 1)", "Probes.Same<float64> = ?TypeParameter"],
                &["Probes.Same<float64> (?TypeParameter, 2)", "Probes.Same<float64> = ?TypeParameter"],
                &[
                    "Cell<int32>.Put object.(?TypeParameter, 2, null, null, ?TypeParameter)",
                    "Cell<int32>.Put = ?TypeParameter",
                ],
                &[
                    "Cell<int32>.Put object.(?TypeParameter, 3, object, object, ?TypeParameter)",
                    "Cell<int32>.Put = ?TypeParameter",
                ],
                &[
                    "Probes.Many (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ?TooManyArguments)",
                    "Probes.Many = 153",
                ],
                &["Probes.Several (0)", "Probes.Several = 10", "Probes.Several (1)", "Probes.Several = 11"],
                &["Probes.Several (3)", "Probes.Several = 3", "Probes.Several (9)", "Probes.Several = 77"],
                &[
                    "Probes.Fib (2)",
                    "Probes.Fib (1)",
                    "Probes.Fib = 1",
                    "Probes.Fib (0)",
                    "Probes.Fib = 0",
                    "Probes.Fib = 1",
                ],
                &[
                    "Node..ctor object.(2, null)",
                    "Node..ctor = void",
                    "Node..ctor object.(1, object)",
                    "Node..ctor = void",
                ],
                &["Node.Sum object.()", "Node.Sum object.()", "Node.Sum = 2", "Node.Sum = 3"],
                &["Probes.Throws = 0", "Probes.Handles = 0"],
            ] {
                has(&seen, expected)?;
            }
            let fib = seen.iter().filter(|line| line.starts_with("Probes.Fib (")).count();
            let ends = seen.len();
            ensure!(fib == 15, "{fib} calls of Fib in {ends} lines");
            Ok(())
        })?;
    }
    Ok(())
}

/// How `Handles(1)` goes, in which `Throws` throws.
const THROWN: &[&str] = &[
    "Probes.Handles (1)",
    "Probes.Throws (1)",
    "Probes.Mark (\"body\")",
    "Probes.Mark = true",
    "Probes.Throws throws",
    "Probes.Mark (\"filter of the caller\")",
    "Probes.Mark = true",
    "Probes.Mark (\"inner finally\")",
    "Probes.Mark = true",
    "Probes.Throws unwound",
    "Probes.Mark (\"handler of the caller\")",
    "Probes.Mark = true",
    "Probes.Handles = 8",
];

/// How `Replaces` goes: its `finally` block throws another exception.
const REPLACED: &[&str] = &[
    "Probes.Replaces ()",
    "Probes.Replaces throws",
    "Probes.Throws (2)",
    "Probes.Mark (\"body\")",
    "Probes.Mark = true",
    "Probes.Throws throws",
    "Probes.Replaces throws",
    "Probes.Mark (\"inner finally\")",
    "Probes.Mark = true",
    "Probes.Throws unwound",
    "Probes.Replaces unwound",
];

#[test]
fn exceptions_are_seen_in_both_passes_and_keep_their_order() -> Result<()> {
    for runtime in Runtime::all()? {
        in_both_modes(&runtime, "Probes", &[], "WritesAll", |outcome| {
            let seen: Vec<_> = lines(outcome).into_iter().filter(|line| !line.contains(".<")).collect();
            has(&seen, THROWN)?;
            has(&seen, REPLACED)?;
            has(&seen, &["Probes.OnlyThrows ()", "Probes.OnlyThrows throws"])?;
            ensure!(!seen.contains(&"Probes.OnlyThrows = void"), "a method that never returns has returned");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn several_probes_in_a_method_are_nested() -> Result<()> {
    for runtime in Runtime::all()? {
        in_both_modes(&runtime, "Probes", &[], "WritesThrice", |outcome| {
            let seen = lines(outcome);
            for expected in [
                &[
                    "outer Probes.Add (2, -3)",
                    "middle Probes.Add (2, -3)",
                    "inner Probes.Add (2, -3)",
                    "inner Probes.Add = -1",
                    "middle Probes.Add = -1",
                    "outer Probes.Add = -1",
                ][..],
                &["inner Probes.Several = 77", "middle Probes.Several = 77", "outer Probes.Several = 77"],
                &["outer Probes.OnlyThrows ()", "middle Probes.OnlyThrows ()", "inner Probes.OnlyThrows ()"],
                &["middle Probes.Throws unwound", "outer Probes.Mark (\"handler of the caller\")"],
            ] {
                has(&seen, expected)?;
            }
            // The program has one thread, and its last line is written by the profiler: each call was counted and seen
            // to begin.
            let last = seen.last().context("no lines")?;
            let (counted, begun) = last.split_once(" counted, ").context("no counts")?;
            ensure!(begun.strip_suffix(" begun") == Some(counted) && counted != "0", "{last}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn probes_are_right_in_the_methods_of_todays_language() -> Result<()> {
    for runtime in Runtime::all_for_modern("ProbesModern")? {
        in_both_modes(&runtime, "ProbesModern", &[], "WritesAll", |outcome| {
            let seen = lines(outcome);
            ensure!(!outcome.stderr.contains("panicked"), "a panic");
            let refused: Vec<_> = seen.iter().filter(|line| line.contains(": ")).collect();
            ensure!(refused.is_empty(), "refused: {refused:?}");
            for expected in [
                &["ProbesModern.Slice ({&1 4}, 1)", "ProbesModern.Slice = {&2 3}"][..],
                &["ProbesModern.Trimmed ({&' ' 10})", "ProbesModern.Trimmed = {&'t' 7}"],
                &["ProbesModern.At (object, 2)", "ProbesModern.At = &3"],
                &["ProbesModern.Moved (&{1 2.5}, 4)"],
                &["ProbesModern.Moved = {5 2.5}"],
                &["ProbesModern.Tuple ({false 0}, {5 \"five\"})", "ProbesModern.Tuple = {5 \"five\"}"],
                &["ProbesModern.Tuple ({true 6}, {5 \"five\"})", "ProbesModern.Tuple = {6 \"five\"}"],
                &["ProbesModern.Pointed (pointer, pointer)"],
                &["ProbesModern.Stack (50)", "ProbesModern.Stack = 49"],
                &["Square.Area &{3}.()", "Square.Area = 9"],
                &["ProbesModern.Filtered (0)", "ProbesModern.Filtered = false"],
                &["ProbesModern.Filtered (2)", "ProbesModern.Filtered = true"],
                &["ProbesModern.Filtered (1)", "ProbesModern.Filtered throws", "ProbesModern.Filtered unwound"],
            ] {
                has(&seen, expected)?;
            }
            let has_method = |name: &str| seen.iter().any(|line| line.contains(name));
            for name in ["<Numbers>", "<Later>", "SidesOf", "Locked", "Window.First", "IShape.Twice"] {
                ensure!(has_method(name), "no probe in {name}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn values_are_right_while_collections_run() -> Result<()> {
    for runtime in Runtime::all()? {
        in_both_modes(&runtime, "Probes", &["storm"], "ComparesAll", |outcome| {
            ensure!(!outcome.stderr.contains("panicked"), "a panic");
            // `Check` is called so often and returns as often; every 512th round throws.
            let thrown = 3 * 4_000_u32.div_ceil(512);
            let expected = format!("12000 calls, {} ends, {thrown} thrown, 0 wrong", 12_000 + thrown);
            ensure!(lines(outcome) == [expected.as_str()], "expected {expected}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_panic_in_a_probe_ends_the_probes_only() -> Result<()> {
    for runtime in Runtime::all()? {
        in_both_modes(&runtime, "Probes", &[], "Panics", |outcome| {
            let expected = "the profiler Panics panicked in enter and is disabled; the application goes on";
            ensure!(outcome.stderr.matches(expected).count() == 1, "not told once");
            ensure!(outcome.stderr.contains("on purpose, with ("), "no message");
            ensure!(!outcome.stderr.contains("called again"), "called after a panic");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn probes_may_be_called_after_the_end_of_the_application() -> Result<()> {
    for runtime in Runtime::all()? {
        for _ in 0..2 {
            in_both_modes(&runtime, "Probes", &["leave"], "ComparesAll", |outcome| {
                let [line] = lines(outcome)[..] else { anyhow::bail!("not one line") };
                ensure!(line.ends_with(" 0 wrong") && !line.starts_with("0 calls"), "{line}");
                Ok(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn every_method_may_have_a_probe() -> Result<()> {
    for runtime in Runtime::all()? {
        in_both_modes(&runtime, "Probes", &[], "EveryMethod", |outcome| {
            let seen = lines(outcome);
            ensure!(!outcome.stderr.contains("panicked"), "a panic");
            let edited = seen.iter().find_map(|line| line.strip_prefix("edited ")?.split(',').next());
            let edited: u32 = edited.context("no totals")?.parse()?;
            ensure!(edited > 100, "{edited} methods only");
            let refused: Vec<_> = seen.iter().filter(|line| line.starts_with("not edited")).collect();
            ensure!(refused.is_empty(), "{} refused: {refused:#?}", refused.len());
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn trace_values_prints_calls_with_their_values_and_ends() -> Result<()> {
    for runtime in Runtime::all()? {
        let bare = Run::new(&runtime, "Jumps").run()?;
        for by in ["il", "il-all", "runtime"] {
            let run = || Run::new(&runtime, "Jumps").built_in("trace_values").env("TRACE_VALUES_BY", by);
            // Without `Down`, which ends in itself a million times.
            let outcome = run().env("TRACE_VALUES", "Jumps.[!D]*").run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "{by}: without: {bare}\nwith: {outcome}");
            let told: Vec<_> = outcome.stderr.lines().collect();
            for (expected, count) in [
                ("Jumps.Jump(5)", 1),
                ("Jumps.Jump ends in a tail call", 1),
                ("Jumps.Landed(5)", 1),
                ("Jumps.Landed returns 6", 1),
                ("Jumps.Shared(0)", 1),
                ("Jumps.Shared returns 7", 1),
                ("Jumps.Shared(3)", 1),
                ("Jumps.Shared ends in a tail call", 1),
                ("Jumps.Landed(3)", 1),
                ("Jumps.Landed returns 4", 1),
                ("Jumps.Say(0)", 1),
                ("Jumps.Say returns void", 4),
            ] {
                let found = told.iter().filter(|line| **line == expected).count();
                ensure!(found == count, "{by}: {found} times {expected}: {outcome}");
            }
            ensure!(!outcome.stderr.contains("cannot be traced"), "{by}: {outcome}");

            let run = Run::new(&runtime, "Probes").built_in("trace_values").env("TRACE_VALUES_BY", by);
            let outcome = run.env("TRACE_VALUES", "Probes.[HT]*").run()?;
            outcome.exited_with(0)?;
            has(
                &outcome.stderr.lines().collect::<Vec<_>>(),
                &[
                    "Probes.Handles(1)",
                    "Probes.Throws(1)",
                    "Probes.Throws is left by an exception",
                    "Probes.Handles returns 8",
                ],
            )?;
            ensure!(!outcome.stderr.contains("Probes.Add"), "the filter: {outcome}");
        }
        for (name, value, cure) in [
            ("TRACE_VALUES", "[", "TRACE_VALUES=[: "),
            ("TRACE_VALUES_BY", "li", "TRACE_VALUES_BY=li: give runtime, il or il-all"),
        ] {
            let outcome = Run::new(&runtime, "Jumps").built_in("trace_values").env(name, value).run()?;
            outcome.exited_with(0)?;
            let is_refused = outcome.stderr.contains("the profiler TraceValues is not loaded");
            ensure!(is_refused && outcome.stderr.contains(cure), "{name}={value}: {outcome}");
        }
    }
    Ok(())
}
