//! Gives the threads their earlier alternate stacks back, when the profiler leaves the process.
//!
//! Otherwise each thread that ends after that would leave its larger stack and the runtime's in the address space.

use std::time::{Duration, Instant};

use crate::system::signals::{GivingBack, Progress};

use super::threads::PreparedThreads;

/// How long threads may take until they can be asked. One that takes longer keeps its larger stack.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long they may take altogether. One that was asked answers as soon as it gets a processor, which takes its time on
/// a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Gives all stacks back. The sampler's thread has ended, and there is no new one.
pub(crate) fn leave() {
    let Some(threads) = PreparedThreads::known() else { return };
    let start = Instant::now();
    while threads.is_preparing() && start.elapsed() < TIMEOUT {
        threads.take_answers();
        std::thread::sleep(PAUSE);
    }
    let mut open = threads.dismiss_all();
    loop {
        let mut still_open = Vec::new();
        for thread in open {
            match thread.advance() {
                Progress::Over(slot) => threads.give_back(slot),
                Progress::Open(thread) if is_too_late(&thread, start.elapsed()) => thread.give_up(),
                Progress::Open(thread) => still_open.push(thread),
            }
        }
        if still_open.is_empty() {
            return;
        }
        open = still_open;
        std::thread::sleep(PAUSE);
    }
}

fn is_too_late(thread: &GivingBack, elapsed: Duration) -> bool {
    elapsed > if thread.is_asked() { ANSWER_TIMEOUT } else { TIMEOUT }
}
