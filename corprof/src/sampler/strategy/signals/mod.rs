//! Samples running threads at random times by a signal to each. No thread is stopped.
//!
//! In each round the strategy finds the threads that are running on a processor at that moment (`threads.rs` knows the
//! threads), and sends each of these a signal (`corprof/src/system/linux/signals/`). A thread records its stack when it
//! receives the signal, at once. The next round reads the records and walks them (`corprof/src/walk/recorded/`), on the
//! sampler's thread, while everything runs.
//!
//! Threads that wait for a processor are not sampled: they would be seen where they lost it, which is not a random
//! place, but often a system call (`book/src/how-a-profile-lies.md` has figures). A running thread is one whose
//! processor clock advances between two looks. The thread that the sampler displaces is not running then, so the
//! sampler moves to another processor after each round, unless there are idle ones: it would displace a thread that it
//! need not. With one processor, and where clocks are not exact, threads that wait for a processor are sampled too.

mod leaving;
mod older_threads;
mod threads;

pub(crate) use leaving::leave;
pub(crate) use threads::{thread_assigned, thread_ending};

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{E_FAIL, Error, Result, S_OK};
use crate::id::Inert;
use crate::names::Name;
use crate::profiler_thread::ProfilerThread;
use crate::report::line;
use crate::sampler::options::{Filter, Sampler};
use crate::sampler::recording::Recording;
use crate::sampler::report::{Report, ThreadCounts};
use crate::sampler::round::{NativeFunctions, SampledThread};
use crate::sampler::sample_buffer::SampleBuffer;
use crate::sampler::unsampled::UnsampledTime;
use crate::system::signals::{self, IdleTime, RawSample, Sending};
use crate::walk::native_function::NativeFunction;
use crate::walk::recorded::{CodeLookUp, KnownCode, Natives};
use crate::walk::stack_writer::SampledFrame;

use super::{Outcome, RoundTime, RunningStrategy, SampledRound, Strategy};
use older_threads::OlderThreads;
use threads::{PreparedThread, PreparedThreads};

/// How long a thread that handled a fault is left alone: on a stack overflow it runs on a small stack while it reports
/// that.
const PAUSE_AFTER_FAULT: Duration = Duration::from_millis(50);

/// How long the sampler waits for the answer of a running thread. A signal that could not be queued arrives without the
/// slot's number.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A thread that has not run for this long is dormant: most threads of a large pool.
const DORMANT_AFTER: Duration = Duration::from_secs(1);

/// A dormant thread is checked after so much time, and not in more than every fourth round. Reading the clocks of 196
/// waiting threads in each round was half of the cost of the sampler's thread (`cargo xtask bench --only sampling`).
/// The weight of the first sample afterwards includes all the time that the thread has used by then.
const DORMANT_CHECK: Duration = Duration::from_millis(10);
const LEAST_DORMANT_ROUNDS: usize = 4;

/// The time between two looks whether a thread blocks the signal that has not done so. Others may do so for a moment.
const MASK_CHECK: Duration = Duration::from_secs(1);

/// The reasons to stop sending signals.
const REPLACED: &str = "the application has set up a handler for SIGURG of its own";
const BLOCKED: &str = "the process was started with SIGURG blocked";
const FORBIDDEN: &str = "the system does not let the process send signals to its threads (rt_tgsigqueueinfo)";

/// Checks that signals can be sent at all.
pub(super) fn check() -> Result<()> {
    if !signals::are_allowed() {
        return Err(Error::new(E_FAIL, "rt_tgsigqueueinfo").about("Strategy::Signals", FORBIDDEN));
    }
    if signals::are_blocked() {
        return Err(Error::new(E_FAIL, "pthread_sigmask").about("Strategy::Signals", BLOCKED));
    }
    signals::install().map_err(|_| Error::new(E_FAIL, "sigaction").about("Strategy::Signals", REPLACED))
}

/// From now on threads are prepared.
pub(super) fn prepare(sampler: &Sampler) {
    begin(sampler);
}

fn begin(sampler: &Sampler) -> &'static PreparedThreads {
    PreparedThreads::begin(Strategy::Signals.frame_limit(sampler.depth))
}

/// Starts the strategy.
pub(super) fn start(sampler: &Sampler) -> Box<dyn RunningStrategy> {
    // Otherwise the sampler waits for a thread to pause, and sees too much of what follows pauses.
    signals::shorten_slice();
    let prepared = begin(sampler);
    let threads = prepared.take_new().into_iter().map(SignalledThread::from_now_on).collect();
    Box::new(Signals {
        prepared,
        older: OlderThreads::new(prepared),
        threads,
        code: KnownCode::default(),
        natives: RefCell::default(),
        round_number: 0,
        dormant_rounds: dormant_rounds(sampler.interval),
        sees_running: signals::clocks_are_exact() && signals::change_processor(),
        idle: IdleTime::default(),
    })
}

/// Sends signals to running threads.
struct Signals {
    prepared: &'static PreparedThreads,
    older: OlderThreads,
    threads: Vec<SignalledThread>,
    code: KnownCode,
    natives: RefCell<Natives>,
    /// Counts rounds.
    round_number: usize,
    /// A dormant thread is checked in one of so many rounds.
    dormant_rounds: usize,
    /// Whether the clocks show which threads are running: they are exact, and the sampler has not the only processor.
    sees_running: bool,
    /// Whether the sampler finds a processor without displacing a thread.
    idle: IdleTime,
}

/// A thread, as of the last round.
struct SignalledThread {
    prepared: Arc<PreparedThread>,
    /// Its processor time then.
    total_cpu_time: Duration,
    /// Its processor time, minus the weight of its samples.
    unsampled: UnsampledTime,
    /// The weight of its next sample, and the thread's name at the request.
    next_weight: Duration,
    name: Option<Name>,
    /// The time of the last request.
    last_request: Option<Instant>,
    /// When it was last seen to have run.
    last_run: Instant,
    /// No requests before this time.
    paused_until: Option<Instant>,
    /// Its last sample has found a small alternate stack, on which there is no room for another signal.
    has_small_stack: bool,
    /// When it was seen last that it does not block the signal.
    seen_receiving: Option<Instant>,
}

/// What has come of the last request to a thread.
enum Answer {
    /// Its stack was written to the buffer.
    Sample(SampledThread),
    /// It has answered, but the filter leaves it out.
    Filtered,
    Nothing,
}

impl SignalledThread {
    fn new(prepared: Arc<PreparedThread>) -> Self {
        Self {
            total_cpu_time: prepared.cpu_time_before,
            prepared,
            unsampled: UnsampledTime::default(),
            next_weight: Duration::ZERO,
            name: None,
            last_request: None,
            last_run: Instant::now(),
            paused_until: None,
            has_small_stack: false,
            seen_receiving: None,
        }
    }

    /// A thread that is older than the sampling: no sample stands for what it has run before.
    fn from_now_on(prepared: Arc<PreparedThread>) -> Self {
        let total_cpu_time = prepared.cpu_time().unwrap_or(prepared.cpu_time_before);
        Self { total_cpu_time, ..Self::new(prepared) }
    }

    fn is_dormant(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_run) > DORMANT_AFTER
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Reads the stack that the thread has recorded, if it has; writes it as that of the thread with this number.
    fn read_answer(&mut self, number: usize, recording: &mut Recording, mut look_up: CodeLookUp<'_, '_>) -> Answer {
        let Self { prepared, name, next_weight, paused_until, has_small_stack, .. } = self;
        let answer = prepared.slot.read(|sample| {
            *has_small_stack = sample.has_small_stack;
            *paused_until = sample.is_elsewhere.then(|| Instant::now() + PAUSE_AFTER_FAULT);
            let thread = SampledThread {
                id: Inert(prepared.thread),
                os_id: Some(prepared.os_id()),
                name: name.clone(),
                cpu_time: Some(*next_weight),
                run_count: None,
            };
            if !wants(&mut recording.options.filter, &thread) {
                return Answer::Filtered;
            }
            record(&mut recording.buffer, number, sample, &mut look_up);
            Answer::Sample(thread)
        });
        answer.unwrap_or(Answer::Nothing)
    }

    /// Reads the thread's clock; returns how long it has run since it was last read, unless the thread has ended.
    fn read_clock(&mut self, now: Instant) -> Option<Duration> {
        let total = self.prepared.cpu_time()?;
        let used = total.saturating_sub(self.total_cpu_time);
        self.total_cpu_time = total;
        self.unsampled.add(used);
        if !used.is_zero() {
            self.last_run = now;
        }
        Some(used)
    }

    /// Whether the thread is running now, shortly after its clock was read. Without `sees_running`: whether it is
    /// runnable.
    fn is_running(&self, sees_running: bool) -> bool {
        if sees_running { self.prepared.cpu_time() > Some(self.total_cpu_time) } else { self.prepared.is_runnable() }
    }

    /// Whether it blocks the signal. Then it would stay pending, and might be taken by `sigwait` for one that is meant
    /// for the application.
    fn blocks_signal(&mut self, now: Instant) -> bool {
        if self.seen_receiving.is_some_and(|since| now.saturating_duration_since(since) < MASK_CHECK) {
            return false;
        }
        let blocks = self.prepared.blocks_signal();
        self.seen_receiving = (!blocks).then_some(now);
        blocks
    }

    /// Requests a sample; an error is the reason why no signals can be sent any more.
    fn request(&mut self, name: Option<Name>, now: Instant) -> Result<(), &'static str> {
        if self.blocks_signal(now) {
            return Ok(());
        }
        match self.prepared.request() {
            Sending::Done => {
                self.next_weight = self.unsampled.take();
                self.name = name;
                self.last_request = Some(now);
                Ok(())
            }
            Sending::NotNow => {
                let is_lost = |asked| now.saturating_duration_since(asked) > ANSWER_TIMEOUT;
                if self.last_request.is_some_and(is_lost) {
                    self.prepared.slot.withdraw();
                }
                Ok(())
            }
            Sending::Forbidden => Err(FORBIDDEN),
            Sending::Replaced => Err(REPLACED),
        }
    }
}

impl RunningStrategy for Signals {
    /// Reads the stacks that threads have recorded since the last round.
    fn sample(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        recording: &mut Recording,
        time: RoundTime,
    ) -> Result<SampledRound, String> {
        self.older.prepare_some(cx, time.now);
        self.threads.extend(self.prepared.take_new().into_iter().map(SignalledThread::new));
        recording.buffer.prepare(self.threads.len());
        self.code.refresh(cx);
        let unprepared = self.prepared.unprepared();
        let seen = self.threads.len() + unprepared;
        let mut counts = ThreadCounts { seen, left_out: unprepared, ..Default::default() };
        let mut threads = Vec::new();
        for thread in &mut self.threads {
            let look_up = CodeLookUp { known: &mut self.code, natives: &self.natives, cx: &mut *cx };
            match thread.read_answer(threads.len(), recording, look_up) {
                Answer::Sample(sampled) => threads.push(sampled),
                Answer::Filtered => counts.filtered += 1,
                Answer::Nothing if thread.prepared.has_ended() => counts.ended += 1,
                Answer::Nothing => counts.idle += 1,
            }
        }
        // The functions are recorded already, as they were looked up one by one. By now they may be gone.
        let weight = |number: usize| threads.get(number).and_then(|thread: &SampledThread| thread.cpu_time);
        recording.buffer.weigh(|stack, _| weight(stack.thread).unwrap_or_default());
        recording.report.threads = counts;
        recording.report.samples_ready_threads = !self.sees_running;
        self.threads
            .iter()
            .filter(|thread| thread.has_small_stack)
            .for_each(|thread| self.prepared.give_up(&thread.prepared));
        self.remove_ended(&mut recording.report);
        Ok(SampledRound { threads, outcome: Outcome::default() })
    }

    fn request_next(&mut self, cx: &ProfilerThread<'_>, recording: &mut Recording, time: RoundTime) -> bool {
        let sent = self.send_signals(cx, &mut recording.report, time.now);
        if let Err(why) = sent {
            line(format_args!("the sampler now stops threads instead of sending signals: {why}"));
        }
        sent.is_err()
    }

    fn stops_threads(&self) -> bool {
        false
    }

    fn collects_at_end(&self) -> bool {
        true
    }

    fn shows_empty_rounds(&self) -> bool {
        false
    }

    fn native_functions(&self) -> Option<&dyn NativeFunctions> {
        Some(&self.natives)
    }
}

impl Signals {
    /// Sends a signal to the threads that are running; an error is the reason why that is not possible any more.
    fn send_signals(&mut self, cx: &ProfilerThread<'_>, report: &mut Report, now: Instant) -> Result<(), &'static str> {
        self.round_number = self.round_number.wrapping_add(1);
        let mut has_any_run = false;
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let is_its_round = (number + self.round_number).is_multiple_of(self.dormant_rounds);
            if thread.is_dormant(now) && !is_its_round {
                continue;
            }
            let Some(used) = thread.read_clock(now) else { continue };
            report.cpu_time += used;
            if used.is_zero() {
                continue;
            }
            has_any_run = true;
            if !thread.is_paused(now) && thread.is_running(self.sees_running) {
                thread.request(cx.thread_names().of(thread.prepared.thread), now)?;
            }
        }
        if self.sees_running && has_any_run && !self.idle.is_enough(now) {
            self.sees_running = signals::change_processor();
        }
        Ok(())
    }

    /// Forgets threads that have ended and will not record a stack any more.
    fn remove_ended(&mut self, report: &mut Report) {
        let prepared = self.prepared;
        self.threads.retain(|thread| {
            if !thread.prepared.is_done() {
                return true;
            }
            prepared.give_back(thread.prepared.slot);
            report.cpu_time += thread.prepared.total_cpu_time().saturating_sub(thread.total_cpu_time);
            report.unseen += u64::from(thread.last_request.is_none());
            false
        });
    }
}

/// In one of how many rounds a dormant thread is checked.
fn dormant_rounds(interval: Duration) -> usize {
    let rounds = DORMANT_CHECK.as_nanos().div_ceil(interval.as_nanos().max(1));
    usize::try_from(rounds).unwrap_or(usize::MAX).max(LEAST_DORMANT_ROUNDS)
}

impl NativeFunctions for RefCell<Natives> {
    fn function(&self, address: usize) -> Option<NativeFunction> {
        self.borrow_mut().function(address)
    }
}

fn wants(filter: &mut Option<Filter>, thread: &SampledThread) -> bool {
    filter.as_mut().is_none_or(|wants| wants(thread))
}

/// Writes a sample's frames onto the buffer.
fn record(buffer: &mut SampleBuffer, thread: usize, sample: &RawSample, look_up: &mut CodeLookUp<'_, '_>) {
    buffer.record(thread, |writer| {
        look_up.walk(sample, |function, ip| writer.write(SampledFrame { function, ip }));
        writer.mark_kept();
        if sample.is_cut {
            writer.mark_cut();
        }
        Some(S_OK)
    });
    buffer.set_ticks(sample.ticks);
}
