//! The sampler that sends signals: it sees what the processor does, and the application does not notice.
//!
//! Linux only; in an emulator signals and processor clocks are the emulator's.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

const LIBRARY: &str = "sampling";

/// The runtimes that run on the system itself, none on Windows.
fn runtimes() -> Result<Vec<Runtime>> {
    Ok(Runtime::all()?.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// Runs a program while its threads get signals, so many microseconds apart.
fn sample(runtime: &Runtime, app: &str, args: &[&str], every_us: u64) -> Result<Outcome> {
    let run = Run::new(runtime, app).args(args).profiler_named(LIBRARY, "Counts");
    let tells_time = u8::from(app == "Shares").to_string();
    run.env("SIGNALS", "1").env("EVERY_US", every_us.to_string()).env("SYSTEM_TIME", tells_time).run()
}

/// The number after `key: `.
fn told(outcome: &Outcome, key: &str) -> Result<u64> {
    let number = |line: &str| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok();
    outcome.stderr.lines().find_map(number).with_context(|| format!("no number {key:?} in {outcome}"))
}

/// Expects signals to have been sent to the end, and samples to have come of them.
fn was_sampled(outcome: &Outcome) -> Result<()> {
    ensure!(outcome.stderr.contains("strategy: Signals"), "{outcome}");
    ensure!(told(outcome, "samples")? > 0 && told(outcome, "left-out")? == 0, "{outcome}");
    ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
    Ok(())
}

#[test]
fn known_shares_come_out_on_a_full_machine() -> Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    for runtime in runtimes()? {
        // More threads than processors: so many seconds are computed, whatever else the machine does.
        let (mut counts, mut torn) = ([0; 3], 0);
        let threads = (2 * processors).to_string();
        for _ in 0..10 {
            let outcome = sample(&runtime, "Shares", &["4000", &threads], 1000)?;
            outcome.exited_with(0)?;
            was_sampled(&outcome)?;
            for (count, chain) in counts.iter_mut().zip(["Sixty", "Thirty", "Ten"]) {
                *count += told(&outcome, &format!("chain Shares.{chain}()"))?;
            }
            torn += told(&outcome, "torn")?;
            // Every thread's time is accounted for, but for its start and its end. .NET Core 3.1 does not tell the system the names
            // of threads, by which their times are known.
            let workers = if runtime.major >= 5 { 2 * processors } else { 0 };
            for worker in 0..workers {
                let [sampled, got] =
                    ["thread-weight-us", "system-cpu-us"].map(|key| told(&outcome, &format!("{key} worker {worker}")));
                let (sampled, got) = (sampled?, got?);
                ensure!(
                    sampled <= got && sampled * 10 >= got * 8,
                    "worker {worker}: {sampled} us of {got} us: {outcome}"
                );
            }
            if counts.iter().sum::<u64>() >= 4000 {
                break;
            }
        }
        let total: u64 = counts.iter().sum();
        ensure!(total >= 4000, "{runtime}: {total} samples in 10 runs");
        for (count, expected) in counts.into_iter().zip([60.0, 30.0, 10.0]) {
            let share = 100.0 * count as f64 / total as f64;
            println!("{runtime}: {share:.1} % of {total} samples, {expected} % expected");
            ensure!((share - expected).abs() <= 3.0, "{runtime}: {share:.1} % of {total} instead of {expected} %");
        }
        ensure!(torn * 100 <= total, "{runtime}: {torn} of {total} stacks without their outer frames");
    }
    Ok(())
}

#[test]
fn native_frames_are_followed_and_named() -> Result<()> {
    for runtime in runtimes()? {
        let outcome = sample(&runtime, "Between", &["4000"], 1000)?;
        outcome.exited_with(0)?;
        was_sampled(&outcome)?;
        let [compares, under] = ["compares", "compares under sorts"].map(|key| told(&outcome, key));
        let (compares, under) = (compares?, under?);
        println!("{runtime}: {under} of {compares} stacks go through qsort");
        ensure!(compares >= 100 && under * 100 >= compares * 98, "{outcome}");
        let sorts = |line: &&str| line.starts_with("native libc.so.6!qsort");
        ensure!(outcome.stderr.lines().find(sorts).is_some(), "{outcome}");
    }
    Ok(())
}

#[test]
fn faults_and_exceptions_on_many_threads_go_on() -> Result<()> {
    for runtime in runtimes()? {
        let outcome = sample(&runtime, "Signals", &["storm", "64", "3000"], 100)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "wrong: 0\n", "{outcome}");
        was_sampled(&outcome)?;
        println!("{runtime}: {} samples in {:?}", told(&outcome, "samples")?, outcome.duration);
    }
    Ok(())
}

#[test]
fn children_are_started_and_get_no_signals() -> Result<()> {
    for runtime in runtimes()? {
        let outcome = sample(&runtime, "Signals", &["spawn", "10"], 100)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "10 children\n", "{outcome}");
        was_sampled(&outcome)?;
    }
    Ok(())
}

#[test]
fn another_program_takes_over_with_a_signal_on_its_way() -> Result<()> {
    for runtime in runtimes()? {
        for _ in 0..10 {
            let outcome = sample(&runtime, "Signals", &["exec"], 100)?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == "another program\n", "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn a_stack_overflow_is_told_as_ever() -> Result<()> {
    for runtime in runtimes()? {
        for _ in 0..3 {
            let outcome = sample(&runtime, "Signals", &["overflow"], 100)?;
            ensure!(outcome.to_string().contains("signal: 6 (SIGABRT)"), "as without a profiler: {outcome}");
            ensure!(outcome.stderr.contains("Stack overflow."), "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn the_end_may_come_with_a_signal_on_its_way() -> Result<()> {
    for runtime in runtimes()? {
        for turn in 0..20 {
            let (app, args, code, text) = match turn % 2 {
                0 => ("Exit", ["7", "2"].as_slice(), 7, "line 1 of 2\nline 2 of 2\n"),
                _ => ("Abandon", [].as_slice(), 3, "abandoned 4 threads\n"),
            };
            let outcome = sample(&runtime, app, args, 100)?;
            outcome.exited_with(code)?;
            ensure!(outcome.stdout == text, "the application prints something else: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn threads_start_and_end_between_signals() -> Result<()> {
    for runtime in runtimes()? {
        for (app, args) in [("Churn", ["5000", "200"].as_slice()), ("Foreign", &["1000"])] {
            let alone = Run::new(&runtime, app).args(args).run()?;
            let outcome = sample(&runtime, app, args, 100)?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
            was_sampled(&outcome)?;
        }
    }
    Ok(())
}

#[test]
fn a_handler_of_the_applications_is_respected() -> Result<()> {
    for runtime in runtimes()? {
        let outcome = sample(&runtime, "Signals", &["replace", "2000"], 1000)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "replaced\n", "{outcome}");
        ensure!(outcome.stderr.matches("has set up a handler for SIGURG of its own").count() == 1, "{outcome}");
        ensure!(outcome.stderr.contains("strategy: SuspendedRuntime"), "{outcome}");
    }
    Ok(())
}
