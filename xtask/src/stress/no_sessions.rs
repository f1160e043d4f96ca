//! The callbacks in which corprof refuses calls about EventPipe's sessions and providers: for `fire`, and for the matrix
//! of the live tests.

/// Managed code cannot run in them: in the middle of a load, an unload or a compilation, between native and managed
/// code, in cooperative mode, or on a thread that ends.
const PLACES: [&str; 29] = [
    "assembly_load_started",
    "assembly_load_finished",
    "assembly_unload_started",
    "assembly_unload_finished",
    "module_load_started",
    "module_load_finished",
    "module_unload_started",
    "module_unload_finished",
    "module_attached_to_assembly",
    "class_load_started",
    "class_load_finished",
    "class_unload_started",
    "class_unload_finished",
    "jit_compilation_started",
    "jit_compilation_finished",
    "jit_cached_function_search_started",
    "jit_cached_function_search_finished",
    "jit_inlining",
    "rejit_compilation_started",
    "rejit_compilation_finished",
    "rejit_error",
    "get_rejit_parameters",
    "dynamic_method_jit_compilation_started",
    "dynamic_method_jit_compilation_finished",
    "unmanaged_to_managed_transition",
    "managed_to_unmanaged_transition",
    "exception_catcher_leave",
    "dynamic_method_unloaded",
    "thread_destroyed",
];

/// Whether corprof refuses the call `method` in the callback `place` for this reason, or because the thread that ends may
/// hold a lock that a session wants.
#[must_use]
pub fn is_event_pipe_refused(place: &str, method: &str) -> bool {
    match method {
        "EventPipeAddProviderToSession" | "EventPipeStartSession" | "EventPipeStopSession" => PLACES.contains(&place),
        "EventPipeCreateProvider" | "EventPipeCreateProvider2" | "EventPipeDefineEvent" => place == "thread_destroyed",
        _ => false,
    }
}
