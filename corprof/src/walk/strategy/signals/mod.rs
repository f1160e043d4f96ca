//! Samples running threads at random times by a signal to each. No thread is stopped.
//!
//! The sampler's thread sleeps for a random time around the interval, finds the threads that are running on a processor at
//! that moment (`threads.rs` knows the threads), and sends each of these a signal (`corprof/src/system/linux/signals/`). A
//! thread records its stack when it receives the signal, at once. The next round reads the records, and looks up the functions at
//! their addresses (`code.rs`), on the sampler's thread, while everything runs.
//!
//! Threads that wait for a processor are not sampled: they would be seen where they lost it, which is no random place. On a web
//! service with eight clients on two processors, `sched_yield` and `send` had 21 % of the samples and, by `perf`, 1 % of the time.
//! A running thread is one whose processor clock advances between two looks. The thread that the sampler displaces is not
//! running then, so the sampler moves to another processor after each round. With one processor, and where clocks are not exact,
//! threads that wait for a processor are sampled too.

mod arm64;
mod code;
mod natives;
mod replaced;
mod shape;
#[cfg(feature = "testing")]
mod single;
mod steps;
mod threads;
mod unwind;

#[cfg(feature = "testing")]
pub use single::{CallerPosition, SignalStack, SignalStep};
pub(crate) use threads::{thread_assigned, thread_ending};

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{E_FAIL, Error, Result, S_OK};
use crate::id::Inert;
use crate::names::Name;
use crate::profiler_thread::ProfilerThread;
use crate::system::signals::{self, RawSample, Sending};
use crate::walk::activity::Owed;
use crate::walk::report::{Report, ThreadCounts};
use crate::walk::round::{NativeNames, Round, SampledThread};
use crate::walk::sample_buffer::{SampleBuffer, SampledFrame};
use crate::walk::sampler::{Filter, Mode, Sampler};
use crate::walk::schedule::Schedule;

use super::{Outcome, Strategy};
use code::{Asking, KnownCode};
use natives::Natives;
use threads::{Threads, Watched};

/// The most frames in a slot: 16 KB of memory for each thread, most of it never touched.
const MOST_FRAMES: usize = 2048;

/// How long a thread that handled a fault is left alone: on a stack overflow it runs on a small stack while it reports that.
const REST: Duration = Duration::from_millis(50);

/// How long the sampler waits for the answer of a running thread. A signal that could not be queued arrives without the slot's
/// number.
const PATIENCE: Duration = Duration::from_secs(1);

/// A thread that has not run for this long is dormant: most threads of a large pool.
const DORMANT: Duration = Duration::from_secs(1);

/// A dormant thread is checked after so much time, and not in more than every fourth round. Reading the clocks of 196 waiting
/// threads in each round was half of the cost of the sampler's thread (`cargo xtask bench --only sampling`). The weight of the
/// first sample afterwards includes all the time that the thread has used by then.
const DORMANT_CHECK: Duration = Duration::from_millis(10);
const LEAST_TURNS: usize = 4;

/// The reasons to stop sending signals.
const REPLACED: &str = "the application has set up a handler for SIGURG of its own";
const FORBIDDEN: &str = "the system does not let the process send signals to its threads (rt_tgsigqueueinfo)";

/// Checks that signals can be sent at all.
pub(super) fn check() -> Result<()> {
    signals::install().map_err(|_| Error::new(E_FAIL, "sigaction").about("Strategy::Signals", REPLACED))
}

/// From now on threads are prepared.
pub(super) fn prepare(sampler: &Sampler) {
    Threads::begin(sampler.depth.min(MOST_FRAMES));
}

/// The running sampler.
struct Sampling<'s> {
    sampler: &'s mut Sampler,
    threads: &'static Threads,
    watched: Vec<Target>,
    buffer: SampleBuffer,
    code: KnownCode,
    natives: RefCell<Natives>,
    report: Report,
    schedule: Schedule,
    /// Counts rounds.
    turn: usize,
    /// A dormant thread is checked in one of so many.
    turns: usize,
    /// Whether the clocks show which threads are running: they are exact, and the sampler has not the only processor.
    sees_running: bool,
}

/// A thread, as of the last round.
struct Target {
    watched: Arc<Watched>,
    /// Its processor time then.
    total: Duration,
    /// Its processor time, minus the weight of its samples.
    owed: Owed,
    /// The weight of its next sample, and the thread's name at the request.
    cpu_time: Duration,
    name: Option<Name>,
    /// The time of the last request.
    asked: Option<Instant>,
    /// When it was last seen to have run.
    ran: Instant,
    /// No requests before this time.
    rests_until: Option<Instant>,
}

impl Target {
    fn new(watched: Arc<Watched>) -> Self {
        let total = watched.run_before;
        Self {
            watched,
            total,
            owed: Owed::default(),
            cpu_time: Duration::ZERO,
            name: None,
            asked: None,
            ran: Instant::now(),
            rests_until: None,
        }
    }

    fn is_dormant(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ran) > DORMANT
    }
}

/// Samples until the thread should end; returns the reason if another strategy must take over before that.
pub(crate) fn run(
    sampler: &mut Sampler,
    cx: &mut ProfilerThread<'_>,
    see: &mut dyn FnMut(&mut Round<'_, '_>),
) -> Result<(), &'static str> {
    let depth = sampler.depth.min(MOST_FRAMES);
    let mut sampling = Sampling {
        threads: Threads::begin(depth),
        watched: Vec::new(),
        buffer: SampleBuffer::new(depth),
        code: KnownCode::default(),
        natives: RefCell::default(),
        report: Report::new(Mode::Cpu, sampler.interval, Strategy::Signals),
        schedule: Schedule::new(sampler.interval, Instant::now()),
        turn: 0,
        turns: turns(sampler.interval),
        sees_running: signals::clocks_are_exact() && signals::change_processor(),
        sampler,
    };
    sampling.run(cx, see)
}

impl Sampling<'_> {
    fn run(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        see: &mut dyn FnMut(&mut Round<'_, '_>),
    ) -> Result<(), &'static str> {
        let start = Instant::now();
        let mut last = start;
        loop {
            let mut is_over = cx.wait(self.schedule.due().saturating_duration_since(Instant::now())).is_break();
            let now = Instant::now();
            let elapsed = now.saturating_duration_since(last);
            self.report.skipped.late += self.schedule.begin(now);
            last = now;
            self.report.elapsed = now.saturating_duration_since(start);
            let threads = self.collect(cx);
            if !threads.is_empty() {
                let natives: Option<&dyn NativeNames> = Some(&self.natives);
                let (buffer, report) = (&self.buffer, &self.report);
                let mut round = Round { cx, threads: &threads, buffer, elapsed, report, natives, is_last: false };
                see(&mut round);
                is_over |= round.is_last;
            }
            if is_over {
                return Ok(());
            }
            self.ask(cx, now)?;
        }
    }

    /// Reads the records that threads have made since the last round, and returns their threads.
    fn collect(&mut self, cx: &mut ProfilerThread<'_>) -> Vec<SampledThread> {
        let joined = self.threads.joined();
        self.watched.extend(joined.into_iter().map(Target::new));
        let filled = self.watched.len();
        self.buffer.prepare(filled);
        self.code.refresh(cx);
        let mut threads = Vec::new();
        let refused = self.threads.refused();
        let mut counts = ThreadCounts { seen: filled + refused, left_out: refused, ..Default::default() };
        let (buffer, code, filter) = (&mut self.buffer, &mut self.code, &mut self.sampler.filter);
        let natives = &self.natives;
        for target in &mut self.watched {
            let (watched, rests_until) = (&target.watched, &mut target.rests_until);
            let sampled = watched.slot.read(|sample| {
                *rests_until = sample.is_elsewhere.then(|| Instant::now() + REST);
                let id = Inert(watched.thread);
                let (os_id, name, cpu_time) = (watched.os_id(), target.name.clone(), target.cpu_time);
                let thread = SampledThread { id, os_id: Some(os_id), name, cpu_time: Some(cpu_time) };
                let is_wanted = wants(filter, &thread);
                if is_wanted {
                    record(buffer, threads.len(), sample, Asking { known: code, natives, cx });
                    threads.push(thread);
                }
                is_wanted
            });
            match sampled {
                Some(true) => {}
                Some(false) => counts.filtered += 1,
                None if watched.has_ended() => counts.ended += 1,
                None => counts.idle += 1,
            }
        }
        // The functions are recorded already, as they were looked up one by one. By now they may be gone.
        let cpu_time = |number: usize| threads.get(number).and_then(|thread| thread.cpu_time);
        self.buffer.weigh(|stack, _| cpu_time(stack.thread).unwrap_or_default());
        self.report.threads = counts;
        self.report.note(&Outcome::default(), &self.buffer);
        let (slots, report) = (self.threads, &mut self.report);
        self.watched.retain(|target| {
            let is_done = target.watched.is_done();
            if is_done {
                slots.give_back(target.watched.slot);
                report.cpu_time += target.watched.run_in_all().saturating_sub(target.total);
                report.unseen += u64::from(target.asked.is_none());
            }
            !is_done
        });
        threads
    }

    /// Sends a signal to the threads that are running.
    fn ask(&mut self, cx: &ProfilerThread<'_>, now: Instant) -> Result<(), &'static str> {
        self.turn = self.turn.wrapping_add(1);
        let mut has_moved = false;
        for (number, target) in self.watched.iter_mut().enumerate() {
            if target.is_dormant(now) && !(number + self.turn).is_multiple_of(self.turns) {
                continue;
            }
            let Some(total) = target.watched.cpu_time() else { continue };
            let moved = total.saturating_sub(target.total);
            target.total = total;
            target.owed = target.owed.add(moved);
            self.report.cpu_time += moved;
            if moved.is_zero() {
                continue;
            }
            (target.ran, has_moved) = (now, true);
            let rests = target.rests_until.is_some_and(|until| now < until);
            let watched = &target.watched;
            let is_running = if self.sees_running { watched.cpu_time() > Some(total) } else { watched.is_runnable() };
            if rests || !is_running {
                continue;
            }
            let name = cx.thread_names().of(target.watched.thread);
            match target.watched.request() {
                Sending::Done => {
                    target.cpu_time = target.owed.take();
                    target.name = name;
                    target.asked = Some(now);
                }
                Sending::NotNow
                    if target.asked.is_some_and(|asked| now.saturating_duration_since(asked) > PATIENCE) =>
                {
                    target.watched.slot.withdraw();
                }
                Sending::NotNow => {}
                Sending::Forbidden => return Err(FORBIDDEN),
                Sending::Replaced => return Err(REPLACED),
            }
        }
        if self.sees_running && has_moved {
            self.sees_running = signals::change_processor();
        }
        Ok(())
    }
}

/// In which of the rounds a dormant thread is checked.
fn turns(interval: Duration) -> usize {
    let rounds = DORMANT_CHECK.as_nanos().div_ceil(interval.as_nanos().max(1));
    usize::try_from(rounds).unwrap_or(usize::MAX).max(LEAST_TURNS)
}

impl NativeNames for RefCell<Natives> {
    fn name(&self, address: usize) -> Option<String> {
        self.borrow_mut().name(address)
    }
}

fn wants(filter: &mut Option<Filter>, thread: &SampledThread) -> bool {
    filter.as_mut().is_none_or(|wants| wants(thread))
}

/// Writes a sample's frames onto the buffer.
fn record(buffer: &mut SampleBuffer, thread: usize, sample: &RawSample, mut codes: Asking<'_, '_>) {
    buffer.record(thread, |writer| {
        unwind::unwind(sample, &mut codes, |function, ip| writer.write(SampledFrame { function, ip }));
        writer.keep();
        if sample.is_cut {
            writer.cut();
        }
        Some(S_OK)
    });
}
