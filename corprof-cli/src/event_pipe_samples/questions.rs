//! Asks the threads of a process what they run, again and again: otherwise one that is never idle tells it late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use corprof_async::{ANSWER_TIME, QUESTION_INTERVAL};
use corprof_diagnostics::{Client, EventPipeSession, Level, SessionConfig};

use super::async_callers;

/// The time limit for the end of a session.
const PATIENCE: Duration = Duration::from_secs(5);

/// Questions, and the times of those that are not answered yet.
#[derive(Debug)]
pub(super) struct Questions {
    asked: VecDeque<(u64, Instant)>,
    last: Instant,
    /// A second session, whose start or end has all threads write what they hold. It wants a level without events.
    second: Option<EventPipeSession>,
}

impl Questions {
    /// The start of the session of samples was the first one.
    pub(super) fn new() -> Self {
        Self { asked: VecDeque::new(), last: Instant::now(), second: None }
    }

    /// Asks, if it is time. `now` is the time of the last event.
    ///
    /// # Errors
    /// If the process cannot be asked.
    pub(super) fn ask_if_due(&mut self, client: &Client, now: u64) -> Result<()> {
        if self.last.elapsed() < QUESTION_INTERVAL {
            return Ok(());
        }
        match self.second.take() {
            Some(second) => end(second)?,
            None => {
                let config = SessionConfig::new([async_callers::provider(Level::Error)]).with_buffer_mb(1);
                self.second = Some(client.start_session(&config)?);
            }
        }
        // What a thread did while it was asked, it may hold again.
        self.last = Instant::now();
        self.asked.push_back((now, self.last));
        Ok(())
    }

    /// The time up to which all threads have answered, if that has changed.
    pub(super) fn answered(&mut self) -> Option<u64> {
        let mut until = None;
        while let Some((ticks, at)) = self.asked.front()
            && at.elapsed() >= ANSWER_TIME
        {
            until = Some(*ticks);
            self.asked.pop_front();
        }
        until
    }
}

/// Ends a session that has no events.
fn end(mut session: EventPipeSession) -> Result<()> {
    session.set_read_timeout(Some(PATIENCE));
    session.stop()?;
    std::io::copy(&mut session, &mut std::io::sink())?;
    Ok(())
}
