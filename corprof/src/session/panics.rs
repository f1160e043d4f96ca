//! Disables a profiler whose code panics: the panic is reported once, no more of its code runs, and the application
//! goes on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::ending::Ending;
use super::gate::Gate;
use super::profiler_threads::ProfilerThreads;
use crate::event_mask::EventSet;
use crate::report;

/// The profiler's part of a session. It exists before the first call to the runtime.
pub(crate) struct ProfilerState {
    /// The profiler's name, for messages.
    name: &'static str,
    /// Whether the profiler is one of several that only observe.
    pub(crate) is_notification_only: bool,
    /// The callbacks that it implements.
    pub(crate) events: EventSet,
    /// The gate for callbacks and hooks.
    pub(crate) gate: Gate,
    profiler_threads: Arc<ProfilerThreads>,
    /// The stage of its end.
    pub(crate) ending: Ending,
    has_panicked: AtomicBool,
}

/// The place in which the user's code panicked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PanicPlace<'a> {
    /// A method of a callback or a hook.
    Method(&'a str),
    /// The profiler thread of this name.
    ProfilerThread(&'a str),
}

impl ProfilerState {
    /// The state of the profiler called `name`.
    pub(crate) fn new(name: &'static str, is_notification_only: bool, events: EventSet) -> Self {
        Self {
            name,
            is_notification_only,
            events,
            gate: Gate::new(),
            profiler_threads: ProfilerThreads::new(name),
            ending: Ending::new(),
            has_panicked: AtomicBool::new(false),
        }
    }

    /// The threads that the profiler has made.
    pub(crate) fn profiler_threads(&self) -> &Arc<ProfilerThreads> {
        &self.profiler_threads
    }

    /// Whether the profiler's code has panicked anywhere.
    #[cfg(feature = "testing")]
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Relaxed)
    }

    /// Notes a panic without disabling the profiler.
    pub(crate) fn note_panic(&self) {
        self.has_panicked.store(true, Relaxed);
    }

    /// After a panic: reports the first, lets no more callbacks and hooks in, and asks the profiler's threads to stop.
    #[cold]
    pub(crate) fn disable_after_panic(&self, place: PanicPlace<'_>) {
        self.note_panic();
        self.profiler_threads.stop();
        let was_open = self.gate.disable();
        // A gate that closed because the application is ending does not say whether a panic came before.
        let is_reported = match place {
            PanicPlace::Method(_) => was_open,
            PanicPlace::ProfilerThread(_) => self.profiler_threads.note_panic() && !self.gate.is_disabled() || was_open,
        };
        if !is_reported {
            return;
        }
        let (at, name) = match place {
            PanicPlace::Method(method) => ("in", method),
            PanicPlace::ProfilerThread(thread) => ("on its thread", thread),
        };
        report::line(format_args!(
            "the profiler {} panicked {at} {name} and is disabled; the application goes on",
            self.name
        ));
    }

    /// Reports a panic during teardown.
    #[cold]
    pub(crate) fn report_last_panic(&self, method: &str) {
        self.note_panic();
        report::line(format_args!("the profiler {} panicked in {method}; the application goes on", self.name));
    }
}

/// Runs the user's code and stops panics: after one it runs `panicked` and returns `None`.
#[inline]
pub(crate) fn catch<R>(user: impl FnOnce() -> R, panicked: impl FnOnce()) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(user)) {
        Ok(answer) => Some(answer),
        Err(payload) => {
            // Dropping the payload may run any code, so `panicked` runs first.
            panicked();
            discard(payload);
            None
        }
    }
}

/// Drops the payload of a panic; if that panics in turn, the second payload is leaked.
#[cold]
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_disables_the_profiler_and_stops_its_threads() {
        let on_a_thread = ProfilerState::new("Test", false, EventSet::EMPTY);
        on_a_thread.disable_after_panic(PanicPlace::ProfilerThread("first"));
        assert!(on_a_thread.gate.is_disabled() && on_a_thread.profiler_threads.has_panicked());
        assert!(on_a_thread.profiler_threads.is_stopping());

        let in_a_method = ProfilerState::new("Test", false, EventSet::EMPTY);
        in_a_method.disable_after_panic(PanicPlace::Method("shutdown"));
        assert!(in_a_method.gate.is_disabled() && in_a_method.profiler_threads.is_stopping());
        assert!(!in_a_method.profiler_threads.has_panicked(), "no thread has panicked");
    }

    #[test]
    fn no_panic_gets_out_not_even_one_of_what_it_carries() {
        struct Again;
        impl Drop for Again {
            fn drop(&mut self) {
                panic!("again, on purpose");
            }
        }
        let mut has_heard = false;
        let answer: Option<()> = catch(|| std::panic::panic_any(Again), || has_heard = true);
        assert!(answer.is_none() && has_heard);
        assert_eq!(catch(|| 7, || unreachable!()), Some(7));
    }
}
