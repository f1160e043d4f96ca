//! What the sampler's thread does: wait for the next round, look who is there, have them walked, hand the stacks over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::id::{Inert, ThreadId};
use crate::own_thread::OwnThread;
use crate::report;
use crate::system;

use super::budget::Budget;
use super::report::Report;
use super::round::{Round, SampledThread};
use super::sampler::Sampler;
use super::strategy::{self, Strategy, Target, Walker};
use super::tape::Tape;

/// What the profiler gets to see.
type See<'s> = &'s mut dyn FnMut(&mut Round<'_, '_>);

/// The sampler at work.
struct Sampling {
    sampler: Sampler,
    budget: Budget,
    tape: Tape,
    report: Report,
    /// The time that each thread had run by the round before.
    cpu_times: HashMap<ThreadId, Duration>,
    /// The thread that the next round begins with, as the last one had no time for it.
    first: Option<ThreadId>,
    /// The strategy has given up.
    is_given_up: bool,
}

/// The thread's whole life.
pub(crate) fn run(#[allow(unused_mut)] mut sampler: Sampler, cx: &mut OwnThread<'_>, see: See<'_>) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    if sampler.strategy == Strategy::Signals {
        match strategy::signals::run(&mut sampler, cx, see) {
            Ok(()) => return,
            Err(why) => report::line(format_args!("the sampler stops threads from now on, instead of signals: {why}")),
        }
        sampler.strategy = Strategy::SuspendedRuntime;
    }
    match strategy::begin(sampler.strategy, cx) {
        Ok(walker) => run_with(walker, sampler, cx, see),
        Err(error) => report::line(format_args!("the sampler does not start: {error}")),
    }
}

fn run_with<'i>(walker: Box<dyn Walker + 'i>, sampler: Sampler, cx: &mut OwnThread<'i>, see: See<'_>) {
    let mut sampling = Sampling {
        budget: Budget::new(sampler.budget, Instant::now()),
        tape: Tape::new(sampler.depth),
        report: Report { strategy: sampler.strategy, ..Report::default() },
        cpu_times: HashMap::new(),
        first: None,
        is_given_up: false,
        sampler,
    };
    if let Err(why) = sampling.run(cx, walker, see) {
        report::line(format_args!("the sampler has ended, the profiler goes on without it: {why}"));
    }
}

impl Sampling {
    /// Makes rounds until the thread should come to an end; the reason if that is before.
    fn run<'i>(
        &mut self,
        cx: &mut OwnThread<'i>,
        mut walker: Box<dyn Walker + 'i>,
        see: See<'_>,
    ) -> Result<(), String> {
        let interval = self.sampler.interval;
        let mut last = Instant::now();
        let mut next = last + interval;
        loop {
            if cx.wait(next.saturating_duration_since(Instant::now())).is_break() {
                return Ok(());
            }
            let now = Instant::now();
            let missed = now.saturating_duration_since(next).div_duration_f64(interval) as u32;
            self.report.skipped.late += u64::from(missed);
            next += interval * missed.saturating_add(1);
            let wait = self.budget.wait(now);
            if !wait.is_zero() {
                // Waking up would cost something as well.
                let more = wait.div_duration_f64(interval) as u32;
                self.report.skipped.budget += 1 + u64::from(more);
                next += interval * more;
                continue;
            }
            // A thread that has become a managed one would wait for itself (suspension rule 1).
            if cx.current_thread() != Ok(None) {
                return Err("its closure has called managed code, and a managed thread must not stop others".to_owned());
            }
            if let Some(threads) = self.round(cx, walker.as_mut())? {
                let elapsed = now.saturating_duration_since(last);
                last = now;
                see(&mut Round {
                    cx,
                    threads: &threads,
                    tape: &self.tape,
                    elapsed,
                    report: &self.report,
                    natives: None,
                });
            }
            if std::mem::take(&mut self.is_given_up) {
                let other = Strategy::SuspendedRuntime;
                walker = strategy::begin(other, cx).map_err(|error| error.to_string())?;
                self.report.strategy = other;
            }
        }
    }

    /// Has the threads walked onto the tape, and answers who they are; none if there was nothing to see.
    fn round(&mut self, cx: &mut OwnThread<'_>, walker: &mut dyn Walker) -> Result<Option<Vec<SampledThread>>, String> {
        let listed = cx.enum_threads().map_err(|error| error.to_string())?;
        let (targets, threads) = self.choose(cx, listed).map_err(|error| error.to_string())?;
        if targets.is_empty() {
            self.report.skipped.empty += 1;
            return Ok(None);
        }
        self.tape.prepare(targets.len());
        let look_up = cx.alive().look_up();
        let outcome = walker.walk(&targets, &mut self.tape, self.sampler.longest);
        self.tape.take_note(cx);
        drop(look_up);
        self.report.delayed = cx.alive().delayed();
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
        self.budget.spend(outcome.stood);
        self.report.note(&outcome, &self.tape);
        let left = targets.len() - outcome.left_out.min(targets.len());
        self.first = targets.get(left).map(|target| target.thread);
        match outcome.stuck {
            Some(code) => {
                Err(format!("the threads could not be resumed: {}", crate::Error::new(code, "ResumeRuntime")))
            }
            None => Ok(Some(threads)),
        }
    }

    /// Chooses those of the `listed` threads that are to be walked. All that needs memory or a lock is done here.
    fn choose<'i>(
        &mut self,
        cx: &'i OwnThread<'_>,
        mut listed: Vec<ThreadId>,
    ) -> crate::Result<(Vec<Target<'i>>, Vec<SampledThread>)> {
        if let Some(first) = self.first.take().and_then(|first| listed.iter().position(|&thread| thread == first)) {
            listed.rotate_left(first);
        }
        let claims: Vec<_> = listed.iter().filter_map(|&thread| Some((thread, cx.alive().claim(thread)?))).collect();
        let mut counts = super::report::ThreadCounts { seen: listed.len(), ..Default::default() };
        counts.ended = listed.len() - claims.len();
        let mut cpu_times = HashMap::with_capacity(claims.len());
        let (mut targets, mut threads) = (Vec::with_capacity(claims.len()), Vec::with_capacity(claims.len()));
        for (thread, claim) in claims {
            let os_id = cx.os_thread_id(thread).ok();
            let total = os_id.and_then(system::cpu_time);
            let before = self.cpu_times.get(&thread);
            let cpu_time = total.zip(before).map(|(total, before)| total.saturating_sub(*before));
            cpu_times.extend(total.map(|total| (thread, total)));
            let name = cx.thread_names().of(thread);
            let sampled = SampledThread { id: Inert(thread), os_id, name, cpu_time };
            if self.sampler.filter.as_mut().is_some_and(|wants| !wants(&sampled)) {
                counts.filtered += 1;
            } else if self.sampler.is_on_cpu && cpu_time == Some(Duration::ZERO) {
                counts.idle += 1;
            } else {
                targets.push(Target { thread, os_id, claim });
                threads.push(sampled);
            }
        }
        self.cpu_times = cpu_times;
        self.report.threads = counts;
        Ok((targets, threads))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::strategy::Outcome;
    use super::*;
    use crate::prelude::*;
    use crate::testing::FakeClr;

    /// Walks nobody, and gives up in its third round.
    struct GivesUp(u32);

    impl Walker for GivesUp {
        fn walk(&mut self, targets: &[Target<'_>], _: &mut Tape, _: Duration) -> Outcome {
            self.0 += 1;
            let abandoned = targets.len() as u32;
            Outcome { abandoned, gives_up: self.0 == 3, ..Outcome::default() }
        }
    }

    /// Tells of each round the strategy and the samples.
    #[derive(Default, Profiler)]
    #[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0051", no_export)]
    struct Rounds(Arc<Mutex<Vec<(Strategy, usize)>>>);

    #[callbacks]
    impl Callbacks for Rounds {
        fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
            cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT | EventMask::MONITOR_THREADS)?;
            let rounds = Arc::clone(&self.0);
            cx.spawn_own_thread("sampler", move |cx| {
                let sampler = Sampler { strategy: Strategy::Seeded, ..Sampler::every(Duration::from_millis(1)) };
                run_with(Box::new(GivesUp(0)), sampler, cx, &mut |round| {
                    rounds.lock().unwrap().push((round.report().strategy, round.samples().count()));
                });
            })?;
            Ok(())
        }
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
        let seeded = rounds.iter().take_while(|(strategy, _)| *strategy == Strategy::Seeded);
        assert_eq!(
            seeded.map(|(_, samples)| samples).collect::<Vec<_>>(),
            [&0; 3],
            "three rounds, of walks that were given up"
        );
        assert!(rounds[3..].iter().all(|(strategy, _)| *strategy == Strategy::SuspendedRuntime));
    }
}
