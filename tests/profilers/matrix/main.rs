//! Makes every call of the API from every place that may make it, and from some that may not: for `live/matrix.rs`,
//! which compares the answers with the contract table. Each line on standard error is one answer:
//!
//! `matrix|PLACE|LEVEL|METHOD|ANSWER`
//!
//! A place is a callback, at its first occurrence once there is one of everything to ask about, or a thread outside of
//! callbacks. The level is the context that it has, or `raw` for a call past the contexts.
//!
//! Left out are, besides the callbacks that never come: `runtime_thread_suspended`, in which not even memory may be
//! allocated; those of attach and detach; and, by raw calls, triggering calls from `runtime_resume_started`,
//! `runtime_resume_finished`, `finalizeable_object_queued`, `object_allocated` and `exception_thrown`, which the
//! runtime does not refuse although it would deadlock or move the object.
//!
//! With `MATRIX_FIRE` set it asks over and over, under fire: see `fire/mod.rs`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

mod facts;
mod fire;
mod modes;
mod places;
mod raw;
mod rows;

use std::sync::atomic::Ordering::Relaxed;

use corprof::args::{
    ClassCounts, EventPipeEvent, FunctionControl, GcReason, Generations, JitCache, MovedRanges, Roots, SurvivingRanges,
    SuspendReason, TransitionReason, WeakTableElements,
};
use corprof::id::{EventPipeProviderId, HandleId, Inert, ReJitId};
use corprof::metadata::MethodDef;
use corprof::prelude::*;

use fire::Id;
use places::{FACTS, INFO, in_callback, in_no_gc, on_thread, with_object};

#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E3001")]
struct Matrix;

/// A function that the program calls, on a managed thread outside of every callback. Under fire it answers whether all
/// has been asked often enough.
unsafe extern "system" fn probe(pinned: usize) -> i32 {
    if !FACTS.is_known() {
        FACTS.pinned.store(pinned, Relaxed);
    } else if fire::is_on() {
        return i32::from(fire::probe());
    } else if let Some(info) = INFO.get() {
        on_thread(info, "a managed thread outside of callbacks");
    }
    0
}

#[callbacks]
impl Callbacks for Matrix {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        // With it, the runtime does without precompiled code, and without the callbacks and answers about that.
        if std::env::var_os("MATRIX_PRECOMPILED").is_some() {
            cx.remove_events(EventMask::MONITOR_CODE_TRANSITIONS)?;
        }
        if fire::is_on() {
            fire::prepare(cx)?;
        }
        in_callback(cx, "initialize");
        let _ = INFO.set(Info::clone(cx));
        cx.set_environment_variable("CORPROF_MATRIX_PROBE", Some(&(probe as *const () as usize).to_string()))?;
        Ok(Self)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, status: Result<()>) {
        if cx.module_info(module).is_ok_and(|info| info.path.contains("System.Private.CoreLib")) {
            let _ = FACTS.core_module.set(module);
        }
        if status.is_ok() {
            fire::loaded(cx, Id::Module(module), "module_load_finished");
        }
        in_callback(cx, "module_load_finished");
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        in_callback(cx, "jit_compilation_started");
        let name = cx.names().function(function);
        match name.as_str() {
            "Matrix.Ready()" => FACTS.gather(cx, function).unwrap(),
            "Matrix.Scratch()" => places::marking(cx),
            _ => {}
        }
    }

    fn dynamic_method_jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        let _ = FACTS.dynamic.set(function);
        in_callback(cx, "dynamic_method_jit_compilation_finished");
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        FACTS.make_handles(cx, thrown);
        with_object(cx, "exception_thrown", Some(thrown));
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        in_callback(cx, "shutdown");
        fire::shut_down();
    }

    fn app_domain_creation_started(&self, cx: &mut InCallback<'_>, _app_domain: Inert<AppDomainId>) {
        in_callback(cx, "app_domain_creation_started");
    }

    fn app_domain_creation_finished(&self, cx: &mut InCallback<'_>, _app_domain: AppDomainId, _status: Result<()>) {
        in_callback(cx, "app_domain_creation_finished");
    }

    fn app_domain_shutdown_started(&self, cx: &mut InCallback<'_>, _app_domain: AppDomainId) {
        in_callback(cx, "app_domain_shutdown_started");
    }

    fn app_domain_shutdown_finished(
        &self,
        cx: &mut InCallback<'_>,
        _app_domain: Inert<AppDomainId>,
        _status: Result<()>,
    ) {
        in_callback(cx, "app_domain_shutdown_finished");
    }

    fn assembly_load_started(&self, cx: &mut InCallback<'_>, _assembly: Inert<AssemblyId>) {
        in_callback(cx, "assembly_load_started");
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, status: Result<()>) {
        if status.is_ok() {
            fire::loaded(cx, Id::Assembly(assembly), "assembly_load_finished");
        }
        in_callback(cx, "assembly_load_finished");
    }

    fn assembly_unload_started(&self, cx: &mut InCallback<'_>, assembly: AssemblyId) {
        fire::unloading(cx, Id::Assembly(assembly), "assembly_unload_started");
        in_callback(cx, "assembly_unload_started");
    }

    fn assembly_unload_finished(&self, cx: &mut InCallback<'_>, _assembly: Inert<AssemblyId>, _status: Result<()>) {
        in_callback(cx, "assembly_unload_finished");
    }

    fn module_load_started(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>) {
        in_callback(cx, "module_load_started");
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        fire::unloading(cx, Id::Module(module), "module_unload_started");
        in_callback(cx, "module_unload_started");
    }

    fn module_unload_finished(&self, cx: &mut InCallback<'_>, module: Inert<ModuleId>, _status: Result<()>) {
        fire::gone(module);
        in_callback(cx, "module_unload_finished");
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, _module: ModuleId, _assembly: AssemblyId) {
        in_callback(cx, "module_attached_to_assembly");
    }

    fn class_load_started(&self, cx: &mut InCallback<'_>, _class: Inert<ClassId>) {
        in_callback(cx, "class_load_started");
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
        if status.is_ok() {
            fire::loaded(cx, Id::Class(class), "class_load_finished");
        }
        in_callback(cx, "class_load_finished");
    }

    fn class_unload_started(&self, cx: &mut InCallback<'_>, class: ClassId) {
        fire::unloading(cx, Id::Class(class), "class_unload_started");
        in_callback(cx, "class_unload_started");
    }

    fn class_unload_finished(&self, cx: &mut InCallback<'_>, _class: Inert<ClassId>, _status: Result<()>) {
        in_callback(cx, "class_unload_finished");
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if status.is_ok() {
            fire::loaded(cx, Id::Function(function), "jit_compilation_finished");
        }
        in_callback(cx, "jit_compilation_finished");
    }

    fn jit_cached_function_search_started(&self, cx: &mut InCallback<'_>, _function: FunctionId) -> bool {
        in_callback(cx, "jit_cached_function_search_started");
        true
    }

    fn jit_cached_function_search_finished(&self, cx: &mut InCallback<'_>, _function: FunctionId, _result: JitCache) {
        in_callback(cx, "jit_cached_function_search_finished");
    }

    fn jit_inlining(&self, cx: &mut InCallback<'_>, _caller: FunctionId, _callee: FunctionId) -> bool {
        in_callback(cx, "jit_inlining");
        true
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        fire::thread_begins();
        in_callback(cx, "thread_created");
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        in_callback(cx, "thread_destroyed");
    }

    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, _thread: ThreadId, _os_thread_id: u32) {
        in_no_gc(cx, "thread_assigned_to_os_thread");
    }

    fn unmanaged_to_managed_transition(
        &self,
        cx: &mut InCallback<'_>,
        _function: Option<FunctionId>,
        _reason: TransitionReason,
    ) {
        in_callback(cx, "unmanaged_to_managed_transition");
    }

    fn managed_to_unmanaged_transition(
        &self,
        cx: &mut InCallback<'_>,
        _function: Option<FunctionId>,
        _reason: TransitionReason,
    ) {
        in_callback(cx, "managed_to_unmanaged_transition");
    }

    fn runtime_suspend_started(&self, cx: &InNoGc<'_>, _reason: SuspendReason) {
        in_no_gc(cx, "runtime_suspend_started");
    }

    fn runtime_suspend_finished(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "runtime_suspend_finished");
    }

    fn runtime_suspend_aborted(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "runtime_suspend_aborted");
    }

    fn runtime_resume_started(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "runtime_resume_started");
    }

    fn runtime_resume_finished(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "runtime_resume_finished");
    }

    fn runtime_thread_resumed(&self, cx: &InNoGc<'_>, _thread: corprof::id::Inert<ThreadId>) {
        in_no_gc(cx, "runtime_thread_resumed");
    }

    fn moved_references(&self, cx: &InNoGc<'_>, _ranges: MovedRanges<'_>) {
        in_no_gc(cx, "moved_references");
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, _class: ClassId) {
        if modes::is_on() {
            modes::allocated(cx, object);
        }
        with_object(cx, "object_allocated", Some(object));
    }

    fn objects_allocated_by_class(&self, cx: &InNoGc<'_>, _counts: ClassCounts<'_>) {
        in_no_gc(cx, "objects_allocated_by_class");
    }

    fn object_references(
        &self,
        cx: &InNoGc<'_>,
        object: ObjectId<'_>,
        _class: ClassId,
        _references: &[Option<ObjectId<'_>>],
    ) {
        with_object(cx, "object_references", Some(object));
    }

    fn root_references(&self, cx: &InNoGc<'_>, _roots: &[Option<ObjectId<'_>>]) {
        in_no_gc(cx, "root_references");
    }

    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        in_callback(cx, "exception_search_function_enter");
    }

    fn exception_search_function_leave(&self, cx: &mut InCallback<'_>) {
        in_callback(cx, "exception_search_function_leave");
    }

    fn exception_search_filter_enter(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        in_callback(cx, "exception_search_filter_enter");
    }

    fn exception_search_filter_leave(&self, cx: &mut InCallback<'_>) {
        in_callback(cx, "exception_search_filter_leave");
    }

    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        in_callback(cx, "exception_search_catcher_found");
    }

    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, _function: FunctionId) {
        in_no_gc(cx, "exception_unwind_function_enter");
    }

    fn exception_unwind_function_leave(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "exception_unwind_function_leave");
    }

    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, _function: FunctionId) {
        in_no_gc(cx, "exception_unwind_finally_enter");
    }

    fn exception_unwind_finally_leave(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "exception_unwind_finally_leave");
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, _function: FunctionId, thrown: Option<ObjectId<'_>>) {
        with_object(cx, "exception_catcher_enter", thrown);
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        in_callback(cx, "exception_catcher_leave");
    }

    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: corprof::id::Inert<ThreadId>, name: &str) {
        in_callback(cx, "thread_name_changed");
        // The program names its thread: a callback in which sessions are started.
        match name {
            "others" => places::others(cx),
            "modes" if modes::is_on() => modes::start(cx),
            _ => {}
        }
    }

    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        modes::collection_started();
        in_no_gc(cx, "garbage_collection_started");
    }

    fn surviving_references(&self, cx: &InNoGc<'_>, _ranges: SurvivingRanges<'_>) {
        in_no_gc(cx, "surviving_references");
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        in_no_gc(cx, "garbage_collection_finished");
    }

    fn finalizeable_object_queued(&self, cx: &InNoGc<'_>, _is_critical: bool, object: ObjectId<'_>) {
        with_object(cx, "finalizeable_object_queued", Some(object));
    }

    fn root_references2(&self, cx: &InNoGc<'_>, _roots: Roots<'_>) {
        in_no_gc(cx, "root_references2");
    }

    fn handle_created(&self, cx: &InNoGc<'_>, _handle: HandleId, object: Option<ObjectId<'_>>) {
        with_object(cx, "handle_created", object);
    }

    fn handle_destroyed(&self, cx: &InNoGc<'_>, _handle: HandleId) {
        in_no_gc(cx, "handle_destroyed");
    }

    fn rejit_compilation_started(
        &self,
        cx: &mut InCallback<'_>,
        _function: FunctionId,
        _rejit: ReJitId,
        _is_safe_to_block: bool,
    ) {
        in_callback(cx, "rejit_compilation_started");
    }

    fn get_rejit_parameters(
        &self,
        cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        _control: FunctionControl<'_>,
    ) {
        in_callback(cx, "get_rejit_parameters");
    }

    fn rejit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        _function: FunctionId,
        _rejit: ReJitId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        in_callback(cx, "rejit_compilation_finished");
    }

    fn rejit_error(
        &self,
        cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        _function: Option<FunctionId>,
        _status: Result<()>,
    ) {
        in_callback(cx, "rejit_error");
    }

    fn moved_references2(&self, cx: &InNoGc<'_>, _ranges: MovedRanges<'_>) {
        in_no_gc(cx, "moved_references2");
    }

    fn surviving_references2(&self, cx: &InNoGc<'_>, _ranges: SurvivingRanges<'_>) {
        in_no_gc(cx, "surviving_references2");
    }

    fn conditional_weak_table_element_references(&self, cx: &InNoGc<'_>, _elements: WeakTableElements<'_>) {
        in_no_gc(cx, "conditional_weak_table_element_references");
    }

    fn module_in_memory_symbols_updated(&self, cx: &mut InCallback<'_>, _module: ModuleId) {
        in_callback(cx, "module_in_memory_symbols_updated");
    }

    fn dynamic_method_jit_compilation_started(
        &self,
        cx: &mut InCallback<'_>,
        _function: FunctionId,
        _is_safe_to_block: bool,
        _il: &[u8],
    ) {
        in_callback(cx, "dynamic_method_jit_compilation_started");
    }

    fn dynamic_method_unloaded(&self, cx: &mut InCallback<'_>, _function: Inert<FunctionId>) {
        in_callback(cx, "dynamic_method_unloaded");
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, _event: EventPipeEvent<'_>) {
        in_no_gc(cx, "event_pipe_event_delivered");
    }

    fn event_pipe_provider_created(&self, cx: &mut InCallback<'_>, _provider: EventPipeProviderId<'_>) {
        in_callback(cx, "event_pipe_provider_created");
    }
}
