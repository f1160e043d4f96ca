//! The sampler that sends signals: it reports the processor's work, and does not change the application.
//!
//! Linux only. An emulator delivers signals between the blocks of instructions that it translates, and takes much of
//! the processor time itself: there only that samples come, and that nothing changes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::Process;
use corprof_tests::{Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};

use crate::detach::attach;
use crate::diagnostics::{self, Program, profiler};

const LIBRARY: &str = "sampling";

/// How long a program may take that starts and ends threads all the time, beside others.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long the longest run may take.
const LIMIT: Duration = Duration::from_secs(600);

/// The runtimes on Linux.
fn all() -> Result<Vec<Runtime>> {
    Ok(Runtime::all()?.into_iter().filter(|runtime| !runtime.is_windows()).collect())
}

/// The runtimes that run on the system itself, none on Windows.
fn runtimes() -> Result<Vec<Runtime>> {
    Ok(all()?.into_iter().filter(|runtime| !runtime.is_emulated()).collect())
}

/// Runs a program while its threads get signals, so many microseconds apart.
fn sample(runtime: &Runtime, app: &str, args: &[&str], every_us: u64) -> Result<Outcome> {
    let run = Run::new(runtime, app).args(args).timeout(LIMIT).profiler_named(LIBRARY, "Counts");
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
    ensure!(told(outcome, "left-out")? == 0, "{outcome}");
    ensure!(!outcome.stderr.contains("corprof:"), "{outcome}");
    ensure_or_longer!(told(outcome, "samples")? > 0, "{outcome}");
    Ok(())
}

#[test]
fn a_thread_that_waits_for_a_processor_is_not_sampled() -> Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    if processors == 1 {
        println!("skipped: with one processor the sampler cannot see which threads are running");
        return Ok(());
    }
    patiently(runtimes()?, |runtime, times| {
        // Each thread gives its processor to another one after 0.2 ms of work, and waits in the yield longer than that.
        let threads = (4 * processors).to_string();
        let outcome = sample(runtime, "Shares", &[&(times * 1500).to_string(), &threads, "yields"], 1000)?;
        outcome.exited_with(0)?;
        was_sampled(&outcome)?;
        let samples = told(&outcome, "samples")?;
        ensure_or_longer!(samples >= 200, "{samples} samples");
        let chains = ["Sixty", "Thirty", "Ten"].map(|chain| told(&outcome, &format!("chain Shares.{chain}()")));
        let [sixty, thirty, ten] = chains;
        let work = sixty? + thirty? + ten?;
        println!("{runtime}: {work} of {samples} samples at work");
        ensure!(work * 10 >= samples * 8, "{work} of {samples} samples at work: {outcome}");
        Ok(())
    })
}

#[test]
fn processor_time_is_sampled_by_signals_unless_another_way_is_chosen() -> Result<()> {
    for runtime in all()? {
        for (is_cpu, expected) in [("1", "Signals"), ("0", "SuspendedRuntime")] {
            let run = Run::new(&runtime, "Shares").args(["1000"]).profiler_named(LIBRARY, "Counts");
            let outcome = run.env("AUTO", "1").env("CPU", is_cpu).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stderr.contains(&format!("strategy: {expected}\n")), "{expected} expected: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn native_frames_are_followed_and_named() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        if runtime.is_musl() {
            println!("SKIPPED on {runtime}: its C library has no unwind information, so that stacks end there");
            return Ok(());
        }
        let outcome = sample(runtime, "Between", &[&(times * 3000).to_string()], 1000)?;
        outcome.exited_with(0)?;
        was_sampled(&outcome)?;
        let [compares, under] = ["compares", "compares under sorts"].map(|key| told(&outcome, key));
        let compares = compares?;
        let under = under?;
        println!("{runtime}: {under} of {compares} stacks go through qsort");
        ensure_or_longer!(compares >= 100, "{outcome}");
        ensure!(under * 100 >= compares * 98, "{outcome}");
        let sorts = |line: &&str| line.starts_with("native libc.so.6!qsort");
        ensure!(outcome.stderr.lines().find(sorts).is_some(), "{outcome}");
        Ok(())
    })
}

/// The runtime reads below its tables if it is asked which method such an address is in.
#[test]
fn words_on_a_stack_that_lead_into_code_that_never_ran_are_no_callers() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        if cfg!(not(target_arch = "x86_64")) {
            println!("SKIPPED on {runtime}: the program brings machine code for x86-64");
            return Ok(());
        }
        let outcome = sample(runtime, "Words", &[&(times * 1000).to_string()], 1000)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "over\n", "{outcome}");
        was_sampled(&outcome)
    })
}

#[test]
fn faults_and_exceptions_on_many_threads_go_on() -> Result<()> {
    patiently(all()?, |runtime, times| {
        let outcome =
            sample(runtime, "Signals", &["storm", "64", &(times * repetitions(1000, 3000)).to_string()], 100)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "wrong: 0\n", "{outcome}");
        was_sampled(&outcome)?;
        println!("{runtime}: {} samples in {:?}", told(&outcome, "samples")?, outcome.duration);
        Ok(())
    })
}

#[test]
fn many_signals_on_many_threads_change_nothing() -> Result<()> {
    // A thread that runs is asked in each round: so many that some come in the middle of everything.
    let signals = repetitions(300, 5000);
    let threads = repetitions("8", "64");
    patiently(runtimes()?, |runtime, times| {
        let milliseconds = (times * repetitions(1500, 4000)).to_string();
        // The test above has the other collector.
        for &server in repetitions(&["1"][..], &["0", "1"]) {
            let run =
                Run::new(runtime, "Signals").args(["storm", threads, &milliseconds]).profiler_named(LIBRARY, "Counts");
            let run = run.env("SIGNALS", "1").env("EVERY_US", "100").timeout(PATIENCE);
            let outcome = run.env("DOTNET_gcServer", server).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == "wrong: 0\n", "{outcome}");
            was_sampled(&outcome)?;
            let samples = told(&outcome, "samples")?;
            println!("{runtime}, server GC {server}: {samples} samples");
            ensure_or_longer!(samples >= signals, "{samples} samples");
        }
        Ok(())
    })
}

#[test]
fn signals_that_nobody_asked_for_change_nothing() -> Result<()> {
    let signals = repetitions("10000", "100000");
    for runtime in runtimes()? {
        let run = Run::new(&runtime, "Signals").args(["flood", signals]).profiler_named(LIBRARY, "Counts");
        let outcome = run.env("SIGNALS", "1").env("EVERY_US", "100").timeout(PATIENCE).run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "wrong: 0\n", "{outcome}");
        was_sampled(&outcome)?;
    }
    Ok(())
}

#[test]
fn forked_children_go_on_without_the_sampler() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let outcome = sample(runtime, "Signals", &["fork", &(times * 50).to_string()], 100)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == format!("{} forks\n", times * 50), "{outcome}");
        ensure_or_longer!(told(&outcome, "samples")? > 0, "{outcome}");
        was_sampled(&outcome)
    })
}

#[test]
fn a_handler_from_before_the_start_is_left_alone() -> Result<()> {
    for runtime in all()? {
        let run = Run::new(&runtime, "Signals").args(["handler"]).profiler_named(LIBRARY, "Counts");
        let outcome = run.env("SIGNALS", "1").env("FOREIGN_HANDLER", "1").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.contains("has set up a handler for SIGURG of its own"), "{outcome}");
        let handler = outcome.stderr.lines().find(|line| line.starts_with("handler: "));
        ensure!(handler.is_some_and(|handler| outcome.stdout == format!("{handler}\n")), "{outcome}");
        ensure!(!outcome.stderr.contains("strategy: "), "the profiler is not loaded: {outcome}");

        // Where no strategy is asked for, another is taken, and a line says what that means.
        let run = Run::new(&runtime, "Signals").args(["storm", "2", "300"]).profiler_named(LIBRARY, "Counts");
        let outcome = run.env("AUTO", "1").env("CPU", "1").env("FOREIGN_HANDLER", "1").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.contains("strategy: SuspendedRuntime\n"), "{outcome}");
        let why = "the sampler stops threads instead of sending signals, so code between two safepoints is charged to other code";
        let is_said = outcome.stderr.lines().any(|line| line.contains(why) && line.contains("a handler for SIGURG"));
        ensure!(is_said, "{outcome}");
    }
    Ok(())
}

#[test]
fn children_are_started_and_get_no_signals() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let outcome = sample(runtime, "Signals", &["spawn", &(times * 10).to_string()], 100)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == format!("{} children\n", times * 10), "{outcome}");
        was_sampled(&outcome)?;
        Ok(())
    })
}

#[test]
fn another_program_takes_over_with_a_signal_on_its_way() -> Result<()> {
    for runtime in runtimes()? {
        for _ in 0..repetitions(3, 10) {
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
        for _ in 0..repetitions(1, 3) {
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
        for turn in 0..repetitions(4, 20) {
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
    patiently(runtimes()?, |runtime, times| {
        let [threads, at_once, foreign] =
            repetitions([1000, 100, 300], [5000, 200, 1000]).map(|count| (times * count).to_string());
        for (app, args) in [("Churn", [threads.as_str(), &at_once].as_slice()), ("Foreign", &[&foreign])] {
            let alone = Run::new(runtime, app).args(args).run()?;
            let outcome = sample(runtime, app, args, 100)?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
            was_sampled(&outcome)?;
            // Threads without a sample are counted, and their processor time is.
            let [unseen, used, seen] = ["unseen", "cpu-us", "weight-us"].map(|key| told(&outcome, key));
            let unseen = unseen?;
            let used = used?;
            let seen = seen?;
            println!("{runtime}, {app}: {unseen} threads without a sample, {seen} us of {used} us seen");
            let enough = if app == "Churn" { 100 } else { 1 };
            ensure_or_longer!(unseen >= enough && seen < used, "{unseen} threads, {seen} us of {used} us: {outcome}");
        }
        Ok(())
    })
}

/// The signal that prepares a thread, or takes its larger stack back, would end sleeps in native code, which few programs
/// expect. One that is blocked would stay pending, and be taken by `sigwait` for one of the application's.
#[test]
fn native_sleeps_are_not_cut_short_by_attaches_and_detaches() -> Result<()> {
    for runtime in diagnostics::runtimes()? {
        let (clsid, library) = profiler(&runtime, "leaver")?;
        let mut program = Program::ready(Run::new(&runtime, "Sleeps").command()?)?;
        let client = Process::open(program.pid())?.client().with_timeout(diagnostics::PATIENCE);
        for _ in 0..repetitions(2, 20) {
            attach(&client, clsid, &library, b"signals")?;
            program.tell("go on")?;
            program.tell("throw")?;
        }
        let stderr = program.end()?;
        ensure!(stderr.contains("cut: 0 0 0 0 0, heard: 0"), "{runtime}: {stderr}");
        ensure!(stderr.matches("it leaves").count() == repetitions(2, 20), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_handler_of_the_applications_is_respected() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let outcome = sample(runtime, "Signals", &["replace", &(times * 2000).to_string()], 1000)?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "replaced\n", "{outcome}");
        let told = "has set up a handler for SIGURG of its own";
        ensure_or_longer!(outcome.stderr.contains(told), "{outcome}");
        ensure!(outcome.stderr.matches(told).count() == 1, "{outcome}");
        // It is told by the first round of the other strategy.
        ensure_or_longer!(outcome.stderr.contains("strategy: SuspendedRuntime"), "{outcome}");
        Ok(())
    })
}

mod long {
    use super::*;

    /// The handler is managed code, and ends the process in the middle of managed code. A signal that was sent just
    /// before it was installed may still reach it, on a busy machine in one run of dozens: so this is not among the
    /// quick tests.
    #[test]
    fn no_signal_reaches_a_handler_that_the_application_installs_later() -> Result<()> {
        for runtime in &runtimes()? {
            for _ in 0..repetitions(3, 50) {
                let outcome = sample(runtime, "Signals", &["own", "600"], 1000)?;
                outcome.exited_with(0)?;
                ensure!(outcome.stdout == "heard 0\n", "{outcome}");
            }
        }
        Ok(())
    }

    /// Each left three mappings behind, of which the system allows 65,530: the runtime then ended the process.
    #[test]
    fn tens_of_thousands_of_native_threads_leave_no_memory_behind() -> Result<()> {
        for runtime in &runtimes()? {
            let outcome = sample(runtime, "Foreign", &["25000"], 500)?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout.starts_with("threads=25000 "), "{outcome}");
        }
        Ok(())
    }

    #[test]
    fn known_shares_come_out_on_a_full_machine() -> Result<()> {
        let processors = std::thread::available_parallelism()?.get();
        patiently(runtimes()?, |runtime, times| {
            // More threads than processors: so many seconds are computed under any other load of the machine.
            let threads = (2 * processors).to_string();
            let outcome = sample(runtime, "Shares", &[&(times * 8000).to_string(), &threads], 1000)?;
            outcome.exited_with(0)?;
            was_sampled(&outcome)?;
            // Every thread's time is accounted for, but for its start and its end.
            for worker in 0..2 * processors {
                let [sampled, got] =
                    ["thread-weight-us", "system-cpu-us"].map(|key| told(&outcome, &format!("{key} worker {worker}")));
                let sampled = sampled?;
                let got = got?;
                ensure!(sampled <= got, "worker {worker}: {sampled} us of {got} us: {outcome}");
                ensure_or_longer!(sampled * 10 >= got * 8, "worker {worker}: {sampled} us of {got} us: {outcome}");
            }
            let [sixty, thirty, ten] =
                ["Sixty", "Thirty", "Ten"].map(|chain| told(&outcome, &format!("chain Shares.{chain}()")));
            let counts = [sixty?, thirty?, ten?];
            let total: u64 = counts.iter().sum();
            ensure_or_longer!(total >= 4000, "{total} samples");
            for (count, expected) in counts.into_iter().zip([60.0, 30.0, 10.0]) {
                let share = 100.0 * count as f64 / total as f64;
                println!("{runtime}: {share:.1} % of {total} samples, {expected} % expected");
                ensure!((share - expected).abs() <= 3.0, "{share:.1} % of {total} instead of {expected} %");
            }
            let torn = told(&outcome, "torn")?;
            ensure!(torn * 100 <= total, "{torn} of {total} stacks without their outer frames");
            Ok(())
        })
    }
}
