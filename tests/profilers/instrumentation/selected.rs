//! All methods of all modules by one selection, and how long they take to be prepared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corprof::edit::CallCounter;
use corprof::instrumentation::{Instrumentation, Outcome, Selector};
use corprof::prelude::*;

static CALLS: CallCounter = CallCounter::new();

const LONG: Duration = Duration::from_secs(280);

/// Selects when the program throws its first exception: by then it has loaded its modules. `INSTRUMENTED_ASSEMBLIES`
/// names one assembly, otherwise all are selected; `INSTRUMENTED=counter` counts calls, otherwise the bodies stay as
/// they are.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B05", no_export)]
pub(crate) struct Selected {
    has_thrown: Arc<AtomicBool>,
}

#[callbacks]
impl Callbacks for Selected {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let instrumentation = cx.start_instrumentation()?;
        let has_thrown = Arc::clone(&profiler.has_thrown);
        cx.spawn_profiler_thread("selects", move |cx| {
            while !has_thrown.load(Relaxed) && cx.wait(Duration::from_millis(5)).is_continue() {}
            select(cx, &instrumentation);
        })?;
        Ok(profiler)
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.has_thrown.store(true, Relaxed);
    }
}

fn select(cx: &mut ProfilerThread<'_>, instrumentation: &Instrumentation) {
    let start = Instant::now();
    let how = std::env::var("INSTRUMENTED").unwrap_or_default();
    let is_counted = how == "counter";
    let selector = match std::env::var("INSTRUMENTED_ASSEMBLIES") {
        Ok(assembly) => Selector::assembly(&assembly),
        Err(_) => Selector::all(),
    };
    let selection =
        instrumentation.select(selector, move |edit| if is_counted { edit.count_calls(&CALLS) } else { Ok(()) });
    let end = selection.wait_until_prepared(cx, LONG);
    let took = start.elapsed();
    let rewrites = selection.rewrites();
    let of = |is: fn(&Outcome) -> bool| rewrites.iter().filter(|rewrite| is(&rewrite.outcome())).count();
    let preparing = of(|outcome| matches!(outcome, Outcome::Preparing));
    let refused = of(|outcome| matches!(outcome, Outcome::Refused(_)));
    eprintln!("selected| {end:?}: {} methods, {refused} refused, {preparing} preparing", rewrites.len());
    eprintln!("selected| {:.1} us a method", took.as_secs_f64() * 1e6 / rewrites.len() as f64);
    instrumentation.select(Selector::method("Loads", "Done"), |edit| edit.replace_strings("no", "yes").map(drop));
}
