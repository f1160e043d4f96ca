//! How a profiler's life ends, and how far that has come: by Shutdown, or by a detach.
//!
//! A detach has a thread of its own, and the application may end at any moment of it. So each step that calls the runtime is
//! begun under this lock, and Shutdown, which takes it too, waits for a last word that has begun.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::error::{E_OUTOFMEMORY, Error, Result};
use crate::lock::unpoisoned;
use crate::suspension;

/// The call that a detach comes down to.
pub(crate) const DETACH: &str = "RequestProfilerDetach";

/// The end of one profiler.
#[derive(Debug)]
pub(crate) struct Ending {
    state: Mutex<State>,
    changed: Condvar,
    /// None before the runtime has initialized the object, and when that has gone.
    object: Mutex<Option<Object>>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// The application ends while a detach is under way.
    process_ends: bool,
    /// Whether the runtime lets a profiler with flags detach that older ones do not.
    is_lenient: bool,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It has not begun.
    Running,
    /// Callbacks and threads come to an end.
    Draining,
    /// The profiler's `shutdown` is called, or the profiler is being dropped.
    LastWord,
    /// The runtime is being asked.
    Asking,
    /// The runtime will let go of the profiler.
    Asked,
    /// The runtime has let go of the profiler.
    Detached,
    /// The profiler stays in the process and does nothing any more.
    Stays(Error),
    /// Shutdown has been called, or the profiler was not loaded.
    Over,
}

/// The COM object, whatever its profiler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) this: *mut c_void,
    pub(crate) functions: &'static Functions,
}

/// What a detach needs of it.
#[derive(Debug)]
pub(crate) struct Functions {
    /// Takes a reference, unless there is none left.
    pub(crate) hold: unsafe fn(*mut c_void) -> bool,
    /// Gives one up.
    pub(crate) release: unsafe extern "system" fn(*mut c_void) -> u32,
    /// An error that names what keeps the runtime from detaching the profiler.
    pub(crate) check: unsafe fn(*mut c_void) -> Result<()>,
    /// The thread of the detach.
    pub(crate) run: unsafe fn(*mut c_void),
}

// SAFETY: a pointer to an adapter over a profiler that is `Send` and `Sync`; who uses it holds a reference.
unsafe impl Send for Object {}

/// A reference to the object.
struct Reference(Object);

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: `hold` has taken a reference, and this is the only time that it is given up.
        unsafe { (self.0.functions.release)(self.0.this) };
    }
}

impl Ending {
    pub(super) fn new() -> Self {
        let state = State { stage: Stage::Running, process_ends: false, is_lenient: false };
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

    /// How far it has come.
    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    /// Whether the runtime lets a profiler with flags detach that older ones do not.
    pub(crate) fn is_lenient(&self) -> bool {
        self.state().is_lenient
    }

    pub(crate) fn set_lenient(&self, is_lenient: bool) {
        self.state().is_lenient = is_lenient;
    }

    /// The object that a detach is of.
    pub(crate) fn set_object(&self, object: Option<Object>) {
        *unpoisoned(self.object.lock()) = object;
    }

    fn object(&self) -> Result<Reference> {
        let object = unpoisoned(self.object.lock());
        // SAFETY: the object is there: its last Release empties this place first, under the lock.
        let held = object.filter(|object| unsafe { (object.functions.hold)(object.this) });
        held.map(Reference).ok_or_else(|| Self::refusal(Stage::Over))
    }

    /// Begins a detach, on a thread that this makes.
    ///
    /// # Errors
    /// If the runtime would refuse, it has begun, or there is no thread to be had.
    pub(crate) fn detach(&self) -> Result<()> {
        let reference = self.object()?;
        let object = reference.0;
        // SAFETY: the object is held.
        unsafe { (object.functions.check)(object.this)? };
        let state = self.state();
        if state.stage != Stage::Running {
            return Err(Self::refusal(state.stage));
        }
        self.set(state, Stage::Draining);
        let run = move || {
            let reference = reference;
            // SAFETY: the object is held until the thread's end, and this is the thread of the detach.
            unsafe { (reference.0.functions.run)(reference.0.this) };
        };
        if std::thread::Builder::new().name("detach".to_owned()).spawn(run).is_err() {
            // A Shutdown that has come meanwhile waits for what does not happen: it is let go.
            let state = self.state();
            let stage = if state.process_ends { Stage::Over } else { Stage::Running };
            self.set(state, stage);
            return Err(Error::new(E_OUTOFMEMORY, DETACH).about("threads", "the system has no thread to give"));
        }
        Ok(())
    }

    /// Why a detach does not begin.
    fn refusal(stage: Stage) -> Error {
        let rule = match stage {
            Stage::Running => "the profiler is not initialized yet: ask from `initialize` on",
            Stage::Over => "the application ends, or the profiler was not loaded",
            Stage::Stays(error) => return error,
            _ => "a detach has begun before: once is enough",
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

    /// Calls the runtime, unless the application has ended; Shutdown waits until the calls are made.
    ///
    /// The call may wait for a collection while the lock is held, against the third rule of suspension. Nobody who keeps a collection
    /// waiting wants the lock then: callbacks have ended and none begins, and the runtime calls Shutdown in preemptive mode.
    pub(crate) fn ask<R>(&self, ask: impl FnOnce() -> R) -> Option<R> {
        let state = self.state();
        (state.stage != Stage::Over && !state.process_ends).then(ask)
    }

    /// Whether the detach is to be given up.
    pub(crate) fn is_over(&self) -> bool {
        self.state().stage == Stage::Over
    }

    /// The profiler is not loaded: a detach that has begun is given up.
    pub(crate) fn not_loaded(&self) {
        self.set(self.state(), Stage::Over);
    }

    /// The application ends. Answers whether it falls to the caller to end the profiler: if not, that has been done, or the thread
    /// of a detach does it.
    ///
    /// Callbacks that do not end are waited for `patience` long, the profiler's last word as long as it takes, as if it were said
    /// here.
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
                // What is left is to ask the runtime, which needs to let nobody go any more.
                Stage::Draining | Stage::Asking => break,
                _ => return false,
            };
        }
        self.set(state, Stage::Over);
        false
    }

    /// The runtime has taken the request.
    pub(crate) fn asked(&self) {
        let state = self.state();
        // It may have let go of the profiler before this thread has come so far.
        if state.stage == Stage::Asking {
            self.set(state, Stage::Asked);
        }
    }

    /// The runtime lets go of the profiler.
    pub(crate) fn detached(&self) {
        self.set(self.state(), Stage::Detached);
    }

    /// Sleeps until something changes, `limit` at most.
    pub(crate) fn sleep(&self, limit: Duration) {
        drop(unpoisoned(self.changed.wait_timeout(self.state(), limit)));
    }
}
