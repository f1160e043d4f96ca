//! `corprof run`: an application under a profiler.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::bundled::{self, Bundled};
use crate::environment::Chosen;
use crate::exit::{self, Failure, Outcome};
use crate::late::{self, Late};
use crate::launch::{self, Changes, Ended, Launch};
use crate::record;

/// Run an application under a profiler.
///
/// Reads the CLSID from the library, checks for mistakes that a runtime ignores silently, sets the variables that make runtimes
/// load the profiler (CORECLR_*, and DOTNET_* for .NET 11), and clears those of other profilers. The application keeps its input,
/// output, signals and exit code. At the end, standard error lists the processes that have loaded the profiler, including child
/// processes, which inherit the variables.
///
/// With --delay or --duration, the application starts without a profiler. The profiler attaches later, to the first .NET process
/// that is not a tool of the SDK, and detaches after the duration while the application runs on. It gets the variables of --env as
/// lines in its attach data.
///
/// Profilers are built in. `corprof record` is `run sampler` with options. The chapter "Variables and exit codes" of the book
/// has their variables.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof run sampler -- dotnet App.dll
  corprof run timer --env TIMER_OUT=times.html -- dotnet App.dll
  corprof run target/release/libmine.so -- dotnet bin/Release/net10.0/App.dll --its-option
  corprof run libmine.so --env MINE_OUT=calls.csv -- dotnet run
  corprof run libmine.so --notification libother.so -- ./App
  corprof run libmine.so --delay 10 --duration 30 -- ./App

If the profiler is not loaded, `corprof doctor` finds the cause. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The profiler: a .so, .dll or .dylib that cargo has built, or a built-in one: sampler, timer, tracer, logger, exceptions,
    /// allocations, pauses, locks, starvation, leaks
    #[arg(value_name = "LIBRARY|NAME")]
    library: PathBuf,

    /// The profiler's CLSID or the name of its struct, if the library has several profilers or does not contain the CLSID
    #[arg(long, value_name = "CLSID|NAME")]
    clsid: Option<String>,

    /// A notification profiler; LIB=CLSID or LIB=NAME if a library has several. Repeatable
    #[arg(long, value_name = "LIB")]
    notification: Vec<String>,

    /// An environment variable for the application. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Attach the profiler this many seconds after the application's start
    #[arg(long, value_name = "SECONDS", value_parser = record::seconds, conflicts_with = "notification")]
    delay: Option<f64>,

    /// Ask the profiler to detach this many seconds after it was attached. It must listen for that (`Detacher::listen`)
    #[arg(long, value_name = "SECONDS", value_parser = record::seconds, conflicts_with = "notification")]
    duration: Option<f64>,

    /// Exit with 124 if the application ran, but a profiler was not loaded
    #[arg(long)]
    require_load: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// The command that starts the application
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the application is not started.
pub fn run(args: &Args) -> Outcome {
    let main = launch::choose(&args.library, args.clsid.as_deref())?;
    let changes = launch::given(&args.env)?;
    if args.delay.is_some() || args.duration.is_some() {
        return run_late(args, main, changes);
    }
    let mut profilers = vec![main];
    for text in &args.notification {
        let (library, wanted) = match text.rsplit_once('=') {
            Some((library, wanted)) => (library, Some(wanted)),
            None => (text.as_str(), None),
        };
        profilers.push(launch::choose(Path::new(library), wanted)?);
    }
    let launch = Launch { profilers, changes, command: &args.command, stop: None, is_quiet: args.quiet };
    let ended = with_output(launch, bundled::find(&args.library))?;
    Ok(if args.require_load && !ended.is_loaded { exit::NOT_LOADED.into() } else { launch::code(ended.status) })
}

/// Runs the application, and attaches the profiler later.
fn run_late(args: &Args, profiler: Chosen, mut changes: Changes) -> Outcome {
    let output = match bundled::find(&args.library) {
        Some(bundled) => output(bundled, &mut changes)?,
        None => None,
    };
    let late = Late {
        profiler,
        data: late::settings(&changes),
        delay: Duration::from_secs_f64(args.delay.unwrap_or_default()),
        duration: args.duration.map(Duration::from_secs_f64),
        changes,
        command: &args.command,
        is_quiet: args.quiet,
    };
    let ended = late.run()?;
    if let (Some(output), false) = (output, args.quiet) {
        tell(&output, ended.attached.as_slice(), &BTreeMap::new());
    }
    let is_missed = args.require_load && ended.attached.is_none();
    Ok(if is_missed { exit::NOT_LOADED.into() } else { launch::code(ended.status) })
}

/// Runs an application. If the profiler is a bundled one, lists the files that it has written.
///
/// # Errors
/// If the application is not started.
pub fn with_output(mut launch: Launch<'_>, bundled: Option<&Bundled>) -> Result<Ended, Failure> {
    let output = match bundled {
        Some(bundled) => output(bundled, &mut launch.changes)?,
        None => None,
    };
    let is_quiet = launch.is_quiet;
    let ended = launch.run()?;
    if let (Some(output), false) = (output, is_quiet) {
        tell(&output, &ended.loaded.iter().copied().collect::<Vec<_>>(), &ended.commands);
    }
    Ok(ended)
}

/// The output file of a bundled profiler, if it has one. Its variable gets an absolute path, because a child process may have
/// another working folder.
fn output(bundled: &Bundled, changes: &mut Changes) -> anyhow::Result<Option<PathBuf>> {
    let Some((variable, default)) = bundled.output else { return Ok(None) };
    // A sampler that sends writes a file only if it is asked to.
    let is_sent = variable == "SAMPLER_OUT" && launch::value_of(changes, "SAMPLER_PUSH").is_some();
    let default = default.filter(|_| !is_sent).map(OsString::from);
    let given = launch::value_of(changes, variable).or(default);
    let Some(file) = given.filter(|file| !file.is_empty()) else { return Ok(None) };
    let file = std::path::absolute(&file).with_context(|| format!("{variable} is no path"))?;
    changes.insert(variable.to_owned(), Some(file.clone().into_os_string()));
    Ok(Some(file))
}

/// Lists the files of these processes that exist now.
fn tell(output: &Path, loaded: &[u32], commands: &BTreeMap<u32, String>) {
    let mut files: Vec<(u32, PathBuf)> = loaded.iter().map(|pid| (*pid, bundled::file_of(output, *pid))).collect();
    // Without the process id in its name there is one file for all processes.
    files.dedup_by(|(_, file), (_, other)| file == other);
    files.retain(|(_, file)| file.is_file());
    for (pid, file) in &files {
        match commands.get(pid).filter(|_| files.len() > 1) {
            Some(command) => eprintln!("corprof: {} is of process {pid}: {command}", file.display()),
            None => eprintln!("corprof: {} is written", file.display()),
        }
    }
}
