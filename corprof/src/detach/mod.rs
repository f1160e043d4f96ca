//! Leaving the process while the application runs on.
//!
//! A profiler that was attached, or loaded at start-up, can leave again: the runtime then makes no callback any more, and the
//! application runs as if there had never been a profiler. What it takes is in [`Detacher::detach`]; the profiler asks for the
//! handle where it begins, and uses it wherever it learns that it is to go:
//!
//! ```
//! # use corprof::prelude::*;
//! # use std::time::Duration;
//! # #[derive(Profiler)]
//! # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C0A", no_export)]
//! # struct Visitor;
//! #[callbacks]
//! impl Callbacks for Visitor {
//!     fn initialize_for_attach(&self, cx: &mut InAttach<'_>, _data: &[u8]) -> Result<(), BoxError> {
//!         let detacher = cx.detacher()?;
//!         cx.spawn_profiler_thread("timer", move |cx| {
//!             if cx.wait(Duration::from_secs(30)).is_continue() {
//!                 if let Err(error) = detacher.detach() {
//!                     eprintln!("the profiler stays: {error}");
//!                 }
//!             }
//!         })?;
//!         Ok(())
//!     }
//!
//!     fn shutdown(&self, _cx: &mut InTriggers<'_>) {
//!         // The last word, whether the application ends or the profiler leaves: write what was found.
//!     }
//! }
//! ```
//!
//! A profiler cannot leave once it has changed code for good (hooks, IL bodies, ReJIT, or `ENABLE_REJIT` in its event mask), or
//! while a flag is on that can be set in `initialize` only. [`detach`](Detacher::detach) says which, and changes nothing then.

use std::sync::Arc;

use corprof_sys as sys;

use crate::context::{InAttach, InInitialize, InTriggers};
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::info::RuntimeKind;
use crate::session::ending::{DETACH, Stage};
use crate::session::panics::ProfilerState;

/// Has the profiler leave the process. It may be kept and used anywhere, on any thread, as may its clones.
#[derive(Clone)]
pub struct Detacher(Arc<ProfilerState>);

/// How far a detach has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DetachState {
    /// Nobody has asked for it.
    Loaded,
    /// It is under way.
    Detaching,
    /// The runtime has let go of the profiler.
    Detached,
    /// The runtime has refused, after the profiler has ended: it stays loaded, and does nothing.
    Refused(Error),
    /// The application has ended first, or the profiler was not loaded.
    Ended,
}

impl Detacher {
    /// Begins a detach, and returns at once. It goes on by itself, on a thread of its own:
    ///
    /// 1. The profiler's own threads are told to stop, samplers among them; no callback begins any more.
    /// 2. When the last callback has returned and the threads have ended, sessions of EventPipe are stopped.
    /// 3. [`shutdown`](crate::Callbacks::shutdown) is called: the last word. Then the profiler is dropped.
    /// 4. From then on, calls on clones of [`Info`](crate::Info) are errors (`CORPROF_E_PROFILER_DETACHING`).
    /// 5. The runtime is asked. It looks after 300 ms whether all its threads have left the profiler, and lets go of it.
    ///
    /// The application is held up by none of this. The library stays in memory, for threads that keep something of it until they end,
    /// and for signals on their way; attached again, it begins anew. A provider of EventPipe that the profiler has made stays,
    /// too, as the runtime calls it as long as it lives.
    ///
    /// A callback that does not return, or a thread that does not end, keeps the profiler from being dropped, and so from leaving:
    /// what is waited for is reported after two seconds, and the wait goes on. So do not wait in a callback for the
    /// [`state`](Self::state) to change.
    ///
    /// It may be asked for in `initialize`, and before the runtime has started: then it begins there, and is done when it can be.
    #[doc = contract!(RequestProfilerDetach)]
    ///
    /// `CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT`: the profiler has hooks, or has made the call that is named, after which
    /// the runtime lets no profiler go. `CORPROF_E_IMMUTABLE_FLAGS_SET`: the event flag that is named is on for good. After these
    /// the profiler goes on as before.
    ///
    /// `CORPROF_E_PROFILER_DETACHING`: it has begun before, or the application ends. `E_OUTOFMEMORY`: the system has no thread to
    /// give.
    #[doc(alias = "RequestProfilerDetach")]
    pub fn detach(&self) -> Result<()> {
        self.0.ending.detach()
    }

    /// How far it has come.
    pub fn state(&self) -> DetachState {
        match self.0.ending.stage() {
            Stage::Running => DetachState::Loaded,
            Stage::Draining | Stage::LastWord | Stage::Asking | Stage::Asked => DetachState::Detaching,
            Stage::Detached => DetachState::Detached,
            Stage::Stays(error) => DetachState::Refused(error),
            Stage::Over => DetachState::Ended,
        }
    }

    fn new(cx: &InTriggers<'_>) -> Result<Self> {
        let runtime = cx.runtime_info()?;
        // Flags that cost a profiler its detach on older runtimes.
        cx.profiler().ending.set_lenient(runtime.kind == RuntimeKind::Core && runtime.major >= 10);
        Ok(Self(Arc::clone(cx.profiler())))
    }
}

impl InAttach<'_> {
    /// What the profiler leaves by.
    ///
    /// # Errors
    /// What the runtime answers when it is asked for its version.
    pub fn detacher(&mut self) -> Result<Detacher> {
        Detacher::new(self)
    }
}

impl InInitialize<'_> {
    /// What the profiler leaves by. To be asked for first of all: from then on calls to the runtime are counted, so that a detach
    /// can wait for those under way. That costs two locked instructions a call.
    ///
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: there is a clone of [`Info`](crate::Info) already, or something that has one: a thread
    /// of the profiler's, a sampler, a handle.
    pub fn detacher(&mut self) -> Result<Detacher> {
        if self.is_shared() {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, DETACH).about(
                "detacher",
                "calls to the runtime may be under way already, and are not counted: ask for the `Detacher` first in \
                 `initialize`, before `Info` is cloned and before threads and samplers are started",
            ));
        }
        self.calls().count();
        Detacher::new(self)
    }
}

impl std::fmt::Debug for Detacher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Detacher").field(&self.state()).finish()
    }
}

static_assertions::assert_impl_all!(Detacher: Send, Sync);
