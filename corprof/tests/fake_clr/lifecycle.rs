//! From loading to shutdown or detach: panics, old runtimes, attaching.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use corprof::error::E_FAIL;
use corprof::event_mask::Event;
use corprof::prelude::*;
use corprof::sys;
use corprof::testing::FakeClr;
use windows_core::{HRESULT, Interface};

use crate::Nothing;

const E_NOINTERFACE: HRESULT = HRESULT(0x8000_4002_u32 as i32);

/// Panics at the second class, and says when it is dropped.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0006", no_export)]
struct Fragile {
    classes: AtomicUsize,
    shut: AtomicUsize,
    alive: Mutex<Option<Arc<()>>>,
}

#[callbacks]
impl Callbacks for Fragile {
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        assert!(self.classes.fetch_add(1, SeqCst) == 0, "on purpose");
    }
    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.shut.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_panic_makes_the_profiler_quiet() {
    let clr = FakeClr::load::<Fragile>().unwrap();
    let app = clr.load_assembly("App");
    for name in ["A", "B", "C"] {
        clr.load_class(app, name);
    }
    assert!(clr.has_panicked());
    assert_eq!(clr.profiler::<Fragile>().unwrap().classes.load(SeqCst), 2);
    assert_eq!(clr.count(Event::ClassLoadFinished), 3, "the runtime does not know");
}

#[test]
fn shutdown_drops_the_profiler() {
    let mut clr = FakeClr::load::<Fragile>().unwrap();
    let life = Arc::new(());
    *clr.profiler::<Fragile>().unwrap().alive.lock().unwrap() = Some(Arc::clone(&life));
    clr.shutdown();
    assert!(clr.profiler::<Fragile>().is_none());
    assert_eq!(Arc::strong_count(&life), 1);
    clr.load_assembly("Late");
    assert_eq!(clr.delivered().last(), Some(&Event::Shutdown));
}

/// Fails with a code that says success.
#[derive(Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0016", no_export)]
struct FailsWithSuccess;

#[callbacks]
impl Callbacks for FailsWithSuccess {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Err(Error::new(HRESULT(0), "initialize").into())
    }
}

#[test]
fn an_error_is_a_refusal_whatever_its_code() {
    assert_eq!(FakeClr::load::<FailsWithSuccess>().unwrap_err().code(), E_FAIL);
}

#[test]
fn without_shutdown_the_last_reference_drops_it() {
    let clr = FakeClr::load::<Fragile>().unwrap();
    let life = Arc::new(());
    *clr.profiler::<Fragile>().unwrap().alive.lock().unwrap() = Some(Arc::clone(&life));
    drop(clr);
    assert_eq!(Arc::strong_count(&life), 1);
}

static INITIALIZED: AtomicUsize = AtomicUsize::new(0);

/// Loads at start-up and by an attach, and counts how often it is initialized.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0017", no_export)]
struct Counts;

#[callbacks]
impl Callbacks for Counts {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        INITIALIZED.fetch_add(1, SeqCst);
        Ok(Self)
    }
    fn initialize_for_attach(_cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        INITIALIZED.fetch_add(1, SeqCst);
        Ok(Self)
    }
}

#[test]
fn a_runtime_older_than_net_8_is_refused_before_the_profiler_is_initialized() {
    for newest_info in 1..14 {
        let on = || FakeClr::builder().info_version(newest_info);
        assert_eq!(on().load::<Counts>().unwrap_err().code(), E_NOINTERFACE, "{newest_info}");
        assert_eq!(on().attach(&[]).load::<Counts>().unwrap_err().code(), E_NOINTERFACE, "{newest_info}");
    }
    assert_eq!(INITIALIZED.load(SeqCst), 0);
    let clr = FakeClr::builder().info_version(14).load::<Counts>().unwrap();
    assert_eq!(INITIALIZED.load(SeqCst), 1);
    assert!(clr.info().cast::<sys::ICorProfilerInfo14>().is_ok());
}

/// Wants a runtime of 2024.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0007", min_info = 15, no_export)]
struct Modern;

#[callbacks]
impl Callbacks for Modern {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        assert!(cx.version() >= 15);
        Ok(Self)
    }
}

#[test]
fn an_old_runtime_is_refused_by_min_info() {
    assert_eq!(FakeClr::builder().info_version(14).load::<Modern>().unwrap_err().code(), E_FAIL);
    assert!(FakeClr::load::<Modern>().is_ok());
}

/// Goes when it has seen enough.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0008", no_export)]
struct Visitor(Mutex<Option<Vec<u8>>>);

#[callbacks]
impl Callbacks for Visitor {
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let refused = cx.add_events(EventMask::MONITOR_ENTERLEAVE).unwrap_err();
        assert_eq!(refused.code(), sys::CORPROF_E_UNSUPPORTED_FOR_ATTACHING_PROFILER);
        *profiler.0.lock().unwrap() = Some(data.to_owned());
        Ok(profiler)
    }
    fn profiler_attach_complete(&self, _cx: &mut InCallback<'_>) {}
    fn thread_created(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        // SAFETY: takes a number; the interface is not kept.
        let code = unsafe { cx.as_raw::<sys::ICorProfilerInfo3>().unwrap().RequestProfilerDetach(0) };
        assert_eq!(code, HRESULT(0));
        assert_eq!(cx.event_mask().unwrap_err().code(), sys::CORPROF_E_PROFILER_DETACHING);
    }
}

#[test]
fn a_profiler_attaches_and_detaches() {
    let mut clr = FakeClr::builder().attach(&[1, 2, 3]).load::<Visitor>().unwrap();
    assert_eq!(*clr.profiler::<Visitor>().unwrap().0.lock().unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(clr.delivered(), [Event::InitializeForAttach, Event::ProfilerAttachComplete]);
    assert!(!clr.detach(), "nobody has asked for it");
    let thread = clr.create_thread();
    clr.destroy_thread(thread);
    assert!(!clr.has_panicked());
    assert!(clr.detach());
    assert!(clr.profiler::<Visitor>().is_none());
    let expected = [
        Event::InitializeForAttach,
        Event::ProfilerAttachComplete,
        Event::ThreadCreated,
        Event::ProfilerDetachSucceeded,
    ];
    assert_eq!(clr.delivered(), expected);
    assert_eq!(
        FakeClr::builder().attach(&[]).load::<Nothing>().unwrap_err().code(),
        sys::CORPROF_E_PROFILER_NOT_ATTACHABLE
    );
}
