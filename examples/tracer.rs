//! Prints the calls of an application as a tree: each call below and to the right of its caller, thread by thread.
//!
//! `cargo xtask demo tracer`. A line is the thread's number, the depth as dots (at most 100), and the name of what is called.
//! With TRACER_OUT=calls.trace.json the calls go there, with their times, for the Perfetto UI. TRACER_FILTER='Shop.*' traces
//! only functions whose whole names match that glob, such as `Shop.Order.Total(int32)`. When writing is slower than the
//! application, beginnings and ends are dropped, and how many is said at the end; buffers take 512 MiB at most, for 256
//! threads at a time. What a `finally` calls because of an exception stands below what threw it, which is still there then.

use corprof::hooks::{Call, CallLog, CallReader, CallWriter};
use corprof::{prelude::*, settings::Setting};
use corprof_export::Trace;
use globset::{Glob, GlobMatcher};
use std::io::{BufWriter, Stderr, Write, stderr};
use std::{sync::Arc, sync::OnceLock, time::Duration};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A06")]
struct Tracer(OnceLock<Arc<Calls>>);

/// What is traced, and where it goes.
struct Calls(GlobMatcher, CallLog<&'static str>);

impl FunctionHooks for Calls {
    type Function = &'static str;
    type Thread = CallWriter<&'static str>;

    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<&'static str> {
        let name = cx.names().function(function).to_string();
        if self.0.is_match(&name) { Hook::Yes(name.leak()) } else { Hook::No } // what is kept for a function is kept for ever
    }
    fn thread_started(&self) -> CallWriter<&'static str> {
        self.1.writer()
    }
    fn enter(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, name: &&'static str) {
        calls.enter(cx, name);
    }
    fn leave(&self, cx: &InHook<'_>, calls: &mut CallWriter<&'static str>, _name: &&'static str) {
        calls.leave(cx);
    }
}

/// A file for Perfetto, or else the tree.
struct Writer(Option<Trace>, BufWriter<Stderr>);

impl CallReader<&'static str> for Writer {
    fn begin(&mut self, Call { thread, depth, at, function, .. }: Call<&'static str>) -> Result<(), BoxError> {
        match &mut self.0 {
            Some(trace) => Ok(trace.begin(thread, at, "call", function)?),
            None => Ok(writeln!(self.1, "{thread:>4} {:.<1$}{function}", "", depth.min(100))?),
        }
    }
    fn end(&mut self, thread: u32, at: Duration) -> Result<(), BoxError> {
        Ok(self.0.as_mut().map_or(Ok(()), |trace| trace.end(thread, at))?)
    }
    fn pause(&mut self) -> Result<(), BoxError> {
        self.0.as_mut().map_or(Ok(()), Trace::flush)?;
        Ok(self.1.flush()?)
    }
}

#[callbacks]
impl Callbacks for Tracer {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let filter = Setting::of("TRACER_FILTER").parsed("*", Glob::new)?.compile_matcher();
        let create = |path| Trace::create(path, std::process::id(), "tracer").context("making the file of TRACER_OUT");
        let trace = Setting::of("TRACER_OUT").output()?.map(create).transpose()?;
        let calls = self.0.get_or_init(|| Arc::new(Calls(filter, CallLog::new(1 << 16, 256))));
        calls.1.start(cx, "tracer", Duration::from_millis(5), Writer(trace, BufWriter::new(stderr())))?;
        Ok(cx.hook_functions(calls.clone())?)
    }
    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        match self.0.get().map(|calls| calls.1.finish()) {
            Some(Ok(dropped)) => eprintln!("tracer: {dropped} beginnings and ends of calls were dropped"),
            failed => eprintln!("tracer: calls are missing: {failed:?}"),
        }
    }
}
