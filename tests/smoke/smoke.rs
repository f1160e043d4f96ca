//! A callback, a hook and a walk, for `tests/live/smoke.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;

/// Counts the calls of `Known.Fib`.
#[derive(Default)]
struct Calls {
    entered: AtomicU64,
    left: AtomicU64,
}

impl FunctionHooks for Calls {
    type Function = ();
    type Thread = ();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        let is_wanted = cx.names().function(function).to_string().starts_with("Known.Fib(");
        if is_wanted { Hook::Inlinable(()) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter(&self, _: &InHook<'_>, (): &mut (), (): &()) {
        self.entered.fetch_add(1, Relaxed);
    }

    fn leave(&self, _: &InHook<'_>, (): &mut (), (): &()) {
        self.left.fetch_add(1, Relaxed);
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "5D0C1D52-6C1F-4E7B-8A61-7B0E9A2D0001")]
struct Smoke {
    calls: Arc<Calls>,
    has_walked: AtomicBool,
}

#[callbacks]
impl Callbacks for Smoke {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        cx.hooks(Arc::clone(&profiler.calls)).install()?;
        Ok(profiler)
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
        let name = cx.names().class(class).to_string();
        if status.is_ok() && name == "Known" {
            eprintln!("loaded {name}");
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        if self.has_walked.swap(true, Relaxed) {
            return;
        }
        let mut names = Vec::new();
        let walked = cx.walk_own_stack(|frame| {
            names.extend(frame.function().map(|function| cx.names().function(function).to_string()));
            ControlFlow::Continue(())
        });
        eprintln!("walked {walked:?}: {}", names.join(" < "));
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        let Calls { entered, left } = &*self.calls;
        eprintln!("hooks entered={} left={}", entered.load(Relaxed), left.load(Relaxed));
    }
}
