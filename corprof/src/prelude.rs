//! The items that most profilers need: `use corprof::prelude::*;`.
//!
//! All types in the signatures of callbacks are here, so that a signature can be copied. Everything else is imported by
//! its module: values of objects and hooks from [`values`](crate::values), the sampler from
//! [`sampler`](crate::sampler), locks from [`sync`](crate::sync).

pub use crate::args::{
    AssemblyReferenceProvider, ClassCounts, EventPipeEvent, FunctionControl, GcReason, Generations, JitCache,
    MovedRanges, Roots, SurvivingRanges, SuspendReason, TransitionReason, WeakTableElements,
};
pub use crate::callback_event::CallbackEvent;
pub use crate::context::{InAttach, InCallback, InInitialize, InNoGc};
pub use crate::error::{Error, Result, ResultExt};
pub use crate::event_mask::EventMask;
pub use crate::hooks::{FunctionHooks, Hook, HookKinds, InHook};
pub use crate::id::{
    AppDomainId, AssemblyId, ClassId, EventPipeProviderId, FunctionId, HandleId, Inert, ModuleId, ObjectId, ReJitId,
    ThreadId,
};
pub use crate::info::Info;
pub use crate::metadata::MethodDef;
pub use crate::names::Name;
pub use crate::profiler::{BoxError, Callbacks, Profiler};
pub use crate::profiler_thread::ProfilerThread;
pub use corprof_macros::{Profiler, callbacks};
pub use windows_core::GUID as Guid;
