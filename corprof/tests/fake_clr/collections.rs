//! Collections, and the flags that callbacks need.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use corprof::args::{ClassCounts, MovedRange, MovedRanges, Roots, SurvivingRange, SurvivingRanges};
use corprof::error::E_INVALIDARG;
use corprof::event_mask::Event;
use corprof::prelude::*;
use corprof::sys;
use corprof::testing::FakeClr;
use windows_core::{BOOL, HRESULT};

/// Follows objects, and counts threads and collections.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0004", no_export)]
struct Tracker {
    moved: Mutex<Vec<MovedRange>>,
    kept: Mutex<Vec<SurvivingRange>>,
    counts: Mutex<Vec<(String, u32)>>,
    allocated: Mutex<Vec<usize>>,
    roots: AtomicUsize,
    references: Mutex<Vec<(usize, Vec<usize>)>>,
}

#[callbacks]
impl Callbacks for Tracker {
    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        assert_eq!(cx.class_of(object), Ok(class));
        self.allocated.lock().unwrap().push(object.as_raw());
    }
    fn moved_references2(&self, _cx: &InNoGc<'_>, ranges: MovedRanges<'_>) {
        self.moved.lock().unwrap().extend(ranges.iter());
    }
    fn surviving_references2(&self, _cx: &InNoGc<'_>, ranges: SurvivingRanges<'_>) {
        self.kept.lock().unwrap().extend(ranges.iter());
    }
    fn root_references2(&self, cx: &InNoGc<'_>, roots: Roots<'_>) {
        assert!(roots.iter().all(|root| cx.class_of(root.object.unwrap()).is_ok()));
        self.roots.fetch_add(roots.iter().count(), SeqCst);
    }
    fn object_references(
        &self,
        cx: &InNoGc<'_>,
        object: ObjectId<'_>,
        class: ClassId,
        references: &[Option<ObjectId<'_>>],
    ) {
        assert_eq!(cx.class_of(object), Ok(class));
        let references = references.iter().flatten().map(|object| object.as_raw()).collect();
        self.references.lock().unwrap().push((object.as_raw(), references));
    }
    fn objects_allocated_by_class(&self, cx: &InNoGc<'_>, counts: ClassCounts<'_>) {
        let counts = counts.iter().map(|(class, count)| (cx.names().class(class).to_string(), count));
        self.counts.lock().unwrap().extend(counts);
    }
}

#[test]
fn a_collection_moves_objects() {
    let clr = FakeClr::load::<Tracker>().unwrap();
    let string = clr.core_class("System.String");
    let objects = [24, 24, 24, 24, 100_000].map(|size| clr.allocate_sized(string, size));
    let before = objects.map(|object| clr.address(object).unwrap());
    let tracker = clr.profiler::<Tracker>().unwrap();
    assert_eq!(*tracker.allocated.lock().unwrap(), before);
    clr.pin(objects[1]);
    clr.release(objects[2]);
    clr.refer(objects[0], objects[1]);
    clr.refer(objects[0], objects[2]);
    clr.collect();
    assert_eq!(clr.address(objects[2]), None);
    assert_eq!([1, 4].map(|at| clr.address(objects[at])), [1, 4].map(|at| Some(before[at])));
    let now = |at: usize| clr.address(objects[at]).unwrap();
    assert!(now(0) != before[0] && now(3) != before[3]);
    let moved = tracker.moved.lock().unwrap();
    let expected = [
        MovedRange { old_start: before[0], new_start: now(0), length: 24 },
        MovedRange { old_start: before[1], new_start: before[1], length: 24 },
        MovedRange { old_start: before[3], new_start: now(3), length: 24 },
    ];
    assert_eq!(*moved, expected);
    assert_eq!(*tracker.kept.lock().unwrap(), [SurvivingRange { start: before[4], length: 100_000 }]);
    assert_eq!(*tracker.counts.lock().unwrap(), [("System.String".to_owned(), 4)]);
    assert_eq!(tracker.roots.load(SeqCst), 4);
    let expected = [(now(0), vec![before[1]]), (before[1], vec![]), (now(3), vec![]), (before[4], vec![])];
    assert_eq!(*tracker.references.lock().unwrap(), expected);
    assert!(!clr.has_panicked() && clr.refusals().is_empty());
}

#[test]
fn a_callback_comes_only_if_its_flag_is_on() {
    let clr = FakeClr::load::<Tracker>().unwrap();
    let class = clr.core_class("System.Object");
    clr.jit(clr.function(class, "ToString"));
    clr.throw(class, &[]);
    clr.create_thread();
    clr.collect();
    use Event::*;
    // The loads of assemblies and modules, threads and suspensions are on for the SDK's own sake.
    let expected = [
        Initialize,
        AssemblyLoadStarted,
        ModuleLoadStarted,
        ModuleLoadFinished,
        ModuleAttachedToAssembly,
        AssemblyLoadFinished,
        ObjectAllocated,
        HandleCreated,
        HandleCreated,
        ThreadCreated,
        ThreadAssignedToOsThread,
        RuntimeSuspendStarted,
        RuntimeThreadSuspended,
        RuntimeSuspendFinished,
        GarbageCollectionStarted,
        ObjectsAllocatedByClass,
        MovedReferences2,
        MovedReferences,
        RootReferences2,
        RootReferences,
        ObjectReferences,
        GarbageCollectionFinished,
        RuntimeResumeStarted,
        RuntimeThreadResumed,
        RuntimeResumeFinished,
    ];
    assert_eq!(clr.delivered(), expected);
    // SAFETY: the method of the event.
    let raised = clr.raise(Event::HandleDestroyed, |callback| unsafe { callback.HandleDestroyed(8) });
    assert_eq!(raised, Some(HRESULT(0)));
    // SAFETY: as above.
    let raised = clr.raise(Event::ExceptionThrown, |callback| unsafe { callback.ExceptionThrown(8) });
    assert_eq!(raised, None);
}

/// Walks the heap whenever a class is loaded.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E000B", no_export)]
struct Walker(Mutex<Vec<Result<Vec<usize>>>>);

#[callbacks]
impl Callbacks for Walker {
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let mut seen = Vec::new();
        let walk = cx.enumerate_gc_heap_objects(|cx, object| {
            assert_ne!(cx.class_of(object), Ok(class));
            seen.push(object.as_raw());
            if seen.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.0.lock().unwrap().push(walk.map(|()| seen));
    }
    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        extern "system" fn nobody(_object: usize, _state: *mut c_void) -> BOOL {
            panic!("an object where none may be visited")
        }
        // SAFETY: used during this callback only.
        let info = unsafe { cx.as_raw::<sys::ICorProfilerInfo15>() }.unwrap();
        // SAFETY: the callback takes any state.
        let code = unsafe { info.EnumerateGCHeapObjects(Some(nobody), std::ptr::null_mut()) };
        assert_eq!(code, sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
    }
}

#[test]
fn the_heap_is_walked_where_a_suspension_may_begin() {
    let clr = FakeClr::load::<Walker>().unwrap();
    let string = clr.core_class("System.String");
    let objects = [(); 4].map(|()| clr.allocate(string));
    clr.collect();
    clr.core_class("System.Object");
    let addresses = objects.map(|object| clr.address(object).unwrap());
    let walks = clr.profiler::<Walker>().unwrap().0.lock().unwrap();
    assert_eq!(*walks, [Ok(vec![]), Ok(addresses[..3].to_vec())]);
    assert!(!clr.has_panicked());

    let clr = FakeClr::builder().info_version(14).load::<Walker>().unwrap();
    clr.core_class("System.Object");
    let walks = clr.profiler::<Walker>().unwrap().0.lock().unwrap();
    assert!(matches!(walks[..], [Err(lacking)] if lacking.to_string().contains(".NET 9")));
}

/// Follows objects, and counts none.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0044", no_export)]
struct Follower;

#[callbacks]
impl Callbacks for Follower {
    fn surviving_references2(&self, _cx: &InNoGc<'_>, _ranges: SurvivingRanges<'_>) {}
}

#[test]
fn the_runtime_counts_the_objects_of_classes_only_for_a_profiler_that_wants_the_counts() {
    let skip = EventMask::HIGH_MONITOR_GC_SKIP_ALLOCATED_BY_CLASS_STATISTIC;
    let mask = |clr: FakeClr| clr.event_mask() & (EventMask::MONITOR_GC | skip);
    assert_eq!(mask(FakeClr::load::<Follower>().unwrap()), EventMask::MONITOR_GC | skip);
    assert_eq!(mask(FakeClr::load::<Tracker>().unwrap()), EventMask::MONITOR_GC);
    // A runtime that refuses the flag.
    let old = FakeClr::builder().fail_next("SetEventMask2", E_INVALIDARG).load::<Follower>();
    assert_eq!(mask(old.unwrap()), EventMask::MONITOR_GC);
    // The flag is not among those that an attached profiler may set.
    let attached = FakeClr::builder().attach(&[]).load::<LateFollower>().unwrap();
    assert_eq!(mask(attached), EventMask::MONITOR_GC);
}

/// The same, attached.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0045", no_export)]
struct LateFollower;

#[callbacks]
impl Callbacks for LateFollower {
    fn initialize_for_attach(_cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        Ok(Self)
    }
    fn surviving_references2(&self, _cx: &InNoGc<'_>, _ranges: SurvivingRanges<'_>) {}
}
