//! Walks of other threads while the runtime is suspended: all managed threads stop at safepoints, each is walked from
//! there, and all are resumed.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{E_FAIL, Error, Result, S_FALSE, S_OK};
use crate::generated::contract::contract;
use crate::id::{FunctionId, ThreadId};
use crate::profiler_thread::ProfilerThread;
use crate::session::liveness::Pinned;
use crate::suspension::{Mark, Turn};

use super::stack_writer::StackWriter;
use super::unshown::CAN_BE_FOUND;

const SUSPEND: &str = "SuspendRuntime";

/// How many times a suspension is retried when another was in progress. The waits double from [`FIRST_WAIT`] on,
/// to 2.5 ms in all: a collection that lasts longer is long, and the next round comes soon enough.
const RETRIES: u32 = 7;
const FIRST_WAIT: Duration = Duration::from_micros(20);

/// What the runtime passes with each frame of a walk: the registers, where they find the frames that it does not show.
const WITH_FRAMES: sys::COR_PRF_SNAPSHOT_INFO =
    if CAN_BE_FOUND { sys::COR_PRF_SNAPSHOT_REGISTER_CONTEXT } else { sys::COR_PRF_SNAPSHOT_DEFAULT };

/// How long a thread waits for its turn. Others have it for the time of their walks: longer only if the user's code
/// visits a large heap.
const LONGEST_TURN: Duration = Duration::from_millis(100);

/// Suspends the runtime. Only the sampler's thread has one: its context proves that the thread is one of corprof's own
/// (suspension rule 1).
pub(crate) struct Suspender<'i> {
    info: &'i sys::ICorProfilerInfo10,
    _profiler_thread: PhantomData<*mut ()>,
}

/// The runtime is suspended until this is dropped. It offers walks and nothing else.
pub(crate) struct Suspension<'s> {
    info: &'s sys::ICorProfilerInfo10,
    requested: Instant,
    is_over: bool,
    _mark: Mark,
    /// Given up when the runtime has been resumed.
    _turn: Turn,
}

/// Whether a function is on a thread's stack, as found at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnStacks {
    Yes,
    No,
    /// The runtime could not be suspended, or a stack not be walked, now.
    Unknown,
}

/// Suspends the runtime and looks for a function on the stack of each thread.
pub(crate) fn look_for(cx: &mut ProfilerThread<'_>, function: FunctionId) -> Result<OnStacks> {
    let threads = cx.enum_threads()?;
    let liveness = cx.liveness();
    let claims: Vec<_> = threads.into_iter().filter_map(|thread| liveness.walk_candidate(thread)).collect();
    let _look_up = liveness.look_up();
    let mut suspender = Suspender::new(cx)?;
    let Ok(mut suspension) = suspender.suspend(&mut 0) else { return Ok(OnStacks::Unknown) };
    let mut found = OnStacks::No;
    for claim in &claims {
        // One that has ended since runs no code.
        let Some(thread) = claim.pin() else { continue };
        match suspension.has(&thread, function) {
            OnStacks::No => {}
            OnStacks::Unknown => found = OnStacks::Unknown,
            OnStacks::Yes => {
                found = OnStacks::Yes;
                break;
            }
        }
    }
    match suspension.end() {
        Some(code) => Err(Error::new(code, "ResumeRuntime")),
        None => Ok(found),
    }
}

/// What [`look_for`] is looking for on one stack.
struct Search {
    wanted: usize,
    /// How many frames were seen.
    frames: usize,
    is_found: bool,
}

/// The callback for `DoStackSnapshot`: ends the walk at the wanted function.
///
/// # Safety
/// `search` points at a [`Search`] that has no other user during the call.
unsafe extern "system" fn compare(
    function: sys::FunctionID,
    _ip: usize,
    _info: sys::COR_PRF_FRAME_INFO,
    _context_size: u32,
    _context: *mut u8,
    search: *mut c_void,
) -> HRESULT {
    // SAFETY: the caller's promise.
    let search = unsafe { &mut *search.cast::<Search>() };
    search.frames += 1;
    search.is_found = function == search.wanted;
    if search.is_found { S_FALSE } else { S_OK }
}

impl<'i> Suspender<'i> {
    /// A suspender for the thread of this context.
    ///
    /// # Errors
    /// If the runtime is older than the call.
    pub(crate) fn new(cx: &ProfilerThread<'i>) -> Result<Self> {
        // SAFETY: the borrow of the thread's context keeps it from outliving the thread's closure.
        let info = unsafe { cx.info().runtime().as_version_for_long(SUSPEND)? };
        Ok(Self { info, _profiler_thread: PhantomData })
    }

    /// Suspends all managed threads, and waits a little if another suspension is in progress: a collection, mostly.
    /// Adds to `retries` how many times it was tried again.
    ///
    /// # Errors
    /// The code of `SuspendRuntime`.
    pub(crate) fn suspend(&mut self, retries: &mut u32) -> Result<Suspension<'_>, HRESULT> {
        let mut wait = FIRST_WAIT;
        let Some(turn) = Turn::wait(LONGEST_TURN) else { return Err(sys::CORPROF_E_SUSPENSION_IN_PROGRESS) };
        loop {
            let requested = Instant::now();
            match self.try_suspend() {
                Ok(mark) => {
                    return Ok(Suspension { info: self.info, requested, is_over: false, _mark: mark, _turn: turn });
                }
                Err(sys::CORPROF_E_SUSPENSION_IN_PROGRESS) if *retries < RETRIES => {
                    *retries += 1;
                    std::thread::sleep(wait);
                    wait *= 2;
                }
                Err(code) => return Err(code),
            }
        }
    }

    #[doc = contract!(SuspendRuntime)]
    fn try_suspend(&mut self) -> Result<Mark, HRESULT> {
        let mark = Mark::set();
        // SAFETY: the calling thread never ran managed code and holds no lock of this library. The caller that gets the
        // mark makes a `Suspension` of it, which resumes (fact: suspension).
        let code = unsafe { self.info.SuspendRuntime() };
        if code.is_ok() { Ok(mark) } else { Err(code) }
    }
}

impl Suspension<'_> {
    /// When the attempt that succeeded was begun.
    pub(crate) fn requested(&self) -> Instant {
        self.requested
    }

    /// Writes the stack of a thread, and returns the code of the walk.
    pub(crate) fn walk(&mut self, thread: &Pinned<'_, ThreadId>, writer: &mut StackWriter<'_>) -> HRESULT {
        let writer: *mut StackWriter<'_> = writer;
        // SAFETY: the thread is pinned, so it lives, and is stopped; there is no seed; the writer has no other user
        // during the call (fact: pinned, suspension).
        unsafe {
            self.info.DoStackSnapshot(
                thread.as_raw(),
                Some(StackWriter::on_frame),
                WITH_FRAMES.bits(),
                writer.cast(),
                std::ptr::null(),
                0,
            )
        }
    }

    /// Whether a function is on the stack of a thread.
    fn has(&mut self, thread: &Pinned<'_, ThreadId>, function: FunctionId) -> OnStacks {
        let mut search = Search { wanted: function.as_raw(), frames: 0, is_found: false };
        // SAFETY: the thread is pinned, so it lives, and is stopped; there is no seed; the search has no other user
        // during the call (fact: pinned, suspension).
        let code = unsafe {
            self.info.DoStackSnapshot(
                thread.as_raw(),
                Some(compare),
                sys::COR_PRF_SNAPSHOT_DEFAULT.bits(),
                (&raw mut search).cast(),
                std::ptr::null(),
                0,
            )
        };
        match code {
            _ if search.is_found => OnStacks::Yes,
            code if code.is_ok() => OnStacks::No,
            // The runtime's walker fails if there is no frame to walk.
            E_FAIL if search.frames == 0 => OnStacks::No,
            _ => OnStacks::Unknown,
        }
    }

    /// Resumes all threads; returns the code if that failed.
    pub(crate) fn end(mut self) -> Option<HRESULT> {
        self.resume()
    }

    #[doc = contract!(ResumeRuntime)]
    fn resume(&mut self) -> Option<HRESULT> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        // SAFETY: this thread has suspended the runtime, and does not resume it twice (fact: suspension).
        let code = unsafe { self.info.ResumeRuntime() };
        code.is_err().then_some(code)
    }
}

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.resume();
    }
}
