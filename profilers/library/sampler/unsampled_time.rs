//! The processor time that no sample stands for: of threads without managed code, such as those of the server collector
//! and of native libraries, and of threads that are never met at work. Without it, shares look as if they were of
//! everything that the process did.

use std::time::{Duration, Instant};

/// A smaller part of the time is not worth a line.
const LEAST: f64 = 0.1;

/// Less processor time than this says nothing.
const LEAST_TIME: Duration = Duration::from_millis(200);

/// When the comparison begins: after an attach, managed threads are not counted before they are prepared.
const BEGIN: Duration = Duration::from_millis(500);

/// The time between two looks: that at the time of the process costs more, the more threads it has.
const PAUSE: Duration = Duration::from_millis(100);

/// Compares the time of the process with that of its managed threads, and that with the samples.
#[derive(Default)]
pub(super) struct UnsampledTime {
    first: Option<Times>,
    last: Times,
    next_look: Option<Instant>,
    /// The processor time of the thread that writes the profile.
    writer: Duration,
}

/// Processor times at a round.
#[derive(Clone, Copy, Default)]
struct Times {
    process: Duration,
    /// That of managed threads, as the sampler counts it.
    managed: Duration,
    /// What samples stand for.
    sampled: Duration,
    /// That of the threads of the sampler itself.
    own: Duration,
}

impl UnsampledTime {
    /// Call it in a round, on the sampler's thread, with the processor time of managed threads so far, and what samples
    /// stand for.
    pub(super) fn see(&mut self, managed: Duration, sampled: Duration) {
        let now = Instant::now();
        if now < *self.next_look.get_or_insert(now + BEGIN) {
            return;
        }
        self.next_look = Some(now + PAUSE);
        let Some((process, sampler)) = times() else { return };
        self.last = Times { process, managed, sampled, own: sampler + self.writer };
        self.first.get_or_insert(self.last);
    }

    /// Call it on the thread that writes the profile.
    pub(super) fn see_writer(&mut self) {
        self.writer = times().map_or(self.writer, |(_, own)| own);
    }

    /// What a reader should know, if threads without managed code have used much.
    pub(super) fn note_of_native(&self) -> Option<String> {
        let native = self.all()?.saturating_sub(self.since_first(|times| times.managed)?);
        let share = self.share(native)?;
        Some(format!(
            "{:.0} % of the processor time was used by threads without managed code, which are not sampled (the \
             collector's, those of native libraries): shares are of the rest",
            100.0 * share
        ))
    }

    /// What a reader should know, if many threads were not met at work.
    pub(super) fn note_of_missed(&self) -> Option<String> {
        let missed = self.since_first(|times| times.managed)?.saturating_sub(self.since_first(|times| times.sampled)?);
        let share = self.share(missed)?;
        Some(format!(
            "{:.0} % of the processor time is in no sample ({:.1} s): of threads that work for shorter than the time \
             between two rounds, and were met at work too rarely. Shares may be far off",
            100.0 * share,
            missed.as_secs_f64()
        ))
    }

    fn since_first(&self, of: fn(&Times) -> Duration) -> Option<Duration> {
        Some(of(&self.last).saturating_sub(of(&self.first?)))
    }

    /// The time of the process, without the sampler's.
    fn all(&self) -> Option<Duration> {
        Some(self.since_first(|times| times.process)?.saturating_sub(self.since_first(|times| times.own)?))
    }

    /// The share of this time, if it is worth a line.
    fn share(&self, time: Duration) -> Option<f64> {
        let share = time.as_secs_f64() / self.all()?.as_secs_f64().max(f64::MIN_POSITIVE);
        (time >= LEAST_TIME && share >= LEAST).then_some(share)
    }
}

/// The processor time of the process, and of the calling thread.
#[cfg(unix)]
fn times() -> Option<(Duration, Duration)> {
    use rustix::time::{ClockId, clock_gettime};
    let time = |clock| Duration::try_from(clock_gettime(clock)).ok();
    Some((time(ClockId::ProcessCPUTime)?, time(ClockId::ThreadCPUTime)?))
}

/// Not known.
#[cfg(not(unix))]
fn times() -> Option<(Duration, Duration)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(process: u64, managed: u64, own: u64) -> Times {
        let [process, managed, own] = [process, managed, own].map(Duration::from_millis);
        Times { process, managed, sampled: managed, own }
    }

    #[test]
    fn what_native_threads_have_used_is_said_if_it_is_much() {
        let note =
            |last| UnsampledTime { first: Some(at(1000, 100, 10)), last, ..UnsampledTime::default() }.note_of_native();
        assert_eq!(UnsampledTime::default().note_of_native(), None);
        assert_eq!(note(at(1510, 450, 20)), None, "150 of 500 ms are too little to say anything");
        assert_eq!(note(at(11_000, 9800, 10)), None, "3 % are of no use to a reader");
        let said = note(at(3010, 1600, 20)).unwrap();
        assert!(said.starts_with("25 % of the processor time was used by threads without managed code"), "{said}");
    }

    #[test]
    fn what_samples_do_not_stand_for_is_said_if_it_is_much() {
        let note = |sampled| {
            let last = Times { sampled: Duration::from_millis(sampled), ..at(3010, 2900, 20) };
            UnsampledTime { first: Some(at(1000, 900, 10)), last, ..UnsampledTime::default() }.note_of_missed()
        };
        assert_eq!(note(2800), None, "5 % are of no use to a reader");
        let said = note(1900).unwrap();
        assert!(said.starts_with("50 % of the processor time is in no sample (1.0 s)"), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn threads_that_the_sampler_does_not_count_are_found() {
        let mut native = UnsampledTime::default();
        let mut see_now = || {
            native.next_look = Some(Instant::now());
            native.see(Duration::ZERO, Duration::ZERO);
        };
        let work = || {
            let begin = times().unwrap().1;
            while times().unwrap().1 - begin < 2 * LEAST_TIME {}
        };
        see_now();
        std::thread::spawn(work).join().unwrap();
        see_now();
        assert!(native.note_of_native().is_some_and(|note| note.contains("not sampled")));
    }
}
