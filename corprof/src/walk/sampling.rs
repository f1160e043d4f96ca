//! The loop of the sampler's thread: waits for the next round, chooses threads, has them walked, passes the stacks on.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::id::{Inert, ThreadId};
use crate::profiler_thread::ProfilerThread;
use crate::report;
use crate::system;

use super::activity::{Activity, Look};
use super::budget::Budget;
use super::drawing::Roster;
use super::report::{Report, ThreadCounts, Verdict};
use super::round::{Round, SampledThread};
use super::sample_buffer::SampleBuffer;
use super::sampler::{Mode, Sampler};
use super::schedule::Schedule;
use super::strategy::{self, Outcome, Running, Strategy, Target, Walker};

/// The profiler's closure.
type See<'s> = &'s mut dyn FnMut(&mut Round<'_, '_>);

/// How long before a round running threads are checked: a thread that goes on running until the round is working.
const LEAD: Duration = Duration::from_micros(500);

/// The running sampler.
pub(super) struct Sampling {
    pub(super) sampler: Sampler,
    pub(super) budget: Budget,
    schedule: Schedule,
    pub(super) buffer: SampleBuffer,
    pub(super) report: Report,
    pub(super) activity: Activity,
    /// When the last round was made, and when threads were last checked.
    pub(super) last: Instant,
    marked: Instant,
    /// The thread that the next round begins with, as the last one had no time for it.
    first: Option<ThreadId>,
    /// The threads to draw from, if a round walks one thread only.
    pub(super) roster: Roster,
    /// Whether the strategy has given up.
    pub(super) is_given_up: bool,
}

/// The threads of a round.
#[derive(Default)]
struct Chosen<'i> {
    /// The threads to walk.
    targets: Vec<Target<'i>>,
    /// The results of checking these.
    target_looks: Vec<Option<(u32, Look)>>,
    /// The same threads, as the profiler sees them.
    threads: Vec<SampledThread>,
    /// The threads whose last stack is still valid.
    unmoved: Vec<SampledThread>,
    /// The results for all threads.
    looks: Looks,
}

/// The results of checking threads.
type Looks = Vec<(ThreadId, u32, Look)>;

/// All threads, as they were before any was stopped.
#[derive(Default)]
pub(super) struct Survey {
    /// The threads to walk.
    pub(super) wanted: Vec<(SampledThread, Option<Look>)>,
    /// The threads whose last stack is still valid.
    unmoved: Vec<SampledThread>,
    pub(super) looks: Looks,
    pub(super) counts: ThreadCounts,
}

/// The sampler's thread, from start to end.
pub(crate) fn run(
    #[allow(unused_mut)] mut sampler: Sampler,
    strategy: Strategy,
    cx: &mut ProfilerThread<'_>,
    see: See<'_>,
) {
    if cx.wait(sampler.delay).is_break() {
        return;
    }
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    let strategy = if strategy == Strategy::Signals {
        match strategy::signals::run(&mut sampler, cx, see) {
            Ok(()) => return,
            Err(why) => report::line(format_args!("the sampler now stops threads instead of sending signals: {why}")),
        }
        Strategy::SuspendedRuntime
    } else {
        strategy
    };
    match strategy::begin(strategy, &sampler, cx) {
        Ok(running) => run_with(running, strategy, sampler, cx, see),
        Err(error) => report::line(format_args!("the sampler does not start: {error}")),
    }
}

pub(super) fn run_with<'i>(
    running: Running<'i>,
    strategy: Strategy,
    sampler: Sampler,
    cx: &mut ProfilerThread<'i>,
    see: See<'_>,
) {
    let now = Instant::now();
    let mut sampling = Sampling {
        budget: Budget::new(sampler.budget, now),
        schedule: Schedule::new(sampler.interval, now),
        buffer: SampleBuffer::new(sampler.depth),
        report: Report::new(sampler.mode, sampler.interval, strategy),
        activity: Activity::default(),
        last: now,
        marked: now,
        first: None,
        roster: Roster::default(),
        is_given_up: false,
        sampler,
    };
    if let Err(why) = sampling.run(cx, running, see) {
        report::line(format_args!("the sampler has ended; the profiler goes on without it: {why}"));
    }
}

impl Sampling {
    /// Makes rounds until the thread should end; returns the reason if the sampler must end before that.
    fn run<'i>(&mut self, cx: &mut ProfilerThread<'i>, mut running: Running<'i>, see: See<'_>) -> Result<(), String> {
        let start = self.last;
        loop {
            if self.wait(cx).is_break() {
                return Ok(());
            }
            let now = Instant::now();
            self.report.elapsed = now.saturating_duration_since(start);
            self.report.skipped.late += self.schedule.begin(now);
            let wait = self.budget.wait(now);
            if !wait.is_zero() {
                // Waking up in vain would cost something as well.
                self.report.skipped.budget += 1 + self.schedule.put_off(wait);
                continue;
            }
            // A thread that has become a managed one would wait for itself (suspension rule 1).
            if cx.current_thread() != Ok(None) {
                return Err("its closure has called managed code, and a managed thread must not stop others".to_owned());
            }
            let elapsed = now.saturating_duration_since(self.last);
            let threads = match &mut running {
                Running::All(walker) => self.round(cx, walker.as_mut(), now, elapsed)?,
                Running::One(hands) => Some(self.round_of_one(cx, hands.as_mut(), now)?),
            };
            if let Some(threads) = threads {
                self.last = now;
                let pause = self.budget.pace().saturating_sub(self.sampler.interval);
                self.report.skipped.budget += self.schedule.put_off(pause);
                let (buffer, report) = (&self.buffer, &self.report);
                let mut round = Round { cx, threads: &threads, buffer, elapsed, report, natives: None, is_last: false };
                see(&mut round);
                if round.is_last {
                    return Ok(());
                }
            }
            if std::mem::take(&mut self.is_given_up) {
                let other = Strategy::SuspendedRuntime;
                running = strategy::begin(other, &self.sampler, cx).map_err(|error| error.to_string())?;
                self.report.strategy = other;
            }
        }
    }

    /// Waits until a round is due; `Break` if there will be no more.
    ///
    /// Where it matters which threads run, they are also checked shortly before the round: within an interval a thread may have
    /// run and waited many times.
    fn wait(&mut self, cx: &mut ProfilerThread<'_>) -> ControlFlow<()> {
        let until = |time: Instant| time.saturating_duration_since(Instant::now());
        let before = self.schedule.due().checked_sub(LEAD).filter(|before| *before > self.marked + LEAD);
        let marks = self.sampler.mode == Mode::Cpu && self.report.strategy != Strategy::Seeded;
        if let Some(before) = before.filter(|_| marks) {
            cx.wait(until(before))?;
            self.activity.mark();
        }
        // Half a step too early or too late, and not a whole one too late.
        cx.wait(until(self.schedule.due()).saturating_sub(system::WAIT_STEP / 2))
    }

    /// Has the threads walked onto the buffer, and returns them; none if that was not possible.
    fn round(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        walker: &mut dyn Walker,
        now: Instant,
        elapsed: Duration,
    ) -> Result<Option<Vec<SampledThread>>, String> {
        let started = cx.liveness().threads_started();
        let listed = cx.enum_threads().map_err(|error| error.to_string())?;
        let survey = self.survey(cx, listed);
        let Chosen { targets, target_looks, mut threads, unmoved, looks } = self.choose(cx, survey);
        self.buffer.prepare(targets.len());
        let mut outcome = Outcome::default();
        if !targets.is_empty() {
            let look_up = cx.liveness().look_up();
            outcome = walker.walk(&targets, &mut self.buffer, self.sampler.longest);
            self.buffer.take_note(cx);
            // Ends of threads wait for the look-up, and checking many threads takes a while.
            drop(look_up);
            self.buffer.note_waits(|number| {
                let look = target_looks.get(number).copied().flatten();
                look.is_some_and(|(os_id, look): (u32, Look)| look.has_waited(os_id))
            });
        }
        self.report.delayed = cx.liveness().delayed();
        self.report.retries += u64::from(outcome.retries);
        self.report.abandoned += u64::from(outcome.abandoned);
        self.is_given_up |= outcome.gives_up;
        if let Some(code) = outcome.refused {
            self.report.refusals.add(code);
            match code {
                sys::CORPROF_E_SUSPENSION_IN_PROGRESS => self.report.skipped.busy += 1,
                sys::CORPROF_E_RUNTIME_UNINITIALIZED => self.report.skipped.not_started += 1,
                code => return Err(crate::Error::new(code, "SuspendRuntime").to_string()),
            }
            return Ok(None);
        }
        // While a single thread is stopped, the others run on.
        let is_single = self.report.strategy == Strategy::Seeded;
        self.budget.spend(if is_single { share(outcome.stood, targets.len()) } else { outcome.stood });
        for thread in unmoved {
            self.activity.replay(thread.id.0, threads.len(), &mut self.buffer);
            threads.push(thread);
        }
        self.report.cpu_time += self.activity.end_round(looks, elapsed);
        self.marked = now;
        self.report.unseen = started.saturating_sub(self.activity.seen());
        if self.sampler.mode == Mode::Cpu {
            let waited = self.buffer.leave_out_waits();
            self.report.threads.idle += waited;
            self.report.waited += waited as u64;
        }
        self.weigh(&threads, elapsed);
        self.report.note(&outcome, &self.buffer);
        self.report.suspension.add(outcome.stood);
        let left = targets.len() - outcome.left_out.min(targets.len());
        self.first = targets.get(left).map(|target| target.thread);
        match outcome.stuck {
            Some(code) => {
                Err(format!("the threads could not be resumed: {}", crate::Error::new(code, "ResumeRuntime")))
            }
            None => Ok(Some(threads)),
        }
    }

    /// Sets the weight of each sample, and keeps the stacks that may be valid in the next round.
    fn weigh(&mut self, threads: &[SampledThread], elapsed: Duration) {
        let (activity, mode, depth) = (&mut self.activity, self.sampler.mode, self.sampler.depth);
        let now = Instant::now();
        self.buffer.weigh(|stack, frames| {
            let Some(thread) = threads.get(stack.thread).map(|thread| thread.id.0) else { return elapsed };
            let verdict = Verdict::of_frames(stack, frames);
            match mode {
                Mode::Cpu if verdict.is_sample() => activity.weigh(thread, now).unwrap_or(elapsed),
                Mode::Cpu => elapsed,
                Mode::Wall => {
                    let lacks_room = stack.is_cut && frames.len() < depth; // the next round has more
                    if !stack.is_again && !lacks_room && verdict != Verdict::Failed {
                        activity.keep(thread, stack, frames);
                    }
                    elapsed
                }
            }
        });
    }

    /// Checks the `listed` threads. This and the choice of threads are all that allocates or takes a lock.
    pub(super) fn survey(&mut self, cx: &ProfilerThread<'_>, mut listed: Vec<ThreadId>) -> Survey {
        if let Some(first) = self.first.take().and_then(|first| listed.iter().position(|&thread| thread == first)) {
            listed.rotate_left(first);
        }
        let mut survey = Survey::default();
        let Survey { wanted, unmoved, looks, counts } = &mut survey;
        counts.seen = listed.len();
        for thread in listed {
            let os_id = cx.os_thread_id(thread).ok();
            let look = os_id.map(|os_id| self.activity.look(thread, os_id, self.sampler.mode == Mode::Cpu));
            looks.extend(os_id.zip(look).map(|(os_id, look)| (thread, os_id, look)));
            let name = cx.thread_names().of(thread);
            let cpu_time = look.and_then(|look| look.since);
            let sampled = SampledThread { id: Inert(thread), os_id, name, cpu_time };
            if self.sampler.filter.as_mut().is_some_and(|wants| !wants(&sampled)) {
                counts.filtered += 1;
            } else if self.sampler.mode == Mode::Cpu && look.is_some_and(|look| !look.is_at_work) {
                counts.idle += 1;
            } else if look.is_some_and(|look| !look.has_run) && self.activity.is_placed(thread) {
                counts.unmoved += 1;
                unmoved.push(sampled);
            } else {
                wanted.push((sampled, look));
            }
        }
        survey
    }

    /// Chooses all threads that are to be walked.
    fn choose<'i>(&mut self, cx: &'i ProfilerThread<'_>, survey: Survey) -> Chosen<'i> {
        let Survey { wanted, unmoved, looks, mut counts } = survey;
        let mut chosen = Chosen { unmoved, looks, ..Chosen::default() };
        for (thread, look) in wanted {
            let Some(claim) = cx.liveness().walk_candidate(thread.id.0) else {
                counts.ended += 1;
                continue;
            };
            chosen.targets.push(Target { thread: thread.id.0, os_id: thread.os_id, claim });
            chosen.target_looks.push(thread.os_id.zip(look));
            chosen.threads.push(thread);
        }
        self.report.threads = counts;
        chosen
    }
}

/// The part of a time that falls to one of so many threads.
pub(super) fn share(time: Duration, threads: usize) -> Duration {
    time / u32::try_from(threads).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::strategy::Outcome;
    use super::*;
    use crate::prelude::*;
    use crate::testing::FakeClr;

    /// Walks no thread, and gives up in its third round.
    struct GivesUp(u32);

    impl Walker for GivesUp {
        fn walk(&mut self, targets: &[Target<'_>], _: &mut SampleBuffer, _: Duration) -> Outcome {
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
                run_with(Running::All(Box::new(GivesUp(0))), Strategy::Seeded, sampler, cx, &mut |round| {
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
