//! A notification-only profiler, loaded beside a main one: for `live/cli/run.rs`. It tries what only a main profiler
//! may do.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E13F7", notification_only)]
struct Beside {
    thrown: AtomicU32,
}

struct Hooks;

impl FunctionHooks for Hooks {
    type Function = ();
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) {}

    fn enter(&self, _cx: &InHook<'_>, _thread: &mut (), (): &()) {}
}

#[callbacks]
impl Callbacks for Beside {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        eprintln!("beside| loaded");
        for flag in [EventMask::ENABLE_REJIT, EventMask::MONITOR_GC] {
            cx.add_events(flag).err().into_iter().for_each(|error| eprintln!("beside| {error}"));
        }
        cx.hooks(Hooks).install().err().into_iter().for_each(|error| eprintln!("beside| {error}"));
        Ok(Self::default())
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.thrown.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("beside| exceptions: {}", self.thrown.load(Relaxed));
    }
}
