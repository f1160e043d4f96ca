//! All that corprof can do to an application at once, for `xtask/src/stress`: a sampler of 1 kHz that names every
//! frame, and and the parts that `STRESS_PARTS` lists. Twice a second and at Shutdown it prints its counts on standard
//! error.

mod kept;
mod stacks;
mod watched;

use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corprof::args::{GcReason, Generations};
use corprof::prelude::*;
use corprof::sampler::{Report, Round, Sampler, Strategy};
use corprof::testing::suspension;

use kept::{Answers, Kept};
use stacks::{Stacks, StacksAndValues};

/// How many identifiers are kept, the newest: asking about all of them takes a while.
const KEPT: usize = 2000;

/// Of so many allocations one is looked at: the application should get somewhere, too.
const ALLOCATIONS: u64 = 64;

#[derive(Default)]
struct Counts {
    /// Own walks that showed a stack to its end, and those that the runtime refused.
    own_walks: AtomicU64,
    own_refused: AtomicU64,
    own_frames: AtomicU64,
    allocated: AtomicU64,
    collections: [AtomicU64; 2],
    suspensions: AtomicU64,
    hooks: AtomicU64,
    /// Hooks of a function that was not on top of its thread's shadow stack.
    strays: AtomicU64,
    /// Arguments and results that were read, and those of them that could not be.
    values: AtomicU64,
    unreadable: AtomicU64,
    /// Rounds whose counts contradict each other.
    inconsistent: AtomicU64,
    named: AtomicU64,
}

#[derive(Default)]
struct Shared {
    counts: Counts,
    kept: Mutex<VecDeque<Kept>>,
    answers: Answers,
    report: Mutex<Report>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

impl Shared {
    fn keep(&self, ids: impl IntoIterator<Item = Kept>) {
        let mut kept = lock(&self.kept);
        for id in ids {
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(id);
        }
    }

    /// Walks the calling thread's stack and names its frames.
    fn walk(&self, cx: &InNoGc<'_>) {
        let counts = &self.counts;
        let walked = cx.walk_own_stack(|frame| {
            if let Some(function) = frame.function() {
                let _name = cx.names().function(function);
                add(&counts.own_frames);
            }
            ControlFlow::Continue(())
        });
        add(if walked.is_ok() { &counts.own_walks } else { &counts.own_refused });
    }

    fn see(&self, round: &Round<'_, '_>) {
        let report = round.report();
        let counts = &self.counts;
        let threads = &report.threads;
        let became = [
            threads.walked,
            threads.without_frames,
            threads.failed,
            threads.filtered,
            threads.idle,
            threads.unmoved,
            threads.ended,
            threads.not_drawn,
            threads.left_out,
        ];
        let samples = round.samples().count();
        // Of the threads that have not moved, those have a stack to show that had one before.
        let shown = threads.walked..=threads.walked + threads.unmoved;
        if threads.seen != became.iter().sum() || !shown.contains(&samples) {
            add(&counts.inconsistent);
        }
        let names = round.cx().names();
        for sample in round.samples() {
            for function in sample.frames().iter().filter_map(|frame| frame.function) {
                // A name is never empty, in any state of the function.
                if names.function(function).is_empty() {
                    add(&counts.inconsistent);
                }
                add(&counts.named);
            }
            if let Some(leaf) = sample.frames().iter().find_map(|frame| frame.function) {
                self.keep([Kept::Function(leaf)]);
            }
        }
        lock(&self.report).clone_from(report);
    }

    /// One line, `key=value` each, written at once: the application writes there, too.
    fn tell(&self, when: &str) {
        let report = lock(&self.report).clone();
        let Self { counts, answers, .. } = self;
        let mut line = format!("stress: when={when}");
        let mut put = |key: &str, value: u64| _ = write!(line, " {key}={value}");
        put("rounds", report.rounds);
        put("samples", report.samples);
        put("skipped", report.skipped.total());
        put("late", report.skipped.late);
        put("busy", report.skipped.busy);
        put("ended", report.ended);
        put("delayed", report.delayed);
        put("retries", report.retries);
        put("incomplete", report.incomplete);
        put("truncated", report.truncated);
        put("abandoned", report.abandoned);
        put("unwound", report.unwound);
        put("suspension.longest-us", report.suspension.longest.as_micros() as u64);
        put("suspension.total-us", report.suspension.total.as_micros() as u64);
        put("violations", suspension::violations() as u64);
        let [started, finished] = &counts.collections;
        for (key, count) in [
            ("own.walks", &counts.own_walks),
            ("own.refused", &counts.own_refused),
            ("own.frames", &counts.own_frames),
            ("named", &counts.named),
            ("allocated", &counts.allocated),
            ("collections.started", started),
            ("collections.finished", finished),
            ("suspensions", &counts.suspensions),
            ("hooks", &counts.hooks),
            ("strays", &counts.strays),
            ("values", &counts.values),
            ("unreadable", &counts.unreadable),
            ("inconsistent", &counts.inconsistent),
            ("asked.good", &answers.good),
            ("asked.unexpected", &answers.unexpected),
        ] {
            put(key, count.load(Relaxed));
        }
        put("asked.dead", answers.dead.iter().map(|count| count.load(Relaxed)).sum());
        for (kind, codes) in [("walk", &report.walks), ("suspend", &report.refusals)] {
            for code in codes.to_string().split(", ").filter(|code| !code.is_empty()) {
                _ = write!(line, " {kind}.{}", code.replace(' ', "="));
            }
        }
        line.push('\n');
        eprint!("{line}");
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1B7C52-93A6-4F0D-8E21-7D5A6C3B0001", no_export)]
struct Stress(Arc<Shared>);

#[callbacks]
impl Callbacks for Stress {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let parts = std::env::var("STRESS_PARTS").unwrap_or_default();
        let has = |part: &str| parts.split(',').any(|listed| listed == part);
        for (part, events) in [
            (
                "walks",
                EventMask::MONITOR_EXCEPTIONS
                    | EventMask::MONITOR_OBJECT_ALLOCATED
                    | EventMask::ENABLE_OBJECT_ALLOCATED,
            ),
            ("keeps", EventMask::MONITOR_ASSEMBLY_LOADS | EventMask::MONITOR_CLASS_LOADS),
            ("collections", EventMask::HIGH_BASIC_GC),
            ("suspensions", EventMask::MONITOR_SUSPENDS),
        ] {
            if !has(part) {
                cx.remove_events(events)?;
            }
        }
        if has("values") {
            cx.hooks(StacksAndValues(Stacks(profiler.0.clone()))).install()?;
        } else if has("hooks") {
            cx.hooks(Stacks(profiler.0.clone())).install()?;
        }
        if has("keeps") {
            let shared = profiler.0.clone();
            cx.spawn_profiler_thread("asker", move |cx| {
                while cx.wait(Duration::from_millis(1)).is_continue() {
                    let kept = lock(&shared.kept).clone();
                    kept.into_iter().take_while(|_| !cx.is_stopping()).for_each(|id| shared.answers.ask(cx, id));
                }
            })?;
        }
        let sampler = Sampler::every(Duration::from_millis(1));
        let sampler = if has("budget") { sampler } else { sampler.budget(1.0) };
        let sampler = if has("on-cpu") { sampler.mode(corprof::sampler::Mode::Cpu) } else { sampler };
        let sampler =
            sampler.strategy(match (cfg!(windows) && has("seeded"), cfg!(target_os = "linux") && has("signals")) {
                (true, _) => Strategy::Seeded,
                (_, true) => Strategy::Signals,
                _ => Strategy::SuspendedRuntime,
            });
        let shared = profiler.0.clone();
        let mut told = Instant::now();
        sampler.start(cx, move |round| {
            shared.see(round);
            if told.elapsed() > Duration::from_millis(500) {
                told = Instant::now();
                shared.tell("running");
            }
        })?;
        Ok(profiler)
    }

    fn assembly_load_finished(&self, _cx: &mut InCallback<'_>, assembly: AssemblyId, status: Result<()>) {
        self.0.keep(status.is_ok().then_some(Kept::Assembly(assembly)));
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, status: Result<()>) {
        self.0.keep(status.is_ok().then_some(Kept::Module(module)));
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
        self.0.keep(status.is_ok().then_some(Kept::Class(class)));
    }

    fn jit_compilation_finished(
        &self,
        _cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.0.keep([Kept::Function(function)]);
    }

    fn thread_created(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.0.keep([Kept::Thread(thread)]);
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.0.walk(cx);
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, _object: ObjectId<'_>, _class: ClassId) {
        if self.0.counts.allocated.fetch_add(1, Relaxed).is_multiple_of(ALLOCATIONS) {
            self.0.walk(cx);
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.0.walk(cx);
    }

    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, _function: FunctionId) {
        self.0.walk(cx);
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, _function: FunctionId, _object: Option<ObjectId<'_>>) {
        self.0.walk(cx);
    }

    fn garbage_collection_started(&self, _cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        add(&self.0.counts.collections[0]);
    }

    fn garbage_collection_finished(&self, _cx: &InNoGc<'_>) {
        add(&self.0.counts.collections[1]);
    }

    // The threads stand still: a count and no more.
    fn runtime_thread_suspended(&self, _cx: &Info, _thread: corprof::id::Inert<ThreadId>) {
        add(&self.0.counts.suspensions);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.tell("shutdown");
    }
}

corprof::export!(Stress);
