//! One thread at a time: it is stopped at any instruction, walked from there, and resumed.
//!
//! Its innermost frames may be native, and the runtime cannot begin a walk at those. So the unwinder skips them to the first
//! managed frame, whose registers seed the runtime's walk. Native frames between managed ones are found in the same way: the
//! runtime shows the registers of the innermost, and the unwinder follows them to the next managed frame, once that is known.
//!
//! A thread is stopped anywhere, so it may hold any lock. Between the stop and the resumption this file takes no lock, but the
//! system's and the runtime's calls do. Hence the probe before a thread's native frames are first walked, and the watchdog.

mod crew;
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
use crate::profiler_thread::ProfilerThread;
use crate::session::liveness::Pinned;
use crate::suspension::Mark;
use crate::system::probe::{self, Probe};
use crate::system::thread::{self, Registers, Thread};
use crate::system::unwind::{self, Seed, UnwindError};
use crate::walk::sample_buffer::{SampleBuffer, SampledFrame, StackWriter};
use crate::walk::sampler::{Mode, Sampler};

use super::{Outcome, Running, Target, Walker};
use crew::Crew;
use watchdog::{Tally, Watchdog, Watched};

const CALL: &str = "DoStackSnapshot";

/// The most native frames in a row that are skipped.
const MOST_NATIVE: usize = 512;

/// How many times a thread is stopped in one round if the moments are unsafe, and how long it runs in between.
const TRIES: u32 = 3;
const BETWEEN: Duration = Duration::from_micros(50);

/// How long a thread that is not walked stays open.
const UNUSED: Duration = Duration::from_secs(10);

/// Stops single threads.
struct Seeder<'i> {
    runtime: Runtime<'i>,
    probe: Option<Probe>,
    watchdog: Watchdog,
    tally: Tally,
    /// The threads that were walked a short time ago.
    open: HashMap<(ThreadId, u32), Open>,
    /// When the others were last closed.
    closed: Instant,
    _profiler_thread: PhantomData<*mut ()>,
}

/// A thread that is kept open, as opening it again for each walk would cost more than the walk.
struct Open {
    thread: Thread,
    /// Whether its native frames still have to be walked while the necessary locks are free.
    needs_probe: bool,
    used: Instant,
}

/// The calls that are made while a thread is stopped.
#[derive(Clone, Copy)]
struct Runtime<'i> {
    info: &'i Info,
    raw: &'i sys::ICorProfilerInfo2,
    mode: Mode,
}

/// The result of one stop.
enum Walked {
    /// The walk's result code.
    Answer(HRESULT),
    /// The thread has reached its end.
    Ended,
    /// The thread holds a lock that the walk needs.
    Stuck,
}

/// Checks that single threads can be walked at all.
pub(super) fn check(info: &Info) -> Result<()> {
    info.as_version::<sys::ICorProfilerInfo2>(CALL).map(drop)
}

/// Starts the strategy: by the wall clock every thread is walked in every round, and else one.
pub(super) fn begin<'i>(sampler: &Sampler, cx: &ProfilerThread<'i>) -> Result<Running<'i>> {
    match sampler.mode {
        // SAFETY: the borrow of the thread's context keeps it from outliving the thread's closure.
        Mode::Wall => Ok(Running::All(Box::new(unsafe { Seeder::new(Mode::Wall, cx.info()) }?))),
        Mode::Cpu => Ok(Running::One(Box::new(Crew::new(sampler.depth, cx)))),
    }
}

impl<'i> Seeder<'i> {
    /// A seeder for the calling thread.
    ///
    /// # Safety
    /// The calling thread is one that corprof has made, and that never runs managed code (suspension rule 1). It does not use
    /// this after the closure of a profiler thread has ended.
    unsafe fn new(mode: Mode, info: &'i Info) -> Result<Self> {
        // SAFETY: the caller's promise.
        let raw = unsafe { info.runtime().as_version_for_long(CALL)? };
        let runtime = Runtime { info, raw, mode };
        unwind::prepare();
        thread::prepare();
        let no_thread = |_| {
            let rule =
                "the system could not make a thread for the watchdog, which is required for stopping single threads";
            Error::new(E_FAIL, CALL).about("Strategy::Seeded", rule)
        };
        let watchdog = Watchdog::new().map_err(no_thread)?;
        let (tally, open, closed) = (Tally::default(), HashMap::new(), Instant::now());
        Ok(Self { runtime, probe: None, watchdog, tally, open, closed, _profiler_thread: PhantomData })
    }

    /// The thread, which stays open until the walk gives it back; none if it has ended. Allocates.
    fn open(&mut self, key: (ThreadId, u32)) -> Option<Open> {
        let now = Instant::now();
        if now.saturating_duration_since(self.closed) >= UNUSED {
            self.open.retain(|_, open| now.saturating_duration_since(open.used) < UNUSED);
            self.closed = now;
        }
        let new = || Some(Open { thread: Thread::open(key.1)?, needs_probe: true, used: now });
        self.open.remove(&key).or_else(new)
    }

    /// Stops a thread, writes its stack, and resumes it. It needs no probe once the locks were free. Returns also how long the
    /// thread stood still: a thread that waits for a processor stops late, and loses nothing by that.
    fn walk_once(
        &mut self,
        held: &Pinned<'_, ThreadId>,
        open: &mut Open,
        writer: &mut StackWriter<'_>,
        is_last: bool,
    ) -> (Walked, Duration) {
        let Open { thread, needs_probe, .. } = open;
        let _mark = Mark::set();
        let Some(watched) = self.watchdog.stop(thread) else { return (Walked::Ended, Duration::ZERO) };
        let mut stopped = None;
        let walked = self.runtime.look(&watched, held, thread, writer, is_last, |ip| {
            stopped = Some(Instant::now());
            if *needs_probe && self.runtime.function_at(ip).0.is_none() {
                *needs_probe = !self.probe.as_ref().is_some_and(|probe| probe.can_walk(probe::LIMIT));
                !*needs_probe
            } else {
                true
            }
        });
        let is_stuck = watched.is_abandoned();
        drop(watched);
        let stood = stopped.map(|stopped| stopped.elapsed()).unwrap_or_default();
        (if is_stuck { Walked::Stuck } else { walked }, stood)
    }

    /// Makes a probe, which allocates, if one is needed; returns whether its thread gets the locks while no thread is stopped.
    fn prepare(&mut self, open: &Open) -> bool {
        if !open.needs_probe {
            return true;
        }
        if self.probe.is_none() {
            let (info, mode) = (self.runtime.info.clone(), self.runtime.mode);
            let also = move || {
                // As in `walk`.
                let Ok(_search) = info.runtime().searches().begin(CALL) else { return };
                if let Ok(raw) = info.as_version(CALL) {
                    Runtime { info: &info, raw: &raw, mode }.function_at(check as *const () as usize);
                }
            };
            self.probe = Probe::new(also).ok();
        }
        self.probe.as_ref().is_some_and(|probe| probe.can_walk(probe::PATIENCE))
    }
}

impl Runtime<'_> {
    /// The function at an instruction pointer, if that is in managed code, and whether the runtime could tell.
    fn function_at(&self, ip: usize) -> (Option<FunctionId>, bool) {
        let mut function = 0;
        // SAFETY: the runtime looks the address up, accepts any, and writes one number. The caller has begun a search, so no
        // code is removed meanwhile (fact: searches, outputs).
        let code = unsafe { self.raw.GetFunctionFromIP(ip as *const u8, &mut function) };
        let is_known = code != sys::CORPROF_E_ASYNCHRONOUS_UNSAFE;
        (FunctionId::from_raw(function).filter(|_| code.is_ok()), is_known)
    }

    /// Whether the runtime's thread still has an operating-system thread, and it is this one. The runtime ends the process when
    /// it is asked for the stack of a thread without one.
    fn is_carried_by(&self, held: &Pinned<'_, ThreadId>, thread: &Thread) -> bool {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the thread is pinned; the call writes one handle, which the runtime still owns (fact: pinned, outputs).
        let code = unsafe { self.raw.GetHandleFromThread(held.as_raw(), &mut handle) };
        code.is_ok() && thread.is_that_of(handle)
    }

    /// Writes the stack of a stopped thread. `may` is asked with its instruction pointer before anything is unwound.
    fn look(
        &self,
        watched: &Watched<'_>,
        held: &Pinned<'_, ThreadId>,
        thread: &Thread,
        writer: &mut StackWriter<'_>,
        is_last: bool,
        may: impl FnOnce(usize) -> bool,
    ) -> Walked {
        let Some(stopped) = watched.stopped() else { return Walked::Stuck };
        // The stop is certain only once the registers have been read.
        let Some((registers, stack)) = stopped.registers().zip(stopped.stack()) else { return Walked::Ended };
        if !may(registers.ip()) {
            return Walked::Stuck;
        }
        if !self.is_carried_by(held, thread) {
            return Walked::Ended;
        }
        if registers.is_in_system_call() {
            writer.is_waiting();
            if self.mode == Mode::Cpu {
                return Walked::Answer(S_OK); // its stack is of no interest
            }
        }
        let seeded_writer =
            SeededWriter { writer, watched, stack, hole: None, is_leaf_native: false, has_managed: false };
        Walked::Answer(self.snapshot(held, registers, seeded_writer, is_last))
    }

    /// Finds the seed, and makes the runtime walk from there.
    fn snapshot(
        &self,
        held: &Pinned<'_, ThreadId>,
        registers: Registers,
        mut seeded_writer: SeededWriter<'_, '_>,
        is_last: bool,
    ) -> HRESULT {
        let stack = seeded_writer.stack.clone();
        let can_be_told = Cell::new(true);
        let is_managed = |ip| {
            let (function, is_known) = self.function_at(ip);
            can_be_told.set(can_be_told.get() && is_known);
            function.is_some()
        };
        let seed = unwind::seed(registers, &stack, MOST_NATIVE, is_managed, |ip, _| {
            seeded_writer.is_leaf_native = true;
            if can_be_told.get() { seeded_writer.write(None, ip) } else { ControlFlow::Break(()) }
        });
        if !can_be_told.get() {
            return sys::CORPROF_E_ASYNCHRONOUS_UNSAFE;
        }
        let seed = match seed {
            Ok(seed) => Some(seed),
            Err(UnwindError::Busy) => return sys::CORPROF_E_STACKSNAPSHOT_UNSAFE,
            // The thread has no managed frame, or no more frames are wanted.
            Err(UnwindError::End | UnwindError::Stopped) => return E_FAIL,
            // The tables lead to no managed frame. If the thread waits in native code, the runtime itself knows where to begin.
            Err(UnwindError::Stack | UnwindError::Fault | UnwindError::TooDeep) => {
                seeded_writer.writer.restart();
                seeded_writer.is_leaf_native = false;
                None
            }
        };
        let (context, size) = seed.as_ref().map_or((std::ptr::null(), 0), Seed::as_bytes);
        let flags = sys::COR_PRF_SNAPSHOT_REGISTER_CONTEXT.bits();
        let watched = seeded_writer.watched;
        let code = watched.in_runtime(|| {
            let data: *mut SeededWriter<'_, '_> = &mut seeded_writer;
            // SAFETY: the thread is pinned and stopped; the instruction pointer in its seed is in managed code, and the stack
            // pointer within its stack; the seeded_writer has no other user during the call
            // (test: live seeded::native_frames_between_managed_ones_are_shown_one_by_one).
            unsafe {
                let on_frame = Some(SeededWriter::on_frame as _);
                self.raw.DoStackSnapshot(held.as_raw(), on_frame, flags, data.cast(), context.cast_mut(), size)
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
    /// The runtime refuses to walk a thread in managed code if it cannot tell whether the registers are complete: on .NET 8
    /// unless the system confirms it, which Wine 8 does not.
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
                Err(UnwindError::End) => return seeded_writer.writer.is_unwound(),
                Err(_) => return,
            }
        }
    }
}

/// Writes the frames that the runtime shows, and fills the gaps between them.
struct SeededWriter<'s, 't> {
    writer: &'s mut StackWriter<'t>,
    watched: &'s Watched<'s>,
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
        let goes_on = !self.watched.is_abandoned() && self.writer.write(SampledFrame { function, ip });
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Writes the native frames up to the managed one with the stack pointer `end`.
    fn fill(&mut self, end: usize) -> ControlFlow<()> {
        let Some(mut registers) = self.hole.take() else { return ControlFlow::Continue(()) };
        for _ in 0..MOST_NATIVE {
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
    /// `seeded_writer` points at a [`SeededWriter`] that has no other user during the call; the context, if there is one, has
    /// that many bytes.
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

impl Walker for Seeder<'_> {
    fn walk(&mut self, targets: &[Target<'_>], buffer: &mut SampleBuffer, limit: Duration) -> Outcome {
        // A walk searches for the code of each frame, on a thread that the runtime does not know.
        let gives_up = !self.runtime.info.runtime().searches().are_safe_everywhere();
        let mut outcome = Outcome { gives_up, ..Outcome::default() };
        for (number, target) in targets.iter().enumerate() {
            if outcome.stood >= limit || outcome.gives_up {
                outcome.left_out = targets.len() - number;
                break;
            }
            // Pinned from before the stop to after it. A thread whose end waits for the pin holds no lock that is needed here,
            // as the runtime is not suspended.
            let held = target.claim.pin();
            let key = target.os_id.map(|os_id| (target.thread, os_id));
            let open = key.and_then(|key| self.open(key));
            let Some(((held, mut open), key)) = held.zip(open).zip(key) else {
                outcome.ended += 1;
                continue;
            };
            if !self.prepare(&open) {
                // On a machine as full as this there will be another round. The probe answers when it has the locks.
                self.probe = None;
                outcome.left_out += 1;
                continue;
            }
            // Nor is code removed meanwhile.
            let Ok(_search) = self.runtime.info.runtime().searches().begin(CALL) else {
                self.open.insert(key, open);
                outcome.left_out += 1;
                continue;
            };
            let mut walked = Walked::Ended;
            let mut write = |writer: &mut StackWriter<'_>| {
                for turn in 1..=TRIES {
                    writer.restart();
                    let stood;
                    (walked, stood) = self.walk_once(&held, &mut open, writer, turn == TRIES);
                    outcome.stood += stood;
                    match walked {
                        Walked::Answer(code) if turn < TRIES && is_unsafe_moment(code) => outcome.retries += 1,
                        Walked::Answer(code) => return Some(code),
                        Walked::Ended | Walked::Stuck => break,
                    }
                    std::thread::sleep(BETWEEN);
                }
                writer.restart();
                None
            };
            buffer.record(number, &mut write);
            match walked {
                Walked::Ended => outcome.ended += 1,
                Walked::Stuck => {
                    outcome.abandoned += 1;
                    outcome.gives_up = self.tally.add(held.as_raw(), Instant::now());
                    // The probe's thread ends by itself.
                    self.probe = None;
                }
                Walked::Answer(_) => {
                    open.used = Instant::now();
                    self.open.insert(key, open);
                }
            }
        }
        outcome
    }
}
