//! The built-in `timer`: exact numbers of calls, and times that fit the program's work.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};
use quick_xml::Reader;
use quick_xml::events::Event;

/// How often `Calls 2` calls its methods: twice Fib(15), Deep(10000), and a hundred calls of which every fourth throws.
pub(crate) const KNOWN_CALLS: [(&str, u64); 7] = [
    ("Known.Fib(", 2 * 1973),
    ("Known.Deep(", 2 * 10_001),
    ("Known.Outer(", 200),
    ("Known.Inner(", 200),
    ("Known.Throw(", 50),
    ("Known.Cleanup(", 200),
    ("Known.Filter(", 50),
];

/// Number of calls, nanoseconds inclusive and exclusive, those of the exclusive ones on a processor, and those of waits
/// without a thread.
type Totals = [u64; 5];

/// The timer's report: methods by name from its CSV file, and callers with callees from standard error, in calls.
struct Times {
    outcome: Outcome,
    methods: BTreeMap<String, Totals>,
    edges: BTreeMap<(String, String), (u64, f64)>,
}

impl Times {
    fn of(&self, name: &str) -> Result<Totals> {
        let found = self.methods.iter().find(|method| method.0.starts_with(name)).map(|method| *method.1);
        found.with_context(|| format!("no {name}: {}", self.outcome))
    }

    /// Calls, and milliseconds exclusive.
    fn edge(&self, caller: &str, callee: &str) -> (u64, f64) {
        let is_it = |edge: &&(String, String)| edge.0.starts_with(caller) && edge.1.starts_with(callee);
        self.edges.iter().find(|(edge, _)| is_it(edge)).map_or((0, 0.0), |(_, totals)| *totals)
    }

    fn calls_are(&self, expected: &[(&str, u64)]) -> Result<()> {
        for &(name, calls) in expected {
            ensure!(self.of(name)?[0] == calls, "{name}: {} calls, not {calls}: {}", self.of(name)?[0], self.outcome);
        }
        Ok(())
    }

    fn edges_are(&self, expected: &[(&str, &str, u64)]) -> Result<()> {
        for &(caller, callee, calls) in expected {
            let (told, _) = self.edge(caller, callee);
            ensure!(told == calls, "{caller} called {callee} {told} times, not {calls}: {}", self.outcome);
        }
        Ok(())
    }
}

/// Runs a program under the timer, which writes a CSV file.
fn time(run: Run) -> Result<Times> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("times.csv");
    let outcome = run.built_in("timer").env("TIMER_OUT", &path).env("TIMER_CALLERS", "*").run()?;
    ensure!(outcome.stderr.contains(" subtracted\n"), "what is subtracted is told: {outcome}");
    let text = std::fs::read_to_string(&path).with_context(|| format!("no times: {outcome}"))?;
    let mut lines = text.lines();
    ensure!(lines.next() == Some("method,calls,inclusive_ns,exclusive_ns,cpu_ns,waiting_ns"), "{text}");
    let row = |line: &str| {
        let mut cells = line.rsplitn(6, ',');
        let mut number = || cells.next()?.parse::<u64>().ok();
        let waiting = number()?;
        let cpu = number()?;
        let exclusive = number()?;
        let inclusive = number()?;
        let calls = number()?;
        Some((cells.next()?.trim_matches('"').to_owned(), [calls, inclusive, exclusive, cpu, waiting]))
    };
    let methods = lines.map(|line| row(line).with_context(|| format!("no row: {line:?}"))).collect::<Result<_>>()?;
    let edge = |line: &str| {
        let (row, callee) = line.strip_prefix("timer: ")?.split_once(" -> ")?;
        let mut words = row.split_whitespace();
        let calls = words.next()?.parse().ok()?;
        let exclusive = words.nth(1)?.parse().ok()?;
        words.nth(1)?; // its time on a processor, and without a thread
        Some(((words.collect::<Vec<_>>().join(" "), callee.to_owned()), (calls, exclusive)))
    };
    let edges = outcome.stderr.lines().filter_map(edge).collect();
    Ok(Times { outcome, methods, edges })
}

/// Programs with methods that wait, the filters to time them with, and the names of the methods: some of the runtime's
/// own suspending (.NET 10 and later), and state machines.
const PAUSES: [(&str, [&str; 2], [&str; 2]); 2] = [
    ("AsyncPauses", ["AsyncPauses.*", "AsyncPauses.[OP]*"], ["AsyncPauses.Pause(", "AsyncPauses.Outer("]),
    (
        "MachinePauses",
        ["MachinePauses*", "MachinePauses.<[OP]*"],
        ["MachinePauses.<Pause>d__1.MoveNext(", "MachinePauses.<Outer>d__2.MoveNext("],
    ),
];

/// The inner method was called so many times, the outer one once, and each waited for half a second or more.
fn waits_are_told_apart(times: &Times, methods: [&str; 2], calls: u64) -> Result<()> {
    times.outcome.exited_with(0)?;
    for (name, calls) in methods.into_iter().zip([calls, 1]) {
        let [called, _, ran, _, waited] = times.of(name)?;
        ensure!(called == calls, "{name}: {called} calls: {}", times.outcome);
        // Each delay begins before its method is suspended, and on a busy machine some time before.
        ensure!(waited > 400_000_000, "{name} waited for {waited} ns: {}", times.outcome);
        // Its calls come one after the other: what counts as a wait does not count as work as well.
        let all = Duration::from_nanos(ran + waited);
        ensure!(all <= times.outcome.duration, "{name} took {all:?}: {}", times.outcome);
    }
    Ok(())
}

/// The runtimes, each with the ways to have hooks called.
fn each_way() -> Result<Vec<(Runtime, &'static str)>> {
    let ways = |runtime: Runtime| ["runtime", "il", "il-all"].map(|by| (runtime.clone(), by));
    Ok(Runtime::all()?.into_iter().flat_map(ways).collect())
}

const NOTHING_LEFT_OUT: &str = "timer: 0 calls without their callers, 0 without a time of their own\n";

#[test]
fn timer_counts_a_million_calls_on_two_threads_with_exceptions() -> Result<()> {
    const ROUNDS: u64 = 60_000;
    for (runtime, by) in each_way()? {
        let run = Run::new(&runtime, "Balance").args([ROUNDS.to_string()]).env("TIMER_FILTER", "Known.*");
        let times = time(run.env("TIMER_BY", by))?;
        times.outcome.exited_with(0)?;
        ensure!(times.outcome.stderr.contains(NOTHING_LEFT_OUT), "{}", times.outcome);
        let all = 2 * ROUNDS;
        let thrown = 2 * ROUNDS / 1000;
        times.calls_are(&[
            ("Known.Rounds(", 2),
            ("Known.Step(", all),
            ("Known.Leaf(", 8 * all),
            ("Known.Catcher(", thrown),
            ("Known.Middle(", 3 * thrown),
            ("Known.Thrower(", thrown),
        ])?;
        times.edges_are(&[
            ("(nobody)", "Known.Rounds(", 2),
            ("Known.Rounds(", "Known.Step(", all),
            ("Known.Step(", "Known.Leaf(", 8 * all),
            ("Known.Rounds(", "Known.Catcher(", thrown),
            ("Known.Catcher(", "Known.Middle(", thrown),
            ("Known.Middle(", "Known.Middle(", 2 * thrown),
            ("Known.Middle(", "Known.Thrower(", thrown),
        ])?;
        // All that was timed was within Rounds.
        let spent: u64 = times.methods.values().map(|totals| totals[2]).sum();
        ensure!(spent == times.of("Known.Rounds(")?[1], "{spent} ns in all: {}", times.outcome);
    }
    Ok(())
}

/// That a share in percent is the expected one. The work is dealt out in slices of 20 microseconds, so a disturbance of
/// the machine falls on all alike; but the time that the system gives to others is counted as well, some milliseconds
/// each time, and on a busy machine it is most of it: a hundred of those, dealt out at random, put a share off by five
/// points, twice that now and then. Exact expectations are compared with other figures of the same run.
fn is_about(share: f64, expected: f64) -> bool {
    (share - expected).abs() <= 20.0 && share > expected / 10.0
}

const SHARES: [(&str, f64); 3] = [("Shares.Sixty()", 60.0), ("Shares.Thirty()", 30.0), ("Shares.Ten()", 10.0)];

#[test]
fn timer_tells_known_shares_of_work() -> Result<()> {
    // Without the lambda around Works.
    const OWN: &str = "Shares.[!<]*";
    patiently(Runtime::all()?, |runtime, longer| {
        let times = time(Run::new(runtime, "Shares").args([(longer * 3000).to_string()]).env("TIMER_FILTER", OWN))?;
        let outcome = &times.outcome;
        outcome.exited_with(0)?;
        let [burns, burned, burned_itself, ..] = times.of("Shares.Burn(int)")?;
        ensure!(burned == burned_itself, "Burn calls nobody: {outcome}");
        for (name, share) in SHARES {
            let [calls, inclusive, exclusive, ..] = times.of(name)?;
            ensure!(calls as f64 * 100.0 == burns as f64 * share, "{name}: {calls} of {burns} calls: {outcome}");
            let percent = 100.0 * inclusive as f64 / burned as f64;
            ensure_or_longer!(is_about(percent, share), "{name}: {percent:.1} % inclusive: {outcome}");
            ensure_or_longer!(exclusive * 4 <= inclusive, "{name} does nothing itself: {outcome}");
            let (called, milliseconds) = times.edge(name, "Shares.Burn(");
            let percent = 1e8 * milliseconds / burned as f64;
            println!("{runtime}: Burn from {name} {percent:.1} % of the time, {share} % expected");
            ensure!(called == calls, "{name}: {called} and {calls} calls: {outcome}");
            ensure_or_longer!(is_about(percent, share), "{name}: {percent:.1} % exclusive: {outcome}");
            // The rest of its time is all Burn's.
            let own = (inclusive - exclusive) as f64 / 1e6;
            ensure!((own - milliseconds).abs() < 0.002, "{name}: {own} and {milliseconds} ms: {outcome}");
        }
        // Each thread's time is the inclusive time of its outermost method.
        let spent: u64 = times.methods.values().map(|totals| totals[2]).sum();
        let around: u64 = ["Shares.Main(", "Shares.Works(", "Shares.Waits("]
            .map(|name| times.of(name).map(|totals| totals[1]))
            .into_iter()
            .sum::<Result<u64>>()?;
        ensure!(spent == around, "{spent} ns in all, {around} ns in the outermost: {outcome}");
        if !runtime.is_windows() && !runtime.is_emulated() {
            let [_, _, waited, ran, _] = times.of("Shares.Waits(")?;
            ensure!(ran * 10 <= waited, "waits for {waited} ns, and is on a processor for {ran}: {outcome}");
            let first = outcome.stderr.lines().skip_while(|line| !line.ends_with("  method")).nth(1);
            // On a busy machine Burn may get less than the compiler, which works in the time of Main.
            let is_burn = first.is_some_and(|line| line.ends_with(" Shares.Burn(int)"));
            ensure_or_longer!(is_burn, "{first:?} leads: {outcome}");
        }
        let [_, works, ..] = times.of("Shares.Works(")?;
        let passed = outcome.duration.as_nanos() as u64;
        ensure!((longer * 2_900_000_000..passed).contains(&works), "{works} ns of {passed}: {outcome}");
        Ok(())
    })
}

/// The percentage in the title of a method's box of a flame graph, which must be well-formed XML: `NAME (123 ns,
/// 59.87%)`.
fn percent_in(svg: &Path, method: &str) -> Result<f64> {
    let mut reader = Reader::from_file(svg)?;
    let mut percent = 0.0;
    let mut buffer = Vec::new();
    loop {
        match reader.read_event_into(&mut buffer)? {
            Event::Eof => return Ok(percent),
            Event::Text(text) => {
                let text = text.decode()?;
                if let Some(numbers) = text.strip_prefix(method).and_then(|rest| rest.strip_suffix("%)")) {
                    percent += numbers.rsplit(' ').next().unwrap_or_default().parse::<f64>()?;
                }
            }
            _ => {}
        }
        buffer.clear();
    }
}

#[test]
fn timer_draws_where_the_time_went() -> Result<()> {
    for runtime in Runtime::all()? {
        let directory = tempfile::tempdir()?;
        let run = |milliseconds: &str, path: &Path| {
            let run = Run::new(&runtime, "Shares").args([milliseconds]).built_in("timer");
            run.env("TIMER_FILTER", "Shares.[STBW]*").env("TIMER_OUT", path).run()
        };
        let svg = directory.path().join("times.svg");
        let outcome = run("1000", &svg)?;
        outcome.exited_with(0)?;
        // The table of the same run has milliseconds inclusive.
        let told = |name: &str| {
            let line = outcome.stderr.lines().find(|line| line.starts_with("timer: ") && line.ends_with(name))?;
            line.split_whitespace().nth(2)?.parse::<f64>().ok()
        };
        let [drawn_around, told_around] =
            [Some(percent_in(&svg, "Shares.Works(int)")?), told("Shares.Works(int)")].map(Option::unwrap_or_default);
        ensure!(drawn_around > 0.0 && told_around > 900.0, "{outcome}");
        for (name, _) in SHARES {
            let drawn = percent_in(&svg, name)? / drawn_around;
            let told = told(name).unwrap_or_default() / told_around;
            ensure!(told > 0.0 && (drawn - told).abs() < 0.01, "{name}: {drawn:.3} drawn, {told:.3} told: {outcome}");
        }

        let folded = directory.path().join("times.folded");
        run("200", &folded)?.exited_with(0)?;
        let folded = std::fs::read_to_string(&folded)?;
        let weight = |stack: &str| folded.lines().find_map(|line| line.strip_prefix(stack)?.trim().parse::<u64>().ok());
        for (name, _) in SHARES {
            let burned = weight(&format!("Shares.Works(int);{name};Shares.Burn(int) "));
            ensure!(burned > Some(0), "{name} burns: {folded}");
        }
        ensure!(folded.lines().any(|line| line.starts_with("Shares.Waits()")), "{folded}");
    }
    Ok(())
}

#[test]
fn timer_counts_what_threads_were_doing_when_the_application_ended() -> Result<()> {
    const THREADS: u64 = 4;
    patiently(Runtime::all()?, |runtime, longer| {
        let args = [THREADS, 2000 * longer].map(|number| number.to_string());
        let times = time(Run::new(runtime, "Abandon").args(args).env("TIMER_FILTER", "Abandon.*"))?;
        times.outcome.exited_with(3)?;
        ensure!(times.outcome.stderr.contains(NOTHING_LEFT_OUT), "{}", times.outcome);
        times.calls_are(&[("Abandon.Work(", THREADS), ("Abandon.Main(", 1)])?;
        // They begin while Main does, and are still at it when the process ends.
        let [_, worked, _, ..] = times.of("Abandon.Work(")?;
        ensure_or_longer!(worked > THREADS * 1_000_000_000, "{worked} ns: {}", times.outcome);
        Ok(())
    })
}

#[test]
fn timer_says_what_it_had_no_room_for_and_what_is_wrong_with_a_setting() -> Result<()> {
    for runtime in Runtime::all()? {
        let times =
            time(Run::new(&runtime, "Calls").args(["1"]).env("TIMER_FILTER", "Known.*").env("TIMER_PATHS", "8"))?;
        times.outcome.exited_with(0)?;
        // Counts hold even so; of Fib's fifteen paths and Deep's ten thousand few have room.
        times.calls_are(&[
            ("Known.Fib(", 1973),
            ("Known.Deep(", 10_001),
            ("Known.Outer(", 100),
            ("Known.Inner(", 100),
        ])?;
        let cut = times.outcome.stderr.lines().find_map(|line| {
            let calls = line
                .strip_prefix("timer: ")?
                .strip_suffix(" calls without their callers, 0 without a time of their own")?;
            calls.parse::<u64>().ok()
        });
        let cut = cut.with_context(|| format!("nothing said of paths: {}", times.outcome))?;
        ensure!((10_000..14_000).contains(&cut), "{cut} calls without callers: {}", times.outcome);

        for (name, value) in
            [("TIMER_OUT", "x.unknown"), ("TIMER_FILTER", "["), ("TIMER_CALLERS", "["), ("TIMER_PATHS", "?")]
        {
            let outcome = Run::new(&runtime, "Exit").args(["7", "1"]).built_in("timer").env(name, value).run()?;
            outcome.exited_with(7)?;
            ensure!(outcome.stderr.contains("the profiler Timer is not loaded"), "{name}={value}: {outcome}");
        }
    }
    Ok(())
}

/// A hook in a method that the compiler inlines would cost many times what the method does.
#[test]
fn timer_by_il_leaves_out_what_the_compiler_inlines() -> Result<()> {
    for runtime in Runtime::all()? {
        for by in ["il", "il-all"] {
            let times = time(Run::new(&runtime, "Sample").env("TIMER_FILTER", "*").env("TIMER_BY", by))?;
            times.outcome.exited_with(0)?;
            let told = times.outcome.stderr.lines().find(|line| line.contains(": the compiler inlines it"));
            let told = told.and_then(|line| line.strip_prefix("timer: ")?.split(' ').next()?.parse().ok());
            let least = if by == "il" { 1 } else { 100 };
            ensure!(told.is_some_and(|methods: u32| methods >= least), "{by}: {}", times.outcome);
            let throws = times.methods.keys().find(|name| name.starts_with("System.ArgumentNullException.ThrowIfNull"));
            ensure!(throws.is_none(), "{by}: {throws:?}: {}", times.outcome);
        }
    }
    Ok(())
}

/// Precompiled methods of the framework are timed where the filter wants them, and no others are compiled.
#[test]
fn timer_by_il_keeps_precompiled_code_or_compiles_what_it_times() -> Result<()> {
    for runtime in Runtime::all()? {
        let run = || Run::new(&runtime, "Calls").args(["2"]).env("TIMER_FILTER", "System.Console.Write*");
        let kept = time(run().env("TIMER_BY", "il"))?;
        let precompiled = |times: &Times| {
            let mut lines = times.outcome.stderr.lines();
            let line = lines
                .find_map(|line| line.strip_prefix("timer: ")?.strip_suffix(" precompiled functions are not timed"));
            line.and_then(|count| count.parse::<u64>().ok()).with_context(|| format!("{}", times.outcome))
        };
        ensure!(precompiled(&kept)? > 100 && kept.methods.is_empty(), "{}", kept.outcome);
        let compiled = time(run().env("TIMER_BY", "il-all"))?;
        ensure!(precompiled(&compiled)? > 100, "the others stay precompiled: {}", compiled.outcome);
        // Five lines in each of two rounds.
        let lines: u64 = compiled.methods.values().map(|totals| totals[0]).sum();
        ensure!(lines == 10, "{lines} calls: {}", compiled.outcome);
    }
    Ok(())
}

/// See `main.rs`.
mod differs {
    use super::*;

    #[test]
    fn calls_that_are_suspended_are_one_call_and_wait_apart() -> Result<()> {
        for (program, filters, methods) in PAUSES {
            for runtime in Runtime::all_for_modern(program)? {
                // What is hooked changes what is told, and no figure of it.
                for filter in filters {
                    let run = Run::new(&runtime, program).env("DOTNET_RuntimeAsync", "1").env("TIMER_FILTER", filter);
                    waits_are_told_apart(&time(run)?, methods, 5)?;
                }
            }
        }
        Ok(())
    }

    /// As above, but optimised from the first call on, and in the midst of many.
    #[test]
    fn calls_are_one_call_in_optimised_code_as_well() -> Result<()> {
        for (program, filters, methods) in PAUSES {
            for runtime in Runtime::all_for_modern(program)? {
                let all = [("1", ["700", "1", "0"], 700), ("0", ["5", "100", "5"], 5)];
                for (tiers, arguments, calls) in all.into_iter().take(repetitions(1, all.len())) {
                    let run = Run::new(&runtime, program).args(arguments).env("DOTNET_RuntimeAsync", "1");
                    let run = run.env("TIMER_FILTER", filters[0]).env("DOTNET_TieredCompilation", tiers);
                    waits_are_told_apart(&time(run)?, methods, calls)?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn timer_counts_each_call_through_recursion_and_exceptions() -> Result<()> {
        for (runtime, by) in each_way()? {
            let run = Run::new(&runtime, "Calls").args(["2"]).env("TIMER_FILTER", "Known.*").env("TIMER_BY", by);
            let times = time(run)?;
            times.outcome.exited_with(0)?;
            ensure!(times.outcome.stderr.contains(NOTHING_LEFT_OUT), "{}", times.outcome);
            times.calls_are(&KNOWN_CALLS)?;
            times.edges_are(&[
                ("(nobody)", "Known.Fib(", 2),
                ("Known.Fib(", "Known.Fib(", 2 * 1972),
                ("Known.Deep(", "Known.Deep(", 20_000),
                ("(nobody)", "Known.Outer(", 200),
                ("Known.Outer(", "Known.Inner(", 200),
                ("Known.Inner(", "Known.Throw(", 50),
                // A finally block has its own method for a caller, although the throwing method is still on the stack.
                ("Known.Inner(", "Known.Cleanup(", 200),
                // A filter runs while that is not gone yet.
                ("Known.Throw(", "Known.Filter(", 50),
            ])?;
            // These call no other methods, so the time of the outermost calls is the total time: recursion counts once.
            for name in ["Known.Fib(", "Known.Deep("] {
                let [_, inclusive, exclusive, ..] = times.of(name)?;
                ensure!(
                    inclusive > 0 && inclusive == exclusive,
                    "{name}: {inclusive} and {exclusive} ns: {}",
                    times.outcome
                );
            }
        }
        Ok(())
    }

    /// A `jmp`, a tail call whose return is shared with another path, and a million tail calls in a row.
    #[test]
    fn timer_by_il_counts_calls_that_end_in_others_and_lets_them_end_so() -> Result<()> {
        for (runtime, by) in each_way()? {
            let bare = Run::new(&runtime, "Jumps").run()?;
            bare.exited_with(0)?;
            let times = time(Run::new(&runtime, "Jumps").env("TIMER_FILTER", "Jumps.*").env("TIMER_BY", by))?;
            times.outcome.exited_with(0)?;
            ensure!(times.outcome.stdout == bare.stdout, "{by}: without: {bare}; with: {}", times.outcome);
            ensure!(!times.outcome.stderr.contains("cannot be timed"), "{}", times.outcome);
            // The compiler makes a loop of it, and the runtime's hooks see one call.
            let down = if by == "runtime" { 1 } else { 1_000_001 };
            times.calls_are(&[
                ("Jumps.Jump(", 1),
                ("Jumps.Landed(", 2),
                ("Jumps.Shared(", 2),
                ("Jumps.Down(", down),
                ("Jumps.Say(", 4),
            ])?;
            // Each takes the place of its caller.
            times.edges_are(&[("Jumps.Main(", "Jumps.Down(", down), ("Jumps.Main(", "Jumps.Landed(", 2)])?;
        }
        Ok(())
    }

    /// `ApplyMetaData` breaks precompiled code of .NET 11 that awaits; inserted hooks do without.
    #[test]
    fn a_web_application_outlives_hooks_inserted_into_the_framework() -> Result<()> {
        for runtime in Runtime::all_for_modern("WebLoops")? {
            let run = Run::new(&runtime, "WebLoops").args(["300"]);
            let times = time(run.env("TIMER_FILTER", "System.Net.*").env("TIMER_BY", "il-all"))?;
            ensure!(times.outcome.stdout == "wrong: 0\n", "{}", times.outcome);
            let [calls, ..] = times.of("System.Net.Http.HttpClient.")?;
            ensure!(calls > 0, "{}", times.outcome);
        }
        Ok(())
    }
}
