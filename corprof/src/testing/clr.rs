//! [`FakeClr`]: a profiler loaded into a fake runtime.

use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use corprof_sys as sys;
use windows_core::{BOOL, GUID, HRESULT, IUnknown, Interface};

use crate::adapter::factory::{ClassEntry, FactoryVtable, IID_ICLASSFACTORY, dll_get_class_object};
use crate::adapter::{has_panicked, profiler_of};
use crate::error::{E_NOINTERFACE, Error, Result};
use crate::event_mask::{Event, EventMask};
use crate::id::{AppDomainId, ModuleId, ThreadId};
use crate::lock::unpoisoned;
use crate::profiler::Profiler;
use crate::sync;

use super::builder::{Builder, Start};
use super::com::{self, InfoFace};
use super::contract::Status;
use super::here;
use super::runtime::Runtime;
use super::threads::Worker;
use super::world::Thread;

/// Makes a callback: `make!(clr, Event, |callback| callback.Method(arguments))`. Returns its result, if it was made.
macro_rules! make {
    ($clr:expr, $event:ident, |$callback:ident| $call:expr) => {
        $clr.deliver(crate::event_mask::Event::$event, |$callback| {
            // SAFETY: the object is the profiler's and alive; the arguments are as in the IDL: identifiers of this fake
            // CLR, and pointers to data that outlive the call.
            unsafe { $call }
        })
    };
}
pub(super) use make;

/// A profiler loaded into a fake runtime: the [module's documentation](crate::testing) shows how to use it.
///
/// Every method may be called on any thread. A method that makes callbacks first makes the calling thread a managed
/// one, if it is not; the thread that called [`load`](Self::load) is managed from the start.
#[derive(Debug)]
pub struct FakeClr {
    pub(super) runtime: Arc<Runtime>,
    /// The profiler's COM object, until it has detached.
    callback: Option<Callback>,
    /// The object that answers the profiler's calls, until then.
    info: Option<InfoObject>,
    profiler: TypeId,
    /// [`has_panicked`] of the profiler's type.
    panicked: unsafe fn(*mut c_void) -> bool,
    pub(super) workers: Mutex<HashMap<usize, Worker>>,
    /// One thread at a time loads the core library.
    pub(super) loading: Mutex<()>,
}

/// The profiler's COM object.
struct Callback(sys::ICorProfilerCallback11);

// SAFETY: the object is an adapter over a profiler that is `Send` and `Sync`, and callbacks are made on all threads;
// its reference count is atomic.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// The runtime's own object.
#[derive(Debug)]
struct InfoObject(IUnknown);

// SAFETY: its reference count is atomic, and what it answers from has locks.
unsafe impl Send for InfoObject {}
// SAFETY: as above.
unsafe impl Sync for InfoObject {}

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Callback").field(&self.0.as_raw()).finish()
    }
}

impl FakeClr {
    /// Loads a profiler into the newest runtime that corprof knows: class factory, `CreateInstance`, `Initialize`.
    ///
    /// # Errors
    /// The error of `Initialize`, if the profiler refuses to be loaded; it is dropped then.
    pub fn load<P: Profiler>() -> Result<Self> {
        Self::builder().load::<P>()
    }

    /// Describes a runtime before a profiler is loaded into it.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(super) fn start<P: Profiler>(runtime: Runtime, mut start: Start) -> Result<Self> {
        let callback = Callback(create_instance::<P>()?);
        let runtime = Arc::new(runtime);
        let info = Some(com::create(InfoFace { runtime: Arc::clone(&runtime) }));
        let clr = Self {
            runtime,
            callback: Some(callback),
            info: info.clone().map(InfoObject),
            profiler: TypeId::of::<P>(),
            panicked: has_panicked::<P>,
            workers: Mutex::default(),
            loading: Mutex::default(),
        };
        clr.ask_for_notification_only();
        if let Some(before) = start.before.take() {
            let clr = &clr;
            std::thread::scope(|scope| _ = scope.spawn(move || before(clr)));
        }
        let (call, code) = match &start.attach {
            None => ("Initialize", make!(clr, Initialize, |callback| callback.Initialize((&info).into()))),
            Some(data) => {
                let start = data.as_ptr().cast_mut().cast::<c_void>();
                let size = data.len() as u32;
                let code = make!(clr, InitializeForAttach, |callback| callback.InitializeForAttach(
                    (&info).into(),
                    start,
                    size
                ));
                ("InitializeForAttach", code)
            }
        };
        Error::check(code.unwrap_or(sys::CORPROF_E_PROFILER_NOT_ATTACHABLE), call)?;
        clr.runtime.set_status(Status::Active);
        let main = clr.runtime.world_mut().new_id();
        clr.runtime
            .world_mut()
            .threads
            .insert(main, Thread { os_id: crate::system::os_thread_id(), ..Thread::default() });
        here::carry(clr.runtime.id, main);
        if clr.runtime.attached {
            let clr = &clr;
            std::thread::scope(|scope| {
                let _ = start.meanwhile.map(|meanwhile| scope.spawn(move || meanwhile(clr)));
                make!(clr, ProfilerAttachComplete, |callback| callback.ProfilerAttachComplete());
            });
        }
        Ok(clr)
    }

    /// No Info call works in this callback, and it is not in the log: it comes before all others.
    fn ask_for_notification_only(&self) {
        let Some(Callback(callback)) = &self.callback else { return };
        let mut answer = BOOL(0);
        // SAFETY: the object is alive; the call writes one truth value.
        let code = unsafe { callback.LoadAsNotificationOnly(&mut answer) };
        self.runtime.notification_only.store(code.is_ok() && answer.as_bool(), Ordering::Relaxed);
    }

    /// Makes a callback, if the profiler receives it now.
    pub(super) fn deliver(
        &self,
        event: Event,
        call: impl FnOnce(&sys::ICorProfilerCallback11) -> HRESULT,
    ) -> Option<HRESULT> {
        let Callback(callback) = self.callback.as_ref()?;
        let delivery = self.runtime.is_wanted(event)?;
        // A collection waits for the callbacks that could be touching objects, unless they are part of it.
        let collects = self.runtime.collector.load(Ordering::Acquire) == here::thread(self.runtime.id);
        let is_native = here::thread(self.runtime.id) == 0;
        let must_wait = delivery.cooperative && (is_native || !collects);
        let _running = must_wait.then(|| unpoisoned(self.runtime.execution.read()));
        self.runtime.note_delivery(event);
        let _inside = here::enter(self.runtime.id, |managed| delivery.standing(managed));
        Some(call(callback))
    }

    /// Makes a callback that no other method makes: `call` receives the profiler's own interface, and must call the
    /// method of `event` on it and nothing else. Returns its result, or nothing if the profiler does not receive the
    /// callback now.
    ///
    /// As always, that depends on the event mask, the version of the runtime and the contract table. The callbacks of a
    /// profiler's beginning and end are never made this way.
    ///
    /// ```
    /// # use corprof::{event_mask::Event, prelude::*, testing::FakeClr};
    /// # #[derive(Default, Profiler)]
    /// # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C02", no_export)]
    /// # struct Silent;
    /// # #[callbacks] impl Callbacks for Silent {}
    /// # fn main() -> corprof::Result<()> {
    /// let clr = FakeClr::load::<Silent>()?;
    /// // SAFETY: only the profiler takes 8 for a handle.
    /// let answer = clr.raise(Event::HandleDestroyed, |callback| unsafe { callback.HandleDestroyed(8) });
    /// assert_eq!(answer, None, "it did not ask for collections");
    /// # Ok(())
    /// # }
    /// ```
    pub fn raise(&self, event: Event, call: impl FnOnce(&sys::ICorProfilerCallback11) -> HRESULT) -> Option<HRESULT> {
        if event == Event::Shutdown {
            return None;
        }
        self.current_thread();
        self.deliver(event, call)
    }

    /// The profiler itself, to check its state; none once it was dropped.
    ///
    /// # Panics
    /// If another type than `P` was loaded.
    pub fn profiler<P: Profiler>(&self) -> Option<&P> {
        if self.profiler != TypeId::of::<P>() {
            misuse(format_args!("{} is not the profiler that was loaded", P::NAME));
        }
        let Callback(callback) = self.callback.as_ref()?;
        // SAFETY: the object came from the factory of `P`. Only Shutdown and the last Release drop the profiler, and
        // the fake CLR makes those by `&mut self` only.
        unsafe { profiler_of(callback.as_raw()) }
    }

    /// The data behind one of corprof's locks in the profiler, to check between two steps of the program.
    ///
    /// [`Mutex::lock`](crate::sync::Mutex::lock) needs the context of a callback, which a test does not have. Drop the
    /// guard before the next step: a callback that takes the same lock would wait for ever. Data that the test needs
    /// after [`shutdown`](Self::shutdown), when the profiler is gone, must be shared with the profiler by an `Arc` or a
    /// `static`.
    ///
    /// ```
    /// use corprof::{prelude::*, sync::Mutex, testing::FakeClr};
    ///
    /// #[derive(Default, Profiler)]
    /// #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C04", no_export)]
    /// struct Modules(Mutex<Vec<ModuleId>>);
    ///
    /// #[callbacks]
    /// impl Callbacks for Modules {
    ///     fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
    ///         self.0.lock(cx).push(module);
    ///     }
    /// }
    ///
    /// let clr = FakeClr::load::<Modules>()?;
    /// let app = clr.load_assembly("App");
    /// let modules = clr.profiler::<Modules>().map(|profiler| clr.lock(&profiler.0).clone());
    /// assert_eq!(modules.unwrap_or_default().last(), Some(&app));
    /// # Ok::<(), corprof::Error>(())
    /// ```
    pub fn lock<'a, T: ?Sized>(&'a self, mutex: &'a sync::Mutex<T>) -> sync::MutexGuard<'a, T> {
        mutex.lock_anywhere()
    }

    /// Whether any of the profiler's code has panicked, so that it is disabled. No panic comes out of a callback, so a
    /// test that expects none must ask. Once the profiler has detached, this is `false`.
    pub fn has_panicked(&self) -> bool {
        // SAFETY: the object came from the factory of the type that the function is for.
        self.callback.as_ref().is_some_and(|Callback(callback)| unsafe { (self.panicked)(callback.as_raw()) })
    }

    /// The events that are on.
    pub fn event_mask(&self) -> EventMask {
        self.runtime.mask()
    }

    /// The callbacks that have been made so far, in order.
    pub fn delivered(&self) -> Vec<Event> {
        self.runtime.delivered()
    }

    /// Clears the list of callbacks that have been made.
    pub fn forget_delivered(&self) {
        self.runtime.forget_delivered();
    }

    /// The calls that were refused because of their place, with their codes. A profiler that uses corprof's contexts
    /// never gets these.
    pub fn refusals(&self) -> Vec<(&'static str, HRESULT)> {
        self.runtime.refusals()
    }

    /// Makes the next call of this name fail. Several failures are used in order.
    ///
    /// # Panics
    /// If neither `ICorProfilerInfo` nor `IMetaDataImport2` has such a call.
    #[track_caller]
    pub fn fail_next(&self, call: &str, code: HRESULT) {
        if !self.runtime.faults.next(call, code) {
            misuse(format_args!("there is no call {call}"));
        }
    }

    /// Makes all calls of this name fail.
    ///
    /// # Panics
    /// As [`fail_next`](Self::fail_next).
    #[track_caller]
    pub fn fail_always(&self, call: &str, code: HRESULT) {
        if !self.runtime.faults.always(call, Some(code)) {
            misuse(format_args!("there is no call {call}"));
        }
    }

    /// Undoes [`fail_always`](Self::fail_always).
    ///
    /// # Panics
    /// As [`fail_next`](Self::fail_next).
    #[track_caller]
    pub fn fail_no_more(&self, call: &str) {
        if !self.runtime.faults.always(call, None) {
            misuse(format_args!("there is no call {call}"));
        }
    }

    /// The runtime's interface, for calls from places where corprof has no context: a thread of the test's own, or
    /// outside any callback. The calls are answered or refused like any other.
    pub fn info(&self) -> IUnknown {
        com::create(InfoFace { runtime: Arc::clone(&self.runtime) })
    }

    /// The one application domain.
    pub fn app_domain(&self) -> AppDomainId {
        made(AppDomainId::from_raw(self.runtime.world().app_domain))
    }

    /// Does the work of a runtime before `Main`: reports the main thread, which is the calling one, loads the core
    /// library and creates the application domain.
    pub fn start_up(&self) -> ModuleId {
        let domain = self.app_domain().as_raw();
        let thread = self.current_thread();
        self.report_thread(thread);
        let core = self.core_module();
        make!(self, AppDomainCreationStarted, |callback| callback.AppDomainCreationStarted(domain));
        make!(self, AppDomainCreationFinished, |callback| callback.AppDomainCreationFinished(domain, HRESULT(0)));
        core
    }

    /// Ends the process: `Shutdown`, after which no callback is made.
    pub fn shutdown(&mut self) {
        make!(self, Shutdown, |callback| callback.Shutdown());
        if self.runtime.status() == Status::Active {
            self.runtime.set_status(Status::Shut);
        }
    }

    /// Completes a detach that the profiler has requested with `RequestProfilerDetach`: makes `ProfilerDetachSucceeded`
    /// on a thread of the runtime's own, then releases the object. Returns whether the profiler had requested it.
    ///
    /// From the request on no callback is made and every call is refused.
    pub fn detach(&mut self) -> bool {
        if self.runtime.status() != Status::Detaching {
            return false;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| make!(self, ProfilerDetachSucceeded, |callback| callback.ProfilerDetachSucceeded()));
        });
        let is_released = self.callback.take().is_some();
        if let Some(InfoObject(info)) = self.info.take() {
            // SAFETY: it is an `InfoFace`, and the profiler does not use it any more: in a runtime it is gone as well.
            unsafe { com::delete::<InfoFace>(info) };
        }
        is_released
    }
}

impl Drop for FakeClr {
    fn drop(&mut self) {
        for (_, worker) in unpoisoned(self.workers.get_mut()).drain() {
            worker.end();
        }
        here::carry(self.runtime.id, 0);
    }
}

/// Does the runtime's work with a library: `DllGetClassObject`, then `CreateInstance`.
fn create_instance<P: Profiler>() -> Result<sys::ICorProfilerCallback11> {
    let mut factory: *mut c_void = std::ptr::null_mut();
    // SAFETY: the GUIDs are constants, and there is room for one pointer.
    let code = unsafe {
        let entries = [ClassEntry::of::<P>()];
        dll_get_class_object(&entries, &P::CLSID, &IID_ICLASSFACTORY, &mut factory)
    };
    Error::check(code, "DllGetClassObject")?;
    let mut object: *mut c_void = std::ptr::null_mut();
    // The runtime queries the second version first, and from it all newer ones.
    const IID: GUID = sys::ICorProfilerCallback2::IID;
    // SAFETY: the successful call returned a class factory, which is never freed.
    let code = unsafe {
        let vtable: &FactoryVtable = *factory.cast();
        (vtable.CreateInstance)(factory, std::ptr::null_mut(), &IID, &mut object)
    };
    Error::check(code, "CreateInstance")?;
    // SAFETY: the successful call returned a reference to an object with this interface.
    let callback = unsafe { sys::ICorProfilerCallback2::from_raw(object) };
    callback.cast().map_err(|_| Error::new(E_NOINTERFACE, "QueryInterface"))
}

/// An identifier that the world has just made, and so not 0.
pub(super) fn made<T>(id: Option<T>) -> T {
    match id {
        Some(id) => id,
        None => misuse(format_args!("an identifier is 0")),
    }
}

/// Fails a test that makes an impossible request.
#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "a test that is wrong must fail, at the line that is wrong")]
pub(super) fn misuse(what: std::fmt::Arguments<'_>) -> ! {
    panic!("fake CLR: {what}")
}

/// A managed thread's identifier.
pub(super) fn thread_id(raw: usize) -> ThreadId {
    made(ThreadId::from_raw(raw))
}
