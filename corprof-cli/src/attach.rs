//! `corprof attach`: attaches a profiler to a running process.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use corprof_diagnostics::Process;
use corprof_launch::launch::Changes;
use corprof_profilers::settings;
use corprof_profilers::table::Profiler;
use serde_json::json;

use crate::attach_request::{attach, leave_alone_if_unloadable};
use crate::attached_profiler::folder;
use crate::delayed::DelayedAttach;
use crate::exit::{self, Failure, Outcome};
use crate::{embedded, output, profiler_choice, question, signals};

/// Attach a profiler to a running process.
///
/// With --wait it starts a command, and attaches as soon as a runtime answers: to the first .NET process that is not a
/// tool of the SDK. The application keeps its input, output, signals and exit code.
///
/// Checks the library first, as the process would load it. Then asks the runtime to attach it; the runtime answers when
/// the profiler's `initialize_for_attach` and `profiler_attach_complete` have returned. The profiler stays until the
/// process ends or until it detaches itself. A process has one profiler at a time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof attach 4711 target/release/libmine.so
  corprof attach 4711 libmine.so --data 'rate=100' --timeout 30
  corprof attach 4711 libmine.so --inside /opt/libmine.so      the library is in its container already
  corprof attach --wait libmine.so -- dotnet App.dll

The exit code is 1 if the runtime refuses. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id, unless there is --wait; then the profiler: a .so, .dll or .dylib that cargo has built, or the
    /// name of a built-in one. With --wait the command may follow it without `--`, if no word of it begins with `-`
    #[arg(value_names = ["PID", "LIBRARY|NAME"], num_args = 1.., required = true)]
    target: Vec<OsString>,

    /// Start the command after `--`, and attach to it
    #[arg(long, conflicts_with_all = ["inside", "timeout"])]
    wait: bool,

    /// The profiler's CLSID or the name of its struct, if the library has several profilers or does not contain the
    /// CLSID
    #[arg(long, value_name = "CLSID|NAME")]
    clsid: Option<String>,

    /// Text for the profiler's `initialize_for_attach`
    #[arg(long, value_name = "TEXT")]
    data: Option<String>,

    /// A file with the bytes for the profiler's `initialize_for_attach`, at most 64 KB
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    data_file: Option<PathBuf>,

    /// The path of the library inside the process's container. Without it a process that cannot find or read the
    /// library gets a copy, which is removed afterwards
    #[arg(long, value_name = "PATH")]
    inside: Option<PathBuf>,

    /// The time limit for the runtime's answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,

    /// When the profiler is attached, print a line of JSON: pid, profiler
    #[arg(long, conflicts_with = "wait")]
    json: bool,

    /// The command that starts the application, with --wait
    #[arg(last = true, requires = "wait", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the process or the library does not exist, or the runtime refuses.
pub fn run(args: &Args) -> Outcome {
    let usage = |text: &str| Failure::new(exit::USAGE, anyhow!("{text}"));
    let data = || match (&args.data, &args.data_file) {
        (_, Some(file)) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display())),
        (text, None) => Ok(text.clone().unwrap_or_default().into_bytes()),
    };
    let (pid, library) = match args.target.as_slice() {
        // `dnx` and `dotnet tool exec` remove the first `--`.
        [library, command @ ..] if args.wait && !(command.is_empty() && args.command.is_empty()) => {
            let command: Vec<OsString> = command.iter().chain(&args.command).cloned().collect();
            return start(args, library, &command, data()?);
        }
        [pid, library] if !args.wait => (pid, Path::new(library)),
        _ if args.wait => {
            return Err(usage(
                "with --wait give the library or a name, and the command that starts the application: \
                 `corprof attach --wait libmine.so -- dotnet App.dll`",
            ));
        }
        _ => return Err(usage("give a process id and a library: `corprof attach 4711 libmine.so`; or use --wait")),
    };
    let pid = pid.to_str().and_then(|pid| pid.parse().ok());
    let pid: u32 = pid.ok_or_else(|| usage("the first argument is a process id; or use --wait"))?;
    embedded::refuse_unknown(library).map_err(|error| Failure::new(exit::USAGE, error))?;
    let process = Process::open(pid)?;
    let real = match Profiler::named(library) {
        Some(_) => embedded::for_process(embedded::library()?, pid)?,
        None => std::path::absolute(library).context("the path of the library")?,
    };
    if args.inside.is_none() && folder::needs_copies(&process) {
        // Only a second Ctrl-C ends this command before the copy is mapped and removed.
        signals::stop_requests().context("cannot catch signals")?;
    }
    let (inside, _copy) = match &args.inside {
        Some(inside) => (inside.clone(), None),
        None => folder::library_for(&process, &real)?,
    };
    leave_alone_if_unloadable(&process, &inside)?;
    let built_in = Profiler::named(library);
    // Another one may attach in the place of a built-in one.
    let chosen = match built_in.filter(|_| args.clsid.is_none()) {
        Some(profiler) => profiler_choice::choose(Path::new(profiler.to_attach().name), None)?,
        None => profiler_choice::choose(library, args.clsid.as_deref())?,
    };
    let data = data()?;
    check_settings(library, &data)?;
    attach(&process, &chosen, &inside, &data, Duration::from_secs(args.timeout.max(1)))?;
    eprintln!("corprof: {} is attached to process {pid}", chosen.name);
    if args.json {
        writeln!(output::stdout(), "{}", json!({ "pid": pid, "profiler": chosen.name }))?;
    }
    if let Some(profiler) = built_in.filter(|profiler| question::is_of(profiler)) {
        let name = profiler.name;
        eprintln!(
            "corprof: it prints its answer on the standard error of the process, when it is detached or the process ends. \
             `corprof {name} {pid}` prints it here"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the settings of a built-in profiler, which would refuse them on the standard error of the process.
fn check_settings(library: &Path, data: &[u8]) -> Result<(), Failure> {
    let Some(profiler) = Profiler::named(library) else { return Ok(()) };
    settings::check_data(profiler, data).map_err(|error| Failure::new(exit::USAGE, error))
}

/// Starts the command, and attaches to it.
fn start(args: &Args, library: &OsStr, command: &[OsString], data: Vec<u8>) -> Outcome {
    let library = Path::new(library);
    let built_in = Profiler::named(library).filter(|_| args.clsid.is_none());
    let profiler = match built_in {
        Some(profiler) => profiler_choice::choose_to_start(Path::new(profiler.to_attach().name), None)?,
        None => profiler_choice::choose_to_start(library, args.clsid.as_deref())?,
    };
    check_settings(library, &data)?;
    let delayed = DelayedAttach {
        profiler,
        data,
        delay: Duration::ZERO,
        duration: None,
        changes: Changes::new(),
        command,
        is_quiet: false,
        built_in,
    };
    let ended = delayed.run()?;
    // The user has ended the application.
    Ok(if ended.has_answered { exit::OK.into() } else { exit::of_application(ended.status) })
}
