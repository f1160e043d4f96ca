//! Calls from the wrong place.

use std::sync::{Mutex, mpsc};

use corprof::args::{GcReason, Generations};
use corprof::error::{E_FAIL, E_INVALIDARG};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::sys;
use corprof::testing::FakeClr;
use windows_core::HRESULT;

use crate::{Nothing, raw, thread_info};

const E_NOTIMPL: HRESULT = HRESULT(0x8000_4001_u32 as i32);

#[test]
fn calls_from_the_wrong_place_are_refused() {
    let clr = FakeClr::load::<Nothing>().unwrap();
    let thread = clr.current_thread();
    // Outside of a callback, on a managed thread and on a native one.
    assert_eq!(raw(&clr, |info| thread_info(info, thread)), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
    let native =
        std::thread::scope(|scope| scope.spawn(|| raw(&clr, |info| thread_info(info, thread))).join().unwrap());
    assert_eq!(native, HRESULT(0));
    assert_eq!(clr.refusals(), [("GetThreadInfo", sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE)]);
    raw(&clr, |info| {
        let mut class = 0;
        // SAFETY: writes one number each.
        unsafe {
            // No hooks after Initialize.
            let code = info.SetEnterLeaveFunctionHooks3(None, None, None);
            assert_eq!(code, sys::CORPROF_E_CALL_ONLY_FROM_INIT);
            // Immutable flags neither.
            assert_eq!(info.SetEventMask2(EventMask::ENABLE_OBJECT_ALLOCATED.words().0, 0), E_FAIL);
            let gc = EventMask::MONITOR_GC.words().0;
            assert_eq!(info.SetEventMask2(gc, 0), sys::CORPROF_E_CONCURRENT_GC_NOT_PROFILABLE);
            // Objects need a callback that a collection waits for.
            assert_eq!(info.GetClassFromObject(8, &mut class), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
            // Calls without an answer in the fake are accepted or refused all the same.
            let code = info.GetHandleFromThread(8, std::ptr::null_mut());
            assert_eq!(code, sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
            assert_eq!(info.ForceGC(), E_NOTIMPL);
        }
    });
}

/// Makes one call that may start a collection, below the contexts, wherever it is called.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0003", no_export)]
struct Reckless(Mutex<Vec<(&'static str, HRESULT)>>);

impl Reckless {
    fn ask(&self, place: &'static str, info: &Info) {
        // SAFETY: nothing is written where there is no room.
        let code =
            unsafe { info.as_raw::<sys::ICorProfilerInfo>().unwrap().GetClassFromToken(8, 8, std::ptr::null_mut()) };
        self.0.lock().unwrap().push((place, code));
    }
}

#[callbacks]
impl Callbacks for Reckless {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        assert_eq!(cx.current_thread()?, None, "there is no managed thread yet");
        profiler.ask("initialize", cx);
        Ok(profiler)
    }
    fn class_load_finished(&self, cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        self.ask("class", cx);
    }
    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        self.ask("collection", cx);
    }
    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, _thread: ThreadId, _os_id: u32) {
        self.ask("thread", cx);
    }
}

#[test]
fn calls_that_may_start_a_collection_need_a_callback_for_it() {
    let clr = FakeClr::load::<Reckless>().unwrap();
    clr.start_up();
    clr.load_class(clr.core_module(), "System.Object");
    clr.collect();
    let expected = [
        ("initialize", E_INVALIDARG),
        ("thread", sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE),
        ("class", E_INVALIDARG),
        ("collection", sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE),
    ];
    assert_eq!(*clr.profiler::<Reckless>().unwrap().0.lock().unwrap(), expected);
}

/// Tries to change code, which only a main profiler may do.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0071", notification_only, no_export)]
struct Observer(Mutex<Vec<String>>);

#[callbacks]
impl Callbacks for Observer {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        // SAFETY: the call is refused before it reaches the runtime.
        let body = unsafe { cx.set_il_function_body(module, MethodDef::from_raw(0x0600_0001), &[]) };
        let (tell, told) = mpsc::channel();
        cx.spawn_profiler_thread("asks", move |cx| {
            let asked = [cx.request_rejit(&[]), cx.request_rejit_with_inliners(&[], false)];
            tell.send(asked.into_iter().chain([cx.request_revert(&[]).map(drop)]).collect()).unwrap();
        })
        .unwrap();
        let asked: Vec<Result<()>> = told.recv().unwrap();
        let errors = asked.into_iter().chain([body]).map(|answer| answer.unwrap_err().to_string());
        self.0.lock().unwrap().extend(errors);
    }
}

#[test]
fn a_notification_profiler_cannot_change_code() {
    let clr = FakeClr::load::<Observer>().unwrap();
    clr.load_assembly("App");
    assert!(!clr.has_panicked() && clr.refusals().is_empty(), "{:?}", clr.refusals());
    let observer = clr.profiler::<Observer>().unwrap();
    let errors = observer.0.lock().unwrap();
    let calls = ["RequestReJIT(", "RequestReJITWithInliners(", "RequestRevert(", "SetILFunctionBody("];
    assert_eq!(errors.len(), calls.len());
    for (error, call) in errors.iter().zip(calls) {
        assert!(error.starts_with(call) && error.contains("load it as the main profiler"), "{error}");
    }
}

/// Starts a session where its thread can no longer run managed code.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0072", no_export)]
struct Late(Mutex<Vec<String>>);

#[callbacks]
impl Callbacks for Late {
    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        let error = cx.event_pipe_start_session(&[], false).unwrap_err();
        self.0.lock().unwrap().push(error.to_string());
    }
    fn class_load_finished(&self, cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        let answer = cx.event_pipe_start_session(&[], false);
        self.0.lock().unwrap().push(answer.map_or_else(|error| error.to_string(), |_| "started".to_owned()));
    }
}

#[test]
fn a_thread_that_ends_makes_no_call_about_a_session() {
    let clr = FakeClr::load::<Late>().unwrap();
    clr.start_up();
    clr.destroy_thread(clr.create_thread());
    clr.load_class(clr.core_module(), "System.Object");
    let answers = clr.profiler::<Late>().unwrap().0.lock().unwrap().clone();
    let [ending, other] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(ending.contains("EventPipeStartSession(thread_destroyed)"), "{ending}");
    assert!(!other.contains("thread_destroyed"), "{other}");
}
