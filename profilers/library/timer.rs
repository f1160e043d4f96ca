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

use crate::hooked_by::{HookedBy, hooked_by, install, lines};
use crate::question::{Answer, Asker, answer_when_asked};

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
    output: Option<Report>,
    path_limit: usize,
    hooked_by: HookedBy,
}

/// The output file. The report also goes to standard error.
enum Report {
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
            Some(path) if path.extension().is_some_and(|extension| extension == "csv") => Some(Report::Table(path)),
            Some(path) => {
                // An unknown format is an error now, not at exit.
                out.parsed(|path| Output::new(path))?;
                Some(Report::Profile(path))
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
}

impl FunctionHooks for Hooks {
    /// The number of the method's name.
    type Function = u32;
    type Thread = CallTimer;
    const UNWINDS: bool = true;
    const SUSPENDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<u32> {
        let name = cx.names().function(function);
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

fn row<'a>(name: &'a str, totals: &CallTotals) -> Method<'a> {
    let CallTotals { calls, inclusive, exclusive, cpu, waiting } = *totals;
    Method { name, calls, inclusive, exclusive, cpu, waiting }
}

impl Hooks {
    fn new(settings: &Settings) -> Result<Arc<Self>, SettingError> {
        let options = Options::read(settings)?;
        let times = CallProfiler::with_bound(options.path_limit);
        Ok(Arc::new(Self { options, times }))
    }

    fn answer(&self, answer: &mut Answer) -> Result<(), BoxError> {
        let tree = self.times.tree();
        let functions = tree.functions();
        let rows: Vec<_> = functions.iter().map(|(name, totals)| row(name, totals)).collect();

        let [inside, outside] = self.times.overhead();
        say!(answer, "{} methods; {inside:?} in each call and {outside:?} around it subtracted", rows.len());
        say!(answer, "{} calls without their callers, {} without a time of their own", tree.cut(), tree.lost());
        say!(answer, "{}", Method::HEADER);
        for method in rows.iter().take(TOP) {
            say!(answer, "{method}");
        }
        for ((caller, callee), totals) in tree.edges() {
            let caller = caller.unwrap_or("(nobody)");
            if self.options.callers.is_match(caller) || self.options.callers.is_match(callee) {
                say!(answer, "{}", row(&format!("{caller} -> {callee}"), &totals));
            }
        }

        match &self.options.output {
            None => {}
            Some(Report::Table(path)) => Method::write_csv(path, &rows)?,
            Some(Report::Profile(path)) => {
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
                answer.written("the profile is", &mut Output::new(path)?, &profile);
            }
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Timer {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&TIMER)?;
        let asker = Asker::of_start(cx, &settings)?;
        let hooks = Hooks::new(&settings)?;
        let hooked = install(cx, Arc::clone(&hooks), hooks.options.hooked_by)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { hooks, hooked, asker })
    }

    /// An attached profiler cannot have the runtime call hooks.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&TIMER, data)?;
        let hooks = Hooks::new(&settings)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let hooked = cx.hooks(Arc::clone(&hooks)).install()?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { hooks, hooked, asker })
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.asker.answer(|answer| {
            lines(cx, "timed", &self.hooked).iter().for_each(|line| say!(answer, "{line}"));
            if let Err(error) = self.hooks.answer(answer) {
                say!(answer, "{error}");
            }
        });
    }
}
