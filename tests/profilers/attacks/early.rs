//! Calls from profiler threads from the first moment on, while the runtime starts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corprof::events::{KeywordSet, Keywords, Level};
use corprof::heap_dump::HeapDumpError;
use corprof::prelude::*;
use corprof::sampler::{Sampler, Strategy};
use corprof::sys::CORPROF_E_RUNTIME_UNINITIALIZED;

/// A snapshot takes so long at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// For so long each call is made without pause: the runtime has started long before the end.
const STORM: Duration = Duration::from_millis(400);

/// How often the calls have been answered, and were refused for which reason.
#[derive(Default, Clone)]
struct Answers(Arc<Mutex<BTreeMap<String, u64>>>);

impl Answers {
    fn note(&self, call: &str, answer: Result<()>) {
        let answer = answer.map_or_else(|error| format!("{call}={:?}", error.code()), |()| format!("{call}=ok"));
        *self.0.lock().unwrap().entry(answer).or_default() += 1;
    }
}

/// Makes the calls that `ATTACKS_EARLY` names, each on a thread of its own.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1297", no_export)]
pub(crate) struct Early(Answers);

/// Whether the runtime says that it has not started. Only .NET 9 and later can be asked so.
fn is_starting(cx: &mut ProfilerThread<'_>) -> bool {
    let asked = cx.enumerate_gc_heap_objects(|_, _| ControlFlow::Break(()));
    asked.is_err_and(|error| error.code() == CORPROF_E_RUNTIME_UNINITIALIZED)
}

fn session_of(cx: &mut ProfilerThread<'_>, set: KeywordSet) -> Result<()> {
    let events = cx.start_runtime_events(set)?;
    events.stop(cx)
}

/// The size of the core library's precompiled code, about, and the distance of the numbers in it.
const IMAGE: usize = 16 << 20;
const STEP: usize = (2 << 20) + 7;

/// Asks what is at addresses of code, and near them, where code was compiled, and at other ones in each run where it is
/// precompiled: most of the methods there never run.
fn ask_about_numbers(cx: &mut ProfilerThread<'_>) -> Result<()> {
    let mut numbers = Vec::new();
    for function in cx.jitted_functions()? {
        let code = cx.native_code(function)?;
        numbers.extend(code.iter().flat_map(|code| [code.as_raw() + 1, code.as_raw() + STEP]));
    }
    let first = std::process::id() as usize * 4096 % STEP;
    for module in cx.enum_modules()? {
        let base = cx.module_info(module)?.base;
        numbers.extend((base + first..base + IMAGE).step_by(STEP));
    }
    let mut found = Err(Error::new(CORPROF_E_RUNTIME_UNINITIALIZED, "there is no code yet"));
    for number in numbers {
        let Some(address) = cx.code_address(number) else { continue };
        let function = cx.function_from_ip(address)?;
        let version = cx.function_version_from_ip(address)?;
        if function.is_some() && version.is_some() {
            found = Ok(());
        }
    }
    found
}

/// The calls that suspend the runtime, collect, or have managed code run.
fn call(cx: &mut ProfilerThread<'_>, call: &str) -> Result<()> {
    match call {
        "collect" => {
            cx.force_gc()?;
            assert!(!is_starting(cx), "it collects before it has started");
            Ok(())
        }
        "collect-by-session" => {
            session_of(cx, KeywordSet::new(Keywords::MANAGED_HEAP_COLLECT, Level::Informational))?;
            assert!(!is_starting(cx), "it collects before it has started");
            Ok(())
        }
        "session" => session_of(cx, KeywordSet::CONTENTION),
        "walk" => cx.enumerate_gc_heap_objects(|_, _| ControlFlow::Continue(())),
        "snapshot" => match cx.take_heap_snapshot(PATIENCE, |_, _: &[u8]| Ok(())) {
            Err(HeapDumpError::Runtime(error)) => Err(error),
            _ => Ok(()),
        },
        "mask" => cx.add_events(EventMask::MONITOR_GC).and_then(|()| cx.remove_events(EventMask::MONITOR_GC)),
        "lists" => {
            let threads = cx.enum_threads().map(drop);
            let modules = cx.enum_modules().map(drop);
            let functions = cx.jitted_functions().map(drop);
            let objects = cx.enumerate_non_gc_objects().map(drop);
            threads.and(modules).and(functions).and(objects)
        }
        "numbers" => ask_about_numbers(cx),
        _ => unreachable!("{call} is no call"),
    }
}

fn begin(cx: &mut InInitialize<'_>, name: &str, answers: Answers) -> Result<(), BoxError> {
    let name = name.to_owned();
    if name == "sample" {
        let sampler = Sampler::every(Duration::from_micros(100)).budget(1.0).strategy(Strategy::SuspendedRuntime);
        sampler.start(cx, move |round| {
            let _ = round.samples().count();
            answers.note(&name, Ok(()));
        })?;
        return Ok(());
    }
    cx.spawn_profiler_thread("early", move |cx| {
        let begin = Instant::now();
        while !cx.is_stopping() && begin.elapsed() < STORM {
            answers.note(&name, call(cx, &name));
        }
    })?;
    Ok(())
}

#[callbacks]
impl Callbacks for Early {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let calls = std::env::var("ATTACKS_EARLY")?;
        let mut calls: Vec<_> = calls.split(' ').collect();
        if calls.contains(&"detach") {
            let answers = profiler.0.clone();
            let detacher = cx.detacher()?;
            std::thread::Builder::new().spawn(move || answers.note("detach", detacher.detach()))?;
            calls.retain(|call| *call != "detach");
        }
        for call in calls {
            begin(cx, call, profiler.0.clone())?;
        }
        Ok(profiler)
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        let told: Vec<_> =
            self.0.0.lock().unwrap().iter().map(|(answer, count)| format!("{answer}: {count}")).collect();
        eprintln!("attacks| early: {}", told.join(", "));
    }
}
