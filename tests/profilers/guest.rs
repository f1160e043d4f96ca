//! Profilers that misbehave, each in one way, and one that watches the order of things: for `live/guest.rs`.

#![allow(clippy::panic, reason = "that is what they are for")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use corprof::prelude::*;

/// Panics in its hundredth callback, on any thread.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0001", no_export)]
struct PanicsInCallback(AtomicUsize);

#[callbacks]
impl Callbacks for PanicsInCallback {
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        let calls = self.0.fetch_add(1, SeqCst);
        assert!(calls < 100, "callback {calls}");
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("shutdown of a quiet profiler");
    }
}

#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0002", no_export)]
struct PanicsInInitialize;

#[callbacks]
impl Callbacks for PanicsInInitialize {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        panic!("in initialize")
    }
}

/// Panics when it is dropped: at the end of a run, or at once if REFUSE is set.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0003", no_export)]
struct PanicsInDrop;

#[callbacks]
impl Callbacks for PanicsInDrop {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self;
        if std::env::var_os("REFUSE").is_some() {
            return Err("told to refuse".into());
        }
        Ok(profiler)
    }
}

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in drop")
    }
}

#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0004", no_export)]
struct PanicsWhenMade(#[allow(dead_code, reason = "it is never made")] u8);

impl Default for PanicsWhenMade {
    fn default() -> Self {
        panic!("in default")
    }
}

#[callbacks]
impl Callbacks for PanicsWhenMade {}

/// Does not start, and says why.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0005", no_export)]
struct Refuses;

#[callbacks]
impl Callbacks for Refuses {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        std::fs::read("/no/such/file").map_err(|error| format!("cannot read my settings: {error}"))?;
        Ok(Self)
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        eprintln!("a callback after all");
    }
}

/// Needs an interface that no runtime before .NET 9 has.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0006", min_info = 15, no_export)]
struct NeedsNewer;

#[callbacks]
impl Callbacks for NeedsNewer {}

/// Reports callbacks after `shutdown`, and its own drop.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0007", no_export)]
struct WatchesTheOrder {
    is_over: AtomicBool,
    inside: AtomicUsize,
}

impl WatchesTheOrder {
    fn come_by(&self) {
        self.inside.fetch_add(1, SeqCst);
        if self.is_over.load(SeqCst) {
            eprintln!("a late callback");
        }
        std::hint::black_box((0..200).sum::<u64>());
        self.inside.fetch_sub(1, SeqCst);
    }
}

#[callbacks]
impl Callbacks for WatchesTheOrder {
    fn object_allocated(&self, _cx: &InNoGc<'_>, _object: ObjectId<'_>, _class: ClassId) {
        self.come_by();
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.come_by();
    }

    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.come_by();
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.is_over.store(true, SeqCst);
        eprintln!("shutdown with {} callbacks inside", self.inside.load(SeqCst));
    }
}

impl Drop for WatchesTheOrder {
    fn drop(&mut self) {
        eprintln!("dropped with {} callbacks inside", self.inside.get_mut());
    }
}

/// Ends the process from inside a callback, as a library that it uses might.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0008", no_export)]
struct ExitsInCallback;

#[callbacks]
impl Callbacks for ExitsInCallback {
    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        std::process::exit(99);
    }
}

/// Makes calls that are not possible any more, and prints the answers.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0009", no_export)]
struct AsksTooLate;

#[callbacks]
impl Callbacks for AsksTooLate {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        eprintln!("in time: {:?}", cx.add_events(EventMask::DISABLE_INLINING));
        Ok(Self)
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        match cx.add_events(EventMask::ENABLE_OBJECT_ALLOCATED) {
            Ok(()) => eprintln!("too late: granted"),
            Err(error) => eprintln!("too late: {error}"),
        }
        if let Err(error) = cx.add_events(EventMask::DISABLE_OPTIMIZATIONS) {
            eprintln!("too late as well: {error}");
        }
        let mask = cx.event_mask().unwrap_or_default();
        eprintln!("mask: {mask:?}");
    }
}

/// Fails to start, with an error that panics when it is printed.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E000A", no_export)]
struct FailsBadly;

#[derive(Debug)]
struct BadError;

impl std::fmt::Display for BadError {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("in display")
    }
}

impl std::error::Error for BadError {}

#[callbacks]
impl Callbacks for FailsBadly {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Err(Box::new(BadError))
    }
}

/// Fails to start with a code that says success, after it has given `Info` to a thread that goes on asking.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E000B", no_export)]
struct FailsWithAThread;

#[callbacks]
impl Callbacks for FailsWithAThread {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let info: Info = (**cx).clone();
        std::thread::spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(2));
                // Nothing is answered any more once the failure is known.
                let answer = info.current_thread();
                assert!(answer == Ok(None) || answer.is_err(), "{answer:?}");
            }
            eprintln!("asked twenty times, and for events: {:?}", info.add_events(EventMask::MONITOR_THREADS).is_ok());
        });
        Err(Error::new(Default::default(), "initialize").into())
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        eprintln!("a callback after all");
    }
}

/// Holds a lock in a callback that does not end, and wants it in `shutdown`.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E000D", no_export)]
struct HoldsOn(corprof::sync::Mutex<()>);

#[callbacks]
impl Callbacks for HoldsOn {
    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: corprof::id::Inert<ThreadId>, _name: &str) {
        let _guard = self.0.lock(cx);
        loop {
            std::thread::park();
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        drop(self.0.lock(cx));
        eprintln!("shutdown of one that holds on");
    }
}

/// Turns events on and off from a thread of its own, until and beyond the end.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E000E", no_export)]
struct Toggles;

#[callbacks]
impl Callbacks for Toggles {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let info: Info = (**cx).clone();
        std::thread::spawn(move || {
            loop {
                let _ = info.add_events(EventMask::MONITOR_THREADS);
                let _ = info.remove_events(EventMask::MONITOR_THREADS);
            }
        });
        Ok(Self)
    }
}

corprof::export!(
    PanicsInCallback,
    PanicsInInitialize,
    PanicsInDrop,
    PanicsWhenMade,
    Refuses,
    NeedsNewer,
    WatchesTheOrder,
    ExitsInCallback,
    AsksTooLate,
    FailsBadly,
    FailsWithAThread,
    HoldsOn,
    Toggles,
);
