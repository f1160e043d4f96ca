//! The items that most profilers need: `use corprof::prelude::*;`.
//!
//! Everything else is imported by its module: arguments of rarer callbacks from [`args`](crate::args), rarer
//! identifiers from [`id`](crate::id), values of hooks from [`values`](crate::values), the sampler from
//! [`sampler`](crate::sampler).

pub use crate::callback_event::CallbackEvent;
pub use crate::context::{InAttach, InCallback, InInitialize, InNoGc};
pub use crate::error::{Error, Result, ResultExt};
pub use crate::event_mask::EventMask;
pub use crate::hooks::{FunctionHooks, Hook, HookKinds, InHook};
pub use crate::id::{AppDomainId, AssemblyId, ClassId, FunctionId, ModuleId, ObjectId, ThreadId};
pub use crate::info::Info;
pub use crate::names::Name;
pub use crate::profiler::{BoxError, Callbacks, Profiler};
pub use crate::profiler_thread::ProfilerThread;
pub use corprof_macros::{Profiler, callbacks};
