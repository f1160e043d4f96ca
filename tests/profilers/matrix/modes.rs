//! Whether a call leaves the runtime's cooperative mode or waits for a collection. Every row that a context offers by
//! `&self` is checked for the one or the other, as `MATRIX_MODES` says, and each answer is a line
//! `modes|CHECK|METHOD|TIMES|FAULTS`.
//!
//! `leaves`: a collection is under way and waits for this thread, which is in `object_allocated`, in cooperative mode.
//! A call during which the collection begins has let it in, and with it the object may have moved.
//!
//! `waits`: a collection has begun and stands still in `garbage_collection_started`, until the call is done. A call
//! that is not done within [`PATIENCE`] waits for the collection, which may wait in turn for a lock that the caller
//! holds.
//!
//! Each time, a row is asked about another function, with its own module and class: the runtime's preparations at the
//! first call about a subject are a part of the call.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use corprof::prelude::*;

use super::facts::{Facts, Known};
use super::places::FACTS;
use super::rows::{self, provider_config};

/// How often each row is asked in each check.
const TIMES: usize = 20;

/// The time limit for a call that does not wait.
const PATIENCE: Duration = Duration::from_millis(500);

/// Collections that have begun.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
/// Collections that the collecting thread has been asked for, and those that it has gone to ask the runtime for.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static ASKED: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);
/// Whether collections stand still at their beginning.
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// Which trial of `leaves` comes next.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The thread that makes the trials: the only one, once it is known.
static TRIED_BY: OnceLock<ThreadId> = OnceLock::new();
static FAULTS: [AtomicUsize; 128] = [const { AtomicUsize::new(0) }; 128];
/// The subjects of the trials.
static SUBJECTS: OnceLock<Vec<Facts>> = OnceLock::new();

type Ask = fn(&InNoGc<'_>, &Facts) -> Result<()>;

/// Operations without a row in the contract table, which make several calls.
const MORE: &[(&str, Ask)] = &[
    ("names", |cx, facts| {
        let known = facts.known()?;
        let names = cx.names();
        let function = names.function(known.function);
        let class = names.class(known.class);
        let module = names.module(known.module);
        assert!(!function.is_empty() && !class.is_empty() && !module.is_empty());
        Ok(())
    }),
    ("IMetaDataImport", |cx, facts| {
        let known = facts.known()?;
        let import = cx.metadata(known.module)?;
        let types = import.type_defs()?;
        for &type_def in types.iter().take(3) {
            import.methods(type_def)?;
            import.fields(type_def)?;
        }
        import.method(known.method).map(drop)
    }),
    ("IMetaDataEmit", |cx, facts| {
        cx.metadata_emit(facts.known()?.module)?;
        Ok(())
    }),
    ("SetEventMask2 of another mask", |cx, _| {
        let mask = cx.event_mask()?;
        cx.set_event_mask(mask ^ EventMask::MONITOR_SUSPENDS)?;
        cx.set_event_mask(mask)
    }),
];

/// Whether this check was requested.
pub(super) fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| std::env::var_os("MATRIX_MODES").is_some())
}

/// In `garbage_collection_started`.
pub(super) fn collection_started() {
    BEGUN.fetch_add(1, SeqCst);
    let since = Instant::now();
    while IS_HELD.load(SeqCst) && since.elapsed() < PATIENCE * 2 {
        thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < Duration::from_secs(20), "nothing happens");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Starts the thread that collects, and makes the trials that need a thread in preemptive mode.
pub(super) fn start(cx: &mut InCallback<'_>) {
    cx.spawn_profiler_thread("collects", |cx| {
        while !cx.is_stopping() {
            if WANTED.load(SeqCst) > ASKED.load(SeqCst) {
                ASKED.fetch_add(1, SeqCst);
                let _ = cx.force_gc();
                DONE.fetch_add(1, SeqCst);
            }
            thread::sleep(Duration::from_micros(100));
        }
    })
    .unwrap();
    // So that the event that a row writes is wanted.
    let session = cx.event_pipe_start_session(&[provider_config("Corprof-Matrix")], false);
    assert!(session.is_ok(), "{session:?}");
    let _ = SUBJECTS.set(subjects(cx).unwrap());
    let trial = |method: &str, ask: &dyn Fn(&Facts)| {
        let mut faults = 0;
        for time in 0..TIMES {
            let begun = BEGUN.load(SeqCst);
            IS_HELD.store(true, SeqCst);
            let wanted = WANTED.fetch_add(1, SeqCst) + 1;
            wait_for(|| BEGUN.load(SeqCst) > begun);
            let since = Instant::now();
            ask(subject(method.len() + time));
            faults += usize::from(since.elapsed() > PATIENCE);
            IS_HELD.store(false, SeqCst);
            wait_for(|| DONE.load(SeqCst) == wanted);
            if faults > 0 {
                break;
            }
        }
        eprintln!("modes|waits|{method}|{TIMES}|{faults}");
    };
    // A separate run, so that the runtime's preparations at the first call happen in the mode under test.
    if std::env::var_os("MATRIX_MODES").is_some_and(|check| check == "waits") {
        for (method, ask) in rows::ANYWHERE {
            trial(method, &|facts| _ = ask(cx, facts));
        }
        for (method, ask) in rows::IN_NO_GC.iter().chain(MORE) {
            trial(method, &|facts| _ = ask(cx, facts));
        }
        return;
    }
    let _ = TRIED_BY.set(cx.current_thread().unwrap().unwrap());
}

/// Everything compiled so far, one function after the other, no module before the others have had their turn.
fn subjects(cx: &mut InCallback<'_>) -> Result<Vec<Facts>> {
    let known = FACTS.known()?;
    let mut of_modules: BTreeMap<usize, Vec<Known>> = BTreeMap::new();
    for function in cx.jitted_functions()? {
        let Ok(info) = cx.function_info(function) else { continue };
        let Some(&code) = cx.native_code(function)?.first() else { continue };
        let class = info.class.unwrap_or(known.class);
        let method = info.token;
        let subject = Known { module: info.module, function, method, code, class, ..*known };
        of_modules.entry(info.module.as_raw()).or_default().push(subject);
    }
    let longest = of_modules.values().map(Vec::len).max().unwrap_or(0);
    let subjects = (0..longest).flat_map(|turn| of_modules.values().filter_map(move |known| known.get(turn)));
    Ok(subjects.map(|known| Facts::of(*known)).collect())
}

fn subject(number: usize) -> &'static Facts {
    let subjects = SUBJECTS.get().unwrap();
    &subjects[number % subjects.len()]
}

/// In `object_allocated`: the next trial, if this thread makes them.
pub(super) fn allocated(cx: &InNoGc<'_>, object: ObjectId<'_>) {
    let rows = rows::ANYWHERE.len() + rows::IN_NO_GC.len() + MORE.len() + rows::OF_OBJECTS.len();
    let next = NEXT.load(SeqCst);
    let is_ready = DONE.load(SeqCst) == WANTED.load(SeqCst) && next <= rows * TIMES;
    if !is_ready || TRIED_BY.get().is_none() || TRIED_BY.get().copied() != cx.current_thread().unwrap() {
        return;
    }
    NEXT.store(next + 1, SeqCst);
    if next == rows * TIMES {
        for (row, faults) in FAULTS.iter().enumerate().take(rows) {
            eprintln!("modes|leaves|{}|{TIMES}|{}", name(row), faults.load(SeqCst));
        }
        return;
    }
    let row = next % rows;
    let wanted = WANTED.fetch_add(1, SeqCst) + 1;
    wait_for(|| ASKED.load(SeqCst) == wanted);
    thread::sleep(Duration::from_millis(2)); // so that it waits for this thread
    let begun = BEGUN.load(SeqCst);
    ask(row, subject(next), cx, object);
    if BEGUN.load(SeqCst) != begun {
        FAULTS[row].fetch_add(1, SeqCst);
    }
}

fn name(row: usize) -> &'static str {
    let in_no_gc = rows::IN_NO_GC.iter().chain(MORE).map(|row| row.0);
    let all = rows::ANYWHERE.iter().map(|row| row.0).chain(in_no_gc);
    all.chain(rows::OF_OBJECTS.iter().map(|row| row.0)).nth(row).unwrap()
}

/// Makes the call of a row, and does not look at the answer, which is the other tests' concern.
fn ask(row: usize, facts: &Facts, cx: &InNoGc<'_>, object: ObjectId<'_>) {
    if let Some((_, ask)) = rows::ANYWHERE.get(row) {
        let _ = ask(cx, facts);
    } else if let Some((_, ask)) = rows::IN_NO_GC.iter().chain(MORE).nth(row - rows::ANYWHERE.len()) {
        let _ = ask(cx, facts);
    } else {
        let (_, ask) = rows::OF_OBJECTS[row - rows::ANYWHERE.len() - rows::IN_NO_GC.len() - MORE.len()];
        let _ = ask(cx, object);
    }
}
