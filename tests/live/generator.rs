//! Generated profilers that forbid `unsafe` (tests/profilers/generator): each seed is another one, over another
//! application. The application ends by itself, with its own exit code and output, whatever the profiler does.
//!
//! A run is repeated by `GENERATOR_SEED`; CONTRIBUTING.md says how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::{Error, HResult, Process};
use corprof_tests::{Outcome, Run, Runtime, minutes, number};
use fastrand::Rng;
use xtask::stress::any_number;

use crate::diagnostics::{PATIENCE, Program, command, profiler_named};

/// The profiler acts for 8 seconds at most. A machine on which everything is compiled at once is thirty times as slow.
const LONGEST: Duration = Duration::from_secs(300);

/// How many lines of the profiler's log are shown.
const SHOWN: usize = 40;

/// Exit code, and whether numbers in the output depend on what the profiler keeps alive.
type App = (&'static str, &'static [&'static str], i32, bool);

const APPS: &[App] = &[
    ("Unloads", &["6"], 0, true),
    ("Unloads", &["12", "Plug.dll"], 0, true),
    ("Emitted", &["30"], 0, true),
    ("Fire", &["unload", "1", "2"], 0, false),
    ("Fire", &["collect", "1", "2"], 0, false),
    ("Throw", &["200"], 0, false),
    ("Churn", &["200", "50"], 0, false),
    // Not `fork`: a child that is forked while the runtime is suspended waits for ever, whoever has suspended it.
    ("Signals", &["spawn", "3"], 0, false),
    ("Foreign", &["50"], 0, false),
    ("Abandon", &["4", "300"], 3, false),
    ("Exit", &["7", "5"], 7, false),
    ("World", &[], 0, false),
    ("Generics", &[], 0, false),
    ("Dynamic", &[], 0, false),
    ("Stress", &["1", "20", "whole"], 0, false),
    ("Chain", &[], 0, false),
    ("Tails", &[], 0, false),
    ("Edge", &["2"], 0, false),
];

/// Settings of the runtime; each seed has one.
const SETTINGS: &[(&str, &str)] = &[
    ("DOTNET_TieredCompilation", "1"),
    ("DOTNET_TieredCompilation", "0"),
    ("DOTNET_TieredPGO", "0"),
    ("DOTNET_ReadyToRun", "0"),
    ("DOTNET_gcServer", "1"),
    ("DOTNET_gcConcurrent", "0"),
    ("DOTNET_TC_BackgroundWorkerTimeoutMs", "0"),
];

/// What a seed is made into besides the profiler.
struct Case {
    app: App,
    setting: (&'static str, &'static str),
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        // The first number of neighbouring seeds is nearly the same.
        random.u64(..);
        let app = APPS[random.usize(0..APPS.len())];
        Self { app, setting: SETTINGS[random.usize(0..SETTINGS.len())] }
    }

    fn run(&self, runtime: &Runtime) -> Run {
        let (name, args, ..) = self.app;
        Run::new(runtime, name).args(args.iter().copied()).env(self.setting.0, self.setting.1).timeout(LONGEST)
    }
}

/// The end of the profiler's log, and the actions that had not ended.
fn last_actions(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let mut open = BTreeMap::<&str, Vec<&str>>::new();
    for line in &lines {
        if let Some((thread, action)) = line.strip_prefix('+').and_then(|line| line.split_once(' ')) {
            open.entry(thread).or_default().push(action);
        } else if let Some(stack) = line.strip_prefix('-').and_then(|thread| open.get_mut(thread)) {
            stack.pop();
        }
    }
    let open: Vec<_> = open
        .iter()
        .filter(|(_, stack)| !stack.is_empty())
        .map(|(thread, stack)| format!("{thread}: {stack:?}"))
        .collect();
    let last = &lines[lines.len().saturating_sub(SHOWN)..];
    format!("under way:\n{}\nthe last of {} lines:\n{}", open.join("\n"), lines.len(), last.join("\n"))
}

/// The output without what depends on the profiler.
fn comparable(app: App, stdout: &str) -> String {
    stdout.chars().filter(|letter| !(app.3 && letter.is_ascii_digit())).collect()
}

fn check(case: &Case, outcome: &Outcome, bare: &Outcome) -> Result<()> {
    outcome.exited_with(case.app.2)?;
    let [now, before] = [outcome, bare].map(|outcome| comparable(case.app, &outcome.stdout));
    ensure!(
        now == before,
        "the application prints something else, without a profiler\n{}\nand now: {outcome}",
        bare.stdout
    );
    // A panic that is not planned is one of corprof's, or a wrong use of it here.
    let unplanned = outcome.stderr.lines().filter(|line| line.contains("panicked at")).count()
        > outcome.stderr.matches("as planned").count();
    ensure!(!unplanned, "it panicked: {outcome}");
    Ok(())
}

/// The runs of a test, with what applications print without a profiler.
struct Runs<'r> {
    runtime: &'r Runtime,
    bare: BTreeMap<String, Outcome>,
    folder: PathBuf,
}

impl<'r> Runs<'r> {
    fn new(runtime: &'r Runtime) -> Result<Self> {
        let programs = env::var_os("CORPROF_APPS").map(PathBuf::from).context("CORPROF_APPS is not set")?;
        let folder = programs.join("generator").join(format!("{runtime}").replace(' ', "-"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { runtime, bare: BTreeMap::new(), folder })
    }

    fn one(&mut self, seed: u64) -> Result<()> {
        let case = Case::new(seed);
        let what = format!("{:?}", &case.app);
        if !self.bare.contains_key(&what) {
            let outcome = case.run(self.runtime).run()?;
            outcome.exited_with(case.app.2).context("without a profiler")?;
            self.bare.insert(what.clone(), outcome);
        }
        let bare = self.bare.get(&what).context("it was just run")?;
        let log = self.folder.join(format!("{seed}.log"));
        let _ = fs::remove_file(&log);
        let run =
            case.run(self.runtime).profiler_named("generator", "Generated").env("GENERATOR_SEED", seed.to_string());
        let begin = Instant::now();
        let result = run.env("GENERATOR_LOG", &log).run().and_then(|outcome| check(&case, &outcome, bare));
        let runtime = self.runtime;
        let settings = format!("{}={}", case.setting.0, case.setting.1);
        let took = begin.elapsed();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{runtime}, seed {seed}, {} {:?}, {settings}: {took:.1?}: {verdict}", case.app.0, case.app.1);
        if result.is_ok() {
            return fs::remove_file(&log).with_context(|| format!("the profiler has not made {}", log.display()));
        }
        result.with_context(|| {
            format!(
                "seed {seed}: {} {:?} on {runtime} with {settings}; again by\n    GENERATOR_SEED={seed} cargo xtask test --live-only \
                 --runtime {} -- generator::one_seed\nlog: {}\n{}",
                case.app.0,
                case.app.1,
                runtime.major,
                log.display(),
                last_actions(&log)
            )
        })
    }
}

/// What the program is told between visits.
const COMMANDS: [&str; 12] = [
    "collect 2",
    "throw 3",
    "load 2",
    "load 1",
    "unload",
    "unload",
    "storm",
    "churn",
    "calm",
    "contend 1",
    "pool 1",
    "allocate 1",
];

/// A program that generated profilers visit, one after another. Each has what the ones before have kept.
fn visits(runtime: &Runtime, seed: u64, log: &Path) -> Result<u32> {
    /// How long a profiler may need to leave. One that has changed code stays.
    const LEAVES: Duration = Duration::from_secs(15);
    const MOST: u32 = 20;
    let mut random = Rng::with_seed(seed);
    random.u64(..);
    let (clsid, library) = profiler_named(runtime, "generator", "Visits")?;
    let mut start = command(runtime)?;
    start.env("GENERATOR_LOG", log);
    let mut program = Program::ready(start)?;
    let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
    let mut attached = 0;
    let mut is_there_since = Instant::now();
    for visit in 0..200 {
        for _ in 0..random.usize(0..4) {
            program.tell(COMMANDS[random.usize(0..COMMANDS.len())])?;
        }
        let data = (seed.wrapping_mul(100) + visit).to_string();
        let answer = client.attach_profiler(clsid, &library, data.as_bytes(), PATIENCE);
        match answer.as_ref().err().map(Error::code) {
            None => {
                attached += 1;
                is_there_since = Instant::now();
                if attached == MOST {
                    break;
                }
            }
            Some(Some(HResult::PROFILER_ALREADY_ACTIVE)) if is_there_since.elapsed() > LEAVES => break,
            // It is still leaving, or fails as planned.
            Some(Some(_)) => std::thread::sleep(Duration::from_millis(100)),
            Some(None) => drop(answer?),
        }
    }
    program.tell("calm")?;
    let stderr = program.end()?;
    let panics = stderr.lines().filter(|line| line.contains("panicked at")).count();
    ensure!(panics <= stderr.matches("as planned").count(), "it panicked: {stderr}");
    for line in stderr.lines().filter(|line| line.contains("it stays")) {
        println!("{line}");
    }
    Ok(attached)
}

/// Whether the generator is for this runtime. Under Wine and in an emulator a run takes minutes.
fn runtimes() -> Result<Vec<Runtime>> {
    Ok(Runtime::all()?.into_iter().filter(|runtime| !runtime.is_slow()).collect())
}

/// One that the environment names, as often as it says; else some that take little time.
#[test]
fn one_seed() -> Result<()> {
    let named = number("GENERATOR_SEED")?;
    let times = number("GENERATOR_TIMES")?.unwrap_or(1);
    for runtime in &runtimes()? {
        let mut runs = Runs::new(runtime)?;
        for seed in named.map_or(QUICK.to_vec(), |seed| vec![seed]) {
            for _ in 0..times {
                runs.one(seed)?;
            }
        }
    }
    Ok(())
}

/// Seeds whose runs take little time.
const QUICK: &[u64] = &[11, 12, 16];

mod long {
    use super::*;

    #[test]
    fn whatever_safe_profilers_do_the_application_runs() -> Result<()> {
        with_many_seeds(|runs, seed| runs.one(seed))
    }

    #[test]
    fn whatever_safe_profilers_do_between_attach_and_detach_the_application_runs() -> Result<()> {
        with_many_seeds(|runs, seed| {
            let runtime = runs.runtime;
            let log = runs.folder.join(format!("visits-{seed}.log"));
            let _ = fs::remove_file(&log);
            let attached = visits(runtime, seed, &log).with_context(|| last_actions(&log))?;
            println!("{runtime}, visits of seed {seed}: {attached} attached: ok");
            let _ = fs::remove_file(&log);
            Ok(())
        })
    }

    /// As many seeds as the time allows. All failures are collected: a fault that is found often must not hide others.
    fn with_many_seeds(mut run: impl FnMut(&mut Runs<'_>, u64) -> Result<()>) -> Result<()> {
        let runtimes = runtimes()?;
        let mut failures = Vec::new();
        for runtime in &runtimes {
            let begin = Instant::now();
            let first = number("GENERATOR_SEED")?.unwrap_or_else(any_number);
            println!("{runtime}: from seed {first} on");
            let mut runs = Runs::new(runtime)?;
            let time = minutes(3.0) / u32::try_from(runtimes.len())?;
            let mut done = 0;
            for seed in (first..).take_while(|_| begin.elapsed() < time) {
                done += 1;
                if let Err(error) = run(&mut runs, seed) {
                    println!("{error:?}");
                    failures.push(format!("{runtime}: seed {seed}"));
                }
            }
            println!("{runtime}: {done} seeds from {first} on");
        }
        ensure!(failures.is_empty(), "{} failed, see above: {}", failures.len(), failures.join(", "));
        Ok(())
    }
}
