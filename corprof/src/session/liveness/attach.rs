//! The time after an attach in which the runtime may be unloading modules of which it has announced nothing.
//!
//! The runtime calls an attached profiler's callbacks only when `InitializeForAttach` is over. An unload that began
//! before that goes on without a word: a listing of compiled functions still finds those of its modules, the next
//! question about one reads memory that is freed at any moment, and from .NET 10 on the listing itself leaves a trap
//! behind (`EECodeGenManager::Unload` in codeman.cpp, see `ask_jitted_functions`). Seen live: a profiler that lists at
//! once crashes a program that unloads all the time at each fifth attach.
//!
//! How long that lasts can be known. The runtime unloads in one place only, in the finalizer of the object that stands
//! for a collectible assembly (`LoaderAllocatorScout.Finalize` in LoaderAllocator.cs calls `LoaderAllocator::Destroy`
//! in loaderallocator.cpp, which returns when the batch's code is off the lists). So no unload is under way
//! - if that class is not loaded: the runtime loads it with the first collectible assembly;
//! - or if the runtime is suspended and the method is on no thread's stack.
//!
//! From such a moment on, each unload begins after the attach, and is announced. `adapter/settle.rs` waits for it when
//! the attach is complete; until then look-ups find nothing new, and a listing of functions or modules is an error.
//! (Modules: one that was listed a moment ago may be gone when it is asked about. Seen live once in a hundred
//! attaches.)

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use corprof_il::token::MethodDef;
use corprof_sys as sys;

use super::{Liveness, Owners};
use crate::error::{Error, Result};
use crate::id::{FunctionId, ModuleId};
use crate::session::Runtime;

/// What is known about unloads that began before the attach.
pub(super) struct Attach {
    /// The profiler was attached, and the moment has not come.
    is_watching: AtomicBool,
    /// There may be one.
    is_blocked: AtomicBool,
    /// The finalizer that unloads; none if it was not found.
    scout: OnceLock<Option<(ModuleId, MethodDef)>>,
}

impl Attach {
    pub(super) const fn new() -> Self {
        Self { is_watching: AtomicBool::new(false), is_blocked: AtomicBool::new(false), scout: OnceLock::new() }
    }
}

impl Liveness {
    /// An attach has begun. `scout` is the finalizer that unloads, if it was found: a method of a module that stays.
    pub(crate) fn attach_begins(&self, runtime: &Runtime, scout: Option<(ModuleId, MethodDef)>) {
        let _ = self.attach.scout.set(scout);
        self.attach.is_watching.store(true, Ordering::SeqCst);
        self.may_miss_unloads(runtime);
    }

    /// Whether an unload may be under way that the runtime has not announced. It asks the runtime, so that the answer
    /// is true of all that was listed before.
    pub(crate) fn may_miss_unloads(&self, runtime: &Runtime) -> bool {
        if !self.attach.is_watching.load(Ordering::SeqCst) {
            return false;
        }
        if !self.is_attaching() && self.scout(runtime) != Scout::NotLoaded {
            self.is_unloading_possible.store(true, Ordering::SeqCst);
            self.attach.is_blocked.store(true, Ordering::SeqCst);
        }
        self.is_attaching()
    }

    /// The same as far as it is known.
    #[inline]
    pub(super) fn is_attaching(&self) -> bool {
        self.attach.is_blocked.load(Ordering::SeqCst) && self.attach.is_watching.load(Ordering::SeqCst)
    }

    /// Whether the profiler is being attached: the runtime makes no callbacks yet.
    pub(crate) fn attach_is_under_way(&self) -> bool {
        self.attach.is_watching.load(Ordering::SeqCst)
    }

    /// An error as long as `call` may list something whose end the runtime does not announce.
    pub(crate) fn refuse_after_attach(&self, runtime: &Runtime, call: &'static str) -> Result<()> {
        if !self.may_miss_unloads(runtime) {
            return Ok(());
        }
        Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
            "right after an attach",
            "an assembly may be being unloaded since before: ask in or after `profiler_attach_complete`",
        ))
    }

    /// The finalizer that unloads.
    pub(crate) fn scout(&self, runtime: &Runtime) -> Scout {
        let Some(Some((module, method))) = self.attach.scout.get() else { return Scout::Unknown };
        match runtime.ask_loaded_function(*module, *method) {
            Ok(Some(function)) => Scout::Loaded(function),
            Ok(None) => Scout::NotLoaded,
            Err(_) => Scout::Unknown,
        }
    }

    /// From now on each unload is announced.
    pub(crate) fn attach_is_settled(&self) {
        self.attach.is_watching.store(false, Ordering::SeqCst);
    }

    /// Those of `before` that the runtime does not list any more have been unloaded unannounced.
    pub(crate) fn modules_remain(&self, before: &[usize], listed: &[ModuleId]) {
        let is_gone = |module: &&usize| !listed.iter().any(|listed| listed.as_raw() == **module);
        before.iter().filter(is_gone).for_each(|&module| self.module_has_vanished(module));
    }

    /// Records the module of the function that the current callback is about, which may have been loaded unannounced.
    /// It is loaded, and as there are callbacks its end will be announced.
    pub(super) fn note_modules_of_subject(&self, runtime: &Runtime, function: usize) {
        let Some(function) = FunctionId::from_raw(function) else { return };
        for module in Owners::all_modules(runtime, function) {
            if self.modules.get(module.as_raw()).is_none_or(|entry| !entry.is_alive()) {
                self.note_module(runtime, module.as_raw());
            }
        }
    }
}

/// The finalizer that unloads modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scout {
    /// Its class is not loaded: nothing that can be unloaded was ever loaded.
    NotLoaded,
    Loaded(FunctionId),
    /// This runtime has none by that name.
    Unknown,
}
