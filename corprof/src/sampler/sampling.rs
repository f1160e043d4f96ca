//! The loop of the sampler's thread: waits for the next round, has the strategy sample, passes the stacks on.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::profiler_thread::ProfilerThread;
use crate::report;
use crate::system;

use super::budget::Budget;
use super::options::Sampler;
use super::recording::Recording;
use super::round::{Round, SampledThread};
use super::schedule::Schedule;
use super::strategy::{self, Outcome, RoundTime, RunningStrategy, SampledRound, Strategy};

/// The profiler's closure.
type OnRound<'s> = &'s mut dyn FnMut(&mut Round<'_, '_>);

/// How long before a round running threads are marked: a thread that goes on running until the round is working.
const LEAD: Duration = Duration::from_micros(500);

/// The running sampler.
struct Sampling {
    recording: Recording,
    budget: Budget,
    schedule: Schedule,
    start: Instant,
    /// When the last round was made.
    last_round: Instant,
}

/// The sampler's thread, from start to end.
pub(super) fn run(options: Sampler, strategy: Strategy, cx: &mut ProfilerThread<'_>, on_round: OnRound<'_>) {
    if cx.wait(options.delay).is_break() {
        return;
    }
    match strategy::start(strategy, &options, cx) {
        Ok(running) => run_with(running, strategy, options, cx, on_round),
        Err(error) => report::line(format_args!("the sampler does not start: {error}")),
    }
}

/// The same with a strategy that has been started.
pub(super) fn run_with<'i>(
    running: Box<dyn RunningStrategy + 'i>,
    strategy: Strategy,
    options: Sampler,
    cx: &mut ProfilerThread<'i>,
    on_round: OnRound<'_>,
) {
    if let Err(why) = Sampling::new(options, strategy).run(cx, running, on_round) {
        report::line(format_args!("the sampler has ended; the profiler goes on without it: {why}"));
    }
}

impl Sampling {
    fn new(options: Sampler, strategy: Strategy) -> Self {
        let now = Instant::now();
        Self {
            budget: Budget::new(options.budget, now),
            schedule: Schedule::new(options.interval, now),
            recording: Recording::new(options, strategy),
            start: now,
            last_round: now,
        }
    }

    /// Makes rounds until the thread should end; returns the reason if the sampler must end before that.
    fn run<'i>(
        mut self,
        cx: &mut ProfilerThread<'i>,
        mut strategy: Box<dyn RunningStrategy + 'i>,
        on_round: OnRound<'_>,
    ) -> Result<(), String> {
        loop {
            let mut is_over = self.wait(cx, strategy.as_ref()).is_break();
            if is_over && !strategy.collects_at_end() {
                return Ok(());
            }
            let now = Instant::now();
            if !self.may_begin_round(strategy.as_ref(), now) {
                continue;
            }
            // A thread that has become a managed one would wait for itself (suspension rule 1).
            if strategy.stops_threads() && cx.current_thread() != Ok(None) {
                return Err("its closure has called managed code, and a managed thread must not stop others".to_owned());
            }
            let time = RoundTime { now, elapsed: now.saturating_duration_since(self.last_round) };
            let SampledRound { threads, outcome } = strategy.sample(cx, &mut self.recording, time)?;
            if self.add_to_report(&outcome)? {
                self.last_round = now;
                let pause = self.budget.pace().saturating_sub(self.recording.options.interval);
                self.recording.report.skipped.budget += self.schedule.put_off(pause);
                // The last round has the whole report, of a process that did nothing, too.
                if is_over || !threads.is_empty() || strategy.shows_empty_rounds() {
                    is_over |= self.show_round(cx, strategy.as_ref(), &threads, time.elapsed, on_round);
                }
                if is_over {
                    return Ok(());
                }
            }
            let gives_up = strategy.request_next(cx, &mut self.recording, time);
            if gives_up || outcome.gives_up {
                let next = Strategy::SuspendedRuntime;
                strategy = strategy::start(next, &self.recording.options, cx).map_err(|error| error.to_string())?;
                self = self.with_strategy(next);
            }
        }
    }

    /// Waits until a round is due; `Break` if there will be no more.
    ///
    /// Where it matters which threads run, they are also marked shortly before the round: within an interval a thread
    /// may have run and waited many times.
    fn wait(&mut self, cx: &mut ProfilerThread<'_>, strategy: &dyn RunningStrategy) -> ControlFlow<()> {
        let until = |time: Instant| time.saturating_duration_since(Instant::now());
        if strategy.needs_marks(self.recording.options.mode) {
            let mark = self.schedule.due().checked_sub(LEAD).filter(|mark| *mark > self.last_round + LEAD);
            if let Some(mark) = mark {
                cx.wait(until(mark))?;
                self.recording.activity.mark();
            }
        }
        if !strategy.stops_threads() {
            self.recording.report.skipped.late += self.schedule.redraw_if_over(Instant::now());
        }
        // Half a step too early or too late, and not a whole one too late.
        cx.wait(until(self.schedule.due()).saturating_sub(system::WAIT_STEP / 2))
    }

    /// Whether the budget allows a round that is due now; if not, it is put off.
    fn may_begin_round(&mut self, strategy: &dyn RunningStrategy, now: Instant) -> bool {
        let report = &mut self.recording.report;
        report.elapsed = now.saturating_duration_since(self.start);
        report.skipped.late += self.schedule.begin(now, !strategy.stops_threads());
        let wait = self.budget.wait(now);
        if wait.is_zero() {
            return true;
        }
        // Waking up in vain would cost something as well.
        report.skipped.budget += 1 + self.schedule.put_off(wait);
        false
    }

    /// Adds the result of a round; returns whether it was made, and an error if the sampler must end.
    fn add_to_report(&mut self, outcome: &Outcome) -> Result<bool, String> {
        let Recording { report, buffer, .. } = &mut self.recording;
        report.retries += u64::from(outcome.retries);
        report.abandoned += u64::from(outcome.abandoned);
        if let Some(code) = outcome.refused {
            report.refusals.add(code);
            match code {
                sys::CORPROF_E_SUSPENSION_IN_PROGRESS => report.skipped.busy += 1,
                sys::CORPROF_E_RUNTIME_UNINITIALIZED => report.skipped.not_started += 1,
                code => return Err(crate::Error::new(code, "SuspendRuntime").to_string()),
            }
            return Ok(false);
        }
        self.budget.spend(outcome.lost);
        report.add_round(outcome, buffer);
        match outcome.stuck {
            Some(code) => {
                Err(format!("the threads could not be resumed: {}", crate::Error::new(code, "ResumeRuntime")))
            }
            None => Ok(true),
        }
    }

    /// Passes the round on to the profiler; returns whether that has ended the sampler.
    fn show_round(
        &self,
        cx: &mut ProfilerThread<'_>,
        strategy: &dyn RunningStrategy,
        threads: &[SampledThread],
        elapsed: Duration,
        on_round: OnRound<'_>,
    ) -> bool {
        let Recording { buffer, report, .. } = &self.recording;
        let natives = strategy.native_functions();
        let mut round = Round { cx, threads, buffer, elapsed, report, natives, is_last: false };
        on_round(&mut round);
        round.is_last
    }

    /// The sampling that goes on with another strategy.
    fn with_strategy(mut self, next: Strategy) -> Self {
        if self.recording.report.strategy == Strategy::Signals {
            // The sums would not fit: signals sample processor time in every mode. So the report begins anew.
            return Self::new(self.recording.options, next);
        }
        self.recording.report.strategy = next;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::strategy::{EveryThread, WalkTarget, Walker};
    use super::*;
    use crate::prelude::*;
    use crate::sampler::sample_buffer::SampleBuffer;
    use crate::testing::FakeClr;

    /// Walks no thread, and gives up in its third round.
    struct GivesUp(u32);

    impl Walker for GivesUp {
        const STOPS_ALL: bool = false;

        fn walk(&mut self, targets: &[WalkTarget<'_>], _: &mut SampleBuffer, _: Duration) -> Outcome {
            self.0 += 1;
            let abandoned = targets.len() as u32;
            Outcome { abandoned, gives_up: self.0 == 3, ..Outcome::default() }
        }
    }

    /// Records the strategy and the number of samples of each round.
    #[derive(Default, Profiler)]
    #[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0051", no_export)]
    struct Rounds(Arc<Mutex<Vec<(Strategy, usize)>>>);

    #[callbacks]
    impl Callbacks for Rounds {
        fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
            let profiler = Self::default();
            cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT | EventMask::MONITOR_THREADS)?;
            let rounds = Arc::clone(&profiler.0);
            cx.spawn_profiler_thread("sampler", move |cx| {
                let sampler = Sampler::every(Duration::from_millis(1));
                let running = Box::new(EveryThread::new(GivesUp(0)));
                run_with(running, Strategy::Seeded, sampler, cx, &mut |round| {
                    rounds.lock().unwrap().push((round.report().strategy, round.samples().count()));
                });
            })?;
            Ok(profiler)
        }
    }

    /// Counts its rounds and ends with the third.
    #[derive(Default, Profiler)]
    #[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0052", no_export)]
    struct ThreeRounds(Arc<Mutex<(u32, bool)>>);

    #[callbacks]
    impl Callbacks for ThreeRounds {
        fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
            let profiler = Self::default();
            cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT | EventMask::MONITOR_THREADS)?;
            let rounds = Arc::clone(&profiler.0);
            cx.spawn_profiler_thread("sampler", move |cx| {
                let sampler = Sampler::every(Duration::from_millis(1)).delay(Duration::from_millis(20));
                let start = Instant::now();
                run(sampler, Strategy::SuspendedRuntime, cx, &mut |round| {
                    assert!(start.elapsed() >= Duration::from_millis(20), "before its time");
                    let mut rounds = rounds.lock().unwrap();
                    rounds.0 += 1;
                    if rounds.0 == 3 {
                        round.end_sampling();
                    }
                });
                rounds.lock().unwrap().1 = true;
            })?;
            Ok(profiler)
        }
    }

    #[test]
    fn a_closure_can_end_the_sampler() {
        let mut clr = FakeClr::load::<ThreeRounds>().unwrap();
        clr.start_up();
        let rounds = Arc::clone(&clr.profiler::<ThreeRounds>().unwrap().0);
        let start = Instant::now();
        while !rounds.lock().unwrap().1 {
            assert!(start.elapsed() < Duration::from_secs(60), "the sampler goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(rounds.lock().unwrap().0, 3);
        clr.shutdown();
    }

    #[test]
    fn a_strategy_that_gives_up_is_followed_by_the_one_that_always_works() {
        let mut clr = FakeClr::load::<Rounds>().unwrap();
        clr.start_up();
        let class = clr.core_class("System.Object");
        let main = clr.function(class, "Main");
        clr.jit(main);
        let thread = clr.create_thread();
        clr.set_stack(thread, [Some(main)]);
        let rounds = Arc::clone(&clr.profiler::<Rounds>().unwrap().0);
        let start = Instant::now();
        let has_samples = |(strategy, samples): &(Strategy, usize)| *strategy != Strategy::Seeded && *samples > 0;
        while !rounds.lock().unwrap().iter().any(has_samples) {
            assert!(start.elapsed() < Duration::from_secs(60), "no samples by the other strategy");
            std::thread::sleep(Duration::from_millis(1));
        }
        clr.shutdown();
        let rounds = rounds.lock().unwrap();
        let seeded = rounds.iter().take_while(|(strategy, _)| *strategy == Strategy::Seeded).count();
        assert!(seeded >= 3, "three rounds of abandoned walks, and those without a thread to walk");
        assert!(rounds[..seeded].iter().all(|(_, samples)| *samples == 0));
        assert!(rounds[seeded..].iter().all(|(strategy, _)| *strategy == Strategy::SuspendedRuntime));
    }
}
