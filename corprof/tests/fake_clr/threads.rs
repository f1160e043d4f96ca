//! Threads that live and die, and many at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use corprof::error::E_INVALIDARG;
use corprof::prelude::*;
use corprof::testing::{ClassSpec, FakeClr, FunctionSpec};

use crate::{Nothing, raw, thread_info};

/// Hears of threads.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0005", no_export)]
struct Threads(Mutex<Vec<(&'static str, ThreadId, std::thread::ThreadId)>>);

impl Threads {
    fn note(&self, what: &'static str, cx: &Info, thread: ThreadId) {
        assert_eq!(cx.current_thread(), Ok(Some(thread)), "on itself");
        self.0.lock().unwrap().push((what, thread, std::thread::current().id()));
    }
}

#[callbacks]
impl Callbacks for Threads {
    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.note("created", cx, thread);
    }
    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, thread: ThreadId, os_id: u32) {
        assert_eq!(cx.os_thread_id(thread), Ok(os_id));
        self.note("assigned", cx, thread);
    }
    fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.note("destroyed", cx, thread);
    }
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _safe: bool) {
        self.note("jit", cx, cx.current_thread().unwrap().unwrap());
    }
}

#[test]
fn threads_live_and_die() {
    let clr = FakeClr::load::<Threads>().unwrap();
    let main = clr.function(clr.core_class("System.Object"), "Main");
    let thread = clr.create_thread();
    let os_thread = clr.on_thread(thread, || {
        clr.jit(main);
        std::thread::current().id()
    });
    clr.destroy_thread(thread);
    // A thread that comes from outside becomes a managed one.
    let (foreign, foreign_os) = std::thread::scope(|scope| {
        let foreign = scope.spawn(|| {
            clr.jit(main);
            let this = clr.current_thread();
            clr.destroy_thread(this);
            (this, std::thread::current().id())
        });
        foreign.join().unwrap()
    });
    assert_ne!(thread, foreign);
    assert_ne!(os_thread, std::thread::current().id());
    let steps = ["created", "assigned", "jit", "destroyed"];
    let expected: Vec<_> = steps.iter().map(|&step| (step, thread, os_thread)).collect();
    let expected = expected.into_iter().chain(steps.iter().map(|&step| (step, foreign, foreign_os)));
    let threads = clr.profiler::<Threads>().unwrap();
    assert_eq!(*threads.0.lock().unwrap(), expected.collect::<Vec<_>>());
    assert!(!clr.has_panicked());
    // It is gone.
    let native =
        std::thread::scope(|scope| scope.spawn(|| raw(&clr, |info| thread_info(info, thread))).join().unwrap());
    assert_eq!(native, E_INVALIDARG);
}

#[test]
fn a_panic_on_a_thread_goes_on_in_the_test() {
    let clr = FakeClr::load::<Nothing>().unwrap();
    let thread = clr.create_thread();
    let work = std::panic::AssertUnwindSafe(|| clr.on_thread(thread, || panic!("on purpose")));
    assert!(std::panic::catch_unwind(work).is_err());
    assert_eq!(clr.on_thread(thread, || 5), 5, "the thread lives on");
}

/// Looks everything up that comes along, from many threads at once.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0009", no_export)]
struct Busy {
    jitted: AtomicUsize,
    allocated: AtomicUsize,
    threads: AtomicUsize,
    collections: AtomicUsize,
}

#[callbacks]
impl Callbacks for Busy {
    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _safe: bool,
    ) {
        assert!(cx.names().function(function).starts_with("App.Worker"));
        self.jitted.fetch_add(1, SeqCst);
    }
    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        assert_eq!(cx.class_of(object), Ok(class));
        self.allocated.fetch_add(1, SeqCst);
    }
    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.threads.fetch_add(1, SeqCst);
    }
    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.threads.fetch_sub(1, SeqCst);
    }
    fn garbage_collection_finished(&self, _cx: &InNoGc<'_>) {
        self.collections.fetch_add(1, SeqCst);
    }
}

#[test]
fn many_threads_make_callbacks_at_once() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 150;
    let mut clr = FakeClr::load::<Busy>().unwrap();
    let app = clr.load_assembly("App");
    let shared = &clr;
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let class = shared.load_class(app, ClassSpec::new(&format!("App.Worker{}", number % 3)));
                for round in 0..ROUNDS {
                    shared.jit(shared.function(class, FunctionSpec::new(&format!("M{round}"))));
                    let object = shared.allocate(class);
                    if round % 50 == 10 {
                        shared.collect();
                    }
                    shared.release(object);
                }
                shared.destroy_thread(shared.current_thread());
            });
        }
    });
    let busy = clr.profiler::<Busy>().unwrap();
    assert_eq!(busy.jitted.load(SeqCst), THREADS * ROUNDS);
    assert_eq!(busy.allocated.load(SeqCst), THREADS * ROUNDS);
    assert_eq!(busy.threads.load(SeqCst), 0);
    assert_eq!(clr.count(corprof::event_mask::Event::ClassLoadFinished), 0, "nobody asked");
    assert_eq!(busy.collections.load(SeqCst), THREADS * ROUNDS / 50);
    assert!(!clr.has_panicked() && clr.refusals().is_empty());
    clr.shutdown();
}
