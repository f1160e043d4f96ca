//! What requests to compile methods anew do and cost: for `live/rejit.rs`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof::args::{FunctionControl, SuspendReason};
use corprof::id::ReJitId;
use corprof::metadata::MethodDef;
use corprof::prelude::*;

/// What has happened so far.
#[derive(Default)]
struct Seen {
    /// A large module of the framework.
    large: Option<ModuleId>,
    /// `Hot` of the program, and of its copy in a context that can be unloaded.
    hot: Option<(ModuleId, MethodDef)>,
    passing: Option<(ModuleId, MethodDef)>,
    done: Option<(ModuleId, MethodDef)>,
    is_prepared: bool,
    /// What was reported about the methods named `Hot` since the last look.
    events: Vec<String>,
    errors: Vec<String>,
    suspended: Option<(SuspendReason, Instant)>,
    /// Reasons, and how long they lasted.
    suspensions: Vec<(SuspendReason, Duration)>,
}

#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2003", no_export)]
struct Requests {
    seen: Arc<Mutex<Seen>>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap()
}

/// Waits until `is` holds; not for ever.
fn until(cx: &mut ProfilerThread<'_>, seen: &Mutex<Seen>, what: &str, is: impl Fn(&Seen) -> bool) {
    let begun = Instant::now();
    while !is(&lock(seen)) {
        if begun.elapsed() > Duration::from_secs(100) {
            eprintln!("requests| waited for nothing: {what}");
            return;
        }
        if !cx.wait(Duration::from_millis(1)).is_continue() {
            return;
        }
    }
}

/// Waits until nothing has been reported for a second, and returns what was.
fn quiet(cx: &mut ProfilerThread<'_>, seen: &Mutex<Seen>) -> String {
    let mut before = usize::MAX;
    loop {
        let now = lock(seen).events.len();
        if now == before || !cx.wait(Duration::from_secs(1)).is_continue() {
            return std::mem::take(&mut lock(seen).events).join(", ");
        }
        before = now;
    }
}

/// A request, with its duration and the suspensions for others than collections meanwhile.
fn timed(cx: &mut ProfilerThread<'_>, seen: &Mutex<Seen>, what: &str, call: impl FnOnce(&mut ProfilerThread<'_>)) {
    lock(seen).suspensions.clear();
    let begun = Instant::now();
    call(cx);
    let lasted = begun.elapsed();
    let seen = lock(seen);
    let of = seen.suspensions.iter().filter(|(reason, _)| *reason != SuspendReason::Gc);
    let of: Vec<String> = of.map(|(reason, lasted)| format!("{reason} {lasted:?}")).collect();
    eprintln!("requests| cost of {what}: {lasted:?}, suspended {} times: {}", of.len(), of.join(", "));
}

fn work(cx: &mut ProfilerThread<'_>, seen: &Mutex<Seen>) {
    until(cx, seen, "Prepared", |seen| seen.is_prepared);
    let (large, hot, passing) = {
        let seen = lock(seen);
        (seen.large.unwrap(), seen.hot.unwrap(), seen.passing.unwrap())
    };
    let collections = lock(seen).suspensions.iter().filter(|(reason, _)| *reason == SuspendReason::Gc).count();
    eprintln!("requests| suspensions are seen: {}", collections > 0);
    // The compilations for the next tiers come by themselves.
    quiet(cx, seen);

    eprintln!("requests| request of a passing method: {:?}", cx.request_rejit(&[passing]));
    eprintln!("requests| after it: {}", quiet(cx, seen));
    let errors = std::mem::take(&mut lock(seen).errors);
    eprintln!("requests| errors: {}", errors.join(", "));

    eprintln!("requests| request: {:?}", cx.request_rejit(&[hot]));
    let tiers = std::env::var("REQUESTS_TIERS").unwrap().parse().unwrap();
    until(cx, seen, "a new body", |seen| {
        seen.events.iter().filter(|event| event.starts_with("rejitted")).count() >= tiers
    });
    eprintln!("requests| after the request: {}", quiet(cx, seen));

    let methods: Vec<(ModuleId, MethodDef)> = {
        let metadata = cx.metadata(large).unwrap();
        let types = metadata.type_defs().unwrap();
        let methods = types.into_iter().flat_map(|class| metadata.methods(class).unwrap());
        let methods = methods.filter(|method| metadata.method(*method).is_ok_and(|props| props.code_rva != 0));
        methods.map(|method| (large, method)).collect()
    };
    for count in [1, 100, 10_000] {
        // The first request of a method and those after it are not the same.
        for round in 0..3 {
            let some = methods.get(..count).unwrap();
            let what = format!("request {round} of {count}");
            timed(cx, seen, &what, |cx| cx.request_rejit(some).unwrap());
            let what = format!("revert {round} of {count}");
            timed(cx, seen, &what, |cx| assert!(cx.request_revert(some).unwrap().iter().all(Result::is_ok)));
        }
    }
    for (name, module) in [("large", large), ("own", hot.0)] {
        for round in 0..4 {
            if round > 0 {
                cx.metadata_emit(module).unwrap().define_user_string(&format!("string {round}")).unwrap();
            }
            let what = format!("apply_meta_data {round} of the {name} module");
            timed(cx, seen, &what, |cx| cx.apply_meta_data(module).unwrap());
        }
    }
    let done = lock(seen).done.unwrap();
    cx.request_rejit(&[done]).unwrap();
}

#[callbacks]
impl Callbacks for Requests {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let seen = Arc::clone(&profiler.seen);
        cx.spawn_profiler_thread("requests", move |cx| work(cx, &seen))?;
        Ok(profiler)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let is_large = cx.module_info(module).is_ok_and(|info| info.path.ends_with("System.Private.Xml.dll"));
        if is_large {
            lock(&self.seen).large = Some(module);
        }
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        let name = cx.names().function(function);
        let Some((name, _)) = name.as_str().strip_prefix("Requests.").and_then(|name| name.split_once('(')) else {
            return;
        };
        let info = cx.function_info(function).unwrap();
        let is_passing = cx.module_info(info.module).unwrap().flags.contains(corprof::sys::COR_PRF_MODULE_COLLECTIBLE);
        let mut seen = lock(&self.seen);
        let method = Some((info.module, info.token));
        match name {
            "Hot" => {
                let which = if is_passing { &mut seen.passing } else { &mut seen.hot };
                *which = method;
                let owner = if is_passing { "passing" } else { "own" };
                seen.events.push(format!("{owner} compiled {status:?}"));
            }
            "Done" => seen.done = method,
            "Prepared" => seen.is_prepared = true,
            _ => {}
        }
    }

    fn get_rejit_parameters(
        &self,
        _cx: &mut InCallback<'_>,
        module: ModuleId,
        method: MethodDef,
        control: FunctionControl<'_>,
    ) {
        let mut seen = lock(&self.seen);
        let asked = Some((module, method));
        if asked == seen.hot || asked == seen.done || asked == seen.passing {
            seen.events.push("asked".to_owned());
            // SAFETY: each takes nothing and returns a number, as the body does: `ldc.i4.2; ret`.
            unsafe { control.set_il_function_body(&[2 << 2 | 0b10, 0x18, 0x2A]) }.unwrap();
        }
    }

    fn rejit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        rejit: ReJitId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if cx.names().function(function).as_str().starts_with("Requests.Hot(") {
            lock(&self.seen).events.push(format!("rejitted {rejit:?} {status:?}"));
        }
    }

    fn rejit_error(
        &self,
        _cx: &mut InCallback<'_>,
        _module: ModuleId,
        method: MethodDef,
        function: Option<FunctionId>,
        status: Result<()>,
    ) {
        lock(&self.seen).errors.push(format!("{:#x} {function:?} {status:?}", method.as_raw()));
    }

    fn runtime_suspend_started(&self, _cx: &InNoGc<'_>, reason: SuspendReason) {
        lock(&self.seen).suspended = Some((reason, Instant::now()));
    }

    fn runtime_resume_finished(&self, _cx: &InNoGc<'_>) {
        let mut seen = lock(&self.seen);
        if let Some((reason, begun)) = seen.suspended.take() {
            seen.suspensions.push((reason, begun.elapsed()));
        }
    }
}

corprof::export!(Requests);
