//! How late a thread is: on a busy machine, or in a process with a part of a processor, it goes on later than it has
//! asked for.

use std::time::{Duration, Instant};

/// What a thread that waits again and again has waited too long.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    due: Option<Instant>,
    total: Duration,
}

impl Lateness {
    /// The thread is about to wait for this long.
    pub(super) fn expect(&mut self, pause: Duration) {
        self.due = Some(Instant::now() + pause);
    }

    /// The thread goes on.
    pub(super) fn take(&mut self) {
        let Some(due) = self.due.take() else { return };
        self.total += due.elapsed();
    }

    /// How late it was so far, all in all.
    pub(super) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_long_counts() {
        let mut lateness = Lateness::default();
        lateness.take();
        lateness.expect(Duration::from_secs(3600));
        lateness.take();
        assert_eq!(lateness.total(), Duration::ZERO);
        lateness.expect(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        lateness.take();
        let first = lateness.total();
        assert!(first >= Duration::from_millis(2));
        lateness.take();
        assert_eq!(lateness.total(), first);
    }
}
