//! The first answer of a web service: the processor time from the process's start until then, under profilers with
//! hooks.
//!
//! Hooks make the runtime compile every method that runs, as with `DOTNET_ReadyToRun=0`: what was compiled ahead of
//! time has none (`ReadyToRunInfo::Initialize` in vm/readytoruninfo.cpp). And whoever asks for names has the runtime
//! keep a module's metadata in its writable form, in which its own look-ups take longer (`PEAssembly::OpenImporter` in
//! vm/peassembly.cpp). Each has a profiler in C, which is what `timer` and `tracer` are compared with. Hooks by
//! inserted code keep what was compiled ahead of time: `timer` and `tracer` by IL are compared with the bare service.

use std::path::Path;

use anyhow::{Context, Result};

use crate::process::announce;

use super::bed::{Bed, Built, HookProfilers};
use super::samples::Samples;
use super::service::Service;
use super::table::Line;

const ROW: &str = "first answer";
const UNIT: &str = "times the processor time";
/// Of C that asks for names.
const TARGET: f64 = 1.15;
/// Of the service without a profiler, for hooks by inserted code.
const TARGET_BY_IL: f64 = 2.0;
/// What the service is asked for.
const PATH: &str = "/catalogue";
/// The application's own methods that it runs then.
const FILTER: &str = "Catalogue.*";
/// The service is started that often in each round.
const STARTS: usize = 3;

/// Measures the row.
///
/// # Errors
/// If the service does not answer.
pub(super) fn measure(bed: &Bed, service: &Path, hooks: &HookProfilers, rounds: u32) -> Result<Vec<Line>> {
    let directory = tempfile::tempdir_in(&bed.directory).context("cannot make a folder for what profilers write")?;
    let trace = || ("TRACER_OUT", directory.path().join("calls.pftrace").to_string_lossy().into_owned());
    let by_il = |variable| (variable, "il".to_owned());
    let filter = |variable| (variable, FILTER.to_owned());
    let no_ready_code = ("DOTNET_ReadyToRun", "0".to_owned());
    type Side<'b> = (&'static str, Option<&'b Built>, Vec<(&'static str, String)>);
    let sides: [Side<'_>; 10] = [
        ("no profiler", None, vec![]),
        ("ready-to-run off", None, vec![no_ready_code]),
        ("C, hooks return", Some(&hooks.returning), vec![]),
        ("C, asks for names", Some(&hooks.naming), vec![]),
        ("timer", Some(&hooks.timer), vec![]),
        ("tracer", Some(&hooks.tracer), vec![trace()]),
        ("timer by IL", Some(&hooks.timer), vec![by_il("TIMER_BY")]),
        ("tracer by IL", Some(&hooks.tracer), vec![trace(), by_il("TRACER_BY")]),
        ("timer, filtered", Some(&hooks.timer), vec![filter("TIMER_FILTER"), ("TIMER_BY", "il-all".to_owned())]),
        (
            "tracer, filtered",
            Some(&hooks.tracer),
            vec![trace(), filter("TRACER_FILTER"), ("TRACER_BY", "il-all".to_owned())],
        ),
    ];
    announce(format_args!("First answer: {rounds} rounds of {STARTS} starts, under each of {}", sides.len()));
    let mut samples = [(); 10].map(|()| Samples::default());
    for round in 0..rounds as usize {
        let mut times = [(); 10].map(|()| Vec::new());
        for start in 0..STARTS {
            for turn in 0..sides.len() {
                let place = (turn + start + round) % sides.len();
                let (_, built, settings) = &sides[place];
                let service = Service::start(bed, service, *built, settings, PATH)?;
                times[place].push(service.processor_time()?.as_secs_f64() * 1e3);
                service.end()?;
            }
        }
        for (samples, times) in samples.iter_mut().zip(times) {
            samples.push(times);
        }
    }
    let [bare, _, _, naming, ..] = &samples;
    let line = |((name, ..), samples): (&Side<'_>, &Samples)| {
        let line = Line::stated(ROW, name, samples.compared_by_round(bare, |own, bare| own / bare).value, UNIT);
        let is_ours = ["timer", "tracer"].contains(name);
        let compare = || samples.compared_by_round(naming, |own, naming| own / naming);
        if is_ours {
            line.ratio(compare()).target(TARGET)
        } else if name.ends_with("by IL") || name.ends_with("filtered") {
            line.ratio(samples.compared_by_round(bare, |own, bare| own / bare)).target(TARGET_BY_IL)
        } else {
            line
        }
    };
    Ok(sides.iter().zip(&samples).map(line).collect())
}
