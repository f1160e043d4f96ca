//! What became of a method: [`Rewrite`], [`Outcome`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof_il::verify::IlError;

use crate::edit::{EditError, MethodEdit, Refusal};
use crate::error::{E_FAIL, Error};
use crate::id::{FunctionId, ModuleId, ReJitId};
use crate::lock::unpoisoned;
use crate::metadata::MethodDef;
use crate::profiler_thread::ProfilerThread;
use crate::suspension;

use super::queue::{Client, Command, Leave};
use super::shared_state::Shared;

/// What became of one client's edit of one method.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The thread of the instrumentation has not come to it yet.
    Preparing,
    /// Nothing was requested, for this reason: the method cannot be instrumented, or the edit returned an error.
    Refused(Arc<EditError>),
    /// Nothing was requested: the edited body breaks these rules.
    Rejected(Arc<[IlError]>),
    /// The request is made. The method takes the new body when it is called next, which may never happen.
    Waiting {
        /// When the request was made.
        since: Instant,
        /// Whether the runtime has taken the new body, because the method was called. It tells of an exception in the
        /// compiler only when the method is called again: then this becomes `Failed`.
        is_taken: bool,
    },
    /// The method runs the new body, in at least one instantiation: these were compiled from it so far.
    Active(Vec<Compiled>),
    /// The runtime has refused the request, or could not compile a single instantiation.
    Failed(Error, Vec<Compiled>),
    /// [`Rewrite::replace`] has put another edit in the place of this one.
    Superseded,
    /// It was taken back, by [`Rewrite::revert`] or [`Rewrite::restore`]. From its next call on the method runs without
    /// it.
    Reverted,
    /// The module has gone.
    Unloaded,
}

impl Outcome {
    /// Whether it changes no more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Rejected(_) | Self::Superseded | Self::Reverted | Self::Unloaded)
    }

    /// Whether something is known of it: neither `Preparing` nor `Waiting`.
    pub const fn is_known(&self) -> bool {
        !matches!(self, Self::Preparing | Self::Waiting { .. })
    }
}

/// An instantiation of a method that was compiled from the new body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Compiled {
    /// The function, which has the type arguments.
    pub function: FunctionId,
    /// The request that it was compiled for.
    pub rejit: ReJitId,
    /// How often: once for each tier, and for on-stack replacement.
    pub times: u32,
    /// Why it was not compiled, the last time.
    pub error: Option<Error>,
}

/// How a wait for methods to be prepared has ended:
/// [`Instrumentation::wait_until_prepared`](super::Instrumentation::wait_until_prepared).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Preparation {
    /// No method is [`Preparing`](Outcome::Preparing) that was asked for before the wait, in modules that were loaded
    /// before it.
    Done,
    /// The time is over.
    TimedOut,
    /// The thread of the instrumentation has ended, or the profiler's threads should end: nothing more is prepared.
    Stopped,
}

/// The shared state of a rewrite.
pub(super) struct State {
    pub(super) module: ModuleId,
    pub(super) method: MethodDef,
    inner: Mutex<Inner>,
}

struct Inner {
    phase: Phase,
    compiled: Vec<Compiled>,
    error: Option<Error>,
    is_taken: bool,
    /// What is being compiled.
    pending: Vec<(FunctionId, ReJitId)>,
}

#[derive(Clone)]
enum Phase {
    Preparing,
    Refused(Arc<EditError>),
    Rejected(Arc<[IlError]>),
    Requested(Instant),
    Superseded,
    Reverted,
    Unloaded,
}

impl Inner {
    fn note(&mut self, function: FunctionId, rejit: ReJitId, error: Option<Error>) {
        match self.compiled.iter_mut().find(|known| (known.function, known.rejit) == (function, rejit)) {
            Some(known) => (known.times, known.error) = (known.times.saturating_add(1), error),
            None => self.compiled.push(Compiled { function, rejit, times: 1, error }),
        }
    }
}

impl State {
    pub(super) fn new(module: ModuleId, method: MethodDef) -> Self {
        let phase = Phase::Preparing;
        let pending = Vec::new();
        let inner = Inner { phase, compiled: Vec::new(), error: None, is_taken: false, pending };
        Self { module, method, inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        suspension::forbid("the lock of a rewrite");
        unpoisoned(self.inner.lock())
    }

    pub(super) fn outcome(&self) -> Outcome {
        let inner = self.inner();
        match &inner.phase {
            Phase::Preparing => Outcome::Preparing,
            Phase::Refused(why) => Outcome::Refused(Arc::clone(why)),
            Phase::Rejected(errors) => Outcome::Rejected(Arc::clone(errors)),
            Phase::Superseded => Outcome::Superseded,
            Phase::Reverted => Outcome::Reverted,
            Phase::Unloaded => Outcome::Unloaded,
            Phase::Requested(since) => {
                let compiled = || inner.compiled.clone();
                let first_error = || inner.compiled.iter().find_map(|compiled| compiled.error);
                if let Some(error) = inner.error {
                    Outcome::Failed(error, compiled())
                } else if inner.compiled.iter().any(|compiled| compiled.error.is_none()) {
                    Outcome::Active(compiled())
                } else if let Some(error) = first_error() {
                    Outcome::Failed(error, compiled())
                } else {
                    Outcome::Waiting { since: *since, is_taken: inner.is_taken }
                }
            }
        }
    }

    /// Enters a phase, unless the present one is the last.
    fn enter(&self, phase: Phase) {
        let mut inner = self.inner();
        if matches!(inner.phase, Phase::Preparing | Phase::Requested(_)) {
            inner.phase = phase;
        }
    }

    pub(super) fn refused(&self, why: EditError) {
        self.enter(match why {
            EditError::Rejected(errors) => Phase::Rejected(errors.into()),
            why => Phase::Refused(Arc::new(why)),
        });
    }

    /// It will not be looked at any more.
    pub(super) fn stopped(&self) {
        let is_preparing = matches!(self.inner().phase, Phase::Preparing);
        if is_preparing {
            self.refused(Refusal::Stopped.into());
        }
    }

    /// A request that contains the edit is about to be made. One that is in effect stays so.
    pub(super) fn requested(&self, now: Instant) {
        let mut inner = self.inner();
        match inner.phase {
            Phase::Preparing => inner.phase = Phase::Requested(now),
            Phase::Requested(_) => inner.error = None,
            _ => {}
        }
    }

    /// The runtime has taken the body.
    pub(super) fn taken(&self) {
        self.inner().is_taken = true;
    }

    /// A function is about to be compiled; returns whether that shows that the time before failed.
    ///
    /// Only one thread compiles a function from a body at a time, and the runtime does not report an exception of the
    /// compiler.
    pub(super) fn compiling(&self, function: FunctionId, rejit: ReJitId) -> bool {
        let mut inner = self.inner();
        let has_failed = inner.pending.contains(&(function, rejit));
        if has_failed {
            let error = Error::new(E_FAIL, "ReJIT").about(
                "the edited body",
                "the compiler threw an exception, as the application sees: a reference in the body cannot be resolved, or the \
                 method's own class cannot be loaded",
            );
            inner.note(function, rejit, Some(error));
        } else {
            inner.pending.push((function, rejit));
        }
        has_failed
    }

    pub(super) fn compiled(&self, function: FunctionId, rejit: ReJitId, result: Result<(), Error>) {
        let mut inner = self.inner();
        inner.pending.retain(|known| *known != (function, rejit));
        inner.note(function, rejit, result.err());
    }

    pub(super) fn failed(&self, error: Error) {
        self.inner().error = Some(error);
    }

    pub(super) fn superseded(&self) {
        self.enter(Phase::Superseded);
    }

    /// It is about to be taken back: what fails from here on is that.
    pub(super) fn leaving(&self) {
        self.inner().error = None;
    }

    /// It was taken back, unless the runtime has refused that.
    pub(super) fn reverted(&self) {
        let is_failed = self.inner().error.is_some();
        if !is_failed {
            self.enter(Phase::Reverted);
        }
    }

    pub(super) fn unloaded(&self) {
        self.enter(Phase::Unloaded);
    }
}

/// One client's edit of one method. A clone is another handle to the same; dropping all of them changes nothing.
#[derive(Clone)]
pub struct Rewrite {
    shared: Arc<Shared>,
    pub(super) state: Arc<State>,
}

impl Rewrite {
    pub(super) const fn new(shared: Arc<Shared>, state: Arc<State>) -> Self {
        Self { shared, state }
    }

    /// The module of the method. After [`Outcome::Unloaded`] it is dead.
    pub fn module(&self) -> ModuleId {
        self.state.module
    }

    /// The method.
    pub fn method(&self) -> MethodDef {
        self.state.method
    }

    /// What is known now. Any code may ask; it does not wait.
    pub fn outcome(&self) -> Outcome {
        self.state.outcome()
    }

    /// Waits until the outcome [is known](Outcome::is_known), for `longest` at most, or until the thread should end;
    /// returns the outcome then.
    ///
    /// Only a profiler's own thread may wait: in a callback the runtime may be waiting for what is waited for.
    pub fn wait(&self, cx: &mut ProfilerThread<'_>, longest: Duration) -> Outcome {
        cx.profiler_threads().sleep_until(longest, || self.outcome().is_known());
        self.outcome()
    }

    /// Takes the edit back. If it was the last of its method, the method's old code is in effect again from its next
    /// call on, and so is that of the callers that were recompiled for it, unless other methods are instrumented that
    /// they may contain.
    ///
    /// In the old code of a caller, the method's own body is inlined again.
    pub fn revert(&self) {
        self.shared.push([Command::Leave(Arc::clone(&self.state), Leave::Revert)]);
    }

    /// Takes the edit back. If it was the last of its method, the method is compiled anew from the body that it was
    /// loaded with; callers go on calling it.
    ///
    /// Microsoft recommends this over a revert after attach: old code of callers may contain older bodies of other
    /// methods.
    pub fn restore(&self) {
        self.shared.push([Command::Leave(Arc::clone(&self.state), Leave::Restore)]);
    }

    /// Puts another edit in the place of this one, in the order of the clients as well. This one is
    /// [`Superseded`](Outcome::Superseded).
    pub fn replace(&self, edit: impl Fn(&mut MethodEdit<'_>) -> Result<(), EditError> + Send + Sync + 'static) -> Self {
        let state = Arc::new(State::new(self.module(), self.method()));
        let client = Client { state: Arc::clone(&state), edit: Arc::new(edit) };
        let lifeline = self.shared.lifeline(self.module());
        self.shared.push([Command::Replace(Arc::clone(&self.state), lifeline, client)]);
        Self { shared: Arc::clone(&self.shared), state }
    }
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Rewrite");
        fields.field("module", &self.module()).field("method", &self.method());
        fields.field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::E_INVALIDARG;

    fn state() -> State {
        State::new(ModuleId::from_raw(8).unwrap(), MethodDef::from_raw(0x0600_0001))
    }

    #[test]
    fn it_is_active_when_one_instantiation_is_compiled_and_stays_so() {
        let state = state();
        let function = |number| FunctionId::from_raw(number).unwrap();
        assert!(matches!(state.outcome(), Outcome::Preparing));
        state.requested(Instant::now());
        let error = Error::new(E_INVALIDARG, "X");
        state.compiled(function(8), ReJitId(1), Err(error));
        assert!(matches!(state.outcome(), Outcome::Failed(_, compiled) if compiled.len() == 1));
        state.compiled(function(16), ReJitId(1), Ok(()));
        state.compiled(function(16), ReJitId(1), Ok(()));
        let Outcome::Active(compiled) = state.outcome() else { panic!("{:?}", state.outcome()) };
        assert_eq!(compiled.iter().map(|compiled| compiled.times).collect::<Vec<_>>(), [1, 2]);
        // The same body again, for another client.
        state.requested(Instant::now());
        assert!(matches!(state.outcome(), Outcome::Active(_)));
        state.failed(error);
        assert!(matches!(state.outcome(), Outcome::Failed(known, _) if known == error));
        state.leaving();
        state.reverted();
        state.unloaded();
        assert!(matches!(state.outcome(), Outcome::Reverted), "the last one stays");
    }

    #[test]
    fn a_second_attempt_shows_that_the_first_failed() {
        let state = state();
        let function = FunctionId::from_raw(8).unwrap();
        state.requested(Instant::now());
        assert!(!state.compiling(function, ReJitId(1)));
        assert!(matches!(state.outcome(), Outcome::Waiting { .. }));
        assert!(state.compiling(function, ReJitId(1)));
        assert!(matches!(state.outcome(), Outcome::Failed(..)));
        state.compiled(function, ReJitId(1), Ok(()));
        assert!(matches!(state.outcome(), Outcome::Active(_)));
        assert!(!state.compiling(function, ReJitId(1)), "another tier");
    }
}
