//! [`Info`]: the calls that every thread may make to the runtime.
//!
//! One pointer serves all versions of the runtime's interface. A call says which version it needs, and returns an error
//! on an older runtime. Each file has the calls about one subject; the contract table decides which type has a call as
//! a method ([`context`](crate::context)). The state of the profiler is in `corprof/src/session/`; what only some calls
//! need is an extension of it (`original_bodies.rs`, `defined_rows.rs`, `loaded_assemblies.rs`, `deferred_handles.rs`).

mod app_domains;
mod assemblies;
mod classes;
mod code;
mod code_heaps;
mod deferred_handles;
mod defined_rows;
mod definitions;
mod environment;
mod event_pipe;
mod events;
mod exceptions;
mod functions;
mod handles;
mod heap;
mod hot_reload;
mod il;
mod jitted;
mod layouts;
mod loaded_assemblies;
mod manifest;
mod modules;
mod nested;
mod objects;
mod original_bodies;
mod runtime;
mod statics;
mod symbols;
mod threads;
mod tokens;

use crate::error::Result;

pub use crate::il_body::IlMapEntry;
pub use app_domains::AppDomainInfo;
pub use assemblies::AssemblyInfo;
pub use code::{CodeRange, FunctionVersion, IlOffset, IlToNativeRange, NgenInliners};
pub(crate) use defined_rows::{DefinedRows, Row};
pub(crate) use definitions::{Definitions, NotFound};
pub use event_pipe::{
    EventPipeEventDefinition, EventPipeField, EventPipePayload, EventPipeProviderConfig, EventPipeProviderListener,
    EventPipeProviderState, OwnEvent, RuntimeEvents,
};
pub use exceptions::ExceptionClause;
pub use handles::{HandleKind, ObjectHandle};
pub use heap::{GenerationRange, NonGcRange};
pub(crate) use jitted::{PAUSE, is_passing};
pub use layouts::{ClassLayout, FieldOffset, StringLayout};
pub(crate) use loaded_assemblies::SoleAssembly;
pub use modules::ModuleInfo;
pub use objects::{ArrayDimension, ArrayObject};

pub use crate::session::{ArrayClass, ClassInfo, FunctionInfo, Info, InfoVersion, RuntimeInfo};

impl Info {
    /// The newest `ICorProfilerInfo` that the runtime has: 14 for .NET 8, 15 for .NET 9 and 10.
    pub fn version(&self) -> u8 {
        self.runtime().version()
    }

    /// The runtime's interface itself, in the version `V`, for calls that have no safe form.
    ///
    /// All versions are one object, so the call costs nothing. Types of arguments that are not in [`sys`](crate::sys)
    /// are in [`windows_core`].
    ///
    /// ```
    /// use corprof::prelude::*;
    /// use corprof::windows_core::BOOL;
    /// use corprof::{Error, sys};
    ///
    /// /// Whether an object is in the part of the heap that is not collected.
    /// fn is_frozen(cx: &InNoGc<'_>, object: ObjectId<'_>) -> Result<bool> {
    ///     let mut is_frozen = BOOL(0);
    ///     // SAFETY: the object is alive, and the call writes one truth value and keeps nothing.
    ///     let code = unsafe {
    ///         let info = cx.as_raw::<sys::ICorProfilerInfo10>()?;
    ///         info.IsFrozenObject(object.as_raw(), &mut is_frozen)
    ///     };
    ///     Error::check(code, "IsFrozenObject")?;
    ///     Ok(is_frozen.as_bool())
    /// }
    /// ```
    ///
    /// # Errors
    /// `E_NOINTERFACE`: the runtime is older than this version.
    ///
    /// # Safety
    /// Do not keep a copy: the runtime may delete the object behind it, whatever its reference count. Use it only in
    /// the callback, or on the profiler's own thread, that called this: a detach waits for these. The caller must
    /// satisfy all other requirements of a call (a callback around it, no collection, live identifiers): see the row of
    /// the call in `corprof-sys/gen/contracts.toml`.
    #[inline]
    pub unsafe fn as_raw<V: InfoVersion>(&self) -> Result<&V> {
        // SAFETY: the caller's promise.
        unsafe { self.runtime().as_version_for_long("as_raw") }
    }
}
