//! Methods that the runtime itself suspends (runtime async, which .NET 10 offers and later ones use): hooks do not
//! disturb them.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, repetitions};

const APP: &str = "RuntimeAsync";
const SWITCH: (&str, &str) = ("DOTNET_RuntimeAsync", "1");

/// Runs the program bare and under a profiler; it must print the same.
fn both(runtime: &Runtime, profiler: impl Fn(Run) -> Run) -> Result<Outcome> {
    let run = || Run::new(runtime, APP).env(SWITCH.0, SWITCH.1);
    let bare = run().run()?;
    bare.exited_with(0)?;
    let outcome = profiler(run()).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "without: {bare}; with: {outcome}");
    Ok(outcome)
}

/// The runtimes that have it.
fn runtimes() -> Result<Vec<Runtime>> {
    Runtime::all_for_modern(APP)
}

/// The number after `name=`.
fn number(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[test]
fn fast_hooks_keep_what_comes_back_from_methods_that_are_suspended() -> Result<()> {
    for runtime in runtimes()? {
        // A register that is lost by chance does not disturb each run.
        for _ in 0..3 {
            let outcome = both(&runtime, |run| run.profiler_named("hooks", "CountsCalls"))?;
            let threads = outcome.stderr.lines().find(|line| line.starts_with("threads ")).context("no threads")?;
            ensure!(number(threads, "strays") == Some(0), "{outcome}");
            // Such a method is entered each time that it goes on, and leaves once.
            let sum = |of: &str, count: &str| -> u64 {
                // Two threads that compile a function at the same time have a row each.
                let rows = outcome.stderr.lines().filter(|line| line.starts_with("row ") && line.ends_with(of));
                rows.filter_map(|row| number(row, count)).sum()
            };
            for (of, entered, left) in
                [("RuntimeAsync.Deep(int32)", 1100, 550), ("RuntimeAsync.Double(float64)", 120, 100)]
            {
                ensure!((sum(of, "entered"), sum(of, "left")) == (entered, left), "{of}: {outcome}");
            }
        }
        both(&runtime, |run| run.built_in("timer"))?;
        // This one writes the calls between the lines of the program.
        let outcome = Run::new(&runtime, APP)
            .env(SWITCH.0, SWITCH.1)
            .built_in("tracer")
            .env("TRACER_FILTER", "RuntimeAsync*")
            .run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout.contains("sum 13885"), "{outcome}");
    }
    Ok(())
}

#[test]
fn slow_hooks_leave_methods_alone_that_are_suspended() -> Result<()> {
    for runtime in runtimes()? {
        for _ in 0..repetitions(1, 3) {
            let outcome = both(&runtime, |run| run.profiler_named("values", "ReadsValues"))?;
            let counts = outcome.stderr.lines().find(|line| line.starts_with("values=")).context("no counts")?;
            ensure!(number(counts, "values").is_some_and(|values| values > 10_000), "{counts}");
        }
    }
    Ok(())
}

/// The begins and ends of the program's own methods that are not state machines, in the order of the alphabet.
fn traced(outcome: &Outcome, program: &str) -> Vec<String> {
    let own = format!("{program}.");
    let is_written = |method: &str| !method.starts_with('<') && !method.starts_with("Main");
    let is_known = |line: &&str| line.strip_prefix(&own).is_some_and(is_written);
    let shown = |line: &str| match line.split_once(" returns ") {
        Some((method, _)) => format!("{method} returns"),
        // What an instantiation receives is not read by inserted code.
        None => line.split('<').next().unwrap_or_default().to_owned(),
    };
    let mut lines: Vec<_> = outcome.stderr.lines().filter(is_known).map(shown).collect();
    lines.sort();
    lines
}

fn trace(runtime: &Runtime, program: &str, by: &str) -> Result<Outcome> {
    let run = Run::new(runtime, program).env(SWITCH.0, SWITCH.1).built_in("trace_values").env("TRACE_VALUES_BY", by);
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    Ok(outcome)
}

#[test]
fn values_of_methods_that_return_tasks_are_told_in_every_program() -> Result<()> {
    const PROGRAM: &str = "TaskValues";
    const EXPECTED: [&str; 14] = [
        "AsyncAfter returns",
        "AsyncAfter(4)",
        "AsyncBefore returns",
        "AsyncBefore(2)",
        "Generic",
        "Generic",
        "PlainAfter returns",
        "PlainAfter(3)",
        "PlainBefore returns",
        "PlainBefore(1)",
        "Sync returns",
        "Sync(6, \"hello\")",
        "ValueAfter returns",
        "ValueAfter(5)",
    ];
    for runtime in Runtime::all_for_modern(PROGRAM)? {
        for by in ["runtime", "il"] {
            let outcome = trace(&runtime, PROGRAM, by)?;
            let mut told = traced(&outcome, PROGRAM);
            // The ends of generic methods have the names of their instantiations.
            told.retain(|line| !(line.contains("Generic<") && line.ends_with(" returns")));
            let expected: Vec<_> = EXPECTED.iter().map(|method| format!("{PROGRAM}.{method}")).collect();
            ensure!(told == expected, "{told:#?} by {by} on {}: {outcome}", runtime.name);
        }
    }
    Ok(())
}

#[test]
fn forms_of_methods_for_suspended_callers_are_left_out_by_name() -> Result<()> {
    const PROGRAM: &str = "TaskForms";
    for runtime in Runtime::all_for_modern(PROGRAM)? {
        let outcome = trace(&runtime, PROGRAM, "runtime")?;
        ensure!(outcome.stdout.contains("sum 261"), "{outcome}");
        let calls = outcome.stderr.lines().filter(|line| *line == "TaskForms.Slow(12)").count();
        ensure!(calls == 3, "{calls} calls by the form that returns the task: {outcome}");
        for reason in ["form for runtime-async callers", "the runtime itself suspends it"] {
            let told = outcome.stderr.lines().find(|line| line.contains(reason));
            let count = told.and_then(|line| line.strip_prefix("trace_values: ")?.split(' ').next()?.parse().ok());
            ensure!(count.is_some_and(|count: u32| count >= 4), "{reason}: {outcome}");
        }
    }
    Ok(())
}

const PROBED: &str = "AsyncProbes";

/// Runs the program bare and with a profiler; it must print the same.
fn probed(runtime: &Runtime, args: &[&str], profiler: impl Fn(Run) -> Run) -> Result<Outcome> {
    let bare = Run::new(runtime, PROBED).env(SWITCH.0, SWITCH.1).run()?;
    bare.exited_with(0)?;
    let outcome = profiler(Run::new(runtime, PROBED).args(args).env(SWITCH.0, SWITCH.1)).run()?;
    outcome.exited_with(0)?;
    let twice = format!("{0}{0}again\n", bare.stdout);
    ensure!(outcome.stdout == if args.is_empty() { bare.stdout } else { twice }, "{outcome}");
    Ok(outcome)
}

#[test]
fn probes_of_suspended_methods_see_each_call_once_with_its_result() -> Result<()> {
    for runtime in Runtime::all_for_modern(PROBED)? {
        for tiered in ["0", "1"] {
            let outcome = probed(&runtime, &[], |run| {
                run.env("DOTNET_TieredCompilation", tiered).profiler_named("probes", "WritesAll")
            })?;
            let told: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("probes| ")).collect();
            for (line, count) in [
                ("AsyncProbes.Add (3, \"four\")", 1),
                ("AsyncProbes.Add = 7", 1),
                ("AsyncProbes.Half (5)", 1),
                ("AsyncProbes.Half = 0.5", 1),
                ("AsyncProbes.Half = 2.5", 1),
                ("AsyncProbes.Text = \"t2\"", 1),
                ("AsyncProbes.Both = {6 \"seven\"}", 1),
                ("AsyncProbes.Nothing (2)", 1),
                ("AsyncProbes.Nothing = void", 3),
                ("AsyncProbes.Instance object.(11)", 1),
                ("AsyncProbes.Instance = 21", 1),
                ("AsyncProbes.Throws throws", 1),
                ("AsyncProbes.Throws unwound", 1),
                ("AsyncProbes.Throws = void", 0),
            ] {
                let found = told.iter().filter(|told| **told == line).count();
                ensure!(found == count, "{found} times, not {count}: {line} in {told:#?}");
            }
            ensure!(!told.iter().any(|line| line.contains("runtime-async")), "{told:#?}");
        }
    }
    Ok(())
}

#[test]
fn inserted_hooks_of_beginnings_read_the_arguments_of_suspended_methods() -> Result<()> {
    for runtime in Runtime::all_for_modern(PROBED)? {
        for tiered in ["0", "1"] {
            let outcome = probed(&runtime, &[], |run| {
                run.env("DOTNET_TieredCompilation", tiered).profiler_named("values", "WritesSuspended")
            })?;
            let begun: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("begins: ")).collect();
            for (call, count) in [
                ("AsyncProbes.Add(3, \"four\")", 1),
                ("AsyncProbes.Half(5)", 1),
                ("AsyncProbes.Both(6, \"seven\")", 1),
                ("AsyncProbes.Nothing(2)", 1),
                ("AsyncProbes.Nothing(0)", 1),
                ("AsyncProbes.Instance(11)", 1),
                ("AsyncProbes.Throws(1)", 1),
            ] {
                let found = begun.iter().filter(|begun| **begun == call).count();
                ensure!(found == count, "{found} times, not {count}: {call} in {begun:#?}");
            }
            ensure!(!outcome.stderr.contains("left out"), "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn suspended_methods_are_recompiled_or_refused_by_name() -> Result<()> {
    for runtime in Runtime::all_for_modern(PROBED)? {
        let outcome = probed(&runtime, &["wait"], |run| run.profiler_named("instrumentation", "Suspended"))?;
        let told: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("suspended| ")).collect();
        // What a runtime does is what it says: no request is lost without a word.
        let is_refused = told.iter().all(|line| line.contains("this runtime ignores requests to recompile"));
        let expected = [
            "Add: 1 entered, 1 left, 0 thrown",
            "Half: 2 entered, 2 left, 0 thrown",
            "Both: 1 entered, 1 left, 0 thrown",
            "Generic: 2 entered, 2 left, 0 thrown",
            "Throws: 1 entered, 0 left, 1 thrown",
        ];
        ensure!(told.len() == expected.len(), "{outcome}");
        ensure!(is_refused || told == expected, "{outcome}");
        ensure!(is_refused != runtime.has(Difference::RecompiledSuspensions), "{outcome}");
    }
    Ok(())
}

/// Counters and inserted hooks of beginnings are in the IL, which a method that goes on does not run from its
/// beginning.
#[test]
fn a_call_that_is_suspended_is_counted_once() -> Result<()> {
    const PAUSES: &str = "AsyncPauses";
    for runtime in Runtime::all_for_modern(PAUSES)? {
        for tiered in ["0", "1"] {
            let run = Run::new(&runtime, PAUSES).args(["70", "1", "0"]).env(SWITCH.0, SWITCH.1);
            let run = run.env("DOTNET_TieredCompilation", tiered).built_in("count_calls");
            let outcome = run.env("COUNT_CALLS_FILTER", "AsyncPauses.*").run()?;
            outcome.exited_with(0)?;
            ensure!(!outcome.stderr.contains("not counted"), "{outcome}");
            for (method, calls) in [("Pause(int)", 70), ("Outer()", 1), ("Work(int)", 140)] {
                let row = outcome.stderr.lines().find(|line| line.ends_with(&format!("  AsyncPauses.{method}")));
                let counted = row.and_then(|row| row.strip_prefix("count_calls: ")?.split_whitespace().next());
                ensure!(counted == Some(&*calls.to_string()), "{method}: {counted:?} calls: {outcome}");
            }
        }
    }
    Ok(())
}

/// State machines have the calls of their parts, which is said; of methods that the runtime itself suspends inserted
/// code cannot tell the ends, which is said of each way.
#[test]
fn what_inserted_hooks_cannot_tell_of_pauses_is_said_at_once() -> Result<()> {
    const MACHINES: &str = "MachinePauses";
    const PAUSES: &str = "AsyncPauses";
    for runtime in Runtime::all_for_modern(PAUSES)? {
        for (profiler, prefix) in [("timer", "TIMER"), ("tracer", "TRACER")] {
            for (program, expected) in
                [(PAUSES, "3 methods cannot be "), (MACHINES, "of an async method each part that runs is a call ")]
            {
                let expected = format!("{profiler}: {expected}");
                let run = Run::new(&runtime, program).args(["5", "10", "1"]).env(SWITCH.0, SWITCH.1);
                let run = run.built_in(profiler).env(format!("{prefix}_BY"), "il");
                let outcome = run.env(format!("{prefix}_FILTER"), format!("{program}*")).run()?;
                outcome.exited_with(0)?;
                ensure!(outcome.stderr.lines().any(|line| line.starts_with(&expected)), "{expected}: {outcome}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_shadow_stack_is_the_stack_in_methods_that_are_suspended() -> Result<()> {
    for runtime in runtimes()? {
        let outcome = both(&runtime, |run| run.profiler("shadow"))?;
        for event in ["thrown", "search", "catch"] {
            let line = outcome.stderr.lines().find(|line| line.starts_with(&format!("event {event}: ")));
            let line = line.with_context(|| format!("no {event}: {outcome}"))?;
            ensure!(
                number(line, "different") == Some(0) && number(line, "same").is_some_and(|same| same > 20),
                "{outcome}"
            );
        }
        let hooks = outcome.stderr.lines().find(|line| line.starts_with("hooks: ")).context("no hooks")?;
        ensure!(number(hooks, "strays") == Some(0), "{outcome}");
    }
    Ok(())
}

#[test]
fn classes_that_the_runtime_makes_for_suspended_methods_have_a_name() -> Result<()> {
    for runtime in runtimes()? {
        let outcome = both(&runtime, |run| run.built_in("logger").env("LOGGER_EVENTS", "class"))?;
        let loads =
            |name: &str| outcome.stderr.lines().filter(|line| line.contains("class") && line.ends_with(name)).count();
        ensure!(!outcome.stderr.contains("<unknown class"), "{outcome}");
        let continuations = loads("System.Runtime.CompilerServices.Continuation");
        println!("{runtime}: {continuations} loads of continuations");
        ensure!(continuations > 1 || !runtime.has(Difference::ClassesOfContinuations), "{outcome}");
    }
    Ok(())
}
