//! `corprof locks`, `starvation`, `pauses`, `exceptions`, `allocations`, `leaks`, `timer` and `tracer`: questions that
//! a built-in profiler of the same name answers, in a running process or from the start of an application.
//!
//! The profiler gathers until it is asked by a stop file (`profilers/library/question.rs`). In a running process it
//! writes its answer into the folder of the attached profiler, and this command prints it.

mod answers;
mod leaks;
mod options;
mod text;
mod threads;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use corprof_diagnostics::Process;
use corprof_launch::bundled;
use corprof_launch::folder::Folder;
use corprof_launch::launch::{self, Ended, Launch};
use corprof_launch::stop_file::StopFile;
use corprof_launch::vigil::Vigil;
use corprof_profilers::settings;
use corprof_profilers::table::{ALLOCATIONS, LEAKS, LOCKS, Profiler};

use crate::async_probe;
use crate::attached_profiler::overdue::Overdue;
use crate::attached_profiler::{self, Left, Place};
use crate::exit::{self, Failure, Outcome};
use crate::file_hint;
use crate::options::given;
use crate::output;
use crate::profiler_choice;
use crate::signals::Signals;
use answers::Answers;

/// The interval at which it looks for answers while the application runs.
const LOOK: Duration = Duration::from_millis(100);
/// The setting with the threads of a process.
const LOCKS_THREADS: &str = "LOCKS_THREADS";
/// In the file of a profiler that has ended, if it could not answer: also in profilers/library/question.rs.
const NO_ANSWER: &str = "none";

/// Variables of a profiler with their values. Of several of one variable the last counts.
type ProfilerSettings = Vec<(&'static str, OsString)>;

/// A question, and whom it is asked of.
#[derive(Debug)]
pub struct Question {
    profiler: &'static Profiler,
    /// The running process; none if an application is started.
    pid: Option<u32>,
    duration: Option<Duration>,
    output: Option<PathBuf>,
    /// The given settings of the profiler.
    settings: ProfilerSettings,
    env: Vec<String>,
    is_quiet: bool,
    command: Vec<OsString>,
}

/// Whether a question is asked of this profiler.
pub(crate) fn is_of(profiler: &Profiler) -> bool {
    text::named(profiler.name).is_some()
}

/// Asks the question.
///
/// # Errors
/// If the process is not there, the runtime refuses, or the application is not started.
pub fn run(question: &Question) -> Outcome {
    match question.pid {
        Some(pid) if question.profiler.name == LEAKS.name => leaks::ask(question, pid),
        Some(pid) => question.ask_process(pid),
        None => question.ask_from_start(),
    }
}

impl Question {
    /// Runs the application under the profiler, which prints its answer on standard error.
    fn ask_from_start(&self) -> Outcome {
        let name = Path::new(self.profiler.name);
        let mut changes = given(&self.env)?;
        for (variable, value) in &self.settings {
            changes.insert((*variable).to_owned(), Some(value.clone()));
        }
        if let (Some(output), Some(setting)) = (&self.output, self.profiler.output()) {
            changes.insert(setting.variable.to_owned(), Some(output.clone().into_os_string()));
        }
        if self.output.is_some() && self.profiler.name == ALLOCATIONS.name {
            // Objects that are counted by class have no stacks to write.
            changes.entry("ALLOCATIONS_BY".to_owned()).or_insert(Some("stack".into()));
        }
        let wrong = |error| Failure::new(exit::USAGE, anyhow!("the application was not started: {error}"));
        bundled::check(self.profiler, &changes).map_err(wrong)?;
        file_hint::print(self.profiler, &changes, self.is_quiet);
        let main = profiler_choice::choose_to_start(name, None)?;
        let launch =
            Launch { profilers: vec![main], changes, command: &self.command, stop: None, is_quiet: self.is_quiet };
        run_until_asked(launch, self.profiler, self.duration, false)
    }

    /// Attaches the profiler to a running process, has it answer, and prints the answer.
    fn ask_process(&self, pid: u32) -> Outcome {
        let name = self.profiler.name;
        let given = self.settings_in_env()?;
        let process = Process::open(pid)?;
        let signals = Signals::catch().context("cannot catch signals")?;
        let place = Place::new(&process)?;
        let stop = StopFile::new(place.folder());
        let page = self.output.as_deref().map(|output| page_of_stop(&stop.path(), output));
        let (settings, changes_code) = self.settings_for(&process, given);
        self.attach(&process, &place, &stop, page.as_deref(), settings)?;
        if self.output.is_none() {
            file_hint::print(self.profiler, &crate::options::given(&self.env)?, self.is_quiet);
        }
        if !self.is_quiet {
            eprintln!("corprof: `{name}` watches process {pid} {}", self.until());
            if let Some(what) = &changes_code {
                eprintln!("corprof: {}", attached_profiler::stays(what));
            }
        }
        let is_answered = self.wait(&process, &place, &stop, &signals)?;
        if !is_answered {
            let why = "the process has ended, or was killed, before the profiler had answered";
            let draft = place.of_process(&stop.path(), answers::DRAFT);
            if !draft.is_file() {
                return Err(Failure::new(exit::NOT_LOADED, anyhow!("there is no answer of process {pid}: {why}")));
            }
            eprintln!("corprof: {why}; what that knew {}:", answers::age(&draft));
            answers::print(&draft, &mut output::stdout())?;
            return Ok(exit::OK.into());
        }
        for ending in answers::ENDINGS {
            answers::print(&place.of_process(&stop.path(), ending), &mut output::stdout())?;
        }
        let taken = match (&page, &self.output) {
            (Some(page), Some(output)) => take(page, output, self.is_quiet),
            _ => Ok(()),
        };
        match place.wait(&stop.path(), &signals) {
            // It was said before.
            Left::Stays(_) if changes_code.is_some() => {}
            left => attached_profiler::tell(name, pid, &left),
        }
        taken?;
        // It says why in its answer.
        let mark = attached_profiler::folder::read(&place.of_process(&stop.path(), "")).unwrap_or_default();
        Ok(if mark == NO_ANSWER { exit::NOT_LOADED } else { exit::OK }.into())
    }

    /// The settings of the profiler that --env gives. A running process gets no other variables.
    fn settings_in_env(&self) -> Result<ProfilerSettings, Failure> {
        let profiler = self.profiler.to_attach();
        let mut found = Vec::new();
        for (name, value) in given(&self.env)? {
            let value = value.unwrap_or_default();
            let wrong = |text: String| Failure::new(exit::USAGE, anyhow!(text));
            settings::check(profiler, &name, &value).map_err(|error| wrong(error.to_string()))?;
            let Some(setting) = profiler.setting(&name) else {
                return Err(wrong(format!(
                    "{name}={}: a running process keeps its environment, so that with a PID --env gives settings of {} only: \
                     `corprof run --list {}` has them",
                    value.display(),
                    self.profiler.name,
                    self.profiler.name
                )));
            };
            found.push((setting.variable, value));
        }
        Ok(found)
    }

    /// The settings for this process, and what has the profiler change code there, if it does.
    fn settings_for(&self, process: &Process, given: ProfilerSettings) -> (ProfilerSettings, Option<String>) {
        let mut settings = given;
        settings.extend(self.settings.iter().cloned());
        if text::changes_code(self.profiler) {
            return (settings, Some(format!("`{}`", self.profiler.name)));
        }
        let stacks = self.profiler.stacks().map(|setting| setting.variable);
        let is_of_stacks = |(variable, _): &&(&str, OsString)| Some(*variable) == stacks;
        let has_probe = settings.iter().rfind(is_of_stacks).is_some_and(|(_, word)| word == async_probe::WORD);
        if has_probe && !async_probe::is_needed(process) {
            settings.retain(|setting| !is_of_stacks(&setting));
            return (settings, None);
        }
        (settings, has_probe.then(|| async_probe::OPTION.to_owned()))
    }

    fn attach(
        &self,
        process: &Process,
        place: &Place,
        stop: &StopFile,
        page: Option<&Path>,
        mut settings: ProfilerSettings,
    ) -> Result<(), Failure> {
        let profiler = self.profiler.to_attach();
        let stop_setting = profiler.stop().context("the profiler has no stop file")?;
        settings.push((stop_setting.variable, place.path_for_process(&stop.path()).into_os_string()));
        if let (Some(page), Some(setting)) = (page, profiler.output()) {
            settings.push((setting.variable, place.pattern_for_process(page).into_os_string()));
        }
        if self.profiler.name == LOCKS.name
            && let Ok(list) = threads::list(&process.client())
        {
            settings.push((LOCKS_THREADS, list.into()));
        }
        let pairs: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
        place.attach(process, profiler.name, &pairs)
    }

    /// Asks the profiler at Ctrl-C or when the time is over, and waits until it has answered. Whether it has.
    fn wait(&self, process: &Process, place: &Place, stop: &StopFile, signals: &Signals) -> Result<bool, Failure> {
        let name = self.profiler.name;
        let pid = process.pid();
        let mut deadline = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        let mut overdue = Overdue::after(pid, None);
        let mut vigil = Vigil::new(pid, place.folder());
        let mut is_asked = false;
        loop {
            // Asked before the file: a process may create the file and end right afterwards.
            let has_ended = place.has_ended();
            if stop.is_done(process.inner_pid()) {
                return Ok(true);
            }
            if has_ended {
                return Ok(false);
            }
            let is_interrupted = signals.is_interrupted();
            if is_interrupted && is_asked {
                return Err(anyhow!("interrupted again: the profiler `{name}` leaves process {pid} by itself").into());
            }
            if is_interrupted || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                stop.ask()?;
                overdue.asked();
                is_asked = true;
                deadline = None;
            }
            overdue
                .check()
                .with_context(|| format!("there is no answer of the profiler `{name}`, which leaves by itself"))?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            vigil.wait(left.or(overdue.pause()));
        }
    }

    /// How long a process is watched, in words.
    fn until(&self) -> String {
        match self.duration {
            Some(duration) => format!("for {} s", duration.as_secs_f64()),
            None if self.profiler.name == "leaks" => "until it has two snapshots, or until Ctrl-C".to_owned(),
            None => "until Ctrl-C".to_owned(),
        }
    }
}

/// Runs an application under a built-in profiler. At Ctrl-C, and after `duration`, the profiler answers first. With
/// `must_load` the exit code tells if it was not loaded.
///
/// The answers come as files: the standard error of an application may lead elsewhere, as that of a test host does.
///
/// # Errors
/// If the application is not started, or has given no answer at Ctrl-C.
pub(crate) fn run_until_asked(
    launch: Launch<'_>,
    profiler: &'static Profiler,
    duration: Option<Duration>,
    must_load: bool,
) -> Outcome {
    let temporary = Folder::new().context("cannot make a folder")?;
    let stop = StopFile::new(temporary.path());
    let setting = profiler.stop().context("the profiler has no stop file")?;
    let is_quiet = launch.is_quiet;
    let mut launch = Launch { stop: Some(&stop), ..launch };
    launch.changes.insert(setting.variable.to_owned(), Some(stop.path().into_os_string()));
    let format = profiler.format().and_then(|setting| launch::value_of(&launch.changes, setting.variable));
    let mut answers = Answers::new(&stop, format.is_some_and(|format| format == "json"));
    let ended = thread::scope(|scope| {
        let (running, is_running) = mpsc::channel::<()>();
        if let Some(duration) = duration {
            let answers = &mut answers;
            let stop = &stop;
            scope.spawn(move || {
                if let Err(error) = ask_after(duration, &is_running, stop, answers) {
                    eprintln!("corprof: {error:#}");
                }
            });
        }
        let ended = bundled::run(launch, Some(profiler));
        drop(running);
        ended
    })?;
    if is_of(profiler) {
        let survivors = stop.ask_survivors(&ended.loaded)?;
        for pid in survivors.into_iter().filter(|_| !is_quiet) {
            eprintln!("corprof: process {pid} runs on, and has answered");
        }
    }
    let command = |pid| ended.command(pid).map(str::to_owned);
    answers.print(command)?;
    let has_drafts = is_of(profiler) && answers.print_drafts(&ended.loaded, command)?;
    if must_load && !ended.is_loaded {
        return Ok(exit::NOT_LOADED.into());
    }
    code(&ended, &stop, has_drafts)
}

/// Asks after this time, and prints answers when they come. The channel is closed at the end of the application.
fn ask_after(
    duration: Duration,
    is_running: &mpsc::Receiver<()>,
    stop: &StopFile,
    answers: &mut Answers<'_>,
) -> Result<()> {
    if is_running.recv_timeout(duration) == Err(RecvTimeoutError::Disconnected) {
        return Ok(());
    }
    stop.ask()?;
    while is_running.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        answers.print_early()?;
    }
    Ok(())
}

/// The exit code of an application: success, if the user ended it by Ctrl-C and has the answer.
fn code(ended: &Ended, stop: &StopFile, has_drafts: bool) -> Outcome {
    if !ended.is_interrupted || ended.loaded.is_empty() {
        return Ok(exit::of_application(ended.status));
    }
    if has_drafts || ended.loaded.iter().any(|pid| stop.is_done(*pid)) {
        return Ok(exit::OK.into());
    }
    let why = "the application was ended before the profiler had answered";
    Err(Failure::new(exit::NOT_LOADED, anyhow!("there is no answer: {why}")))
}

/// The file that the profiler writes in a running process. Its name begins as the other files there do, so that the
/// profiler can remove it if this command is killed; and it ends as the requested one, which chooses the format.
fn page_of_stop(stop: &Path, output: &Path) -> PathBuf {
    let mut name = stop.file_name().unwrap_or_default().to_owned();
    name.push("-");
    name.push(output.file_name().unwrap_or_default());
    stop.with_file_name(name)
}

/// Copies the profiler's file to the requested one.
fn take(page: &Path, output: &Path, is_quiet: bool) -> Result<()> {
    if !page.is_file() {
        return Err(anyhow!("{} is not written: the profiler has nothing for it", output.display()));
    }
    if page.metadata().is_ok_and(|metadata| metadata.len() == 0) {
        return Err(anyhow!(
            "{} is not written: nothing was seen that would be in it; a longer --duration may see more",
            output.display()
        ));
    }
    attached_profiler::folder::take(page, output)?;
    if !is_quiet {
        eprintln!("corprof: {} is written", output.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_visit_has_the_requested_format() {
        let page = page_of_stop(Path::new("/tmp/it/.corprof-7.stop"), Path::new("/home/me/locks.pb.gz"));
        assert_eq!(page, Path::new("/tmp/it/.corprof-7.stop-locks.pb.gz"));
    }
}
