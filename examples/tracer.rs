//! Records every call with its times, thread by thread, for <https://ui.perfetto.dev>: calls.pftrace.

use std::sync::Arc;
use std::time::Duration;

use corprof::calls::{CallBegin, CallEnd, CallLog, CallReader, CallThread};
use corprof::prelude::*;
use corprof_export::{Short, Trace, application_name};

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E06")]
struct Tracer {
    log: Arc<CallLog<&'static str>>,
}

struct File(Trace);

impl CallReader<&'static str> for File {
    fn thread(&mut self, thread: &CallThread) -> Result<(), BoxError> {
        Ok(self.0.thread(thread.number, thread.os_id, thread.name.as_deref())?)
    }

    fn begin(&mut self, call: CallBegin<&'static str>) -> Result<(), BoxError> {
        Ok(self.0.begin(call.thread, call.at, call.function)?)
    }

    fn end(&mut self, end: CallEnd) -> Result<(), BoxError> {
        Ok(self.0.end(end.thread, end.at, Short::default())?)
    }
}

#[callbacks]
impl Callbacks for Tracer {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let trace = Trace::create("calls.pftrace", std::process::id(), &application_name())?;
        let log = Arc::new(CallLog::new(1 << 13, 256));
        log.start(cx, "tracer", Duration::from_millis(5), File(trace))?;
        cx.hooks(Arc::clone(&log)).install()?;
        Ok(Self { log })
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        if let Err(error) = self.log.finish() {
            eprintln!("tracer: calls are missing: {error}");
        }
    }
}
