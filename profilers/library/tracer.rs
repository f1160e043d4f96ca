//! Records every call of an application with its times, thread by thread: for <https://ui.perfetto.dev>, or as a tree
//! of all calls (the number of the thread, the depth as dots, at most 100, the name), on standard error, or for a
//! command that has attached it in a file that ends in `.calls`.
//!
//! An async method that has to wait is off the stack meanwhile; where it goes on, its name says `(goes on)`.
//!
//! No call is lost: if calls come faster than the tracer can write them, the application waits. The tracer answers with
//! the total wait when it is asked (`question`).

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write, sink, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corprof::calls::{CallBegin, CallEnd, CallLog, CallReader, CallThread, CallWriter};
use corprof::hooks::{HookedFunctions, StackBoundary};
use corprof::prelude::*;
use corprof_export::{Short, Trace, application_name};
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::TRACER;
use globset::{Glob, GlobMatcher};
use serde::Serialize;

use crate::hooked_by::{HookedBy, hooked_by, install, is_part, lines, name_of};
use crate::question::{Answer, Asker, Head, Report, answer_when_asked, milliseconds};

/// The time between two reads of the threads' buffers.
const INTERVAL: Duration = Duration::from_millis(5);

/// The size of a thread's buffer, in begins and ends of calls.
const BUFFER: usize = 1 << 13;

/// The highest number of threads with a buffer at the same time.
const THREADS: usize = 4096;

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A06", no_export)]
pub struct Tracer {
    hooks: Arc<Hooks>,
    hooked: HookedFunctions,
    asker: Asker,
}

struct Options {
    filter: GlobMatcher,
    output: Option<PathBuf>,
    /// Shorter calls are folded into their callers.
    shortest: Duration,
    hooked_by: HookedBy,
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, SettingError> {
        let output = settings.of("TRACER_OUT").output()?;
        let shortest = settings.of("TRACER_MIN");
        let shortest = if output.is_none() && !shortest.is_given() { 0 } else { shortest.number()? };
        Ok(Self {
            filter: settings.of("TRACER_FILTER").parsed(Glob::new)?.compile_matcher(),
            output,
            shortest: Duration::from_micros(shortest),
            hooked_by: hooked_by(&settings.of("TRACER_BY"))?,
        })
    }
}

struct Hooks {
    filter: GlobMatcher,
    log: CallLog<Call>,
    /// Whether inserted code calls the hooks.
    is_inserted: bool,
    /// Whether calls are parts of calls of async methods.
    has_parts: AtomicBool,
}

/// A call, or the rest of one that was suspended.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    goes_on: bool,
}

impl Call {
    /// Its name in the trace.
    fn shown(self) -> Cow<'static, str> {
        if self.goes_on { format!("{} (goes on)", self.name).into() } else { self.name.into() }
    }
}

impl FunctionHooks for Hooks {
    /// The function's name.
    type Function = &'static str;
    type Thread = CallWriter<Call>;
    const UNWINDS: bool = true;
    const SUSPENDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<&'static str> {
        let name = name_of(cx, function, self.is_inserted).to_string();
        if !self.filter.is_match(&name) {
            return Hook::No;
        }
        if is_part(&name, self.is_inserted) {
            self.has_parts.store(true, Ordering::Relaxed);
        }
        // Leaked, because the hook stays until the process ends.
        let name: &'static str = name.leak();
        // All functions are traced as they run without a profiler; chosen ones in each call.
        if self.filter.glob().glob() == "*" { Hook::Inlinable(name) } else { Hook::Exact(name) }
    }

    fn thread_started(&self) -> CallWriter<Call> {
        self.log.writer()
    }

    fn enter(&self, cx: &InHook<'_>, calls: &mut CallWriter<Call>, name: &&'static str) {
        calls.enter(cx, Call { name, goes_on: false });
    }

    fn leave(&self, cx: &InHook<'_>, calls: &mut CallWriter<Call>, _name: &&'static str) {
        calls.leave(cx);
    }

    fn unwound(&self, calls: &mut CallWriter<Call>, boundary: StackBoundary) {
        calls.unwound(boundary);
    }

    fn suspended(&self, cx: &InHook<'_>, calls: &mut CallWriter<Call>, _name: &&'static str) {
        calls.suspended(cx);
    }

    fn resumed(&self, cx: &InHook<'_>, calls: &mut CallWriter<Call>, name: &&'static str) {
        calls.enter(cx, Call { name, goes_on: true });
    }
}

/// Writes the calls into a trace file.
struct ToFile {
    trace: Trace,
}

impl CallReader<Call> for ToFile {
    fn thread(&mut self, thread: &CallThread) -> Result<(), BoxError> {
        Ok(self.trace.thread(thread.number, thread.os_id, thread.name.as_deref())?)
    }

    fn begin(&mut self, call: CallBegin<Call>) -> Result<(), BoxError> {
        Ok(self.trace.begin(call.thread, call.at, &call.function.shown())?)
    }

    fn end(&mut self, end: CallEnd) -> Result<(), BoxError> {
        Ok(self.trace.end(end.thread, end.at, short(end))?)
    }

    fn alone(&mut self, end: CallEnd) -> Result<(), BoxError> {
        Ok(self.trace.short(end.thread, end.at, short(end))?)
    }

    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(self.trace.flush()?)
    }
}

fn short(CallEnd { folded, .. }: CallEnd) -> Short {
    Short { calls: folded.calls, time: folded.time }
}

/// Prints the calls as a tree.
struct ToTree {
    out: BufWriter<Box<dyn Write + Send>>,
    /// Whether each call is a document.
    is_json: bool,
}

/// A call of the tree.
#[derive(Serialize)]
struct CallLine<'c> {
    thread: u32,
    depth: usize,
    method: &'c str,
}

/// The answer.
#[derive(Serialize)]
struct TracerReport {
    /// Beginnings and ends of calls that were lost.
    lost: Option<u64>,
    /// How long threads waited for the tracer.
    #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
    waited: Duration,
    /// Why calls are missing.
    error: Option<String>,
}

impl Report for TracerReport {
    fn text(&self, _head: &Head, answer: &mut Answer) {
        let waited = self.waited;
        if let Some(lost) = self.lost {
            say!(answer, "{lost} beginnings and ends were lost; threads waited {waited:.1?}");
        }
        if let Some(error) = &self.error {
            say!(answer, "calls are missing: {error}");
        }
    }
}

impl CallReader<Call> for ToTree {
    fn begin(&mut self, call: CallBegin<Call>) -> Result<(), BoxError> {
        let CallBegin { thread, function, .. } = call;
        if self.is_json {
            let line = CallLine { thread, depth: call.depth, method: &function.shown() };
            serde_json::to_writer(&mut self.out, &line)?;
            return Ok(writeln!(self.out)?);
        }
        let dots = ".".repeat(call.depth.min(100));
        Ok(writeln!(self.out, "{thread:>4} {dots}{}", function.shown())?)
    }

    fn end(&mut self, _end: CallEnd) -> Result<(), BoxError> {
        Ok(())
    }

    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(self.out.flush()?)
    }
}

impl Hooks {
    /// Makes the hooks, and starts to write their calls.
    fn start(cx: &InCallback<'_>, settings: &Settings, asker: &Asker) -> Result<(Arc<Self>, HookedBy), BoxError> {
        let Options { filter, output, shortest, hooked_by } = Options::read(settings)?;
        let log = CallLog::new(BUFFER, THREADS).folding(shortest);
        let is_inserted = asker.is_attached() || hooked_by.is_some();
        let hooks = Arc::new(Self { filter, log, is_inserted, has_parts: AtomicBool::new(false) });
        match output {
            Some(path) => {
                let trace = Trace::create(path, std::process::id(), &application_name())?;
                hooks.log.start(cx, "tracer", INTERVAL, ToFile { trace })?;
            }
            None => {
                let out: Box<dyn Write + Send> = match asker.file(".calls") {
                    Some(file) => Box::new(File::create(file)?),
                    None if crate::sdk::is_tool() => Box::new(sink()),
                    None => Box::new(stderr()),
                };
                hooks.log.start(
                    cx,
                    "tracer",
                    INTERVAL,
                    ToTree { out: BufWriter::new(out), is_json: asker.is_json() },
                )?;
            }
        }
        Ok((hooks, hooked_by))
    }
}

#[callbacks]
impl Callbacks for Tracer {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&TRACER)?;
        let asker = Asker::of_start(cx, &settings)?;
        let (hooks, hooked_by) = Hooks::start(cx, &settings, &asker)?;
        let hooked = install(cx, Arc::clone(&hooks), hooked_by)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { hooks, hooked, asker })
    }

    /// An attached profiler cannot have the runtime call hooks.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&TRACER, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let (hooks, _) = Hooks::start(cx, &settings, &asker)?;
        let hooked = cx.hooks(Arc::clone(&hooks)).install()?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { hooks, hooked, asker })
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        // The tree is complete before the answer.
        let finished = self.hooks.log.finish();
        let (lost, error) = match finished {
            Ok(lost) => (Some(lost), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let report = TracerReport { lost, waited: self.hooks.log.waited(), error };
        let mut notes = lines(cx, "traced", &self.hooked);
        if self.hooks.has_parts.load(Ordering::Relaxed) {
            notes.push("of an async method each part that runs is a call of its own here".to_owned());
        }
        self.asker.report(&notes, &report, &[]);
    }
}
