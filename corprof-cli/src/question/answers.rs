//! What the processes of an application answer: beside the stop file, each in files of its own.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use corprof_launch::processes::Program;
use corprof_launch::stop_file::StopFile;

use crate::attached_profiler::folder;
use crate::output;

/// The endings of the files of a process, in the order in which they are printed: the calls come before the answer.
pub(super) const ENDINGS: [&str; 2] = [".calls", ".answer"];

/// The ending of the file with what a profiler knew a moment ago (`profilers/library/question.rs`): if its process
/// dies, there is no answer.
pub(super) const DRAFT: &str = ".draft";

/// Prints each answer once. A text goes to standard error, as the output is the application's; a document goes to
/// standard output.
pub(super) struct Answers<'s> {
    stop: &'s StopFile,
    is_json: bool,
    printed: BTreeSet<u32>,
}

impl<'s> Answers<'s> {
    pub(super) fn new(stop: &'s StopFile, is_json: bool) -> Self {
        Self { stop, is_json, printed: BTreeSet::new() }
    }

    /// Prints the texts that are there, while the application runs.
    pub(super) fn print_early(&mut self) -> Result<()> {
        if self.is_json {
            return Ok(());
        }
        self.print(|pid| Program::of(pid).map(|program| program.command))
    }

    /// Prints what was not printed yet. `command` is what a process runs: if there are several answers, each says whose
    /// it is.
    pub(super) fn print(&mut self, command: impl Fn(u32) -> Option<String>) -> Result<()> {
        let answered = self.stop.answered(&ENDINGS)?;
        let new: Vec<u32> = answered.difference(&self.printed).copied().collect();
        self.printed.extend(&new);
        for pid in new {
            if self.is_json {
                self.print_files(pid, &mut output::stdout())?;
                continue;
            }
            if self.printed.len() > 1 {
                let command = command(pid).map(|command| format!(": {command}")).unwrap_or_default();
                eprintln!("corprof: the answer of process {pid}{command}");
            }
            self.print_files(pid, &mut output::stderr())?;
        }
        Ok(())
    }

    /// Says which processes have died before their profilers had answered, and prints what these knew a moment before.
    /// Whether they knew something.
    pub(super) fn print_drafts(
        &mut self,
        loaded: &BTreeSet<u32>,
        command: impl Fn(u32) -> Option<String>,
    ) -> Result<bool> {
        let mut has_drafts = false;
        for pid in loaded.iter().copied() {
            if self.printed.contains(&pid) || self.stop.is_done(pid) {
                continue;
            }
            let draft = self.stop.file_of(pid, DRAFT);
            let command = command(pid).map(|command| format!(" ({command})")).unwrap_or_default();
            if !draft.is_file() {
                eprintln!(
                    "corprof: there is no answer of process {pid}{command}: it died before its profiler had answered"
                );
                continue;
            }
            has_drafts = true;
            eprintln!(
                "corprof: process {pid}{command} died before its profiler had answered; what that knew {}:",
                age(&draft)
            );
            if self.is_json {
                print(&draft, &mut output::stdout())?;
            } else {
                print(&draft, &mut output::stderr())?;
            }
        }
        Ok(has_drafts)
    }

    fn print_files(&self, pid: u32, out: &mut impl Write) -> Result<()> {
        ENDINGS.iter().try_for_each(|ending| print(&self.stop.file_of(pid, ending), out))
    }
}

/// How long ago a draft was right.
pub(super) fn age(draft: &Path) -> String {
    let age = draft.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
    age.map_or_else(|| "before".to_owned(), |age| format!("{:.1} s before", age.as_secs_f64()))
}

/// Prints a file of the profiler, if it has made it.
pub(super) fn print(file: &Path, out: &mut impl Write) -> Result<()> {
    let mut reader = match folder::reader(file) {
        Ok(reader) => reader,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(anyhow!(error).context("cannot read the answer of the profiler")),
    };
    io::copy(&mut reader, out).context("cannot print the answer")?;
    Ok(out.flush()?)
}
