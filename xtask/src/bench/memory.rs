//! Memory: how much a profiler without events adds to the peak of a process' resident memory.
//!
//! bench/Bench.cs reports that it waits, and then /proc is read: VmHWM, the peak until then, and the resident size of
//! each mapping. The peak differs by some 0.1 MiB from run to run, so the added amount is the difference of medians.
//! The library's own mappings are exact; most of them are pages of the file, which processes share.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{self, announce};

use super::bed::{Bed, Side};
use super::samples::{middle_half, quantile};
use super::table::Line;

const ROW: &str = "memory";
const UNIT: &str = "KiB";
/// 2 MiB, in KiB.
const TARGET: f64 = 2048.0;

/// The values read from one process, in KiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    peak: f64,
    /// In the mappings of the profiler's library.
    own: f64,
}

/// Measures the row.
///
/// # Errors
/// If a program fails, or its profiler is not loaded.
pub(super) fn measure(bed: &Bed, rounds: u32) -> Result<Vec<Line>> {
    announce(format_args!("Memory: {rounds} rounds of one process, under each of three"));
    let mut observed = Side::ALL.map(|_| Vec::new());
    for round in 0..rounds {
        for side in Side::in_turn(round) {
            observed[side as usize].push(observe(bed, side)?);
        }
    }
    let [bare, c, corprof] = &observed;
    let peak = |observed: &[Observed]| median(observed.iter().map(|observed| observed.peak));
    let added = |of, observed: &[Observed]| {
        let by_round = observed.iter().zip(bare).map(|(with, without)| with.peak - without.peak).collect();
        Line::stated(ROW, of, peak(observed) - peak(bare), UNIT).spread(middle_half(by_round))
    };
    Ok(vec![
        Line::stated(ROW, "no profiler", peak(bare), UNIT),
        added("C adds", c),
        added("corprof adds", corprof).target(TARGET),
        Line::stated(ROW, "of which its library", median(corprof.iter().map(|observed| observed.own)), UNIT),
    ])
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(values.collect(), 0.5)
}

/// Reads the memory of one process.
///
/// # Errors
/// If the program fails, or its profiler is not loaded or reports an error.
pub(super) fn observe(bed: &Bed, side: Side) -> Result<Observed> {
    let profiler = bed.nothing.of(side);
    let mut command = bed.command(&bed.bench, profiler)?;
    command.arg("wait").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = process::shown(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let observed = read(&mut child, profiler.map(|profiler| profiler.library.as_path()));
    // Closing its standard input ends it; if the write fails, it must be killed.
    drop(child.stdin.take());
    if observed.is_err() {
        let _ = child.kill();
    }
    let mut complaint = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr
            .read_to_string(&mut complaint)
            .with_context(|| format!("cannot read the standard error of `{shown}`"))?;
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    let observed = observed.with_context(|| format!("under {}: {}", side.name(), complaint.trim()))?;
    ensure!(status.success() && complaint.is_empty(), "`{shown}` under {}: {status}\n{complaint}", side.name());
    ensure!(profiler.is_none() || observed.own > 0.0, "the profiler in {} was not loaded", side.name());
    Ok(observed)
}

fn read(child: &mut Child, library: Option<&Path>) -> Result<Observed> {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut line).context("cannot read the output of the program")?;
    }
    if line.trim_end() != "waiting" {
        bail!("the program does not say that it waits, but `{}`", line.trim_end());
    }
    let file = |name: &str| {
        let path = format!("/proc/{}/{name}", child.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    };
    let peak = field(&file("status")?, "VmHWM:").context("the system does not tell the peak of memory")?;
    let own = library.map_or(Ok(0.0), |library| file("smaps").map(|maps| resident(&maps, library)))?;
    Ok(Observed { peak, own })
}

/// The KiB of the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

/// The resident KiB of the mappings of `library` in /proc/PID/smaps, including unnamed mappings directly behind them:
/// the zeroed part of its data.
fn resident(maps: &str, library: &Path) -> f64 {
    let library = library.to_string_lossy();
    let mut sum = 0.0;
    let mut is_own = false;
    let mut own_end = "";
    for line in maps.lines() {
        if let Some((start, end, path)) = mapping(line) {
            is_own = path == library || (path.is_empty() && start == own_end);
            if is_own {
                own_end = end;
            }
        } else if is_own {
            sum += field(line, "Rss:").unwrap_or(0.0);
        }
    }
    sum
}

/// Reads `7f00-7f10 r-xp 00000000 08:01 1234   /path of it`, the first line on a mapping.
fn mapping(line: &str) -> Option<(&str, &str, &str)> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let range = word();
    let _permissions = word();
    let _offset = word();
    let _device = word();
    let _inode = word();
    let (start, end) = range.split_once('-')?;
    let is_address = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    (is_address(start) && is_address(end)).then_some((start, end, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000001000 r-xp 00000000 08:01 1234                       /a lib.so
Size:                  4 kB
Rss:                   4 kB
7f0000001000-7f0000002000 rw-p 00001000 08:01 1234                       /a lib.so
Rss:                   8 kB
7f0000002000-7f0000004000 rw-p 00000000 00:00 0 
Rss:                  16 kB
7f0000008000-7f0000009000 rw-p 00000000 00:00 0 
Rss:                  32 kB
7f000000a000-7f000000b000 r--p 00000000 08:01 99                         /b.so
Rss:                  64 kB
VmFlags: rd mr mw me
";

    #[test]
    fn a_library_has_its_mappings_and_the_nameless_one_behind() {
        assert_eq!(resident(MAPS, Path::new("/a lib.so")), 28.0);
        assert_eq!(resident(MAPS, Path::new("/b.so")), 64.0);
        assert_eq!(resident(MAPS, Path::new("/c.so")), 0.0);
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        assert_eq!(field("VmPeak:\t  99 kB\nVmHWM:\t   23916 kB\n", "VmHWM:"), Some(23916.0));
        assert_eq!(field("VmPeak: 99 kB\n", "VmHWM:"), None);
    }
}
