//! [`CompileSlot`]: what the hooks of a session have to do with compilations, as the rest of the SDK calls them.

use crate::id::FunctionId;

/// What wants to know which functions are compiled.
pub(crate) trait CompileSlot: Send + Sync {
    /// A function is about to be compiled.
    ///
    /// # Safety
    /// The calling thread is inside `jit_compilation_started` of this function.
    unsafe fn compiling(&'static self, function: FunctionId);

    /// Whether the compiler may inline a function.
    ///
    /// # Safety
    /// The calling thread is inside `jit_inlining` with this function as the callee.
    unsafe fn may_inline(&'static self, function: FunctionId) -> bool;

    /// Whether the runtime may use precompiled code of a function.
    ///
    /// # Safety
    /// The calling thread is inside `jit_cached_function_search_started` of this function.
    unsafe fn may_use_precompiled(&'static self, function: FunctionId) -> bool;

    /// The runtime uses precompiled code of a function.
    fn uses_precompiled(&'static self, function: FunctionId);

    /// A module has gone.
    fn module_gone(&'static self, module: usize);
}
