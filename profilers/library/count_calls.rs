//! Counts the calls of each method, by a number in memory that the method itself increments: a fraction of a nanosecond
//! each.
//!
//! It counts methods that are compiled; precompiled ones, such as most of the framework's, run on uncounted. When it is
//! asked (`question`), it answers how often each was called. If it attaches, it counts calls from the attach on.
//!
//! Threads that call a method at the same time may count one call together.

use std::collections::HashMap;
use std::sync::Arc;

use corprof::edit::CallCounter;
use corprof::instrumentation::{Outcome, Rewrite};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::sync::Mutex;
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::COUNT_CALLS;
use globset::{Glob, GlobMatcher};

use crate::question::{Answer, Asker, answer_when_asked};

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A13", no_export)]
pub struct CountCalls {
    counted: Arc<Counted>,
    asker: Asker,
}

/// Methods with their counters. All instantiations of a generic method have one, and the name of the first.
type Methods = HashMap<(ModuleId, MethodDef), (Name, &'static CallCounter)>;

struct Counted {
    filter: GlobMatcher,
    methods: Mutex<Methods>,
    /// The methods that were compiled before the profiler attached.
    rewrites: Mutex<Vec<(Name, Rewrite)>>,
}

impl Counted {
    fn new(settings: &Settings) -> Result<Arc<Self>, SettingError> {
        let filter = settings.of("COUNT_CALLS_FILTER").parsed(Glob::new)?.compile_matcher();
        Ok(Arc::new(Self { filter, methods: Mutex::default(), rewrites: Mutex::default() }))
    }

    /// The counter of a method, if its name matches.
    fn counter(&self, cx: &InCallback<'_>, function: FunctionId) -> Option<(Name, &'static CallCounter)> {
        let name = cx.names().csharp().function(function);
        if !self.filter.is_match(&*name) {
            return None;
        }
        let info = cx.function_info(function).ok()?;
        let mut methods = self.methods.lock(cx);
        // Leaked, because compiled code has the address until the process ends.
        let new = || (name, &*Box::leak(Box::default()));
        Some(methods.entry((info.module, info.token)).or_insert_with(new).clone())
    }

    fn answer(&self, cx: &InCallback<'_>, answer: &mut Answer) {
        for (name, rewrite) in &*self.rewrites.lock(cx) {
            if let Outcome::Refused(why) = rewrite.outcome() {
                say!(answer, "{name} is not counted: {why}");
            }
        }
        let mut methods: Vec<_> =
            self.methods.lock(cx).values().map(|(name, count)| (count.get(), name.clone())).collect();
        methods.sort_by(|(a, name_a), (b, name_b)| b.cmp(a).then_with(|| name_a.as_str().cmp(name_b.as_str())));
        say!(answer, "{:>12}  method", "calls");
        for (calls, name) in methods.iter().filter(|(calls, _)| *calls > 0) {
            say!(answer, "{calls:>12}  {name}");
        }
    }
}

#[callbacks]
impl Callbacks for CountCalls {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&COUNT_CALLS)?;
        let asker = Asker::of_start(cx, &settings)?;
        let counted = Counted::new(&settings)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { counted, asker })
    }

    /// Has the methods that are compiled already compiled again.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&COUNT_CALLS, data)?;
        let counted = Counted::new(&settings)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let profiler = Self { counted, asker };
        let counted = Arc::clone(&profiler.counted);
        let instrumentation = cx.start_instrumentation()?;
        cx.spawn_profiler_thread("count_calls", move |cx| {
            let functions = cx.wait_for_jitted_functions().unwrap_or_else(|error| {
                report!("count_calls: what is compiled already is not counted: {error}");
                Vec::new()
            });
            for function in functions {
                if cx.is_stopping() {
                    break;
                }
                let Some((name, counter)) = counted.counter(cx, function) else { continue };
                let Ok(info) = cx.function_info(function) else { continue };
                let rewrite = instrumentation.edit(info.module, info.token, |edit| edit.count_calls(counter));
                counted.rewrites.lock(cx).push((name, rewrite));
            }
        })?;
        answer_when_asked(cx, &profiler.asker)?;
        Ok(profiler)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if let Some((name, counter)) = self.counted.counter(cx, function)
            // It comes again for each tier and instantiation: the body that they share is edited once.
            && let Err(error) = cx.edit_once(function, |edit| edit.count_calls(counter))
        {
            report!("count_calls: {name} is not counted: {error}");
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.asker.answer(|answer| self.counted.answer(cx, answer));
    }
}
