//! A profiler that attaches and detaches leaves no memory behind, however often it does: its own allocations are
//! counted.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corprof::detach::Detacher;
use corprof::prelude::*;
use corprof::sampler::Sampler;
use corprof::testing::FakeClr;

/// Counts the bytes that are allocated and not freed.
struct Counted;

static BYTES: AtomicIsize = AtomicIsize::new(0);
static BLOCKS: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Relaxed);
        BLOCKS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Relaxed);
        BLOCKS.fetch_sub(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// Samples, catches up, reads names, and has a thread of its own.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E00A1", no_export)]
struct Visitor {
    detacher: Mutex<Option<Detacher>>,
    rounds: Arc<AtomicIsize>,
}

#[callbacks]
impl Callbacks for Visitor {
    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        *profiler.detacher.lock().unwrap() = Some(cx.detacher()?);
        cx.catch_up();
        cx.spawn_profiler_thread("own", |cx| while cx.wait(Duration::from_secs(60)).is_continue() {})?;
        let rounds = Arc::clone(&profiler.rounds);
        Sampler::every(Duration::from_millis(1)).budget(1.0).start(cx, move |round| {
            for sample in round.samples() {
                let names = round.cx().names();
                let frames = sample.frames().iter().filter_map(|frame| frame.function);
                frames.for_each(|function| assert!(!names.function(function).to_string().is_empty()));
            }
            rounds.fetch_add(1, Relaxed);
        })?;
        Ok(profiler)
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        assert!(cx.thread_app_domain(thread).is_ok());
    }

    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        assert!(cx.names().function(function).to_string().contains("Main"));
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The application, a visit, and the end of both.
fn cycle() {
    let attach = FakeClr::builder().attach(&[]).before_attach(|clr| {
        clr.start_up();
        let module = clr.load_assembly("App");
        clr.jit(clr.function(clr.load_class(module, "App.Program"), "Main"));
    });
    let mut clr = attach.load::<Visitor>().unwrap();
    for _ in 0..3 {
        let thread = clr.create_thread();
        clr.destroy_thread(thread);
    }
    let visitor = clr.profiler::<Visitor>().unwrap();
    let detacher = visitor.detacher.lock().unwrap().clone().unwrap();
    let rounds = Arc::clone(&visitor.rounds);
    until("nothing is sampled", || rounds.load(Relaxed) > 0);
    assert!(!clr.has_panicked());
    detacher.detach().unwrap();
    until("the runtime is not asked", || clr.detach());
    detacher.wait().unwrap();
}

#[test]
fn a_visit_leaves_nothing_behind() {
    const CYCLES: isize = 20;
    // What is made once: tables of the process, thread-local data.
    (0..5).for_each(|_| cycle());
    let before = (BYTES.load(Relaxed), BLOCKS.load(Relaxed));
    (0..CYCLES).for_each(|_| cycle());
    let grown = || (BYTES.load(Relaxed) - before.0, BLOCKS.load(Relaxed) - before.1);
    // Threads that have reported their end still free what is theirs.
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_little = |(bytes, blocks): (isize, isize)| bytes < 64 * CYCLES && blocks < CYCLES / 2;
    while !is_little(grown()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (bytes, blocks) = grown();
    println!("{bytes} bytes in {blocks} blocks after {CYCLES} visits");
    assert!(is_little((bytes, blocks)), "{bytes} bytes in {blocks} blocks after {CYCLES} visits");
}
