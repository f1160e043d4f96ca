//! The matrix under fire: the rows are asked over and over, from every place, while other threads collect, want the
//! same lock, and load and unload assemblies. `xtask/src/stress/fire.rs` starts it and judges its output.
//!
//! | variable | meaning |
//! |---|---|
//! | `MATRIX_FIRE` | the condition: `collect`, `lock` (rows are asked under one [`Mutex`]), `unload`; or `idle`, in which the profiler listens and asks nothing |
//! | `MATRIX_TARGET` | how often each cell is asked; then a place is left alone |
//! | `MATRIX_SEED` | shifts the order of the rows |
//! | `MATRIX_HOOKS` | `fast`, `values` or `none` |
//! | `MATRIX_WITHOUT` | event flags to do without, separated by commas, as `EventMask` spells them |
//! | `MATRIX_WITHOUT_CALLS` | calls to leave out, as IDL spells them, to narrow a fault down |
//! | `MATRIX_PANIC` | the number of the visit that panics |
//! | `MATRIX_BLACK_BOX` | a file for the current call of each thread: see `black_box.rs` |
//!
//! On standard error: `fire-fault: …` for a fault, `fire-stuck: …` for a call that does not return, and at the end
//! the lines of `cells.rs` and one of sums, `fire: key=value …`.

mod black_box;
mod cells;
mod endings;
mod hooks;
mod ids;
mod prices;

use std::collections::HashSet;
use std::env;
use std::fmt::Display;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::context::Context;
use corprof::prelude::*;
use corprof::sync::{Mutex, MutexGuard};

use super::places::{FACTS, INFO};
use super::rows;
use cells::{Level, Visit};
pub(super) use ids::{Id, gone, loaded, unloading};

/// A call that has not returned after so many seconds is reported.
const STUCK: u64 = 20;

/// Faults that are printed. All are counted.
const PRINTED: u64 = 40;

struct Plan {
    is_locking: bool,
    is_idle: bool,
    target: u64,
    seed: usize,
    /// The contexts that are to be full before the program may end.
    contexts: Vec<&'static str>,
    panic_at: Option<u64>,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
static IS_BURNING: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<u64> = Mutex::new(0);
static VISITS: AtomicU64 = AtomicU64::new(0);
static FAULTS: AtomicU64 = AtomicU64::new(0);
/// Objects with an unchanged class, and hooks with unchanged values.
static OBJECTS: AtomicU64 = AtomicU64::new(0);
static VALUES: AtomicU64 = AtomicU64::new(0);

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

fn plan() -> Option<&'static Plan> {
    let make = || {
        let condition = env::var("MATRIX_FIRE").ok()?;
        let mut contexts = vec!["Info", "InNoGc", "InCallback", "ProfilerThread"];
        contexts.extend(match env::var("MATRIX_HOOKS").as_deref() {
            Ok("fast") => Some("InHook"),
            Ok("values") => Some("InSlowHook"),
            _ => None,
        });
        Some(Plan {
            is_locking: condition == "lock",
            is_idle: condition == "idle",
            target: number("MATRIX_TARGET").unwrap_or(1000),
            seed: number("MATRIX_SEED").unwrap_or_default() as usize,
            contexts,
            panic_at: number("MATRIX_PANIC"),
        })
    };
    PLAN.get_or_init(make).as_ref()
}

/// Whether the matrix is under fire, and not asked once.
pub(super) fn is_on() -> bool {
    plan().is_some()
}

/// Says that something is as it must not be.
fn fault(what: impl Display) {
    if FAULTS.fetch_add(1, Relaxed) < PRINTED {
        eprintln!("fire-fault: {what}");
    }
}

/// In `initialize`.
pub(super) fn prepare(cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
    black_box::open();
    cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
    for name in env::var("MATRIX_WITHOUT").unwrap_or_default().split(',').filter(|name| !name.is_empty()) {
        cx.remove_events(EventMask::from_name(name).ok_or_else(|| format!("no event flag {name}"))?)?;
    }
    match env::var("MATRIX_HOOKS").as_deref() {
        Ok("fast") => drop(cx.hooks(hooks::Fast).install()?),
        Ok("values") => drop(cx.hooks(hooks::WithValues).install()?),
        _ => {}
    }
    Ok(())
}

/// From here on the callbacks ask, as there is one of everything to ask about, and so do other threads.
pub(super) fn start(cx: &mut InCallback<'_>) {
    if plan().is_some_and(|plan| plan.is_idle) {
        return;
    }
    // So that events which are written come to callbacks. The session lasts as long as the process.
    let _ = cx.event_pipe_start_session(&[rows::provider_config("Corprof-Matrix")], false);
    let info = Info::clone(cx);
    std::thread::spawn(move || {
        loop {
            on_thread(&info, if endings::is_over() { "a foreign thread after shutdown" } else { "a foreign thread" });
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    std::thread::spawn(watch);
    for (name, is_marked) in [("profiler thread", false), ("profiler thread that is marked", true)] {
        let spawned = cx.spawn_profiler_thread(name, move |cx| {
            while cx.wait(Duration::from_micros(200)).is_continue() {
                on_profiler_thread(cx, name, is_marked);
                ids::settle(cx);
            }
        });
        if let Err(error) = spawned {
            fault(format_args!("no {name}: {error}"));
        }
    }
    IS_BURNING.store(true, Relaxed);
}

/// Reports calls that do not return, each once.
fn watch() {
    let mut told = HashSet::new();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let stuck = black_box::stuck(STUCK).into_iter().filter(|call| told.insert(*call));
        stuck.for_each(|(place, method)| eprintln!("fire-stuck: {method} in {place} has not returned for {STUCK} s"));
    }
}

/// Whether every context has asked enough, for the program to ask.
pub(super) fn is_done() -> bool {
    plan().is_some_and(|plan| cells::are_full(plan.target, &plan.contexts))
}

fn visit(name: &'static str, context: &'static str) -> Option<(Visit, &'static Plan)> {
    if !IS_BURNING.load(Relaxed) {
        return None;
    }
    let plan = plan()?;
    let visit = Visit::begin(name, context, plan.target, plan.seed)?;
    let number = VISITS.fetch_add(1, Relaxed);
    assert!(plan.panic_at != Some(number), "as it was told to, in {name}");
    Some((visit, plan))
}

/// The lock, if this is about the lock.
fn lock<'a>(plan: &Plan, cx: &'a impl Context) -> Option<MutexGuard<'a, u64>> {
    let mut guard = plan.is_locking.then(|| LOCK.lock(cx))?;
    *guard += 1;
    Some(guard)
}

fn ask_anywhere(visit: &Visit, info: &Info, check: impl FnMut(&str)) {
    visit.ask(Level::Info, |row| rows::ANYWHERE[row].1(info, &FACTS), check);
}

fn ask_in_no_gc(visit: &Visit, cx: &InNoGc<'_>, mut check: impl FnMut(&str)) {
    ask_anywhere(visit, cx, &mut check);
    visit.ask(Level::InNoGc, |row| rows::IN_NO_GC[row].1(cx, &FACTS), &mut check);
}

/// On a thread that is in no callback.
pub(super) fn on_thread(info: &Info, name: &'static str) {
    if let Some((visit, _)) = visit(name, "Info") {
        ask_anywhere(&visit, info, |_| {});
    }
}

/// In a callback that may start no collection, and may be given an object: its class must not change.
pub(super) fn with_object(cx: &InNoGc<'_>, name: &'static str, object: Option<ObjectId<'_>>) {
    let Some((visit, plan)) = visit(name, "InNoGc") else { return };
    let _guard = lock(plan, cx);
    // Objects that are unreadable here (see `finalizeable_object_queued`) are not compared.
    let class = object.and_then(|object| Some((object, cx.class_of(object).ok()?)));
    let check = |method: &str| {
        let Some((object, class)) = class else { return };
        match cx.class_of(object) {
            Ok(now) if now == class => _ = OBJECTS.fetch_add(1, Relaxed),
            now => fault(format_args!("an object of {class:?} is of {now:?} after {method} in {name}")),
        }
    };
    ask_in_no_gc(&visit, cx, check);
    if let Some(object) = object {
        visit.ask(Level::Object, |row| rows::OF_OBJECTS[row].1(cx, object), check);
    }
    ids::ask(cx, name);
}

/// In a callback that may start a collection.
pub(super) fn in_callback(cx: &mut InCallback<'_>, name: &'static str) {
    if let Some((visit, plan)) = visit(name, "InCallback") {
        ask_in_callback(&visit, plan, cx, name);
    }
}

fn ask_in_callback(visit: &Visit, plan: &Plan, cx: &mut InCallback<'_>, name: &'static str) {
    {
        let _guard = lock(plan, cx);
        ask_in_no_gc(visit, cx, |_| {});
        ids::ask(cx, name);
    }
    visit.ask(Level::InCallback, |row| rows::IN_CALLBACK[row].1(cx, &FACTS), |_| {});
}

/// On a profiler thread: with the calls that mark it, or without.
fn on_profiler_thread(cx: &mut ProfilerThread<'_>, name: &'static str, is_marked: bool) {
    let Some((visit, plan)) = visit(name, "ProfilerThread") else { return };
    ask_in_callback(&visit, plan, cx, name);
    if is_marked {
        visit.ask(Level::ProfilerThread, |row| rows::ON_PROFILER_THREAD[row].1(cx, &FACTS), |_| {});
    }
}

/// At `shutdown`: all that has been counted.
pub(super) fn report() {
    let Some(plan) = plan() else { return };
    let count = |count: &AtomicU64| count.load(Relaxed);
    let sums = format!(
        "fire: calls={} visits={} objects={} values={} faults={} {}\n",
        black_box::calls(),
        count(&VISITS),
        count(&OBJECTS),
        count(&VALUES),
        count(&FAULTS),
        ids::report(),
    );
    eprint!("{}{sums}", cells::report(plan.target));
}

/// The program calls this from a managed thread outside of callbacks. Returns whether all calls were made often enough.
pub(super) fn probe() -> bool {
    if let Some(info) = INFO.get() {
        on_thread(info, "a managed thread outside of callbacks");
    }
    is_done()
}

/// After the last word of the profiler, and where threads end.
pub(super) use endings::{shut_down, thread_begins};

/// How many visits there have been.
fn visits() -> u64 {
    VISITS.load(Relaxed)
}
