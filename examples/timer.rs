//! Counts and times the calls of each method, and at exit prints the hot spots: where the most time was spent.
//!
//! `cargo xtask demo timer`. TIMER_OUT=times.csv writes all methods; with `.html` a page to look at, and with `.svg`,
//! `.folded`, `.speedscope.json`, `.pb.gz` (pprof) or `.json.gz` (Firefox Profiler) the same for those. TIMER_CALLERS='Shop.Order.*'
//! prints which methods call those whose names match that glob, and which they call. TIMER_FILTER='Shop.*' times only functions
//! whose names match. What timing takes is measured at start-up, subtracted and told. TIMER_PATHS=1048576 call paths are kept
//! at most, which take 64 MiB, and the report as much again: calls on others are counted without their callers, and told.

use corprof::hooks::{CallTimer, CallTimes, CallTotals, StackBoundary};
use corprof::{prelude::*, settings::Setting};
use corprof_export::{Frame as Named, Method, Mode, Output, Profile, Unit, application_name};
use globset::{Glob, GlobMatcher};
use std::{env::var, sync::Arc, sync::OnceLock};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A07")]
struct Timer(OnceLock<Arc<Times>>);

/// What is timed, whose callers are wanted, and the times.
struct Times(GlobMatcher, GlobMatcher, CallTimes);

impl FunctionHooks for Times {
    type Function = u32;
    type Thread = CallTimer;
    const UNWINDS: bool = true;

    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<u32> {
        let name = cx.names().function(function);
        if self.0.is_match(&*name) { Hook::Yes(self.2.number(&name)) } else { Hook::No }
    }
    fn thread_started(&self) -> CallTimer {
        self.2.timer()
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
    fn thread_ended(&self, timer: CallTimer) {
        self.2.add(timer);
    }
}

fn row<'a>(name: &'a str, &CallTotals { calls, inclusive, exclusive, .. }: &CallTotals) -> Method<'a> {
    Method { name, calls, inclusive, exclusive }
}

impl Times {
    fn report(&self) -> Result<(), BoxError> {
        let (tree, [inside, outside]) = (self.2.tree(), self.2.overhead());
        let functions = tree.functions();
        let rows: Vec<_> = functions.iter().map(|(name, totals)| row(name, totals)).collect();
        eprintln!("timer: {} methods; {inside:?} in each call and {outside:?} around it subtracted", rows.len());
        eprintln!("timer: {} calls without their callers, {} without a time of their own", tree.cut(), tree.lost());
        eprintln!("timer: {}", Method::HEADER);
        rows.iter().take(20).for_each(|method| eprintln!("timer: {method}"));
        for ((caller, callee), totals) in tree.edges() {
            let caller = caller.unwrap_or("(nobody)");
            if self.1.is_match(caller) || self.1.is_match(callee) {
                eprintln!("timer: {}", row(&format!("{caller} -> {callee}"), &totals));
            }
        }
        let Ok(out) = var("TIMER_OUT") else { return Ok(()) };
        if out.ends_with(".csv") {
            return Ok(Method::write_csv(out, &rows)?);
        }
        let profile = Profile::summed(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        let mut profile = profile.in_mode(Mode::Calls);
        let all = profile.thread(0, "all threads");
        let weight = |totals: CallTotals| totals.exclusive.as_nanos() as u64;
        let paths = tree.paths().map(|path| (path.caller, Named::managed(path.function), weight(path.totals)));
        profile.calls(all, paths);
        if let Some(earlier) = Output::new(out)?.write(&profile)?.kept {
            eprintln!("timer: what was there is kept as {}", earlier.display());
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Timer {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let out = Setting::of("TIMER_OUT");
        if out.output()?.is_some_and(|path| path.extension().is_none_or(|extension| extension != "csv")) {
            out.parsed("", |name| Output::new(name))?; // now, rather than at the end
        }
        let glob = |name, all| Setting::of(name).parsed(all, Glob::new).map(|glob| glob.compile_matcher());
        let (timed, told) = (glob("TIMER_FILTER", "*")?, glob("TIMER_CALLERS", "")?);
        let bound = Setting::of("TIMER_PATHS").number(1 << 20, 1..=1 << 30)?;
        let times = self.0.get_or_init(|| Arc::new(Times(timed, told, CallTimes::with_bound(bound))));
        Ok(cx.hook_functions(times.clone())?)
    }
    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        let reported = self.0.get().map_or(Ok(()), |times| times.report());
        reported.unwrap_or_else(|error| eprintln!("timer: {error}"));
    }
}
