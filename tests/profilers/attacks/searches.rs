//! Searches for code, from threads of the profiler, while the code is removed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corprof::id::NativeCode;
use corprof::info::FunctionVersion;
use corprof::prelude::*;

/// How many threads search.
const SEARCHERS: usize = 4;

/// How many pieces of code are known at a time: the newest, which are removed next, and those of before, which are
/// gone.
const KEPT: usize = 1024;

#[derive(Default)]
struct Shared {
    code: Mutex<Vec<NativeCode>>,
    compiled: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Shared {
    /// Keeps the code of a function that has just been compiled, in place of what was compiled long ago.
    fn keep(&self, cx: &InCallback<'_>, function: FunctionId) {
        for code in cx.native_code(function).unwrap_or_default() {
            let number = self.compiled.fetch_add(1, Relaxed) as usize;
            let mut kept = self.code.lock().unwrap();
            match kept.get_mut(number % KEPT) {
                Some(place) => *place = code,
                None => kept.push(code),
            }
        }
    }

    fn count<T>(&self, answer: &Result<T>) {
        let count = if answer.is_ok() { &self.answered } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }
}

/// Makes all calls that search for code.
fn search(cx: &mut ProfilerThread<'_>, shared: &Shared, code: NativeCode) {
    let address = code.into();
    shared.count(&cx.function_from_ip(address));
    let version = cx.function_version_from_ip(address);
    shared.count(&version);
    shared.count(&cx.native_code_ranges(code));
    shared.count(&cx.il_to_native_mapping(code));
    if let Ok(Some(FunctionVersion { function, .. })) = version {
        shared.count(&cx.code_ranges(function));
    }
}

/// Searches for code that is being removed.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1261", no_export)]
pub(crate) struct Searches(Arc<Shared>);

#[callbacks]
impl Callbacks for Searches {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        for number in 0..SEARCHERS {
            let shared = Arc::clone(&profiler.0);
            cx.spawn_profiler_thread(&format!("searcher {number}"), move |cx| {
                while !cx.is_stopping() {
                    let kept = shared.code.lock().unwrap().clone();
                    for (number, code) in kept.into_iter().enumerate() {
                        shared.count(&cx.function_from_ip(code.into()));
                        if number % 16 == 0 {
                            search(cx, &shared, code);
                        }
                    }
                    shared.count(&cx.jitted_function_versions());
                }
            })?;
        }
        Ok(profiler)
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.0.keep(cx, function);
    }

    fn dynamic_method_jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.0.keep(cx, function);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [answered, refused, compiled] =
            [&self.0.answered, &self.0.refused, &self.0.compiled].map(|it| it.load(Relaxed));
        eprintln!("attacks| searched: answered={answered} refused={refused} compiled={compiled}");
    }
}
