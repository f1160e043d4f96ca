//! [`RejitSlot`]: the instrumentation of a session, as the rest of the SDK calls it.

use std::any::Any;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::id::{FunctionId, ReJitId};

/// The instrumentation, with its type erased. A method is given by its module and its token.
pub(crate) trait RejitSlot: Any + Send + Sync {
    /// A module was loaded.
    fn module_loaded(&self, module: usize);
    /// The callback about a loaded module is about to return: waits as long as the profiler wishes for what was asked
    /// so far.
    fn wait_at_module_load(&self);
    /// A module is being unloaded.
    fn module_gone(&self, module: usize);
    /// The runtime asks for the body of a method. `is_sole`: the profiler makes no requests by itself.
    fn parameters(&self, module: usize, method: u32, control: &sys::ICorProfilerFunctionControl, is_sole: bool);
    /// A function of the method is about to be compiled from a requested body.
    fn compiling(&self, method: (usize, u32), function: FunctionId, rejit: ReJitId);
    /// A function of the method was compiled from a requested body, or could not be.
    fn compiled(&self, method: (usize, u32), function: FunctionId, rejit: ReJitId, status: HRESULT);
    /// The request for a method has failed.
    fn failed(&self, method: (usize, u32), status: HRESULT);
}
