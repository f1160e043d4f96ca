//! `corprof record`: where an application spends its time, by the built-in sampler.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::builder::PossibleValuesParser;
use corprof_diagnostics::Process;
use corprof_export::Format;
use corprof_launch::bundled;
use corprof_launch::folder::{Folder, has_room};
use corprof_launch::launch::{Ended, Launch};
use corprof_launch::stop_file::StopFile;
use corprof_launch::vigil::Vigil;
use corprof_profilers::settings::SettingError;
use corprof_profilers::table::SAMPLER;
use corprof_profilers::{RECORDINGS, is_recording};

use crate::async_probe;
use crate::attach_request::Occupied;
use crate::attached_profiler::overdue::Overdue;
use crate::attached_profiler::{self, Left, Place};
use crate::exit::{self, Failure, Outcome};
use crate::options::{self, Names};
use crate::profiler_choice;
use crate::signals::Signals;

mod answer;
mod event_pipe;
mod push;
mod rotation;
mod sampler_result;
mod slow_calls;

use answer::{Answer, Written, tell};
use sampler_result::SamplerResult;

/// The file extensions that the sampler can write.
fn endings() -> impl Iterator<Item = &'static str> {
    Format::extensions().chain(RECORDINGS)
}

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
/// another profiler stays in the process, the runtime's own sampler takes the samples, by EventPipe: threads stop
/// at safe points, and waits are not told from work.
///
/// The callers of a resumed async method are the methods that await it; on .NET 11 then "[started by]" and those that
/// started these, also with --pid. --physical shows stacks as threads have them.
///
/// Each .NET process that the application starts writes its own file, with its assembly and its process id in the name.
/// Those of an SDK (`dotnet run`, MSBuild, compilers) do not get the name of FILE, and their files are kept only if
/// there is no application. Build servers, which would live on with the sampler, are not started.
///
/// With --trace it keeps the slowest calls of chosen methods apart, with their arguments. Where their threads wait is
/// sampled, too, and their other samples are in the profile as usual.
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
  corprof record -o app.nettrace -- dotnet App.dll    each sample with its time, for PerfView and dotnet-trace
  corprof record -o app.nettrace --events cpu,alloc,lock,exception,gc -- dotnet App.dll
  corprof record -o app.nettrace --events cpu,activity -- dotnet App.dll
  corprof record -o app.nettrace --loop 1h --keep 24 -p 4711    the last day, an hour a file
  corprof record --trace 'Shop.Orders.*:50ms' -- dotnet App.dll    where the slow calls of these methods spend their time
  corprof record --push pyroscope+http://localhost:4040 --label region=eu -- dotnet App.dll

The extension of FILE chooses the format: .html (a page), .svg (a flame graph), .folded, .speedscope.json, .pb.gz (pprof),
.json.gz (Firefox Profiler), .nettrace (a recording of each sample, which grows as they come), .nettrace.gz (the same, a
third as large or less; other tools read it after gunzip).
Exit codes: corprof help exit-codes")]
pub struct Args {
    /// The process id of a running process
    #[arg(short, long, value_name = "PID", value_parser = options::pid, conflicts_with_all = ["command", "env"])]
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

    /// What a recording (.nettrace) has: samples of threads that run (cpu), of all threads (wall), or of those that run
    /// and those that wait, each with its own sampler (cpu,wall); the runtime's own events, with their stacks: alloc,
    /// lock, exception, gc; and the requests or other activities of the application, by which `corprof view` labels
    /// samples: activity
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(["cpu", "wall", "alloc", "lock", "exception", "gc", "activity"]),
    )]
    events: Vec<String>,

    #[command(flatten)]
    rotation: rotation::Rotation,

    #[command(flatten)]
    slow_calls: slow_calls::SlowCallOptions,

    #[arg(
        long,
        value_name = "HZ",
        help = options::help(&SAMPLER, "SAMPLER_HZ"),
        default_value = options::default(&SAMPLER, "SAMPLER_HZ"),
        value_parser = options::number(&SAMPLER, "SAMPLER_HZ"),
    )]
    rate: f64,

    #[arg(long, help = options::PHYSICAL_HELP)]
    physical: bool,

    #[arg(long, requires = "pid", conflicts_with_all = ["physical", "trace"], help = options::ASYNC_PROBE_HELP)]
    async_probe: bool,

    #[command(flatten)]
    names: Names,

    /// Open the file in its default program
    #[arg(long)]
    open: bool,

    /// An environment variable for the application. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    /// At the end print a line of JSON: the files, with their samples and busiest methods. After the application's own
    /// output
    #[arg(long)]
    json: bool,

    /// The command that starts the application
    #[arg(trailing_var_arg = true, required_unless_present = "pid", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Args {
    /// The kind of samples.
    fn mode(&self) -> &str {
        match (self.records("cpu"), self.records("wall")) {
            (true, _) => "cpu",
            (false, true) => "wall",
            (false, false) => &self.mode,
        }
    }

    fn records(&self, kind: &str) -> bool {
        self.events.iter().any(|event| event == kind)
    }
}

/// Runs the command.
///
/// # Errors
/// If the application is not started, or the file cannot be written.
pub fn run(args: &Args) -> Outcome {
    let output = args.output.as_deref().or_else(|| args.push.push.is_none().then_some(Path::new(DEFAULT)));
    let output = output.map(Output::new).transpose().map_err(|error| Failure::new(exit::USAGE, error))?;
    if let Some(output) = output.as_ref().filter(|output| output.is_recording() && args.push.push.is_some()) {
        let path = output.path();
        let why = anyhow!(
            "--push sends no recording such as {}: give -o another extension, or leave out --push",
            path.display()
        );
        return Err(Failure::new(exit::USAGE, why));
    }
    if !args.events.is_empty() && !output.as_ref().is_some_and(Output::is_recording) {
        let why = anyhow!("--events needs a recording: give it a file, such as -o app.nettrace");
        return Err(Failure::new(exit::USAGE, why));
    }
    args.rotation.check(output.as_ref().is_some_and(Output::is_recording))?;
    args.slow_calls.check(output.is_some())?;
    let output = output.map(|output| Output { is_rotating: args.rotation.is_wanted(), ..output });
    if args.mode == "wall" && args.mode() == "cpu" {
        let why = anyhow!("--mode wall and --events cpu contradict each other: leave one out, or give --events wall");
        return Err(Failure::new(exit::USAGE, why));
    }
    if args.open && output.is_none() {
        return Err(Failure::new(exit::USAGE, anyhow!("there is no file to open: give one by -o")));
    }
    if let Some(pid) = args.pid {
        return of_process(args, pid, output.as_ref());
    }
    let sampler = profiler_choice::choose_to_start(Path::new("sampler"), None)?;
    let mut changes = options::given(&args.env)?;
    let temporary = Folder::new().context("cannot make a folder")?;
    let stop = StopFile::new(output.as_ref().map_or(temporary.path(), |output| &output.folder));
    // The options count, not variables that the shell has for another run.
    for name in ["SAMPLER_DURATION", "SAMPLER_DELAY", "SAMPLER_OUT", "SAMPLER_EVENTS"] {
        changes.insert(name.to_owned(), None);
    }
    for name in rotation::VARIABLES.into_iter().chain(slow_calls::VARIABLES) {
        changes.insert(name.to_owned(), None);
    }
    args.push.clear(&mut changes);
    for (name, value) in settings(args, false, output.as_ref().map(Output::pattern), stop.path())? {
        changes.insert(name.to_owned(), Some(value));
    }
    // A setting that the shell has and the sampler would refuse.
    bundled::check(&SAMPLER, &changes).map_err(not_started)?;
    refuse_number(&args.command)?;
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
    let result_of = |pid| SamplerResult::read(&stop.answer(pid));
    let survivors = stop.ask_survivors(&ended.loaded)?;
    let mut answer = Answer { runs_on: survivors.clone(), death: death.clone(), ..Answer::default() };
    if let Some(output) = &output {
        let files_of = |pid| output.files_of(pid, &stop);
        let missing_files = output.missing(&ended, files_of, result_of);
        let Collected { files, of_sdk } = output.collect(&ended, files_of)?;
        if files.is_empty() {
            let why = ended.by_importance().into_iter().find_map(|pid| result_of(pid)?.why_missing());
            let ended_first = "the sampler was ended within the first second, before it wrote a file, or says above why it could \
                               not write one";
            return Err(missing(why.as_deref().unwrap_or(if ended.is_loaded { ended_first } else { "see above" })));
        }
        for line in missing_files {
            eprintln!("corprof: {line}");
        }
        answer.files = tell(args, &files, &stop);
        if let (Some(line), false) = (not_kept(&of_sdk), args.quiet) {
            eprintln!("corprof: {line}");
        }
        answer.not_kept = of_sdk;
    }
    for pid in survivors.into_iter().filter(|_| !args.quiet) {
        let command = ended.command(pid).map(|command| format!(": {command}")).unwrap_or_default();
        eprintln!("corprof: process {pid} runs on, and is not sampled any more{command}");
    }
    if let Some(death) = death.as_ref().filter(|_| !args.quiet) {
        eprintln!("corprof: {death}");
    }
    let answers: Vec<_> = ended.loaded.iter().filter_map(|pid| push::answer(&stop.answer(*pid))).collect();
    if args.push.push.is_some() && !ended.is_loaded {
        return Err(missing("see above"));
    }
    answer::print(args, &answer)?;
    args.push.tell(answers, args.quiet)?;
    Ok(code.into())
}

fn not_started(error: SettingError) -> Failure {
    Failure::new(exit::REFUSED, anyhow!("the application was not started: {error}"))
}

/// Refuses the number of a process as a command, with what follows.
fn refuse_number(command: &[OsString]) -> Result<(), Failure> {
    let Some(program) = command.first() else { return Ok(()) };
    match program.to_str().and_then(|word| word.parse::<u32>().ok()) {
        Some(pid) => {
            Err(Failure::new(exit::USAGE, anyhow!("a running process is named by -p: corprof record -p {pid}")))
        }
        None => Ok(()),
    }
}

/// What to say about the processes of the SDK whose files were removed.
fn not_kept(of_sdk: &[String]) -> Option<String> {
    let mut names = of_sdk.to_vec();
    names.sort();
    names.dedup();
    let names = names.join(", ");
    match of_sdk.len() {
        0 => None,
        1 => Some(format!("the file of a process of the SDK is not kept: {names}")),
        count => Some(format!("the files of {count} processes of the SDK are not kept: {names}")),
    }
}

/// The options as variables of the sampler. `changes_code` says whether it may for async callers after an attach.
fn settings(
    args: &Args,
    changes_code: bool,
    output: Option<PathBuf>,
    stop: PathBuf,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut settings = vec![
        ("SAMPLER_STOP", stop.into_os_string()),
        ("SAMPLER_MODE", args.mode().into()),
        ("SAMPLER_HZ", args.rate.to_string().into()),
        ("SAMPLER_STACKS", async_probe::stacks(args.physical, changes_code).into()),
        ("SAMPLER_NAMES", args.names.word().into()),
        // Standard error is the application's.
        ("SAMPLER_REPORT", "none".into()),
    ];
    let is_mode = |word: &&String| ["cpu", "wall"].contains(&word.as_str());
    let mut events: Vec<_> = args.events.iter().filter(|word| !is_mode(word)).map(String::as_str).collect();
    if args.records("cpu") && args.records("wall") {
        events.push("wait");
    }
    if !events.is_empty() {
        settings.push(("SAMPLER_EVENTS", events.join(",").into()));
    }
    settings.extend(output.map(|output| ("SAMPLER_OUT", output.into_os_string())));
    settings.extend(args.rotation.settings());
    settings.extend(args.slow_calls.settings());
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
    let mut file = output.map(|output| output.file_of_visit(&process, &place));
    let stop = StopFile::new(place.folder());
    let changes_code = args.async_probe && async_probe::is_needed(&process);
    let file_for_process = file.as_ref().map(|file| place.pattern_for_process(file));
    let mut settings = settings(args, changes_code, file_for_process, place.path_for_process(&stop.path()))?;
    settings.extend(args.push.authorization());
    let pairs = push::pairs(&settings);
    match place.attach(&process, "sampler", &pairs) {
        Err(failure) if failure.error.is::<Occupied>() => {
            return event_pipe::record(args, &process, output, &signals, &failure.error);
        }
        attached => attached?,
    }
    if !args.quiet {
        eprintln!("corprof: recording process {pid} {}", until(args));
        if args.slow_calls.is_wanted() {
            eprintln!("corprof: {}", attached_profiler::stays("--trace"));
        }
        if changes_code {
            eprintln!("corprof: {}", attached_profiler::stays(async_probe::OPTION));
        }
    }
    let mut vigil = Vigil::new(pid, place.folder());
    let mut is_asked = false;
    let seconds = args.duration.map(|duration| duration + args.delay.unwrap_or_default());
    let mut overdue = Overdue::after(pid, seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()));
    while !stop.is_done(process.inner_pid()) && !place.has_ended() {
        let is_interrupted = signals.is_interrupted();
        let missed = overdue.check().err();
        if is_interrupted && !is_asked {
            stop.ask()?;
            overdue.asked();
            is_asked = true;
        } else if is_interrupted || missed.is_some() {
            // It sees that this command has gone.
            let kept = file.filter(|_| place.is_shared());
            let writes = kept.map(|file| format!(" writes {} by itself, and", file.display())).unwrap_or_default();
            let why = missed.map_or_else(|| "interrupted again".to_owned(), |error| error.to_string());
            return Err(anyhow!("{why}: the sampler in process {pid}{writes} leaves").into());
        }
        vigil.wait(overdue.pause());
    }
    let mut files: Vec<PathBuf> = file.iter().cloned().collect();
    if args.rotation.is_wanted() {
        // The place of a file in the folder where the sampler has been told to write.
        let named = |name: PathBuf| file.as_ref().map(|file| file.with_file_name(name));
        files = rotation::files(&stop.answer(process.inner_pid())).into_iter().filter_map(named).collect();
        file = files.last().cloned().or(file);
    }
    let answer = push::answer(&place.of_process(&stop.path(), ""));
    let is_there = file.as_ref().map_or(answer.is_some(), |file| file.is_file());
    if !is_there {
        let why = SamplerResult::read(&stop.answer(process.inner_pid())).and_then(|told| told.why_missing());
        let why =
            why.as_deref().unwrap_or("the process was ended before, or has no room for it: see its standard error");
        attached_profiler::tell("sampler", pid, &place.wait(&stop.path(), &signals));
        return Err(Failure::new(exit::NOT_LOADED, anyhow!("there is no profile of process {pid}: {why}")));
    }
    let mut document = Answer::default();
    if let (Some(file), Some(output)) = (file, output) {
        let mut path = output.path();
        if args.rotation.is_wanted() {
            for file in &files {
                path = output.folder.join(file.file_name().unwrap_or_default());
                if !place.is_shared() {
                    attached_profiler::folder::take(file, &path)?;
                }
            }
        } else if place.is_shared() {
            fs::rename(&file, &path)
                .with_context(|| format!("cannot rename {} to {}", file.display(), path.display()))?;
        } else {
            attached_profiler::folder::take(&file, &path)?;
        }
        let earlier = files.len().saturating_sub(1);
        document.files = tell(args, &[Written { path, pid: process.inner_pid(), command: None, earlier }], &stop);
    }
    let is_whole =
        SamplerResult::read(&stop.answer(process.inner_pid())).is_none_or(|told| told.why_missing().is_none());
    let pushed = args.push.tell(answer, args.quiet);
    match place.wait(&stop.path(), &signals) {
        // It was said before.
        Left::Stays(_) if args.slow_calls.is_wanted() || changes_code => {}
        left => attached_profiler::tell("sampler", pid, &left),
    }
    answer::print(args, &document)?;
    pushed?;
    Ok(if is_whole { exit::OK } else { exit::FAILED }.into())
}

/// How long a process is recorded, in words.
fn until(args: &Args) -> String {
    args.duration.map_or_else(|| "until Ctrl-C".to_owned(), |seconds| format!("for {seconds} s"))
}

/// The requested file. Processes write their files into the same folder, with their process ids in the names.
#[derive(Debug)]
struct Output {
    folder: PathBuf,
    stem: String,
    ending: String,
    /// Whether there are files one after the other, which keep the names that the sampler gives.
    is_rotating: bool,
}

impl Output {
    /// Checks in advance that the file can be written at the end.
    fn new(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).with_context(|| format!("`{}` is not a path", path.display()))?;
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let lower = name.to_ascii_lowercase();
        let ending = endings().find(|ending| lower.ends_with(ending) && !lower.contains(".trace.json"));
        let length = ending.with_context(|| {
            let endings = endings().collect::<Vec<_>>().join(", ");
            format!("{}: the ending of the name chooses the format; give one of {endings}", path.display())
        })?;
        let (stem, ending) = name.split_at(name.len() - length.len());
        let folder = path.parent().context("a file lies in a folder")?.to_owned();
        ensure!(folder.is_dir(), "there is no folder {}: make it, or give another file", folder.display());
        ensure!(!path.is_dir(), "{} is a folder: give the name of a file", path.display());
        has_room(&folder).with_context(|| format!("cannot write into {}", folder.display()))?;
        Ok(Self { folder, stem: stem.to_owned(), ending: ending.to_owned(), is_rotating: false })
    }

    /// Whether it keeps each sample with its time.
    fn is_recording(&self) -> bool {
        is_recording(Path::new(&self.ending))
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}{}", self.stem, self.ending))
    }

    /// The file that the sampler writes in a running process: beside the requested one, so that it is not lost with
    /// this command; in the folder of the visit if the process has other files or another user.
    fn file_of_visit(&self, process: &Process, place: &Place) -> PathBuf {
        if self.is_rotating {
            let name = format!("{}-{}{}", self.stem, process.inner_pid(), self.ending);
            if place.is_shared() { self.folder.join(name) } else { place.file(&name) }
        } else if place.is_shared() {
            self.folder.join(format!("{}-{}-{}{}", self.stem, process.inner_pid(), std::process::id(), self.ending))
        } else {
            place.file(&format!("profile{}", self.ending))
        }
    }

    /// The path for the sampler.
    fn pattern(&self) -> PathBuf {
        self.folder.join(format!("{}-%p{}", self.stem.replace('%', "%%"), self.ending))
    }

    /// The files of a process, the oldest first.
    fn files_of(&self, pid: u32, stop: &StopFile) -> Vec<PathBuf> {
        let files = if self.is_rotating {
            rotation::files(&stop.answer(pid)).into_iter().map(|name| self.folder.join(name)).collect()
        } else {
            vec![bundled::file_of(&self.pattern(), pid)]
        };
        files.into_iter().filter(|file| file.is_file()).collect()
    }

    /// What to say about the applications that have no file, though they have loaded the sampler.
    ///
    /// A tool of the SDK may be a server that runs on; its profile is not what the user wants.
    fn missing(
        &self,
        ended: &Ended,
        files_of: impl Fn(u32) -> Vec<PathBuf>,
        result_of: impl Fn(u32) -> Option<SamplerResult>,
    ) -> Vec<String> {
        let applications = ended.loaded.iter().copied().filter(|pid| !ended.is_of_sdk(*pid));
        let missing = applications.filter(|pid| files_of(*pid).is_empty());
        let line = |pid| {
            let why = result_of(pid)
                .and_then(|result| result.why_missing())
                .map(|why| format!(" ({why})"))
                .unwrap_or_default();
            match ended.command(pid) {
                Some(command) => format!("process {pid} loaded the sampler but wrote no file{why}: {command}"),
                None => format!("process {pid} loaded the sampler but wrote no file{why}"),
            }
        };
        missing.map(line).collect()
    }

    /// Renames the file of the application to the requested name, and those of others after what they run.
    ///
    /// Where there is an application, the files of the SDK's processes are removed. Where there is none, as with
    /// `dotnet build`, the first process of the SDK counts as the application.
    fn collect(&self, ended: &Ended, files_of: impl Fn(u32) -> Vec<PathBuf>) -> Result<Collected> {
        let mut collected = Collected::default();
        let has_application = ended.loaded.iter().any(|pid| !ended.is_of_sdk(*pid));
        for pid in ended.by_importance() {
            let files = files_of(pid);
            let Some(file) = files.last() else { continue };
            let name = ended.programs.get(&pid).map(|program| program.name.as_str());
            if has_application && ended.is_of_sdk(pid) {
                for file in &files {
                    fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
                }
                collected.of_sdk.extend(name.map(str::to_owned));
                continue;
            }
            let mut path = file.clone();
            if !self.is_rotating {
                path = if collected.files.is_empty() { self.path() } else { self.path_of(pid, name) };
                fs::rename(file, &path)
                    .with_context(|| format!("cannot rename {} to {}", file.display(), path.display()))?;
            }
            let command = ended.command(pid).map(str::to_owned);
            collected.files.push(Written { path, pid, command, earlier: files.len() - 1 });
        }
        Ok(collected)
    }

    /// The path for a process that is not the application, after what it runs.
    fn path_of(&self, pid: u32, name: Option<&str>) -> PathBuf {
        /// A file name may have 255 bytes.
        const LONGEST: usize = 80;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
        let plain = |letter: char| if is_plain(letter) { letter } else { '-' };
        let name: String = name.unwrap_or_default().chars().map(plain).take(LONGEST).collect();
        let name = if name.is_empty() { name } else { format!("-{name}") };
        self.folder.join(format!("{}{name}-{pid}{}", self.stem, self.ending))
    }
}

/// The files of a run.
#[derive(Default)]
struct Collected {
    /// The application's file first.
    files: Vec<Written>,
    /// What the processes of the SDK were whose files were removed.
    of_sdk: Vec<String>,
}

#[cfg(test)]
mod tests {
    use corprof_launch::processes::Program;

    use super::*;

    #[test]
    fn the_ending_of_the_output_is_checked_and_kept() {
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

    /// The processes are children of the one before.
    fn ended(pid: u32, loaded: &[(u32, &str)]) -> Ended {
        let program = |name: &str| Program {
            command: format!("{name} args"),
            name: name.to_owned(),
            is_of_sdk: ["dotnet run", "csc", "vstest.console"].contains(&name),
        };
        let next = loaded.iter().skip(1);
        Ended {
            status: std::process::ExitStatus::default(),
            pid,
            loaded: loaded.iter().map(|(pid, _)| *pid).collect(),
            programs: loaded.iter().map(|(pid, name)| (*pid, program(name))).collect(),
            parents: loaded.iter().zip(next).map(|((parent, _), (child, _))| (*child, *parent)).collect(),
            is_loaded: true,
            is_interrupted: false,
        }
    }

    #[test]
    fn the_application_gets_the_name_and_others_are_named_after_what_they_run() {
        let collected = |pid, loaded: &[(u32, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            let output = Output::new(&folder.path().join("a.svg")).unwrap();
            for (pid, _) in loaded {
                fs::write(bundled::file_of(&output.pattern(), *pid), "").unwrap();
            }
            let files_of = |pid| output.files_of(pid, &StopFile::new(folder.path()));
            let collected = output.collect(&ended(pid, loaded), files_of).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), collected.files.len());
            let name = |file: &Written| format!("{} of {}", file.path.file_name().unwrap().display(), file.pid);
            let files: Vec<_> = collected.files.iter().map(name).collect();
            (files.join(", "), not_kept(&collected.of_sdk).unwrap_or_default())
        };
        let nothing = || String::new();
        let children = [(5, "App"), (6, "Bench.Sort(N: 1)"), (7, "App")];
        let expected = "a.svg of 5, a-Bench.Sort-N--1--6.svg of 6, a-App-7.svg of 7".to_owned();
        assert_eq!(collected(5, &children), (expected, nothing()));
        let not_kept = "the files of 2 processes of the SDK are not kept: csc, dotnet run".to_owned();
        let run = [(5, "dotnet run"), (6, "csc"), (7, "App")];
        assert_eq!(collected(5, &run), ("a.svg of 7".to_owned(), not_kept));
        let build = [(5, "dotnet run"), (6, "csc")];
        assert_eq!(collected(5, &build), ("a.svg of 5, a-csc-6.svg of 6".to_owned(), nothing()));
        assert_eq!(collected(4, &[]), (nothing(), nothing()));
    }

    #[test]
    fn a_process_without_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::new(&folder.path().join("a.svg")).unwrap();
        let loaded = [(5, "dotnet run"), (6, "vstest.console"), (7, "testhost"), (8, "App")];
        fs::write(bundled::file_of(&output.pattern(), 8), "").unwrap();
        let result_of = |pid| (pid == 7).then(|| SamplerResult::Empty("idle".to_owned()));
        let files_of = |pid| output.files_of(pid, &StopFile::new(folder.path()));
        let missing = output.missing(&ended(5, &loaded), files_of, result_of);
        assert_eq!(missing, ["process 7 loaded the sampler but wrote no file (no samples: idle): testhost args"]);
    }
}
