//! Every callback: what it is about is kept, and the profiler acts there.

use corprof::args::{
    ClassCounts, EventPipeEvent, FunctionControl, GcReason, Generations, JitCache, MovedRanges, Roots, SurvivingRanges,
    SuspendReason, TransitionReason, WeakTableElements,
};
use corprof::id::{EventPipeProviderId, HandleId, Inert, ReJitId};
use corprof::metadata::MethodDef;
use corprof::prelude::*;

use super::{Generated, act, any_answer, edits, keep, plan, pools, sessions, with_random};

/// The application fails where it calls this function.
fn tell_failure(cx: &InCallback<'_>, function: FunctionId, status: Result<()>) {
    if let Err(error) = status {
        eprintln!("generator| {} was not compiled: {error}", cx.names().function(function));
    }
}

#[callbacks]
impl Callbacks for Generated {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        super::initialize(cx)?;
        Ok(Self)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        keep(&pools::MODULES, module);
        act::in_callback(cx, "module_load_finished");
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        act::in_callback(cx, "jit_compilation_started");
        keep(&pools::FUNCTIONS, function);
        with_random(|random| {
            if let Ok(info) = cx.function_info(function) {
                pools::METHODS.put(random, (info.module, info.token));
                if let Some(class) = info.class {
                    pools::CLASSES.put(random, class);
                }
            }
            // Editing each method takes longer than compiling it.
            if random.u32(0..8) == 0 && plan::current().is_some_and(|plan| plan.has("edit: this function")) {
                edits::edit_this(cx, function, random);
            }
        });
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

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        act::in_no_gc(cx, "exception_thrown", Some(thrown));
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        act::in_callback(cx, "shutdown");
    }

    fn app_domain_creation_started(&self, cx: &mut InCallback<'_>, _app_domain: Inert<AppDomainId>) {
        act::in_callback(cx, "app_domain_creation_started");
    }

    fn app_domain_creation_finished(&self, cx: &mut InCallback<'_>, app_domain: AppDomainId, _status: Result<()>) {
        keep(&pools::APP_DOMAINS, app_domain);
        act::in_callback(cx, "app_domain_creation_finished");
    }

    fn app_domain_shutdown_started(&self, cx: &mut InCallback<'_>, _app_domain: AppDomainId) {
        act::in_callback(cx, "app_domain_shutdown_started");
    }

    fn app_domain_shutdown_finished(
        &self,
        cx: &mut InCallback<'_>,
        _app_domain: Inert<AppDomainId>,
        _status: Result<()>,
    ) {
        act::in_callback(cx, "app_domain_shutdown_finished");
    }

    fn assembly_load_started(&self, cx: &mut InCallback<'_>, _assembly: Inert<AssemblyId>) {
        act::in_callback(cx, "assembly_load_started");
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, _status: Result<()>) {
        keep(&pools::ASSEMBLIES, assembly);
        act::in_callback(cx, "assembly_load_finished");
    }

    fn assembly_unload_started(&self, cx: &mut InCallback<'_>, assembly: AssemblyId) {
        keep(&pools::ASSEMBLIES, assembly);
        act::in_callback(cx, "assembly_unload_started");
    }

    fn assembly_unload_finished(&self, cx: &mut InCallback<'_>, _assembly: Inert<AssemblyId>, _status: Result<()>) {
        act::in_callback(cx, "assembly_unload_finished");
    }

    fn module_load_started(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>) {
        act::in_callback(cx, "module_load_started");
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        keep(&pools::MODULES, module);
        act::in_callback(cx, "module_unload_started");
    }

    fn module_unload_finished(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>, _status: Result<()>) {
        act::in_callback(cx, "module_unload_finished");
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, _module: ModuleId, _assembly: AssemblyId) {
        act::in_callback(cx, "module_attached_to_assembly");
    }

    fn class_load_started(&self, cx: &mut InCallback<'_>, _class: Inert<ClassId>) {
        act::in_callback(cx, "class_load_started");
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        keep(&pools::CLASSES, class);
        act::in_callback(cx, "class_load_finished");
    }

    fn class_unload_started(&self, cx: &mut InCallback<'_>, class: ClassId) {
        keep(&pools::CLASSES, class);
        act::in_callback(cx, "class_unload_started");
    }

    fn class_unload_finished(&self, cx: &mut InCallback<'_>, _class: Inert<ClassId>, _status: Result<()>) {
        act::in_callback(cx, "class_unload_finished");
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        tell_failure(cx, function, status);
        keep(&pools::FUNCTIONS, function);
        act::in_callback(cx, "jit_compilation_finished");
    }

    fn jit_cached_function_search_started(&self, cx: &mut InCallback<'_>, function: FunctionId) -> bool {
        keep(&pools::FUNCTIONS, function);
        act::in_callback(cx, "jit_cached_function_search_started");
        any_answer("jit_cached_function_search_started")
    }

    fn jit_cached_function_search_finished(&self, cx: &mut InCallback<'_>, _function: FunctionId, _result: JitCache) {
        act::in_callback(cx, "jit_cached_function_search_finished");
    }

    fn jit_inlining(&self, cx: &mut InCallback<'_>, _caller: FunctionId, _callee: FunctionId) -> bool {
        act::in_callback(cx, "jit_inlining");
        any_answer("jit_inlining")
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        keep(&pools::THREADS, thread);
        act::in_callback(cx, "thread_created");
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        act::in_callback(cx, "thread_destroyed");
    }

    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, _thread: ThreadId, _os_thread_id: u32) {
        act::in_no_gc(cx, "thread_assigned_to_os_thread", None);
    }

    fn unmanaged_to_managed_transition(
        &self,
        cx: &mut InCallback<'_>,
        _function: Option<FunctionId>,
        _reason: TransitionReason,
    ) {
        act::in_callback(cx, "unmanaged_to_managed_transition");
    }

    fn managed_to_unmanaged_transition(
        &self,
        cx: &mut InCallback<'_>,
        _function: Option<FunctionId>,
        _reason: TransitionReason,
    ) {
        act::in_callback(cx, "managed_to_unmanaged_transition");
    }

    fn runtime_suspend_started(&self, cx: &InNoGc<'_>, _reason: SuspendReason) {
        act::in_no_gc(cx, "runtime_suspend_started", None);
    }

    fn runtime_suspend_finished(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "runtime_suspend_finished", None);
    }

    fn runtime_suspend_aborted(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "runtime_suspend_aborted", None);
    }

    fn runtime_resume_started(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "runtime_resume_started", None);
    }

    fn runtime_resume_finished(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "runtime_resume_finished", None);
    }

    fn runtime_thread_resumed(&self, cx: &InNoGc<'_>, _thread: corprof::id::Inert<ThreadId>) {
        act::in_no_gc(cx, "runtime_thread_resumed", None);
    }

    fn moved_references(&self, cx: &InNoGc<'_>, _ranges: MovedRanges<'_>) {
        act::in_no_gc(cx, "moved_references", None);
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, _class: ClassId) {
        act::in_no_gc(cx, "object_allocated", Some(object));
    }

    fn objects_allocated_by_class(&self, cx: &InNoGc<'_>, _counts: ClassCounts<'_>) {
        act::in_no_gc(cx, "objects_allocated_by_class", None);
    }

    fn object_references(
        &self,
        cx: &InNoGc<'_>,
        object: ObjectId<'_>,
        _class: ClassId,
        _references: &[Option<ObjectId<'_>>],
    ) {
        act::in_no_gc(cx, "object_references", Some(object));
    }

    fn root_references(&self, cx: &InNoGc<'_>, _roots: &[Option<ObjectId<'_>>]) {
        act::in_no_gc(cx, "root_references", None);
    }

    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        act::in_callback(cx, "exception_search_function_enter");
    }

    fn exception_search_function_leave(&self, cx: &mut InCallback<'_>) {
        act::in_callback(cx, "exception_search_function_leave");
    }

    fn exception_search_filter_enter(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        act::in_callback(cx, "exception_search_filter_enter");
    }

    fn exception_search_filter_leave(&self, cx: &mut InCallback<'_>) {
        act::in_callback(cx, "exception_search_filter_leave");
    }

    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        act::in_callback(cx, "exception_search_catcher_found");
    }

    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, _function: FunctionId) {
        act::in_no_gc(cx, "exception_unwind_function_enter", None);
    }

    fn exception_unwind_function_leave(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "exception_unwind_function_leave", None);
    }

    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, _function: FunctionId) {
        act::in_no_gc(cx, "exception_unwind_finally_enter", None);
    }

    fn exception_unwind_finally_leave(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "exception_unwind_finally_leave", None);
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, _function: FunctionId, thrown: Option<ObjectId<'_>>) {
        act::in_no_gc(cx, "exception_catcher_enter", thrown);
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        act::in_callback(cx, "exception_catcher_leave");
    }

    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: corprof::id::Inert<ThreadId>, _name: &str) {
        act::in_callback(cx, "thread_name_changed");
    }

    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        act::in_no_gc(cx, "garbage_collection_started", None);
    }

    fn surviving_references(&self, cx: &InNoGc<'_>, _ranges: SurvivingRanges<'_>) {
        act::in_no_gc(cx, "surviving_references", None);
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        act::in_no_gc(cx, "garbage_collection_finished", None);
    }

    fn finalizeable_object_queued(&self, cx: &InNoGc<'_>, _is_critical: bool, object: ObjectId<'_>) {
        act::in_no_gc(cx, "finalizeable_object_queued", Some(object));
    }

    fn root_references2(&self, cx: &InNoGc<'_>, _roots: Roots<'_>) {
        act::in_no_gc(cx, "root_references2", None);
    }

    fn handle_created(&self, cx: &InNoGc<'_>, _handle: HandleId, object: Option<ObjectId<'_>>) {
        act::in_no_gc(cx, "handle_created", object);
    }

    fn handle_destroyed(&self, cx: &InNoGc<'_>, _handle: HandleId) {
        act::in_no_gc(cx, "handle_destroyed", None);
    }

    fn rejit_compilation_started(
        &self,
        cx: &mut InCallback<'_>,
        _function: FunctionId,
        _rejit: ReJitId,
        _is_safe_to_block: bool,
    ) {
        act::in_callback(cx, "rejit_compilation_started");
    }

    fn get_rejit_parameters(
        &self,
        cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        control: FunctionControl<'_>,
    ) {
        with_random(|random| {
            if let Some(body) = pools::BODIES.pick(random) {
                let _ = control.set_checked_body(&body);
            }
        });
        act::in_callback(cx, "get_rejit_parameters");
    }

    fn rejit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _rejit: ReJitId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        tell_failure(cx, function, status);
        act::in_callback(cx, "rejit_compilation_finished");
    }

    fn rejit_error(
        &self,
        cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        _function: Option<FunctionId>,
        _status: Result<()>,
    ) {
        act::in_callback(cx, "rejit_error");
    }

    fn moved_references2(&self, cx: &InNoGc<'_>, _ranges: MovedRanges<'_>) {
        act::in_no_gc(cx, "moved_references2", None);
    }

    fn surviving_references2(&self, cx: &InNoGc<'_>, _ranges: SurvivingRanges<'_>) {
        act::in_no_gc(cx, "surviving_references2", None);
    }

    fn conditional_weak_table_element_references(&self, cx: &InNoGc<'_>, _elements: WeakTableElements<'_>) {
        act::in_no_gc(cx, "conditional_weak_table_element_references", None);
    }

    fn module_in_memory_symbols_updated(&self, cx: &mut InCallback<'_>, _module: ModuleId) {
        act::in_callback(cx, "module_in_memory_symbols_updated");
    }

    fn dynamic_method_jit_compilation_started(
        &self,
        cx: &mut InCallback<'_>,
        _function: FunctionId,
        _is_safe_to_block: bool,
        _il: &[u8],
    ) {
        act::in_callback(cx, "dynamic_method_jit_compilation_started");
    }

    fn dynamic_method_unloaded(&self, cx: &mut InCallback<'_>, _function: Inert<FunctionId>) {
        act::in_callback(cx, "dynamic_method_unloaded");
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        sessions::read_event(cx, &event);
        act::in_no_gc(cx, "event_pipe_event_delivered", None);
    }

    fn event_pipe_provider_created(&self, cx: &mut InCallback<'_>, _provider: EventPipeProviderId<'_>) {
        act::in_callback(cx, "event_pipe_provider_created");
    }
}
