//! What profilers share that gather until somebody asks, and then answer once: who asks, where the answer goes, and how
//! the profiler leaves.
//!
//! A stop file asks, such as LOCKS_STOP=/tmp/it/stop: when it exists, the profiler ends and answers. So it does at the
//! end of the application, on request of `corprof detach PID`, and when the command that has attached it was killed
//! (`lease`) or its folder is gone.
//!
//! The answer of a profiler that has a stop file goes into the file /tmp/it/stop.4711.answer, with the process id: what
//! an application has as its standard error may be read by nobody. Without one it is printed there. An application that
//! dies answers nothing: until then a profiler may keep a draft of its answer in /tmp/it/stop.4711.draft. Then the
//! profiler makes the file /tmp/it/stop.4711, and after the detach /tmp/it/stop.4711.left, which contains the reason if
//! it could not detach: one with hooks stays in the process, and rests.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use corprof::detach::{DetachState, Detacher};
use corprof::prelude::*;
use corprof_export::{Output, Profile};
use corprof_profilers::settings::Settings;
use serde::{Serialize, Serializer};

use crate::async_callers::{AsyncWork, Joins};
use crate::lease::Lease;
use crate::report_files::{of_process, write};

/// The interval at which it checks whether somebody asks.
const LOOK: Duration = Duration::from_millis(100);
/// The interval between drafts of most answers.
pub(crate) const DRAFTS: Duration = Duration::from_secs(1);
/// How many times longer than writing a draft takes nothing is written after it.
const DRAFT_PAUSE: u32 = 20;
/// The interval at which it wakes if nobody can ask.
const LONG: Duration = Duration::from_secs(3600);

/// Adds a line to an [`Answer`].
macro_rules! say {
    ($answer:expr, $($text:tt)*) => {
        $answer.line(format_args!($($text)*))
    };
}

/// The text of an answer.
pub(crate) struct Answer {
    text: String,
    /// What each line begins with: standard error is the application's, and a reader must know whose line it is.
    prefix: String,
}

impl Answer {
    /// Adds a line of the profiler.
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        self.text += &self.prefix;
        self.plain(text);
    }

    /// Adds a line without the profiler's name.
    pub(crate) fn plain(&mut self, text: fmt::Arguments<'_>) {
        self.text += &text.to_string();
        self.text += "\n";
    }
}

/// What every document of an answer begins with.
#[derive(Serialize)]
pub(crate) struct Head {
    /// The question's name.
    question: String,
    pid: u32,
    /// For how long the profiler has gathered.
    pub(crate) seconds: f64,
    /// What the answer lacks, and what else a user should know.
    notes: Vec<String>,
}

/// In the file that is there when the profiler has answered, if it could not; the command knows it, too.
const NO_ANSWER: &str = "none";

/// The data of an answer: the document of --json, from which the text is made.
pub(crate) trait Report: Serialize {
    /// Adds the text.
    fn text(&self, head: &Head, answer: &mut Answer);

    /// Whether it answers the question.
    fn is_answer(&self) -> bool {
        true
    }
}

/// Writes a time in milliseconds, for fields that end in `_ms`.
pub(crate) fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

/// A whole document.
#[derive(Serialize)]
struct Document<'r, R> {
    #[serde(flatten)]
    head: &'r Head,
    #[serde(flatten)]
    report: &'r R,
}

/// Why a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The time is over.
    TimedOut,
    /// The profiler is to answer.
    Asked,
    /// Nobody wants the answer any more: the command was killed.
    Abandoned,
    /// The application ends, or the profiler has begun to detach.
    Ends,
}

/// Who asks a profiler, and how it leaves. A clone asks the same.
#[derive(Clone)]
pub(crate) struct Asker {
    name: &'static str,
    /// The question's name: that of the profiler, or of the one in whose place it is attached.
    question: String,
    detacher: Detacher,
    stop: Option<PathBuf>,
    lease: Option<Arc<Lease>>,
    is_attached: bool,
    start: Instant,
    /// When it was asked, if what it has gathered by then is not whole yet.
    asked: Arc<OnceLock<Instant>>,
    /// Whether the answer is a document.
    is_json: bool,
}

impl Asker {
    /// For a profiler that starts with the application. Call it first in `initialize`.
    pub(crate) fn of_start(cx: &mut InInitialize<'_>, settings: &Settings) -> Result<Self> {
        Ok(Self {
            name: settings.profiler().name,
            question: settings.profiler().prefix.to_ascii_lowercase(),
            detacher: cx.detacher()?,
            stop: settings.stop(),
            lease: None,
            is_attached: false,
            start: Instant::now(),
            asked: Arc::default(),
            is_json: settings.is_json(),
        })
    }

    /// For a profiler that is attached. From here on it leaves on request of `corprof detach`.
    pub(crate) fn of_attach(cx: &mut InAttach<'_>, settings: &Settings) -> Result<Self, BoxError> {
        let stop = settings.stop();
        let detacher = cx.detacher()?;
        let is_listening = detacher.listen(cx);
        if stop.is_none() {
            is_listening?; // nothing else would end it
        }
        let lease = stop.as_deref().and_then(Lease::of).map(Arc::new);
        Ok(Self {
            name: settings.profiler().name,
            question: settings.profiler().prefix.to_ascii_lowercase(),
            detacher,
            stop,
            lease,
            is_attached: true,
            start: Instant::now(),
            asked: Arc::default(),
            is_json: settings.is_json(),
        })
    }

    /// Whether the profiler was attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// For how many seconds the profiler has gathered.
    pub(crate) fn seconds(&self) -> f64 {
        let end = self.asked.get().copied().unwrap_or_else(Instant::now);
        end.saturating_duration_since(self.start).as_secs_f64()
    }

    /// Whether the profiler is to gather no more, though it has not answered yet.
    pub(crate) fn is_over(&self) -> bool {
        self.asked.get().is_some()
    }

    /// Whether the answer goes to a command, and nothing may be printed.
    pub(crate) fn is_command(&self) -> bool {
        self.is_attached && self.stop.is_some()
    }

    /// A file for the command, which belongs to the answer: what is too long for the memory.
    pub(crate) fn file(&self, ending: &str) -> Option<PathBuf> {
        self.stop.as_deref().filter(|_| self.is_attached || self.is_json).map(|stop| of_process(stop, ending))
    }

    /// Waits until the profiler is to answer, or for `limit`.
    pub(crate) fn wait(&self, cx: &mut ProfilerThread<'_>, limit: Duration) -> Wake {
        let start = Instant::now();
        loop {
            if self.is_abandoned() {
                return Wake::Abandoned;
            }
            if self.stop.as_ref().is_some_and(|stop| stop.exists()) {
                return Wake::Asked;
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Wake::TimedOut;
            }
            // Without a stop file there is nothing to look at.
            let pause = if self.stop.is_some() { LOOK } else { LONG };
            if cx.wait(pause.min(left)).is_break() {
                return Wake::Ends;
            }
        }
    }

    /// Whether the command that has attached the profiler was killed, or its folder is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        let folder = self.stop.as_deref().filter(|_| self.is_attached).and_then(Path::parent);
        let is_gone = folder.is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
        is_gone || self.lease.as_ref().is_some_and(|lease| lease.is_over())
    }

    /// Ends the profiler, whose `shutdown` answers.
    fn end(&self) {
        // If a detach has begun, that one answers.
        let _ = self.detacher.retire();
        self.report_end();
    }

    /// Reports the end of the detach.
    fn report_end(&self) {
        if self.is_attached {
            leave(self.name, &self.detacher, self.stop.clone(), self.lease.clone());
        }
    }

    /// Writes a profile. The notes say where `what` is, or why it is not there; a command that has asked knows the
    /// first.
    pub(crate) fn write(&self, what: &str, output: &mut Output, profile: &Profile) -> Vec<String> {
        match output.write(profile) {
            Ok(written) => {
                let kept = written.kept.map(|earlier| format!("the earlier file is kept as {}", earlier.display()));
                self.where_is(what, output.path()).into_iter().chain(kept).collect()
            }
            Err(error) => vec![format!("{}: {error}", output.path().display())],
        }
    }

    /// Says where `what` is. A command that has asked knows that.
    pub(crate) fn where_is(&self, what: &str, file: &Path) -> Option<String> {
        (!self.is_command()).then(|| format!("{what} in {}", file.display()))
    }

    /// Whether the answer is a document.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Answers. In text, the notes come first, and those about files last. Call it in `shutdown`.
    pub(crate) fn report(&self, notes: &[String], report: &impl Report, files: &[String]) {
        let head = self.head([notes, files].concat());
        let mark = if report.is_answer() { "" } else { NO_ANSWER };
        if !self.is_json {
            self.answer_marked(mark, |answer| {
                notes.iter().for_each(|note| say!(answer, "{note}"));
                report.text(&head, answer);
                files.iter().for_each(|file| say!(answer, "{file}"));
            });
            return;
        }
        let document = document(&head, report);
        match &self.stop {
            Some(stop) => {
                write(self.name, &of_process(stop, ".answer"), &document);
                write(self.name, &of_process(stop, ""), mark);
            }
            None => report!("{}", document.trim_end()),
        }
    }

    fn head(&self, notes: Vec<String>) -> Head {
        Head { question: self.question.clone(), pid: std::process::id(), seconds: self.seconds(), notes }
    }

    /// Writes what is known so far, for a command: the application may die, and then nobody answers.
    fn draft(&self, report: &impl Report) {
        let Some(stop) = &self.stop else { return };
        let head = self.head(Vec::new());
        let text = if self.is_json {
            document(&head, report)
        } else {
            let mut answer = self.empty_answer();
            report.text(&head, &mut answer);
            answer.text
        };
        write(self.name, &of_process(stop, ".draft"), &text);
    }

    /// Says by the time of the draft that nothing has changed since it was written: the command tells how old it is.
    fn confirm_draft(&self) {
        let Some(stop) = &self.stop else { return };
        if let Ok(draft) = File::options().write(true).open(of_process(stop, ".draft")) {
            let _ = draft.set_modified(SystemTime::now()); // it then looks older than it is
        }
    }

    fn empty_answer(&self) -> Answer {
        let prefix = if self.is_command() { String::new() } else { format!("{}: ", self.name) };
        Answer { text: String::new(), prefix }
    }

    /// Answers in text.
    pub(crate) fn answer(&self, say: impl FnOnce(&mut Answer)) {
        self.answer_marked("", say);
    }

    fn answer_marked(&self, mark: &str, say: impl FnOnce(&mut Answer)) {
        let mut answer = self.empty_answer();
        say(&mut answer);
        let is_wanted = !answer.text.is_empty() && !crate::sdk::is_tool();
        match self.stop.as_deref() {
            Some(stop) if is_wanted || self.is_attached => {
                write(self.name, &of_process(stop, ".answer"), &answer.text);
            }
            None if is_wanted => eprintln!("{}", answer.text.trim_end_matches('\n')),
            _ => {}
        }
        if let Some(stop) = &self.stop {
            write(self.name, &of_process(stop, ""), mark);
        }
    }
}

fn document(head: &Head, report: &impl Report) -> String {
    let document = serde_json::to_string(&Document { head, report });
    document.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")) + "\n"
}

/// Has what is known so far written again and again, in this interval or less often, if a command can read it. `so_far`
/// returns none if that has not changed.
pub(crate) fn keep_drafts<R: Report>(
    cx: &InCallback<'_>,
    asker: &Asker,
    interval: Duration,
    mut so_far: impl FnMut(&mut ProfilerThread<'_>) -> Option<R> + Send + 'static,
) -> std::io::Result<()> {
    if asker.stop.is_none() || crate::sdk::is_tool() {
        return Ok(());
    }
    let asker = asker.clone();
    cx.spawn_profiler_thread("draft", move |cx| {
        let mut pause = interval;
        let mut written = Instant::now();
        while cx.wait(pause).is_continue() && !asker.is_over() {
            let begin = Instant::now();
            if let Some(report) = so_far(cx) {
                asker.draft(&report);
                written = begin;
            } else if written.elapsed() >= LOOK {
                asker.confirm_draft();
                written = begin;
            }
            pause = interval.max(begin.elapsed() * DRAFT_PAUSE);
        }
    })
}

/// Starts the thread on which a profiler gathers, or waits to be asked. When `gather` returns, the profiler answers.
pub(crate) fn start(
    cx: &InCallback<'_>,
    asker: &Asker,
    gather: impl FnOnce(&mut ProfilerThread<'_>, &Asker) -> Wake + Send + 'static,
) -> std::io::Result<()> {
    let asker = asker.clone();
    cx.spawn_profiler_thread("asked", move |cx| match gather(cx, &asker) {
        Wake::Ends if asker.detacher.state() == DetachState::Detaching => asker.report_end(),
        Wake::Ends => {} // the application ends
        Wake::TimedOut | Wake::Asked | Wake::Abandoned => asker.end(),
    })
}

/// Has a profiler answer when it is asked. At the end of the application `shutdown` does.
pub(crate) fn answer_when_asked(cx: &InCallback<'_>, asker: &Asker) -> std::io::Result<()> {
    if asker.stop.is_none() && !asker.is_attached {
        return Ok(());
    }
    start(cx, asker, |cx, asker| asker.wait(cx, Duration::MAX))
}

/// The same, and until then has stacks joined with their async callers. Once it is asked, stacks wait for what threads
/// have not told, while nothing more is gathered ([`Asker::is_over`]).
pub(crate) fn answer_with_callers<S: Joins>(
    cx: &InCallback<'_>,
    asker: &Asker,
    mut work: AsyncWork<S>,
) -> std::io::Result<()> {
    if !work.is_wanted() {
        return answer_when_asked(cx, asker);
    }
    start(cx, asker, |cx, asker| {
        loop {
            let pause = work.step(cx);
            match asker.wait(cx, pause) {
                Wake::TimedOut => {}
                // `shutdown` settles what waits.
                Wake::Ends if asker.detacher.state() != DetachState::Detaching => return Wake::Ends,
                wake => {
                    let _ = asker.asked.set(Instant::now()); // it is asked once
                    work.end(cx);
                    return wake;
                }
            }
        }
    })
}

/// Detaches, and reports the end of the detach beside `out`: then another profiler can attach. Nobody reads that after
/// the end of a lease.
pub(crate) fn leave(name: &'static str, detacher: &Detacher, out: Option<PathBuf>, lease: Option<Arc<Lease>>) {
    let report = move |result: corprof::Result<()>| {
        let over = lease.filter(|lease| lease.is_over());
        match (out, over, result) {
            (Some(_), Some(lease), _) => lease.clear(),
            (Some(out), None, result) => {
                let why = result.err().map(|error| error.to_string()).unwrap_or_default();
                write(name, &of_process(&out, ".left"), &why);
            }
            (None, _, Err(why)) => report!("{name}: cannot detach: {why}"),
            (None, _, Ok(())) => {}
        }
    };
    if let Err(error) = detacher.detach_then(report) {
        report!("{name}: cannot detach: {error}");
    }
}
