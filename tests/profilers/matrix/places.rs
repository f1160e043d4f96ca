//! Places: where the calls of rows are made, each once, and the output about it.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use corprof::prelude::*;

use super::facts::{Facts, NOTHING_YET};
use super::raw::{self, RawRow};
use super::{fire, modes, rows};

/// The subjects of the rows.
pub(super) static FACTS: Facts = Facts::new();

/// For threads outside of callbacks. It is never dropped: the process ends first.
pub(super) static INFO: OnceLock<Info> = OnceLock::new();

/// The callbacks, of those that may not start a collection, from which calls that do so are tried. The runtime refuses
/// each.
const REFUSING: &[&str] = &[
    "exception_catcher_enter",
    "exception_unwind_finally_enter",
    "exception_unwind_finally_leave",
    "exception_unwind_function_enter",
    "exception_unwind_function_leave",
    "garbage_collection_finished",
    "garbage_collection_started",
    "handle_created",
    "handle_destroyed",
    "moved_references2",
    "object_references",
    "root_references2",
    "runtime_suspend_finished",
    "runtime_suspend_started",
    "runtime_thread_resumed",
    "surviving_references2",
    "thread_assigned_to_os_thread",
];

std::thread_local! {
    /// Whether the thread is asking already: a callback inside of a call inside of a callback has the rights of both.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
    /// Whether the runtime no longer checks this thread, so that callbacks on it would prove nothing.
    static IS_UNCHECKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `ask` if it is this place's turn: for the first time, and with something to ask about.
fn once(place: &'static str, ask: impl FnOnce()) {
    static SEEN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let is_first = (FACTS.is_known() || place == "initialize")
        && !modes::is_on()
        && !IS_UNCHECKED.get()
        && !IS_ASKING.get()
        && SEEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(place);
    if is_first {
        IS_ASKING.set(true);
        ask();
        IS_ASKING.set(false);
    }
}

fn tell(place: &str, level: &str, method: &str, answer: &Result<()>) {
    let answer = match answer {
        Ok(()) => "ok".to_owned(),
        Err(error) if *error == NOTHING_YET => error.call().to_owned(),
        Err(error) => error.name().map_or_else(|| error.to_string(), str::to_owned),
    };
    eprintln!("matrix|{place}|{level}|{method}|{answer}");
}

fn tell_raw(info: &Info, place: &str, rows: &[RawRow]) {
    let Ok(known) = FACTS.known() else { return };
    for (method, call) in rows {
        if let Some(code) = call(info, known) {
            tell(place, "raw", method, &Error::check(code, method));
        }
    }
}

fn ask_anywhere(info: &Info, place: &str) {
    for (method, ask) in rows::ANYWHERE {
        tell(place, "Info", method, &ask(info, &FACTS));
    }
}

fn ask_in_no_gc(cx: &InNoGc<'_>, place: &str) {
    ask_anywhere(cx, place);
    for (method, ask) in rows::IN_NO_GC {
        tell(place, "InNoGc", method, &ask(cx, &FACTS));
    }
}

fn ask_in_callback(cx: &mut InCallback<'_>, place: &str) {
    ask_in_no_gc(cx, place);
    for (method, ask) in rows::IN_CALLBACK {
        tell(place, "InCallback", method, &ask(cx, &FACTS));
    }
}

/// In a callback that may not start a collection.
pub(super) fn in_no_gc(cx: &InNoGc<'_>, place: &'static str) {
    with_object(cx, place, None);
}

/// In a callback that may not start a collection, and may be given an object.
pub(super) fn with_object(cx: &InNoGc<'_>, place: &'static str, object: Option<ObjectId<'_>>) {
    if fire::is_on() {
        return fire::with_object(cx, place, object);
    }
    once(place, || {
        ask_in_no_gc(cx, place);
        if let Some(object) = object {
            for (method, ask) in rows::OF_OBJECTS {
                tell(place, "ObjectId", method, &ask(cx, object));
            }
        }
        // The runtime checks managed threads only, and would let another thread deadlock.
        if REFUSING.contains(&place) && cx.current_thread().is_ok_and(|thread| thread.is_some()) {
            tell_raw(cx, place, raw::TRIGGERING);
        }
    });
}

/// In a callback that may start a collection.
pub(super) fn in_callback(cx: &mut InCallback<'_>, place: &'static str) {
    if fire::is_on() {
        return fire::in_callback(cx, place);
    }
    once(place, || {
        ask_in_callback(cx, place);
        if place == "jit_compilation_started" {
            tell_raw(cx, place, raw::INSPECTING);
            tell_raw(cx, place, raw::AT_START_UP);
        }
    });
}

/// On a thread that is in no callback.
pub(super) fn on_thread(info: &Info, place: &'static str) {
    once(place, || {
        ask_anywhere(info, place);
        let is_managed = info.current_thread().is_ok_and(|thread| thread.is_some());
        if is_managed {
            tell_raw(info, place, raw::SYNC);
            tell_raw(info, place, raw::TRIGGERING);
            tell_raw(info, place, raw::AT_START_UP);
        }
        tell_raw(info, place, raw::INSPECTING);
    });
}

/// On a profiler thread, before and after the calls that mark it.
fn on_profiler_thread(cx: &mut ProfilerThread<'_>) {
    IS_UNCHECKED.set(true);
    ask_in_callback(cx, "profiler thread");
    for (method, ask) in rows::ON_PROFILER_THREAD {
        tell("profiler thread", "ProfilerThread", method, &ask(cx, &FACTS));
    }
    ask_in_callback(cx, "profiler thread that is marked");
}

/// Has the profiler's threads do their part, and waits for them, twenty seconds each at most.
pub(super) fn others(cx: &mut InCallback<'_>) {
    if fire::is_on() {
        return fire::start(cx);
    }
    // So that the event that they write is wanted.
    let session = cx.event_pipe_start_session(&[rows::provider_config("Corprof-Matrix")], false);
    let info = Info::clone(cx);
    let (tell, told) = mpsc::channel();
    let is_told = || told.recv_timeout(Duration::from_secs(20)).is_ok();
    let done = tell.clone();
    // One after the other: during a collection, which the second forces, the runtime lets a foreign thread ask about
    // objects.
    std::thread::spawn(move || {
        on_thread(&info, "a foreign thread");
        let _ = tell.send(());
    });
    let is_foreign_done = is_told();
    let spawned = cx.spawn_profiler_thread("own", move |cx| {
        on_profiler_thread(cx);
        let _ = done.send(());
    });
    let is_done = is_foreign_done && spawned.is_ok() && is_told();
    if let Ok(session) = session {
        let _ = cx.event_pipe_stop_session(session);
    }
    eprintln!("matrix: others done: {is_done}");
}

/// The calls that mark a thread for good, on one that does nothing else.
pub(super) fn marking(cx: &mut InCallback<'_>) {
    tell_raw(cx, "scratch", raw::MARKING);
    IS_UNCHECKED.set(true);
}
