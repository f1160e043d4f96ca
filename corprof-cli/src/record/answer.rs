//! What `record` says at its end, on the terminal and by a document: the files, and what the samplers tell of them.

use std::io::Write;
use std::path::{Path, PathBuf};

use corprof_launch::stop_file::StopFile;
use serde::Serialize;

use super::Args;
use super::sampler_result::SamplerResult;
use crate::output;

/// The file of a process, which may have told something about it.
pub(super) struct Written {
    pub(super) path: PathBuf,
    pub(super) pid: u32,
    pub(super) command: Option<String>,
    /// How many older files there are beside it.
    pub(super) earlier: usize,
}

/// The document of `--json`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Answer {
    /// The application's file first.
    pub(super) files: Vec<RecordedFile>,
    /// What the processes of the SDK were whose files were removed.
    pub(super) not_kept: Vec<String>,
    /// The processes that are not sampled any more.
    pub(super) runs_on: Vec<u32>,
    /// How the application died, if a signal has ended it.
    pub(super) death: Option<String>,
}

/// A file that is there.
#[derive(Debug, Serialize)]
pub(super) struct RecordedFile {
    pub(super) file: PathBuf,
    pub(super) pid: u32,
    pub(super) command: Option<String>,
    pub(super) earlier_files: usize,
    /// How many samples it has, and the busiest methods, as the terminal shows them.
    pub(super) summary: Vec<String>,
    /// Why its last samples are missing.
    pub(super) missing: Option<String>,
}

impl RecordedFile {
    fn of(written: &Written, stop: &StopFile) -> Self {
        let answer = stop.answer(written.pid);
        let result = SamplerResult::read(&answer);
        let missing = match result.as_ref().and_then(SamplerResult::why_missing) {
            Some(why) => Some(format!("the last samples are not in it: {why}")),
            None if stop.is_done(written.pid) => None,
            None => Some("the process died, so the samples since the last snapshot are not in it".to_owned()),
        };
        Self {
            file: written.path.clone(),
            pid: written.pid,
            command: written.command.clone(),
            earlier_files: written.earlier,
            summary: result.iter().flat_map(SamplerResult::lines).cloned().collect(),
            missing,
        }
    }

    /// The lines for the terminal.
    fn lines(&self, is_one_of_several: bool) -> Vec<String> {
        let of = self.command.as_ref().filter(|_| is_one_of_several);
        let of = of.map_or_else(|| "is written".to_owned(), |command| format!("is of {command}"));
        let newest = match self.earlier_files {
            0 => String::new(),
            earlier => format!(", the newest of {} files", earlier + 1),
        };
        let first = format!("{} {of}{newest}", self.file.display());
        let others = self.summary.iter().chain(&self.missing).map(|line| format!("  {line}"));
        std::iter::once(first).chain(others).collect()
    }
}

/// Lists the files with what the samplers tell of them, and opens the first with `--open`.
pub(super) fn tell(args: &Args, files: &[Written], stop: &StopFile) -> Vec<RecordedFile> {
    let told: Vec<_> = files.iter().map(|written| RecordedFile::of(written, stop)).collect();
    if !args.quiet {
        for line in told.iter().flat_map(|file| file.lines(told.len() > 1)) {
            eprintln!("corprof: {line}");
        }
    }
    if let Some(first) = told.first() {
        open_if_asked(args, &first.file);
    }
    told
}

/// Prints the document with `--json`.
pub(super) fn print(args: &Args, answer: &Answer) -> anyhow::Result<()> {
    if args.json {
        writeln!(output::stdout(), "{}", serde_json::to_string(answer)?)?;
    }
    Ok(())
}

/// Opens a file with `--open`. The file is there, so that a machine without a browser is not a failure.
pub(super) fn open_if_asked(args: &Args, path: &Path) {
    if !args.open {
        return;
    }
    if let Err(error) = open::that_detached(path) {
        eprintln!("corprof: {} is written, but no program here opens it: {error}", path.display());
    }
}
