//! Moments by which something must be done.

use std::io;
use std::time::{Duration, Instant};

/// The moment by which an operation ends, done or not. No deadline never ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// So long from now. A time beyond the clock's reach is none.
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    pub(crate) const fn never() -> Self {
        Self(None)
    }

    /// How much is left: nothing without a deadline, and never zero, which systems take for "for ever".
    pub(crate) fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        match end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// The remaining time, at most `most`.
    pub(crate) fn left_at_most(self, most: Duration) -> io::Result<Duration> {
        Ok(self.left()?.map_or(most, |left| left.min(most)))
    }
}
