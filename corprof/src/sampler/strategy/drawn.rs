//! Rounds that have one thread walked, drawn from those at work.
//!
//! The draw is even, so a thread is seen at random moments of its work, and the weights of its samples add up to its
//! processor time. A round does not wait for the walk: it collects those that have ended since the last round.

use std::time::{Duration, Instant};

use crate::id::{Inert, ThreadId};
use crate::profiler_thread::ProfilerThread;
use crate::sampler::recording::{Recording, Survey};
use crate::sampler::report::ThreadCounts;
use crate::sampler::round::SampledThread;
use crate::sampler::sample_buffer::SampleBuffer;

use super::{Outcome, RoundTime, RunningStrategy, SampledRound, share};

/// How long a list of the threads is used. Windows counts processor time in steps of 16 ms, so that asking much more
/// often would give the same answers; and asking costs: a system call per thread, and under Wine a message to its
/// server.
const LIST_IS_VALID: Duration = Duration::from_millis(50);

/// Threads that each walk one thread at a time, while the sampler goes on. Nothing is walked after their drop.
pub(super) trait WalkerPool {
    /// Whether one of them walks this thread.
    fn is_walking(&self, thread: ThreadId) -> bool;

    /// Has a thread walked that none of them walks, unless all are busy.
    fn walk(&mut self, thread: SampledThread);

    /// Passes on the walks that have ended since the last call: the thread, the result, and a buffer with its stack.
    fn collect(&mut self, take: &mut dyn FnMut(SampledThread, Outcome, &SampleBuffer));
}

/// Has one thread walked in each round.
pub(super) struct Drawn<P> {
    pool: P,
    roster: Roster,
}

/// The threads at work, as of the last survey of all threads.
#[derive(Default)]
struct Roster {
    working: Vec<SampledThread>,
    counts: ThreadCounts,
    surveyed: Option<Instant>,
    random: fastrand::Rng,
}

impl Roster {
    /// Whether all threads must be surveyed again.
    fn is_stale(&self, now: Instant) -> bool {
        self.surveyed.is_none_or(|surveyed| now.saturating_duration_since(surveyed) >= LIST_IS_VALID)
    }

    /// Replaces the list; returns the time since the last one, if there was one.
    fn renew(&mut self, working: Vec<SampledThread>, counts: ThreadCounts, now: Instant) -> Option<Duration> {
        self.working = working;
        self.counts = counts;
        let before = self.surveyed.replace(now);
        before.map(|before| now.saturating_duration_since(before))
    }

    /// The counts of a round with this number of walks, of which some may be of threads that are no longer at work.
    fn counts(&self, walks: usize) -> ThreadCounts {
        let seen = self.counts.seen + walks.saturating_sub(self.working.len());
        ThreadCounts { seen, not_drawn: self.working.len().saturating_sub(walks), ..self.counts }
    }

    /// One of the threads that are not being walked.
    fn draw(&mut self, is_walked: impl Fn(Inert<ThreadId>) -> bool) -> Option<SampledThread> {
        let free = self.working.iter().filter(|thread| !is_walked(thread.id));
        self.random.choice(free.collect::<Vec<_>>()).cloned()
    }
}

impl<P: WalkerPool> Drawn<P> {
    pub(super) fn new(pool: P) -> Self {
        Self { pool, roster: Roster::default() }
    }

    /// Surveys all threads, if the last survey is too old.
    fn renew_roster(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        recording: &mut Recording,
        now: Instant,
    ) -> Result<(), String> {
        if !self.roster.is_stale(now) {
            return Ok(());
        }
        let started = cx.liveness().threads_started();
        let listed = cx.enum_threads().map_err(|error| error.to_string())?;
        let Survey { wanted, checks, counts, .. } = recording.survey(cx, listed);
        let working = wanted.into_iter().map(|(thread, _)| thread).collect();
        let elapsed = self.roster.renew(working, counts, now).unwrap_or_default();
        recording.end_survey(checks, elapsed, started);
        Ok(())
    }

    /// Collects the walks that have ended.
    fn collect(&mut self, recording: &mut Recording) -> SampledRound {
        let mut threads = Vec::new();
        let mut all = Outcome::default();
        recording.buffer.prepare(1);
        self.pool.collect(&mut |thread, outcome, stacks| {
            recording.buffer.append(threads.len(), stacks);
            threads.push(thread);
            recording.report.suspension.add(outcome.stood);
            add(&mut all, &outcome);
        });
        all.lost = share(all.stood, self.roster.working.len());
        SampledRound { threads, outcome: all }
    }
}

impl<P: WalkerPool> RunningStrategy for Drawn<P> {
    fn sample(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        recording: &mut Recording,
        time: RoundTime,
    ) -> Result<SampledRound, String> {
        self.renew_roster(cx, recording, time.now)?;
        let mut round = self.collect(recording);
        recording.report.threads = self.roster.counts(round.threads.len());
        recording.report.delayed = cx.liveness().delayed();
        recording.remove_waiting();
        weigh(recording, &mut round.threads);
        let pool = &self.pool;
        if let Some(thread) = self.roster.draw(|thread| pool.is_walking(thread.0)) {
            self.pool.walk(thread);
        }
        Ok(round)
    }
}

/// Adds the result of another walk in the same round.
fn add(all: &mut Outcome, other: &Outcome) {
    all.retries += other.retries;
    all.stood += other.stood;
    all.ended += other.ended;
    all.left_out += other.left_out;
    all.abandoned += other.abandoned;
    all.gives_up |= other.gives_up;
}

/// Sets the weight of each sample, and its thread's processor time.
fn weigh(recording: &mut Recording, threads: &mut [SampledThread]) {
    let Recording { options, buffer, activity, .. } = recording;
    let now = Instant::now();
    buffer.weigh(|stack, _| {
        let Some(thread) = threads.get_mut(stack.thread) else { return Duration::ZERO };
        thread.cpu_time = activity.weigh(thread.id.0, now);
        // A thread that has ended has no clock any more.
        thread.cpu_time.unwrap_or(options.interval)
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::error::S_OK;
    use crate::prelude::*;
    use crate::sampler::sampling::run_with;
    use crate::sampler::{Mode, SampledFrame, Sampler, Strategy};
    use crate::testing::FakeClr;

    /// Two threads that walk. A walk lasts until the third round after it was begun.
    #[derive(Default)]
    struct Slow {
        walks: Vec<(SampledThread, u32)>,
    }

    impl WalkerPool for Slow {
        fn is_walking(&self, thread: ThreadId) -> bool {
            self.walks.iter().any(|(walked, _)| walked.id.0 == thread)
        }

        fn walk(&mut self, thread: SampledThread) {
            assert!(!self.is_walking(thread.id.0), "it is being walked");
            if self.walks.len() < 2 {
                self.walks.push((thread, 0));
            }
        }

        fn collect(&mut self, take: &mut dyn FnMut(SampledThread, Outcome, &SampleBuffer)) {
            self.walks.iter_mut().for_each(|(_, rounds)| *rounds += 1);
            for (thread, _) in self.walks.extract_if(.., |(_, rounds)| *rounds == 3) {
                let mut buffer = SampleBuffer::new(10);
                buffer.prepare(1);
                buffer.record(0, |writer| {
                    writer.write(SampledFrame { function: FunctionId::from_raw(thread.id.0.as_raw()), ip: 1 });
                    Some(S_OK)
                });
                take(thread, Outcome { stood: Duration::from_micros(10), ..Outcome::default() }, &buffer);
            }
        }
    }

    /// The thread and the leaf of each sample of a round.
    type Samples = Vec<(usize, usize)>;

    /// Keeps all rounds.
    #[derive(Default, Profiler)]
    #[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0053", no_export)]
    struct Draws(Arc<Mutex<Vec<Samples>>>);

    #[callbacks]
    impl Callbacks for Draws {
        fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
            let profiler = Self::default();
            cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT | EventMask::MONITOR_THREADS)?;
            let rounds = Arc::clone(&profiler.0);
            cx.spawn_profiler_thread("sampler", move |cx| {
                // By the wall clock: the threads of the fake CLR do not run.
                let sampler = Sampler::every(Duration::from_millis(1)).mode(Mode::Wall).budget(1.0);
                let running = Box::new(Drawn::new(Slow::default()));
                run_with(running, Strategy::Seeded, sampler, cx, &mut |round| {
                    let leaf = |frames: &[SampledFrame]| frames[0].function.map_or(0, |function| function.as_raw());
                    let ThreadCounts { seen, walked, not_drawn, .. } = round.report().threads;
                    assert_eq!(seen, walked + not_drawn);
                    let samples = round.samples();
                    let samples = samples.map(|sample| (sample.thread().id.0.as_raw(), leaf(sample.frames())));
                    rounds.lock().unwrap().push(samples.collect());
                });
            })?;
            Ok(profiler)
        }
    }

    #[test]
    fn each_round_has_one_more_thread_walked_and_collects_what_has_ended() {
        let mut clr = FakeClr::load::<Draws>().unwrap();
        clr.start_up();
        let threads: Vec<_> = (0..3).map(|_| clr.create_thread().as_raw()).collect();
        let rounds = Arc::clone(&clr.profiler::<Draws>().unwrap().0);
        let start = Instant::now();
        let are_all_seen = |rounds: &[Samples]| {
            threads.iter().all(|thread| rounds.iter().flatten().filter(|(seen, _)| seen == thread).count() >= 10)
        };
        while !are_all_seen(&rounds.lock().unwrap()) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", rounds.lock().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
        clr.shutdown();
        let rounds = rounds.lock().unwrap();
        assert!(rounds.iter().all(|samples| samples.len() <= 1), "two begin in different rounds, and last as long");
        assert!(rounds.iter().flatten().all(|(thread, leaf)| thread == leaf), "the stack of another thread");
    }
}
