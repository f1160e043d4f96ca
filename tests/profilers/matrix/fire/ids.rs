//! Identifiers that come and go: a live one is answered, in its own callback above all; a dead one is refused.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sys;

use super::super::places::FACTS;
use super::{IS_BURNING, fault};

/// How many of each kind are kept, the newest.
const KEPT: usize = 1000;

/// An identifier may begin anew at a dead one's address: so long after, the profiler has heard of it.
const SETTLED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in super::super) enum Id {
    Assembly(AssemblyId),
    Module(ModuleId),
    Class(ClassId),
    Function(FunctionId),
}

#[derive(Default)]
struct Ids {
    /// Classes and functions of the program's own, which never go.
    lasting: VecDeque<Id>,
    /// The others, with the module that they go with.
    passing: VecDeque<(Id, Option<ModuleId>)>,
    dead: VecDeque<Id>,
    /// Dead ones that were answered, unless they have begun anew.
    suspects: HashMap<Id, (Instant, String)>,
}

static IDS: Mutex<Option<Ids>> = Mutex::new(None);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static LASTING: AtomicU64 = AtomicU64::new(0);
/// Functions of the program's own that were refused on a runtime that does not report the class of shared code.
static DOUBTED: AtomicU64 = AtomicU64::new(0);
static DEAD: AtomicU64 = AtomicU64::new(0);
static PASSING_REFUSED: AtomicU64 = AtomicU64::new(0);

/// Nothing is asked while it is held.
fn ids() -> MutexGuard<'static, Option<Ids>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that can be asked about it.
fn answers(cx: &InNoGc<'_>, id: Id) -> Vec<(&'static str, Result<()>)> {
    match id {
        Id::Assembly(id) => vec![("assembly_info", cx.assembly_info(id).map(drop))],
        Id::Module(id) => {
            vec![("module_info", cx.module_info(id).map(drop)), ("metadata", cx.metadata(id).map(drop))]
        }
        Id::Class(id) => vec![
            ("class_info", cx.class_info(id).map(drop)),
            ("array_class", cx.array_class(id).map(drop)),
            ("class_layout", cx.class_layout(id).map(drop)),
        ],
        Id::Function(id) => vec![
            ("function_info", cx.function_info(id).map(drop)),
            ("code_ranges", cx.code_ranges(id).map(drop)),
            ("native_code", cx.native_code(id).map(drop)),
        ],
    }
}

/// The answers by which the identifier counts as dead, and whether there are others.
fn is_refused(answer: &Result<()>) -> bool {
    answer.as_ref().is_err_and(|error| error.code() == sys::COR_E_OBJECTDISPOSED)
}

/// In a callback about `id`, which is therefore there.
fn must_answer(cx: &InNoGc<'_>, id: Id, place: &str) {
    for (call, answer) in answers(cx, id) {
        if is_refused(&answer) {
            fault(format_args!("{call} refuses {id:?} as dead in {place} ({})", described(cx, id)));
        } else {
            LIVE.fetch_add(1, Relaxed);
        }
    }
}

fn described(cx: &InNoGc<'_>, id: Id) -> String {
    match id {
        Id::Assembly(_) | Id::Module(_) => String::new(),
        Id::Class(id) => cx.names().class(id).to_string(),
        Id::Function(id) => cx.names().function(id).to_string(),
    }
}

/// In the first callback about it: it is kept for later calls.
pub(in super::super) fn loaded(cx: &InNoGc<'_>, id: Id, place: &'static str) {
    if !IS_BURNING.load(Relaxed) {
        return;
    }
    must_answer(cx, id, place);
    let module = match id {
        Id::Assembly(_) => None,
        Id::Module(module) => Some(module),
        Id::Class(class) => cx.class_info(class).ok().map(|info| info.module),
        Id::Function(function) => cx.function_info(function).ok().map(|info| info.module),
    };
    let is_of_the_program = module.is_some() && module == FACTS.known().ok().map(|known| known.module);
    let is_lasting = is_of_the_program && described(cx, id).starts_with("Cell");
    let mut ids = ids();
    let ids = ids.get_or_insert_default();
    ids.dead.retain(|dead| *dead != id);
    ids.suspects.remove(&id);
    if is_lasting {
        push(&mut ids.lasting, id);
    } else {
        push(&mut ids.passing, (id, module));
    }
}

fn push<T>(kept: &mut VecDeque<T>, id: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(id);
}

/// In the callback that says that it is about to go.
pub(in super::super) fn unloading(cx: &InNoGc<'_>, id: Id, place: &'static str) {
    if IS_BURNING.load(Relaxed) {
        must_answer(cx, id, place);
    }
}

/// A module is gone, and with it all that is in it.
pub(in super::super) fn gone(module: Inert<ModuleId>) {
    let mut ids = ids();
    let Some(ids) = ids.as_mut() else { return };
    let mut stay = VecDeque::with_capacity(KEPT);
    for (id, owner) in ids.passing.drain(..) {
        if owner.is_some_and(|owner| module == owner) {
            push(&mut ids.dead, id);
        } else {
            stay.push_back((id, owner));
        }
    }
    ids.passing = stay;
}

/// Before .NET 10 the runtime does not report the classes over which shared code was made. Their life has to be
/// proved from the place of the code. Without a proof corprof refuses the call, because it could crash.
fn tells_shared_classes(cx: &InNoGc<'_>) -> bool {
    cx.runtime_info().is_ok_and(|runtime| runtime.major >= 10)
}

/// One in a thousand answers may be such a refusal, or a handful in a short run.
fn doubted() {
    let doubted = DOUBTED.fetch_add(1, Relaxed) + 1;
    let answered = LASTING.load(Relaxed);
    if doubted > 100 && doubted > answered / 1000 {
        fault(format_args!("more than one in a thousand functions of the program's own is refused as dead"));
    }
}

/// Asks about one of each kind.
pub(super) fn ask(cx: &InNoGc<'_>, place: &'static str) {
    let next = NEXT.fetch_add(1, Relaxed);
    let (lasting, passing, dead) = {
        let ids = ids();
        let Some(ids) = ids.as_ref() else { return };
        let at = |count: usize| if count == 0 { 0 } else { next.wrapping_mul(31) % count };
        let lasting = ids.lasting.get(at(ids.lasting.len())).copied();
        let passing = ids.passing.get(at(ids.passing.len())).map(|(id, _)| *id);
        (lasting, passing, ids.dead.get(at(ids.dead.len())).copied())
    };
    if let Some(id) = lasting {
        for (call, answer) in answers(cx, id) {
            if is_refused(&answer) && matches!(id, Id::Function(_)) && !tells_shared_classes(cx) {
                doubted();
            } else if is_refused(&answer) {
                fault(format_args!(
                    "{call} refuses {id:?} as dead in {place}, which never goes ({})",
                    described(cx, id)
                ));
            } else {
                LASTING.fetch_add(1, Relaxed);
            }
        }
    }
    for (_, answer) in passing.into_iter().flat_map(|id| answers(cx, id)) {
        if is_refused(&answer) { &PASSING_REFUSED } else { &LIVE }.fetch_add(1, Relaxed);
    }
    if let Some(id) = dead {
        for (call, answer) in answers(cx, id) {
            if is_refused(&answer) {
                DEAD.fetch_add(1, Relaxed);
            } else if let Some(ids) = ids().as_mut() {
                let what = format!("{call} in {place} answers {answer:?}");
                ids.suspects.entry(id).or_insert_with(|| (Instant::now(), what));
            }
        }
    }
}

/// Decides about dead identifiers that were answered: those that have not begun anew since are a fault.
pub(super) fn settle(cx: &InNoGc<'_>) {
    let settled: Vec<_> = {
        let mut ids = ids();
        let Some(ids) = ids.as_mut() else { return };
        let settled = ids.suspects.extract_if(|_, (since, _)| since.elapsed() > SETTLED);
        settled.filter(|(id, _)| ids.dead.contains(id)).collect()
    };
    for (id, (_, what)) in settled {
        let still = answers(cx, id).iter().any(|(_, answer)| !is_refused(answer));
        let is_dead = ids().as_ref().is_some_and(|ids| ids.dead.contains(&id));
        if still && is_dead {
            fault(format_args!("{id:?} is of an unloaded module: {what}"));
        }
    }
}

/// How many answers there were.
pub(super) fn report() -> String {
    let count = |count: &AtomicU64| count.load(Relaxed);
    format!(
        "ids.lasting={} ids.doubted={} ids.live={} ids.passing-refused={} ids.dead={}",
        count(&LASTING),
        count(&DOUBTED),
        count(&LIVE),
        count(&PASSING_REFUSED),
        count(&DEAD)
    )
}
