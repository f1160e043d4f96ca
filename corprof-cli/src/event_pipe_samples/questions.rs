//! Asks the threads of a process what they run: otherwise one that is never idle tells it late.
//!
//! The runtime answers some time later, and later still on a busy machine. How late the process is shows in its
//! samples: the thread that takes them wants to do so each millisecond. All times are those of the trace, for what has
//! not been read yet is no answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use corprof_async::{ANSWER_TIME, QUESTION_INTERVAL, time_when_late};
use corprof_diagnostics::{Client, Level};

use super::async_callers;
use crate::async_trace::SecondSession;

/// Tells the time of a trace, which began between the request for it and the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct TraceClock {
    requested: Instant,
    answered: Instant,
}

impl TraceClock {
    /// The request was made at this time, and is answered now.
    pub(super) fn new(requested: Instant) -> Self {
        Self { requested, answered: Instant::now() }
    }

    /// At least this time has passed since the begin of the trace.
    pub(super) fn at_least(&self) -> Duration {
        self.answered.elapsed()
    }

    /// At most this time has passed.
    pub(super) fn at_most(&self) -> Duration {
        self.requested.elapsed()
    }
}

/// Questions, and those that are not answered yet.
#[derive(Debug)]
pub(super) struct Questions {
    last: Question,
    /// The oldest first.
    unanswered: VecDeque<Question>,
    /// The time of the last sample.
    until: Duration,
    second: SecondSession,
}

/// When threads were asked: between two times since the begin of the trace.
#[derive(Debug, Clone, Copy, Default)]
struct Question {
    earliest: Duration,
    latest: Duration,
    /// The longest time between two samples since then.
    pause: Duration,
}

impl Question {
    /// Whether this time has passed, and as much more as the process may be late.
    fn is_past(&self, time: Duration, now: Duration) -> bool {
        now >= self.latest + time_when_late(time, self.pause)
    }
}

impl Questions {
    /// The start of the session of samples was the first one.
    pub(super) fn new() -> Self {
        let last = Question::default();
        Self { last, unanswered: VecDeque::new(), until: Duration::ZERO, second: SecondSession::default() }
    }

    /// A sample was taken at this time.
    pub(super) fn sampled(&mut self, at: Duration) {
        let pause = at.saturating_sub(self.until);
        self.until = self.until.max(at);
        for question in self.unanswered.iter_mut().chain([&mut self.last]) {
            question.pause = question.pause.max(pause);
        }
    }

    /// Whether threads may be asked again: asked earlier, they would answer later.
    pub(super) fn is_due(&self) -> bool {
        self.last.is_past(QUESTION_INTERVAL, self.until)
    }

    /// Asks.
    ///
    /// # Errors
    /// If the process cannot be asked.
    pub(super) fn ask(&mut self, client: &Client, clock: TraceClock) -> Result<()> {
        let earliest = clock.at_least();
        self.second.toggle(client, async_callers::provider(Level::Error))?;
        self.last = Question { earliest, latest: clock.at_most(), pause: Duration::ZERO };
        self.unanswered.push_back(self.last);
        Ok(())
    }

    /// The time up to which all threads have answered, if that has changed.
    pub(super) fn answered(&mut self) -> Option<Duration> {
        let mut until = None;
        while let Some(question) = self.unanswered.front()
            && question.is_past(ANSWER_TIME, self.until)
        {
            until = Some(question.earliest);
            self.unanswered.pop_front();
        }
        until
    }

    /// Whether there are questions without an answer.
    pub(super) fn awaits_an_answer(&self) -> bool {
        !self.unanswered.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_late_has_more_time_to_answer() {
        let mut questions = Questions::new();
        let [earliest, latest] = [1_900, 2_000].map(Duration::from_millis);
        let asked = Question { earliest, latest, pause: Duration::ZERO };
        questions.sampled(latest);
        questions.last = asked;
        questions.unanswered.push_back(asked);
        let mut answer_at = |millis| {
            questions.sampled(Duration::from_millis(millis));
            (questions.is_due(), questions.answered())
        };
        assert_eq!(answer_at(2_500), (false, None));
        assert_eq!(answer_at(3_000), (false, None));
        assert_eq!(answer_at(3_500), (false, None));
        assert_eq!(answer_at(4_000), (false, None), "in time, but for pauses of half a second");
        assert_eq!(answer_at(4_500), (true, None));
        assert_eq!(answer_at(4_800), (true, Some(earliest)));
        assert_eq!(answer_at(4_900), (true, None));
        assert!(!questions.awaits_an_answer());
    }
}
