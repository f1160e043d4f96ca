//! One thread at a time: it is stopped at any instruction, walked from there, and resumed.
//!
//! Its innermost frames may be native, and the runtime cannot begin a walk at those. So the unwinder skips them to the
//! first managed frame, whose registers seed the runtime's walk. Native frames between managed ones are found in the
//! same way: the runtime shows the registers of the innermost, and the unwinder follows them to the next managed frame,
//! once that is known.
//!
//! A thread is stopped anywhere, so it may hold any lock. Between the stop and the resumption this file takes no lock,
//! but the system's and the runtime's calls do. Hence the lock check before a thread's native frames are first walked,
//! and the watchdog.

mod watchdog;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{E_FAIL, Error, Result, S_FALSE, S_OK};
use crate::id::{FunctionId, ThreadId};
use crate::info::Info;
use crate::session::liveness::Pinned;
use crate::suspension::Mark;
use crate::system::lock_check::{self, LockCheck};
use crate::system::thread::{self, Registers, Thread};
use crate::system::unwind::{self, Seed, UnwindError};
use crate::walk::stack_writer::{SampledFrame, StackWriter};

use watchdog::{Watchdog, WatchedStop};

const CALL: &str = "DoStackSnapshot";

/// The most native frames in a row that are skipped.
const MAX_NATIVE_FRAMES: usize = 512;

/// How many times a thread is stopped for one walk if the moments are unsafe, and how long it runs in between.
const MAX_STOPS: u32 = 3;
const BETWEEN_STOPS: Duration = Duration::from_micros(50);

/// How long a thread that is not walked stays open.
const CLOSED_AFTER: Duration = Duration::from_secs(10);

/// Stops single threads, and walks them.
pub(crate) struct Seeder<'i> {
    runtime: Runtime<'i>,
    lock_check: Option<LockCheck>,
    watchdog: Watchdog,
    /// The threads that were walked a short time ago, by their ids in the runtime and in the system.
    open_threads: HashMap<(usize, u32), OpenThread>,
    /// When the others were last closed.
    last_closed: Instant,
    _profiler_thread: PhantomData<*mut ()>,
}

/// A thread that is kept open, as opening it again for each walk would cost more than the walk.
struct OpenThread {
    thread: Thread,
    /// Whether its native frames still have to be walked while the necessary locks are free.
    needs_lock_check: bool,
    last_used: Instant,
}

/// The calls that are made while a thread is stopped.
#[derive(Clone, Copy)]
struct Runtime<'i> {
    info: &'i Info,
    raw: &'i sys::ICorProfilerInfo2,
    waiting: WaitingThreads,
}

/// What happens to a thread that was stopped in a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitingThreads {
    AreWalked,
    /// Their stack is of no interest: the walk has no frames.
    AreLeftOut,
}

/// The walk of one thread, which may have been stopped several times for it.
pub(crate) struct SeededWalk {
    pub(crate) result: WalkResult,
    /// How long the thread stood still in all.
    pub(crate) stood: Duration,
    /// How many times it was stopped again, as a moment was unsafe.
    pub(crate) retries: u32,
}

/// The result of a walk.
pub(crate) enum WalkResult {
    /// The walk's result code: the stack is written.
    Done(HRESULT),
    /// The thread has reached its end.
    Ended,
    /// The thread was not stopped: the locks that a walk needs were not free, or code was being removed.
    NotNow,
    /// The thread holds a lock that the walk needs.
    Stuck,
}

/// Checks that single threads can be walked at all.
///
/// # Errors
/// If the runtime is older than the call.
pub(crate) fn check(info: &Info) -> Result<()> {
    info.as_version::<sys::ICorProfilerInfo2>(CALL).map(drop)
}

impl<'i> Seeder<'i> {
    /// A seeder for the calling thread.
    ///
    /// # Errors
    /// If the runtime is older than the call, or the system cannot make the watchdog's thread.
    ///
    /// # Safety
    /// The calling thread is one that corprof has made, and that never runs managed code (suspension rule 1). It does
    /// not use this after the closure of a profiler thread has ended.
    pub(crate) unsafe fn new(waiting: WaitingThreads, info: &'i Info) -> Result<Self> {
        // SAFETY: the caller's promise.
        let raw = unsafe { info.runtime().as_version_for_long(CALL)? };
        unwind::prepare();
        thread::prepare();
        let no_thread = |_| {
            let rule =
                "the system could not make a thread for the watchdog, which is required for stopping single threads";
            Error::new(E_FAIL, CALL).about("Strategy::Seeded", rule)
        };
        Ok(Self {
            runtime: Runtime { info, raw, waiting },
            lock_check: None,
            watchdog: Watchdog::new().map_err(no_thread)?,
            open_threads: HashMap::new(),
            last_closed: Instant::now(),
            _profiler_thread: PhantomData,
        })
    }

    /// Whether walks are possible: each searches for the code of its frames, on a thread that the runtime does not
    /// know.
    pub(crate) fn can_search(&self) -> bool {
        self.runtime.info.runtime().searches().are_safe_everywhere()
    }

    /// Writes the stack of a thread, which this operating-system thread carries. Without a result code, nothing is
    /// written.
    ///
    /// The thread is pinned from before the stop to after it. A thread whose end waits for the pin holds no lock that
    /// is needed here, as the runtime is not suspended.
    pub(crate) fn walk(
        &mut self,
        pinned: &Pinned<'_, ThreadId>,
        os_id: u32,
        writer: &mut StackWriter<'_>,
    ) -> SeededWalk {
        let without_stop = |result| SeededWalk { result, stood: Duration::ZERO, retries: 0 };
        let key = (pinned.as_raw(), os_id);
        let Some(mut open) = self.open(key) else { return without_stop(WalkResult::Ended) };
        if !self.prepare(&open) {
            // On a machine as full as this there will be another round. The lock check answers when it has the locks.
            self.lock_check = None;
            return without_stop(WalkResult::NotNow);
        }
        // Nor is code removed meanwhile.
        let Ok(_search) = self.runtime.info.runtime().searches().begin(CALL) else {
            self.open_threads.insert(key, open);
            return without_stop(WalkResult::NotNow);
        };
        let walk = self.stop_until_safe(pinned, &mut open, writer);
        match walk.result {
            WalkResult::Done(_) => {
                open.last_used = Instant::now();
                self.open_threads.insert(key, open);
            }
            // The lock check's thread ends by itself.
            WalkResult::Stuck => self.lock_check = None,
            WalkResult::Ended | WalkResult::NotNow => {}
        }
        walk
    }

    /// Walks a thread, and stops it again if the moment was unsafe.
    fn stop_until_safe(
        &mut self,
        pinned: &Pinned<'_, ThreadId>,
        open: &mut OpenThread,
        writer: &mut StackWriter<'_>,
    ) -> SeededWalk {
        let mut stood = Duration::ZERO;
        let mut retries = 0;
        loop {
            writer.restart();
            let is_last = retries + 1 == MAX_STOPS;
            let (result, stood_now) = self.walk_once(pinned, open, writer, is_last);
            stood += stood_now;
            match result {
                WalkResult::Done(code) if !is_last && is_unsafe_moment(code) => retries += 1,
                WalkResult::Done(_) => return SeededWalk { result, stood, retries },
                WalkResult::Ended | WalkResult::NotNow | WalkResult::Stuck => {
                    writer.restart();
                    return SeededWalk { result, stood, retries };
                }
            }
            std::thread::sleep(BETWEEN_STOPS);
        }
    }

    /// The thread, which stays open until the walk gives it back; none if it has ended. Allocates.
    fn open(&mut self, key: (usize, u32)) -> Option<OpenThread> {
        let now = Instant::now();
        if now.saturating_duration_since(self.last_closed) >= CLOSED_AFTER {
            self.open_threads.retain(|_, open| now.saturating_duration_since(open.last_used) < CLOSED_AFTER);
            self.last_closed = now;
        }
        let new = || Some(OpenThread { thread: Thread::open(key.1)?, needs_lock_check: true, last_used: now });
        self.open_threads.remove(&key).or_else(new)
    }

    /// Stops a thread, writes its stack, and resumes it. It needs no lock check once the locks were free. Returns also
    /// how long the thread stood still: a thread that waits for a processor stops late, and loses nothing by that.
    fn walk_once(
        &mut self,
        pinned: &Pinned<'_, ThreadId>,
        open: &mut OpenThread,
        writer: &mut StackWriter<'_>,
        is_last: bool,
    ) -> (WalkResult, Duration) {
        let OpenThread { thread, needs_lock_check, .. } = open;
        let _mark = Mark::set();
        let Some(stop) = self.watchdog.stop(thread) else { return (WalkResult::Ended, Duration::ZERO) };
        let mut stopped = None;
        let result = self.runtime.walk_stopped(&stop, pinned, thread, writer, is_last, |ip| {
            stopped = Some(Instant::now());
            if *needs_lock_check && self.runtime.function_at(ip).0.is_none() {
                *needs_lock_check =
                    !self.lock_check.as_ref().is_some_and(|lock_check| lock_check.can_walk(lock_check::LIMIT));
                !*needs_lock_check
            } else {
                true
            }
        });
        let is_stuck = stop.is_abandoned();
        drop(stop);
        let stood = stopped.map(|stopped: Instant| stopped.elapsed()).unwrap_or_default();
        (if is_stuck { WalkResult::Stuck } else { result }, stood)
    }

    /// Makes a lock check, which allocates, if one is needed; returns whether its thread gets the locks while no thread
    /// is stopped.
    fn prepare(&mut self, open: &OpenThread) -> bool {
        if !open.needs_lock_check {
            return true;
        }
        if self.lock_check.is_none() {
            let info = self.runtime.info.clone();
            let waiting = self.runtime.waiting;
            let also = move || {
                // As in `walk`.
                let Ok(_search) = info.runtime().searches().begin(CALL) else { return };
                if let Ok(raw) = info.as_version(CALL) {
                    Runtime { info: &info, raw: &raw, waiting }.function_at(check as *const () as usize);
                }
            };
            self.lock_check = LockCheck::new(also).ok();
        }
        self.lock_check.as_ref().is_some_and(|lock_check| lock_check.can_walk(lock_check::PATIENCE))
    }
}

impl Runtime<'_> {
    /// The function at an instruction pointer, if that is in managed code, and whether the runtime could answer.
    fn function_at(&self, ip: usize) -> (Option<FunctionId>, bool) {
        let mut function = 0;
        // SAFETY: the runtime looks the address up, accepts any, and writes one number. The caller has begun a search,
        // so no code is removed meanwhile (fact: searches, outputs).
        let code = unsafe { self.raw.GetFunctionFromIP(ip as *const u8, &mut function) };
        let is_known = code != sys::CORPROF_E_ASYNCHRONOUS_UNSAFE;
        (FunctionId::from_raw(function).filter(|_| code.is_ok()), is_known)
    }

    /// Whether the runtime's thread still has an operating-system thread, and it is this one. The runtime ends the
    /// process when it is asked for the stack of a thread without one.
    fn is_carried_by(&self, pinned: &Pinned<'_, ThreadId>, thread: &Thread) -> bool {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the thread is pinned; the call writes one handle, which the runtime still owns (fact: pinned,
        // outputs).
        let code = unsafe { self.raw.GetHandleFromThread(pinned.as_raw(), &mut handle) };
        code.is_ok() && thread.is_that_of(handle)
    }

    /// Writes the stack of a stopped thread. `may_unwind` is asked with its instruction pointer before anything is
    /// unwound.
    fn walk_stopped(
        &self,
        stop: &WatchedStop<'_>,
        pinned: &Pinned<'_, ThreadId>,
        thread: &Thread,
        writer: &mut StackWriter<'_>,
        is_last: bool,
        may_unwind: impl FnOnce(usize) -> bool,
    ) -> WalkResult {
        let Some(stopped) = stop.stopped() else { return WalkResult::Stuck };
        // The stop is certain only once the registers have been read.
        let Some((registers, stack)) = stopped.registers().zip(stopped.stack()) else { return WalkResult::Ended };
        if !may_unwind(registers.ip()) {
            return WalkResult::Stuck;
        }
        if !self.is_carried_by(pinned, thread) {
            return WalkResult::Ended;
        }
        if registers.is_in_system_call() {
            writer.mark_waiting();
            if self.waiting == WaitingThreads::AreLeftOut {
                return WalkResult::Done(S_OK);
            }
        }
        let seeded_writer = SeededWriter { writer, stop, stack, hole: None, is_leaf_native: false, has_managed: false };
        WalkResult::Done(self.snapshot(pinned, registers, seeded_writer, is_last))
    }

    /// Finds the seed, and makes the runtime walk from there.
    fn snapshot(
        &self,
        pinned: &Pinned<'_, ThreadId>,
        registers: Registers,
        mut seeded_writer: SeededWriter<'_, '_>,
        is_last: bool,
    ) -> HRESULT {
        let stack = seeded_writer.stack.clone();
        let are_all_known = Cell::new(true);
        let is_managed = |ip| {
            let (function, is_known) = self.function_at(ip);
            are_all_known.set(are_all_known.get() && is_known);
            function.is_some()
        };
        let seed = unwind::seed(registers, &stack, MAX_NATIVE_FRAMES, is_managed, |ip, _| {
            seeded_writer.is_leaf_native = true;
            if are_all_known.get() { seeded_writer.write(None, ip) } else { ControlFlow::Break(()) }
        });
        if !are_all_known.get() {
            return sys::CORPROF_E_ASYNCHRONOUS_UNSAFE;
        }
        let seed = match seed {
            Ok(seed) => Some(seed),
            Err(UnwindError::Busy) => return sys::CORPROF_E_STACKSNAPSHOT_UNSAFE,
            // The thread has no managed frame, or no more frames are wanted.
            Err(UnwindError::End | UnwindError::Stopped) => return E_FAIL,
            // The tables lead to no managed frame. If the thread waits in native code, the runtime itself knows where
            // to begin.
            Err(UnwindError::Stack | UnwindError::Fault | UnwindError::TooDeep) => {
                seeded_writer.writer.restart();
                seeded_writer.is_leaf_native = false;
                None
            }
        };
        let (context, size) = seed.as_ref().map_or((std::ptr::null(), 0), Seed::as_bytes);
        let flags = sys::COR_PRF_SNAPSHOT_REGISTER_CONTEXT.bits();
        let stop = seeded_writer.stop;
        let code = stop.in_runtime(|| {
            let data: *mut SeededWriter<'_, '_> = &mut seeded_writer;
            // SAFETY: the thread is pinned and stopped; the instruction pointer in its seed is in managed code, and the
            // stack pointer within its stack; the seeded_writer has no other user during the call (test: live
            // seeded::native_frames_between_managed_ones_are_shown_one_by_one).
            unsafe {
                let on_frame = Some(SeededWriter::on_frame as _);
                self.raw.DoStackSnapshot(pinned.as_raw(), on_frame, flags, data.cast(), context.cast_mut(), size)
            }
        });
        if code.is_ok() {
            let _ = seeded_writer.fill(usize::MAX);
        }
        let is_for_unwinder = code == sys::CORPROF_E_STACKSNAPSHOT_UNSAFE && is_last && !seeded_writer.has_managed;
        if let Some(seed) = seed.filter(|_| is_for_unwinder) {
            self.unwind(&seed, &mut seeded_writer);
        }
        code
    }

    /// Writes the stack from the seed on by the unwinder alone.
    ///
    /// The runtime refuses to walk a thread in managed code if it cannot tell whether the registers are complete: on
    /// .NET 8 unless the system confirms it, which Wine 8 does not.
    fn unwind(&self, seed: &Seed, seeded_writer: &mut SeededWriter<'_, '_>) {
        let mut registers = *seed.registers();
        let mut is_innermost = !seeded_writer.is_leaf_native;
        loop {
            // A return address may lie behind the end of its function.
            let place = registers.ip().saturating_sub(usize::from(!is_innermost));
            is_innermost = false;
            if seeded_writer.write(self.function_at(place).0, registers.ip()).is_break() {
                return;
            }
            match unwind::step(&mut registers, &seeded_writer.stack) {
                Ok(()) => {}
                Err(UnwindError::End) => return seeded_writer.writer.mark_unwound(),
                Err(_) => return,
            }
        }
    }
}

/// Writes the frames that the runtime shows, and fills the gaps between them.
struct SeededWriter<'s, 't> {
    writer: &'s mut StackWriter<'t>,
    stop: &'s WatchedStop<'s>,
    stack: Range<usize>,
    /// The innermost of a run of native frames whose end is not known yet.
    hole: Option<Registers>,
    /// Whether native frames were skipped on the way to the seed.
    is_leaf_native: bool,
    has_managed: bool,
}

impl SeededWriter<'_, '_> {
    /// Writes a frame, unless there is no room or the thread runs again.
    fn write(&mut self, function: Option<FunctionId>, ip: usize) -> ControlFlow<()> {
        let goes_on = !self.stop.is_abandoned() && self.writer.write(SampledFrame { function, ip });
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Writes the native frames up to the managed one with the stack pointer `end`.
    fn fill(&mut self, end: usize) -> ControlFlow<()> {
        let Some(mut registers) = self.hole.take() else { return ControlFlow::Continue(()) };
        for _ in 0..MAX_NATIVE_FRAMES {
            self.write(None, registers.ip())?;
            if unwind::step(&mut registers, &self.stack).is_err() || registers.sp() >= end {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    fn frame(&mut self, function: Option<FunctionId>, ip: usize, registers: Option<Registers>) -> ControlFlow<()> {
        match (function, registers) {
            (None, _) if self.is_leaf_native && !self.has_managed => ControlFlow::Continue(()), // written already
            (None, Some(registers)) => {
                self.fill(registers.sp())?;
                self.hole = Some(registers);
                ControlFlow::Continue(())
            }
            (None, None) => self.write(None, ip),
            (Some(function), registers) => {
                self.has_managed = true;
                self.fill(registers.map_or(0, |registers| registers.sp()))?;
                self.write(Some(function), ip)
            }
        }
    }

    /// The callback for `DoStackSnapshot`.
    ///
    /// # Safety
    /// `seeded_writer` points at a [`SeededWriter`] that has no other user during the call; the context, if there is
    /// one, has that many bytes.
    unsafe extern "system" fn on_frame(
        function: sys::FunctionID,
        ip: usize,
        _info: sys::COR_PRF_FRAME_INFO,
        context_size: u32,
        context: *mut u8,
        seeded_writer: *mut c_void,
    ) -> HRESULT {
        // SAFETY: the caller's promises.
        let (seeded_writer, registers) = unsafe {
            (&mut *seeded_writer.cast::<SeededWriter<'_, '_>>(), Registers::of_context(context, context_size))
        };
        let goes_on = seeded_writer.frame(FunctionId::from_raw(function), ip, registers);
        if goes_on.is_continue() { S_OK } else { S_FALSE }
    }
}

/// Whether the result may be different a moment later.
fn is_unsafe_moment(code: HRESULT) -> bool {
    matches!(
        code,
        sys::CORPROF_E_STACKSNAPSHOT_UNSAFE
            | sys::CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX
            | sys::CORPROF_E_ASYNCHRONOUS_UNSAFE
    )
}
