//! Profiler threads: threads that corprof makes for a profiler.
//!
//! Some calls may not be made from any callback: a collection cannot be asked for from inside of one, and an application's
//! thread on which it was once asked for is no longer checked by the runtime. They belong on a thread that the profiler has
//! made. corprof makes it, so that it can vouch that it never ran managed code, and sees to its end:
//!
//! ```
//! # use corprof::prelude::*;
//! # use std::time::Duration;
//! # #[derive(Profiler)]
//! # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C02", no_export)]
//! # struct Collector;
//! #[callbacks]
//! impl Callbacks for Collector {
//!     fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
//!         cx.spawn_profiler_thread("collector", |cx| {
//!             while cx.wait(Duration::from_secs(10)).is_continue() {
//!                 let _ = cx.force_gc();
//!             }
//!         })?;
//!         Ok(())
//!     }
//! }
//! ```
//!
//! At Shutdown the threads are told to stop, and waited for before the profiler's `shutdown` is called; a thread that does
//! not come to an end in two seconds is reported and left behind, for the application must end. A panic on one of them is
//! like one in a callback: it is reported, and the profiler goes quiet.

mod rejit;

use std::io;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::time::Duration;

use crate::context::{Context, InTriggers, sealed};
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::info::Info;
use crate::report;
use crate::session::panics::{PanicPlace, catch};
use crate::session::profiler_threads::ThreadSlot;

/// The calling thread is one that corprof has made, and that never ran managed code.
///
/// It offers what [`InTriggers`] offers, and what only such a thread may ask for. Calls about sessions of EventPipe are made
/// on a thread beside it, for they could turn it into a managed one, which the runtime refuses most calls outside of callbacks.
#[derive(Debug)]
pub struct ProfilerThread<'t> {
    inner: InTriggers<'t>,
}

static_assertions::assert_not_impl_any!(ProfilerThread<'static>: Send, Sync, Clone);

impl Context for ProfilerThread<'_> {}

impl sealed::Sealed for ProfilerThread<'_> {}

impl ProfilerThread<'_> {
    /// Whether the thread should come to an end: the application ends, or the profiler has gone quiet.
    pub fn is_stopping(&self) -> bool {
        self.profiler_threads().is_stopping()
    }

    /// Sleeps for `duration`, or until the thread should come to an end: `Break` says that it should.
    pub fn wait(&mut self, duration: Duration) -> ControlFlow<()> {
        if self.profiler_threads().sleep(duration) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Collects the whole heap, and returns when that is done.
    #[doc = contract!(ForceGC)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime has not started yet; wait a little.
    #[doc(alias = "ForceGC")]
    pub fn force_gc(&mut self) -> Result<()> {
        const CALL: &str = "ForceGC";
        // SAFETY: the call takes nothing.
        Error::check(unsafe { self.first_version(CALL)?.ForceGC() }, CALL)
    }
}

impl InTriggers<'_> {
    /// Makes a thread called `name` that runs `run`, in a context in which more may be asked ([`ProfilerThread`]).
    ///
    /// What the thread shares with the callbacks goes into `run` behind an `Arc`. `run` should return soon after
    /// [`ProfilerThread::wait`] or [`ProfilerThread::is_stopping`] says so.
    ///
    /// # Errors
    /// If the system has no thread to give, the name has a NUL inside, or the profiler is being shut down.
    pub fn spawn_profiler_thread(
        &self,
        name: &str,
        run: impl FnOnce(&mut ProfilerThread<'_>) + Send + 'static,
    ) -> io::Result<()> {
        if name.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a thread's name can have no NUL inside"));
        }
        let slot = self.profiler_threads().slot(name)?;
        let info = Info::clone(self);
        let title = name.to_owned();
        let number = slot.number();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let handle = thread.spawn(move || begin(&slot, &info, &title, run))?;
        self.profiler_threads().keep(number, handle);
        Ok(())
    }
}

/// The thread's whole life. The closure is gone before the slot is given up.
fn begin(slot: &ThreadSlot, info: &Info, name: &str, run: impl FnOnce(&mut ProfilerThread<'_>)) {
    slot.take();
    let life = || {
        // SAFETY: corprof has just made this thread, which has no managed code to run, and the runtime answers all sync calls on it.
        let mut cx = ProfilerThread { inner: unsafe { InTriggers::new(info) } };
        match cx.initialize_current_thread() {
            Ok(()) => run(&mut cx),
            Err(error) => report::line(format_args!("the profiler's thread {name} is not run: {error}")),
        }
    };
    catch(life, || info.profiler().disable_after_panic(PanicPlace::ProfilerThread(name)));
}

impl<'t> Deref for ProfilerThread<'t> {
    type Target = InTriggers<'t>;

    fn deref(&self) -> &InTriggers<'t> {
        &self.inner
    }
}

impl DerefMut for ProfilerThread<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}
