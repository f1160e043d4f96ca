//! The callbacks that begin and end a profiler.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof_sys as sys;
use windows_core::{BOOL, HRESULT, IUnknown, Ref};

use crate::context::{InAttach, InCallback, InInitialize};
use crate::error::{E_FAIL, E_POINTER, Error, Result, S_OK};
use crate::event_mask::{Event, Phase};
use crate::info::Info;
use crate::profiler::{BoxError, Profiler};
use crate::report;
use crate::session::Attaching;
use crate::session::ending::Stage;
use crate::session::ending_threads::Called;
use crate::session::notification_profilers;
use crate::session::panics::catch;
use crate::session::wire;
use crate::session::{UnsupportedRuntime, first_runtime_with};
use crate::system::FileSizeErrors;

use super::exception_pins::ExceptionPins;
use super::settle;
use super::{Adapter, in_callback};

/// How long Shutdown waits for callbacks that are still running, and then for the profiler threads. Callbacks are
/// short, but one may wait for a thread that the end of the process has already stopped, and the application must still
/// end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The callback of an attach, for messages.
const ATTACH: &str = "InitializeForAttach";

pub(crate) unsafe extern "system" fn initialize<P: Profiler>(this: *mut c_void, runtime: Ref<'_, IUnknown>) -> HRESULT {
    // SAFETY: the runtime holds a reference while it calls (fact: profiler-object).
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    adapter.start(runtime.as_ref(), Phase::Initialize, |info| {
        let profiler = match P::without_initialize() {
            Some(profiler) => profiler,
            // SAFETY: the runtime has called `Initialize`, and waits for its result (fact: contexts).
            None => P::initialize(&mut unsafe { InInitialize::new(info) })?,
        };
        info.set_phase(Phase::Running);
        Ok(profiler)
    })
}

pub(crate) unsafe extern "system" fn initialize_for_attach<P: Profiler>(
    this: *mut c_void,
    runtime: Ref<'_, IUnknown>,
    data: *mut c_void,
    size: u32,
) -> HRESULT {
    // SAFETY: the runtime holds a reference while it calls; the data is an array of `size` bytes or null
    // (fact: profiler-object, arguments).
    let (adapter, data): (&Adapter<P>, &[u8]) = unsafe { (Adapter::of(this), wire::slice(size, data.cast())) };
    // A constant, as in the thunks.
    if const { !P::EVENTS.contains(Event::InitializeForAttach) } {
        return not_attached(adapter, Error::new(sys::CORPROF_E_PROFILER_NOT_ATTACHABLE, ATTACH));
    }
    if P::NOTIFICATION_ONLY {
        const RULE: &str = "the runtime may make no callbacks to one that is attached: load it at start-up";
        let error = Error::new(sys::CORPROF_E_PROFILER_NOT_ATTACHABLE, ATTACH);
        return not_attached(adapter, error.about("notification_only", RULE));
    }
    let _attaching = Attaching::begin();
    let _called = Called::begin();
    adapter.start(runtime.as_ref(), Phase::Attached, |info| {
        // SAFETY: the runtime has called `InitializeForAttach`, and waits for its result (fact: contexts).
        let mut cx = unsafe { InAttach::new(info) };
        settle::begin(&mut cx)?;
        P::initialize_for_attach(&mut cx, data)
    })
}

/// Refuses an attach. The end of a main profiler would harm notification-only ones, so it stays, and does nothing.
fn not_attached<P: Profiler>(adapter: &Adapter<P>, error: Error) -> HRESULT {
    report::line(format_args!("the profiler {} is not attached: {error}", P::NAME));
    if P::NOTIFICATION_ONLY || !notification_profilers::may_exist() {
        return error.code();
    }
    adapter.state.gate.disable();
    S_OK
}

/// From here on the runtime reports what begins.
pub(crate) unsafe extern "system" fn profiler_attach_complete<P: Profiler>(this: *mut c_void) -> HRESULT {
    // SAFETY: the runtime holds a reference while it calls (fact: profiler-object).
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    let _attaching = Attaching::begin();
    let _called = Called::begin();
    if let Some(info) = adapter.info.get() {
        // SAFETY: the runtime has called `ProfilerAttachComplete`, and waits for its result (fact: contexts).
        let mut cx = unsafe { InCallback::new(info) };
        if let Err(error) = settle::complete(&mut cx) {
            report::line(format_args!("the profiler {} cannot list modules and functions yet: {error}", P::NAME));
        }
        // A constant, as in the thunks. What cannot be attached has nothing to catch up with.
        if const { P::EVENTS.contains(Event::InitializeForAttach) }
            && let Some(catch_up) = info.catch_up()
        {
            adapter.catch_up(&mut cx, catch_up);
        }
    }
    // SAFETY: this is the thunk of that event.
    unsafe {
        in_callback(this, Event::ProfilerAttachComplete, 0, |profiler: &P, cx| profiler.profiler_attach_complete(cx))
    }
}

pub(crate) unsafe extern "system" fn shutdown<P: Profiler>(this: *mut c_void) -> HRESULT {
    // SAFETY: the runtime holds a reference while it calls (fact: profiler-object).
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    adapter.end();
    S_OK
}

/// The runtime releases the profiler: no other thread is in a callback, and the last Release follows.
pub(crate) unsafe extern "system" fn profiler_detach_succeeded<P: Profiler>(this: *mut c_void) -> HRESULT {
    // SAFETY: the runtime holds a reference while it calls (fact: profiler-object).
    let adapter: &Adapter<P> = unsafe { Adapter::of(this) };
    if matches!(adapter.state.ending.stage(), Stage::Asking | Stage::Asked) {
        adapter.state.ending.detached();
        return S_OK;
    }
    // The profiler has requested the detach by a raw call. Only this can still be done: make its callback, then return
    // errors from calls. SAFETY: this is the thunk of that event.
    let code = unsafe {
        in_callback(this, Event::ProfilerDetachSucceeded, 0, |profiler: &P, _| profiler.profiler_detach_succeeded())
    };
    adapter.state.gate.close(PATIENCE);
    if let Some(info) = adapter.info.get() {
        let mut are_over = info.calls().close();
        let deadline = Instant::now() + PATIENCE;
        while !are_over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        info.liveness().session_ended();
    }
    adapter.state.ending.detached();
    code
}

/// The runtime asks for the kind of the profiler.
pub(crate) unsafe extern "system" fn load_as_notification_only<P: Profiler>(_: *mut c_void, out: *mut BOOL) -> HRESULT {
    if out.is_null() {
        return E_POINTER;
    }
    // SAFETY: not null, and by COM's rules room for a truth value (fact: com).
    unsafe { *out = BOOL::from(P::NOTIFICATION_ONLY) };
    S_OK
}

impl<P: Profiler> Adapter<P> {
    /// Gets the runtime's interface, or refuses a runtime that is too old; sets the profiler's event mask; has `user`
    /// make the profiler.
    fn start(
        &self,
        runtime: Option<&IUnknown>,
        phase: Phase,
        user: impl FnOnce(&Info) -> Result<P, BoxError>,
    ) -> HRESULT {
        let Some(runtime) = runtime else { return E_POINTER };
        let Some(_inside) = self.state.gate.enter() else { return E_FAIL };
        let _called = Called::begin();
        self.state.ending.set_object(Some(self.as_object()));
        self.state.ending.initializing();
        let start = || -> Result<(), (HRESULT, String)> {
            // Formatting and dropping an error runs the user's code as well.
            let with_code = |error: BoxError| {
                let code = error.downcast_ref::<Error>().map_or(E_FAIL, Error::code);
                (if code.is_ok() { E_FAIL } else { code }, error.to_string())
            };
            let info = Info::negotiate(runtime, phase, Arc::clone(&self.state))
                .map_err(|unsupported| (UnsupportedRuntime::CODE, unsupported.to_string()))?;
            let info = self.prepare(info).map_err(with_code)?;
            self.set_profiler(user(info).map_err(with_code)?);
            Ok(())
        };
        let (code, why) = match catch(start, || self.state.note_panic()) {
            Some(Ok(())) => {
                self.state.ending.loaded();
                return S_OK;
            }
            Some(Err(why)) => why,
            None => (E_FAIL, "it panicked".to_owned()),
        };
        self.state.gate.disable();
        self.end_profiler_threads();
        report::line(format_args!("the profiler {} is not loaded; the application runs without it: {why}", P::NAME));
        if self.info.get().is_some_and(|info| Self::stays(info)) {
            self.state.ending.loaded();
            return S_OK;
        }
        if let Some(info) = self.info.get() {
            info.liveness().session_ended();
        }
        self.state.ending.not_loaded();
        code
    }

    /// Ends what a profiler that failed has started. Returns whether something of it is left: after a failure the
    /// runtime deletes the object behind `Info`, and goes on calling sessions. Then the runtime gets a success, and all
    /// events are turned off, as far as the runtime turns them off; the gate keeps the others from the profiler. Calls
    /// return errors: without events nothing says which identifiers die. So it is with a main profiler whose end would
    /// harm notification-only ones, and with one that has changed code which the compiler must not inline.
    fn stays(info: &Info) -> bool {
        info.profiler_threads().join(); // a joined thread has dropped its `Info`
        let has_sessions = info.stop_event_pipe_sessions().is_err();
        let is_main = !P::NOTIFICATION_ONLY;
        let has_changed_code = !info.lasting_events().is_empty();
        let has_company = is_main && notification_profilers::may_exist();
        let is_left = has_sessions || has_changed_code || has_company || info.is_shared();
        if is_left {
            if let Err(error) = info.silence() {
                report::line(format_args!("events of the profiler {} stay on: {error}", P::NAME));
            }
            drop(info.calls().close());
        }
        is_left
    }

    fn prepare(&self, info: Info) -> Result<&Info, BoxError> {
        if info.version() < P::MIN_INFO {
            return Err(Box::new(TooOld { needed: P::MIN_INFO, offered: info.version() }));
        }
        let info = self.info.get_or_init(|| info);
        if let Some(pins) = ExceptionPins::for_runtime(info) {
            let _ = self.exception_pins.set(pins); // the runtime initializes once
        }
        info.set_event_mask(P::EVENTS.mask())?;
        Ok(info)
    }

    /// Closes the gate, calls the profiler's `shutdown`, and drops it.
    fn end(&self) {
        let _called = Called::begin();
        let _errors = FileSizeErrors::begin();
        if !self.state.ending.shutdown(PATIENCE) {
            return;
        }
        let is_disabled = !self.state.gate.is_open();
        if let Some(info) = self.info.get() {
            info.event_pipe_sessions().end_all();
            // This releases a callback that waits for one of them.
            info.profiler_threads().stop();
        }
        let is_empty = self.state.gate.close(PATIENCE);
        if !is_empty {
            // A callback that does not end may hold a lock that `shutdown` waits for, so `shutdown` is not called then.
            report::line(format_args!(
                "callbacks of the profiler {} are still running {PATIENCE:?} after Shutdown: its `shutdown` is not called",
                P::NAME
            ));
        }
        self.end_profiler_threads();
        let observers = || self.info.get().filter(|_| is_empty).into_iter().flat_map(Info::all_observers);
        for observer in observers() {
            // SAFETY: the gate is closed and no thread is inside.
            unsafe { observer.profiler_ending(is_disabled) };
        }
        if let Some(info) = self.info.get() {
            if is_empty && !is_disabled && !info.profiler_threads().has_panicked() {
                // SAFETY: only the code below drops the profiler, once. The runtime has called `Shutdown`, in which the
                // table allows all sync calls, and waits for its result (fact: contexts).
                let (profiler, mut cx) = unsafe { (self.profiler(), InCallback::new(info)) };
                let last_word = || profiler.map(|profiler| profiler.shutdown(&mut cx));
                catch(last_word, || self.state.report_last_panic("shutdown"));
            }
            info.seal_event_mask();
        }
        for observer in observers() {
            // SAFETY: as above.
            unsafe { observer.profiler_ended() };
        }
        if is_empty {
            // SAFETY: the gate is closed and no thread is inside.
            unsafe { self.drop_profiler() };
        }
    }
}

impl<P: Profiler> Adapter<P> {
    /// Stops the profiler's threads and waits for them: the data that they use may be about to be dropped.
    fn end_profiler_threads(&self) {
        if let Some(info) = self.info.get() {
            info.profiler_threads().stop();
            info.profiler_threads().wait(PATIENCE);
        }
    }
}

/// The error if the runtime lacks the interface that the profiler needs.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "it needs ICorProfilerInfo{needed} ({} or later), and this runtime offers ICorProfilerInfo{offered} ({})",
    first_runtime_with(*needed), first_runtime_with(*offered)
)]
struct TooOld {
    needed: u8,
    offered: u8,
}
