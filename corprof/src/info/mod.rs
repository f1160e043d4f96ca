//! [`Info`]: the runtime, as a profiler sees it.
//!
//! One pointer serves all versions of the runtime's interface. A call says which version it needs, and a runtime that is older
//! answers with an error. The calls stand in the files of what they ask about; on which type a call is a method follows the
//! contract table ([`context`](crate::context)). The state behind them is in `corprof/src/session/`.

mod app_domains;
mod assemblies;
mod classes;
mod code;
mod environment;
mod event_pipe;
mod events;
mod exceptions;
mod functions;
mod handles;
mod heap;
mod il;
mod jitted;
mod layouts;
mod modules;
mod nested;
mod objects;
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
pub use event_pipe::{
    EventPipeEventDefinition, EventPipeField, EventPipeLevel, EventPipePayload, EventPipeProviderConfig,
    EventPipeProviderListener, EventPipeProviderState, EventPipeType,
};
pub use exceptions::ExceptionClause;
pub use handles::{HandleKind, ObjectHandle};
pub use heap::{GenerationRange, NonGcRange};
pub use layouts::{ClassLayout, FieldOffset, StringLayout};
pub use modules::ModuleInfo;
pub use objects::{ArrayDimension, ArrayObject};
pub use runtime::{RuntimeInfo, RuntimeKind};

pub use crate::session::{ArrayClass, ClassInfo, FunctionInfo, Info, InfoVersion};

impl Info {
    /// The newest `ICorProfilerInfo` that the runtime has: 11 for .NET Core 3.1, 14 for .NET 8.
    pub fn version(&self) -> u8 {
        self.runtime().version()
    }

    /// The runtime's interface itself, in the version `V`, for calls that have no safe form.
    ///
    /// All versions are one object, so nothing is asked of the runtime. The types of a call's arguments that are not in
    /// [`sys`](crate::sys) are in [`windows_core`].
    ///
    /// ```
    /// use corprof::prelude::*;
    /// use corprof::windows_core::BOOL;
    /// use corprof::{Error, sys};
    ///
    /// /// Whether an object is in the part of the heap that is not collected.
    /// fn is_frozen(cx: &InCallback<'_>, object: ObjectId<'_>) -> Result<bool> {
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
    /// A copy of it must not be kept: the runtime may delete the object behind it, whatever its reference count. It is used in
    /// the callback, or on the profiler's own thread, that asked for it: a detach waits for these. What a call
    /// needs besides (a callback around it, no collection, identifiers that are alive) is for the caller to know: see the row of the
    /// call in `corprof-sys/gen/contracts.toml`.
    #[inline]
    pub unsafe fn as_raw<V: InfoVersion>(&self) -> Result<&V> {
        // SAFETY: the caller's promise.
        unsafe { self.runtime().as_version_for_long("as_raw") }
    }
}
