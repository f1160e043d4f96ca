//! The order of callbacks, as a runtime makes them. That it is a runtime's order, `tests/live/sequence.rs` finds out.

use corprof::event_mask::Event;
use corprof::prelude::*;
use corprof::testing::FakeClr;

/// Asks for everything that this file's sequences are about.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E000A", no_export)]
struct Everything;

#[callbacks]
impl Callbacks for Everything {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let loads = EventMask::MONITOR_ASSEMBLY_LOADS | EventMask::MONITOR_CLASS_LOADS;
        let runtime = EventMask::MONITOR_APPDOMAIN_LOADS | EventMask::MONITOR_THREADS | EventMask::MONITOR_SUSPENDS;
        cx.set_event_mask(loads | runtime | EventMask::MONITOR_GC)?;
        Ok(Self)
    }
    fn app_domain_creation_finished(&self, cx: &mut InCallback<'_>, domain: AppDomainId, _status: Result<()>) {
        assert_eq!(cx.app_domain_info(domain).unwrap().name, "DefaultDomain");
        let runtime = cx.runtime_info().unwrap();
        assert_eq!((runtime.major, runtime.minor), (8, 0));
    }
}

/// The sequences that .NET 8.0.4 on Linux makes of the same, but for handles and the finalizer's thread.
#[test]
fn callbacks_come_in_the_order_of_a_runtime() {
    use Event::*;
    let mut clr = FakeClr::builder().info_version(14).load::<Everything>().unwrap();
    clr.start_up();
    clr.allocate(clr.core_class("System.Object"));
    clr.forget_delivered();
    clr.collect();
    let collection = [
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
    assert_eq!(clr.delivered(), collection);
    clr.shutdown();
    assert!(!clr.has_panicked() && clr.refusals().is_empty());

    let clr = FakeClr::builder().info_version(14).load::<Everything>().unwrap();
    clr.start_up();
    clr.core_class("System.Object");
    let start = [
        Initialize,
        ThreadCreated,
        ThreadAssignedToOsThread,
        AssemblyLoadStarted,
        ModuleLoadStarted,
        ModuleLoadFinished,
        ModuleAttachedToAssembly,
        AssemblyLoadFinished,
        AppDomainCreationStarted,
        AppDomainCreationFinished,
        ClassLoadStarted,
        ClassLoadFinished,
    ];
    assert_eq!(clr.delivered(), start);
}

#[test]
fn an_assembly_takes_what_is_in_it_along() {
    use Event::*;
    let clr = FakeClr::builder().info_version(14).load::<Everything>().unwrap();
    let guest = clr.load_assembly("Guest");
    let class = clr.load_class(guest, "Guest");
    clr.load_array(class, 1);
    clr.forget_delivered();
    clr.unload_assembly(guest);
    let expected = [
        AssemblyUnloadStarted,
        ModuleUnloadStarted,
        ClassUnloadStarted,
        ClassUnloadFinished,
        ModuleUnloadFinished,
        AssemblyUnloadFinished,
    ];
    assert_eq!(clr.delivered(), expected);
}
