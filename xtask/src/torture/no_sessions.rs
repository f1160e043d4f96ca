//! The callbacks in which corprof refuses calls about EventPipe sessions: for `fire`, and for the matrix of the live tests.

/// Managed code cannot run in them: in the middle of a load or an unload, in cooperative mode, or on a thread that ends.
const PLACES: [&str; 16] = [
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
    "exception_catcher_leave",
    "dynamic_method_unloaded",
    "thread_destroyed",
];

/// Whether corprof refuses the call `method` in the callback `place` for this reason.
#[must_use]
pub fn is_session_refused(place: &str, method: &str) -> bool {
    let is_about_session =
        ["EventPipeAddProviderToSession", "EventPipeStartSession", "EventPipeStopSession"].contains(&method);
    is_about_session && PLACES.contains(&place)
}
