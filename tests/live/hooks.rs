//! Enter/leave hooks: the application's results are the same to the last bit, every call is heard of, and nothing else
//! happens.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, repetitions};

const LIBRARY: &str = "hooks";

/// Methods of the program FirstCalls, and how often it calls them.
pub(crate) const FIRST_CALLS: [(&str, u64); 6] = [
    ("Own<", 400),
    ("FirstCalls.Add(", 100),
    ("FirstCalls.Loop(", 100),
    ("FirstCalls.Catch(", 100),
    ("FirstCalls.Same<", 200),
    ("FirstCalls.Main(", 1),
];

/// Methods of the framework that it calls.
const FRAMEWORK: [(&str, u64); 12] = [
    ("System.Xml.XmlConvert.ToInt16(", 100),
    ("System.Xml.XmlConvert.ToInt32(", 100),
    ("System.Xml.XmlConvert.ToInt64(", 100),
    ("System.Xml.XmlConvert.ToUInt16(", 100),
    ("System.Xml.XmlConvert.ToUInt32(", 100),
    ("System.Xml.XmlConvert.ToUInt64(", 100),
    ("System.Xml.XmlConvert.ToByte(", 100),
    ("System.Xml.XmlConvert.ToSByte(", 100),
    ("System.Xml.XmlConvert.ToBoolean(", 100),
    ("System.Xml.XmlConvert.ToChar(", 100),
    ("System.Xml.XmlConvert.ToDecimal(", 100),
    ("System.Xml.XmlConvert.ToTimeSpan(", 100),
];

/// How often a function was entered, left and ended in a tail call.
type Count = (u64, u64, u64);

/// The report of the profiler CountsCalls: the counts by name, and of threads.
struct Said {
    rows: BTreeMap<String, Count>,
    threads: BTreeMap<String, u64>,
}

impl Said {
    fn of(outcome: &Outcome) -> Result<Self> {
        let number = |word: &str, name: &str| -> Result<u64> {
            Ok(word.strip_prefix(name).with_context(|| format!("no {name} in {word:?}"))?.parse()?)
        };
        let mut rows = BTreeMap::<_, Count>::new();
        for line in outcome.stderr.lines().filter_map(|line| line.strip_prefix("row ")) {
            let mut words = line.splitn(4, ' ');
            let mut next = || words.next().context("a short row");
            let entered = number(next()?, "entered=")?;
            let left = number(next()?, "left=")?;
            let tail_called = number(next()?, "tail=")?;
            // Instantiations and overloads may share a name.
            let row = rows.entry(next()?.to_owned()).or_default();
            *row = (row.0 + entered, row.1 + left, row.2 + tail_called);
        }
        let threads = outcome.stderr.lines().find_map(|line| line.strip_prefix("threads "));
        let threads = threads.with_context(|| format!("nothing of threads: {outcome}"))?;
        let threads = threads.split(' ').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Self { rows, threads: threads.collect() })
    }

    fn row(&self, name: &str) -> Count {
        self.rows.get(name).copied().unwrap_or_default()
    }
}

/// Runs `app` with and without the profiler; it must print the same.
fn both(runtime: &Runtime, app: &str, args: &[&str], profiler: &str, select: Option<&str>) -> Result<Outcome> {
    let bare = Run::new(runtime, app).args(args).run()?;
    let mut run = Run::new(runtime, app).args(args).profiler_named(LIBRARY, profiler);
    if let Some(prefixes) = select {
        run = run.env("HOOKS_SELECT", prefixes);
    }
    let outcome = run.run()?;
    ensure!(outcome.status.code().is_some() && outcome.status == bare.status, "without: {bare}; with: {outcome}");
    ensure!(outcome.stdout == bare.stdout, "without: {bare}; with: {outcome}");
    Ok(outcome)
}

/// That each thread's state was made and ended once, and used by its own thread, for calls that nest.
fn threads_are_in_order(said: &Said, outcome: &Outcome) -> Result<()> {
    let [started, ended] = ["started", "ended"].map(|name| said.threads.get(name).copied().unwrap_or_default());
    ensure!(started > 0 && started == ended, "threads: {started} started, {ended} ended: {outcome}");
    for name in ["strays", "mixups"] {
        ensure!(said.threads.get(name) == Some(&0), "{name}: {outcome}");
    }
    ensure!(outcome.stderr.matches("calls dropped").count() == 1, "{outcome}");
    Ok(())
}

#[test]
fn all_calls_are_heard_of_and_the_results_are_the_same() -> Result<()> {
    const ROUNDS: u64 = 40;
    for runtime in Runtime::all()? {
        // Long enough for the hot methods to be compiled a second time, optimised.
        let outcome = both(&runtime, "Calls", &[&ROUNDS.to_string()], "CountsCalls", None)?;
        let said = Said::of(&outcome)?;
        threads_are_in_order(&said, &outcome)?;
        ensure!(said.rows.len() > 300, "only {} functions are hooked: {outcome}", said.rows.len());
        for (name, entered, left) in [
            ("Known.Fib(int32)", 1973, 1973),
            ("Known.Deep(int32)", 10_001, 10_001),
            // A method that an exception leaves has no leave hook: see the program.
            ("Known.Outer(int32)", 100, 88),
            ("Known.Inner(int32)", 100, 75),
            ("Known.Throw(int32)", 25, 0),
            ("Known.Filter(int32)", 25, 25),
            ("Known.Cleanup()", 100, 100),
        ] {
            let (e, l, t) = said.row(name);
            ensure!((e, l + t) == (entered * ROUNDS, left * ROUNDS), "{runtime}: {name}: {e}, {l}, {t} in {outcome}");
        }
        // For all other methods: none ends more often than it begins.
        for (name, &(entered, left, tail_called)) in &said.rows {
            ensure!(left + tail_called <= entered, "{runtime}: {name}: {entered}, {left}, {tail_called} in {outcome}");
        }
        for name in [
            "Shapes.Many",
            "Shapes.FourFloats",
            "Passes<System.Numerics.Vector4>.Keep",
            "Pair<float64>.Choose",
            "Instance.Virtual",
        ] {
            let found =
                said.rows.iter().filter(|(row, _)| row.starts_with(name)).map(|(_, count)| count.0).sum::<u64>();
            ensure!(found > 0, "{runtime}: no call of {name} in {outcome}");
        }
    }
    Ok(())
}

/// The first calls of a method, by eight threads, compile it once or several times, or find it compiled in advance.
#[test]
fn calls_that_threads_make_at_once_are_heard_of_from_the_first_on() -> Result<()> {
    for runtime in Runtime::all_for_modern("FirstCalls")? {
        for _ in 0..repetitions(1, 100) {
            for (by, tiered) in [("runtime", "1"), ("il", "1"), ("il-all", "1"), ("il-all", "0")] {
                let run = Run::new(&runtime, "FirstCalls").env("DOTNET_TieredCompilation", tiered);
                let run = run.env("HOOKS_BY", by).env("HOOKS_SELECT", "System.Xml.XmlConvert.To FirstCalls. Own");
                // Inserted hooks leave out small methods otherwise.
                let run = run.env("HOOKS_EXACT", "1");
                let outcome = run.profiler_named(LIBRARY, "CountsCalls").run()?;
                outcome.exited_with(0)?;
                let said = Said::of(&outcome)?;
                let expected = FIRST_CALLS.into_iter().chain(FRAMEWORK.into_iter().filter(|_| by != "il"));
                for (name, calls) in expected {
                    let rows = said.rows.iter().filter(|(row, _)| row.starts_with(name));
                    let found: u64 = rows.map(|(_, count)| count.0).sum();
                    ensure!(found == calls, "{runtime}, by {by}, tiers {tiered}: {found} calls of {name}: {outcome}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_walk_from_a_hook_goes_through_the_stub_into_managed_code() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "Calls", &["1"], "WalksInHook", None)?;
        for hook in ["enter", "leave"] {
            let walk = format!(
                "{hook}: S_OK Known.Cleanup() < Known.Inner(int32) < Known.Outer(int32) < Calls.Exceptions(int32) < \
                 Calls.Main(string[])\n"
            );
            ensure!(outcome.stderr.matches(&walk).count() > 0, "no {walk:?} in {outcome}");
        }
    }
    Ok(())
}

#[test]
fn what_is_not_selected_is_not_hooked() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "Calls", &["2"], "CountsCalls", Some("Known.Fib Shapes."))?;
        let said = Said::of(&outcome)?;
        threads_are_in_order(&said, &outcome)?;
        ensure!(said.row("Known.Fib(int32)") == (2 * 1973, 2 * 1973, 0), "{outcome}");
        ensure!(said.rows.keys().all(|name| name.starts_with("Known.Fib") || name.starts_with("Shapes.")), "{outcome}");
        let hooks: u64 = said.rows.values().map(|count| count.0 + count.1 + count.2).sum();
        ensure!(said.threads.get("hooks") == Some(&hooks), "a hook was called for another function: {outcome}");
    }
    Ok(())
}

#[test]
fn threads_that_come_and_go_have_a_state_each() -> Result<()> {
    for runtime in Runtime::all()? {
        // Under Wine a thread takes some ten times as long to start and end.
        let threads = if runtime.is_windows() { 1000 } else { repetitions(1000, 3000) };
        let outcome = both(&runtime, "Churn", &[&threads.to_string(), "50"], "CountsCalls", Some("Churn"))?;
        let said = Said::of(&outcome)?;
        threads_are_in_order(&said, &outcome)?;
        let started = said.threads.get("started").copied().unwrap_or_default();
        // And those that the runtime has for itself.
        ensure!((threads..threads + 20).contains(&started), "{started} states for {threads} threads: {outcome}");
        ensure!(said.row("Churn.Work(int32)") == (threads, threads, 0), "{outcome}");
    }
    Ok(())
}

#[test]
fn threads_that_run_on_after_shutdown_find_hooks_that_do_nothing() -> Result<()> {
    for runtime in Runtime::all()? {
        // The methods of the second program are compiled all the time, after Shutdown as well.
        for (app, threads) in [("Abandon", 4), ("Late", 2)].repeat(repetitions(1, 5)) {
            let outcome = Run::new(&runtime, app).profiler_named(LIBRARY, "CountsCalls").run()?;
            outcome.exited_with(3)?;
            ensure!(outcome.stdout == format!("abandoned {threads} threads\n"), "{outcome}");
            let said = Said::of(&outcome)?;
            threads_are_in_order(&said, &outcome)?;
            ensure!(said.threads.get("started").is_some_and(|&started| started > threads), "{outcome}");
            ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn a_panic_in_a_hook_is_reported_once_and_ends_the_profiler_only() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "Calls", &["3"], "PanicsInHook", None)?;
        for text in ["in a hook\n", "the profiler PanicsInHook panicked in enter and is disabled"] {
            ensure!(outcome.stderr.matches(text).count() == 1, "{text:?} once: {outcome}");
        }
        ensure!(!outcome.stderr.contains("shutdown of a quiet profiler"), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_selection_may_make_all_calls_while_other_threads_collect() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "Calls", &["1"], "AsksInSelect", None)?;
        let line = outcome.stderr.lines().find_map(|line| line.strip_prefix("asked "));
        let line = line.with_context(|| format!("nothing was asked: {outcome}"))?;
        let count = |name: &str| -> Result<u64> {
            let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            Ok(value.with_context(|| format!("no {name} in {line:?}"))?.parse()?)
        };
        ensure!(count("refused")? == 0 && count("answered")? > 1000 && count("collections")? > 0, "{outcome}");
    }
    Ok(())
}

#[test]
fn hooks_are_set_once_and_not_beside_the_slow_path() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = both(&runtime, "Exit", &["7", "2"], "CountsCalls", Some("Nobody"))?;
        ensure!(outcome.stderr.contains("again: true"), "{outcome}");
        let outcome = both(&runtime, "Exit", &["7", "2"], "AsksForBoth", None)?;
        let refusal = "SetEnterLeaveFunctionHooks3(ENABLE_FUNCTION_ARGS, ENABLE_FUNCTION_RETVAL or ENABLE_FRAME_INFO): \
                       CORPROF_E_INCONSISTENT_WITH_FLAGS";
        ensure!(outcome.stderr.contains(refusal), "{outcome}");
        ensure!(
            outcome.stderr.contains(
                "mask: EventMask(MONITOR_MODULE_LOADS | MONITOR_ASSEMBLY_LOADS | MONITOR_THREADS | MONITOR_SUSPENDS)"
            ),
            "{outcome}"
        );
    }
    Ok(())
}

/// The calls that the program `Inlines` makes, each of which its compiler inlines where it may: by method, for each
/// round of its loop.
const INLINED: [(&str, u64); 4] = [
    ("Inlines.Small(int32)", 3),
    ("Inlines.Asked(int32, int32)", 1),
    ("Inlines.Calling(int32)", 1),
    ("System.Version.get_MinorRevision()", 1),
];

/// Runs `Inlines` with hooks of its methods, called by the runtime or by inserted code, exact ones or others.
fn inlines(runtime: &Runtime, by: &str, is_exact: bool, rounds: u64) -> Result<(Outcome, Said)> {
    let args = [rounds.to_string()];
    let bare = Run::new(runtime, "Inlines").args(&args).run()?;
    let run = Run::new(runtime, "Inlines").args(&args).profiler_named(LIBRARY, "AllowsInlining");
    let mut run = run.env("HOOKS_SELECT", "Inlines. System.Version.get_MinorRevision(").env("HOOKS_BY", by);
    // Without tiers all code is optimised when it is first compiled.
    run = run.env("DOTNET_TieredCompilation", "0");
    if is_exact {
        run = run.env("HOOKS_EXACT", "1");
    }
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "{by}: without: {bare}; with: {outcome}");
    let said = Said::of(&outcome)?;
    threads_are_in_order(&said, &outcome)?;
    ensure!(said.row("Inlines.Loop(int32, System.Version)") == (1, 1, 0), "{by}: {outcome}");
    Ok((outcome, said))
}

#[test]
fn exact_hooks_see_each_call_that_the_compiler_would_inline() -> Result<()> {
    const ROUNDS: u64 = 7000;
    for runtime in Runtime::all()? {
        for by in ["runtime", "il-all", "il"] {
            let (outcome, said) = inlines(&runtime, by, true, ROUNDS)?;
            for (method, calls) in INLINED {
                // The framework's method is precompiled, and stays so.
                let calls = if by == "il" && method.starts_with("System.") { 0 } else { calls * ROUNDS };
                ensure!(said.row(method) == (calls, calls, 0), "{runtime}, {by}: {method}: {outcome}");
            }
        }
    }
    Ok(())
}

/// The compiler asks, and is answered yes: what it has inlined is a part of its caller.
#[test]
fn other_hooks_leave_the_compiler_to_inline() -> Result<()> {
    for runtime in Runtime::all()? {
        for by in ["runtime", "il-all", "il"] {
            let (outcome, said) = inlines(&runtime, by, false, 7000)?;
            for (method, _) in INLINED {
                ensure!(said.row(method) == (0, 0, 0), "{runtime}, {by}: {method}: {outcome}");
            }
            let asked = outcome.stderr.lines().find_map(|line| line.strip_prefix("asked=")?.split(' ').next());
            ensure!(asked.is_some_and(|asked| asked.parse().is_ok_and(|asked: u64| asked >= 3)), "{by}: {outcome}");
        }
    }
    Ok(())
}
