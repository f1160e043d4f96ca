//! Records the calls of an application, one below the other, thread by thread, with their times.
//!
//! `cargo xtask demo tracer`. With TRACER_OUT=calls.pftrace the calls go there, for <https://ui.perfetto.dev>; a name that ends
//! in `.json` makes a file that speedscope and Chrome read, too, five times the size. TRACER_FILTER='Shop.*' traces only
//! functions whose whole names match that glob. Calls of less than TRACER_MIN=1 microseconds are counted in their callers,
//! with the time they took; TRACER_MIN=0 records every call. Without TRACER_OUT a tree of all calls is printed: the thread's
//! number, the depth as dots (at most 100), the name. Nothing is lost: where calls come faster than they are written the
//! application waits, and how long is told at the end.

use corprof::hooks::{Call, CallEnd, CallLog, CallReader, CallThread, CallWriter, StackBoundary};
use corprof::{prelude::*, settings::Setting};
use corprof_export::{Short, Trace, application_name};
use globset::{Glob, GlobMatcher};
use std::io::{BufWriter, Stderr, Write, stderr};
use std::{sync::Arc, sync::OnceLock, time::Duration};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A06")]
struct Tracer {
    calls: OnceLock<Arc<Calls>>,
}

struct Calls {
    filter: GlobMatcher,
    log: CallLog<&'static str>,
}

impl FunctionHooks for Calls {
    type Function = &'static str;
    type Thread = CallWriter<&'static str>;
    const UNWINDS: bool = true;

    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<&'static str> {
        let name = cx.names().function(function).to_string();
        if self.filter.is_match(&name) { Hook::Yes(name.leak()) } else { Hook::No } // kept for ever, as the hook is
    }
    fn thread_started(&self) -> CallWriter<&'static str> {
        self.log.writer()
    }
    fn enter(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, name: &&'static str) {
        calls.enter(cx, name);
    }
    fn leave(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, _name: &&'static str) {
        calls.leave(cx);
    }
    fn unwound(&self, calls: &mut CallWriter<&'static str>, boundary: StackBoundary) {
        calls.unwound(boundary);
    }
}

struct ToFile(Trace);

impl CallReader<&'static str> for ToFile {
    fn thread(&mut self, thread: &CallThread) -> Result<(), BoxError> {
        Ok(self.0.thread(thread.number, thread.os_id, thread.name.as_deref())?)
    }
    fn begin(&mut self, call: Call<&'static str>) -> Result<(), BoxError> {
        Ok(self.0.begin(call.thread, call.at, call.function)?)
    }
    fn end(&mut self, end: CallEnd) -> Result<(), BoxError> {
        Ok(self.0.end(end.thread, end.at, short(end))?)
    }
    fn alone(&mut self, end: CallEnd) -> Result<(), BoxError> {
        Ok(self.0.short(end.thread, end.at, short(end))?)
    }
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(self.0.flush()?)
    }
}

fn short(CallEnd { folded, .. }: CallEnd) -> Short {
    Short { calls: folded.calls, time: folded.time }
}

struct ToTree(BufWriter<Stderr>);

impl CallReader<&'static str> for ToTree {
    fn begin(&mut self, call: Call<&'static str>) -> Result<(), BoxError> {
        let Call { thread, function, .. } = call;
        let dots = ".".repeat(call.depth.min(100));
        Ok(writeln!(self.0, "{thread:>4} {dots}{function}")?)
    }
    fn end(&mut self, _end: CallEnd) -> Result<(), BoxError> {
        Ok(())
    }
    fn pause(&mut self) -> Result<(), BoxError> {
        Ok(self.0.flush()?)
    }
}

#[callbacks]
impl Callbacks for Tracer {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let filter = Setting::of("TRACER_FILTER").parsed("*", Glob::new)?.compile_matcher();
        let path = Setting::of("TRACER_OUT").output()?;
        let micros = Setting::of("TRACER_MIN").number(u64::from(path.is_some()), 0..=1_000_000)?;
        let log = CallLog::new(1 << 13, 4096).folding(Duration::from_micros(micros));
        let calls = self.calls.get_or_init(|| Arc::new(Calls { filter, log }));
        let often = Duration::from_millis(5);
        if let Some(path) = path {
            let trace = Trace::create(path, std::process::id(), &application_name())?;
            calls.log.start(cx, "tracer", often, ToFile(trace))?;
        } else {
            calls.log.start(cx, "tracer", often, ToTree(BufWriter::new(stderr())))?;
        }
        Ok(cx.hook_functions(calls.clone())?)
    }
    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        let Some(calls) = self.calls.get() else { return };
        match calls.log.finish() {
            Ok(lost) => {
                eprintln!("tracer: {lost} beginnings and ends were lost; threads waited {:.1?}", calls.log.waited())
            }
            Err(error) => eprintln!("tracer: calls are missing: {error}"),
        }
    }
}
