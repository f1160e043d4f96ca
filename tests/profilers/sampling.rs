//! Samplers for the live tests. At Shutdown each prints its results, one `key value` a line.

#![allow(clippy::panic, reason = "one of them is there to panic")]

mod watched;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use corprof::names::Names;
use corprof::prelude::*;
use corprof::sampler::{Mode, Report, Round, SampledFrame, Sampler, Strategy};
use corprof::testing::suspension;

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A sampler as the environment wants it.
fn sampler() -> Sampler {
    let sampler = Sampler::every(Duration::from_micros(setting("EVERY_US", 1000)));
    let sampler = sampler.budget(setting("BUDGET_PERCENT", 100) as f64 / 100.0);
    let sampler = sampler.longest_suspension(Duration::from_micros(setting("LONGEST_US", 50_000)));
    let sampler = sampler.max_depth(setting("DEPTH", 2048) as usize);
    let sampler = if setting("CPU", 0) == 1 { sampler.mode(Mode::Cpu) } else { sampler };
    match ["SEEDED", "SIGNALS", "AUTO"].map(|name| setting(name, 0) == 1) {
        [true, ..] => sampler.strategy(Strategy::Seeded),
        [_, true, _] => sampler.strategy(Strategy::Signals),
        [_, _, true] => sampler, // its own choice
        _ => sampler.strategy(Strategy::SuspendedRuntime),
    }
}

/// Handles SIGURG as an application might, and records the sender. It is a function of libc, as this library may be
/// unloaded.
#[cfg(target_os = "linux")]
fn handle_urgent() {
    if setting("FOREIGN_HANDLER", 0) == 1 {
        let handler = libc::abs as *const () as libc::sighandler_t;
        // SAFETY: the function takes a signal's number as it takes any other, and touches no memory.
        unsafe { libc::signal(libc::SIGURG, handler) };
        eprintln!("handler: {handler:x}");
    }
}

#[cfg(not(target_os = "linux"))]
fn handle_urgent() {}

#[derive(Default)]
struct Seen {
    report: Report,
    /// How many samples, and their weight, by the function called from `Works`.
    chains: BTreeMap<Name, (u64, Duration)>,
    /// The sum of these weights, and that of their squares.
    weights: (f64, f64),
    /// How many samples by leaf function.
    leaves: BTreeMap<Name, u64>,
    /// The weight of samples of waiting threads.
    waits: Duration,
    /// How many samples, and their weight, by the name of the thread.
    threads: BTreeMap<String, (u64, Duration)>,
    /// Samples of the working method without the frame that every chain begins with.
    torn: u64,
    /// Samples in which native frames stand between `Between.Compares` and `Between.Sorts`, and how many those were in
    /// all.
    holes: (u64, u64),
    /// Samples with native frames on top of managed ones.
    native_leaves: u64,
    /// Samples in `Between.Compares`, and those of them that show `Between.Sorts` further out.
    compares: (u64, u64),
    /// Native frames by name.
    natives: BTreeMap<String, u64>,
    /// Threads that rounds had no time for.
    left_out: usize,
}

/// Counts the threads in each function.
#[derive(Default, Profiler)]
#[profiler(clsid = "9C0E6F41-0B0B-4C6B-8F3A-5B1F3C2E0001", no_export)]
struct Counts(Arc<Mutex<Seen>>);

fn count(seen: &Mutex<Seen>, round: &Round<'_, '_>) {
    let Ok(mut seen) = seen.lock() else { return };
    let seen = &mut *seen;
    let names = round.cx().names();
    for sample in round.samples() {
        seen.native_leaves += u64::from(sample.frames().first().is_some_and(|frame| frame.function.is_none()));
        let natives = hole(sample.frames(), names) as u64;
        for (number, frame) in sample.frames().iter().enumerate().filter(|(_, frame)| frame.function.is_none()) {
            let name = round.native_name(frame.ip - usize::from(number > 0));
            *seen.natives.entry(name.unwrap_or_else(|| "?".to_owned())).or_default() += 1;
        }
        seen.holes = (seen.holes.0 + natives.min(1), seen.holes.1 + natives);
        let functions = sample.frames().iter().filter_map(|frame| frame.function);
        let chain: Vec<Name> = functions.map(|function| names.function(function)).collect();
        let Some(leaf) = chain.first() else { continue };
        if let Some(compares) = chain.iter().position(|name| name.starts_with("Between.Compares")) {
            let sorts = chain.iter().skip(compares).any(|name| name.starts_with("Between.Sorts"));
            seen.compares = (seen.compares.0 + 1, seen.compares.1 + u64::from(sorts));
        }
        *seen.leaves.entry(leaf.clone()).or_default() += 1;
        seen.waits += if sample.is_waiting() { sample.weight() } else { Duration::ZERO };
        let is_works = |name: &Name| name.starts_with("Shares.Works") || name.starts_with("Pool.Works");
        if let Some(works) = chain.iter().position(is_works) {
            let callee = works.checked_sub(1).and_then(|callee| chain.get(callee));
            let (samples, time) = seen.chains.entry(callee.unwrap_or(leaf).clone()).or_default();
            *samples += 1;
            *time += sample.weight();
            let weight = sample.weight().as_secs_f64();
            seen.weights = (seen.weights.0 + weight, seen.weights.1 + weight * weight);
        } else if leaf.starts_with("Shares.Burn") {
            seen.torn += 1;
        }
        let thread = sample.thread().name.as_deref().unwrap_or("?");
        let (samples, time) = seen.threads.entry(thread.to_owned()).or_default();
        *samples += 1;
        *time += sample.weight();
    }
    seen.left_out += round.report().threads.left_out;
    seen.report = round.report().clone();
}

/// Whether each thread prints its processor time at its end. Thousands that do hold each other up: the runtime makes
/// one wait for the next there.
static TELLS_SYSTEM_TIME: LazyLock<bool> = LazyLock::new(|| setting("SYSTEM_TIME", 0) == 1);

/// Prints the processor time of the calling thread, which ends, as Linux counts it.
fn tell_system_time() {
    if !*TELLS_SYSTEM_TIME {
        return;
    }
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/{file}")).ok();
    let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else { return };
    let nanoseconds = times.split(' ').next().and_then(|time| time.parse::<u64>().ok());
    if let Some(time) = nanoseconds {
        eprintln!("system-cpu-us {}: {}", name.trim(), time / 1000);
    }
}

/// How many native frames there are between the two methods of `Between`.
fn hole(frames: &[SampledFrame], names: Names<'_>) -> usize {
    let is = |frame: &SampledFrame, name: &str| {
        frame.function.is_some_and(|function| names.function(function).starts_with(name))
    };
    let compares = frames.iter().position(|frame| is(frame, "Between.Compares"));
    let after = compares.map_or(&[] as &[SampledFrame], |place| &frames[place + 1..]);
    let natives = after.iter().take_while(|frame| frame.function.is_none()).count();
    if after.get(natives).is_some_and(|frame| is(frame, "Between.Sorts")) { natives } else { 0 }
}

fn tell(seen: &Seen) {
    let Seen { report, chains, weights, leaves, waits, threads, torn, left_out, holes, .. } = seen;
    let Seen { native_leaves, compares, natives, .. } = seen;
    let mut text = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| text += &format!("{key}: {value}\n");
    line("rounds", &report.rounds);
    line("samples", &report.samples);
    line("skipped", &report.skipped.total());
    line("skipped late", &report.skipped.late);
    line("skipped budget", &report.skipped.budget);
    line("skipped busy", &report.skipped.busy);
    line("skipped not-started", &report.skipped.not_started);
    line("truncated", &report.truncated);
    line("incomplete", &report.incomplete);
    line("ended", &report.ended);
    line("delayed", &report.delayed);
    line("retries", &report.retries);
    line("longest-us", &report.suspension.longest.as_micros());
    line("mean-us", &report.suspension.mean().as_micros());
    line("total-us", &report.suspension.total.as_micros());
    line("abandoned", &report.abandoned);
    line("unwound", &report.unwound);
    line("strategy", &format_args!("{:?}", report.strategy));
    // So many samples of equal weight would be as good.
    line("effective", &((weights.0 * weights.0 / weights.1.max(f64::MIN_POSITIVE)) as u64));
    line("holes", &holes.0);
    line("natives in holes", &holes.1);
    line("native leaves", native_leaves);
    line("compares", &compares.0);
    line("compares under sorts", &compares.1);
    line("torn", torn);
    line("left-out", left_out);
    line("report", report);
    line("weight-us", &report.weight.as_micros());
    line("cpu-us", &report.cpu_time.as_micros());
    line("waits-us", &waits.as_micros());
    line("unseen", &report.unseen);
    line("walks", &report.walks);
    line("walks of threads", &report.walks.iter().map(|(_, count)| count).sum::<u64>());
    line("refusals", &report.refusals);
    line("violations", &suspension::violations());
    for (name, (count, time)) in chains {
        line(&format!("chain {name}"), count);
        line(&format!("weight-us {name}"), &time.as_micros());
    }
    for (name, count) in natives {
        line(&format!("native {name}"), count);
    }
    for (name, count) in leaves {
        line(&format!("leaf {name}"), count);
    }
    for (name, (count, time)) in threads {
        line(&format!("thread {name}"), count);
        line(&format!("thread-weight-us {name}"), &time.as_micros());
    }
    eprint!("{text}");
}

#[callbacks]
impl Callbacks for Counts {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        handle_urgent();
        let seen = Arc::clone(&profiler.0);
        let linger = Duration::from_micros(setting("LINGER_US", 0));
        sampler().start(cx, move |round| {
            count(&seen, round);
            std::thread::sleep(linger);
        })?;
        // There is one of a kind in the process.
        if let Err(error) = sampler().start(cx, |_| ()) {
            eprintln!("second sampler: {error}");
        }
        Ok(profiler)
    }

    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {
        tell_system_time();
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        if let Ok(seen) = self.0.lock() {
            tell(&seen);
        }
    }
}

/// Panics in its hundredth round.
#[derive(Default, Profiler)]
#[profiler(clsid = "9C0E6F41-0B0B-4C6B-8F3A-5B1F3C2E0002", no_export)]
struct PanicsInRound;

#[callbacks]
impl Callbacks for PanicsInRound {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        sampler().start(cx, move |round| {
            if round.report().rounds == 100 {
                panic!("in round 100");
            }
        })?;
        Ok(Self)
    }
}

corprof::export!(Counts, PanicsInRound);
