//! Takes turns with stack walks written in C (bench/walks.c): `cargo xtask bench` measures the cost of corprof's walks.
//!
//! `BENCH_WALKS` names the library in C. With `BENCH_ROUNDS`, all threads are walked by turns from the sampler's
//! thread, as soon as that many of them sleep at the bottom of a deep stack; without, the stack of an exception, in its
//! callback. The time of each turn is printed at Shutdown: `NAME FRAMES NANOSECONDS-IN-C NANOSECONDS-IN-CORPROF`. That
//! both sides saw the same is checked, and a panic if not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how it fails")]

use std::ffi::c_void;
use std::fmt::Write;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corprof::prelude::*;
use corprof::sampler::{Round, Sampler};
use libloading::Library;

/// How many walks of its own stack a turn is: some tenths of a millisecond.
const WALKS: u64 = 10;
const TURNS: usize = 200;
/// How long rounds are made, from the first in which all threads sleep. They do for much longer.
const LONGEST: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(2);
/// The stacks that are compared have this many frames at least.
const DEEP: usize = 40;

type WalkOwn = unsafe extern "C" fn(*mut c_void, u64, *mut u64) -> u64;
type WalkAll = unsafe extern "C" fn(*mut c_void, usize, *mut usize, *mut usize) -> u64;

/// The walks in C.
#[derive(Clone, Copy)]
struct InC {
    walk_own: WalkOwn,
    walk_all: WalkAll,
}

impl InC {
    fn load() -> Self {
        let path = std::env::var_os("BENCH_WALKS").unwrap();
        // SAFETY: the library has nothing that runs when it is loaded, and its functions have these types. It stays
        // loaded.
        unsafe {
            let library: &'static Library = Box::leak(Box::new(Library::new(path).unwrap()));
            Self { walk_own: *library.get("walk_own").unwrap(), walk_all: *library.get("walk_all").unwrap() }
        }
    }

    /// The runtime's interface, as C takes it.
    fn info(info: &Info) -> *mut c_void {
        // SAFETY: it is kept for the length of a call only.
        windows_core::Interface::as_raw(unsafe { info.as_raw::<corprof::sys::ICorProfilerInfo>() }.unwrap())
    }

    /// How long it took, the frames, and the sum of their contents.
    fn own(&self, cx: &InNoGc<'_>) -> (Duration, u64, u64) {
        let mut frames = 0;
        let start = Instant::now();
        // SAFETY: in a callback, as corprof's walk.
        let sum = unsafe { (self.walk_own)(Self::info(cx), WALKS, &mut frames) };
        (start.elapsed(), frames, sum)
    }

    /// How long threads stood still, and the number and the frames of the deep stacks; none if they could not be
    /// stopped.
    fn all(&self, info: &Info) -> Option<(Duration, usize, usize)> {
        let mut stacks = 0;
        let mut frames = 0;
        // SAFETY: on the sampler's thread, between its rounds: no other code stops threads. No thread ends in the
        // middle of it, as all sleep until long after `LONGEST`.
        let stood = unsafe { (self.walk_all)(Self::info(info), DEEP, &mut stacks, &mut frames) };
        (stood > 0).then_some((Duration::from_nanos(stood), stacks, frames))
    }
}

/// The same by corprof.
fn own(cx: &InNoGc<'_>) -> (Duration, u64, u64) {
    let mut frames = 0;
    let mut sum = 0_u64;
    let start = Instant::now();
    for _ in 0..WALKS {
        cx.walk_own_stack(|frame| {
            frames += 1;
            let function = frame.function().map_or(0, FunctionId::as_raw);
            sum = sum.wrapping_add(function as u64).wrapping_add(frame.ip() as u64);
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    (start.elapsed(), frames, black_box(sum))
}

#[derive(Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E04")]
struct Walks {
    in_c: InC,
    /// The times of turns.
    told: Arc<Mutex<String>>,
}

impl Default for Walks {
    fn default() -> Self {
        Self { in_c: InC::load(), told: Arc::default() }
    }
}

/// Both sides' turn, corprof's being the round that has just been. Both come after equal pauses: the second of two
/// without a pause would find everything in the processor's caches.
fn turn(in_c: InC, round: &Round<'_, '_>, wanted: usize, first: &mut Option<Instant>, told: &mut String) {
    let deep: Vec<_> = round.samples().map(|sample| sample.frames().len()).filter(|&frames| frames >= DEEP).collect();
    let frames: usize = deep.iter().sum();
    // Before, the threads are still on their way down.
    if deep.len() != wanted || first.get_or_insert_with(Instant::now).elapsed() > LONGEST {
        return;
    }
    std::thread::sleep(PAUSE);
    let Some((stood, stacks, in_them)) = in_c.all(round.cx()) else { return };
    assert_eq!((stacks, in_them), (deep.len(), frames), "the deep stacks and their frames");
    let own = round.report().suspension.last;
    writeln!(told, "suspended round {frames} {} {}", stood.as_nanos(), own.as_nanos()).unwrap();
}

#[callbacks]
impl Callbacks for Walks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let Ok(threads) = std::env::var("BENCH_ROUNDS") else {
            cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
            return Ok(profiler);
        };
        let in_c = profiler.in_c;
        let threads = threads.parse()?;
        let told = Arc::clone(&profiler.told);
        let mut first = None;
        let sampler = Sampler::every(2 * PAUSE).budget(1.0);
        sampler.start(cx, move |round| turn(in_c, round, threads, &mut first, &mut told.lock().unwrap()))?;
        Ok(profiler)
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _: ObjectId<'_>) {
        let mut told = self.told.lock().unwrap();
        for at in 0..TURNS {
            let (c, corprof) = if at % 2 == 0 {
                let c = self.in_c.own(cx);
                (c, own(cx))
            } else {
                let corprof = own(cx);
                (self.in_c.own(cx), corprof)
            };
            assert_eq!((corprof.1, corprof.2), (c.1, c.2), "the frames, and the sum of what is in them");
            writeln!(told, "own walk {} {} {}", c.1, c.0.as_nanos(), corprof.0.as_nanos()).unwrap();
        }
    }

    fn shutdown(&self, _: &mut InCallback<'_>) {
        eprint!("{}", self.told.lock().unwrap());
    }
}
