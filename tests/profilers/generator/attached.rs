//! The same profiler for an attach: it acts for a while, and leaves. The next one in the process has all that it has
//! kept.

use corprof::args::{EventPipeEvent, GcReason, Generations};
use corprof::id::Inert;
use corprof::prelude::*;

use super::plan::Beginning;
use super::{act, begin_anywhere, keep, plan, pools, sessions};

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E3102", no_export)]
pub(super) struct Visits;

/// Leaves when the plan is over.
fn leave_later(cx: &mut InAttach<'_>) -> Result<(), BoxError> {
    let detacher = cx.detacher()?;
    keep(&pools::DETACHERS, detacher.clone());
    std::thread::Builder::new().spawn(move || {
        while plan::current().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        match detacher.detach() {
            Ok(()) => drop(detacher.wait()),
            Err(error) => eprintln!("generator| it stays: {error}"),
        }
    })?;
    Ok(())
}

#[callbacks]
impl Callbacks for Visits {
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let plan = plan::make(std::str::from_utf8(data)?.parse()?, true, act::count());
        act::open();
        eprintln!("generator| {plan}");
        leave_later(cx)?;
        if plan.number("catches up").is_multiple_of(2) {
            cx.catch_up();
        }
        if plan.has_instrumentation {
            keep(&pools::INSTRUMENTATION, cx.start_instrumentation()?);
        }
        begin_anywhere(cx, plan)?;
        assert!(plan.beginning != Beginning::Panics, "as planned");
        if plan.beginning == Beginning::Fails { Err("as planned".into()) } else { Ok(Self) }
    }

    fn profiler_attach_complete(&self, cx: &mut InCallback<'_>) {
        act::in_callback(cx, "profiler_attach_complete");
    }

    fn app_domain_creation_finished(&self, cx: &mut InCallback<'_>, app_domain: AppDomainId, _status: Result<()>) {
        keep(&pools::APP_DOMAINS, app_domain);
        act::in_callback(cx, "app_domain_creation_finished");
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, _status: Result<()>) {
        keep(&pools::ASSEMBLIES, assembly);
        act::in_callback(cx, "assembly_load_finished");
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        keep(&pools::MODULES, module);
        act::in_callback(cx, "module_load_finished");
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        keep(&pools::MODULES, module);
        act::in_callback(cx, "module_unload_started");
    }

    fn module_unload_finished(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>, _status: Result<()>) {
        act::in_callback(cx, "module_unload_finished");
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        keep(&pools::CLASSES, class);
        act::in_callback(cx, "class_load_finished");
    }

    fn class_unload_started(&self, cx: &mut InCallback<'_>, class: ClassId) {
        keep(&pools::CLASSES, class);
        act::in_callback(cx, "class_unload_started");
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        keep(&pools::FUNCTIONS, function);
        if let Ok(info) = cx.function_info(function) {
            keep(&pools::METHODS, (info.module, info.token));
        }
        act::in_callback(cx, "jit_compilation_finished");
    }

    fn dynamic_method_jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        keep(&pools::DYNAMIC, function);
        act::in_callback(cx, "dynamic_method_jit_compilation_finished");
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        keep(&pools::THREADS, thread);
        act::in_callback(cx, "thread_created");
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        act::in_callback(cx, "thread_destroyed");
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        act::in_no_gc(cx, "exception_thrown", Some(thrown));
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, _function: FunctionId, thrown: Option<ObjectId<'_>>) {
        act::in_no_gc(cx, "exception_catcher_enter", thrown);
    }

    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        act::in_no_gc(cx, "garbage_collection_started", None);
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "garbage_collection_finished", None);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        sessions::read_event(cx, &event);
        act::in_no_gc(cx, "event_pipe_event_delivered", None);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        act::in_callback(cx, "shutdown");
    }
}
