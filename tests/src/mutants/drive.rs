//! Has a runtime compile mutants, in processes that may die or hang.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::PATIENCE;
use crate::{Run, Runtime};

/// The outcome of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was compiled, in each instantiation that was tried.
    Compiled,
    /// The compiler or the type loader threw.
    Threw {
        /// The exception, without its namespace.
        exception: String,
        /// Its message.
        message: String,
    },
    /// Nothing was compiled: no type fits the method's generic parameters.
    NotTried,
    /// corprof or the runtime did not take the bytes for a body.
    NotTaken,
    /// The process died.
    Died(String),
    /// The compiler did not come back.
    Hung,
}

/// What became of a body.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) ending: Ending,
    /// The verdict in the process: the rule that the body breaks, or none; nothing if it was not compiled.
    pub(super) verdict: Option<Option<String>>,
}

/// Files with bodies beside them, and how a runtime is to compile these.
pub(super) struct Batch<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) files: &'a [PathBuf],
    /// The tokens of the methods with bodies, and which file each is of.
    pub(super) methods: &'a [(usize, u32)],
    pub(super) is_optimised: bool,
    /// How long one method may take.
    pub(super) patience: Duration,
}

/// The output of one process.
struct ProcessOutput {
    endings: Vec<Ending>,
    is_done: bool,
    stderr: String,
}

/// A line of the profiler's: of what kind it is, about which method of which file, and the rest.
fn split(line: &str) -> Option<(&str, &str, u32, &str)> {
    let (kind, line) = line.split_once("| ")?;
    let (path, rest) = line.split_once(" 0x")?;
    let (token, rest) = rest.split_once(": ")?;
    ["mutants", "verdict"].contains(&kind).then_some((kind, path, u32::from_str_radix(token, 16).ok()?, rest))
}

impl Batch<'_> {
    /// The outcome of each method, in their order. After a crash or a hang the next process goes on with the next
    /// method.
    pub(super) fn compile(&self) -> Result<Vec<Outcome>> {
        let mut endings: Vec<Ending> = Vec::new();
        let mut refused = HashSet::new();
        let mut verdicts = HashMap::new();
        while endings.len() < self.methods.len() {
            let output = self.one_process(endings.len())?;
            for line in output.stderr.lines() {
                let Some((kind, path, token, rest)) = split(line) else { continue };
                let Some(file) = self.files.iter().position(|file| file.as_os_str() == path) else { continue };
                if kind == "verdict" {
                    verdicts.insert((file, token), Some(rest.to_owned()).filter(|rule| rule != "-"));
                } else {
                    refused.insert((file, token));
                }
            }
            endings.extend(output.endings);
            ensure!(!output.is_done || endings.len() == self.methods.len(), "too few were compiled: {}", output.stderr);
        }
        let outcome = |(ending, method)| Outcome {
            ending: if refused.contains(method) { Ending::NotTaken } else { ending },
            verdict: verdicts.get(method).cloned(),
        };
        Ok(endings.into_iter().zip(self.methods).map(outcome).collect())
    }

    fn one_process(&self, first: usize) -> Result<ProcessOutput> {
        let run = Run::new(self.runtime, "Mutants")
            .profiler("mutants")
            .env("DOTNET_TieredCompilation", if self.is_optimised { "0" } else { "1" })
            .args([first.to_string()])
            .args(self.files);
        let mut stderr = tempfile::tempfile()?;
        let mut child = run.command()?.stdout(Stdio::piped()).stderr(stderr.try_clone()?).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("stdout is a pipe")?).lines();
        let (send, receive) = mpsc::channel();
        let reader = thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut output = ProcessOutput { endings: Vec::new(), is_done: false, stderr: String::new() };
        let mut begun = false;
        let has_hung = loop {
            // A failure to start or load is not a fault of the mutant.
            let patience = if begun { self.patience } else { PATIENCE };
            match receive.recv_timeout(patience) {
                Ok(line) if line == "done" => output.is_done = true,
                Ok(line) if line.starts_with("> ") => begun = true,
                Ok(line) => {
                    let outcome = line.strip_prefix("= ").and_then(|rest| rest.split_once(' '));
                    let (number, outcome) = outcome.with_context(|| format!("an unknown line: {line}"))?;
                    ensure!(number.parse() == Ok(first + output.endings.len()), "out of order: {line}");
                    begun = false;
                    output.endings.push(match outcome {
                        "ok" => Ending::Compiled,
                        "none" => Ending::NotTried,
                        threw => {
                            let (exception, message) = threw.split_once(": ").unwrap_or((threw, ""));
                            Ending::Threw { exception: exception.to_owned(), message: message.to_owned() }
                        }
                    });
                }
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => break true,
            }
        };
        if has_hung {
            child.kill().context("cannot kill a program that hangs")?;
        }
        let status = child.wait()?;
        // The pipe is closed, so the thread has nothing more to wait for.
        let _ = reader.join();
        stderr.rewind()?;
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes)?;
        output.stderr = String::from_utf8_lossy(&bytes).into_owned();
        match (output.is_done, begun, has_hung) {
            (true, false, false) => {}
            (false, true, true) => output.endings.push(Ending::Hung),
            (false, true, false) => output.endings.push(Ending::Died(status.to_string())),
            _ => bail!(
                "the program ended elsewhere, after {} methods, with {status}: {}",
                output.endings.len(),
                output.stderr
            ),
        }
        Ok(output)
    }
}
