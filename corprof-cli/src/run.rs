//! `corprof run`: an application under a profiler.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::bundled::{self, Bundled};
use crate::exit::{self, Failure, Outcome};
use crate::launch::{self, Changes, Ended, Launch};

/// Run an application under a profiler.
///
/// Finds the CLSID in the library, checks what a runtime would fail at without a word, sets the variables by which runtimes load
/// profilers (CORECLR_*, and the DOTNET_* of .NET 11), and clears those of other profilers. Output, input and signals are
/// the application's own, and so is the exit code. At the end standard error says whether the profiler was loaded, and by
/// which processes: children inherit the variables.
///
/// Six profilers are built in. `corprof record` is `run sampler` with options; the book's chapter "Variables and exit codes" has the
/// variables of all six.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof run sampler -- dotnet App.dll
  corprof run timer --env TIMER_OUT=times.html -- dotnet App.dll
  corprof run target/release/libmine.so -- dotnet bin/Release/net10.0/App.dll --its-option
  corprof run libmine.so --env MINE_OUT=calls.csv -- dotnet run
  corprof run libmine.so --notification libother.so -- ./App

Where the profiler is not loaded, `corprof doctor` tells more. Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The profiler: the .so, .dll or .dylib that cargo has built, or the name of one that is built in: sampler, timer, tracer,
    /// logger, exceptions, allocations
    #[arg(value_name = "LIBRARY|NAME")]
    library: PathBuf,

    /// The profiler that is meant, by CLSID or by the name of its struct, where the library has several or does not tell
    #[arg(long, value_name = "CLSID|NAME")]
    clsid: Option<String>,

    /// A notification profiler beside it (.NET 6 and later), once for each; LIB=CLSID or LIB=NAME where a library has several
    #[arg(long, value_name = "LIB")]
    notification: Vec<String>,

    /// An environment variable for the application, once for each
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Exit with 124 where the application ran, but a profiler was not loaded
    #[arg(long)]
    require_load: bool,

    /// Say only what is wrong
    #[arg(short, long)]
    quiet: bool,

    /// The application, as it would be started without a profiler
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the application is not started.
pub fn run(args: &Args) -> Outcome {
    let mut profilers = vec![launch::choose(&args.library, args.clsid.as_deref())?];
    for text in &args.notification {
        let (library, wanted) = match text.rsplit_once('=') {
            Some((library, wanted)) => (library, Some(wanted)),
            None => (text.as_str(), None),
        };
        profilers.push(launch::choose(Path::new(library), wanted)?);
    }
    let changes = launch::given(&args.env)?;
    let launch = Launch { profilers, changes, command: &args.command, stop: None, is_quiet: args.quiet };
    let ended = with_output(launch, bundled::find(&args.library))?;
    Ok(if args.require_load && !ended.is_loaded { exit::NOT_LOADED.into() } else { launch::code(ended.status) })
}

/// Runs an application, under a bundled profiler maybe, and says which files that has written.
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
        tell(&output, &ended);
    }
    Ok(ended)
}

/// The file that a bundled profiler is to write, if it writes one. Its variable gets an absolute path: a child may work in another
/// folder.
fn output(bundled: &Bundled, changes: &mut Changes) -> anyhow::Result<Option<PathBuf>> {
    let Some((variable, default)) = bundled.output else { return Ok(None) };
    let given = launch::value_of(changes, variable).or_else(|| default.map(OsString::from));
    let Some(file) = given.filter(|file| !file.is_empty()) else { return Ok(None) };
    let file = std::path::absolute(&file).with_context(|| format!("{variable} is no path"))?;
    changes.insert(variable.to_owned(), Some(file.clone().into_os_string()));
    Ok(Some(file))
}

/// Says which files there are now.
fn tell(output: &Path, ended: &Ended) {
    let mut files: Vec<(u32, PathBuf)> =
        ended.loaded.iter().map(|pid| (*pid, bundled::file_of(output, *pid))).collect();
    // Without the process's number in its name there is one file for all.
    files.dedup_by(|(_, file), (_, other)| file == other);
    files.retain(|(_, file)| file.is_file());
    for (pid, file) in &files {
        match ended.commands.get(pid).filter(|_| files.len() > 1) {
            Some(command) => eprintln!("corprof: {} is of process {pid}: {command}", file.display()),
            None => eprintln!("corprof: {} is written", file.display()),
        }
    }
}
