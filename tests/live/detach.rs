//! Profilers that come by an attach and leave by a `Detacher`, on real runtimes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corprof_diagnostics::{Client, Error, HResult, Process, Uuid};
use corprof_launch::running::Running;
use corprof_tests::{Limit, Run, Runtime, ensure_or_longer, minutes, number, patiently, repetitions};
use xtask::stacks;
use xtask::stress::any_number;

use crate::diagnostics::{PATIENCE, Program, built_in, command, profiler, runtimes};

/// A program, and a profiler that comes and goes.
struct Visited {
    program: Program,
    client: Client,
    clsid: Uuid,
    library: PathBuf,
}

impl Visited {
    fn new(runtime: &Runtime) -> Result<Self> {
        let (clsid, library) = profiler(runtime, "leaver")?;
        let program = Program::ready(command(runtime)?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        Ok(Self { program, client, clsid, library })
    }

    fn attach(&self, told: &str) -> Result<()> {
        attach(&self.client, self.clsid, &self.library, told.as_bytes()).map(drop)
    }

    /// How many threads, descriptors and mappings the program has, and its memory in kilobytes.
    fn figures(&self) -> Result<[usize; 4]> {
        let process = PathBuf::from(format!("/proc/{}", self.program.pid()));
        let entries = |folder: &str| anyhow::Ok(fs::read_dir(process.join(folder))?.count());
        let maps = fs::read_to_string(process.join("maps"))?.lines().count();
        let status = fs::read_to_string(process.join("status"))?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let memory = memory.trim().trim_end_matches(" kB").parse()?;
        Ok([entries("task")?, entries("fd")?, maps, memory])
    }
}

/// Attaches a profiler as soon as the one before has left; returns how long that took the runtime.
pub(crate) fn attach(client: &Client, clsid: Uuid, library: &Path, told: &[u8]) -> Result<Duration> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let begin = Instant::now();
        let answer = client.attach_profiler(clsid, library, told, PATIENCE);
        match answer.as_ref().err().and_then(Error::code) {
            Some(HResult::PROFILER_ALREADY_ACTIVE) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            _ => return Ok(answer.map(|()| begin.elapsed())?),
        }
    }
}

/// How many alternate stacks as the sampler makes them a process has: 128 KB above a page that is guarded.
fn larger_stacks(pid: u32) -> Result<usize> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let size_and_access = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(end)? - number(start)?, rest.get(..4)?.to_owned()))
    };
    let mappings: Vec<_> = maps.lines().filter_map(size_and_access).collect();
    let is_guarded = |pair: &&[(u64, String)]| {
        let [(_, below), (size, access)] = pair else { return false };
        below == "---p" && access == "rw-p" && *size == 128 * 1024
    };
    Ok(mappings.windows(2).filter(is_guarded).count())
}

/// How often a line was said.
fn count(stderr: &str, line: &str) -> usize {
    stderr.lines().filter(|said| said.strip_prefix("leaver| ").is_some_and(|said| said.starts_with(line))).count()
}

#[test]
fn a_profiler_leaves_and_clones_of_info_answer_with_an_error() -> Result<()> {
    for runtime in runtimes()? {
        let mut visited = Visited::new(&runtime)?;
        let told = ["", "slow", "signals", "session"];
        for told in &told {
            visited.attach(told)?;
            visited.program.tell("collect 3")?;
            visited.program.tell("throw 2")?;
        }
        // The last one has left as soon as another can come; this one stays.
        visited.attach("stays")?;
        visited.program.tell("throw 1")?;
        let second = visited.client.attach_profiler(visited.clsid, &visited.library, &[], PATIENCE);
        let code = second.as_ref().err().and_then(Error::code);
        ensure!(code == Some(HResult::PROFILER_ALREADY_ACTIVE), "{runtime}: {second:?}");
        let stderr = visited.program.end()?;
        let times = told.len();
        ensure!(count(&stderr, "it leaves") == times, "{runtime}: {stderr}");
        ensure!(count(&stderr, "last word: 0 inside, modules seen: true") == times + 1, "{runtime}: {stderr}");
        let answers = count(&stderr, "a clone of Info answers: GetCurrentThreadID");
        ensure!(answers >= times, "{runtime}: {stderr}");
        let stays = "it stays: RequestProfilerDetach(SetEventMask2(COR_PRF_ENABLE_REJIT))";
        ensure!(count(&stderr, stays) == 1, "{runtime}: {stderr}");
        let (before, after) = stderr.split_once("leaver| the callback ends").context("no slow callback")?;
        ensure!(count(before, "last word") == 1 && count(after, "last word") == times, "{runtime}: {stderr}");
        ensure!(!stderr.contains("panicked"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_profiler_that_has_edited_a_running_method_stays() -> Result<()> {
    for runtime in runtimes()? {
        let mut visited = Visited::new(&runtime)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("counts");
        visited.attach(&format!("instruments={}", file.display()))?;
        let deadline = Instant::now() + PATIENCE;
        // Methods that were compiled before, and are called again.
        while !file.exists() {
            ensure!(Instant::now() < deadline, "{runtime}: no method counts its calls");
            visited.program.tell("collect 1")?;
        }
        visited.program.tell("throw 1")?;
        let stderr = visited.program.end()?;
        let stays = "it stays: RequestProfilerDetach(SetEventMask2(COR_PRF_ENABLE_REJIT))";
        ensure!(count(&stderr, stays) == 1 && count(&stderr, "it leaves") == 0, "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn a_profiler_comes_and_goes_and_nothing_grows() -> Result<()> {
    // In the first visits the runtime, the allocator and the thread pool of the program reach their steady size. A
    // short form sees threads and descriptors that are left behind; memory takes more visits.
    let (first, visits) = repetitions((5, 10), (60, 100));
    patiently(runtimes()?, |runtime, times| {
        let cycles = visits * usize::try_from(times)?;
        let mut visited = Visited::new(runtime)?;
        let mut figures = Vec::new();
        for _ in 0..first + cycles {
            visited.attach("")?;
            figures.push(visited.figures()?);
            // A collection each time, so that the application's own memory stays as it is.
            visited.program.tell("collect 1")?;
            visited.program.tell("throw 1")?;
        }
        let before = figures[first];
        visited.attach("stays")?;
        // Threads of the last one are seen to end some time after.
        let deadline = Instant::now() + PATIENCE;
        let after = loop {
            let after = visited.figures()?;
            if after[0] <= before[0] && after[1] <= before[1] {
                break after;
            }
            if Instant::now() > deadline {
                bail!("{runtime}: threads, descriptors, mappings, kB: {before:?} before, {after:?} after");
            }
            thread::sleep(Duration::from_millis(50));
        };
        println!("{runtime}: threads, descriptors, mappings, kB: {before:?} before, {after:?} after");
        if repetitions(false, true) {
            // The runtime compiles and collects meanwhile, which is not the profiler's, and less of it the longer this
            // goes on. One mapping a cycle would be 100.
            let [mappings, memory] = [2, 3].map(|figure| growth(&figures[first..], figure));
            println!("{runtime}: {mappings} mappings and {memory} kB more, by medians of some visits");
            ensure_or_longer!(mappings <= cycles / 5, "{runtime}: {mappings} mappings more after {cycles} visits");
            ensure_or_longer!(memory <= 5 * cycles, "{runtime}: {memory} kB more after {cycles} visits");
        }
        let stderr = visited.program.end()?;
        ensure!(count(&stderr, "dropped") == first + cycles + 1, "{runtime}: {}", count(&stderr, "dropped"));
        Ok(())
    })
}

/// By how much a figure has grown from the first visits to the last, by the medians of each.
fn growth(figures: &[[usize; 4]], figure: usize) -> usize {
    const SOME: usize = 11;
    let median = |visits: &[[usize; 4]]| {
        let mut values: Vec<_> = visits.iter().map(|visit| visit[figure]).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    let [first, last] = [&figures[..SOME], &figures[figures.len() - SOME..]].map(median);
    last.saturating_sub(first)
}

/// What the visits of a profiler cost.
struct Visits {
    /// Bytes by which the allocated memory grows with each.
    growth: f64,
    /// The median duration of an attach.
    attach: Duration,
}

/// Has a profiler come and go so often.
fn visit(runtime: &Runtime, clsid: Uuid, library: &Path, told: &str, visits: usize) -> Result<Visits> {
    /// In these the runtime and the thread pool of the program reach their steady size.
    const FIRST: usize = 30;
    /// The least of so many values counts: what the runtime does besides comes and goes.
    const SOME: usize = 15;
    /// By then a profiler has left. Until then the runtime refuses the next, and never releases the object that it has
    /// made of it (seen on .NET 8, 10 and 11): that memory would be counted.
    const LEAVES: Duration = Duration::from_millis(500);
    let mut program = Program::ready(command(runtime)?)?;
    let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
    let mut took = Vec::new();
    for _ in 0..FIRST + visits {
        thread::sleep(LEAVES);
        took.push(attach(&client, clsid, library, told.as_bytes())?);
        program.tell("collect 1")?;
        program.tell("throw 1")?;
    }
    let stderr = program.end()?;
    let values = stderr.lines().filter_map(|line| line.split_once("| in use: ")?.1.parse::<f64>().ok());
    let values: Vec<f64> = values.collect();
    ensure!(values.len() == FIRST + visits, "{runtime}: {stderr}");
    let least = |from: usize| values.iter().skip(from).take(SOME).copied().fold(f64::INFINITY, f64::min);
    took.sort_unstable();
    Ok(Visits {
        growth: (least(FIRST + visits - SOME) - least(FIRST)) / (visits - SOME) as f64,
        attach: took.get(took.len() / 2).copied().unwrap_or_default(),
    })
}

#[test]
fn a_profiler_comes_and_goes_in_a_storm_of_collections_and_exceptions() -> Result<()> {
    for runtime in runtimes()? {
        let mut visited = Visited::new(&runtime)?;
        visited.program.tell("storm")?;
        for told in ["", "slow", "", "signals", ""] {
            visited.attach(told)?;
        }
        visited.program.tell("calm")?;
        let stderr = visited.program.end()?;
        ensure!(count(&stderr, "it leaves") >= 4 && !stderr.contains("panicked"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn threads_have_their_own_alternate_stacks_again_after_a_detach() -> Result<()> {
    let runtimes = runtimes()?.into_iter().filter(|runtime| !runtime.is_windows());
    for runtime in runtimes {
        let mut visited = Visited::new(&runtime)?;
        for _ in 0..repetitions(2, 20) {
            visited.attach("signals")?;
            let deadline = Instant::now() + PATIENCE;
            while larger_stacks(visited.program.pid())? == 0 {
                ensure!(Instant::now() < deadline, "{runtime}: no thread is prepared");
                thread::sleep(Duration::from_millis(10));
            }
            visited.program.tell("throw 1")?;
            while larger_stacks(visited.program.pid())? > 0 {
                let left = larger_stacks(visited.program.pid())?;
                ensure!(Instant::now() < deadline, "{runtime}: {left} threads have larger stacks");
                thread::sleep(Duration::from_millis(10));
            }
        }
        // Faults are handled as ever.
        visited.program.tell("throw 1")?;
        let stderr = visited.program.end()?;
        ensure!(count(&stderr, "it stays") == 0 && !stderr.contains("panicked"), "{runtime}: {stderr}");
    }
    Ok(())
}

/// Attaches a built-in profiler that stays until the program ends, and has the program call `Throw` twice and `Answer`
/// once in each round. `Throw` is not compiled before the attach; `Answer` is, and has hooks once the runtime has been
/// asked. Returns the program's standard error.
fn stays(runtime: &Runtime, name: &str, data: &str, rounds: u64) -> Result<String> {
    let (clsid, library) = built_in(runtime, name)?;
    let mut program = Program::ready(command(runtime)?)?;
    program.tell("collect 1")?;
    let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
    client.attach_profiler(clsid, &library, data.as_bytes(), PATIENCE)?;
    for _ in 0..rounds {
        program.tell("throw 2")?;
        thread::sleep(Duration::from_millis(20));
    }
    program.end()
}

#[test]
fn timer_attaches_to_a_running_application() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let rounds = 50 * times;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("times.csv");
        let data = format!("TIMER_FILTER=Diagnosed.*\nTIMER_OUT={}", path.display());
        let stderr = stays(runtime, "timer", &data, rounds)?;
        let times = fs::read_to_string(&path).with_context(|| format!("no times: {stderr}"))?;
        let calls = |name: &str| {
            let line = times.lines().find(|line| line.contains(name));
            line.and_then(|line| line.rsplit(',').nth(4)?.parse::<u64>().ok()).unwrap_or_default()
        };
        ensure!(calls("Diagnosed.Throw(") == 2 * rounds, "{runtime}: {times}{stderr}");
        ensure!(calls("Diagnosed.Answer(") <= rounds, "{runtime}: {times}{stderr}");
        ensure_or_longer!(calls("Diagnosed.Answer(") > 0, "{runtime}: {times}{stderr}");
        Ok(())
    })
}

#[test]
fn tracer_attaches_to_a_running_application() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let rounds = 50 * times;
        let stderr = stays(runtime, "tracer", "TRACER_FILTER=Diagnosed.*", rounds)?;
        let calls = |name: &str| stderr.lines().filter(|line| line.contains(name)).count() as u64;
        ensure!(calls("Diagnosed.Throw(") == 2 * rounds, "{runtime}: {stderr}");
        ensure!(stderr.contains("tracer: 0 beginnings and ends were lost"), "{runtime}: {stderr}");
        ensure!(calls("Diagnosed.Answer(") <= rounds, "{runtime}: {stderr}");
        ensure_or_longer!(calls("Diagnosed.Answer(") > 0, "{runtime}: {stderr}");
        Ok(())
    })
}

#[test]
fn trace_values_attaches_to_a_running_application() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let rounds = 50 * times;
        let stderr = stays(runtime, "trace_values", "TRACE_VALUES=Diagnosed.*", rounds)?;
        let calls = |line: &str| stderr.lines().filter(|found| *found == line).count() as u64;
        ensure!(calls("Diagnosed.Throw()") == 2 * rounds, "{runtime}: {stderr}");
        ensure!(calls("Diagnosed.Throw returns void") == 2 * rounds, "{runtime}: {stderr}");
        ensure!(calls("Diagnosed.Answer(\"done throw 2\")") <= rounds, "{runtime}: {stderr}");
        ensure_or_longer!(calls("Diagnosed.Answer(\"done throw 2\")") > 0, "{runtime}: {stderr}");
        Ok(())
    })
}

#[test]
fn count_calls_attaches_to_a_running_application() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let rounds = 50 * times;
        let stderr = stays(runtime, "count_calls", "COUNT_CALLS_FILTER=Diagnosed.*", rounds)?;
        let calls = |name: &str| {
            let line = stderr.lines().find(|line| line.starts_with("count_calls: ") && line.contains(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or_default()
        };
        ensure!(calls("Diagnosed.Throw(") == 2 * rounds, "{runtime}: {stderr}");
        ensure!(calls("Diagnosed.Answer(") <= rounds, "{runtime}: {stderr}");
        ensure_or_longer!(calls("Diagnosed.Answer(") > 0, "{runtime}: {stderr}");
        Ok(())
    })
}

mod long {
    use super::*;

    /// How a run of `Stress` ends, and its exit code.
    const ENDINGS: [(&str, i32); 3] = [("whole", 0), ("return", 3), ("exit", 7)];

    /// What has happened in a run of `Stress`, or in several.
    #[derive(Default)]
    struct Torture {
        /// Samplers that were attached.
        visits: usize,
        /// Those that have sampled threads by signals.
        sampled: usize,
        samples: u64,
    }

    /// The count in the sampler's last line: `sampler: cpu: 153 samples in 37 rounds, ...`.
    fn samples(line: &str) -> Option<u64> {
        line.split_once("sampler: cpu: ")?.1.split_once(" samples in ")?.0.parse().ok()
    }

    /// Has a sampler come, send signals and leave while everything happens at once, again and again until the program
    /// ends.
    fn torture(runtime: &Runtime, seed: u64) -> Result<Torture> {
        let (ending, code) = ENDINGS[(seed % 3) as usize];
        let (clsid, library) = built_in(runtime, "sampler")?;
        let folder = tempfile::tempdir()?;
        let data = format!(
            "SAMPLER_STRATEGY=signals\nSAMPLER_HZ=1000\nSAMPLER_DURATION=0.3\nSAMPLER_OUT={}/a.folded",
            folder.path().display()
        );
        let stderr = folder.path().join("stderr");
        let mut command = Run::new(runtime, "Stress").args([&seed.to_string(), "20", ending, "2000"]).command()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&stderr)?);
        let mut program = Running::new(command.spawn()?)?;
        let mut time = Limit::new(program.id(), PATIENCE);
        let mut visits = 0;
        let status = loop {
            if let Some(status) = program.wait_for(Duration::from_millis(10))? {
                break status;
            }
            if time.is_over() {
                let stacks = stacks::of(program.id(), Duration::from_secs(60));
                program.kill()?;
                bail!("{runtime}: Stress {seed} 20 {ending} 2000 hangs after {visits} visits: {stacks}");
            }
            // Refused, if it has not begun, if the last one has not left, or if it ends.
            let visit = Process::open(program.id())
                .and_then(|process| process.client().attach_profiler(clsid, &library, data.as_bytes(), PATIENCE));
            visits += usize::from(visit.is_ok());
        };
        let said = fs::read_to_string(&stderr)?;
        ensure!(
            status.code() == Some(code) && !said.contains("panicked"),
            "{runtime}: Stress {seed} 20 {ending} 2000 ends after {visits} visits with {status}: {said}"
        );
        let counts: Vec<u64> = said.lines().filter_map(samples).collect();
        let sampled = counts.iter().filter(|count| **count > 0).count();
        Ok(Torture { visits, sampled, samples: counts.iter().sum() })
    }

    /// Goes on for `MINUTES`, or for as many runs in which a sampler has sampled as `TORTURE_RUNS` says. All failures
    /// are collected: a fault that is found often must not hide others.
    #[test]
    fn samplers_come_and_go_while_everything_happens_at_once() -> Result<()> {
        let runtimes: Vec<_> = runtimes()?.into_iter().filter(|runtime| !runtime.is_windows()).collect();
        let wanted = number("TORTURE_RUNS")?;
        let mut failures = Vec::new();
        for runtime in &runtimes {
            let time = minutes(0.5) / u32::try_from(runtimes.len())?;
            let begin = Instant::now();
            let first = number("TORTURE_SEED")?.unwrap_or_else(any_number);
            let mut all = Torture::default();
            let mut ended_well = 0;
            let mut without_samples = 0;
            let mut seed = first;
            while wanted.map_or(begin.elapsed() < time || ended_well == 0, |wanted| ended_well < wanted) {
                match torture(runtime, seed) {
                    // On a busy machine a program may end before a sampler has come. That shows nothing.
                    Ok(run) if run.samples == 0 => without_samples += 1,
                    Ok(run) => {
                        ended_well += 1;
                        all.visits += run.visits;
                        all.sampled += run.sampled;
                        all.samples += run.samples;
                    }
                    Err(error) => {
                        println!("{error:?}, again by TORTURE_SEED={seed}");
                        failures.push(error.to_string());
                    }
                }
                seed += 1;
                ensure!(failures.len() < 20, "{}", failures.join("\n"));
                ensure!(
                    without_samples <= 20 + ended_well,
                    "{runtime}: no samples in {without_samples} runs, some in {ended_well}"
                );
            }
            let Torture { visits, sampled, samples } = all;
            println!(
                "{runtime}: {ended_well} runs ended well, {} did not, and {without_samples} had no samples; {visits} visits, {sampled} \
                 with samples, {samples} samples, from seed {first} on",
                failures.len()
            );
        }
        ensure!(failures.is_empty(), "{} failed: {}", failures.len(), failures.join("\n"));
        Ok(())
    }

    #[test]
    fn dynamic_methods_come_and_go_while_samplers_do() -> Result<()> {
        let runtimes = runtimes()?.into_iter().filter(|runtime| !runtime.is_windows()).collect();
        patiently(runtimes, |runtime, times| {
            let mut visited = Visited::new(runtime)?;
            visited.program.tell("churn")?;
            for _ in 0..times * repetitions(3, 100) {
                visited.attach("signals")?;
                thread::sleep(Duration::from_millis(100));
                visited.program.tell("throw 1")?;
            }
            visited.program.tell("calm")?;
            let stderr = visited.program.end()?;
            ensure!(count(&stderr, "it stays") == 0 && !stderr.contains("panicked"), "{runtime}: {stderr}");
            ensure_or_longer!(
                count(&stderr, "a dynamic method") == 1,
                "{runtime}: no dynamic method was named: {stderr}"
            );
            Ok(())
        })
    }

    #[test]
    fn the_memory_that_a_visit_leaves_is_the_runtimes_own() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let least = folder.path().join("visitor.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hosts/visitor.c");
        let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&least, &source]).status()?;
        ensure!(cc.success(), "cc failed");
        patiently(runtimes()?, |runtime, times| {
            let (clsid, library) = profiler(runtime, "leaver")?;
            let visits = 60 * usize::try_from(times)?;
            // Each in a process of its own.
            let (ours, least) = thread::scope(|scope| {
                let least = scope.spawn(|| visit(runtime, clsid, &least, "", visits));
                (visit(runtime, clsid, &library, "memory", visits), least.join())
            });
            let ours = ours?;
            let least = least.map_err(|_| anyhow!("panicked"))??;
            println!(
                "{runtime}: median of an attach: {:?}, of the least profiler in C {:?}",
                ours.attach, least.attach
            );
            let ours = ours.growth;
            let least = least.growth;
            println!("{runtime}: bytes a visit: {ours:.0}, of the least profiler in C {least:.0}");
            ensure_or_longer!(ours < least.max(0.0) + 300.0, "{runtime}: {ours} bytes a visit, in C {least}");
            Ok(())
        })
    }
}
