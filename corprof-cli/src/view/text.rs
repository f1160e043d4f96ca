//! Recordings and their tables as text.

use std::io::{self, Write};

use corprof_export::Unit;
use corprof_nettrace::UtcTime;
use corprof_profilers::known_callers;

use crate::output;
use crate::recording::picture::Picture;
use crate::recording::table::{By, Row};
use crate::recording::{CallerCounts, Facts, Sum, cut_words};

/// The kinds of events that are printed of a file.
const KINDS: usize = 12;

/// Says on standard error what is missing in a file.
pub(crate) fn warn(facts: &Facts) {
    let path = facts.path.display();
    if let Some(bytes) = facts.cut_at {
        eprintln!("corprof: {}", cut_words(&facts.path, bytes));
    }
    if facts.damaged > 0 {
        eprintln!("corprof: {path}: skipped {} lines that are not of `perf script`", facts.damaged);
    }
    if facts.lacks_names {
        eprintln!(
            "corprof: {path} has compiled code without names: start the application with DOTNET_PerfMapEnabled=1 and \
             DOTNET_EnableWriteXorExecute=0 before `perf record`"
        );
    }
    if facts.stacks_cut > 0 {
        eprintln!(
            "corprof: {path} has too many distinct stacks: outermost frames alone are left of {}",
            facts.stacks_cut
        );
    }
}

/// What a file holds.
pub(super) fn facts(facts: &Facts, out: &mut impl Write) -> io::Result<()> {
    match facts.version {
        Some(version) => write!(out, "{}: version {version}", facts.path.display())?,
        None => write!(out, "{}: perf script", facts.path.display())?,
    }
    if let Some(process) = facts.process {
        write!(out, ", process {process}")?;
    }
    for (process, name) in facts.processes.iter().take(5) {
        write!(out, ", {name} ({process})")?;
    }
    write!(out, ", {:.3} s", facts.duration.as_secs_f64())?;
    if let Some(UtcTime { year, month, day, hour, minute, second, .. }) = facts.started {
        write!(out, " from {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")?;
    }
    let threads = output::count(facts.threads, "thread");
    writeln!(out, ", {} events, {} lost, {threads}", facts.events, facts.lost)?;
    writeln!(out, "\n      events  with stack  kind")?;
    let mut kinds: Vec<_> = facts.kinds.iter().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.events));
    for kind in kinds.iter().take(KINDS) {
        writeln!(out, "{:>12} {:>11}  {}", kind.events, kind.stacks, kind.title())?;
    }
    if let Some(rest) = kinds.get(KINDS..).filter(|rest| !rest.is_empty()) {
        let events: u64 = rest.iter().map(|kind| kind.events).sum();
        let stacks: u64 = rest.iter().map(|kind| kind.stacks).sum();
        writeln!(out, "{events:>12} {stacks:>11}  of {} further kinds (--json has them)", rest.len())?;
    }
    let callers = facts.callers.and_then(|CallerCounts { resumed, known }| known_callers(known, resumed, ""));
    if let Some(note) = callers {
        writeln!(out, "\n{note}")?;
    }
    writeln!(out)
}

/// The rows with the most weight.
pub(super) fn table(picture: &Picture, by: &By, rows: &[Row], most: usize, out: &mut impl Write) -> io::Result<()> {
    let Some(measure) = picture.measure else { return Ok(()) };
    let total = picture.total();
    let unit = measure.unit();
    writeln!(out, "{} of {} samples", shown(unit, total.weight), total.samples)?;
    let has_total = matches!(by, By::Method | By::Line);
    let subject = match by {
        By::Method => "method",
        By::Line => "line",
        By::Type => "type",
        By::Thread => "thread",
        By::Label => "label",
    };
    let heads = if has_total { "      own               total" } else { "      own            " };
    writeln!(out, "\n{heads:<40}  samples  {subject}")?;
    for row in rows.iter().take(most) {
        let mut line = column(unit, row.own, total);
        if has_total {
            line.push_str(&column(unit, row.total, total));
        }
        writeln!(out, "{line:<40}{:>9}  {}", row.own.samples, row.name)?;
    }
    if rows.len() > most {
        writeln!(out, "… and {} more (--rows)", rows.len() - most)?;
    }
    Ok(())
}

fn column(unit: Unit, sum: Sum, total: Sum) -> String {
    let percent = 100.0 * sum.weight as f64 / (total.weight.max(1)) as f64;
    format!("{percent:>6.1} % {:>10} ", shown(unit, sum.weight))
}

/// A weight with its unit.
pub(crate) fn shown(unit: Unit, weight: u64) -> String {
    match unit {
        Unit::Nanoseconds => format!("{:.3} s", weight as f64 / 1e9),
        Unit::Bytes if weight >= 1_000_000 => format!("{:.1} MB", weight as f64 / 1e6),
        Unit::Bytes => format!("{:.1} KB", weight as f64 / 1e3),
        _ => weight.to_string(),
    }
}
