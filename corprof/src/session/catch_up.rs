//! [`CatchUp`]: what an attached profiler has been told of, so that each thing that was there already is reported once.
//!
//! The runtime lists a thing a moment before it reports it by an event. So the catch-up and the events both ask here first, and
//! the first of them reports it. The set exists only for a profiler that catches up. Nothing here waits, because the runtime
//! holds locks of its own at some of these events: an end that arrives while the catch-up is in the user's method for the same
//! thing is noted, and the catch-up reports it afterwards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use crate::event_mask::{Event, EventSet};
use crate::lock::unpoisoned;

/// What has been reported, since the attach.
#[derive(Default)]
pub(crate) struct CatchUp(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// By the event that reports the thing's beginning.
    things: FxHashMap<(Event, usize), State>,
    /// How many threads are compiling a function, as far as the event at their start was made.
    compiling: FxHashMap<usize, u32>,
    /// What the catch-up is reporting right now, and the ends that have arrived meanwhile.
    current: Option<(Event, usize)>,
    late_ends: VecDeque<Event>,
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    ToldByEvent,
    ToldByCatchUp,
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

/// Whether the catch-up of a profiler with these callbacks must see an event, also if the profiler has no method for it.
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
    fn told(&self) -> MutexGuard<'_, Told> {
        unpoisoned(self.0.lock())
    }

    /// The runtime makes an event about the thing `id`: whether the profiler's method is to be called now.
    pub(crate) fn delivers(&self, event: Event, id: usize) -> bool {
        let mut told = self.told();
        match event {
            Event::JitCompilationStarted => {
                *told.compiling.entry(id).or_default() += 1;
                true
            }
            Event::JitCompilationFinished => told.finishes(id),
            event if is_beginning(event) => told.begins(event, id),
            event => told.ends(event, id),
        }
    }

    /// The catch-up is about to report a thing that the runtime has listed: whether it is the first. If so, ask for
    /// [`late_end`](Self::late_end) afterwards, until there is none.
    pub(crate) fn begin_report(&self, event: Event, id: usize) -> bool {
        let mut told = self.told();
        // The event at the end of this compilation reports the function.
        let is_coming = event == Event::JitCompilationFinished && told.compiling.contains_key(&id);
        if is_coming || told.things.contains_key(&(event, id)) {
            return false;
        }
        told.things.insert((event, id), State::ToldByCatchUp);
        told.current = Some((event, id));
        true
    }

    /// The next end of that thing that is still to be reported.
    pub(crate) fn late_end(&self) -> Option<Event> {
        let mut told = self.told();
        let end = told.late_ends.pop_front();
        if end.is_none() {
            told.current = None;
        }
        end
    }

    /// The catch-up is over. What it has reported stays known, because an event about it may still be on its way.
    pub(crate) fn complete(&self) {
        let mut told = self.told();
        told.is_over = true;
        told.things.retain(|_, state| *state == State::ToldByCatchUp);
        told.things.shrink_to_fit();
    }
}

impl Told {
    fn begins(&mut self, event: Event, id: usize) -> bool {
        if self.things.get(&(event, id)) == Some(&State::ToldByCatchUp) {
            return false;
        }
        self.tell(event, id);
        true
    }

    fn tell(&mut self, event: Event, id: usize) {
        if !self.is_over {
            self.things.insert((event, id), State::ToldByEvent);
        }
    }

    /// A compilation is over. If it was seen to start, it is another one than those that the runtime has listed: functions are
    /// compiled several times.
    fn finishes(&mut self, id: usize) -> bool {
        const EVENT: Event = Event::JitCompilationFinished;
        let Entry::Occupied(mut count) = self.compiling.entry(id) else { return self.begins(EVENT, id) };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
        if !self.is_over {
            self.things.entry((EVENT, id)).or_insert(State::ToldByEvent);
        }
        true
    }

    fn ends(&mut self, event: Event, id: usize) -> bool {
        let begins = beginnings(event);
        let is_current = self.current.is_some_and(|(begin, current)| current == id && begins.contains(&begin));
        for &begin in begins {
            if self.is_over {
                self.things.remove(&(begin, id));
            } else {
                self.things.insert((begin, id), State::Ended);
            }
        }
        if is_current {
            self.late_ends.push_back(event);
        }
        !is_current
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
