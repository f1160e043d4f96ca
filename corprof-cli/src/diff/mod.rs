//! `corprof diff`: what has changed between two recordings, and whether that is more than chance.

pub(crate) mod compare;
mod page;
mod statistics;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use corprof_export::{Format, Unit};
use serde_json::{Value, json};

use self::compare::{Compared, Row, Rule, compare};
use self::statistics::Normalised;
use crate::exit::{self, Failure, Outcome};
use crate::output;
use crate::recording::options::Looked;
use crate::recording::picture::Picture;
use crate::recording::table::By;
use crate::view;

/// Show which methods take more or less than before, by two recordings: .nettrace files or texts of `perf script`, as
/// `corprof view` reads them.
///
/// Prints each method's number in both, the difference with the range that the truth is in with 95 %, and how likely it
/// is that chance alone makes one such difference in the table. Only what is less likely than --chance is called
/// changed. What numbers vary by is found from the recordings themselves: samples of one long call come together, and
/// count for less than as many single ones. Two runs differ by more than their samples (other addresses, another
/// machine), so a small change should be seen in a second pair.
///
/// With -o, writes a page with the flame graph of the newer recording: red takes more, blue takes less, and what is
/// within the noise is grey.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof diff before.nettrace after.nettrace
  corprof diff before.nettrace after.nettrace -o changes.html
  corprof diff before.nettrace after.nettrace --normalise time --only-my-code
  corprof diff before.nettrace after.nettrace --event allocations --normalise none
  corprof diff before.nettrace after.nettrace --json | jq '.rows[] | select(.own.changed)'

Exits with 3 if a file cannot be read, or has too few samples. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The older recording
    base: PathBuf,

    /// The newer recording
    new: PathBuf,

    /// The page to write: .html
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    looked: Looked,

    /// What numbers are compared by
    #[arg(long, value_enum, default_value = "count")]
    normalise: Normalised,

    /// A difference is called changed if it is less likely than this, in percent, that chance makes one in the whole
    /// table
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    chance: f64,

    /// And if it is at least this part of the larger number, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    least: f64,

    /// Only your code: what frameworks do counts for the code of yours that calls them
    #[arg(long)]
    only_my_code: bool,

    /// The most rows to print that are not changed [default: 10; with --json: all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// Print one JSON document
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "give a number from 0 to 100".to_owned())
}

/// The rows that are printed below the changed ones.
const ROWS: usize = 10;

/// Runs the command.
///
/// # Errors
/// If a file cannot be read or written, or has too few samples.
pub fn run(args: &Args) -> Outcome {
    if let Some(path) = &args.output
        && Format::of_path(path).ok() != Some(Format::Html)
    {
        let error = anyhow!("{}: differences are written as a page: name a file that ends in .html", path.display());
        return Err(Failure::new(exit::USAGE, error));
    }
    let mut base = read(args, &args.base)?;
    let mut new = read(args, &args.new)?;
    require_same(&base, &new)?;
    Picture::agree([&mut base, &mut new]);
    let scale = Scale::of(args.normalise, &new);
    let rule = Rule { chance: args.chance / 100.0, least: args.least / 100.0 };
    let rows = compare([&base, &new], &By::Method, args.only_my_code, args.normalise, rule)?;
    if let Some(path) = &args.output {
        let profile = page::of(&new, &rows, scale, args.only_my_code, &args.base);
        profile.write(path).context("cannot write the page")?;
        eprintln!("corprof: wrote {}", path.display());
    }
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{}", document(args, [&base, &new], &rows))?;
    } else {
        print(args, [&base, &new], &rows, scale, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn read(args: &Args, path: &PathBuf) -> anyhow::Result<Picture> {
    let mut options = args.looked.options();
    options.is_timed = true;
    let mut picture = Picture::read(&[path], &options, false)?;
    args.looked.selection().apply(&mut picture);
    picture.files.iter().for_each(view::text::warn);
    view::require_samples(&args.looked, &picture)?;
    Ok(picture)
}

/// Refuses recordings that measure different things.
fn require_same(base: &Picture, new: &Picture) -> anyhow::Result<()> {
    let kind = |picture: &Picture| picture.measure.map(|measure| (measure.unit(), measure.title()));
    if kind(base) == kind(new) {
        return Ok(());
    }
    let words = |picture: &Picture| {
        let file = picture.files.first().map(|file| file.path.display().to_string()).unwrap_or_default();
        format!("{file} has {}", picture.measure.map_or("no samples", |measure| measure.title()))
    };
    let [base, new] = [words(base), words(new)];
    Err(anyhow!("the recordings measure different things: {base}, and {new}: name events that both have, by --event"))
}

fn print(
    args: &Args,
    pictures: [&Picture; 2],
    rows: &[Row],
    scale: Scale,
    out: &mut impl Write,
) -> std::io::Result<()> {
    for (word, picture) in ["base", "new "].iter().zip(pictures) {
        let file = picture.files.first();
        let path = file.map(|file| file.path.display().to_string()).unwrap_or_default();
        let seconds = file.map_or(0.0, |file| file.looked_at.as_secs_f64());
        let total = picture.total();
        let unit = picture.measure.map_or(Unit::Samples, |measure| measure.unit());
        writeln!(
            out,
            "{word}  {path}: {} of {} samples in {seconds:.1} s",
            view::text::shown(unit, total.weight),
            total.samples
        )?;
    }
    let is_changed = |row: &&Row| row.own.is_changed || row.total.is_changed;
    let changed: Vec<_> = rows.iter().filter(is_changed).collect();
    let others: Vec<_> = rows.iter().filter(|row| !is_changed(row)).collect();
    writeln!(out, "\n{} of {} methods have changed", changed.len(), rows.len())?;
    let head = format!(
        "     base       new  difference ± 95 %       chance  {}, of the method (own), or with what it calls (total)",
        scale.unit
    );
    if !changed.is_empty() {
        writeln!(out, "\n{head}")?;
    }
    for row in changed {
        writeln!(out, "{}", line(scale, row))?;
    }
    let shown = args.rows.unwrap_or(ROWS).min(others.len());
    if shown > 0 {
        writeln!(out, "\nWithin the noise:\n{head}")?;
    }
    for row in others.iter().take(shown) {
        writeln!(out, "{}", line(scale, row))?;
    }
    if others.len() > shown {
        writeln!(out, "… and {} more (--rows)", others.len() - shown)?;
    }
    Ok(())
}

/// How numbers are shown.
#[derive(Clone, Copy)]
struct Scale {
    unit: &'static str,
    /// One of this unit.
    one: f64,
    digits: usize,
}

impl Scale {
    fn of(normalised: Normalised, picture: &Picture) -> Self {
        let unit = picture.measure.map_or(Unit::Samples, |measure| measure.unit());
        let (unit, one, digits) = match (normalised, unit) {
            (Normalised::Count, _) => ("% of all", 0.01, 2),
            (Normalised::Time, Unit::Nanoseconds) => ("ms in a second", 1e6, 2),
            (Normalised::Time, Unit::Bytes) => ("KB in a second", 1e3, 1),
            (Normalised::Time, _) => ("events in a second", 1.0, 2),
            (Normalised::None, Unit::Nanoseconds) => ("ms", 1e6, 1),
            (Normalised::None, Unit::Bytes) => ("KB", 1e3, 1),
            (Normalised::None, _) => ("events", 1.0, 1),
        };
        Self { unit, one, digits }
    }

    fn number(self, value: f64) -> String {
        let digits = self.digits;
        format!("{:.digits$}", value / self.one)
    }
}

fn line(scale: Scale, row: &Row) -> String {
    let (is_own, compared) = row.shown();
    let difference = compared.difference;
    let sign = if difference.value < 0.0 { '-' } else { '+' };
    let [base, new, size, error] =
        [compared.base, compared.new, difference.value.abs(), difference.error].map(|value| scale.number(value));
    let signed = format!("{sign}{size}");
    let chance = chance(difference.chance);
    let word = if is_own { "own" } else { "total" };
    format!("{base:>9} {new:>9} {signed:>11} ± {error:<8} {chance:>8}  {word:<5}  {}", row.name)
}

/// A probability in few letters.
fn chance(chance: f64) -> String {
    match 100.0 * chance {
        percent if percent < 0.001 => "<0.001 %".to_owned(),
        percent if percent < 1.0 => format!("{percent:.3} %"),
        percent => format!("{percent:.0} %"),
    }
}

fn document(args: &Args, pictures: [&Picture; 2], rows: &[Row]) -> Value {
    let [base, new] = pictures.map(|picture| {
        let total = picture.total();
        let file = picture.files.first();
        json!({
            "file": file.map(|file| file.path.display().to_string()).unwrap_or_default(),
            "duration_seconds": file.map_or(0.0, |file| file.looked_at.as_secs_f64()),
            "samples": total.samples,
            "weight": total.weight,
        })
    });
    let compared = |compared: &Compared| {
        json!({
            "base": compared.base,
            "new": compared.new,
            "difference": compared.difference.value,
            "error": compared.difference.error,
            "chance": compared.difference.chance,
            "changed": compared.is_changed,
        })
    };
    let rows = rows.iter().take(args.rows.unwrap_or(usize::MAX));
    let rows: Vec<_> =
        rows.map(|row| json!({ "name": row.name, "own": compared(&row.own), "total": compared(&row.total) })).collect();
    let normalised = match args.normalise {
        Normalised::Count => "count",
        Normalised::Time => "time",
        Normalised::None => "none",
    };
    json!({ "base": base, "new": new, "normalised": normalised, "rows": rows })
}

#[cfg(test)]
mod tests;
