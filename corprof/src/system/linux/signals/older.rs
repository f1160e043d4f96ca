//! Prepares threads that are older than the sampler.
//!
//! Such a thread makes no callback in which it could give itself a larger alternate stack. A signal's handler gives it
//! one: it writes the stack into `uc_stack` of the signal's frame, which the system sets when the handler returns.
//!
//! The thread may be inside of handlers of other signals: the runtime's, in which threads wait for the end of a
//! collection, is one. Their frames restore the earlier stack when they return, so it is exchanged in them as well
//! (`interrupted_handlers.rs`).
//!
//! The signal must not meet a thread that handles a fault on a small alternate stack, where there may be no room for
//! it. So it is sent to threads that wait in a system call on their own stacks, by what the system tells of them in
//! `/proc/self/task`. If a thread has begun to handle a fault after all, the handler sees it, and changes nothing.
//! A thread that sleeps in native code is left alone until it waits for something else: the signal would wake it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::super::mappings::{Mapping, mappings, read_mappings};
use super::sample_slot::{Exchange, ExchangeOutcome};
use super::{Address, AlternateStack, SampleSlot, Sending};

/// A thread whose state can be looked at, also while threads are suspended: looking allocates nothing.
#[derive(Debug)]
pub(crate) struct OlderThread {
    address: Address,
    /// `/proc/self/task/TID/syscall`.
    state: File,
}

impl OlderThread {
    /// The thread with this number in the system; none if it has ended, or the system does not tell what threads do.
    pub(crate) fn open(os_id: u32) -> Option<Self> {
        let state = File::open(format!("/proc/self/task/{os_id}/syscall")).ok()?;
        Some(Self { address: Address { thread: os_id.cast_signed() }, state })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// What the thread waits in, if it does.
    fn waits(&self) -> Option<SystemCall> {
        let mut text = [0; 256];
        let length = self.state.read_at(&mut text, 0).ok()?;
        SystemCall::read(std::str::from_utf8(text.get(..length)?).ok()?)
    }

    /// Whether it waits in a system call that a signal would end.
    pub(super) fn would_wake(&self) -> bool {
        self.waits().is_some_and(|call| call.ends_with_signals())
    }
}

/// A system call that a thread waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SystemCall {
    number: libc::c_long,
    stack_pointer: usize,
}

/// System calls that no handler lets go on (signal(7)): after a signal they return `EINTR`, for which much code is not
/// prepared. Not `epoll_wait`, in which the runtime's own threads wait, which is.
const ENDED_BY_SIGNALS: &[libc::c_long] = &[
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
];

impl SystemCall {
    /// In "NUMBER SIX-ARGUMENTS STACK-POINTER IP": `running` and "-1 STACK-POINTER IP" are not system calls.
    fn read(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let number = fields.next()?.parse::<u32>().ok()?;
        let stack_pointer = fields.nth(6)?;
        fields.next()?;
        let stack_pointer = usize::from_str_radix(stack_pointer.strip_prefix("0x")?, 16).ok()?;
        (stack_pointer != 0).then(|| Self { number: number.into(), stack_pointer })
    }

    fn ends_with_signals(self) -> bool {
        ENDED_BY_SIGNALS.contains(&self.number)
    }
}

/// The writable mappings of this process, in which its stacks are.
#[derive(Debug)]
pub(crate) struct Mappings(Vec<Range<usize>>);

impl Mappings {
    pub(crate) fn read() -> Self {
        let text = read_mappings().unwrap_or_default();
        Self(mappings(&text).filter(Mapping::is_writable).map(|mapping| mapping.range).collect())
    }

    fn with(&self, address: usize) -> Option<&Range<usize>> {
        self.0.iter().find(|mapping| mapping.contains(&address))
    }
}

/// A slot and a larger alternate stack for an older thread, which it has not made its own yet.
pub(crate) struct Preparation {
    slot: &'static SampleSlot,
    larger: AlternateStack,
}

/// What has come of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requested {
    /// The thread will answer.
    Yes,
    /// It runs.
    Runs,
    /// It waits in a system call that the signal would end, or blocks the signal. Ask again later.
    Undisturbed,
    /// The signal could not be sent.
    Not(Sending),
}

/// The answer of a thread.
pub(crate) enum Prepared {
    /// The slot is the thread's now, and it has another alternate stack if it needed one.
    Yes(Option<AlternateStack>),
    /// It handled a fault. Ask again later.
    NotNow(AlternateStack),
}

/// Asks a thread to make a slot and an alternate stack its own.
#[derive(Clone, Copy)]
pub(crate) struct PreparationRequest {
    slot: &'static SampleSlot,
    new: libc::stack_t,
}

impl PreparationRequest {
    /// Asks the thread, if it waits. Allocates nothing. The [`Preparation`] must not be discarded before it has
    /// answered.
    pub(crate) fn send(self, thread: &OlderThread, mappings: &Mappings) -> Requested {
        let Some(call) = thread.waits() else { return Requested::Runs };
        let Some(mapping) = mappings.with(call.stack_pointer) else { return Requested::Runs };
        if call.ends_with_signals() || thread.address.blocks_signal() {
            return Requested::Undisturbed;
        }
        let exchange = Exchange {
            mapping: (mapping.start, mapping.end),
            is_first_thread: thread.address.is_first_thread(),
            replaces: None,
            new: self.new,
            before: self.new,
            outcome: ExchangeOutcome::Refused,
        };
        match self.slot.request_exchange(thread.address, exchange) {
            Sending::Done => Requested::Yes,
            other => Requested::Not(other),
        }
    }
}

impl Preparation {
    /// With an idle slot, and a stack that this thread had before; none if there is no memory.
    pub(crate) fn new(slot: &'static SampleSlot, spare: Option<AlternateStack>) -> Option<Self> {
        let larger = spare.or_else(AlternateStack::unused)?;
        Some(Self { slot, larger })
    }

    pub(crate) fn slot(&self) -> &'static SampleSlot {
        self.slot
    }

    /// What a thread can be asked with.
    pub(crate) fn request(&self) -> PreparationRequest {
        PreparationRequest { slot: self.slot, new: self.larger.stack() }
    }

    /// The stack again. The thread was not asked.
    pub(crate) fn discard(self) -> AlternateStack {
        self.larger
    }

    /// What the thread has done; the preparation again if it has not answered yet.
    pub(crate) fn answer(self) -> Result<Prepared, Self> {
        let Some(exchange) = self.slot.take_exchange() else { return Err(self) };
        if exchange.outcome == ExchangeOutcome::Done {
            return Ok(Prepared::Yes(Some(self.larger.replacing(exchange.before))));
        }
        if exchange.outcome == ExchangeOutcome::Refused {
            return Ok(Prepared::NotNow(self.larger));
        }
        if exchange.before.ss_sp == self.larger.stack().ss_sp {
            // A handler that has returned has set the spare one again.
            return Ok(Prepared::Yes(Some(self.larger)));
        }
        self.larger.unmap();
        Ok(Prepared::Yes(None))
    }

    /// Gives up on a thread that does not answer, and returns the stack; the preparation again if it is answering.
    pub(crate) fn give_up(self) -> Result<AlternateStack, Self> {
        if self.slot.withdraw_exchange() { Ok(self.larger) } else { Err(self) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::super::alternate_stack::current;
    use super::super::alternate_stack::tests::set_small;
    use super::super::install;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Blocks in a system call until a byte comes.
    pub(in super::super) fn wait_for_byte(pipe: &std::io::PipeReader) {
        let mut byte = 0u8;
        // SAFETY: one byte of room.
        while unsafe { libc::read(pipe.as_raw_fd(), (&raw mut byte).cast(), 1) } < 0 {}
    }

    pub(in super::super) fn prepare(address: Address, slot: &'static SampleSlot) -> Prepared {
        let thread = OlderThread::open(address.thread.cast_unsigned()).unwrap();
        let mut preparation = Preparation::new(slot, None).unwrap();
        let start = Instant::now();
        while preparation.request().send(&thread, &Mappings::read()) == Requested::Runs {
            assert!(start.elapsed() < PATIENCE, "it does not wait");
            std::thread::yield_now();
        }
        loop {
            match preparation.answer() {
                Ok(prepared) => return prepared,
                Err(same) => preparation = same,
            }
            assert!(start.elapsed() < PATIENCE, "no answer");
            std::thread::yield_now();
        }
    }

    /// A thread that does `first`, waits in a system call while it is prepared, and then does `last`.
    fn with_older<R: Send + 'static>(
        first: impl FnOnce() + Send + 'static,
        last: impl FnOnce() -> R + Send + 'static,
    ) -> (Prepared, &'static SampleSlot, R) {
        install().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            first();
            sender.send(Address::own()).unwrap();
            wait_for_byte(&reader);
            last()
        });
        let slot = SampleSlot::new(100).unwrap();
        let prepared = prepare(receiver.recv().unwrap(), slot);
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        (prepared, slot, thread.join().unwrap())
    }

    #[test]
    fn a_thread_that_sleeps_or_blocks_the_signal_is_left_alone() {
        install().unwrap();
        let sleep = || {
            let time = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            // SAFETY: the call reads the time, and no rest is wanted.
            unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }
        };
        let block = || {
            // SAFETY: the set is made empty before it is used, and the thread ends soon.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGURG);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
            }
        };
        let waits: [fn() -> i32; 2] = [sleep, block];
        for wait in waits {
            let (sender, receiver) = mpsc::channel();
            let (reader, mut writer) = std::io::pipe().unwrap();
            let thread = std::thread::spawn(move || {
                sender.send(Address::own()).unwrap();
                let answer = wait();
                wait_for_byte(&reader);
                answer
            });
            let address = receiver.recv().unwrap();
            let older = OlderThread::open(address.thread.cast_unsigned()).unwrap();
            let preparation = Preparation::new(SampleSlot::new(100).unwrap(), None).unwrap();
            let start = Instant::now();
            let answer = loop {
                let answer = preparation.request().send(&older, &Mappings::read());
                if answer != Requested::Runs {
                    break answer;
                }
                assert!(start.elapsed() < PATIENCE, "it does not wait");
                std::thread::yield_now();
            };
            assert_eq!(answer, Requested::Undisturbed);
            preparation.discard().unmap();
            std::io::Write::write_all(&mut writer, b"x").unwrap();
            assert_eq!(thread.join().unwrap(), 0);
        }
    }

    #[test]
    fn a_waiting_thread_gets_a_larger_stack_by_a_signal() {
        let set = || {
            set_small();
        };
        let (prepared, slot, (now, is_own)) = with_older(set, move || (current().unwrap().ss_size, true));
        assert!(is_own && now > 16 * 1024, "{now}");
        assert!(matches!(prepared, Prepared::Yes(Some(_))));
        assert!(slot.is_idle());
    }

    #[test]
    fn a_thread_without_one_keeps_none() {
        let set_none = || {
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: the structure says that there is none.
            assert_eq!(unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) }, 0);
        };
        let (prepared, _, flags) = with_older(set_none, || current().unwrap().ss_flags);
        assert!(matches!(prepared, Prepared::Yes(None)));
        assert_ne!(flags & libc::SS_DISABLE, 0);
    }

    #[test]
    fn a_prepared_thread_answers_with_samples() {
        install().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send((Address::own(), super::super::own_stack().unwrap())).unwrap();
            wait_for_byte(&reader);
        });
        let (address, stack) = receiver.recv().unwrap();
        let slot = SampleSlot::new(100).unwrap();
        assert!(matches!(prepare(address, slot), Prepared::Yes(_)));
        for _ in 0..100 {
            assert_eq!(slot.request(address), Sending::Done);
            let start = Instant::now();
            let read = loop {
                if let Some(read) =
                    slot.read(|sample| (sample.stack_pointer, sample.is_elsewhere, sample.words().len()))
                {
                    break read;
                }
                assert!(start.elapsed() < PATIENCE, "no sample");
            };
            assert!(stack.contains(&read.0) && !read.1 && read.2 > 0, "{read:?}");
        }
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        thread.join().unwrap();
    }

    extern "C" fn wait_in_handler(_signal: libc::c_int) {
        let pipe = PIPE.load(std::sync::atomic::Ordering::SeqCst);
        let mut byte = 0u8;
        // SAFETY: one byte of room.
        while unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) } < 0 {}
    }

    static PIPE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

    #[test]
    fn a_thread_on_its_alternate_stack_is_left_alone() {
        install().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        PIPE.store(reader.as_raw_fd(), std::sync::atomic::Ordering::SeqCst);
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            set_small();
            // SAFETY: zeroes are a valid action, and the handler is one without SA_SIGINFO.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = wait_in_handler as *const () as usize;
                action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
                assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
            }
            sender.send(Address::own()).unwrap();
            // SAFETY: raises a signal that has a handler.
            unsafe { libc::raise(libc::SIGUSR2) };
            current().unwrap().ss_size
        });
        let address = receiver.recv().unwrap();
        // It waits in the handler soon.
        std::thread::sleep(Duration::from_millis(50));
        let slot = SampleSlot::new(100).unwrap();
        assert!(matches!(prepare(address, slot), Prepared::NotNow(_)));
        assert!(!slot.is_own());
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        assert_eq!(thread.join().unwrap(), 16 * 1024);
    }

    #[test]
    fn the_stack_stays_when_an_enclosing_handler_returns() {
        install().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        INNER_PIPE.store(reader.as_raw_fd(), std::sync::atomic::Ordering::SeqCst);
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            set_small();
            // SAFETY: zeroes are a valid action, and the handler is one without SA_SIGINFO.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = wait_in_inner_handler as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                assert_eq!(libc::sigaction(libc::SIGRTMIN() + 5, &raw const action, std::ptr::null_mut()), 0);
            }
            sender.send(Address::own()).unwrap();
            // SAFETY: raises a signal that has a handler.
            unsafe { libc::raise(libc::SIGRTMIN() + 5) };
            current().unwrap().ss_size
        });
        let address = receiver.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let slot = SampleSlot::new(100).unwrap();
        assert!(matches!(prepare(address, slot), Prepared::Yes(Some(_))));
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        assert!(thread.join().unwrap() > 16 * 1024);
    }

    extern "C" fn wait_in_inner_handler(_signal: libc::c_int) {
        let pipe = INNER_PIPE.load(std::sync::atomic::Ordering::SeqCst);
        let mut byte = 0u8;
        // SAFETY: one byte of room.
        while unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) } < 0 {}
    }

    static INNER_PIPE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

    #[test]
    fn what_the_system_tells_of_threads_is_understood() {
        let waiting = "0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffd1234 0x7f56\n";
        assert_eq!(SystemCall::read(waiting).map(|call| call.stack_pointer), Some(0x7ffd_1234));
        for other in ["running\n", "-1 0x7ffd1234 0x7f56\n", "", "0 0x3 0x7f 0x1 0x0 0x0 0x0 0x0 0x0\n"] {
            assert_eq!(SystemCall::read(other), None, "{other}");
        }
    }
}
