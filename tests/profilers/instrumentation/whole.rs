//! Methods of every module, or a share of them: rebuilt as it is, or with a counter.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use corprof::edit::{CallCounter, MethodEdit};
use corprof::instrumentation::{Instrumentation, Outcome, Rewrite};
use corprof::prelude::*;

/// Why methods of the framework are refused.
const EXPECTED: [&str; 4] = ["has no IL", "[NonVersionable]", "runtime-async", "in place of an instruction"];

static CALLS: CallCounter = CallCounter::new();

/// Asks for every so many methods: `INSTRUMENTED_SHARE=1` are all. `INSTRUMENTED=counter` counts calls in them,
/// otherwise the bodies stay as they are.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B03", no_export)]
pub(crate) struct Whole {
    instrumentation: OnceLock<Instrumentation>,
    rewrites: Mutex<Vec<Rewrite>>,
}

#[callbacks]
impl Callbacks for Whole {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let instrumentation = cx.start_instrumentation()?;
        instrumentation.wait_at_module_load(Duration::from_secs(60));
        profiler.instrumentation.get_or_init(|| instrumentation);
        Ok(profiler)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let share = std::env::var("INSTRUMENTED_SHARE").ok().and_then(|share| share.parse().ok()).unwrap_or(1);
        let is_counted = std::env::var_os("INSTRUMENTED").is_some_and(|how| how == "counter");
        let Ok(metadata) = cx.metadata(module) else { return };
        let methods = metadata.type_defs().unwrap().into_iter().flat_map(|class| metadata.methods(class).unwrap());
        let methods = methods.filter(|method| method.as_raw() % share == 0).map(|method| (module, method));
        let edit = move |edit: &mut MethodEdit<'_>| if is_counted { edit.count_calls(&CALLS) } else { Ok(()) };
        let rewrites = self.instrumentation.get().unwrap().edit_all(methods, edit);
        self.rewrites.lock().unwrap().extend(rewrites);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let mut counts = BTreeMap::<&str, usize>::new();
        for rewrite in self.rewrites.lock().unwrap().drain(..) {
            let (kind, why) = match rewrite.outcome() {
                Outcome::Active(_) => ("active", None),
                Outcome::Waiting { .. } => ("waiting", None),
                Outcome::Refused(why) => ("refused", Some(why.to_string())),
                Outcome::Rejected(errors) => ("rejected", Some(format!("{errors:?}"))),
                Outcome::Failed(error, _) => ("failed", Some(error.to_string())),
                Outcome::Preparing => ("preparing", None),
                _ => ("others", None),
            };
            *counts.entry(kind).or_default() += 1;
            if let Some(why) = why.filter(|why| !EXPECTED.iter().any(|expected| why.contains(expected))) {
                let name = cx.metadata(rewrite.module()).and_then(|metadata| metadata.method(rewrite.method()));
                eprintln!("whole| {kind}: {} {why}", name.map_or_else(|_| "?".to_owned(), |method| method.name));
            }
        }
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
        eprintln!("whole| {} calls={}", counts.join(" "), CALLS.get() > 0);
    }
}
