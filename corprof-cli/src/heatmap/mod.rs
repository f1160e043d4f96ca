//! `corprof heatmap`: when the samples of recordings were, as a page.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use corprof_export::Format;
use serde_json::json;

use crate::exit::{self, Failure, Outcome};
use crate::output;
use crate::recording::CellsOf;
use crate::recording::options::Looked;
use crate::recording::picture::Picture;
use crate::view::{self, page};

/// Show when a recording was busy, and with what: a page with a heat map of its samples, and the flame graph of each
/// moment.
///
/// A column of the map is a second, from top to bottom, in cells of 20 ms. A recording that is longer than 25 minutes is
/// drawn in columns of a minute and cells of a second, one of more than 25 hours in columns of an hour, and `Shorter
/// cells` shows the 25 minutes around a moment in cells of 20 ms. The darker a cell (in a dark page: the brighter), the
/// more samples it has, or the more time or bytes. Click a cell, or drag over a range, and the flame graph and the table
/// below are of that moment.
///
/// Reads .nettrace files and the text of `perf script`, as `corprof view` does. The page is one file, and asks nothing
/// of the network. It has at most 15 MB, unless its stacks alone need more: cells become longer if there are too many.
/// `-` is standard input.
///
/// Several files are one time, such as those of `corprof record --loop 1h --keep 24`: moments are since the first began.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof heatmap app.nettrace
  corprof heatmap monday.nettrace -o monday.html --from 14:05 --to 15:00
  corprof heatmap app.nettrace --thread '.NET TP Worker' --include 'Shop.Basket.*'
  corprof heatmap app.nettrace --event allocations
  corprof heatmap app-4711-*.nettrace -o day.html

Exits with 3 if the file cannot be read, or has no such events. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The page to write: .html
    #[arg(short, long, value_name = "FILE", default_value = "heatmap.html")]
    output: PathBuf,

    #[command(flatten)]
    looked: Looked,

    /// Only your code: what frameworks do counts for the code of yours that calls them
    #[arg(long)]
    only_my_code: bool,

    /// Print a line of JSON: file, columns, cell_ms
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read or written, or has no such events.
pub fn run(args: &Args) -> Outcome {
    let path = &args.output;
    if Format::of_path(path).ok() != Some(Format::Html) {
        let error = anyhow!("{}: a heat map is written as a page: name a file that ends in .html", path.display());
        return Err(Failure::new(exit::USAGE, error));
    }
    let mut options = args.looked.options();
    (options.cells, options.is_joined) = (Some(CellsOf::Stacks), true);
    let mut picture = Picture::read(&args.files, &options, false)?;
    args.looked.selection().apply(&mut picture);
    picture.files.iter().for_each(view::text::warn);
    view::require_samples(&args.looked, &picture)?;
    if picture.cells.as_ref().is_some_and(|cells| cells.is_full()) {
        return Err(anyhow!("there are too many distinct stacks: give narrower --from and --to, or --thread").into());
    }
    page::write(&mut picture, path, args.only_my_code)?;
    let cells = picture.cells.as_ref().map(|cells| (cells.level().cell, cells.columns().1));
    let (cell, columns) = cells.unwrap_or_default();
    eprintln!("corprof: wrote {}: {columns} columns in cells of {cell:?}", path.display());
    if args.json {
        let document = json!({ "file": path, "columns": columns, "cell_ms": 1e3 * cell.as_secs_f64() });
        writeln!(output::stdout(), "{document}")?;
    }
    Ok(ExitCode::SUCCESS)
}
