//! Profiler threads: threads that corprof makes for a profiler.
//!
//! Some calls may not be made in any callback: a callback cannot request a collection, and the runtime no longer checks
//! an application's thread that has once requested one. These calls need a thread of the profiler's own. corprof makes
//! it, so that the thread certainly never ran managed code, and ends it:
//!
//! ```
//! # use corprof::prelude::*;
//! # use std::time::Duration;
//! # #[derive(Profiler)]
//! # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C02", no_export)]
//! # struct Collector;
//! #[callbacks]
//! impl Callbacks for Collector {
//!     fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
//!         cx.spawn_profiler_thread("collector", |cx| {
//!             while cx.wait(Duration::from_secs(10)).is_continue() {
//!                 let _ = cx.force_gc();
//!             }
//!         })?;
//!         Ok(Self)
//!     }
//! }
//! ```
//!
//! At Shutdown the threads are asked to stop, and corprof waits for them before it calls the profiler's `shutdown`; a
//! thread that does not end within two seconds is reported and left behind, because the application must end. A panic
//! on one of them is handled like one in a callback: it is reported, and the profiler is disabled.

mod jitted;
mod rejit;
mod runtime_events;

use std::io;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::time::Duration;

use crate::context::{Context, InCallback, sealed};
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::info::Info;
use crate::report;
use crate::session::ending_threads::Called;
use crate::session::panics::{PanicPlace, catch};
use crate::session::profiler_threads::ThreadPermit;
use crate::system::FileSizeErrors;

/// The context of a thread that corprof has made, and that never ran managed code.
///
/// It offers the calls of [`InCallback`], and those that only such a thread may make. Calls about EventPipe sessions
/// are made on another thread, because they could turn this one into a managed thread, which the runtime refuses most
/// calls outside callbacks.
#[derive(Debug)]
pub struct ProfilerThread<'t> {
    inner: InCallback<'t>,
}

static_assertions::assert_not_impl_any!(ProfilerThread<'static>: Send, Sync, Clone);

impl Context for ProfilerThread<'_> {}

impl sealed::Sealed for ProfilerThread<'_> {}

impl ProfilerThread<'_> {
    /// Whether the thread should end: the application is ending, or the profiler is disabled.
    pub fn is_stopping(&self) -> bool {
        self.profiler_threads().is_stopping()
    }

    /// Sleeps for `duration`, or until the thread should end; returns `Break` if it should.
    pub fn wait(&mut self, duration: Duration) -> ControlFlow<()> {
        if self.profiler_threads().sleep(duration) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Collects the whole heap, and returns when the collection is complete.
    ///
    /// An application in a region without collections (`GC.TryStartNoGCRegion`) leaves it by that: its `EndNoGCRegion`
    /// throws an `InvalidOperationException`. The runtime does not tell whether there is one.
    #[doc = contract!(ForceGC)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime has not started yet; wait a little. It has when
    /// [`module_load_finished`](crate::Callbacks::module_load_finished) reports the second module, or the profiler has
    /// been attached.
    #[doc(alias = "ForceGC")]
    pub fn force_gc(&mut self) -> Result<()> {
        const CALL: &str = "ForceGC";
        self.startup().refuse_collection(CALL)?;
        // SAFETY: the call takes nothing, and the runtime has started (fact: started).
        Error::check(unsafe { self.first_version(CALL)?.ForceGC() }, CALL)
    }
}

impl InCallback<'_> {
    /// Makes a thread called `name` that calls `run` with a context that allows more calls ([`ProfilerThread`]).
    ///
    /// Move data that the thread shares with the callbacks into `run` behind an `Arc`. `run` should return soon after
    /// [`ProfilerThread::wait`] or [`ProfilerThread::is_stopping`] says so.
    ///
    /// # Errors
    /// If the system cannot make a thread, the name contains a NUL, or the profiler is being shut down.
    pub fn spawn_profiler_thread(
        &self,
        name: &str,
        run: impl FnOnce(&mut ProfilerThread<'_>) + Send + 'static,
    ) -> io::Result<()> {
        if name.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the thread's name contains a NUL: remove it"));
        }
        let permit = self.profiler_threads().permit(name)?;
        let info = Info::clone(self);
        let title = name.to_owned();
        let number = permit.number();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let handle = thread.spawn(move || begin(&permit, &info, &title, run))?;
        self.profiler_threads().keep(number, handle);
        Ok(())
    }
}

/// The thread, from start to end. The closure is dropped before the permit is returned.
fn begin(permit: &ThreadPermit, info: &Info, name: &str, run: impl FnOnce(&mut ProfilerThread<'_>)) {
    permit.take();
    let _errors = FileSizeErrors::begin();
    let life = || {
        let _called = Called::begin();
        // SAFETY: corprof has just made this thread, which has no managed code to run, and the runtime answers all sync
        // calls on it (fact: contexts).
        let mut cx = ProfilerThread { inner: unsafe { InCallback::new(info) } };
        match cx.initialize_current_thread() {
            Ok(()) => run(&mut cx),
            Err(error) => report::line(format_args!("the profiler's thread {name} was not run: {error}")),
        }
    };
    catch(life, || info.profiler().disable_after_panic(PanicPlace::ProfilerThread(name)));
}

impl<'t> Deref for ProfilerThread<'t> {
    type Target = InCallback<'t>;

    fn deref(&self) -> &InCallback<'t> {
        &self.inner
    }
}

impl DerefMut for ProfilerThread<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}
