//! Detaches the profiler while the application goes on.
//!
//! A profiler that was attached, or loaded at start-up, can detach: the runtime then makes no more callbacks, and the
//! application runs as if there had never been a profiler. [`Detacher::detach`] lists the conditions. Get the handle in
//! `initialize` or `initialize_for_attach`, and use it anywhere:
//!
//! ```
//! # use corprof::prelude::*;
//! # use std::time::Duration;
//! # #[derive(Profiler)]
//! # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C0A", no_export)]
//! # struct Visitor;
//! #[callbacks]
//! impl Callbacks for Visitor {
//!     fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
//!         let detacher = cx.detacher()?;
//!         cx.spawn_profiler_thread("timer", move |cx| {
//!             if cx.wait(Duration::from_secs(30)).is_continue() {
//!                 if let Err(error) = detacher.detach() {
//!                     eprintln!("the profiler stays: {error}");
//!                 }
//!             }
//!         })?;
//!         Ok(Self)
//!     }
//!
//!     fn shutdown(&self, _cx: &mut InCallback<'_>) {
//!         // The application ends or the profiler detaches: write the results.
//!     }
//! }
//! ```
//!
//! A profiler cannot detach once it has changed code permanently (hooks, IL bodies, ReJIT, or `ENABLE_REJIT` in its
//! event mask), while a flag is set that can change in `initialize` only, or if it is notification-only or may have
//! such profilers beside it. [`detach`](Detacher::detach) then returns an error that says which, and changes nothing.
//! [`retire`](Detacher::retire) ends it, and leaves it loaded.

mod listen;

use std::io;
use std::sync::Arc;

use corprof_sys as sys;

use crate::context::{InAttach, InCallback, InInitialize};
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::session::ReleaseFact;
use crate::session::ending::{DETACH, Stage};
use crate::session::panics::ProfilerState;

/// Detaches the profiler from the process. It, and its clones, may be kept and used anywhere, on any thread.
#[derive(Clone)]
pub struct Detacher(Arc<ProfilerState>);

/// The progress of a detach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DetachState {
    /// No detach has been requested.
    Loaded,
    /// A detach is under way.
    Detaching,
    /// The runtime has released the profiler.
    Detached,
    /// The runtime has refused, after the profiler has ended: it stays loaded, and does nothing.
    Refused(Error),
    /// The application ended first, or the profiler was not loaded.
    Ended,
}

impl Detacher {
    /// Begins a detach, and returns at once. The detach proceeds on a thread of its own:
    ///
    /// 1. The profiler's own threads, including samplers, are asked to stop; no new callback begins.
    /// 2. When the last callback has returned and the threads have ended, EventPipe sessions are stopped.
    /// 3. [`shutdown`](crate::Callbacks::shutdown) is called. Then the profiler is dropped.
    /// 4. From then on, calls on clones of [`Info`](crate::Info) return errors (`CORPROF_E_PROFILER_DETACHING`).
    /// 5. The detach is requested from the runtime. After 300 ms it checks that all its threads have left the profiler,
    ///    and releases it; of several profilers that detach at once, each later one may wait up to five seconds more.
    ///
    /// None of this blocks the application. The library stays in memory, for threads that keep some of its data until
    /// they end, and for signals on their way; when it is attached again, it starts anew. An EventPipe provider that
    /// the profiler has made stays, too, because the runtime calls it as long as the process lives.
    ///
    /// A callback that does not return, or a thread that does not end, keeps the profiler from being dropped, and so
    /// from detaching: after two seconds corprof reports what it waits for, and waits on. So do not wait in a callback
    /// for the [`state`](Self::state) to change.
    ///
    /// It may be called in `initialize`, and before the runtime has started: it begins once `initialize` has succeeded,
    /// and completes as soon as possible. If `initialize` fails, it is given up.
    #[doc = contract!(RequestProfilerDetach)]
    ///
    /// `CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT`: the profiler has hooks, or has made the named call, after
    /// which the runtime refuses to detach. `CORPROF_E_IMMUTABLE_FLAGS_SET`: the named event flag is set and cannot be
    /// cleared. After these errors the profiler goes on as before.
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: the profiler is notification-only, or the process loads such profilers
    /// (`CORECLR_ENABLE_NOTIFICATION_PROFILERS`): the runtime would make no more callbacks to them after a main
    /// profiler has left, and crash when one of them leaves. The profiler goes on as before.
    ///
    /// `CORPROF_E_PROFILER_DETACHING`: a detach has begun before, or the application is ending. `E_OUTOFMEMORY`: the
    /// system could not make a thread.
    #[doc(alias = "RequestProfilerDetach")]
    pub fn detach(&self) -> Result<()> {
        self.0.ending.detach()
    }

    /// [Detaches](Self::detach), or, if the runtime would refuse that, ends the profiler all the same: for one with
    /// hooks that is to write its results and rest. Its threads end, callbacks and hooks cease,
    /// [`shutdown`](crate::Callbacks::shutdown) is called, the profiler is dropped, and calls on clones of
    /// [`Info`](crate::Info) return errors. It stays loaded, so that no other profiler can attach; hooks in compiled
    /// code are still called, and return at once; the compiler is still kept from inlining methods with probes or hooks
    /// by inserted code. [`wait`](Self::wait) and the [`state`](Self::state) then have the
    /// reason why the runtime would have refused.
    ///
    /// # Errors
    /// `CORPROF_E_PROFILER_DETACHING`: a detach has begun before, or the application is ending; once that one has
    /// ended, the reason of its end. `E_OUTOFMEMORY`: the system could not make a thread.
    pub fn retire(&self) -> Result<()> {
        self.0.ending.retire()
    }

    /// Blocks until the detach has ended. After `Ok`, another profiler can attach.
    ///
    /// The detach waits for callbacks and for the profiler's threads, so this refuses to wait there and in `shutdown`.
    /// Call it on a [`std::thread`], which may outlive the profiler.
    ///
    /// # Errors
    /// The reason if the profiler has not detached: the runtime has refused, or the application has ended.
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: [`detach`](Self::detach) was not called, or the detach waits for the
    /// caller.
    pub fn wait(&self) -> Result<()> {
        self.0.ending.wait()
    }

    /// [Detaches](Self::detach), [waits](Self::wait) for the end of the detach, and then calls `then` with the result:
    /// on a thread of its own, so that it may be called anywhere. If a detach has begun before, it waits for that one.
    ///
    /// `then` runs when the profiler is gone, unless the result is an error: it must not need the profiler's data, and
    /// calls on a clone of [`Info`](crate::Info) return errors. If the application ends meanwhile, `then` may not be
    /// called.
    ///
    /// # Errors
    /// If the system cannot make a thread. The profiler stays, and `then` is not called.
    pub fn detach_then(&self, then: impl FnOnce(Result<()>) + Send + 'static) -> io::Result<()> {
        let detacher = self.clone();
        let thread = std::thread::Builder::new().name("after the detach".to_owned());
        let run = move || {
            let is_under_way = || matches!(detacher.state(), DetachState::Detaching | DetachState::Detached);
            then(match detacher.detach() {
                Err(error) if !is_under_way() => Err(error),
                _ => detacher.wait(),
            });
        };
        thread.spawn(run).map(drop)
    }

    /// The progress of the detach.
    pub fn state(&self) -> DetachState {
        match self.0.ending.stage() {
            Stage::Running => DetachState::Loaded,
            Stage::Draining | Stage::LastWord | Stage::Asking | Stage::Asked => DetachState::Detaching,
            Stage::Detached => DetachState::Detached,
            Stage::Stays(error) => DetachState::Refused(error),
            Stage::Over => DetachState::Ended,
        }
    }

    fn new(cx: &InCallback<'_>) -> Result<Self> {
        let runtime = cx.runtime_info()?;
        cx.profiler().ending.set_lenient(runtime.has(ReleaseFact::DetachesWithMoreFlags));
        Ok(Self(Arc::clone(cx.profiler())))
    }
}

impl InAttach<'_> {
    /// The handle for detaching the profiler.
    ///
    /// # Errors
    /// The runtime's error when it is asked for its version.
    pub fn detacher(&mut self) -> Result<Detacher> {
        Detacher::new(self)
    }
}

impl InInitialize<'_> {
    /// The handle for detaching the profiler. Call this before anything else: from then on calls to the runtime are
    /// counted, so that a detach can wait for those under way. That costs two locked instructions a call.
    ///
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: a clone of [`Info`](crate::Info) exists already, or something that has
    /// one: a profiler thread, a sampler, a handle.
    pub fn detacher(&mut self) -> Result<Detacher> {
        if self.is_shared() {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, DETACH).about(
                "detacher",
                "calls to the runtime may be under way already, and are not counted: call `detacher` first in \
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
