//! `logger`: how many events it writes per second if writing costs nothing.
//!
//! The demo's application runs under the built-in `logger` with every category on. Once, the output goes to a file, and
//! its lines are counted: a line is an event. Then it goes to /dev/null, and the time of the same program without a
//! profiler is subtracted from the time. Most events here are exceptions, which the application throws all the time;
//! the rest is start-up.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::process::{self, announce, note};

use super::bed::{Bed, Built};
use super::samples::Samples;
use super::table::Line;

const ROW: &str = "logger";
/// One thread, so that the number of events hardly differs from run to run.
const ARGUMENTS: [&str; 4] = ["--threads", "1", "--orders", "60000"];
const NOWHERE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };
/// Fewer would come from start-up alone.
const LEAST_EVENTS: usize = 50_000;

/// Measures the row.
///
/// # Errors
/// If a program fails, or the logger has logged too little.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Logger: once to count the events, then {rounds} rounds with and without"));
    let log = tempfile::NamedTempFile::new().context("cannot make a file for the log")?;
    run(bed, Some(&bed.logger), log.path())?;
    let text = fs::read(log.path()).context("cannot read the log")?;
    let events = text.iter().filter(|byte| **byte == b'\n').count();
    ensure!(events >= LEAST_EVENTS, "the logger wrote {events} lines only: {}", String::from_utf8_lossy(&text));
    note(format_args!("{events} events by Sample {}", ARGUMENTS.join(" ")));

    let mut bare = Samples::default();
    let mut logged = Samples::default();
    for _ in 0..rounds {
        bare.push(vec![run(bed, None, Path::new(NOWHERE))?]);
        logged.push(vec![run(bed, Some(&bed.logger), Path::new(NOWHERE))?]);
    }
    let rate = logged.compared(&bare, |logged, bare| events as f64 / (logged - bare));
    Ok(vec![Line::stated(ROW, "corprof", rate.value, "events/s").spread(rate.spread)])
}

/// The seconds of one process.
fn run(bed: &Bed, profiler: Option<&Built>, stderr: &Path) -> Result<f64> {
    let stderr = open(stderr)?;
    let mut command = bed.command(&bed.sample, profiler)?;
    command.args(ARGUMENTS).stderr(Stdio::from(stderr));
    let start = Instant::now();
    process::run(&mut command)?;
    Ok(start.elapsed().as_secs_f64())
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).open(path).with_context(|| format!("cannot open {}", path.display()))
}
