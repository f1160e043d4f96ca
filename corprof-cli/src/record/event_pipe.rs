//! Records a process that another profiler stays in, by the runtime's own sampler.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Error, anyhow, ensure};
use corprof_diagnostics::{Process, ProcessInfo};

use super::answer::{self, Answer, RecordedFile, open_if_asked};
use super::{Args, Output, until};
use crate::event_pipe_samples::{self, Callers, Kind, LIMITS, Sampling};
use crate::exit::{self, Failure, Outcome};
use crate::signals::Signals;

/// The interval between two looks for Ctrl-C.
const RARELY: Duration = Duration::from_millis(200);

/// Records the process, for the reason that no profiler can attach.
pub(super) fn record(
    args: &Args,
    process: &Process,
    output: Option<&Output>,
    signals: &Signals,
    why: &Error,
) -> Outcome {
    let pid = process.pid();
    let Some(output) = output.filter(|_| args.push.push.is_none()) else {
        let text = "only the built-in sampler sends profiles: record into a file, by -o and without --push";
        return Err(Failure::new(exit::NO, anyhow!("{why:#}\n  {text}")));
    };
    if output.is_recording() {
        let text =
            "only the built-in sampler makes recordings: give -o another extension, or use `dotnet-trace collect`";
        return Err(Failure::new(exit::NO, anyhow!("{why:#}\n  {text}")));
    }
    if args.slow_calls.is_wanted() {
        return Err(Failure::new(
            exit::NO,
            anyhow!("{why:#}\n  only corprof's own sampler traces calls: leave out --trace"),
        ));
    }
    if !args.quiet {
        event_pipe_samples::announce(why);
    }
    wait(args.delay, signals)?;
    let client = process.client();
    let info = client.process_info()?;
    let started = SystemTime::now();
    let callers = if args.physical { Callers::Physical } else { Callers::AtEnd };
    let mut sampling = Sampling::start(&client, &info, callers)?;
    if !args.quiet {
        eprintln!("corprof: recording process {pid} {}, {LIMITS}", until(args));
    }
    let begin = Instant::now();
    let duration = args.duration.map_or(Duration::MAX, Duration::from_secs_f64);
    while !sampling.is_over() && !signals.is_interrupted() && begin.elapsed() < duration {
        sampling.read(RARELY.min(duration.saturating_sub(begin.elapsed())))?;
    }
    sampling.finish(signals)?;
    write(args, output, &sampling, &info, pid, started)
}

/// The methods that are named on the terminal, as many as by the built-in sampler.
const MOST: usize = 5;

/// Writes the file, and says how much is in it.
fn write(
    args: &Args,
    output: &Output,
    sampling: &Sampling,
    info: &ProcessInfo,
    pid: u32,
    started: SystemTime,
) -> Outcome {
    let kind = if args.mode == "wall" { Kind::All } else { Kind::Managed };
    let lost = sampling.lost();
    let profile = event_pipe_samples::profile(&sampling.gathered, kind, &info.entry_assembly, pid, started, lost);
    let profile = args.names.profile(profile);
    let rounds = sampling.gathered.rounds();
    if profile.samples() == 0 {
        let what = if kind == Kind::Managed { "no thread was in managed code; try --mode wall" } else { "none came" };
        let text = format!("there is no profile of process {pid}: of {rounds} rounds of samples, {what}");
        return Err(Failure::new(exit::NOT_LOADED, anyhow!(text)));
    }
    let path = output.path();
    profile.write(&path)?;
    let seconds = sampling.gathered.duration().as_secs_f64();
    let losses = if lost == 0 { String::new() } else { format!("; {lost} events lost") };
    let standstill = sampling.gathered.standstill().map(|share| {
        let percent = 100.0 * share;
        format!("; the application stood still for {percent:.1} % of the time")
    });
    let standstill = standstill.unwrap_or_default();
    let samples = format!("{} samples in {rounds} rounds and {seconds:.1} s{losses}{standstill}", profile.samples());
    if !args.quiet || lost > 0 {
        eprintln!("corprof: {samples}");
    }
    let busiest = profile.busiest(MOST).into_iter().map(|(share, method)| format!("{:5.1} %  {method}", 100.0 * share));
    let busiest: Vec<_> = busiest.collect();
    if !args.quiet {
        eprintln!("corprof: {} is written", path.display());
        for line in &busiest {
            eprintln!("corprof:   {line}");
        }
    }
    open_if_asked(args, &path);
    let summary = std::iter::once(samples).chain(busiest).collect();
    let file = RecordedFile { file: path, pid, command: None, earlier_files: 0, summary, missing: None };
    answer::print(args, &Answer { files: vec![file], ..Answer::default() })?;
    Ok(ExitCode::SUCCESS)
}

/// Waits before the begin.
fn wait(delay: Option<f64>, signals: &Signals) -> anyhow::Result<()> {
    let delay = Duration::from_secs_f64(delay.unwrap_or(0.0));
    let begin = Instant::now();
    while begin.elapsed() < delay {
        ensure!(!signals.is_interrupted(), "interrupted before the begin");
        thread::sleep(RARELY.min(delay.saturating_sub(begin.elapsed())));
    }
    Ok(())
}
