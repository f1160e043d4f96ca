//! Threads that are stopped one by one, on Windows: where they are, and not where their next safepoint is.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};

/// How long the longest run may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a program under the profiler that counts.
fn sample(runtime: &Runtime, app: &str, args: &[u64], settings: &[(&str, &str)]) -> Result<Outcome> {
    let run = Run::new(runtime, app)
        .args(args.iter().map(u64::to_string))
        .timeout(LIMIT)
        .profiler_named("sampling", "Counts");
    let outcome = settings.iter().fold(run, |run, (name, value)| run.env(name, value)).run()?;
    ensure!(told(&outcome, "violations") == 0, "memory or a lock was touched while a thread stood still: {outcome}");
    ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
    Ok(outcome)
}

/// The same, by single threads, which it must have been to the end.
fn sample_seeded(runtime: &Runtime, app: &str, args: &[u64], settings: &[(&str, &str)]) -> Result<Outcome> {
    let outcome = sample(runtime, app, args, &[settings, &[("SEEDED", "1")]].concat())?;
    ensure!(outcome.stderr.contains("strategy: Seeded\n"), "it has gone over to another strategy: {outcome}");
    Ok(outcome)
}

/// The number after `key: `, or 0.
fn told(outcome: &Outcome, key: &str) -> u64 {
    let number = |line: &str| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok();
    outcome.stderr.lines().find_map(number).unwrap_or_default()
}

/// The runtimes on which single threads can be walked.
fn runtimes() -> Result<Vec<Runtime>> {
    Ok(Runtime::all()?.into_iter().filter(Runtime::is_windows).collect())
}

/// The sampler's report, in a line.
fn summary(outcome: &Outcome) -> String {
    let walks = outcome.stderr.lines().find(|line| line.starts_with("walks: ")).unwrap_or_default();
    let keys = ["rounds", "samples", "retries", "unwound", "abandoned", "ended", "delayed", "mean-us", "longest-us"];
    keys.map(|key| format!("{key} {}", told(outcome, key))).join(", ") + "; " + walks
}

#[test]
fn known_shares_of_work_come_out() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let outcome = sample_seeded(runtime, "Shares", &[times * 8000], &[])?;
        outcome.exited_with(0)?;
        println!("{runtime}: {}", summary(&outcome));
        let chains = ["Shares.Sixty()", "Shares.Thirty()", "Shares.Ten()"];
        let counts = chains.map(|chain| told(&outcome, &format!("chain {chain}")));
        let total: u64 = counts.iter().sum();
        // Under Wine each stop is some milliseconds of talk with its server.
        ensure_or_longer!(total >= 100, "{outcome}");
        for (count, expected) in counts.into_iter().zip([60.0, 30.0, 10.0]) {
            let share = 100.0 * count as f64 / total as f64;
            println!("{runtime}: {share:.1} % of {total} samples, {expected} % expected");
            // Three standard deviations for this number of samples, and a point for the program's own deviation.
            let tolerance = 1.0 + 3.0 * f64::sqrt(expected * (100.0 - expected) / total as f64);
            ensure_or_longer!((share - expected).abs() <= tolerance, "{share:.1} % of {total} samples: {outcome}");
        }
        ensure!(told(&outcome, "leaf Shares.Burn(int32)") * 10 >= total * 9, "{outcome}");
        let waiter = told(&outcome, "thread waiter");
        let worker = told(&outcome, "thread worker 0");
        ensure_or_longer!(waiter * 2 >= worker && worker * 2 >= waiter, "{waiter} and {worker}: {outcome}");
        // The waiter is in native code, which the runtime does not show on top, and the unwinder does.
        ensure!(told(&outcome, "native leaves") >= waiter / 2, "{outcome}");
        Ok(())
    })
}

#[test]
fn by_processor_time_one_thread_a_round_shows_known_shares() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let outcome = sample_seeded(runtime, "Shares", &[times * 6000, 2], &[("CPU", "1")])?;
        outcome.exited_with(0)?;
        println!("{runtime}: {}", summary(&outcome));
        let [effective, seen, used] = ["effective", "weight-us", "cpu-us"].map(|key| told(&outcome, key));
        ensure_or_longer!(effective >= 200, "{outcome}");
        // What is left is the processor time of the last moment, and of threads without a sample.
        ensure_or_longer!(seen * 10 >= used * 8, "{seen} us of {used} us: {outcome}");
        let weights = ["Sixty", "Thirty", "Ten"].map(|chain| told(&outcome, &format!("weight-us Shares.{chain}()")));
        let total: u64 = weights.iter().sum();
        for (weight, expected) in weights.into_iter().zip([60.0, 30.0, 10.0]) {
            let share = 100.0 * weight as f64 / total as f64;
            println!("{runtime}: {share:.1} % of {total} us, {expected} % expected");
            let tolerance = 1.0 + 3.0 * f64::sqrt(expected * (100.0 - expected) / effective as f64);
            ensure_or_longer!((share - expected).abs() <= tolerance, "{share:.1} %: {outcome}");
        }
        let times = ["worker 0", "worker 1", "waiter"].map(|name| told(&outcome, &format!("thread-weight-us {name}")));
        let [first, second, waiter] = times;
        ensure_or_longer!(first > 10 * waiter && second > 10 * waiter, "{times:?}: {outcome}");
        Ok(())
    })
}

#[test]
fn processor_time_is_sampled_by_single_threads_unless_another_way_is_chosen() -> Result<()> {
    for runtime in runtimes()? {
        for (is_cpu, expected) in [("1", "Seeded"), ("0", "SuspendedRuntime")] {
            let outcome = sample(&runtime, "Shares", &[1000], &[("AUTO", "1"), ("CPU", is_cpu)])?;
            outcome.exited_with(0)?;
            ensure!(outcome.stderr.contains(&format!("strategy: {expected}\n")), "{expected} expected: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn code_without_safepoints_is_seen_on_top_and_by_suspension_is_not() -> Result<()> {
    let leaves = ["Loop(uint64)", "Line(uint64)", "Works(int32)"].map(|name| format!("leaf Straight.{name}"));
    patiently(Runtime::all()?, |runtime, times| {
        let suspended = sample(runtime, "Straight", &[times * repetitions(2500, 4000)], &[])?;
        suspended.exited_with(0)?;
        let [in_loop, in_line, in_works] = leaves.each_ref().map(|leaf| told(&suspended, leaf));
        println!("{runtime}: Loop, Line, Works by suspension: {in_loop}, {in_line}, {in_works}");
        ensure!(in_line == 0, "it has safepoints after all: {suspended}");
        if !runtime.is_windows() {
            ensure_or_longer!(in_works >= 100, "what is done in Line is seen in its caller: {suspended}");
            return Ok(());
        }
        let seeded = sample_seeded(runtime, "Straight", &[times * 4000], &[])?;
        seeded.exited_with(0)?;
        let [in_loop, in_line, in_works] = leaves.each_ref().map(|leaf| told(&seeded, leaf));
        println!("{runtime}: by seed: {in_loop}, {in_line}, {in_works}; {}", summary(&seeded));
        ensure_or_longer!(in_loop + in_line >= 60, "{seeded}");
        ensure_or_longer!(in_line * 4 >= in_loop && in_loop * 4 >= in_line, "as many steps in each: {seeded}");
        Ok(())
    })
}

#[test]
fn native_frames_between_managed_ones_are_shown_one_by_one() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let alone = Run::new(runtime, "Between").args(["500"]).run()?;
        alone.exited_with(0)?;
        let outcome = sample_seeded(runtime, "Between", &[times * 6000], &[])?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
        let [holes, natives, samples, leaves] =
            ["holes", "natives in holes", "samples", "native leaves"].map(|key| told(&outcome, key));
        println!("{runtime}: {natives} native frames in {holes} holes, {leaves} native leaves; {}", summary(&outcome));
        ensure_or_longer!(holes * 2 >= samples && holes > 30, "most of the time there is one: {outcome}");
        // qsort calls itself, and between it and managed code stands the runtime.
        ensure!(natives >= 2 * holes, "{outcome}");
        Ok(())
    })
}

#[test]
fn threads_may_start_and_end_and_collect_without_pause() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let mut caught = 0;
        for (app, args) in [("Churn", [times * 3000, times * 150].as_slice()), ("Foreign", &[times * 300])] {
            let alone = Run::new(runtime, app).args(args.iter().map(u64::to_string)).run()?;
            alone.exited_with(0)?;
            for is_cpu in ["0", "1"] {
                let outcome = sample_seeded(runtime, app, args, &[("EVERY_US", "1000"), ("CPU", is_cpu)])?;
                outcome.exited_with(0)?;
                println!("{runtime}, {app}: {}", summary(&outcome));
                ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
                ensure_or_longer!(told(&outcome, "rounds") >= 20, "{outcome}");
                caught += told(&outcome, "ended") + told(&outcome, "delayed");
            }
        }
        ensure_or_longer!(caught > 0, "{runtime}: no thread ended near a round, so nothing was tested");
        Ok(())
    })
}

#[test]
fn the_end_may_come_in_the_middle_of_a_walk() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let mut rounds = 0;
        for turn in 0..10 * times {
            let (app, args, code, text) = match turn % 2 {
                0 => ("Exit", [7, 2].as_slice(), 7, "line 1 of 2\nline 2 of 2\n"),
                _ => ("Abandon", [].as_slice(), 3, "abandoned 4 threads\n"),
            };
            // Threads that throw have the loader's lock half of their time under Wine, which takes it for each frame.
            // So there the sampler may go over to the other strategy, but only for its reason.
            let is_cpu = if turn % 4 < 2 { "0" } else { "1" };
            let outcome = sample(runtime, app, args, &[("EVERY_US", "100"), ("SEEDED", "1"), ("CPU", is_cpu)])?;
            outcome.exited_with(code)?;
            let has_reason = app == "Abandon" && told(&outcome, "abandoned") >= 5;
            // On a busy machine Exit may end before the first round, and before that the profiler has no report to
            // print.
            let is_over = told(&outcome, "rounds") == 0;
            ensure!(
                has_reason || is_over || outcome.stderr.contains("strategy: Seeded\n"),
                "another strategy: {outcome}"
            );
            ensure!(outcome.stdout == text, "the application prints something else: {outcome}");
            rounds += told(&outcome, "rounds");
        }
        ensure_or_longer!(rounds > 20, "{rounds} rounds");
        Ok(())
    })
}

#[test]
fn where_it_cannot_be_it_says_what_to_use_instead() -> Result<()> {
    for runtime in Runtime::all()?.into_iter().filter(|runtime| !runtime.is_windows()) {
        let run = Run::new(&runtime, "Hello").profiler_named("sampling", "Counts").env("SEEDED", "1");
        let outcome = run.run().context("the application runs without the profiler")?;
        outcome.exited_with(0)?;
        let told = "leave the sampler its default, Strategy::SuspendedRuntime";
        ensure!(outcome.stderr.contains(told), "{outcome}");
    }
    Ok(())
}
