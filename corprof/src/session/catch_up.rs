//! [`CatchUp`]: what has been reported to an attached profiler, so that each thing that was there already is reported
//! once.
//!
//! The runtime lists a thing a moment before it reports it by an event. So the catch-up and the events both ask here
//! first, and the first of them reports it. The set exists only for a profiler that catches up. Nothing here waits,
//! because the runtime holds locks of its own at some of these events: an end that arrives while the catch-up is in the
//! user's method for the same thing is noted, and the catch-up reports it afterwards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use crate::event_mask::{Event, EventSet};
use crate::lock::unpoisoned;

/// What has been reported since the attach.
#[derive(Default)]
pub(crate) struct CatchUp(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    /// By the event that reports the beginning of a thing, and the thing's identifier.
    states: FxHashMap<(Event, usize), State>,
    /// How many threads are compiling a function whose `jit_compilation_started` was seen.
    compilations: FxHashMap<usize, u32>,
    /// The report that the catch-up is making right now.
    current: Option<(Event, usize)>,
    /// The ends of the thing of `current` that have arrived meanwhile.
    postponed_ends: VecDeque<Event>,
    is_complete: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    ReportedByEvent,
    ReportedByCatchUp,
    /// The runtime may have listed it before.
    Ended,
}

/// The beginnings that an event can end.
const fn beginnings(end: Event) -> &'static [Event] {
    match end {
        Event::AssemblyUnloadStarted | Event::AssemblyUnloadFinished => &[Event::AssemblyLoadFinished],
        Event::ModuleUnloadStarted | Event::ModuleUnloadFinished => {
            &[Event::ModuleLoadFinished, Event::ModuleAttachedToAssembly]
        }
        Event::ThreadDestroyed => &[Event::ThreadCreated, Event::ThreadAssignedToOsThread],
        _ => &[],
    }
}

/// Whether an event's thing is one that the catch-up reports.
const fn is_beginning(event: Event) -> bool {
    matches!(
        event,
        Event::AssemblyLoadFinished
            | Event::ModuleLoadFinished
            | Event::ModuleAttachedToAssembly
            | Event::ThreadCreated
            | Event::ThreadAssignedToOsThread
    )
}

/// Whether the catch-up of a profiler with these callbacks must see an event, also if the profiler has no method for
/// it.
pub(crate) const fn must_see(callbacks: EventSet, event: Event) -> bool {
    if !callbacks.contains(Event::InitializeForAttach) {
        return false;
    }
    if matches!(event, Event::JitCompilationStarted | Event::JitCompilationFinished) {
        return callbacks.contains(Event::JitCompilationFinished);
    }
    if is_beginning(event) {
        return callbacks.contains(event);
    }
    let begins = beginnings(event);
    let mut at = 0;
    while at < begins.len() {
        if callbacks.contains(begins[at]) {
            return true;
        }
        at += 1;
    }
    false
}

impl CatchUp {
    fn reports(&self) -> MutexGuard<'_, Reports> {
        unpoisoned(self.0.lock())
    }

    /// The runtime makes an event about the thing `id`: whether the profiler's method is to be called now. If not, the
    /// catch-up has reported it, or will.
    pub(crate) fn is_for_profiler(&self, event: Event, id: usize) -> bool {
        let mut reports = self.reports();
        match event {
            Event::JitCompilationStarted => {
                reports.compilation_started(id);
                true
            }
            Event::JitCompilationFinished => reports.compilation_finished(id),
            event if is_beginning(event) => reports.thing_begins(event, id),
            event => reports.thing_ends(event, id),
        }
    }

    /// The catch-up is about to report a thing that the runtime has listed: whether it is the first. If so, ask for
    /// [`postponed_end`](Self::postponed_end) afterwards, until there is none.
    pub(crate) fn begin_report(&self, event: Event, id: usize) -> bool {
        let mut reports = self.reports();
        // The event at the end of this compilation reports the function.
        let is_compiling = event == Event::JitCompilationFinished && reports.compilations.contains_key(&id);
        if is_compiling || reports.states.contains_key(&(event, id)) {
            return false;
        }
        reports.states.insert((event, id), State::ReportedByCatchUp);
        reports.current = Some((event, id));
        true
    }

    /// The next end of that thing that is still to be reported.
    pub(crate) fn postponed_end(&self) -> Option<Event> {
        let mut reports = self.reports();
        let end = reports.postponed_ends.pop_front();
        if end.is_none() {
            reports.current = None;
        }
        end
    }

    /// The catch-up is complete. What it has reported stays known, because an event about it may still be on its way.
    pub(crate) fn complete(&self) {
        let mut reports = self.reports();
        reports.is_complete = true;
        reports.states.retain(|_, state| *state == State::ReportedByCatchUp);
        reports.states.shrink_to_fit();
    }
}

impl Reports {
    fn thing_begins(&mut self, event: Event, id: usize) -> bool {
        let state = self.states.get(&(event, id)).copied();
        if state == Some(State::ReportedByCatchUp) {
            return false;
        }
        if !self.is_complete {
            self.states.insert((event, id), State::ReportedByEvent);
        }
        true
    }

    fn thing_ends(&mut self, event: Event, id: usize) -> bool {
        let begins = beginnings(event);
        for &begin in begins {
            if self.is_complete {
                self.states.remove(&(begin, id));
            } else {
                self.states.insert((begin, id), State::Ended);
            }
        }
        let is_current = self.current.is_some_and(|(begin, current)| current == id && begins.contains(&begin));
        if is_current {
            self.postponed_ends.push_back(event);
        }
        !is_current
    }

    fn compilation_started(&mut self, function: usize) {
        *self.compilations.entry(function).or_default() += 1;
    }

    /// If the compilation was seen to start, it is not one of those that the runtime has listed: functions are compiled
    /// several times.
    fn compilation_finished(&mut self, function: usize) -> bool {
        const EVENT: Event = Event::JitCompilationFinished;
        let Entry::Occupied(mut count) = self.compilations.entry(function) else {
            return self.thing_begins(EVENT, function);
        };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
        if !self.is_complete {
            self.states.entry((EVENT, function)).or_insert(State::ReportedByEvent);
        }
        true
    }
}

std::thread_local! {
    static IS_ATTACHING: Cell<bool> = const { Cell::new(false) };
}

/// Marks that the runtime attaches a profiler on the calling thread: it is a native one, and not of the collector.
pub(crate) struct Attaching(PhantomData<*mut ()>);

impl Attaching {
    pub(crate) fn begin() -> Self {
        IS_ATTACHING.set(true);
        Self(PhantomData)
    }

    /// Whether the runtime attaches a profiler on the calling thread.
    pub(crate) fn is_current() -> bool {
        IS_ATTACHING.get()
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        IS_ATTACHING.set(false);
    }
}
