//! All methods that are compiled: rebuilt as they are, with a counter, or between probes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::edit::{CallCounter, EditError, InProbe, Probe};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};

static CALLS: CallCounter = CallCounter::new();
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Sees all that a method does, and counts.
struct Wraps;

impl Probe for Wraps {
    fn enter(&self, _cx: &InProbe<'_>, _args: &Arguments<'_>) {
        SEEN.fetch_add(1, Relaxed);
    }

    fn leave(&self, _cx: &InProbe<'_>, _result: &ReturnValue<'_>) {
        SEEN.fetch_add(1, Relaxed);
    }

    fn exception(&self, _cx: &InProbe<'_>, _exception: Option<ObjectId<'_>>) {
        SEEN.fetch_add(1, Relaxed);
    }

    fn unwound(&self, _cx: &InProbe<'_>) {
        SEEN.fetch_add(1, Relaxed);
    }
}

/// Edits each method when it is compiled: `INSTRUMENTED=counter` counts calls in them, `probes` wraps them, otherwise
/// the bodies stay as they are.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B0C", no_export)]
pub(crate) struct Compiled {
    /// How often each thing happened.
    counts: Mutex<BTreeMap<String, usize>>,
}

impl Compiled {
    fn count(&self, what: &str) {
        let mut counts = self.counts.lock().unwrap();
        match counts.get_mut(what) {
            Some(count) => *count += 1,
            None => _ = counts.insert(what.to_owned(), 1),
        }
    }
}

#[callbacks]
impl Callbacks for Compiled {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let how = std::env::var("INSTRUMENTED").unwrap_or_default();
        let edited = cx.edit_once(function, |edit| match how.as_str() {
            "counter" => edit.count_calls(&CALLS),
            "probes" => edit.probe(Wraps),
            _ => Ok(()),
        });
        match edited {
            Ok(_) => self.count("edited"),
            Err(EditError::Refused(why)) => self.count(&format!("refused: {why}")),
            Err(error) => {
                self.count("failed");
                eprintln!("compiled| failed: {}: {error}", cx.names().function(function));
            }
        }
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if let Err(error) = status {
            eprintln!("compiled| not compiled: {}: {error}", cx.names().function(function));
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        for (what, count) in self.counts.lock().unwrap().iter() {
            eprintln!("compiled| {count} {what}");
        }
        eprintln!("compiled| called: {}", CALLS.get() + SEEN.load(Relaxed) > 0);
    }
}
