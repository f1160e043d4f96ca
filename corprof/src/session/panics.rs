//! What becomes of a profiler whose code panics: it is reported once, and nothing of it runs any more; the application does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::ending::Ending;
use super::gate::Gate;
use super::profiler_threads::ProfilerThreads;
use crate::report;

/// A profiler's own part of a session, which is there before the runtime is asked for anything.
pub(crate) struct ProfilerState {
    /// For messages.
    name: &'static str,
    /// What callbacks and hooks pass.
    pub(crate) gate: Gate,
    profiler_threads: Arc<ProfilerThreads>,
    /// How far its end has come.
    pub(crate) ending: Ending,
    has_panicked: AtomicBool,
}

/// Where the user's code has panicked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PanicPlace<'a> {
    /// In this method of a callback or a hook.
    Method(&'a str),
    /// On the profiler thread of this name.
    ProfilerThread(&'a str),
}

impl ProfilerState {
    /// That of a profiler of this name.
    pub(crate) fn new(name: &'static str) -> Self {
        let (gate, profiler_threads, ending) = (Gate::new(), ProfilerThreads::new(name), Ending::new());
        Self { name, gate, profiler_threads, ending, has_panicked: AtomicBool::new(false) }
    }

    /// The threads that the profiler has made.
    pub(crate) fn profiler_threads(&self) -> &Arc<ProfilerThreads> {
        &self.profiler_threads
    }

    /// Whether the profiler's code has panicked in any place.
    #[cfg(feature = "testing")]
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Relaxed)
    }

    /// The profiler's code has panicked; it is not disabled for that.
    pub(crate) fn note_panic(&self) {
        self.has_panicked.store(true, Relaxed);
    }

    /// After a panic: the first is reported, no callback and no hook is let in any more, and the profiler's threads are told to
    /// stop.
    #[cold]
    pub(crate) fn disable_after_panic(&self, place: PanicPlace<'_>) {
        self.note_panic();
        self.profiler_threads.stop();
        let was_open = self.gate.disable();
        // A gate that is closed because the application ends says nothing about who has panicked.
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
            "the profiler {} panicked {at} {name} and is quiet from now on; the application runs on",
            self.name
        ));
    }

    /// A panic when there is nothing left to disable.
    #[cold]
    pub(crate) fn report_last_panic(&self, method: &str) {
        self.note_panic();
        report::line(format_args!("the profiler {} panicked in {method}; the application goes on", self.name));
    }
}

/// Runs the user's code and lets no panic out: `panicked` is run then, and there is no answer.
#[inline]
pub(crate) fn catch<R>(user: impl FnOnce() -> R, panicked: impl FnOnce()) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(user)) {
        Ok(answer) => Some(answer),
        Err(payload) => {
            // What the panic carried may do anything when it is dropped: first things first.
            panicked();
            discard(payload);
            None
        }
    }
}

/// Drops what a panic carried; should that panic in turn, it is leaked.
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
        let on_a_thread = ProfilerState::new("Test");
        on_a_thread.disable_after_panic(PanicPlace::ProfilerThread("first"));
        assert!(on_a_thread.gate.is_disabled() && on_a_thread.profiler_threads.has_panicked());
        assert!(on_a_thread.profiler_threads.is_stopping());

        let in_a_method = ProfilerState::new("Test");
        in_a_method.disable_after_panic(PanicPlace::Method("shutdown"));
        assert!(in_a_method.gate.is_disabled() && in_a_method.profiler_threads.is_stopping());
        assert!(!in_a_method.profiler_threads.has_panicked(), "it was none of them");
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
