//! A detach, step by step, on a thread of its own.
//!
//! The runtime counts only its own callbacks. All other code of the profiler must therefore have ended before the
//! detach is requested: afterwards the runtime deletes the object that answers calls. The steps, with their reasons:
//!
//! 1. The profiler's threads are asked to stop: this releases a callback that waits for one of them.
//! 2. The gate closes, and callbacks end. Until then they may use everything.
//! 3. The threads end, including samplers: then no context exists any more, and so no identifier to make calls about.
//! 4. Threads of the application give back what the sampler has given them.
//! 5. EventPipe sessions are stopped: otherwise the runtime would go on delivering their events.
//! 6. `shutdown` is called and the profiler dropped, while the runtime still answers: it may look up names, and frees
//!    handles.
//! 7. Calls are closed: clones of `Info` live on, and return errors.
//! 8. All events are turned off. Not earlier, because the ends of things that calls are about are events.
//! 9. The detach is requested.
//!
//! A profiler that retires ([`Detacher::retire`](crate::detach::Detacher::retire)) with hooks in compiled code does the
//! same up to step 8, and stays: code goes on calling the hooks, which the closed gate turns away.
//!
//! Step 10 is the runtime's: it waits until no thread is in a callback, calls `ProfilerDetachSucceeded`, and releases
//! the object. The library stays in memory, for threads that keep some of its data until they end, and for signals on
//! their way.
//!
//! Only the end of the application ends a wait: giving up half-way would leave a profiler that is neither loaded nor
//! gone. Each wait reports once what it waits for, and blocks no thread of the application.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::{Error, Result};
use crate::event_mask::EventMask;
use crate::info::Info;
use crate::profiler::Profiler;
use crate::report;
use crate::sampler;
use crate::session::Observer;
use crate::session::ending::{DETACH, Functions, Object, Stage};
use crate::session::ending_threads::Called;
use crate::session::panics::catch;
use crate::system::FileSizeErrors;

use super::Adapter;

/// When the runtime checks whether callbacks have ended. If this is shorter and the runtime wakes up late, it checks
/// again only after five seconds.
const EXPECTED: Duration = Duration::from_millis(300);
/// How long a wait lasts before it is reported.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one call to the gate waits, so that the end of the application is noticed in between.
const SLICE: Duration = Duration::from_millis(50);
/// The polling interval for conditions without a notification.
const PAUSE: Duration = Duration::from_millis(1);

impl<P: Profiler> Adapter<P> {
    const FUNCTIONS: &'static Functions =
        &Functions { hold: hold::<P>, release: Self::release, check: check::<P>, run: run::<P> };

    /// The object, type-erased, for the detach.
    pub(super) fn as_object(&self) -> Object {
        Object { this: std::ptr::from_ref(self).cast_mut().cast(), functions: Self::FUNCTIONS }
    }

    /// Returns an error that names the call or flag which keeps the runtime from detaching the profiler.
    fn check_detach(&self) -> Result<()> {
        let Some(info) = self.info.get() else { return Ok(()) };
        let error = |code, what, rule| Err(Error::new(code, DETACH).about(what, rule));
        let code = sys::CORPROF_E_IRREVERSIBLE_INSTRUMENTATION_PRESENT;
        if let Some((what, rule)) = info.all_observers().find_map(Observer::detach_obstacle) {
            return error(code, what, rule);
        }
        if let Some((what, rule)) = info.notification_obstacle() {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, DETACH).about(what, rule));
        }
        if let Some(call) = info.what_prevents_detach() {
            return error(code, call, "the runtime does not detach a profiler that has made this call");
        }
        if self.state.ending.stage() != Stage::Running {
            return Ok(()); // the later steps report the reason
        }
        let immutable = info.current_event_mask()?.first_that_prevents_detach(self.state.ending.is_lenient());
        match immutable {
            Some(flag) => error(
                sys::CORPROF_E_IMMUTABLE_FLAGS_SET,
                flag,
                "this flag is on for good: the profiler cannot be detached",
            ),
            None => Ok(()),
        }
    }

    fn detach(&self) {
        let _called = Called::begin();
        let _errors = FileSizeErrors::begin();
        let state = &self.state;
        let ending = &state.ending;
        let Some(info) = self.info.get() else { return };
        let was_disabled = !state.gate.is_open();
        state.profiler_threads().stop();
        if !self.wait("callbacks to end", || state.gate.close(SLICE)) {
            return;
        }
        if !self.wait("its threads to end: poll `is_stopping` more often", || state.profiler_threads().have_ended()) {
            return;
        }
        // A thread that has reported its end may still have an `Info`, in destructors of its thread-locals. Those may
        // take a while, and Shutdown does not wait for them.
        info.profiler_threads().join();
        sampler::leave();
        if let Err(error) = info.stop_event_pipe_sessions() {
            ending.advance(Stage::Stays(error));
            report::line(format_args!("the profiler {} is disabled, and stays loaded: {error}", P::NAME));
            return;
        }
        if !ending.advance(Stage::LastWord) {
            return;
        }
        for observer in info.all_observers() {
            // SAFETY: the gate is closed and no thread is inside.
            unsafe { observer.profiler_ending(was_disabled) };
        }
        self.say_last_word(info, was_disabled);
        let _ = info.stop_event_pipe_sessions(); // those that `shutdown` has started
        for observer in info.all_observers() {
            // SAFETY: as above.
            unsafe { observer.profiler_ended() };
        }
        // SAFETY: as above.
        unsafe { self.drop_profiler() };
        info.known_names().evict_all();
        info.seal_event_mask();
        let stays = ending.stays();
        // Otherwise events cost time, and reach nobody.
        let _ = if stays.is_some() { info.silence_the_rest() } else { info.silence_exceptions() };
        if ending.advance(Stage::Asking) {
            let are_over = info.calls().close();
            if self.wait("calls of other threads to end", are_over) {
                match stays {
                    None => {
                        info.liveness().session_ended();
                        self.ask(info);
                    }
                    Some(why) => _ = ending.advance(Stage::Stays(why)),
                }
            }
        }
    }

    fn say_last_word(&self, info: &Info, was_disabled: bool) {
        if was_disabled || info.profiler_threads().has_panicked() {
            return;
        }
        // SAFETY: this thread never ran managed code: the runtime answers all sync calls on it. Only the code below
        // drops the profiler (fact: contexts).
        let last_word = || unsafe {
            let mut cx = InCallback::new(info);
            let _ = cx.initialize_current_thread(); // if it fails, some calls return errors
            if let Some(profiler) = self.profiler() {
                profiler.shutdown(&mut cx);
            }
        };
        catch(last_word, || self.state.report_last_panic("shutdown"));
    }

    /// Requests the detach until the runtime accepts or refuses: before it has started it does neither.
    fn ask(&self, info: &Info) {
        let ending = &self.state.ending;
        let expected = u32::try_from(EXPECTED.as_millis()).unwrap_or(u32::MAX);
        loop {
            let answer = ending.ask(|| {
                // SAFETY: calls are closed to all other code. The application has not ended, and Shutdown waits for
                // this call (fact: info-object).
                unsafe { info.runtime().request_detach(expected) }
            });
            let Some(answer) = answer else { return };
            match answer {
                Err(error)
                    if matches!(
                        error.code(),
                        sys::CORPROF_E_PROFILER_NOT_YET_INITIALIZED | sys::CORPROF_E_RUNTIME_UNINITIALIZED
                    ) =>
                {
                    ending.sleep(PAUSE);
                }
                Err(error) => {
                    ending.advance(Stage::Stays(error));
                    report::line(format_args!("the profiler {} is disabled, and stays loaded: {error}", P::NAME));
                    return;
                }
                Ok(()) => {
                    ending.asked();
                    return;
                }
            }
        }
    }

    /// Waits until `is_done`, and reports a long wait; `false` if the application ends first.
    fn wait(&self, what: &str, mut is_done: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        let mut is_told = false;
        while !is_done() {
            if self.state.ending.is_over() {
                return false;
            }
            if !is_told && start.elapsed() > PATIENCE {
                report::line(format_args!("to detach, the profiler {} has waited {PATIENCE:?} for {what}", P::NAME));
                is_told = true;
            }
            self.state.ending.sleep(PAUSE);
        }
        !self.state.ending.is_over()
    }
}

/// # Safety
/// `this` is an [`Adapter`] of this `P`, whose last Release has not ended.
unsafe fn hold<P: Profiler>(this: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    let references = unsafe { &Adapter::<P>::of(this).references };
    let more = |references: u32| (references != 0).then_some(references + 1);
    references.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// # Safety
/// `this` is an [`Adapter`] of this `P`, and a reference is held.
unsafe fn check<P: Profiler>(this: *mut c_void) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { Adapter::<P>::of(this) }.check_detach()
}

/// # Safety
/// `this` is an [`Adapter`] of this `P`, a reference is held, and this is the only thread of the detach.
unsafe fn run<P: Profiler>(this: *mut c_void) {
    // SAFETY: the caller's promise.
    let adapter = unsafe { Adapter::<P>::of(this) };
    let panicked =
        || report::line(format_args!("the profiler {} is disabled, and stays loaded: its detach panicked", P::NAME));
    catch(|| adapter.detach(), panicked);
}

impl EventMask {
    /// The first of these flags with which the runtime refuses to detach a profiler.
    fn first_that_prevents_detach(self, is_lenient: bool) -> Option<&'static str> {
        crate::event_mask::immutable_flags(is_lenient).find(|(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}
