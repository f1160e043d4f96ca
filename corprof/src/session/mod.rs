//! The session: the state of one profiler that a runtime has loaded.
//!
//! Everything else is built on it: [`Info`] is the handle that all contexts lead to. Public calls are in `info/`; this
//! folder serves the rest of the SDK. It knows no feature: a feature keeps its state as an [`Observer`], which its own
//! room defines, and hears of callbacks by it; names are stored without knowing how they are spelt.
//!
//! `runtime.rs` has the pointer to the runtime and `questions.rs` the calls that the SDK makes for itself;
//! `releases.rs` knows what the runtime cannot be asked; `liveness` tracks which identifiers are alive, `names` stores
//! names, `event_mask.rs` sets which events the runtime reports.
//! `gate.rs` lets callbacks and hooks in, and `thread_slot.rs` counts them by thread; `panics.rs` disables a profiler
//! that panics, `profiler_threads.rs` tracks the threads that it has made, `searches.rs` keeps searches for code and
//! its removal apart, and `searcher.rs` makes them for threads that have never run managed code. `startup.rs` knows
//! when managed code can run. `compilations.rs` tracks which methods are being compiled, and `inlinings.rs` keeps
//! inlining off requests to recompile. `wire.rs` converts the arguments of callbacks, and `catch_up.rs` keeps what is
//! reported after an attach from being reported twice. `notification_profilers.rs` knows who must stay because of
//! notification-only profilers.

mod calls;
pub(crate) mod catch_up;
mod compilations;
pub(crate) mod ending;
pub(crate) mod ending_threads;
mod event_mask;
pub(crate) mod event_pipe_sessions;
mod extensions;
mod frame;
pub(crate) mod gate;
mod inlinings;
pub(crate) mod liveness;
pub(crate) mod names;
pub(crate) mod notification_profilers;
mod observer;
pub(crate) mod panics;
pub(crate) mod profiler_threads;
mod questions;
mod releases;
mod runtime;
mod runtime_info;
pub(crate) mod searcher;
pub(crate) mod searches;
mod startup;
mod thread_names;
pub(crate) mod thread_slot;
pub(crate) mod wire;

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use windows_core::IUnknown;

use crate::error::{E_INVALIDARG, Error, Result};
use crate::event_mask::Phase;

pub(crate) use calls::{Call, Calls};
pub(crate) use catch_up::Attaching;
use catch_up::CatchUp;
pub(crate) use compilations::{Compilations, Replacement};
pub(crate) use event_pipe_sessions::Sessions;
use extensions::Extensions;
pub use frame::FrameInfo;
pub(crate) use frame::WalkStart;
pub(crate) use inlinings::Inlinings;
use liveness::Liveness;
use names::NameStore;
pub(crate) use observer::{DeliveredEvent, Interests, MethodKey, Observer};
use panics::ProfilerState;
use profiler_threads::ProfilerThreads;
pub use questions::{ArrayClass, ClassInfo, FunctionInfo};
pub(crate) use questions::{CLASS_INFO, FUNCTION_INFO};
pub(crate) use releases::ReleaseFact;
pub use runtime::InfoVersion;
pub(crate) use runtime::{Runtime, UnsupportedRuntime, first_runtime_with};
pub use runtime_info::RuntimeInfo;
use startup::Startup;
use thread_names::ThreadNames;

/// A handle to the runtime. Any thread may keep one for as long as the profiler lives; it offers the calls that the
/// runtime answers everywhere. Calls that need a callback around them are methods of that callback's context
/// ([`context`](crate::context)).
#[derive(Clone)]
pub struct Info(Arc<Session>);

/// The state that all handles share.
struct Session {
    runtime: Runtime,
    startup: Startup,
    /// A [`Phase`], which decides which flags may be set.
    phase: AtomicU8,
    /// Held while the event mask is read, checked and set; `true` once Shutdown is over, when the runtime may have
    /// freed data that the call needs (seen on .NET Core 3.1 only).
    is_mask_sealed: Mutex<bool>,
    /// The bits of an [`EventMask`](crate::event_mask::EventMask): events that stay on whatever the profiler does.
    lasting_events: AtomicU64,
    liveness: Arc<Liveness>,
    names: NameStore,
    profiler: Arc<ProfilerState>,
    thread_names: ThreadNames,
    /// Set in `initialize_for_attach`, or never.
    catch_up: OnceLock<CatchUp>,
    compilations: Compilations,
    inlinings: Inlinings,
    prevents_detach: OnceLock<&'static str>,
    extensions: Extensions,
}

impl Info {
    /// The session of a profiler that `runtime` has loaded.
    ///
    /// # Errors
    /// If the runtime is older than .NET 8.
    pub(crate) fn negotiate(
        runtime: &IUnknown,
        phase: Phase,
        profiler: Arc<ProfilerState>,
    ) -> Result<Self, UnsupportedRuntime> {
        let runtime = Runtime::negotiate(runtime, phase == Phase::Attached)?;
        let liveness = Arc::new(Liveness::of_runtime(runtime.number()));
        let session = Arc::new(Session {
            runtime,
            startup: Startup::new(phase == Phase::Attached),
            phase: AtomicU8::new(phase as u8),
            is_mask_sealed: Mutex::new(false),
            lasting_events: AtomicU64::new(0),
            liveness,
            names: NameStore::new(),
            profiler,
            thread_names: ThreadNames::default(),
            catch_up: OnceLock::new(),
            compilations: Compilations::default(),
            inlinings: Inlinings::default(),
            prevents_detach: OnceLock::new(),
            extensions: Extensions::default(),
        });
        session.runtime.set_session(Arc::downgrade(&session));
        Ok(Self(session))
    }

    /// The runtime itself.
    #[inline]
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// How far the runtime's start is.
    #[inline]
    pub(crate) fn startup(&self) -> &Startup {
        &self.0.startup
    }

    /// The runtime's interface in its first version, which every runtime has, for one call.
    #[inline]
    pub(crate) fn first_version(&self, call: &'static str) -> Result<Call<'_, corprof_sys::ICorProfilerInfo>> {
        self.0.runtime.first_version(call)
    }

    /// The runtime's interface in the version that `call` needs, for one call.
    #[inline]
    pub(crate) fn as_version<V: InfoVersion>(&self, call: &'static str) -> Result<Call<'_, V>> {
        self.0.runtime.as_version(call)
    }

    /// The count of calls to the runtime.
    pub(crate) fn calls(&self) -> &Calls {
        self.0.runtime.calls()
    }

    /// Refuses a call that a notification-only profiler may not make.
    pub(crate) fn refuse_notification_only(&self, call: &'static str) -> Result<()> {
        if self.profiler().is_notification_only {
            let rule =
                "a notification-only profiler cannot change code: leave the key out, and load it as the main profiler";
            return Err(Error::new(E_INVALIDARG, call).about("notification_only", rule));
        }
        Ok(())
    }

    /// Notes that `call` is about to be made; the runtime refuses to detach the profiler after it.
    pub(crate) fn prevent_detach(&self, call: &'static str) {
        let _ = self.0.prevents_detach.set(call); // the first call is enough
    }

    /// The first call after which the runtime refuses to detach the profiler, if one has been made.
    pub(crate) fn what_prevents_detach(&self) -> Option<&'static str> {
        self.0.prevents_detach.get().copied()
    }

    /// Which identifiers are alive.
    #[inline]
    pub(crate) fn liveness(&self) -> &Arc<Liveness> {
        &self.0.liveness
    }

    /// The names that have been looked up.
    pub(crate) fn known_names(&self) -> &NameStore {
        &self.0.names
    }

    /// The names of the application's threads.
    pub(crate) fn thread_names(&self) -> &ThreadNames {
        &self.0.thread_names
    }

    /// The sessions of EventPipe that the profiler has started.
    pub(crate) fn event_pipe_sessions(&self) -> &Sessions {
        self.extension()
    }

    /// What an attached profiler has been told of, if it catches up.
    #[inline]
    pub(crate) fn catch_up(&self) -> Option<&CatchUp> {
        self.0.catch_up.get()
    }

    /// From now on it is noted what the profiler is told of.
    pub(crate) fn begin_catch_up(&self) {
        let _ = self.0.catch_up.get_or_init(CatchUp::default);
    }

    /// Which methods are being compiled, as far as the runtime reports it.
    pub(crate) fn compilations(&self) -> &Compilations {
        &self.0.compilations
    }

    /// What keeps inlining and requests to recompile apart.
    pub(crate) fn inlinings(&self) -> &Inlinings {
        &self.0.inlinings
    }

    /// The profiler's gate, and its state after a panic.
    pub(crate) fn profiler(&self) -> &Arc<ProfilerState> {
        &self.0.profiler
    }

    /// The threads that the profiler has made.
    pub(crate) fn profiler_threads(&self) -> &Arc<ProfilerThreads> {
        self.0.profiler.profiler_threads()
    }

    /// Whether a clone exists besides the adapter's own.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Initialize as u8 => Phase::Initialize,
            phase if phase == Phase::Running as u8 => Phase::Running,
            _ => Phase::Attached,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Info(ICorProfilerInfo{})", self.0.runtime.version())
    }
}
