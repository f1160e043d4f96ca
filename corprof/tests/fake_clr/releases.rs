//! What differs between releases, as profilers see it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use corprof::args::ClassCounts;
use corprof::error::ErrorKind;
use corprof::event_mask::Event;
use corprof::id::{HandleId, ReJitId};
use corprof::prelude::*;
use corprof::testing::{FakeClr, Frame};
use windows_core::HRESULT;

use crate::raw;

/// Records loads of classes, bodies of functions, and handles.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0050", no_export)]
struct Watcher {
    loads: Mutex<Vec<String>>,
    bare: Mutex<Vec<(ErrorKind, String)>>,
    bodies: Mutex<Vec<Vec<ReJitId>>>,
    handles: AtomicUsize,
}

#[callbacks]
impl Callbacks for Watcher {
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        self.loads.lock().unwrap().push(cx.names().class(class).to_string());
        if cx.array_class(class) == Ok(None)
            && let Err(error) = cx.class_info(class)
        {
            self.bare.lock().unwrap().push((error.kind(), error.to_string()));
        }
    }
    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.bodies.lock().unwrap().push(cx.rejit_ids(function).unwrap());
    }
    fn handle_created(&self, _cx: &InNoGc<'_>, _handle: HandleId, _object: Option<ObjectId<'_>>) {
        self.handles.fetch_add(1, SeqCst);
    }
}

/// Plays the same program on a release.
fn play(major: u32) -> FakeClr {
    let clr = FakeClr::builder().release(major, 0).load::<Watcher>().unwrap();
    let app = clr.load_assembly("App");
    let shop = clr.load_class(app, "App.Shop");
    clr.load_array(shop, 1);
    let main = clr.function(shop, "Main");
    clr.jit(main);
    clr.throw(shop, &[Frame::new(main).catch()]);
    clr
}

fn seen<R>(clr: &FakeClr, see: impl FnOnce(&Watcher) -> R) -> R {
    clr.profiler::<Watcher>().map(see).unwrap()
}

#[test]
fn net_10_reports_no_loads_of_arrays_and_lists_the_first_body() {
    let clr = play(10);
    assert_eq!(seen(&clr, |watcher| watcher.loads.lock().unwrap().clone()), ["App.Shop"]);
    assert_eq!(seen(&clr, |watcher| watcher.bodies.lock().unwrap().clone()), [vec![ReJitId(0)]]);
    assert_eq!(seen(&clr, |watcher| watcher.handles.load(SeqCst)), 2);
}

#[test]
fn net_11_reports_loads_of_arrays_and_classes_without_metadata() {
    let clr = play(11);
    let app = clr.load_assembly("Plugin");
    let [one, other] = [(); 2].map(|()| clr.load_continuation(app));
    assert_ne!(one, other);
    const CONTINUATION: &str = "System.Runtime.CompilerServices.Continuation";
    let loads = seen(&clr, |watcher| watcher.loads.lock().unwrap().clone());
    assert_eq!(loads, ["App.Shop", "App.Shop[]", CONTINUATION, CONTINUATION]);
    let bare = seen(&clr, |watcher| watcher.bare.lock().unwrap().clone());
    assert_eq!(bare.len(), 2);
    assert!(
        bare.iter().all(|(kind, text)| *kind == ErrorKind::WrongSubject && text.contains("asking again")),
        "{bare:?}"
    );
    // The runtime lists no body; corprof knows that there is one.
    assert_eq!(seen(&clr, |watcher| watcher.bodies.lock().unwrap().clone()), [vec![ReJitId(0)]]);
    assert_eq!(seen(&clr, |watcher| watcher.handles.load(SeqCst)), 1);
    assert!(!clr.has_panicked());
}

/// Wants the counts of objects.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0051", no_export)]
struct Counter;

#[callbacks]
impl Callbacks for Counter {
    fn objects_allocated_by_class(&self, _cx: &InNoGc<'_>, _counts: ClassCounts<'_>) {}
}

#[test]
fn net_11_leaves_out_the_counts_of_objects_if_the_mask_says_so() {
    for (major, counted) in [(10, 2), (11, 1)] {
        let clr = FakeClr::builder().release(major, 0).load::<Counter>().unwrap();
        clr.collect();
        let skip = EventMask::HIGH_MONITOR_GC_SKIP_ALLOCATED_BY_CLASS_STATISTIC;
        let (low, high) = (clr.event_mask() | skip).words();
        // SAFETY: the call takes two numbers.
        assert_eq!(raw(&clr, |info| unsafe { info.SetEventMask2(low, high) }), HRESULT(0));
        clr.collect();
        assert_eq!(clr.count(Event::ObjectsAllocatedByClass), counted, ".NET {major}");
    }
}
