//! A web service under profilers: the cost of a request, and lost events.
//!
//! Two services run at a time, one without a profiler and one with. They receive some hundreds of requests each in
//! turn, so that other work on the machine affects both; the processor time of a request is compared, turn by turn. A
//! throughput of 0.6 is then a cost of 1 / 0.6. `tracer` is measured with its defaults, and with every call recorded;
//! also on a program of two seconds that makes six million calls (bench/Bench.cs). It reports lost events, and there
//! must be none.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process::{announce, note};

use super::bed::{Bed, Built, HookProfilers, output};
use super::samples::{Samples, middle_half, quantile};
use super::service::{Answered, Service};
use super::storm::numbers;
use super::table::Line;

const ROW: &str = "service";
const ATTACHED_ROW: &str = "service, attached";
const CALLS: &str = "12 M events";

/// The cost of a request that corresponds to this throughput relative to no profiler.
const MOST_UNDER_TRACER: f64 = 1.0 / 0.6;
const MOST_AT_100_HZ: f64 = 1.0 / 0.97;
const MOST_AT_1000_HZ: f64 = 1.0 / 0.93;
const MOST_RECORDED: f64 = 1.0 / 0.95;
const MOST_SLOWER: f64 = 1.2;
const MOST_BYTES: f64 = 20.0;

/// The requested paths: a report, and the same with exceptions and a lock, so that there is all that can be recorded.
const CATALOGUE: &str = "/catalogue";
const ORDERS: &str = "/orders";
const TURNS: usize = 4;

/// A profiler of the service.
struct Watcher<'b> {
    name: &'static str,
    built: &'b Built,
    kind: Kind,
    settings: Vec<(&'static str, String)>,
    path: &'static str,
    /// Whether the service uses the server collector.
    is_server: bool,
    /// Whether it comes when the service is at work, and not from the start.
    is_attached: bool,
    /// The limit for the cost of a request, relative to no profiler.
    most: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Tracer,
    Timer,
    Sampler,
}

impl Kind {
    /// The numbers of requests before the first turn, and in each.
    ///
    /// The service answers some 7,000 a second, and its code has its final compilation after some seconds. Hooks record
    /// millions of events meanwhile, so they are measured earlier, beside a service that is compiling as well.
    const fn requests(self) -> (u32, u32) {
        match self {
            Self::Tracer | Self::Timer => (4000, 1500),
            Self::Sampler => (30_000, 10_000),
        }
    }
}

/// The measurements under one of them.
#[derive(Default)]
struct Measured {
    bare: Samples,
    watched: Samples,
    /// The throughput relative to no profiler, turn by turn.
    rates: Vec<f64>,
    slowest: Vec<f64>,
    said: String,
}

/// Measures the cost of hooks for the service, and lost events.
///
/// # Errors
/// If a program fails, or a profiler does not report what it lost.
pub(super) fn under_hooks(bed: &Bed, service: &Path, hooks: &HookProfilers, rounds: u32) -> Result<Vec<Line>> {
    let mut lines = measure(bed, service, |directory| by_hooks(hooks, directory), rounds)?;
    lines.extend(two_seconds(bed, hooks)?);
    Ok(lines)
}

/// Measures the cost of the sampler for the service.
///
/// # Errors
/// If a program fails.
pub(super) fn under_the_sampler(bed: &Bed, service: &Path, rounds: u32) -> Result<Vec<Line>> {
    measure(bed, service, |directory| by_sampling(bed, directory), rounds)
}

/// Measures the cost of the sampler for services to which it is attached.
///
/// # Errors
/// If a program fails.
pub(super) fn under_the_attached_sampler(bed: &Bed, service: &Path, rounds: u32) -> Result<Vec<Line>> {
    measure(bed, service, |directory| by_attached_sampling(bed, directory), rounds)
}

/// Measures what a recording costs the service that has cpu, alloc, lock, exception and gc.
///
/// # Errors
/// If a program fails.
pub(super) fn under_a_recording(bed: &Bed, service: &Path, rounds: u32) -> Result<Vec<Line>> {
    measure(bed, service, |directory| by_recording(bed, directory), rounds)
}

fn measure<'b>(
    bed: &Bed,
    service: &Path,
    watchers: impl FnOnce(&Path) -> Vec<Watcher<'b>>,
    rounds: u32,
) -> Result<Vec<Line>> {
    let directory = tempfile::tempdir_in(&bed.directory).context("cannot make a folder for the output of profilers")?;
    let trace = directory.path().join("calls.pftrace");
    let mut lines = Vec::new();
    for watcher in watchers(directory.path()) {
        announce(format_args!("Service: {rounds} rounds without a profiler and under {}", watcher.name));
        let mut measured = Measured::default();
        for _ in 0..rounds {
            round(bed, service, &watcher, &mut measured)?;
        }
        lines.extend(watcher.lines(&measured, &trace)?);
        // A trace of every call is large.
        for file in fs::read_dir(directory.path()).context("cannot list the output of profilers")?.flatten() {
            fs::remove_file(file.path()).context("cannot remove the output of profilers")?;
        }
    }
    Ok(lines)
}

/// The built-in profilers with hooks, which write to this folder.
fn by_hooks<'b>(HookProfilers { tracer, timer, .. }: &'b HookProfilers, directory: &Path) -> Vec<Watcher<'b>> {
    let trace = || ("TRACER_OUT", file(directory, "calls.pftrace"));
    let watcher = |name, built, kind, settings, most| Watcher {
        name,
        built,
        kind,
        settings,
        path: CATALOGUE,
        is_server: false,
        is_attached: false,
        most,
    };
    vec![
        watcher("tracer", tracer, Kind::Tracer, vec![trace()], Some(MOST_UNDER_TRACER)),
        watcher("tracer, every call", tracer, Kind::Tracer, vec![trace(), ("TRACER_MIN", "0".to_owned())], None),
        watcher("timer", timer, Kind::Timer, Vec::new(), None),
    ]
}

/// The sampler that sends signals, which writes to this folder.
fn by_sampling<'b>(bed: &'b Bed, directory: &Path) -> Vec<Watcher<'b>> {
    let rates = [
        ("signals, 100 Hz", "100", false, MOST_AT_100_HZ),
        ("signals, 1 kHz", "1000", false, MOST_AT_1000_HZ),
        ("signals, 1 kHz, server GC", "1000", true, MOST_AT_1000_HZ),
    ];
    let sampled = |(name, hertz, is_server, most)| Watcher { is_server, ..signals(bed, directory, name, hertz, most) };
    rates.map(sampled).into()
}

/// The same sampler, which records all that it can.
fn by_recording<'b>(bed: &'b Bed, directory: &Path) -> Vec<Watcher<'b>> {
    let settings = [
        ("SAMPLER_STRATEGY", "signals".to_owned()),
        ("SAMPLER_HZ", "100".to_owned()),
        ("SAMPLER_OUT", file(directory, "all.nettrace")),
        ("SAMPLER_EVENTS", "alloc,lock,exception,gc".to_owned()),
    ];
    let recorded = |(name, path)| Watcher {
        settings: settings.clone().into(),
        path,
        ..signals(bed, directory, name, "100", MOST_RECORDED)
    };
    [("all events", CATALOGUE), ("all events, with exceptions", ORDERS)].map(recorded).into()
}

/// The same, attached to services that are at work.
fn by_attached_sampling<'b>(bed: &'b Bed, directory: &Path) -> Vec<Watcher<'b>> {
    let rates = [("signals, 100 Hz", "100", MOST_AT_100_HZ), ("signals, 1 kHz", "1000", MOST_AT_1000_HZ)];
    let attached = |(name, hertz, most)| Watcher { is_attached: true, ..signals(bed, directory, name, hertz, most) };
    rates.map(attached).into()
}

fn signals<'b>(bed: &'b Bed, directory: &Path, name: &'static str, hertz: &str, most: f64) -> Watcher<'b> {
    let settings = vec![
        ("SAMPLER_STRATEGY", "signals".to_owned()),
        ("SAMPLER_HZ", hertz.to_owned()),
        ("SAMPLER_OUT", file(directory, "samples.folded")),
    ];
    Watcher {
        name,
        built: &bed.sampler,
        kind: Kind::Sampler,
        settings,
        path: CATALOGUE,
        is_server: false,
        is_attached: false,
        most: Some(most),
    }
}

fn file(directory: &Path, name: &str) -> String {
    directory.join(name).to_string_lossy().into_owned()
}

/// Two services, which receive requests in turn.
fn round(bed: &Bed, dll: &Path, watcher: &Watcher<'_>, measured: &mut Measured) -> Result<()> {
    let collector = watcher.is_server.then(|| ("DOTNET_gcServer", "1".to_owned()));
    let collector: Vec<_> = collector.into_iter().collect();
    let (warm_up, requests) = watcher.kind.requests();
    let start = |built, settings: &[_]| -> Result<_> {
        let service = Service::start(bed, dll, built, settings, watcher.path)?;
        service.load(watcher.path, warm_up)?;
        Ok(service)
    };
    let bare = start(None, &collector)?;
    let watched = if watcher.is_attached {
        let service = start(None, &collector)?;
        service.attach(watcher.built, &watcher.settings)?;
        service
    } else {
        start(Some(watcher.built), &[collector.clone(), watcher.settings.clone()].concat())?
    };
    let mut costs = Vec::new();
    let mut watched_costs = Vec::new();
    for turn in 0..TURNS {
        let ask = |service: &Service| service.load(watcher.path, requests);
        let (one, other): (Answered, Answered) = if turn % 2 == 0 {
            let one = ask(&bare)?;
            (one, ask(&watched)?)
        } else {
            let other = ask(&watched)?;
            (ask(&bare)?, other)
        };
        costs.push(one.cost);
        watched_costs.push(other.cost);
        measured.rates.push(other.rate / one.rate);
        measured.slowest.push(other.slowest / one.slowest);
    }
    measured.bare.push(costs);
    measured.watched.push(watched_costs);
    bare.end()?;
    measured.said = watched.end()?;
    Ok(())
}

impl Watcher<'_> {
    fn lines(&self, measured: &Measured, trace: &Path) -> Result<Vec<Line>> {
        let cost = measured.watched.compared_by_round(&measured.bare, |watched, bare| watched / bare);
        let rate = quantile(measured.rates.clone(), 0.5);
        note(format_args!("throughput by the clock on the wall: {rate:.3} of none"));
        let row = if self.is_attached { ATTACHED_ROW } else { ROW };
        let line = Line::stated(row, self.name, cost.value, "times the processor time").spread(cost.spread);
        let mut lines = vec![self.most.into_iter().fold(line, Line::target)];
        if self.kind == Kind::Sampler {
            let slowest = quantile(measured.slowest.clone(), 0.5);
            let slowest = Line::stated(row, self.name, slowest, "times the 99th percentile").target(MOST_SLOWER);
            lines.push(slowest.spread(middle_half(measured.slowest.clone())));
        }
        if self.kind == Kind::Tracer {
            lines.push(Line::stated(ROW, self.name, lost(&measured.said)? as f64, "events lost").target(0.0));
            let size = trace.metadata().context("there is no trace")?.len();
            note(format_args!("the trace has {} MB; {}", size / 1_000_000, measured.said.trim_end()));
        }
        Ok(lines)
    }
}

/// A program that makes six million calls in some two seconds, each of which is recorded.
fn two_seconds(bed: &Bed, hooks: &HookProfilers) -> Result<[Line; 2]> {
    const SLICES: &str = "60";
    const CALLS_OF_SLICE: &str = "100000";
    announce("Tracer: six million calls in some two seconds, each written down");
    let trace = tempfile::Builder::new().suffix(".pftrace").tempfile_in(&bed.directory);
    let trace = trace.context("cannot make a file for the trace")?;
    let mut command = bed.command(&bed.bench, Some(&hooks.tracer))?;
    command.args(["work", SLICES, CALLS_OF_SLICE]).env("TRACER_OUT", trace.path());
    command.envs([("TRACER_MIN", "0"), ("TRACER_FILTER", "Bench.*")]);
    let (stdout, stderr) = output(&mut command)?;
    let made: u64 = numbers(&stdout, "calls=")?.into_iter().sum();
    ensure!(made >= 6_000_000, "the program made {made} calls: {stdout}");
    let took: u64 = numbers(&stdout, "slice_ns=")?.into_iter().sum();
    let size = trace.path().metadata().context("there is no trace")?.len();
    note(format_args!("{} events in {:.2} s; {}", 2 * made, took as f64 / 1e9, stderr.trim_end()));
    Ok([
        Line::stated(CALLS, "tracer", lost(&stderr)? as f64, "events lost").target(0.0),
        Line::stated(CALLS, "tracer", size as f64 / (2 * made) as f64, "bytes/event").target(MOST_BYTES),
    ])
}

/// Parses the last line of `tracer`.
fn lost(said: &str) -> Result<u64> {
    let number =
        |line: &str| line.strip_prefix("tracer: ")?.split_once(" beginnings and ends were lost")?.0.parse().ok();
    said.lines().find_map(number).with_context(|| format!("tracer does not report lost events: {said}"))
}
