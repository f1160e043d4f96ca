//! Random actions at a place: which, how many, and the file in which each is noted before it begins.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;
use fastrand::Rng;

use super::actions;
use super::plan::{self, Plan};
use super::pools;
use super::prices::price;
use super::rows;

/// All that have begun, the dear ones by their price.
static ACTIONS: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(0);
static FILE: OnceLock<File> = OnceLock::new();

std::thread_local! {
    static THREAD: u64 = THREADS.fetch_add(1, Relaxed);
    /// The seed of the next visit on this thread.
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Opens the file that `GENERATOR_LOG` names, if it does.
pub(super) fn open() {
    let options =
        || std::env::var_os("GENERATOR_LOG").and_then(|path| File::options().append(true).create(true).open(path).ok());
    if let Some(file) = options() {
        let _ = FILE.set(file);
    }
}

/// One line, which outlives the process: its threads' lines stand in the order in which they were written.
fn note(line: std::fmt::Arguments<'_>) {
    if let Some(mut file) = FILE.get() {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// What an action is about, which the log tells beside it.
pub(super) fn remark(text: std::fmt::Arguments<'_>) {
    note(format_args!(" {text}"));
}

/// An action that the thread is in until this is dropped.
struct Noted(u64);

impl Noted {
    fn new(place: &str, action: &str) -> Self {
        let thread = THREAD.try_with(|thread| *thread).unwrap_or(u64::MAX);
        note(format_args!("+{thread} {action} in {place}"));
        Self(thread)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        note(format_args!("-{}", self.0));
    }
}

/// How many actions have begun.
pub(super) fn count() -> u64 {
    ACTIONS.load(Relaxed)
}

/// A stay at a place in which the thread acts.
struct Turn {
    plan: &'static Plan,
    place: &'static str,
    random: Rng,
}

impl Turn {
    /// None if the seed says that nothing is done this time.
    fn take(place: &'static str) -> Option<Self> {
        let plan = plan::current()?;
        if count() >= plan::budget() {
            return None;
        }
        let every = plan.every(place)?;
        // Where a thread ends, its locals may be gone.
        let thread = THREAD.try_with(|thread| *thread).ok()?;
        let seed = NEXT.try_with(|next| next.replace(next.get() + 1)).ok()?;
        let mut random = Rng::with_seed(plan.number("threads") ^ (thread << 32) ^ seed);
        if random.u32(0..every) > 0 {
            return None;
        }
        let depth = DEPTH.try_with(Cell::get).ok()?;
        if depth >= plan.depth {
            return None;
        }
        DEPTH.set(depth + 1);
        Some(Self { plan, place, random })
    }

    /// Whether this action is made now; if so it is noted.
    fn begin(&mut self, action: &'static str) -> Option<Noted> {
        let price = price(action);
        if !self.plan.has(action) || self.random.u64(0..price) > 0 {
            return None;
        }
        let number = ACTIONS.fetch_add(price, Relaxed);
        assert!(
            !self.plan.panic_at.is_some_and(|at| (number..number + price).contains(&at)),
            "as planned, in {}",
            self.place
        );
        Some(Noted::new(self.place, action))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// Makes a random call of a table of the matrix, or a random action of a table of this profiler. `$cx` is what they
/// take.
macro_rules! random_call {
    ($turn:ident, $rows:expr, $more:expr, $($cx:expr),*) => {{
        let (rows, more) = ($rows, $more);
        let at = $turn.random.usize(0..rows.len() + 2 * more.len());
        if let Some((name, ask)) = rows.get(at) {
            if let Some(_noted) = $turn.begin(name) && let Some(facts) = pools::facts(&mut $turn.random) {
                let _ = ask($($cx,)* &facts);
            }
        } else {
            // They do more, so they come twice as often.
            let (name, act) = &more[(at - rows.len()) / 2];
            if let Some(_noted) = $turn.begin(name) {
                let _ = act($($cx,)* &mut $turn.random);
            }
        }
    }};
}

fn one_anywhere(turn: &mut Turn, cx: &Info) {
    random_call!(turn, rows::ANYWHERE, actions::ANYWHERE, cx);
}

fn one_in_no_gc(turn: &mut Turn, cx: &InNoGc<'_>, object: Option<ObjectId<'_>>) {
    match (object, turn.random.u32(0..4)) {
        (_, 0) => one_anywhere(turn, cx),
        (Some(object), 1 | 2) => one_of_object(turn, cx, object),
        _ => random_call!(turn, rows::IN_NO_GC, actions::IN_NO_GC, cx),
    }
}

/// The matrix asks about an object without other subjects.
fn one_of_object(turn: &mut Turn, cx: &InNoGc<'_>, object: ObjectId<'_>) {
    let rows = rows::OF_OBJECTS;
    let more = actions::OF_OBJECTS;
    let at = turn.random.usize(0..rows.len() + 2 * more.len());
    if let Some((name, ask)) = rows.get(at) {
        if let Some(_noted) = turn.begin(name) {
            let _ = ask(cx, object);
        }
    } else {
        let (name, act) = &more[(at - rows.len()) / 2];
        if let Some(_noted) = turn.begin(name) {
            let _ = act(cx, object, &mut turn.random);
        }
    }
}

fn one_in_callback(turn: &mut Turn, cx: &mut InCallback<'_>) {
    if turn.random.u32(0..5) < 2 {
        return one_in_no_gc(turn, cx, None);
    }
    random_call!(turn, rows::IN_CALLBACK, actions::IN_CALLBACK, cx);
}

/// On any thread, with no more than a clone of `Info`.
pub(super) fn anywhere(cx: &Info, place: &'static str) {
    let Some(mut turn) = Turn::take(place) else { return };
    one_anywhere(&mut turn, cx);
}

/// In a callback that may start no collection, and may be given an object.
pub(super) fn in_no_gc(cx: &InNoGc<'_>, place: &'static str, object: Option<ObjectId<'_>>) {
    let Some(mut turn) = Turn::take(place) else { return };
    for _ in 0..turn.random.u32(1..4) {
        one_in_no_gc(&mut turn, cx, object);
    }
}

/// Where calls about an object may be made, and no others.
pub(super) fn of_object(cx: &InNoGc<'_>, place: &'static str, object: ObjectId<'_>) {
    let Some(mut turn) = Turn::take(place) else { return };
    one_of_object(&mut turn, cx, object);
}

/// In a callback that may start a collection.
pub(super) fn in_callback(cx: &mut InCallback<'_>, place: &'static str) {
    let Some(mut turn) = Turn::take(place) else { return };
    for _ in 0..turn.random.u32(1..4) {
        one_in_callback(&mut turn, cx);
    }
}

/// On a profiler thread.
pub(super) fn on_own_thread(cx: &mut ProfilerThread<'_>, place: &'static str) {
    let Some(mut turn) = Turn::take(place) else { return };
    for _ in 0..turn.random.u32(1..4) {
        if turn.random.u32(0..3) > 0 {
            one_in_callback(&mut turn, cx);
        } else {
            random_call!(turn, rows::ON_PROFILER_THREAD, actions::ON_OWN_THREAD, cx);
        }
    }
}
