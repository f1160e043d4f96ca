//! Methods that the runtime itself suspends, recompiled with probes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corprof::edit::{InProbe, Probe, ProbeKinds};
use corprof::instrumentation::{Instrumentation, Outcome, Selection, Selector};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};

const METHODS: [&str; 5] = ["Add", "Half", "Both", "Generic", "Throws"];

#[derive(Default)]
struct Counts {
    entered: AtomicU64,
    left: AtomicU64,
    thrown: AtomicU64,
}

struct CountsCalls(Arc<Counts>);

impl Probe for CountsCalls {
    const KINDS: ProbeKinds =
        ProbeKinds::ENTER.union(ProbeKinds::LEAVE).union(ProbeKinds::RESULT).union(ProbeKinds::EXCEPTION);

    fn enter(&self, _cx: &InProbe<'_>, _args: &Arguments<'_>) {
        self.0.entered.fetch_add(1, Relaxed);
    }

    fn leave(&self, _cx: &InProbe<'_>, _result: &ReturnValue<'_>) {
        self.0.left.fetch_add(1, Relaxed);
    }

    fn exception(&self, _cx: &InProbe<'_>, _exception: Option<ObjectId<'_>>) {
        self.0.thrown.fetch_add(1, Relaxed);
    }
}

type Probed = Vec<(&'static str, Arc<Counts>, Selection)>;

/// Probes the methods when the program throws, and then lets it go on.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B07", no_export)]
pub(crate) struct Suspended {
    has_thrown: Arc<AtomicBool>,
    probed: Arc<OnceLock<Probed>>,
}

fn probe(cx: &mut ProfilerThread<'_>, instrumentation: &Instrumentation) -> Probed {
    let one = |name: &'static str| {
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let selector = Selector::method("AsyncProbes", name);
        let selection = instrumentation.select(selector, move |edit| edit.probe(CountsCalls(Arc::clone(&shared))));
        (name, counts, selection)
    };
    let probed: Probed = METHODS.map(one).into();
    for (_, _, selection) in &probed {
        let _ = selection.wait_until_prepared(cx, Duration::from_secs(60)); // what is not prepared is told at the end
    }
    instrumentation
        .select(Selector::method("AsyncProbes", "Ready"), |edit| edit.replace_strings("no", "yes").map(drop));
    probed
}

#[callbacks]
impl Callbacks for Suspended {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let instrumentation = cx.start_instrumentation()?;
        let has_thrown = Arc::clone(&profiler.has_thrown);
        let probed = Arc::clone(&profiler.probed);
        cx.spawn_profiler_thread("probes", move |cx| {
            while !has_thrown.load(Relaxed) && cx.wait(Duration::from_millis(5)).is_continue() {}
            let _ = probed.set(probe(cx, &instrumentation)); // this thread alone sets it
        })?;
        Ok(profiler)
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.has_thrown.store(true, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        for (name, counts, selection) in self.probed.get().into_iter().flatten() {
            let [entered, left, thrown] = [&counts.entered, &counts.left, &counts.thrown].map(|of| of.load(Relaxed));
            let outcomes: Vec<_> = selection.rewrites().iter().map(|rewrite| rewrite.outcome()).collect();
            let refused = outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Refused(why) => Some(why.to_string()),
                _ => None,
            });
            let refused = refused.map_or_else(String::new, |why| format!(", refused: {why}"));
            eprintln!("suspended| {name}: {entered} entered, {left} left, {thrown} thrown{refused}");
        }
    }
}
