//! Counts and times the calls of each method. When it is asked (`question`), it answers with the methods that took the
//! most processor time. Waits are separate: they are not processor time, and in pictures they are frames of their own.
//!
//! The profiler measures its own overhead at start-up, subtracts it and reports it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corprof::calls::{CallPath, CallProfiler, CallTimer, CallTotals};
use corprof::hooks::{HookedFunctions, StackBoundary};
use corprof::prelude::*;
use corprof_export::{Frame, Method, Mode, Output, Profile, Unit, application_name};
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::TIMER;
use globset::{Glob, GlobMatcher};
use serde::Serialize;

use crate::hooked_by::{HookedBy, hooked_by, install, is_part, lines, name_of};
use crate::question::{Answer, Asker, Head, Report, answer_when_asked, milliseconds};

/// The number of methods to print.
const TOP: usize = 20;

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A07", no_export)]
pub struct Timer {
    hooks: Arc<Hooks>,
    hooked: HookedFunctions,
    asker: Asker,
}

struct Options {
    /// The methods that are timed.
    filter: GlobMatcher,
    /// The methods whose callers and callees are printed.
    callers: GlobMatcher,
    output: Option<File>,
    path_limit: usize,
    hooked_by: HookedBy,
}

/// The output file, besides the answer.
enum File {
    Table(PathBuf),
    Profile(PathBuf),
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, SettingError> {
        let glob =
            |variable| -> Result<_, SettingError> { Ok(settings.of(variable).parsed(Glob::new)?.compile_matcher()) };
        let out = settings.of("TIMER_OUT");
        let output = match out.output()? {
            None => None,
            Some(path) if path.extension().is_some_and(|extension| extension == "csv") => Some(File::Table(path)),
            Some(path) => {
                // An unknown format is an error now, not at exit.
                out.parsed(|path| Output::new(path))?;
                Some(File::Profile(path))
            }
        };
        Ok(Self {
            filter: glob("TIMER_FILTER")?,
            callers: glob("TIMER_CALLERS")?,
            output,
            path_limit: settings.of("TIMER_PATHS").number()?,
            hooked_by: hooked_by(&settings.of("TIMER_BY"))?,
        })
    }
}

struct Hooks {
    options: Options,
    times: CallProfiler,
    /// Whether inserted code calls the hooks.
    is_inserted: bool,
}

impl FunctionHooks for Hooks {
    /// The number of the method's name.
    type Function = u32;
    type Thread = CallTimer;
    const UNWINDS: bool = true;
    const SUSPENDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<u32> {
        let name = name_of(cx, function, self.is_inserted);
        let filter = &self.options.filter;
        if !filter.is_match(&*name) {
            return Hook::No;
        }
        let number = self.times.number(&name);
        // All methods are timed as they run without a profiler; chosen ones in each call.
        if filter.glob().glob() == "*" { Hook::Inlinable(number) } else { Hook::Exact(number) }
    }

    fn thread_started(&self) -> CallTimer {
        self.times.timer()
    }

    fn enter(&self, cx: &InHook<'_>, timer: &mut CallTimer, &function: &u32) {
        timer.enter(cx, function);
    }

    fn leave(&self, cx: &InHook<'_>, timer: &mut CallTimer, _function: &u32) {
        timer.leave(cx);
    }

    fn unwound(&self, timer: &mut CallTimer, boundary: StackBoundary) {
        timer.unwound(boundary);
    }

    fn suspended(&self, cx: &InHook<'_>, timer: &mut CallTimer, _function: &u32) {
        timer.suspended(cx);
    }

    fn resumed(&self, cx: &InHook<'_>, timer: &mut CallTimer, &function: &u32) {
        timer.resumed(cx, function);
    }

    fn thread_ended(&self, timer: CallTimer) {
        self.times.add(timer);
    }
}

/// The answer.
#[derive(Serialize)]
struct TimerReport {
    /// How many methods there are.
    methods: usize,
    /// What was subtracted in each call, and around it.
    overhead_inside_ns: u64,
    overhead_outside_ns: u64,
    calls_without_callers: u64,
    calls_without_time: u64,
    /// The methods that took the most processor time.
    top: Vec<MethodRow>,
    /// Callers and callees of the methods that were asked for.
    calls: Vec<CallRow>,
}

#[derive(Serialize)]
struct MethodRow {
    method: String,
    #[serde(flatten)]
    times: Times,
}

#[derive(Serialize)]
struct CallRow {
    caller: Option<String>,
    callee: String,
    #[serde(flatten)]
    times: Times,
}

#[derive(Serialize)]
struct Times {
    calls: u64,
    #[serde(rename = "inclusive_ms", serialize_with = "milliseconds")]
    inclusive: Duration,
    #[serde(rename = "exclusive_ms", serialize_with = "milliseconds")]
    exclusive: Duration,
    #[serde(rename = "processor_ms", serialize_with = "milliseconds")]
    cpu: Duration,
    #[serde(rename = "waiting_ms", serialize_with = "milliseconds")]
    waiting: Duration,
}

impl Times {
    fn of(totals: &CallTotals) -> Self {
        let CallTotals { calls, inclusive, exclusive, cpu, waiting } = *totals;
        Self { calls, inclusive, exclusive, cpu, waiting }
    }

    fn row<'a>(&self, name: &'a str) -> Method<'a> {
        let Self { calls, inclusive, exclusive, cpu, waiting } = *self;
        Method { name, calls, inclusive, exclusive, cpu, waiting }
    }
}

impl Report for TimerReport {
    fn text(&self, _head: &Head, answer: &mut Answer) {
        let [inside, outside] = [self.overhead_inside_ns, self.overhead_outside_ns].map(Duration::from_nanos);
        say!(answer, "{} methods; {inside:?} in each call and {outside:?} around it subtracted", self.methods);
        let cut = self.calls_without_callers;
        let lost = self.calls_without_time;
        say!(answer, "{cut} calls without their callers, {lost} without a time of their own");
        say!(answer, "{}", Method::HEADER);
        for MethodRow { method, times } in &self.top {
            say!(answer, "{}", times.row(method));
        }
        for CallRow { caller, callee, times } in &self.calls {
            let caller = caller.as_deref().unwrap_or("(nobody)");
            say!(answer, "{}", times.row(&format!("{caller} -> {callee}")));
        }
    }
}

fn row<'a>(name: &'a str, totals: &CallTotals) -> Method<'a> {
    let CallTotals { calls, inclusive, exclusive, cpu, waiting } = *totals;
    Method { name, calls, inclusive, exclusive, cpu, waiting }
}

impl Hooks {
    fn new(settings: &Settings, is_attached: bool) -> Result<Arc<Self>, SettingError> {
        let options = Options::read(settings)?;
        let times = CallProfiler::with_bound(options.path_limit);
        let is_inserted = is_attached || options.hooked_by.is_some();
        Ok(Arc::new(Self { options, times, is_inserted }))
    }

    fn report(&self) -> TimerReport {
        let tree = self.times.tree();
        let functions = tree.functions();
        let [inside, outside] = self.times.overhead().map(|time| time.as_nanos() as u64);
        let is_wanted = |caller: Option<&str>, callee: &str| {
            let callers = &self.options.callers;
            callers.is_match(caller.unwrap_or("(nobody)")) || callers.is_match(callee)
        };
        let edges = tree.edges();
        let wanted = edges.iter().filter(|((caller, callee), _)| is_wanted(*caller, callee));
        TimerReport {
            methods: functions.len(),
            overhead_inside_ns: inside,
            overhead_outside_ns: outside,
            calls_without_callers: tree.cut(),
            calls_without_time: tree.lost(),
            top: functions
                .iter()
                .take(TOP)
                .map(|(name, totals)| MethodRow { method: (*name).to_owned(), times: Times::of(totals) })
                .collect(),
            calls: wanted
                .map(|((caller, callee), totals)| CallRow {
                    caller: caller.map(str::to_owned),
                    callee: (*callee).to_owned(),
                    times: Times::of(totals),
                })
                .collect(),
        }
    }

    /// What inserted code does not see of async methods, if there were any.
    fn note_of_async_methods(&self) -> Option<String> {
        let tree = self.times.tree();
        let mut names = tree.functions().into_iter().map(|(name, _)| name);
        let has_parts = names.any(|name| is_part(name, self.is_inserted));
        has_parts.then(|| {
            "of an async method each part that runs is a call here, and its waits are in no column: from .NET 11 on `corprof waits` has them".to_owned()
        })
    }

    /// Writes the file, if one is wanted. The notes say where it is.
    fn write(&self, asker: &Asker) -> Result<Vec<String>, BoxError> {
        let tree = self.times.tree();
        match &self.options.output {
            None => {}
            Some(File::Table(path)) => {
                let functions = tree.functions();
                let rows: Vec<_> = functions.iter().map(|(name, totals)| row(name, totals)).collect();
                Method::write_csv(path, &rows)?;
            }
            Some(File::Profile(path)) => {
                let profile = Profile::summed(application_name(), Unit::Nanoseconds);
                let mut profile = profile.of_process(std::process::id()).in_mode(Mode::Calls);
                let all_threads = profile.thread(0, "all threads");
                let nanoseconds = |time: Duration| time.as_nanos() as u64;
                let paths = tree.paths().map(|CallPath { caller, function, totals, .. }| {
                    (caller, Frame::managed(function), nanoseconds(totals.cpu))
                });
                let waits = tree.paths().enumerate().filter_map(|(place, CallPath { totals, .. })| {
                    let waited = nanoseconds(totals.exclusive - totals.cpu);
                    (waited > 0).then(|| (Some(place), Frame::native("[waits]"), waited))
                });
                profile.calls(all_threads, paths.chain(waits));
                return Ok(asker.write("the profile is", &mut Output::new(path)?, &profile));
            }
        }
        Ok(Vec::new())
    }
}

#[callbacks]
impl Callbacks for Timer {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&TIMER)?;
        let asker = Asker::of_start(cx, &settings)?;
        let hooks = Hooks::new(&settings, false)?;
        let hooked = install(cx, Arc::clone(&hooks), hooks.options.hooked_by)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { hooks, hooked, asker })
    }

    /// An attached profiler cannot have the runtime call hooks.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&TIMER, data)?;
        let hooks = Hooks::new(&settings, true)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let hooked = cx.hooks(Arc::clone(&hooks)).install()?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { hooks, hooked, asker })
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let files = self.hooks.write(&self.asker).unwrap_or_else(|error| vec![error.to_string()]);
        let mut notes = lines(cx, "timed", &self.hooked);
        notes.extend(self.hooks.note_of_async_methods());
        self.asker.report(&notes, &self.hooks.report(), &files);
    }
}
