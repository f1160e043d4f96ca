//! `corprof view`: the profile of a recording, as a table or as a file of any format.

mod copy;
mod document;
pub(crate) mod page;
pub(crate) mod profile;
pub(crate) mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, anyhow};
use corprof_export::Format;
use corprof_profilers::is_recording;

use crate::exit::{self, Failure, Outcome};
use crate::options::Names;
use crate::output;
use crate::recording::options::Looked;
use crate::recording::picture::Picture;
use crate::recording::table::{self, By};
use crate::recording::{Cells, CellsOf};

/// Show the profile of a recording: a .nettrace file of `dotnet-trace collect`, of `dotnet-trace collect-linux`, or of
/// corprof, or the text of `perf script`.
///
/// Without -o, prints what the files hold, and the methods with the most weight: of each, its own, and with what it
/// calls (total). With -o, writes a picture or a file for a viewer. Several files are taken as one profile. A file that
/// ends in the middle, because the process died or the disk was full, is read up to there. `-` is standard input.
///
/// Where dotnet-trace has recorded .NET 11's events of async operations beside stacks, the callers of a resumed async
/// method are those that await it.
///
/// A page of one file has a timeline: samples, pauses for collections, exceptions and waits for locks. A range that is
/// dragged in it, or #at=2.5-2.6 at the end of its address, has the flame graph and the table be of that moment.
///
/// Samples of the runtime's own sampler (dotnet-trace) weigh the time until the thread's next one, whether the thread
/// worked or waited; samples of processors count; allocations weigh bytes, contention the time of the wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof view app.nettrace
  corprof view app.nettrace -o app.html
  corprof view app.nettrace --event allocations --by type
  corprof view app.nettrace --sort total --rows 10
  corprof view app.nettrace --from 50% --thread '.NET TP Worker' --only-my-code
  corprof view app.nettrace --by label:endpoint
  corprof view app.nettrace --label endpoint=/orders --slowest 1% -o slow.html
  corprof view app.nettrace --include 'Shop.Basket.*' --exclude Logger -o basket.svg
  perf script | corprof view - --only-my-code
  corprof view app.nettrace --json | jq '.rows[:5]'

The extension chooses the format: .html, .svg, .folded or .txt, .pb.gz or .pprof (pprof), .speedscope.json, .firefox.json or .json
(Firefox Profiler), the last two also with .gz. With .nettrace or .nettrace.gz, one recording is copied whole: a cut one gets an
end, so that other tools can read it.

Exits with 3 if a file cannot be read, or has no such events. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The file to write; its extension chooses the format. Without it, a table is printed
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) looked: Looked,

    /// Only your code: what frameworks do counts for the code of yours that calls them
    #[arg(long)]
    only_my_code: bool,

    /// The rows: method, line (where the recording and a portable PDB tell), type (of what was allocated or thrown),
    /// thread, or label:NAME, such as label:endpoint for requests
    #[arg(long, value_name = "SUBJECT", default_value = "method", conflicts_with = "output")]
    by: Subject,

    /// The column that has the rows with the most weight come first
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "own", conflicts_with = "output")]
    sort: Sort,

    /// The most rows to print [default: 30; with --json: all]
    #[arg(long, value_name = "N", conflicts_with = "output")]
    rows: Option<usize>,

    /// Print one JSON document: what the files hold, and all rows
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl Args {
    /// Those that print the table of a recording.
    pub(crate) fn table(
        path: &Path,
        with_lines: bool,
        sort: Sort,
        rows: Option<usize>,
        json: bool,
        names: Names,
    ) -> Self {
        let by = if with_lines { By::Line } else { By::Method };
        Self {
            files: vec![path.to_owned()],
            output: None,
            looked: Looked { names, ..Looked::default() },
            only_my_code: false,
            by: Subject { by, label: None },
            sort,
            rows,
            json,
        }
    }
}

/// The column that rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// What is of the subject itself.
    Own,
    /// With what it calls.
    Total,
}

/// The subject of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subject {
    by: By,
    label: Option<String>,
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let by = match text {
            "method" => By::Method,
            "line" => By::Line,
            "type" => By::Type,
            "thread" => By::Thread,
            _ => {
                let label = text.strip_prefix("label:").filter(|label| !label.is_empty());
                let label = label.ok_or("there are method, line, type, thread and label:NAME")?;
                return Ok(Self { by: By::Label, label: Some(label.to_owned()) });
            }
        };
        Ok(Self { by, label: None })
    }
}

/// The rows that are printed.
const ROWS: usize = 30;

/// Runs the command.
///
/// # Errors
/// If a file cannot be read or written, or has no such events.
pub fn run(args: &Args) -> Outcome {
    if let Some(path) = args.output.as_deref().filter(|path| is_recording(path)) {
        return copied(args, path);
    }
    let format = args.output.as_ref().map(Format::of_path).transpose();
    let format = format.map_err(|error| Failure::new(exit::USAGE, anyhow::Error::from(error)))?;
    let mut options = args.looked.options();
    options.group_label.clone_from(&args.by.label);
    // Those formats show samples in the order of their times.
    let is_ordered =
        |format| matches!(format, Format::Speedscope | Format::SpeedscopeGz | Format::Firefox | Format::FirefoxGz);
    options.is_timed = format.is_some_and(is_ordered);
    let is_page = format == Some(Format::Html);
    // Moments of several files are not those of one clock.
    if is_page && args.files.len() == 1 {
        (options.cells, options.has_lanes) = (Some(CellsOf::Threads), true);
    }
    let with_lines = is_page || args.by.by == By::Line;
    let mut picture = Picture::read(&args.files, &options, with_lines)?;
    args.looked.selection().apply(&mut picture);
    picture.files.iter().for_each(text::warn);
    match &args.output {
        Some(path) => {
            require_samples(&args.looked, &picture)?;
            if picture.cells.as_ref().is_some_and(Cells::is_full) {
                eprintln!(
                    "corprof: the page has no timeline, as there are too many distinct stacks: give narrower --from and --to, \
                     or --thread"
                );
            }
            let profile = if is_page {
                page::write(&mut picture, path, args.only_my_code)?
            } else {
                let profile = profile::of(&picture, args.only_my_code);
                profile.write(path).context("cannot write the profile")?;
                profile
            };
            eprintln!("corprof: wrote {}", path.display());
            profile.caption().iter().for_each(|line| eprintln!("corprof: {line}"));
        }
        None => print(args, &picture)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn copied(args: &Args, to: &Path) -> Outcome {
    let [from] = &args.files[..] else {
        return Err(Failure::new(exit::USAGE, anyhow!("one recording is copied into another: give one FILE")));
    };
    if args.looked.is_part() || args.only_my_code {
        let problem = anyhow!("a recording is copied whole: leave out the options that choose a part of it");
        return Err(Failure::new(exit::USAGE, problem));
    }
    copy::write(from, to)?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Args, picture: &Picture) -> anyhow::Result<()> {
    let mut rows = table::rows(picture, &args.by.by, args.only_my_code);
    if args.sort == Sort::Total {
        rows.sort_by_key(|row| std::cmp::Reverse((row.total.weight, row.total.samples)));
    }
    let mut out = output::stdout();
    if args.json {
        let shown = rows.get(..args.rows.unwrap_or(usize::MAX).min(rows.len())).unwrap_or_default();
        writeln!(out, "{}", document::of(picture, &args.by.by, shown))?;
        return Ok(out.flush()?);
    }
    picture.files.iter().try_for_each(|facts| text::facts(facts, &mut out))?;
    out.flush()?;
    require_samples(&args.looked, picture)?;
    text::table(picture, &args.by.by, &rows, args.rows.unwrap_or(ROWS), &mut out)?;
    Ok(out.flush()?)
}

/// Without samples there is nothing to show.
pub(crate) fn require_samples(looked: &Looked, picture: &Picture) -> anyhow::Result<()> {
    if !picture.sums.is_empty() {
        return Ok(());
    }
    let mut kinds: Vec<_> = picture.files.iter().flat_map(|file| &file.kinds).filter(|kind| kind.stacks > 0).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.stacks));
    kinds.dedup_by(|a, b| a.name == b.name && a.provider == b.provider);
    if picture.measure.is_some() {
        return Err(anyhow!(
            "no sample is left: give wider --from, --to, --thread, --process, --label, --include or --exclude"
        ));
    }
    if picture.files.iter().all(|file| file.events == 0) {
        return Err(anyhow!(
            "no event has a stack, as there are no events: the recording was ended, or the application killed, before any were written"
        ));
    }
    if kinds.is_empty() {
        return Err(anyhow!(
            "no event has a stack, so there is no profile: record with dotnet-trace's dotnet-sampled-thread-time"
        ));
    }
    let named: Vec<String> = kinds.iter().take(8).map(|kind| kind.title()).collect();
    let what = looked.event.as_deref().unwrap_or("samples, allocations, contention and exceptions");
    Err(anyhow!("there are no events `{what}`: give --event one that has stacks here: {}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_named() {
        assert_eq!(Subject::from_str("line"), Ok(Subject { by: By::Line, label: None }));
        assert_eq!(Subject::from_str("label:user"), Ok(Subject { by: By::Label, label: Some("user".to_owned()) }));
        assert!(Subject::from_str("label:").is_err() && Subject::from_str("methods").is_err());
    }
}
