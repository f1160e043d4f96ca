//! How a profiler ends, by Shutdown or by a detach, and which stage it has reached.
//!
//! A detach runs on a thread of its own, and the application may end at any moment of it. Each step that calls the
//! runtime therefore begins under this lock. Shutdown takes the same lock, so it waits for a `shutdown` method that has
//! begun.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof_sys as sys;

use super::{profiler_threads, thread_slot};
use crate::error::{E_OUTOFMEMORY, Error, Result};
use crate::lock::unpoisoned;
use crate::report;
use crate::suspension;

/// The name of the call that requests a detach.
pub(crate) const DETACH: &str = "RequestProfilerDetach";

/// The end of one profiler.
#[derive(Debug)]
pub(crate) struct Ending {
    state: Mutex<State>,
    changed: Condvar,
    /// None before the runtime has initialized the object, and after the object is gone.
    object: Mutex<Option<Object>>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// The application has begun to end during a detach.
    process_ends: bool,
    /// Whether the runtime detaches a profiler that has set flags which older runtimes do not allow for a detach.
    is_lenient: bool,
    /// Whether the runtime waits for the profiler's `initialize`: until that has succeeded, a detach only waits to
    /// begin.
    is_initializing: bool,
    /// Why the profiler stays in the process at the end of a detach that the runtime would refuse.
    stays: Option<Error>,
}

/// The stages of the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It has not begun.
    Running,
    /// Waits for callbacks and threads to end.
    Draining,
    /// The profiler's `shutdown` is called, or the profiler is being dropped.
    LastWord,
    /// Requests the detach from the runtime.
    Asking,
    /// The runtime has accepted the request.
    Asked,
    /// The runtime has released the profiler.
    Detached,
    /// The detach failed: the profiler stays in the process and does nothing any more.
    Stays(Error),
    /// Shutdown has been called, or the profiler was not loaded.
    Over,
}

/// The COM object, type-erased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) this: *mut c_void,
    pub(crate) functions: &'static Functions,
}

/// The functions of the object that a detach calls.
#[derive(Debug)]
pub(crate) struct Functions {
    /// Takes a reference, unless the count is already zero.
    pub(crate) hold: unsafe fn(*mut c_void) -> bool,
    /// Releases one.
    pub(crate) release: unsafe extern "system" fn(*mut c_void) -> u32,
    /// Returns an error that names the call or flag which keeps the runtime from detaching the profiler.
    pub(crate) check: unsafe fn(*mut c_void) -> Result<()>,
    /// Runs the detach, on its thread.
    pub(crate) run: unsafe fn(*mut c_void),
}

// SAFETY: a pointer to an adapter over a profiler that is `Send` and `Sync`; each user of the pointer holds a
// reference.
unsafe impl Send for Object {}

thread_local! {
    /// Whether the calling thread carries out a detach.
    static IS_DETACHING: Cell<bool> = const { Cell::new(false) };
}

/// A reference to the object.
struct Reference(Object);

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: `hold` has taken a reference, which only this drop releases.
        unsafe { (self.0.functions.release)(self.0.this) };
    }
}

impl Ending {
    pub(super) fn new() -> Self {
        let state = State {
            stage: Stage::Running,
            process_ends: false,
            is_lenient: false,
            is_initializing: false,
            stays: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), object: Mutex::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        suspension::forbid("the lock of a profiler's end");
        unpoisoned(self.state.lock())
    }

    fn set(&self, mut state: MutexGuard<'_, State>, stage: Stage) {
        state.stage = stage;
        self.changed.notify_all();
    }

    /// The stage that it has reached.
    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    /// Whether the runtime detaches a profiler that has set flags which older runtimes do not allow for a detach.
    pub(crate) fn is_lenient(&self) -> bool {
        self.state().is_lenient
    }

    pub(crate) fn set_lenient(&self, is_lenient: bool) {
        self.state().is_lenient = is_lenient;
    }

    /// The object that is to be detached.
    pub(crate) fn set_object(&self, object: Option<Object>) {
        *unpoisoned(self.object.lock()) = object;
    }

    /// The profiler's `initialize` begins.
    pub(crate) fn initializing(&self) {
        self.state().is_initializing = true;
    }

    /// The profiler is loaded: a detach that was requested meanwhile begins.
    pub(crate) fn loaded(&self) {
        let mut state = self.state();
        state.is_initializing = false;
        let is_waiting = state.stage == Stage::Draining;
        drop(state);
        if is_waiting && let Err(error) = self.object().and_then(|reference| self.begin(reference)) {
            report::line(format_args!("a detach that was requested in `initialize` cannot begin: {error}"));
        }
    }

    fn object(&self) -> Result<Reference> {
        let object = unpoisoned(self.object.lock());
        // SAFETY: the object is alive: its last Release empties this field first, under the lock.
        let held = object.filter(|object| unsafe { (object.functions.hold)(object.this) });
        held.map(Reference).ok_or_else(|| Self::refusal(Stage::Over))
    }

    /// Begins a detach, on a new thread; during the profiler's `initialize`, once that has succeeded.
    ///
    /// # Errors
    /// If the runtime would refuse, if a detach has begun before, or if the system cannot make a thread.
    pub(crate) fn detach(&self) -> Result<()> {
        let reference = self.object()?;
        Self::check(&reference)?;
        self.start(reference, None)
    }

    /// The same, also if the runtime would refuse: then the profiler ends, and stays in the process.
    ///
    /// # Errors
    /// If a detach has begun before, or if the system cannot make a thread.
    pub(crate) fn retire(&self) -> Result<()> {
        let reference = self.object()?;
        let stays = Self::check(&reference).err();
        self.start(reference, stays)
    }

    /// An error that says what keeps the runtime from detaching the profiler.
    fn check(reference: &Reference) -> Result<()> {
        let object = reference.0;
        // SAFETY: `Reference` holds the object.
        unsafe { (object.functions.check)(object.this) }
    }

    fn start(&self, reference: Reference, stays: Option<Error>) -> Result<()> {
        let mut state = self.state();
        if state.stage != Stage::Running {
            return Err(Self::refusal(state.stage));
        }
        let is_initializing = state.is_initializing;
        state.stays = stays;
        self.set(state, Stage::Draining);
        if is_initializing { Ok(()) } else { self.begin(reference) }
    }

    /// Why the profiler is to stay in the process, if it is.
    pub(crate) fn stays(&self) -> Option<Error> {
        self.state().stays
    }

    /// Starts the thread of a detach, whose stage has been set.
    fn begin(&self, reference: Reference) -> Result<()> {
        let run = move || {
            IS_DETACHING.set(true);
            let reference = reference;
            // SAFETY: the reference lives until the end of the thread, and this is the thread of the detach.
            unsafe { (reference.0.functions.run)(reference.0.this) };
        };
        if std::thread::Builder::new().name("detach".to_owned()).spawn(run).is_err() {
            // A Shutdown that has come meanwhile waits for this detach: wake it.
            let state = self.state();
            let stage = if state.process_ends { Stage::Over } else { Stage::Running };
            self.set(state, stage);
            return Err(Error::new(E_OUTOFMEMORY, DETACH).about("threads", "the system could not make a thread"));
        }
        Ok(())
    }

    /// Why a detach cannot begin.
    fn refusal(stage: Stage) -> Error {
        let rule = match stage {
            Stage::Running => "the profiler is not initialized yet: ask from `initialize` on",
            Stage::Over => "the application is ending, or the profiler was not loaded",
            Stage::Stays(error) => return error,
            _ => "a detach has begun already: request it once",
        };
        Error::new(sys::CORPROF_E_PROFILER_DETACHING, DETACH).about("detach", rule)
    }

    /// Goes on to the next stage, unless the application has ended.
    pub(crate) fn advance(&self, stage: Stage) -> bool {
        let state = self.state();
        let is_over = state.stage == Stage::Over;
        if !is_over {
            self.set(state, stage);
        }
        !is_over
    }

    /// Calls the runtime, unless the application has ended; Shutdown waits until `ask` has returned.
    ///
    /// The call may wait for a collection while the lock is held, against the third rule of suspension. No thread that
    /// delays a collection wants the lock then: callbacks have ended and none begins, and the runtime calls Shutdown in
    /// preemptive mode.
    pub(crate) fn ask<R>(&self, ask: impl FnOnce() -> R) -> Option<R> {
        let state = self.state();
        (state.stage != Stage::Over && !state.process_ends).then(ask)
    }

    /// Whether the detach must be given up.
    pub(crate) fn is_over(&self) -> bool {
        self.state().stage == Stage::Over
    }

    /// The profiler is not loaded: a detach that has begun is given up.
    pub(crate) fn not_loaded(&self) {
        self.set(self.state(), Stage::Over);
    }

    /// The application ends. Returns whether the caller must end the profiler; if not, the profiler has ended or the
    /// thread of a detach ends it.
    ///
    /// Waits up to `patience` for callbacks to end. Waits without a limit for the `shutdown` method, as if the caller
    /// ran it.
    pub(crate) fn shutdown(&self, patience: Duration) -> bool {
        let mut state = self.state();
        match state.stage {
            Stage::Running => {
                self.set(state, Stage::Over);
                return true;
            }
            Stage::Over | Stage::Stays(_) => return false,
            _ => {}
        }
        state.process_ends = true;
        self.changed.notify_all();
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            state = match state.stage {
                Stage::LastWord => unpoisoned(self.changed.wait(state)),
                Stage::Draining if !left.is_zero() => unpoisoned(self.changed.wait_timeout(state, left)).0,
                // The detach has only the request to the runtime left, and that is no longer needed.
                Stage::Draining | Stage::Asking => break,
                _ => return false,
            };
        }
        self.set(state, Stage::Over);
        false
    }

    /// The runtime has accepted the request.
    pub(crate) fn asked(&self) {
        let state = self.state();
        // The runtime may have released the profiler before this thread gets here.
        if state.stage == Stage::Asking {
            self.set(state, Stage::Asked);
        }
    }

    /// The runtime releases the profiler.
    pub(crate) fn detached(&self) {
        self.set(self.state(), Stage::Detached);
    }

    /// Waits for the end of a detach. An error is the reason why it did not succeed.
    pub(crate) fn wait(&self) -> Result<()> {
        let error = |rule| Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, DETACH).about("wait", rule);
        if IS_DETACHING.get() || profiler_threads::is_current() || thread_slot::is_inside() {
            return Err(error("the detach waits for this callback or thread of the profiler: wait on a `std::thread`"));
        }
        let mut state = self.state();
        loop {
            match state.stage {
                Stage::Draining | Stage::LastWord | Stage::Asking | Stage::Asked if !state.process_ends => {
                    state = unpoisoned(self.changed.wait(state));
                }
                Stage::Detached => return Ok(()),
                Stage::Stays(error) => return Err(error),
                Stage::Running => return Err(error("no detach has begun: call `detach` first")),
                _ => return Err(Self::refusal(Stage::Over)),
            }
        }
    }

    /// Sleeps until the stage changes, for `limit` at most.
    pub(crate) fn sleep(&self, limit: Duration) {
        drop(unpoisoned(self.changed.wait_timeout(self.state(), limit)));
    }
}
