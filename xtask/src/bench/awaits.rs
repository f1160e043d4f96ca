//! A request of two awaits: a short one, of which the calls of the framework are most, under profilers with hooks.
//!
//! Services without a profiler and under each of them run at a time, and receive some thousands of requests each in
//! turn. The processor time of a request is compared with that of the service without a profiler, turn by turn. The
//! service is compiled twice: its async methods are state machines, or the runtime itself suspends them. On .NET 11 it
//! suspends most of the framework's in both.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{announce, note};

use super::bed::{Bed, Built, HookProfilers};
use super::samples::{Samples, quantile};
use super::service::Service;
use super::table::Line;

/// The requested path.
const PATH: &str = "/awaits";
const UNIT: &str = "times the processor time";

/// The limits for the processor time of a request, of none.
const MOST_UNDER_TIMER: f64 = 1.5;
const MOST_UNDER_TRACER: f64 = 2.5;

/// Most code has its final compilation after these.
const WARM_UP: u32 = 30_000;
/// Enough for some ticks of the clock of processor time.
const REQUESTS: u32 = 10_000;
const TURNS: usize = 4;

/// The profilers, or none.
struct Side<'b> {
    name: &'static str,
    built: Option<&'b Built>,
    settings: Vec<(&'static str, String)>,
    most: Option<f64>,
}

/// Measures the rows of both services.
///
/// # Errors
/// If a service does not answer.
pub(super) fn measure(
    bed: &Bed,
    [machines, runtime_async]: &[PathBuf; 2],
    hooks: &HookProfilers,
    rounds: u32,
) -> Result<Vec<Line>> {
    let mut lines = measure_service(bed, "awaits, machines", machines, hooks, rounds)?;
    lines.extend(measure_service(bed, "awaits, runtime", runtime_async, hooks, rounds)?);
    Ok(lines)
}

fn measure_service(
    bed: &Bed,
    row: &'static str,
    service: &Path,
    hooks: &HookProfilers,
    rounds: u32,
) -> Result<Vec<Line>> {
    let directory = tempfile::tempdir_in(&bed.directory).context("cannot make a folder for what profilers write")?;
    let sides = sides(hooks, directory.path());
    announce(format_args!("{row}: {rounds} rounds under each of {}", sides.len()));
    let mut costs: Vec<_> = sides.iter().map(|_| Samples::default()).collect();
    for _ in 0..rounds {
        for (samples, round) in costs.iter_mut().zip(round(bed, service, &sides)?) {
            samples.push(round);
        }
    }
    let [bare, ..] = &costs[..] else { return Ok(Vec::new()) };
    let line = |(side, samples): (&Side<'_>, &Samples)| {
        let Some(most) = side.most else {
            return Line::stated(row, side.name, samples.figure() * 1e3, "us a request");
        };
        let ratio = samples.compared_by_round(bare, |own, bare| own / bare);
        Line::stated(row, side.name, ratio.value, UNIT).spread(ratio.spread).target(most)
    };
    Ok(sides.iter().zip(&costs).map(line).collect())
}

/// Without a profiler, and under each with hooks, which write to this folder.
fn sides<'b>(HookProfilers { timer, tracer, .. }: &'b HookProfilers, directory: &Path) -> [Side<'b>; 5] {
    let trace = directory.join("calls.pftrace").to_string_lossy().into_owned();
    let by = |way: &str| vec![("TIMER_BY", way.to_owned())];
    let timed = |name, way| Side { name, built: Some(timer), settings: by(way), most: Some(MOST_UNDER_TIMER) };
    [
        Side { name: "no profiler", built: None, settings: Vec::new(), most: None },
        timed("timer", "runtime"),
        timed("timer by IL", "il"),
        timed("timer by IL, all", "il-all"),
        Side {
            name: "tracer",
            built: Some(tracer),
            settings: vec![("TRACER_OUT", trace)],
            most: Some(MOST_UNDER_TRACER),
        },
    ]
}

/// The milliseconds of processor time of a request, for each side by turn.
fn round(bed: &Bed, dll: &Path, sides: &[Side<'_>]) -> Result<Vec<Vec<f64>>> {
    // .NET 10 suspends methods only if it is asked to.
    let runtime_async = ("DOTNET_RuntimeAsync", "1".to_owned());
    let start = |side: &Side<'_>| -> Result<_> {
        let settings = [side.settings.clone(), vec![runtime_async.clone()]].concat();
        let service = Service::start(bed, dll, side.built, &settings, PATH)?;
        service.load(PATH, WARM_UP)?;
        Ok(service)
    };
    let services = sides.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut costs = vec![Vec::new(); sides.len()];
    for turn in 0..TURNS {
        // The first differs from turn to turn: a position may be an advantage.
        for place in 0..sides.len() {
            let at = (place + turn) % sides.len();
            costs[at].push(services[at].load(PATH, REQUESTS)?.cost);
        }
    }
    let shown =
        |(side, costs): (&Side<'_>, &Vec<f64>)| format!("{} {:.1}", side.name, quantile(costs.clone(), 0.5) * 1e3);
    let shown: Vec<_> = sides.iter().zip(&costs).map(shown).collect();
    note(format_args!("us a request: {}", shown.join(", ")));
    for service in services {
        service.end()?;
    }
    Ok(costs)
}
