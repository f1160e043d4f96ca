//! Rounds that walk one thread, drawn from those at work.
//!
//! The draw is even, so a thread is seen at random moments of its work, and the weights of its samples add up to its processor
//! time. A round does not wait for the walk: it collects those that have ended since the last round.

use std::time::{Duration, Instant};

use crate::id::{Inert, ThreadId};
use crate::profiler_thread::ProfilerThread;

use super::report::ThreadCounts;
use super::round::SampledThread;
use super::sampling::{Sampling, Survey, share};
use super::strategy::{Hands, Outcome};

/// How long a list of the threads is used. Windows counts processor time in steps of 16 ms, so that asking much more often would
/// give the same answers; and asking costs: a system call per thread, and under Wine a message to its server.
const VALID: Duration = Duration::from_millis(50);

/// The threads at work, as of the last look at all threads.
#[derive(Default)]
pub(crate) struct Roster {
    at_work: Vec<SampledThread>,
    counts: ThreadCounts,
    looked: Option<Instant>,
    random: fastrand::Rng,
}

impl Roster {
    /// Whether all threads must be looked at again.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= VALID)
    }

    /// Replaces the list; returns the time since the last one, if there was one.
    pub(crate) fn renew(
        &mut self,
        at_work: Vec<SampledThread>,
        counts: ThreadCounts,
        now: Instant,
    ) -> Option<Duration> {
        (self.at_work, self.counts) = (at_work, counts);
        self.looked.replace(now).map(|before| now.saturating_duration_since(before))
    }

    /// How many threads are at work.
    pub(crate) fn len(&self) -> usize {
        self.at_work.len()
    }

    /// The counts of a round with this number of walks, of which some may be of threads that are no longer at work.
    pub(crate) fn counts(&self, walks: usize) -> ThreadCounts {
        let seen = self.counts.seen + walks.saturating_sub(self.at_work.len());
        ThreadCounts { seen, not_drawn: self.at_work.len().saturating_sub(walks), ..self.counts }
    }

    /// One of the threads that are not being walked.
    pub(crate) fn draw(&mut self, is_walked: impl Fn(Inert<ThreadId>) -> bool) -> Option<SampledThread> {
        let free = self.at_work.iter().filter(|thread| !is_walked(thread.id));
        self.random.choice(free.collect::<Vec<_>>()).cloned()
    }
}

impl Sampling {
    /// Collects the stacks of single threads, and has another thread walked.
    pub(super) fn round_of_one(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        hands: &mut dyn Hands,
        now: Instant,
    ) -> Result<Vec<SampledThread>, String> {
        let started = cx.liveness().threads_started();
        if self.roster.is_stale(now) {
            let listed = cx.enum_threads().map_err(|error| error.to_string())?;
            let Survey { wanted, looks, counts, .. } = self.survey(cx, listed);
            let wanted = wanted.into_iter().map(|(thread, _)| thread).collect();
            let elapsed = self.roster.renew(wanted, counts, now).unwrap_or_default();
            self.report.cpu_time += self.activity.end_round(looks, elapsed);
            self.report.unseen = started.saturating_sub(self.activity.seen());
        }
        let (mut threads, mut all) = (Vec::new(), Outcome::default());
        self.buffer.prepare(1);
        hands.collect(&mut |thread, outcome, stacks| {
            self.buffer.append(threads.len(), stacks);
            threads.push(thread);
            self.report.suspension.add(outcome.stood);
            all.add(outcome);
        });
        self.report.threads = self.roster.counts(threads.len());
        self.report.delayed = cx.liveness().delayed();
        self.report.retries += u64::from(all.retries);
        self.report.abandoned += u64::from(all.abandoned);
        self.is_given_up |= all.gives_up;
        self.budget.spend(share(all.stood, self.roster.len()));
        let waited = self.buffer.leave_out_waits();
        self.report.threads.idle += waited;
        self.report.waited += waited as u64;
        let (activity, now, interval) = (&mut self.activity, Instant::now(), self.sampler.interval);
        self.buffer.weigh(|stack, _| {
            let Some(thread) = threads.get_mut(stack.thread) else { return Duration::ZERO };
            thread.cpu_time = activity.weigh(thread.id.0, now);
            // A thread that has ended has no clock any more.
            thread.cpu_time.unwrap_or(interval)
        });
        self.report.note(&all, &self.buffer);
        if let Some(thread) = self.roster.draw(|thread| hands.is_walking(thread.0)) {
            hands.walk(thread);
        }
        Ok(threads)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::sample_buffer::{SampleBuffer, SampledFrame};
    use super::super::sampler::{Mode, Sampler};
    use super::super::sampling::run_with;
    use super::super::strategy::{Running, Strategy};
    use super::*;
    use crate::error::S_OK;
    use crate::prelude::*;
    use crate::testing::FakeClr;

    /// Two hands. A walk lasts until the third round after it was begun.
    #[derive(Default)]
    struct Slow {
        walks: Vec<(SampledThread, u32)>,
    }

    impl Hands for Slow {
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
                run_with(Running::One(Box::<Slow>::default()), Strategy::Seeded, sampler, cx, &mut |round| {
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
