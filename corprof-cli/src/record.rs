//! `corprof record`: where an application spends its time, by the built-in sampler.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use corprof_diagnostics::Process;
use corprof_launch::bundled;
use corprof_launch::folder::Folder;
use corprof_launch::launch::{Ended, Launch};
use corprof_launch::stop::Stop;
use corprof_launch::vigil::Vigil;
use corprof_profilers::table::SAMPLER;

use crate::attach_request::Occupied;
use crate::exit::{self, Failure, Outcome};
use crate::inspect;
use crate::options;
use crate::select;
use crate::signals::Signals;
use crate::visit::{self, Place};

mod event_pipe;
mod push;
mod told;

use told::Told;

/// The file extensions that the sampler can write. A longer one precedes its own suffixes.
const ENDINGS: [&str; 12] = [
    ".html",
    ".speedscope.json.gz",
    ".speedscope.json",
    ".firefox.json.gz",
    ".firefox.json",
    ".json.gz",
    ".json",
    ".folded",
    ".pb.gz",
    ".pprof",
    ".svg",
    ".txt",
];

/// The file without -o.
const DEFAULT: &str = "profile.html";

/// Record where an application spends its time.
///
/// Runs the application under the built-in sampler, which samples the stacks of its threads at random times, and prints
/// the path of the file. The overhead of sampling is limited to 2 % of the application's time. Ctrl-C and SIGTERM write
/// the file and then end the application; a second Ctrl-C ends it at once.
///
/// With --pid it attaches the sampler to a running process, until Ctrl-C or for --duration. The process runs on.
/// Afterwards the sampler detaches, so that the process can be recorded again; so it does if this command is killed. If
/// another maker's profiler is in the process, the runtime's own sampler takes the samples, by EventPipe: threads stop
/// at safe points, and waits are not told from work.
///
/// Each .NET process that the application starts writes its own file, with its process id in the name.
///
/// With --push it sends the samples of each interval to Grafana Pyroscope, Parca or an OpenTelemetry Collector, and
/// writes a file only with -o. The variable SAMPLER_PUSH_AUTHORIZATION has the header Authorization, if the engine
/// wants one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof record -- dotnet App.dll        writes profile.html, a page for any browser
  corprof record --open -- dotnet App.dll
  corprof record -p 4711 --duration 10    a running process
  corprof record -o app.svg --mode wall -- dotnet App.dll
  corprof record -o app.pb.gz --rate 500 --delay 10 --duration 30 -- dotnet App.dll
  corprof record --push pyroscope+http://localhost:4040 --label region=eu -- dotnet App.dll

The extension of FILE chooses the format: .html (a page), .svg (a flame graph), .folded, .speedscope.json, .pb.gz (pprof),
.json.gz (Firefox Profiler). Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id of a running process
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["command", "env"])]
    pid: Option<u32>,

    /// The file to write; an existing file is replaced. Default: profile.html, and none with --push
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    push: push::PushOptions,

    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, help = options::help(&SAMPLER, "SAMPLER_DURATION"))]
    duration: Option<f64>,

    #[arg(long, value_name = "SECONDS", value_parser = options::seconds, help = options::help(&SAMPLER, "SAMPLER_DELAY"))]
    delay: Option<f64>,

    #[arg(
        long,
        help = options::help(&SAMPLER, "SAMPLER_MODE"),
        default_value = options::default(&SAMPLER, "SAMPLER_MODE"),
        value_parser = options::words(&SAMPLER, "SAMPLER_MODE"),
    )]
    mode: String,

    #[arg(
        long,
        value_name = "HZ",
        help = options::help(&SAMPLER, "SAMPLER_HZ"),
        default_value = options::default(&SAMPLER, "SAMPLER_HZ"),
        value_parser = options::number(&SAMPLER, "SAMPLER_HZ"),
    )]
    rate: f64,

    /// Open the file in its default program
    #[arg(long)]
    open: bool,

    /// An environment variable for the application. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// The command that starts the application
    #[arg(last = true, required_unless_present = "pid", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// If the application is not started, or the file cannot be written.
pub fn run(args: &Args) -> Outcome {
    let output = args.output.as_deref().or_else(|| args.push.push.is_none().then_some(Path::new(DEFAULT)));
    let output = output.map(Output::new).transpose().map_err(|error| Failure::new(exit::USAGE, error))?;
    if args.open && output.is_none() {
        return Err(Failure::new(exit::USAGE, anyhow!("there is no file to open: give one by -o")));
    }
    if let Some(pid) = args.pid {
        return of_process(args, pid, output.as_ref());
    }
    let sampler = select::choose_to_start(Path::new("sampler"), None)?;
    let mut changes = options::given(&args.env)?;
    let temporary = Folder::new().context("cannot make a folder")?;
    let stop = Stop::new(output.as_ref().map_or(temporary.path(), |output| &output.folder));
    // The options count, not variables that the shell has for another run.
    for name in ["SAMPLER_DURATION", "SAMPLER_DELAY", "SAMPLER_OUT"] {
        changes.insert(name.to_owned(), None);
    }
    args.push.clear(&mut changes);
    for (name, value) in settings(args, output.as_ref().map(Output::pattern), stop.path())? {
        changes.insert(name.to_owned(), Some(value));
    }
    let launch =
        Launch { profilers: vec![sampler], changes, command: &args.command, stop: Some(&stop), is_quiet: true };
    let ended = launch.run()?;
    // The user ended the recording by Ctrl-C and has the file: success.
    let (code, death) = if ended.is_interrupted { (exit::OK, None) } else { exit::of_death(ended.status) };
    let missing = |why: &str| {
        let death = death.as_ref().map(|death| format!("; {death}")).unwrap_or_default();
        let code = if code == exit::OK { exit::NOT_LOADED } else { code };
        Failure::new(code, anyhow!("there is no profile: {why}{death}"))
    };
    let told = |pid| Told::read(&stop.answer(pid));
    if let Some(output) = &output {
        let missing_files = output.missing(&ended, told);
        let files = output.collect(&ended)?;
        if files.is_empty() {
            let why = ended.loaded.iter().rev().find_map(|pid| told(*pid)?.why_missing());
            let ended_first = "the sampler was ended within the first second, before it wrote a file";
            return Err(missing(why.as_deref().unwrap_or(if ended.is_loaded { ended_first } else { "see above" })));
        }
        for line in missing_files {
            eprintln!("corprof: {line}");
        }
        tell(args, &files, &stop)?;
    }
    if let Some(death) = death.as_ref().filter(|_| !args.quiet) {
        eprintln!("corprof: {death}");
    }
    let answers: Vec<_> = ended.loaded.iter().filter_map(|pid| push::answer(&stop.answer(*pid))).collect();
    if args.push.push.is_some() && !ended.is_loaded {
        return Err(missing("see above"));
    }
    args.push.tell(answers, args.quiet)?;
    Ok(code.into())
}

/// Lists the files with what the samplers tell of them, and opens the first with `--open`.
fn tell(args: &Args, files: &[Written], stop: &Stop) -> Result<()> {
    for Written { path, pid, command } in files.iter().filter(|_| !args.quiet) {
        let of = command.as_ref().filter(|_| files.len() > 1);
        let of = of.map(|command| format!("is of {command}")).unwrap_or_else(|| "is written".to_owned());
        eprintln!("corprof: {} {of}", path.display());
        let told = Told::read(&stop.answer(*pid));
        for line in told.iter().flat_map(Told::lines) {
            eprintln!("corprof:   {line}");
        }
        if let Some(why) = told.and_then(|told| told.why_missing()) {
            eprintln!("corprof:   the last samples are not in it: {why}");
        } else if !stop.is_done(*pid) {
            eprintln!("corprof:   the process died, so the samples since the last snapshot are not in it");
        }
    }
    files.first().map_or(Ok(()), |file| open_if_asked(args, &file.path))
}

/// Opens a file with `--open`.
fn open_if_asked(args: &Args, path: &Path) -> Result<()> {
    if args.open {
        open::that_detached(path).with_context(|| format!("cannot open {}", path.display()))?;
    }
    Ok(())
}

/// The options as variables of the sampler.
fn settings(args: &Args, output: Option<PathBuf>, stop: PathBuf) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut settings = vec![
        ("SAMPLER_STOP", stop.into_os_string()),
        ("SAMPLER_MODE", args.mode.clone().into()),
        ("SAMPLER_HZ", args.rate.to_string().into()),
        // Standard error is the application's.
        ("SAMPLER_REPORT", "none".into()),
    ];
    settings.extend(output.map(|output| ("SAMPLER_OUT", output.into_os_string())));
    settings.extend(args.push.settings()?);
    settings.extend(args.duration.map(|seconds| ("SAMPLER_DURATION", seconds.to_string().into())));
    settings.extend(args.delay.map(|seconds| ("SAMPLER_DELAY", seconds.to_string().into())));
    Ok(settings)
}

/// Attaches the sampler to a process, waits for its file, and waits for the detach.
fn of_process(args: &Args, pid: u32, output: Option<&Output>) -> Outcome {
    let process = Process::open(pid)?;
    let signals = Signals::catch().context("cannot catch signals")?;
    let place = Place::new(&process)?;
    let file = output.map(|output| output.file_of_visit(&process, &place));
    let stop = Stop::new(place.folder());
    let told_file = file.as_ref().map(|file| place.told_pattern(file));
    let mut settings = settings(args, told_file, place.told(&stop.path()))?;
    settings.extend(args.push.authorization());
    let told = push::pairs(&settings);
    match place.attach(&process, "sampler", &told) {
        Err(failure) if failure.error.is::<Occupied>() => {
            return event_pipe::record(args, &process, output, &signals, &failure.error);
        }
        attached => attached?,
    }
    if !args.quiet {
        eprintln!("corprof: recording process {pid} {}", until(args));
    }
    let mut vigil = Vigil::new(pid, place.folder());
    let mut is_asked = false;
    while !stop.is_done(process.inner_pid()) && !place.has_ended() {
        if signals.is_interrupted() {
            if std::mem::replace(&mut is_asked, true) {
                // It sees that this command has gone.
                let kept = file.filter(|_| place.is_shared());
                let writes = kept.map(|file| format!(" writes {} by itself, and", file.display())).unwrap_or_default();
                return Err(anyhow!("interrupted again: the sampler in process {pid}{writes} leaves").into());
            }
            stop.ask()?;
        }
        vigil.wait();
    }
    let answer = push::answer(&place.of_process(&stop.path(), ""));
    let is_there = file.as_ref().map_or(answer.is_some(), |file| file.is_file());
    if !is_there {
        let why = Told::read(&stop.answer(process.inner_pid())).and_then(|told| told.why_missing());
        let why =
            why.as_deref().unwrap_or("the process was ended before, or has no room for it: see its standard error");
        visit::tell("sampler", pid, &place.wait(&stop.path(), &signals));
        return Err(Failure::new(exit::NOT_LOADED, anyhow!("there is no profile of process {pid}: {why}")));
    }
    if let (Some(file), Some(output)) = (file, output) {
        let path = output.path();
        if place.is_shared() {
            fs::rename(&file, &path)
                .with_context(|| format!("cannot rename {} to {}", file.display(), path.display()))?;
        } else {
            visit::folder::take(&file, &path)?;
        }
        tell(args, &[Written { path, pid: process.inner_pid(), command: None }], &stop)?;
    }
    let told = args.push.tell(answer, args.quiet);
    visit::tell("sampler", pid, &place.wait(&stop.path(), &signals));
    told?;
    Ok(ExitCode::SUCCESS)
}

/// How long a process is recorded, in words.
fn until(args: &Args) -> String {
    args.duration.map_or_else(|| "until Ctrl-C".to_owned(), |seconds| format!("for {seconds} s"))
}

/// The file of a process, which may have told something about it.
struct Written {
    path: PathBuf,
    pid: u32,
    command: Option<String>,
}

/// The requested file. Processes write their files into the same folder, with their process ids in the names.
#[derive(Debug)]
struct Output {
    folder: PathBuf,
    stem: String,
    ending: String,
}

impl Output {
    /// Checks in advance that the file can be written at the end.
    fn new(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).with_context(|| format!("`{}` is not a path", path.display()))?;
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let lower = name.to_ascii_lowercase();
        let ending = ENDINGS.iter().find(|ending| lower.ends_with(*ending) && !lower.contains(".trace.json"));
        let length = ending.with_context(|| {
            format!("{}: the ending of the name chooses the format; give one of {}", path.display(), ENDINGS.join(", "))
        })?;
        let (stem, ending) = name.split_at(name.len() - length.len());
        let folder = path.parent().context("a file lies in a folder")?.to_owned();
        ensure!(folder.is_dir(), "there is no folder {}: make it, or give another file", folder.display());
        ensure!(!path.is_dir(), "{} is a folder: give the name of a file", path.display());
        Ok(Self { folder, stem: stem.to_owned(), ending: ending.to_owned() })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}{}", self.stem, self.ending))
    }

    /// The file that the sampler writes in a running process: beside the requested one, so that it is not lost with
    /// this command; in the folder of the visit if the process has other files or another user.
    fn file_of_visit(&self, process: &Process, place: &Place) -> PathBuf {
        if place.is_shared() {
            self.folder.join(format!("{}-{}-{}{}", self.stem, process.inner_pid(), std::process::id(), self.ending))
        } else {
            place.file(&format!("profile{}", self.ending))
        }
    }

    /// The path for the sampler.
    fn pattern(&self) -> PathBuf {
        self.folder.join(format!("{}-%p{}", self.stem.replace('%', "%%"), self.ending))
    }

    /// What to say about the applications that have no file, though they have loaded the sampler.
    ///
    /// A tool of the SDK may be a server that runs on; its profile is not what the user wants.
    fn missing(&self, ended: &Ended, told: impl Fn(u32) -> Option<Told>) -> Vec<String> {
        let command = |pid: u32| ended.commands.get(&pid).map(String::as_str);
        let applications = ended.loaded.iter().copied().filter(|pid| !inspect::is_launcher(command(*pid)));
        let missing = applications.filter(|pid| !bundled::file_of(&self.pattern(), *pid).is_file());
        let line = |pid| {
            let why = told(pid).and_then(|told| told.why_missing()).map(|why| format!(" ({why})")).unwrap_or_default();
            match command(pid) {
                Some(command) => format!("process {pid} loaded the sampler but wrote no file{why}: {command}"),
                None => format!("process {pid} loaded the sampler but wrote no file{why}"),
            }
        };
        missing.map(line).collect()
    }

    /// Renames the file of the main process to the requested name. Returns all files, that one first.
    fn collect(&self, ended: &Ended) -> Result<Vec<Written>> {
        let file_of = |pid: u32| bundled::file_of(&self.pattern(), pid);
        let command = |pid: &u32| ended.commands.get(pid).map(String::as_str);
        let mut files: BTreeMap<u32, PathBuf> = ended.loaded.iter().map(|pid| (*pid, file_of(*pid))).collect();
        files.retain(|_, file| file.is_file());
        // `dotnet run` and shells start helpers and then the application, so the application is a later process.
        let main = if files.contains_key(&ended.pid) && !inspect::is_launcher(command(&ended.pid)) {
            Some(ended.pid)
        } else {
            files
                .keys()
                .copied()
                .rfind(|pid| !inspect::is_launcher(command(pid)))
                .or_else(|| files.keys().copied().last())
        };
        let Some(main) = main else { return Ok(Vec::new()) };
        let mut named = Vec::new();
        if let Some(file) = files.remove(&main) {
            let path = self.path();
            fs::rename(&file, &path)
                .with_context(|| format!("cannot rename {} to {}", file.display(), path.display()))?;
            named.push(Written { path, pid: main, command: ended.commands.get(&main).cloned() });
        }
        let others = files.into_iter();
        named.extend(others.map(|(pid, path)| Written { path, pid, command: ended.commands.get(&pid).cloned() }));
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_those_that_the_sampler_knows() {
        for ending in ENDINGS {
            corprof_export::Format::of_path(format!("x{ending}")).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&folder.path().join("100%.speedscope.json")).unwrap();
        assert_eq!(output.pattern(), folder.path().join("100%%-%p.speedscope.json"));
        assert_eq!(bundled::file_of(&output.pattern(), 7), folder.path().join("100%-7.speedscope.json"));
        assert_eq!(output.path(), folder.path().join("100%.speedscope.json"));
        for (wrong, said) in
            [("x.pdf", "give one of .html"), ("x.trace.json", "give one of"), ("no/x.svg", "no folder")]
        {
            let error = Output::new(&folder.path().join(wrong)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    fn ended(pid: u32, loaded: &[(u32, &str)]) -> Ended {
        Ended {
            status: std::process::ExitStatus::default(),
            pid,
            loaded: loaded.iter().map(|(pid, _)| *pid).collect(),
            commands: loaded.iter().map(|(pid, command)| (*pid, (*command).to_owned())).collect(),
            is_loaded: true,
            is_interrupted: false,
        }
    }

    #[test]
    fn the_application_gets_the_name_and_others_keep_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&folder.path().join("a.svg")).unwrap();
        let collected = |pid, loaded: &[(u32, &str)]| {
            for (pid, command) in loaded {
                fs::write(bundled::file_of(&output.pattern(), *pid), command).unwrap();
            }
            let files = output.collect(&ended(pid, loaded)).unwrap();
            files.iter().map(|file| fs::read_to_string(&file.path).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            collected(5, &[(5, "dotnet App.dll"), (6, "dotnet Child.dll")]),
            ["dotnet App.dll", "dotnet Child.dll"]
        );
        assert_eq!(fs::read_to_string(output.path()).unwrap(), "dotnet App.dll");
        let run = [(5, "dotnet run"), (6, "dotnet /x/sdk/10/MSBuild.dll"), (7, "/x/App")];
        assert_eq!(collected(5, &run), ["/x/App", "dotnet run", "dotnet /x/sdk/10/MSBuild.dll"]);
        assert_eq!(collected(4, &[(5, "dotnet run")]), ["dotnet run"]);
        assert!(collected(4, &[]).is_empty());
    }

    #[test]
    fn a_process_without_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&folder.path().join("a.svg")).unwrap();
        let loaded =
            [(5, "dotnet test"), (6, "dotnet /x/sdk/10/vstest.console.dll"), (7, "dotnet testhost.dll"), (8, "/x/App")];
        fs::write(bundled::file_of(&output.pattern(), 8), "").unwrap();
        let told = |pid| (pid == 7).then(|| Told::Empty("idle".to_owned()));
        let missing = output.missing(&ended(5, &loaded), told);
        assert_eq!(missing, ["process 7 loaded the sampler but wrote no file (no samples: idle): dotnet testhost.dll"]);
    }
}
