//! The EventPipe sessions that the profiler has started.
//!
//! The runtime identifies a session by its address, and checks the address only in the call that stops a session:
//! adding a provider to a stopped session writes into freed memory (ep.c, `ep_add_provider_to_session`).
//!
//! No thread waits for a call about a session: the call may wait for a collection, and the collection for the waiting
//! thread, as some callbacks run in cooperative mode (suspension rule 3). If a session is ended while calls use it, the
//! last of these calls stops it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::event_mask::Event;
use crate::id::EventPipeSessionId;
use crate::lock::unpoisoned;

use super::{Observer, ending_threads};

thread_local! {
    /// Where the calling thread is, if it is in the user's code with a context from which a collection may start.
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Where the user's code is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Callback(Event),
    /// `select` of hooks, for which the compilation of the function waits.
    Select,
}

impl Place {
    const fn allows_managed_code(self) -> bool {
        match self {
            Self::Callback(event) => !is_without_managed_code(event),
            Self::Select => false,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Callback(event) => event.method(),
            Self::Select => "select",
        }
    }
}

/// Marks the calling thread as being in a callback, until it is dropped.
pub(crate) struct Callback {
    /// What the mark was.
    before: Option<Place>,
}

impl Callback {
    #[inline]
    pub(crate) fn begin(event: Event) -> Self {
        Self::begin_at(Place::Callback(event))
    }

    /// The same for `select` of hooks.
    pub(crate) fn begin_select() -> Self {
        Self::begin_at(Place::Select)
    }

    /// A callback inside of one that allows no managed code allows none either: the outer one's mark stays.
    #[inline]
    fn begin_at(place: Place) -> Self {
        let before = PLACE.get();
        if before.is_none_or(Place::allows_managed_code) {
            PLACE.set(Some(place));
        }
        Self { before }
    }
}

impl Drop for Callback {
    #[inline]
    fn drop(&mut self) {
        PLACE.set(self.before);
    }
}

/// Whether a callback comes in the middle of a load, an unload or a compilation, where managed code that needs the same
/// class, module, assembly or method fails or waits for ever; between native and managed code, which may be the
/// runtime's own way into a class constructor; or in cooperative mode, in which none can be called.
const fn is_without_managed_code(event: Event) -> bool {
    let is_of_loader = matches!(
        event,
        Event::AssemblyLoadStarted
            | Event::AssemblyLoadFinished
            | Event::AssemblyUnloadStarted
            | Event::AssemblyUnloadFinished
            | Event::ModuleLoadStarted
            | Event::ModuleLoadFinished
            | Event::ModuleUnloadStarted
            | Event::ModuleUnloadFinished
            | Event::ModuleAttachedToAssembly
            | Event::ClassLoadStarted
            | Event::ClassLoadFinished
            | Event::ClassUnloadStarted
            | Event::ClassUnloadFinished
    );
    let is_of_compiler = matches!(
        event,
        Event::JitCompilationStarted
            | Event::JitCompilationFinished
            | Event::JitCachedFunctionSearchStarted
            | Event::JitCachedFunctionSearchFinished
            | Event::JitInlining
            | Event::RejitCompilationStarted
            | Event::RejitCompilationFinished
            | Event::RejitError
            | Event::GetRejitParameters
            | Event::DynamicMethodJitCompilationStarted
            | Event::DynamicMethodJitCompilationFinished
    );
    let is_transition = matches!(event, Event::UnmanagedToManagedTransition | Event::ManagedToUnmanagedTransition);
    let is_cooperative = matches!(event, Event::ExceptionCatcherLeave | Event::DynamicMethodUnloaded);
    is_of_loader || is_of_compiler || is_transition || is_cooperative
}

/// Refuses a call about a session where the managed code that the runtime tells of it cannot run:
/// - in `thread_destroyed`, as a part of the thread is gone already (seen as a crash on .NET 8);
/// - in callbacks in cooperative mode: the process ends (.NET 8 and 10);
/// - in callbacks about loads: the managed code gets a `TypeLoadException` for a class that is being loaded, and so may
///   the application (seen in `class_load_started` on .NET 8);
/// - in callbacks about compilations, and where functions are selected for hooks: the managed code may need the method
///   that is being compiled, or wait for a lock whose owner needs it (seen as hangs on .NET 10);
/// - in callbacks about transitions: the managed code runs inside a class constructor that has run by half (seen on
///   .NET 8, which ended with "infinite recursion while looking up resource");
/// - in any callback on a profiler thread, as the managed code then runs on another thread, and may wait for a lock
///   under which the runtime makes the callback (seen in `class_load_started`).
///
/// `sessions_are_refused_where_managed_code_cannot_run` (tests/live/attacks.rs) fails without it.
pub(crate) fn refuse_where_managed_code_cannot_run(call: &'static str, is_profilers: bool) -> Result<()> {
    const RULE: &str = "the call may run managed code, which this callback does not allow: make it in another callback, or on a \
                        profiler thread outside of callbacks";
    let refused = |place| Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(place, RULE));
    if ending_threads::is_in_thread_destroyed() {
        return refused("thread_destroyed");
    }
    match PLACE.get() {
        Some(place) if !place.allows_managed_code() => refused(place.name()),
        Some(_) if is_profilers => refused("a callback on a profiler thread"),
        _ => Ok(()),
    }
}

/// The sessions that this profiler has started and not stopped.
#[derive(Default)]
pub(crate) struct Sessions {
    sessions: Mutex<HashMap<u64, Session>>,
    /// The runtime's own provider, or 0 before its first event. Providers live as long as the process.
    runtime_provider: AtomicUsize,
}

#[derive(Default)]
struct Session {
    /// How many calls use it right now.
    uses: usize,
    /// Whether the last of these calls must stop the session.
    is_to_stop: bool,
}

impl Observer for Sessions {}

impl Sessions {
    /// Held for single changes, never across a call to the runtime.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Session>> {
        unpoisoned(self.sessions.lock())
    }

    /// Whether this is the runtime's own provider; `ask` finds it out, until it was found once.
    pub(crate) fn is_runtime_provider(&self, provider: usize, ask: impl FnOnce() -> bool) -> bool {
        match self.runtime_provider.load(Relaxed) {
            0 if ask() => {
                self.runtime_provider.store(provider, Relaxed);
                true
            }
            known => known == provider,
        }
    }

    pub(crate) fn started(&self, session: EventPipeSessionId) {
        self.lock().insert(session.as_raw(), Session::default());
    }

    /// Marks the session as ended. Returns whether the caller must stop it; otherwise the last call that uses it does.
    /// An error if the session has ended already.
    pub(crate) fn end(&self, session: EventPipeSessionId, call: &'static str) -> Result<bool> {
        let mut sessions = self.lock();
        match sessions.get_mut(&session.as_raw()).filter(|known| !known.is_to_stop) {
            None => Err(Self::gone(call)),
            Some(known) if known.uses > 0 => {
                known.is_to_stop = true;
                Ok(false)
            }
            Some(_) => {
                sessions.remove(&session.as_raw());
                Ok(true)
            }
        }
    }

    /// Keeps the session from being stopped until [`end_use`](Self::end_use); an error if it has ended.
    pub(crate) fn begin_use(&self, session: EventPipeSessionId, call: &'static str) -> Result<()> {
        let mut sessions = self.lock();
        let known = sessions.get_mut(&session.as_raw()).filter(|known| !known.is_to_stop).ok_or(Self::gone(call))?;
        known.uses += 1;
        Ok(())
    }

    /// Returns whether the caller must stop the session now.
    #[must_use]
    pub(crate) fn end_use(&self, session: EventPipeSessionId) -> bool {
        let mut sessions = self.lock();
        let Some(known) = sessions.get_mut(&session.as_raw()) else { return false };
        known.uses = known.uses.saturating_sub(1);
        let is_last = known.is_to_stop && known.uses == 0;
        if is_last {
            sessions.remove(&session.as_raw());
        }
        is_last
    }

    /// At Shutdown the runtime ends all sessions itself.
    pub(crate) fn end_all(&self) {
        self.lock().clear();
    }

    /// Before a detach: removes all sessions and returns them, for the caller to stop.
    pub(crate) fn take(&self) -> Vec<u64> {
        self.lock().drain().map(|(session, _)| session).collect()
    }

    fn gone(call: &'static str) -> Error {
        Error::new(sys::COR_E_OBJECTDISPOSED, call).about("session", "the session has been stopped: start another")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_there_until_it_is_stopped() {
        let sessions = Sessions::default();
        let id = EventPipeSessionId(8);
        assert!(sessions.begin_use(id, "X").is_err());
        sessions.started(id);
        assert_eq!(sessions.begin_use(id, "X"), Ok(()));
        assert!(!sessions.end_use(id));
        assert_eq!(sessions.end(id, "X"), Ok(true));
        let error = sessions.begin_use(id, "X").unwrap_err();
        assert_eq!(error.code(), sys::COR_E_OBJECTDISPOSED);
        assert_eq!(sessions.end(id, "X"), Err(error));
        sessions.started(id);
        sessions.end_all();
        assert!(sessions.begin_use(id, "X").is_err());
    }

    /// The place that a refusal names, or none.
    fn refusal(is_profilers: bool) -> Option<String> {
        refuse_where_managed_code_cannot_run("X", is_profilers).err().map(|error| error.to_string())
    }

    #[test]
    fn a_callback_inside_of_one_without_managed_code_is_without_it_too() {
        assert_eq!(refusal(false), None);
        let outer = Callback::begin(Event::JitCompilationStarted);
        let inner = Callback::begin(Event::EventPipeProviderCreated);
        assert!(refusal(false).is_some_and(|error| error.contains("X(jit_compilation_started)")));
        drop(inner);
        assert!(refusal(false).is_some());
        drop(outer);
        let outer = Callback::begin(Event::ThreadNameChanged);
        assert_eq!(refusal(false), None);
        assert!(refusal(true).is_some_and(|error| error.contains("a callback on a profiler thread")));
        let inner = Callback::begin_select();
        assert!(refusal(false).is_some_and(|error| error.contains("X(select)")));
        drop(inner);
        assert_eq!(refusal(false), None);
        drop(outer);
        assert_eq!(refusal(true), None);
    }

    #[test]
    fn the_provider_of_the_runtime_is_asked_for_until_it_is_found() {
        let sessions = Sessions::default();
        assert!(!sessions.is_runtime_provider(8, || false));
        assert!(sessions.is_runtime_provider(16, || true));
        assert!(sessions.is_runtime_provider(16, || unreachable!()));
        assert!(!sessions.is_runtime_provider(8, || unreachable!()));
    }

    #[test]
    fn the_last_use_of_a_session_that_is_stopped_meanwhile_stops_it() {
        let sessions = Sessions::default();
        let id = EventPipeSessionId(8);
        sessions.started(id);
        assert_eq!([sessions.begin_use(id, "X"), sessions.begin_use(id, "X")], [Ok(()), Ok(())]);
        assert_eq!(sessions.end(id, "X"), Ok(false));
        assert!(sessions.end(id, "X").is_err(), "it has ended for all callers");
        assert!(sessions.begin_use(id, "X").is_err());
        assert!(!sessions.end_use(id), "another use goes on");
        assert!(sessions.end_use(id));
        assert!(!sessions.end_use(id), "once");
    }
}
