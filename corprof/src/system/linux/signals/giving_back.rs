//! Has threads set their earlier alternate stacks again, when the profiler leaves the process.
//!
//! A thread is asked by a signal, and its handler exchanges the stack as `older.rs` describes. The memory of the larger
//! stack is freed afterwards. So the handler refuses while another handler may have a frame there.

use super::sample_slot::ExchangeOutcome;
use super::{Address, AlternateStack, OlderThread, SampleSlot, Sending};

/// A thread that gives its larger alternate stack back. It receives no other signals any more.
pub(crate) struct GivingBack {
    address: Address,
    slot: &'static SampleSlot,
    larger: AlternateStack,
    is_asked: bool,
}

/// What has come of it.
pub(crate) enum Progress {
    /// The larger stack is freed, or it stays for good. The slot is idle.
    Over(&'static SampleSlot),
    /// The thread has not answered yet, or is to be asked again.
    Open(GivingBack),
}

impl GivingBack {
    pub(crate) fn new(address: Address, slot: &'static SampleSlot, larger: AlternateStack) -> Self {
        Self { address, slot, larger, is_asked: false }
    }

    /// Asks, or takes the answer. Call it again after a while if it is open.
    pub(crate) fn advance(self) -> Progress {
        if self.is_asked { self.take_answer() } else { self.ask() }
    }

    /// Whether it was asked and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked
    }

    fn ask(mut self) -> Progress {
        self.slot.withdraw();
        self.slot.read(|_| ());
        if self.address.has_ended() {
            self.larger.free();
            return Progress::Over(self.slot);
        }
        // It would be woken.
        let thread = OlderThread::open(self.address.thread.cast_unsigned());
        if thread.is_some_and(|thread| thread.would_wake()) || self.address.blocks_signal() {
            return Progress::Open(self);
        }
        match self.larger.request_back(self.slot, self.address) {
            Sending::Done => self.is_asked = true,
            Sending::NotNow => {}
            Sending::Forbidden | Sending::Replaced => return Progress::Over(self.slot),
        }
        Progress::Open(self)
    }

    fn take_answer(mut self) -> Progress {
        let Some(exchange) = self.slot.take_exchange() else {
            // Withdrawn first: it may have answered, and then have ended.
            if self.address.has_ended() && self.slot.withdraw_exchange() {
                self.larger.free();
                return Progress::Over(self.slot);
            }
            return Progress::Open(self);
        };
        match exchange.outcome {
            ExchangeOutcome::Done => {
                self.larger.unmap();
                Progress::Over(self.slot)
            }
            // Somebody else has replaced it, and may set it again.
            ExchangeOutcome::NotNeeded => Progress::Over(self.slot),
            ExchangeOutcome::Refused => {
                self.is_asked = false;
                Progress::Open(self)
            }
        }
    }

    /// Leaves the thread its larger stack.
    pub(crate) fn give_up(self) {
        self.slot.withdraw_exchange();
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::io::Write;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::super::alternate_stack::current;
    use super::super::alternate_stack::tests::set_small;
    use super::super::older::tests::{prepare, wait_for_byte};
    use super::super::{Prepared, install};
    use super::*;

    /// A thread that was prepared, with its larger stack, and what it said at its end.
    fn with_prepared<R: Send>(
        thread: impl FnOnce(&std::io::PipeReader) -> R + Send,
        test: impl FnOnce(GivingBack, &mut dyn FnMut()),
    ) -> R {
        install().unwrap();
        std::thread::scope(|scope| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let (sender, receiver) = mpsc::channel();
            let handle = scope.spawn(move || {
                set_small();
                sender.send(Address::own()).unwrap();
                wait_for_byte(&reader);
                thread(&reader)
            });
            let address = receiver.recv().unwrap();
            let slot = SampleSlot::new(100).unwrap();
            let Prepared::Yes(Some(larger)) = prepare(address, slot) else { panic!("not prepared") };
            let mut go_on = || writer.write_all(b"x").unwrap();
            test(GivingBack::new(address, slot, larger), &mut go_on);
            handle.join().unwrap()
        })
    }

    /// Advances until it is over, or for so long.
    fn advance(mut giving_back: GivingBack, longest: Duration) -> Progress {
        let start = Instant::now();
        loop {
            match giving_back.advance() {
                Progress::Open(open) => giving_back = open,
                over @ Progress::Over(_) => return over,
            }
            if start.elapsed() > longest {
                return Progress::Open(giving_back);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_has_its_earlier_stack_again() {
        let size = with_prepared(
            |_| current().unwrap().ss_size,
            |giving_back, go_on| {
                let answer = advance(giving_back, Duration::from_secs(60));
                assert!(matches!(answer, Progress::Over(slot) if slot.is_idle()));
                go_on();
            },
        );
        assert_eq!(size, 16 * 1024);
    }

    #[test]
    fn a_stack_that_a_handler_may_be_on_is_kept() {
        let (sender, receiver) = mpsc::channel();
        let sizes = with_prepared(
            move |reader| {
                // As in a handler that has left the stack by a jump.
                let larger = current().unwrap();
                let within = larger.ss_sp.addr() + 1000;
                black_box(&within);
                sender.send(()).unwrap();
                wait_for_byte(reader);
                black_box(&within);
                [larger.ss_size, current().unwrap().ss_size]
            },
            |giving_back, go_on| {
                go_on();
                receiver.recv().unwrap();
                let Progress::Open(open) = advance(giving_back, Duration::from_millis(100)) else {
                    panic!("given back")
                };
                open.give_up();
                go_on();
            },
        );
        assert_eq!(sizes, [128 * 1024; 2]);
    }

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let mut kept = None;
        with_prepared(
            |_| (),
            |giving_back, go_on| {
                go_on();
                kept = Some(giving_back);
            },
        );
        let answer = advance(kept.unwrap(), Duration::from_secs(60));
        assert!(matches!(answer, Progress::Over(_)));
    }
}
