//! [`Info`]: the runtime, as a profiler sees it.
//!
//! The runtime's interface is negotiated once, from the newest version down, and from then on one pointer serves all
//! versions: each extends the one before. A call says which version it needs, and a runtime that is older answers with an
//! error. The calls stand in the files of what they ask about; on which type a call is a method follows the contract table
//! ([`context`](crate::context)).

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
mod hooks;
mod il;
mod jitted;
mod layouts;
mod modules;
mod nested;
mod objects;
mod rejit;
mod runtime;
mod statics;
mod symbols;
mod threads;
mod tokens;

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use corprof_sys as sys;
use windows_core::{IUnknown, Interface};

use crate::adapter::own_threads::OwnThreads;
use crate::alive::Alive;
use crate::error::{E_NOINTERFACE, Error, Result};
use crate::event_mask::Phase;
use crate::hooks::AnyHooks;
use crate::names::NameCache;
use crate::walk::ThreadNames;

use event_pipe::Sessions;
use handles::LateHandles;

pub use app_domains::AppDomainInfo;
pub use assemblies::AssemblyInfo;
pub use classes::{ArrayClass, ClassInfo};
pub use code::{CodeRange, FunctionVersion, IlOffset, IlToNativeRange, NgenInliners};
pub use event_pipe::{
    EventPipeEventDefinition, EventPipeField, EventPipeLevel, EventPipePayload, EventPipeProviderConfig,
    EventPipeProviderListener, EventPipeProviderState, EventPipeType,
};
pub use exceptions::ExceptionClause;
pub use functions::FunctionInfo;
pub use handles::{HandleKind, ObjectHandle};
pub use heap::{GenerationRange, NonGcRange};
pub use il::IlMapEntry;
pub(crate) use il::check_body;
pub use layouts::{ClassLayout, FieldOffset, StringLayout};
pub use modules::ModuleInfo;
pub use objects::{ArrayDimension, ArrayObject};
pub use runtime::{RuntimeInfo, RuntimeKind};

/// The runtime. Anybody may have one, on any thread, for as long as the profiler lives; it offers the calls that the runtime
/// answers everywhere. Calls that need a callback around them are methods of its context ([`context`](crate::context)).
#[derive(Clone)]
pub struct Info(Arc<Shared>);

struct Shared {
    /// The newest version the runtime has; all older ones are its prefix.
    raw: sys::ICorProfilerInfo,
    /// The number in that version's name.
    version: u8,
    /// A [`Phase`], which decides what may be asked of the event mask.
    phase: AtomicU8,
    /// Held while the event mask is read, checked and set; `true` once Shutdown is over, when .NET Core 3.1 has let go of
    /// what the call needs.
    is_mask_sealed: Mutex<bool>,
    alive: Arc<Alive>,
    names: NameCache,
    own_threads: Arc<OwnThreads>,
    /// Set in `initialize`, if at all.
    hooks: OnceLock<&'static dyn AnyHooks>,
    thread_names: ThreadNames,
    event_pipe_sessions: Sessions,
    late_handles: LateHandles,
}

// SAFETY: the profiling API is free-threaded: the runtime answers calls on any thread (which of them, is what the contexts
// are for), and AddRef and Release on its Info object do nothing (the runtime's proftoeeinterfaceimpl.cpp). The object lives as long as the
// process, but for a failed `Initialize`, which the adapter therefore does not report while anybody has a clone of `Info`.
unsafe impl Send for Shared {}
// SAFETY: as above; all other fields are `Sync` by themselves.
unsafe impl Sync for Shared {}

/// What `SetEventMask2` needs, and so every profiler: a runtime with less gets none.
pub(crate) const LEAST_INFO: u8 = 5;

/// One version of the runtime's interface: [`ICorProfilerInfo`](sys::ICorProfilerInfo) and its successors, for
/// [`as_raw`](Info::as_raw).
pub trait InfoVersion: Interface + sealed::Sealed {
    /// The number in its name, 1 for the first.
    const VERSION: u8;
    /// Its name.
    const NAME: &'static str;
    /// What to say when the runtime lacks it.
    #[doc(hidden)]
    const LACKING: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for sys::ICorProfilerInfo {}
impl InfoVersion for sys::ICorProfilerInfo {
    const VERSION: u8 = 1;
    const NAME: &'static str = "ICorProfilerInfo";
    const LACKING: &'static str = "every runtime has it";
}

macro_rules! info_versions {
    ($($version:literal $runtime:literal,)*) => { paste::paste! {
        $(impl sealed::Sealed for sys::[<ICorProfilerInfo $version>] {}
        impl InfoVersion for sys::[<ICorProfilerInfo $version>] {
            const VERSION: u8 = $version;
            const NAME: &'static str = stringify!([<ICorProfilerInfo $version>]);
            const LACKING: &'static str =
                concat!("this runtime lacks the interface, the first to have it is ", $runtime);
        })*

        /// The newest version that the runtime has, and its number.
        fn negotiate(runtime: &IUnknown) -> Option<(sys::ICorProfilerInfo, u8)> {
            $(if let Ok(info) = runtime.cast::<sys::[<ICorProfilerInfo $version>]>() {
                // SAFETY: every version's vtable begins with the first version's, so the pointer serves as either.
                return Some((unsafe { sys::ICorProfilerInfo::from_raw(info.into_raw()) }, $version));
            })*
            runtime.cast().ok().map(|info| (info, 1))
        }

        /// The first runtime that has a version, for messages.
        pub(crate) const fn first_runtime_with(version: u8) -> &'static str {
            match version {
                $($version => $runtime,)*
                _ => ".NET Framework 2.0",
            }
        }
    } };
}

info_versions! {
    15 ".NET 9", 14 ".NET 8", 13 ".NET 7", 12 ".NET 5", 11 ".NET Core 3.1", 10 ".NET Core 3.0", 9 ".NET Core 2.1",
    8 ".NET Core 2.0", 7 ".NET Core 2.0", 6 ".NET Core 2.0", 5 ".NET Core 2.0", 4 ".NET Core 2.0", 3 ".NET Core 2.0",
    2 ".NET Core 2.0",
}

impl Info {
    /// Asks the runtime for its newest interface.
    pub(crate) fn negotiate(runtime: &IUnknown, phase: Phase, own_threads: Arc<OwnThreads>) -> Result<Self> {
        let (raw, version) = negotiate(runtime).ok_or(Error::new(E_NOINTERFACE, "QueryInterface(ICorProfilerInfo)"))?;
        Ok(Self(Arc::new(Shared {
            raw,
            version,
            phase: AtomicU8::new(phase as u8),
            is_mask_sealed: Mutex::new(false),
            alive: Arc::new(Alive::new()),
            names: NameCache::new(),
            own_threads,
            hooks: OnceLock::new(),
            thread_names: ThreadNames::default(),
            event_pipe_sessions: Sessions::default(),
            late_handles: LateHandles::default(),
        })))
    }

    /// The newest `ICorProfilerInfo` that the runtime has: 11 for .NET Core 3.1, 14 for .NET 8.
    pub fn version(&self) -> u8 {
        self.0.version
    }

    /// Which identifiers are alive.
    #[inline]
    pub(crate) fn alive(&self) -> &Arc<Alive> {
        &self.0.alive
    }

    /// The names that have been looked up.
    pub(crate) fn known_names(&self) -> &NameCache {
        &self.0.names
    }

    /// What the application's threads are called.
    pub(crate) fn thread_names(&self) -> &ThreadNames {
        &self.0.thread_names
    }

    /// The sessions of EventPipe that the profiler has started.
    pub(crate) fn event_pipe_sessions(&self) -> &Sessions {
        &self.0.event_pipe_sessions
    }

    /// The handles that are still to be freed.
    fn late_handles(&self) -> &LateHandles {
        &self.0.late_handles
    }

    /// The threads that the profiler has made.
    pub(crate) fn own_threads(&self) -> &Arc<OwnThreads> {
        &self.0.own_threads
    }

    /// The hooks that functions have, if any.
    pub(crate) fn hooks(&self) -> Option<&'static dyn AnyHooks> {
        self.0.hooks.get().copied()
    }

    /// Makes hooks known to the rest of the SDK; only the first are.
    pub(crate) fn set_hooks(&self, hooks: &'static dyn AnyHooks) {
        let _ = self.0.hooks.set(hooks);
    }

    /// The runtime's interface itself, in the version `V`, for calls that have no safe form.
    ///
    /// All versions are one object, so nothing is asked of the runtime. The types of a call's arguments that are not in
    /// [`sys`] are in [`windows_core`].
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
    /// A copy of it must not be kept: the runtime may delete the object behind it, whatever its reference count. What a call
    /// needs besides (a callback around it, no collection, identifiers that are alive) is for the caller to know: see the row of the
    /// call in `corprof-sys/gen/contracts.toml`.
    #[inline]
    pub unsafe fn as_raw<V: InfoVersion>(&self) -> Result<&V> {
        self.as_version("as_raw")
    }

    /// The runtime's interface in its first version, which every runtime has.
    #[inline]
    pub(crate) fn first_version(&self) -> &sys::ICorProfilerInfo {
        &self.0.raw
    }

    /// The runtime's interface in the version that `call` needs.
    #[inline]
    pub(crate) fn as_version<V: InfoVersion>(&self, call: &'static str) -> Result<&V> {
        // Nobody has an `Info` of an older runtime than that.
        if V::VERSION > LEAST_INFO && self.0.version < V::VERSION {
            return Err(Error::new(E_NOINTERFACE, call).about(V::NAME, V::LACKING));
        }
        // SAFETY: `V` is a transparent pointer like `ICorProfilerInfo`, and the runtime has answered QueryInterface for a
        // version that is at least as new, whose vtable begins with that of `V`.
        Ok(unsafe { &*std::ptr::from_ref(&self.0.raw).cast::<V>() })
    }

    /// Whether anybody but the adapter has it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// What stands between event masks: whether they are sealed. No user code runs under this lock.
    fn mask_lock(&self) -> MutexGuard<'_, bool> {
        self.0.is_mask_sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Initialize as u8 => Phase::Initialize,
            phase if phase == Phase::Running as u8 => Phase::Running,
            _ => Phase::Attached,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Info(ICorProfilerInfo{})", self.0.version)
    }
}
