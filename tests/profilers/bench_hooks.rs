//! Enter/leave hooks for `cargo xtask bench`, to be measured against the same in C (bench/floor.c, bench/hooks.S).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;

/// Counts calls when they begin and when they return: each thread by itself.
#[derive(Default)]
struct Counts {
    entered: AtomicU64,
    left: AtomicU64,
}

impl FunctionHooks for Counts {
    type Function = ();
    type Thread = (u64, u64);
    const KINDS: HookKinds = HookKinds::ENTER.union(HookKinds::LEAVE);

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) -> (u64, u64) {
        (0, 0)
    }

    fn enter(&self, _cx: &InHook<'_>, (entered, _): &mut (u64, u64), _function: &()) {
        *entered += 1;
    }

    fn leave(&self, _cx: &InHook<'_>, (_, left): &mut (u64, u64), _function: &()) {
        *left += 1;
    }

    fn thread_ended(&self, (entered, left): (u64, u64)) {
        self.entered.fetch_add(entered, Relaxed);
        self.left.fetch_add(left, Relaxed);
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E03")]
struct CountCalls(Arc<Counts>);

#[callbacks]
impl Callbacks for CountCalls {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.hooks(profiler.0.clone()).install()?;
        Ok(profiler)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("counted={}", self.0.entered.load(Relaxed));
        eprintln!("left={}", self.0.left.load(Relaxed));
    }
}
