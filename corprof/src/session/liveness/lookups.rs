//! [`LookUps`]: calls that may find anything loaded, by address or by enumeration.
//!
//! Such a call has no identifier that could be pinned. Instead, the unload of a module waits for all look-ups under
//! way, so that everything they find stays in memory until they have finished with it.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::wait_while;

/// The look-ups under way.
///
/// They are counted in two groups that take turns. A waiting thread lets the next group begin and waits for the other
/// group only, so an unbroken series of look-ups cannot block it for ever.
pub(super) struct LookUps {
    /// How many times a thread has waited. Its remainder by two is the current group.
    turn: AtomicU32,
    counts: [AtomicU32; 2],
}

/// A look-up. No loaded module is unloaded until it is dropped.
pub(crate) struct LookUp<'a>(&'a AtomicU32);

impl Drop for LookUp<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl LookUps {
    pub(super) const fn new() -> Self {
        Self { turn: AtomicU32::new(0), counts: [const { AtomicU32::new(0) }; 2] }
    }

    fn count(&self, turn: u32) -> &AtomicU32 {
        let [even, odd] = &self.counts;
        if turn & 1 == 0 { even } else { odd }
    }

    pub(super) fn begin(&self) -> LookUp<'_> {
        loop {
            let turn = self.turn.load(SeqCst);
            let look_up = LookUp(self.count(turn));
            look_up.0.fetch_add(1, SeqCst);
            // Otherwise the turn has changed in between, and the waiting thread may not have seen this look-up.
            if self.turn.load(SeqCst) == turn {
                return look_up;
            }
        }
    }

    /// Waits until all look-ups that have begun are over; ignores those that begin meanwhile.
    pub(super) fn wait(&self) {
        let count = self.count(self.turn.fetch_add(1, SeqCst));
        wait_while(|| count.load(SeqCst) != 0, "a look-up of functions, or stack sampling,");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_waits_waits_for_what_has_begun_and_not_for_the_next() {
        let look_ups = LookUps::new();
        look_ups.wait();
        drop(look_ups.begin());
        look_ups.wait();

        let first = look_ups.begin();
        let has_begun = AtomicBool::new(false);
        let has_waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                has_begun.store(true, SeqCst);
                look_ups.wait();
                has_waited.store(true, SeqCst);
            });
            while !has_begun.load(SeqCst) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(!has_waited.load(SeqCst), "the look-up goes on");
            drop(first);
            // One look-up begins before the last ends: the waiting thread sees no pause.
            let mut next = look_ups.begin();
            while !has_waited.load(SeqCst) {
                let following = look_ups.begin();
                drop(next);
                next = following;
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    #[test]
    fn nothing_goes_during_a_look_up() {
        const ROUNDS: usize = 2000;
        let look_ups = LookUps::new();
        let is_going = AtomicBool::new(false);
        let memory = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    is_going.store(true, SeqCst);
                    look_ups.wait();
                    memory.store(false, SeqCst);
                    std::thread::yield_now();
                    memory.store(true, SeqCst);
                    is_going.store(false, SeqCst);
                }
            });
            for _ in 0..ROUNDS {
                let _look_up = look_ups.begin();
                if !is_going.load(SeqCst) {
                    for _ in 0..10 {
                        assert!(memory.load(SeqCst), "gone in the middle of a look-up");
                    }
                }
            }
        });
    }
}
