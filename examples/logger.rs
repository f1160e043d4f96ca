//! Logs what happens in an application: the thread, the event, and its arguments by name.

use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E02")]
struct Logger;

#[callbacks]
impl Callbacks for Logger {
    #[events(
        MONITOR_ASSEMBLY_LOADS,
        MONITOR_CLASS_LOADS,
        MONITOR_JIT_COMPILATION,
        MONITOR_THREADS,
        MONITOR_EXCEPTIONS,
        MONITOR_SUSPENDS,
        HIGH_BASIC_GC
    )]
    fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>) {
        let thread = cx.current_thread().ok().flatten().map_or(0, |thread| thread.as_raw());
        eprintln!("{thread:#x} {}", event.named(cx));
    }
}
