//! Sessions of the runtime's events, started in callbacks in which the runtime could not run the managed code that
//! hears of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corprof::args::TransitionReason;
use corprof::events::KeywordSet;
use corprof::hooks::Precompiled;
use corprof::id::{EventPipeProviderId, Inert};
use corprof::prelude::*;

/// How often each callback tries.
const TRIES: u64 = 3;

/// The places that every program gets to: all but the first two.
const CERTAIN: std::ops::Range<usize> = 2..10;

/// Starts them in callbacks that come in cooperative mode, and while a class is loaded or a method compiled; in
/// `select` of hooks, which are inserted code if `ATTACKS_HOOKS` is `il`; and in a callback inside of one about a
/// compilation.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1251", no_export)]
pub(crate) struct Sessions(Arc<Tries>);

#[derive(Default)]
struct Tries {
    tries: [AtomicU64; CERTAIN.end],
    refused: AtomicU64,
    started: AtomicU64,
    /// Whether providers have been made in a callback about a compilation.
    has_provided: AtomicBool,
}

impl Tries {
    fn try_at(&self, cx: &mut InCallback<'_>, place: usize) {
        if self.tries[place].fetch_add(1, Relaxed) >= TRIES {
            return;
        }
        let count = if cx.start_runtime_events(KeywordSet::CONTENTION).is_ok() { &self.started } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }
}

impl FunctionHooks for Tries {
    type Function = ();
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        self.try_at(cx, 8);
        Hook::No
    }

    fn thread_started(&self) {}
    fn enter(&self, _cx: &InHook<'_>, _thread: &mut (), _function: &()) {}
}

#[callbacks]
impl Callbacks for Sessions {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        if std::env::var_os("ATTACKS_HOOKS").is_some_and(|hooks| hooks == "il") {
            cx.hooks(Arc::clone(&profiler.0)).inserted(Precompiled::Compile).install()?;
        } else {
            cx.hooks(Arc::clone(&profiler.0)).install()?;
        }
        Ok(profiler)
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        self.0.try_at(cx, 0);
    }

    fn dynamic_method_unloaded(&self, cx: &mut InCallback<'_>, _function: Inert<FunctionId>) {
        self.0.try_at(cx, 1);
    }

    fn class_load_started(&self, cx: &mut InCallback<'_>, _class: Inert<ClassId>) {
        self.0.try_at(cx, 2);
    }

    fn assembly_load_started(&self, cx: &mut InCallback<'_>, _assembly: Inert<AssemblyId>) {
        self.0.try_at(cx, 3);
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, _assembly: AssemblyId, _status: Result<()>) {
        self.0.try_at(cx, 4);
    }

    fn module_load_started(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>) {
        self.0.try_at(cx, 5);
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.0.try_at(cx, 6);
        if !self.0.has_provided.swap(true, Relaxed) {
            for _ in 0..TRIES {
                let _ = cx.event_pipe_create_provider("Corprof-Sessions");
            }
        }
    }

    fn managed_to_unmanaged_transition(
        &self,
        cx: &mut InCallback<'_>,
        _function: Option<FunctionId>,
        _reason: TransitionReason,
    ) {
        self.0.try_at(cx, 7);
    }

    fn event_pipe_provider_created(&self, cx: &mut InCallback<'_>, provider: EventPipeProviderId<'_>) {
        if cx.event_pipe_provider_info(provider).is_ok_and(|name| name == "Corprof-Sessions") {
            self.0.try_at(cx, 9);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let tries = self.0.tries.each_ref().map(|tries| tries.load(Relaxed).min(TRIES));
        let [refused, started] = [&self.0.refused, &self.0.started].map(|count| count.load(Relaxed));
        let missing = CERTAIN.filter(|&place| tries[place] == 0).count();
        eprintln!("attacks| refused={refused} started={started} missing={missing} of {tries:?}");
    }
}
