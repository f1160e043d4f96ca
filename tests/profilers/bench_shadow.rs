//! A shadow stack with times for `cargo xtask bench`, to be measured against the same in C (bench/shadow.c,
//! bench/hooks.S).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::calls::{HookClock, ShadowStack};
use corprof::prelude::*;

/// The calls that run on each thread with their begin, and the summed times.
#[derive(Default)]
struct Running {
    clock: HookClock,
    entered: AtomicU64,
    left: AtomicU64,
    ticks: AtomicU64,
    lost: AtomicU64,
}

/// In this order: side by side, the two that `leave` changes would be added up in one vector register, which takes
/// longer.
#[repr(C)]
struct Thread {
    ticks: u64,
    entered: u64,
    left: u64,
    stack: ShadowStack<(FunctionId, u64)>,
    clock: HookClock,
}

impl FunctionHooks for Running {
    type Function = ();
    type Thread = Thread;
    const TIMED: bool = true;
    const KINDS: HookKinds = HookKinds::ENTER.union(HookKinds::LEAVE);

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) -> Thread {
        Thread { clock: self.clock.clone(), stack: ShadowStack::new(), entered: 0, left: 0, ticks: 0 }
    }

    #[inline]
    fn enter(&self, cx: &InHook<'_>, thread: &mut Thread, _function: &()) {
        thread.stack.enter(cx, (cx.function(), thread.clock.at(cx)), drop);
        thread.entered += 1;
    }

    #[inline]
    fn leave(&self, cx: &InHook<'_>, thread: &mut Thread, _function: &()) {
        if let Some((_, began)) = thread.stack.leave(cx, drop) {
            thread.ticks += thread.clock.at(cx).wrapping_sub(began);
            thread.left += 1;
        }
    }

    fn thread_ended(&self, thread: Thread) {
        self.entered.fetch_add(thread.entered - thread.stack.lost(), Relaxed);
        self.left.fetch_add(thread.left, Relaxed);
        self.ticks.fetch_add(thread.ticks, Relaxed);
        self.lost.fetch_add(thread.stack.lost(), Relaxed);
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E04")]
struct KnowsWhatRuns(Arc<Running>);

#[callbacks]
impl Callbacks for KnowsWhatRuns {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.hooks(profiler.0.clone()).install()?;
        Ok(profiler)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let Running { entered, left, ticks, lost, .. } = &*self.0;
        for (name, sum) in [("counted", entered), ("left", left), ("ticks", ticks), ("lost", lost)] {
            eprintln!("{name}={}", sum.load(Relaxed));
        }
    }
}
