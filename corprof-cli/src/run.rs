//! `corprof run`: an application under a profiler.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use corprof_launch::bundled;
use corprof_launch::environment::Chosen;
use corprof_launch::launch::{self, Changes, Launch};
use corprof_profilers::table::{self, Loading, Profiler, Setting};
use serde_json::{Value, json};

use crate::delayed::{self, DelayedAttach};
use crate::exit::{self, Failure, Outcome};
use crate::options::{given, seconds};
use crate::{embedded, file_hint, output, profiler_choice, question};

/// Run an application under a profiler.
///
/// Reads the CLSID from the library, checks for mistakes that a runtime ignores silently, sets the variables that make
/// runtimes load the profiler (CORECLR_*, and DOTNET_* for .NET 11), and clears those of other profilers. The
/// application keeps its input, output, signals and exit code. At the end, standard error lists the processes that have
/// loaded the profiler, including child processes, which inherit the variables. At Ctrl-C and SIGTERM a built-in
/// profiler answers first, and then the application is ended; a second Ctrl-C ends it at once.
///
/// With --delay or --duration, the application starts without a profiler. The profiler attaches later, to the first
/// .NET process that is not a tool of the SDK, and detaches after the duration while the application runs on. It gets
/// the variables of --env as lines in its attach data.
///
/// Profilers are built in: --list shows them, and behind the name of one its settings, which are environment variables.
/// `corprof record` is `run sampler` with options, `corprof locks --` is `run locks` with options, and so on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof run --list
  corprof run timer --list
  corprof run sampler -- dotnet App.dll
  corprof run timer --env TIMER_OUT=times.html -- dotnet App.dll
  corprof run target/release/libmine.so -- dotnet bin/Release/net10.0/App.dll --its-option
  corprof run libmine.so --env MINE_OUT=calls.csv -- dotnet run
  corprof run libmine.so --notification libother.so -- ./App
  corprof run libmine.so --delay 10 --duration 30 -- ./App

If the profiler is not loaded, `corprof doctor` finds the cause. Exit codes: corprof help exit-codes")]
pub struct Args {
    #[arg(value_name = "LIBRARY|NAME", required_unless_present = "list", help = library_help())]
    library: Option<PathBuf>,

    /// List the built-in profilers, or the settings of the one that is named
    #[arg(long)]
    list: bool,

    /// Print the list as lines of JSON, one for each profiler: name, summary, clsid, loading, settings
    #[arg(long, requires = "list")]
    json: bool,

    /// The profiler's CLSID or the name of its struct, if the library has several profilers or does not contain the
    /// CLSID
    #[arg(long, value_name = "CLSID|NAME")]
    clsid: Option<String>,

    /// A notification profiler; LIB=CLSID or LIB=NAME if a library has several. Repeatable
    #[arg(long, value_name = "LIB")]
    notification: Vec<String>,

    /// An environment variable for the application. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Attach the profiler this many seconds after the application's start
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "notification")]
    delay: Option<f64>,

    /// Ask the profiler to detach this many seconds after it was attached. It must listen for that (`Detacher::listen`)
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "notification")]
    duration: Option<f64>,

    /// Exit with 124 if the application ran, but a profiler was not loaded
    #[arg(long)]
    require_load: bool,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// The command that starts the application
    #[arg(trailing_var_arg = true, required_unless_present = "list", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the application is not started.
pub fn run(args: &Args) -> Outcome {
    if args.list {
        list(args.library.as_deref(), args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let library = args.library.as_deref().context("no library")?;
    let main = profiler_choice::choose_to_start(library, args.clsid.as_deref())?;
    let built_in = Profiler::named(library);
    let changes = given(&args.env)?;
    if let Some(profiler) = built_in {
        let wrong = |error| Failure::new(exit::REFUSED, anyhow!("the application was not started: {error}"));
        bundled::check(profiler, &changes).map_err(wrong)?;
        file_hint::print(profiler, &changes, args.quiet);
    }
    if args.delay.is_some() || args.duration.is_some() {
        let main = match built_in {
            Some(profiler) => profiler_choice::choose(Path::new(profiler.to_attach().name), None)?,
            None => main,
        };
        return run_late(args, main, built_in, changes);
    }
    let mut profilers = vec![main];
    for text in &args.notification {
        let (library, wanted) = match text.rsplit_once('=') {
            Some((library, wanted)) => (library, Some(wanted)),
            None => (text.as_str(), None),
        };
        profilers.push(profiler_choice::choose_to_start(Path::new(library), wanted)?);
    }
    let has_own_stop = |setting: &Setting| launch::value_of(&changes, setting.variable).is_some();
    let asked = built_in.filter(|profiler| profiler.stop().is_some_and(|setting| !has_own_stop(setting)));
    let launch = Launch { profilers, changes, command: &args.command, stop: None, is_quiet: args.quiet };
    if let Some(profiler) = asked {
        return question::run_until_asked(launch, profiler, None, args.require_load);
    }
    let ended = bundled::run(launch, built_in)?;
    Ok(if args.require_load && !ended.is_loaded { exit::NOT_LOADED.into() } else { exit::of_application(ended.status) })
}

/// Prints what --list asks for.
///
/// # Errors
/// If there is no such built-in profiler.
fn list(name: Option<&Path>, is_json: bool) -> Result<(), Failure> {
    let mut out = output::stdout();
    let wanted = match name {
        Some(name) => {
            embedded::refuse_unknown(name).map_err(|error| Failure::new(exit::USAGE, error))?;
            let known = Profiler::named(name);
            Some(known.with_context(|| format!("{} is not a built-in profiler", name.display()))?)
        }
        None => None,
    };
    match wanted {
        _ if is_json => {
            for profiler in table::ALL.iter().filter(|profiler| wanted.is_none_or(|wanted| wanted == **profiler)) {
                writeln!(out, "{}", document(profiler))?;
            }
        }
        Some(profiler) => write!(out, "{}", table::describe(profiler))?,
        None => write!(out, "{}", table::list())?,
    }
    Ok(())
}

/// A built-in profiler with its settings.
fn document(profiler: &Profiler) -> Value {
    let setting = |setting: &Setting| {
        json!({
            "variable": setting.variable,
            "default": setting.default,
            "values": setting.kind.shown(""),
            "meaning": setting.plain_meaning(),
            "option": setting.option,
        })
    };
    json!({
        "name": profiler.name,
        "summary": profiler.summary,
        "clsid": profiler.clsid,
        "loading": profiler.loading.shown(),
        "settings": profiler.settings.iter().map(setting).collect::<Vec<_>>(),
    })
}

/// The help of the library.
fn library_help() -> String {
    let starts = table::ALL.iter().filter(|profiler| profiler.loading != Loading::ByAttach);
    let names: Vec<_> = starts.map(|profiler| profiler.name).collect();
    format!("The profiler: a .so, .dll or .dylib that cargo has built, or a built-in one: {}", names.join(", "))
}

/// Runs the application, and attaches the profiler later.
fn run_late(args: &Args, profiler: Chosen, built_in: Option<&'static Profiler>, mut changes: Changes) -> Outcome {
    let output = match built_in {
        Some(built_in) => bundled::output(built_in, &mut changes)?,
        None => None,
    };
    // A built-in profiler refuses what is not a setting of it.
    let is_setting = |name: &str| built_in.is_none_or(|built_in| built_in.setting(name).is_some());
    let delayed = DelayedAttach {
        profiler,
        data: delayed::settings(changes.iter().filter(|(name, _)| is_setting(name))),
        delay: Duration::from_secs_f64(args.delay.unwrap_or_default()),
        duration: args.duration.map(Duration::from_secs_f64),
        changes,
        command: &args.command,
        is_quiet: args.quiet,
        built_in,
    };
    let ended = delayed.run()?;
    if let (Some(output), false) = (output, args.quiet) {
        bundled::list_files(&output, ended.attached.as_slice(), &BTreeMap::new());
    }
    let is_missed = args.require_load && ended.attached.is_none();
    if is_missed {
        return Ok(exit::NOT_LOADED.into());
    }
    // The user has ended the application.
    Ok(if ended.has_answered { exit::OK.into() } else { exit::of_application(ended.status) })
}
