//! The sampler: it reports the program's real behaviour, and does not change it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::Process;
use corprof_tests::{Outcome, Run, Runtime, TooShort, ensure_or_longer, patiently, repetitions};

use crate::diagnostics::{self, PATIENCE, Program, profiler};

const LIBRARY: &str = "sampling";

/// A thread that starts or ends waits for the round that is under way; with ten thousand rounds a second, and programs
/// beside that take the processors, thousands of threads take more than the usual minute.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs a program under the profiler that counts, with settings for its sampler, and expects the sampler to keep the
/// rules.
fn sample(runtime: &Runtime, app: &str, args: &[u64], settings: &[(&str, u64)]) -> Result<Outcome> {
    let run =
        Run::new(runtime, app).args(args.iter().map(u64::to_string)).timeout(LIMIT).profiler_named(LIBRARY, "Counts");
    let run = settings.iter().fold(run, |run, (name, value)| run.env(name, value.to_string()));
    let outcome = run.run()?;
    ensure!(told(&outcome, "violations")? == 0, "memory or a lock was touched while threads stood still: {outcome}");
    ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
    Ok(outcome)
}

/// The number after `key: `.
fn told(outcome: &Outcome, key: &str) -> Result<u64> {
    let number = |line: &str| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok();
    outcome.stderr.lines().find_map(number).with_context(|| format!("no number {key:?} in {outcome}"))
}

/// The number after `key: `, or 0.
fn told_or_0(outcome: &Outcome, key: &str) -> u64 {
    told(outcome, key).unwrap_or_default()
}

/// How many points a share may be off: three standard deviations where samples are few, on a busy machine or under
/// Wine. Samples of unequal weight count as fewer of equal weight: those that the report calls effective.
fn tolerance(points: f64, expected: f64, samples: u64) -> f64 {
    let deviation = f64::sqrt(expected * (100.0 - expected) / samples.max(1) as f64);
    points.max(1.0 + 3.0 * deviation)
}

#[test]
fn known_shares_of_work_come_out() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        // Under Wine stopping all threads takes some five milliseconds of talk with its server; an emulator is slow at
        // all.
        let (time, enough) = if runtime.is_slow() { (8000, 100) } else { (1500, 500) };
        let time = times * time;
        let outcome = sample(runtime, "Shares", &[time], &[])?;
        outcome.exited_with(0)?;
        let chains = ["Shares.Sixty()", "Shares.Thirty()", "Shares.Ten()"];
        let of = |what: &str| chains.map(|chain| told_or_0(&outcome, &format!("{what} {chain}")));
        let counts = of("chain");
        let weights = of("weight-us");
        let (total, weight): (u64, u64) = (counts.iter().sum(), weights.iter().sum());
        ensure_or_longer!(total >= enough, "sampled at 1 kHz for {time} ms: {outcome}");
        for (part, expected) in weights.into_iter().zip([60.0, 30.0, 10.0]) {
            let share = 100.0 * part as f64 / weight as f64;
            println!("{runtime}: {share:.1} % of {total} samples, {expected} % expected");
            // On a full machine samples differ in weight, and the worker is seen several times where it stands.
            let tolerance = tolerance(6.0, expected, told_or_0(&outcome, "effective") / 2);
            ensure_or_longer!((share - expected).abs() <= tolerance, "{share:.1} % instead of {expected} %: {outcome}");
        }
        // The work is seen where it is done, and under the frames that led to it.
        ensure!(told(&outcome, "torn")? == 0, "stacks without their outer frames: {outcome}");
        ensure!(told(&outcome, "leaf Shares.Burn(int32)")? * 10 >= total * 9, "{outcome}");
        // By the wall clock a thread that waits counts like one that works, and threads have names.
        let waiter = told(&outcome, "thread waiter")?;
        let worker = told(&outcome, "thread worker 0")?;
        ensure_or_longer!(waiter * 2 >= worker && worker * 2 >= waiter, "{waiter} and {worker}: {outcome}");
        // The runtime's own threads have no managed frame: classified, neither samples nor failures.
        ensure!(outcome.stderr.contains("walks: ") && outcome.stderr.contains("E_FAIL"), "{outcome}");
        if !runtime.is_windows() {
            // Sleeping threads are not stopped in each round, and are marked as waiting.
            let [walks, samples] = ["walks of threads", "samples"].map(|key| told_or_0(&outcome, key));
            ensure_or_longer!(
                walks * 3 < samples * 2,
                "{walks} walks for {samples} samples, of which a third works: {outcome}"
            );
            let [waits, all] = ["waits-us", "weight-us"].map(|key| told_or_0(&outcome, key));
            println!("{runtime}: {samples} samples by {walks} walks; {waits} us of {all} us are waits");
            ensure_or_longer!(waits * 2 > all && waits * 10 < all * 9, "two of three threads wait: {outcome}");
        }
        ensure!(outcome.stderr.matches("second sampler: this process already has a sampler").count() == 1);
        Ok(())
    })
}

#[test]
fn on_a_processor_is_who_works_and_not_who_waits() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let time = times * if runtime.is_slow() { 4000 } else { 1000 };
        let outcome = sample(runtime, "Shares", &[time, 2], &[("CPU", 1), ("SYSTEM_TIME", 1)])?;
        outcome.exited_with(0)?;
        // By processor time and not by samples: where rounds are few, the waiter has woken up since the last one nearly
        // always.
        let waiter = told_or_0(&outcome, "thread-weight-us waiter");
        for worker in ["worker 0", "worker 1"] {
            let sampled = told(&outcome, &format!("thread-weight-us {worker}"))?;
            ensure_or_longer!(sampled > 10 * waiter, "{worker} {sampled} us, the waiter {waiter} us: {outcome}");
            // Compared with the thread's processor time, which on a busy machine is less than the elapsed time.
            // The runtime starts before the sampler does, and the last round is not the last moment.
            if !runtime.is_windows() {
                let got = told(&outcome, &format!("system-cpu-us {worker}"))?;
                println!("{runtime}: {worker} was sampled for {sampled} us of the {got} us that it was on a processor");
                ensure_or_longer!(
                    (got / 2..=got + 10_000).contains(&sampled),
                    "{worker}: {sampled} us of {got} us: {outcome}"
                );
            }
        }
        let chains = ["Shares.Sixty()", "Shares.Thirty()", "Shares.Ten()"];
        let times = chains.map(|chain| told_or_0(&outcome, &format!("weight-us {chain}")));
        let total: u64 = times.iter().sum();
        let share = 100.0 * times[0] as f64 / total as f64;
        println!("{runtime}: {share:.1} % of {total} us on a processor, 60 % expected");
        let tolerance = tolerance(8.0, 60.0, told_or_0(&outcome, "effective"));
        ensure_or_longer!((share - 60.0).abs() <= tolerance, "{share:.1} % of the time: {outcome}");
        Ok(())
    })
}

/// On a full machine a thread has to wait for a processor; this wait is none of the program's.
#[test]
fn shares_of_a_pool_come_out_on_a_full_machine() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        if runtime.is_slow() {
            println!(
                "SKIPPED on {runtime}: a stop takes some 25 ms there on a full machine, which leaves too few samples"
            );
            return Ok(());
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            for _ in 0..2 * processors {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let end = Defer(|| is_over.store(true, Relaxed));
            let outcome = sample(runtime, "Pool", &[times * repetitions(2000, 6000), 8], &[("CPU", 1)])?;
            drop(end);
            outcome.exited_with(0)?;
            let chains = ["Pool.Sixty()", "Pool.Thirty()", "Pool.Ten()"];
            let of = |what: &str| chains.map(|chain| told_or_0(&outcome, &format!("{what} {chain}")));
            let counts = of("chain");
            let weights = of("weight-us");
            let samples = counts.iter().sum::<u64>();
            let total = weights.iter().sum::<u64>();
            ensure_or_longer!(samples >= 30, "sampled at 1 kHz: {outcome}");
            for (weight, expected) in weights.into_iter().zip([60.0, 30.0, 10.0]) {
                let share = 100.0 * weight as f64 / total as f64;
                println!("{runtime}: {share:.1} % of {samples} samples, {expected} % expected");
                let tolerance = tolerance(6.0, expected, told_or_0(&outcome, "effective"));
                ensure_or_longer!(
                    (share - expected).abs() <= tolerance,
                    "{share:.1} % instead of {expected} %: {outcome}"
                );
            }
            // Waits of the threads between two pieces of work are not charged to it.
            let waits = ["System.Threading.Thread.Sleep(int32)", "System.Threading.Monitor.Wait(object)"];
            let waits: u64 = waits.iter().map(|wait| told_or_0(&outcome, &format!("leaf {wait}"))).sum();
            ensure_or_longer!(waits * 6 < samples, "{waits} samples of waits, {samples} of work: {outcome}");
            let [seen, used] = ["weight-us", "cpu-us"].map(|key| told_or_0(&outcome, key));
            println!("{runtime}: samples stand for {seen} us of {used} us; {waits} of them wait");
            ensure!(seen <= used, "samples stand for more than was used: {outcome}");
            ensure_or_longer!(seen * 2 > used, "samples stand for what was used: {outcome}");
            Ok(())
        })
    })
}

/// Does something when it is dropped: also when a test fails.
struct Defer<F: FnMut()>(F);

impl<F: FnMut()> Drop for Defer<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[test]
fn threads_may_start_and_end_and_collect_without_pause() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        // Of the second program the runtime cleans up while it holds the lock that a suspension waits for.
        let mut caught = 0;
        // Under Wine a thread takes some ten times as long to start and end.
        let (churn, foreign) = if runtime.is_slow() { (4000, 300) } else { repetitions((2000, 500), (8000, 2000)) };
        let churn = times * churn;
        let foreign = times * foreign;
        for (app, args) in [("Churn", [churn, churn / 20].as_slice()), ("Foreign", &[foreign])] {
            let alone = Run::new(runtime, app).args(args.iter().map(u64::to_string)).run()?;
            alone.exited_with(0)?;
            let outcome = sample(runtime, app, args, &[("EVERY_US", 100)])?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
            let [rounds, ended, delayed] = ["rounds", "ended", "delayed"].map(|key| told_or_0(&outcome, key));
            println!("{runtime}, {app}: {rounds} rounds, {ended} threads ended before, {delayed} in the middle of one");
            ensure_or_longer!(rounds >= 100, "{outcome}");
            caught += ended + delayed;
        }
        // That comes once in some thousand threads, on a calm machine: the short form has too few.
        if repetitions(false, true) {
            ensure_or_longer!(caught > 0, "{runtime}: no thread ended near a round, so nothing was tested");
        }
        Ok(())
    })
}

#[test]
fn a_sampler_of_a_kilohertz_outlives_many_threads() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let count = times * if runtime.is_slow() { 2000 } else { 4000 };
        let outcome = sample(runtime, "Churn", &[count, count / 20], &[("EVERY_US", 1000)])?;
        outcome.exited_with(0)?;
        ensure_or_longer!(told(&outcome, "rounds")? >= 100, "{outcome}");
        // Most of these threads end before a round; the report says so.
        let unseen = told(&outcome, "unseen")?;
        ensure!(unseen <= count + 100, "{unseen} of {count} threads unseen: {outcome}");
        ensure_or_longer!(unseen > count / 10, "{unseen} of {count} threads unseen: {outcome}");
        Ok(())
    })
}

#[test]
fn the_application_stands_still_for_its_share_of_the_time_and_no_longer() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let settings = [("EVERY_US", 100), ("BUDGET_PERCENT", 1)];
        let outcome = sample(runtime, "Shares", &[times * 2000], &settings)?;
        outcome.exited_with(0)?;
        ensure_or_longer!(
            told(&outcome, "skipped budget")? > 0,
            "ten thousand rounds a second cost more than 1 %: {outcome}"
        );
        let [total, longest] = ["total-us", "longest-us"].map(|key| told_or_0(&outcome, key));
        let allowed = outcome.duration.as_micros() as u64 / 100 + longest;
        println!("{runtime}: stood still for {total} us of {:?}, at most {longest} us at once", outcome.duration);
        ensure_or_longer!(total > 0, "{outcome}");
        ensure!(total <= allowed, "{total} us, {allowed} us allowed: {outcome}");
        Ok(())
    })
}

#[test]
fn rounds_do_not_pile_up_behind_a_slow_profiler() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let outcome = sample(runtime, "Shares", &[times * 1000], &[("LINGER_US", 10_000)])?;
        outcome.exited_with(0)?;
        let [rounds, late] = ["rounds", "skipped late"].map(|key| told_or_0(&outcome, key));
        let most = outcome.duration.as_millis() as u64 / 10;
        ensure!(rounds <= most, "{rounds} rounds of 10 ms, {most} at most: {outcome}");
        ensure_or_longer!(rounds >= 10 && late > 5 * rounds, "{rounds} rounds, {late} late: {outcome}");
        Ok(())
    })
}

#[test]
fn a_stack_that_is_too_deep_is_cut_and_counted() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let outcome = sample(runtime, "Shares", &[times * 500], &[("DEPTH", 1)])?;
        outcome.exited_with(0)?;
        ensure_or_longer!(told(&outcome, "truncated")? > 0, "{outcome}");
        ensure!(told_or_0(&outcome, "chain Shares.Sixty()") == 0, "only leaves: {outcome}");
        // Broken off by the profiler is not a failure.
        ensure!(!outcome.stderr.contains("STACKSNAPSHOT_ABORTED"), "{outcome}");
        Ok(())
    })
}

#[test]
fn the_end_may_come_in_the_middle_of_a_round() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let mut rounds = 0;
        for turn in 0..repetitions(12, 25) * times {
            let (app, args, code, text) = match turn % 2 {
                0 => ("Exit", [7, 2].as_slice(), 7, "line 1 of 2\nline 2 of 2\n"),
                _ => ("Abandon", [].as_slice(), 3, "abandoned 4 threads\n"),
            };
            let outcome = sample(runtime, app, args, &[("EVERY_US", 100)])?;
            outcome.exited_with(code)?;
            ensure!(outcome.stdout == text, "the application prints something else: {outcome}");
            ensure!(outcome.duration < Duration::from_secs(60), "somebody waited for somebody: {outcome}");
            rounds += told(&outcome, "rounds")?;
        }
        ensure_or_longer!(rounds > repetitions(50, 100), "{rounds} rounds");
        Ok(())
    })
}

#[test]
fn a_panic_in_a_round_leaves_the_application_running() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let time = times * if runtime.is_slow() { 4000 } else { 500 };
        let outcome =
            Run::new(runtime, "Shares").args([time.to_string()]).profiler_named(LIBRARY, "PanicsInRound").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "done True\n", "{outcome}");
        let told = "the profiler PanicsInRound panicked on its thread sampler and is disabled";
        for told in [told, "in round 100"] {
            ensure_or_longer!(outcome.stderr.contains(told), "{outcome}");
            ensure!(outcome.stderr.matches(told).count() == 1, "{outcome}");
        }
        Ok(())
    })
}

#[test]
fn a_round_that_takes_too_long_leaves_threads_to_the_next() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        // A round is good for one thread at least. A thread that sleeps is walked once: if the threads start slowly, or
        // rounds are quick, there is one new thread a round, and none is left out. Under Wine and on a busy machine
        // rounds are few, so each must be good for several.
        let (time, longest) = if runtime.is_slow() { (5000, 200) } else { (1500, 20 * times) };
        let settings = [("EVERY_US", 2000 * times), ("LONGEST_US", longest)];
        let outcome = sample(runtime, "Deep", &[100, 100, times * time], &settings)?;
        outcome.exited_with(0)?;
        ensure_or_longer!(told(&outcome, "left-out")? > 0, "100 threads of 100 frames in {longest} us: {outcome}");
        // The next round begins with them, so that none is never seen.
        for thread in 0..100 {
            let count = told_or_0(&outcome, &format!("thread deep {thread}"));
            ensure_or_longer!(count > 0, "thread {thread} was never seen: {outcome}");
        }
        Ok(())
    })
}

#[test]
fn two_samplers_that_suspend_in_turn_let_the_application_go_on() -> Result<()> {
    for runtime in diagnostics::runtimes()? {
        let (clsid, library) = profiler(&runtime, "twice")?;
        // Its thread `busy` never waits, so signals cannot be sent to it: both samplers suspend for it.
        let program = Program::ready(Run::new(&runtime, "Standing").command()?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        client.attach_profiler(clsid, &library, &[], PATIENCE)?;
        thread::sleep(Duration::from_secs(repetitions(2, 60)));
        // A runtime that is left suspended ends at no time.
        let stderr = program.end()?;
        let rounds = stderr.lines().find_map(|line| line.strip_prefix("rounds: ")?.split_once(' '));
        let (suspended, signals) = rounds.with_context(|| format!("{runtime}: {stderr}"))?;
        println!("{runtime}: {suspended} rounds suspended, {signals} by signals");
        ensure!(suspended.parse::<u64>()? > 20 && signals.parse::<u64>()? > 20, "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn the_example_writes_what_the_extension_asks_for() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let dir = tempfile::tempdir()?;
        // Under Wine the budget of 2 % is good for three rounds a second.
        let time = times * if runtime.is_slow() { 6000 } else { 1000 };
        let run = |file: &str, mode: &str| -> Result<(Outcome, Vec<u8>)> {
            let out = dir.path().join(file);
            let run = Run::new(runtime, "Shares").args([time.to_string()]).timeout(LIMIT).built_in("sampler");
            // With the usual budget there are few samples of a second, beside other tests.
            let run = run.env("SAMPLER_OUT", &out).env("SAMPLER_MODE", mode).env("SAMPLER_BUDGET", "20");
            let outcome = run.run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stderr.contains(" a second of 100 asked for ("), "no progress was told: {outcome}");
            ensure!(outcome.stderr.contains(&format!("sampler: {mode}: ")), "the mode is not told: {outcome}");
            Ok((outcome, std::fs::read(out)?))
        };
        let (outcome, folded) = run("shares.folded", "wall")?;
        let folded = String::from_utf8(folded)?;
        let weight = |chain: &str| {
            let stack = format!(";Shares.Works(int);Shares.{chain}();Shares.Burn(int) ");
            let line = folded.lines().find(|line| line.contains(&stack))?;
            line.rsplit(' ').next()?.parse::<u64>().ok()
        };
        let sixty = weight("Sixty").unwrap_or_default();
        let thirty = weight("Thirty").unwrap_or_default();
        ensure_or_longer!(thirty > 0 && sixty > thirty, "{sixty} and {thirty} ns: {folded}\n{outcome}");
        let waits = ["Shares.Waits();System.Threading.Thread.Sleep", "Shares.Waits()"];
        ensure_or_longer!(waits.iter().any(|waits| folded.contains(waits)), "{folded}\n{outcome}");
        // Nanoseconds of the work, whose parts are known: on a busy machine there are few samples, and their sum is
        // less than the time that has passed.
        let passed = outcome.duration.as_nanos() as u64;
        ensure!(sixty + thirty <= passed, "{sixty} and {thirty} ns of {passed}: {folded}");

        let (_, svg) = run("shares.svg", "cpu")?;
        let svg = String::from_utf8(svg)?;
        ensure!(svg.contains("<svg"), "no picture: {svg}");
        ensure_or_longer!(svg.contains("Shares.Burn(int)"), "{svg}");
        let others = [("shares.html", *b"<!"), ("shares.pb.gz", [0x1F, 0x8B]), ("shares.speedscope.json", *b"{\"")];
        for (file, magic) in others.into_iter().take(repetitions(1, others.len())) {
            let (_, written) = run(file, "wall")?;
            ensure!(written.starts_with(&magic), "{file} begins with {:?}", written.get(..8));
        }
        Ok(())
    })
}

/// With an embedded PDB, methods have file and line; methods without source have a name, and threads have name and
/// number.
#[test]
fn the_example_tells_where_methods_are_in_the_source() -> Result<()> {
    patiently(Runtime::all_for_modern("Places")?, |runtime, times| {
        let source = xtask::managed::modern_dir().join("Places.cs");
        let text = std::fs::read_to_string(&source)?;
        let has_signals = !runtime.is_windows() && !runtime.is_emulated();
        let strategy = if has_signals { "signals" } else { "suspended" };
        let line_of = |remark: &str| text.lines().position(|line| line.contains(remark)).map(|line| line as u64 + 1);
        let dir = tempfile::tempdir()?;
        let run = |file: &str, more: &[(&str, &str)]| -> Result<String> {
            let out = dir.path().join(file);
            let run = Run::new(runtime, "Places")
                .args([(times * 1500).to_string()])
                .timeout(LIMIT)
                .built_in("sampler")
                .env("SAMPLER_OUT", &out);
            let run = run.env("SAMPLER_HZ", "1000").env("SAMPLER_BUDGET", "50").env("SAMPLER_STRATEGY", strategy);
            more.iter().fold(run, |run, (name, value)| run.env(name, value)).run()?.exited_with(0)?;
            Ok(std::fs::read_to_string(out)?)
        };
        let profile: serde_json::Value = serde_json::from_str(&run("places.speedscope.json", &[])?)?;
        let frames = profile["shared"]["frames"].as_array().context("no frames")?;
        let frame = |part: &str| {
            // The framework's generic methods have the program's types in their names.
            let is_it = |name: &str| name.contains(part) && !name.starts_with("System.");
            let found = frames.iter().find(|frame| frame["name"].as_str().is_some_and(is_it));
            found.ok_or_else(|| TooShort(format!("no frame {part} among {frames:#?}")))
        };
        for (part, remark) in [
            ("Places.Work λ(", "the lambda's"),
            ("Places.Later (async)", "the async method's"),
            ("Places.Burn(int)", "the plain method's"),
        ] {
            let frame = frame(part)?;
            ensure!(frame["file"].as_str().is_some_and(|file| file.ends_with("Places.cs")), "{runtime}: {frame}");
            ensure!(frame["line"].as_u64() == line_of(remark), "{runtime}: {frame}, not {:?}", line_of(remark));
        }
        if has_signals {
            ensure!(frame("Compiled (dynamic)")?["line"].is_null(), "{runtime}: it has no source");
        }
        let threads = profile["profiles"].as_array().context("no threads")?;
        let is_placer = |thread: &serde_json::Value| {
            thread["name"].as_str().is_some_and(|name| name.starts_with("placer (") && name.ends_with(')'))
        };
        ensure_or_longer!(threads.iter().any(is_placer), "no thread placer with its number among {threads:#?}");

        let page = run("places.html", &[("SAMPLER_CODE", "mine")])?;
        let lambda = format!("Places.Work λ (Places.cs:{})", line_of("the lambda's").context("no lambda")?);
        ensure!(page.contains(r#""onlyMine":true"#), "{page}");
        ensure_or_longer!(page.contains(&lambda), "{lambda}");
        Ok(())
    })
}

#[test]
fn settings_that_cannot_be_used_are_refused_at_the_start_with_their_cure() -> Result<()> {
    for runtime in Runtime::all()? {
        let refusals = [
            (
                "sampler",
                "SAMPLER_OUT",
                "x.unknown",
                "SAMPLER_OUT=x.unknown: the extension of x.unknown is of no known format",
            ),
            ("sampler", "SAMPLER_OUT", "no/such/x.svg", "there is no folder no/such: make it, or give another file"),
            ("sampler", "SAMPLER_MODE", "cup", "SAMPLER_MODE=cup: give cpu or wall"),
            ("sampler", "SAMPLER_CODE", "yours", "SAMPLER_CODE=yours: give all or mine"),
            ("sampler", "SAMPLER_HZ", "0", "SAMPLER_HZ=0: give a number from 0.01 to 10000"),
            ("sampler", "SAMPLER_BUDGET", "2%", "SAMPLER_BUDGET=2%: give a number from 0.01 to 100"),
            (
                "sampler",
                "SAMPLER_STRATEGY",
                "sedeed",
                "SAMPLER_STRATEGY=sedeed: give auto, suspended, signals or seeded",
            ),
            (
                "tracer",
                "TRACER_OUT",
                "no/such/x.trace.json",
                "TRACER_OUT=no/such/x.trace.json: there is no folder no/such",
            ),
            ("timer", "TIMER_PATHS", "0", "TIMER_PATHS=0: give a number from 1 to 1073741824"),
            ("timer", "TIMER_OUT", "no/such/x.csv", "TIMER_OUT=no/such/x.csv: there is no folder no/such"),
            ("allocations", "ALLOCATIONS_TOP", "0", "ALLOCATIONS_TOP=0: give a number from 1 to 1000000"),
            ("leaks", "LEAKS_TOP", "0", "LEAKS_TOP=0: give a number from 1 to 1000"),
            ("leaks", "LEAKS_OUT", "x.svg", "LEAKS_OUT=x.svg: give the name of a file with the extension .html"),
            ("sampler", "SAMPLER_HERZ", "5", "SAMPLER_HERZ=5: sampler has no such setting; did you mean SAMPLER_HZ?"),
        ];
        for (profiler, variable, value, told) in refusals {
            // The application runs without the profiler.
            let outcome = Run::new(&runtime, "Hello").built_in(profiler).env(variable, value).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stderr.contains(told), "{variable}={value}: {outcome}");
            ensure!(outcome.stderr.contains("is not loaded"), "{variable}={value}: {outcome}");
        }
    }
    Ok(())
}
