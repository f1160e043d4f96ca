//! `corprof detach`: asks the profiler of a running process to detach.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use corprof_diagnostics::{Error, Process};
use corprof_launch::processes;
use serde_json::json;

use crate::exit::{self, Failure, Outcome};
use crate::{inspect, options, output};

/// The request. A profiler listens by `corprof/src/detach/listen.rs`, which also has the name and the answers.
const REQUEST: &[u8] = b"detach\n";

/// Detach the profiler of a running process.
///
/// The process runs on without a profiler, and another one can attach. The profilers of `record`, `stacks`, `top`,
/// `heap` and the questions (`locks` and so on) listen for this. Another one must, too: its author calls
/// `Detacher::listen` (the book, "Attach and detach"). A profiler that cannot detach says why, and stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof attach 4711 target/release/libmine.so
  corprof detach 4711

The exit code is 1 if there is no profiler that listens, or if it stays. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id
    #[arg(value_parser = options::pid)]
    pid: u32,

    /// The time limit for the profiler's answer, in seconds. It answers when its callbacks and threads have ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,

    /// When the profiler has detached, print a line of JSON: pid
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If there is no such process, or its profiler does not detach.
pub fn run(args: &Args) -> Outcome {
    request(args.pid, Duration::from_secs(args.timeout.max(1)))?;
    eprintln!("corprof: the profiler has detached from process {}", args.pid);
    if args.json {
        writeln!(output::stdout(), "{}", json!({ "pid": args.pid }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the profiler of a process to detach, and waits until it has.
///
/// # Errors
/// If no profiler listens, if it stays, or if it does not answer in time.
pub fn request(pid: u32, timeout: Duration) -> Result<(), Failure> {
    let no = |text: String| Err(Failure::new(exit::NO, anyhow!(text)));
    let place = place(pid)?;
    let mut stream = match connect(&place) {
        Ok(stream) => stream,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
            return no(format!("no profiler in process {pid} listens for a detach{}", profilers(pid)));
        }
        Err(error) => return Err(anyhow!(error).context(format!("cannot connect to {}", place.display())).into()),
    };
    stream.write_all(REQUEST).context("cannot ask the profiler")?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        // An answer is complete when the connection ends.
        let _ = stream.read_to_end(&mut text);
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    let Ok(answer) = answer.recv_timeout(timeout) else {
        return no(format!(
            "the profiler of process {pid} has not detached within {} s; it still may. It waits until its callbacks and threads \
             have ended, and says on the process's standard error for which it waits",
            timeout.as_secs()
        ));
    };
    match answer.split_once(": ") {
        _ if answer == "detached" => Ok(()),
        Some(("stays", why)) => no(format!("the profiler of process {pid} stays: {why}")),
        _ if !processes::is_there(pid) => {
            Err(anyhow!("process {pid} has ended before its profiler had detached").into())
        }
        _ => Err(anyhow!("the profiler of process {pid} has given no answer").into()),
    }
}

/// Whether a profiler of a process listens.
pub(crate) fn has_listener(pid: u32) -> bool {
    place(pid).is_ok_and(|place| connect(&place).is_ok())
}

/// The socket or pipe of a process.
fn place(pid: u32) -> Result<PathBuf, Failure> {
    let (folder, inner_pid) = match Process::open(pid) {
        Ok(process) => (process.port().parent().unwrap_or(Path::new("/")).to_owned(), process.inner_pid()),
        // The runtime's own port can be turned off.
        Err(Error::NoPort { .. }) => (std::env::temp_dir(), pid),
        Err(error) => return Err(error.into()),
    };
    let folder = if cfg!(windows) { PathBuf::from(r"\\.\pipe") } else { folder };
    Ok(folder.join(format!("corprof-detach-{inner_pid}")))
}

#[cfg(unix)]
fn connect(place: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    std::os::unix::net::UnixStream::connect(place)
}

#[cfg(windows)]
fn connect(place: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().read(true).write(true).open(place)
}

/// The profilers that do not listen.
fn profilers(pid: u32) -> String {
    let mapped = processes::mapped(pid).map(|mapped| inspect::mapped_profilers(pid, &mapped, &[])).unwrap_or_default();
    let list: Vec<String> = mapped.iter().map(|path| path.display().to_string()).collect();
    if list.is_empty() {
        return String::new();
    }
    format!(
        "\n  it has mapped: {}\n  one that has detached stays mapped; one that has not must call `Detacher::listen`",
        list.join(", ")
    )
}
