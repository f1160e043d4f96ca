//! Samples a running thread of this process by a signal to that thread alone.
//!
//! The sampler's thread sends the signal. The handler, on the sampled thread, records its registers, its chain of frame
//! pointers and the top of its stack in a [`SampleSlot`] that was made for it before (`handler.rs`). A thread receives
//! signals only after it was given an alternate stack with room for one (`alternate_stack.rs`).
//!
//! The signal is SIGURG. By default it is ignored, so it does no harm if it is still pending when the process calls
//! `exec`, or arrives when no handler is installed any more; SIGPROF would end the process. The runtime does not use
//! SIGURG.

mod alternate_stack;
mod giving_back;
mod handler;
mod interrupted_handlers;
mod older;
mod sample_slot;

pub(crate) use alternate_stack::AlternateStack;
pub(crate) use giving_back::{GivingBack, Progress};
pub(crate) use older::{Mappings, OlderThread, Preparation, PreparationRequest, Prepared, Requested};
pub(crate) use sample_slot::{RawSample, SampleSlot};

pub(crate) use super::cpu_time::clocks_are_exact;
pub(crate) use super::processors::{IdleTime, change_processor};
pub(crate) use super::slice::shorten_slice;

use super::activation::blocks;

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The signal that makes a thread record its stack.
const SIGNAL: libc::c_int = libc::SIGURG;

/// The result of sending a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sending {
    /// It will arrive.
    Done,
    /// The thread has ended, or has not answered the last one.
    NotNow,
    /// The process may not send any; in a sandbox, for example.
    Forbidden,
    /// The application has installed a handler of its own: it would get the signal.
    Replaced,
}

/// Whether the calling thread does not receive the signal. Threads and programs begin with what those that start them
/// block.
pub(crate) fn are_blocked() -> bool {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call changes nothing, and fills the set if it returns 0; only then the second one reads it.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr()) == 0
            && libc::sigismember(blocked.as_ptr(), SIGNAL) == 1
    }
}

/// The address of a thread of this process, for signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) thread: i32,
}

/// Installs the handler, once and for good: a signal may be on its way as long as there are threads.
///
/// # Errors
/// If the application, or one of its libraries, has installed a handler for the signal.
pub(crate) fn install() -> io::Result<()> {
    match current_handler()? {
        handler if handler == handler::address() => return Ok(()),
        libc::SIG_DFL | libc::SIG_IGN => {}
        _ => return Err(io::Error::other("the application has its own handler for SIGURG")),
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeroes are a valid action; the calls fill and read it. The handler is one for SA_SIGINFO.
    let answer = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = handler::address();
        // Not SA_ONSTACK: the runtime leaves its alternate stack by a jump and keeps a live frame on it, which a signal
        // that starts at the top of that stack would overwrite.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&raw mut action.sa_mask);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&raw mut action.sa_mask, fault);
        }
        libc::sigaction(SIGNAL, action, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the handler is still the one that [`install`] has installed.
fn is_installed() -> bool {
    current_handler().is_ok_and(|handler| handler == handler::address())
}

fn current_handler() -> io::Result<usize> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call fills the action if it returns 0; zeroes are valid otherwise.
    unsafe {
        if libc::sigaction(SIGNAL, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(action.assume_init().sa_sigaction)
    }
}

/// The argument of `rt_tgsigqueueinfo`: the kernel's `siginfo_t` of a queued signal.
#[repr(C)]
struct QueuedSignal {
    signal: i32,
    error: i32,
    code: i32,
    _padding: i32,
    process: i32,
    user: u32,
    value: usize,
    _rest: [u8; 96],
}

const _: () = assert!(size_of::<QueuedSignal>() == 128 && size_of::<libc::siginfo_t>() == 128);

/// Whether the system lets this process send signals to its threads. A filter of system calls (seccomp) may forbid it.
pub(crate) fn are_allowed() -> bool {
    Address::own().queue(0, 0) != Sending::Forbidden
}

impl Address {
    /// The address of the calling thread.
    pub(crate) fn own() -> Self {
        // Not `gettid`: glibc has it only since 2.30.
        // SAFETY: takes no arguments and touches no memory.
        Self { thread: unsafe { libc::syscall(libc::SYS_gettid) as i32 } }
    }

    /// Makes the thread fill `slot`, which was [prepared](SampleSlot::request) for it.
    fn send(self, slot: &SampleSlot) -> Sending {
        self.send_value(slot.number() as usize)
    }

    /// Makes the thread exchange its alternate stack, as it was [asked](SampleSlot::request_exchange) in its slot.
    fn send_exchange(self, slot: &SampleSlot) -> Sending {
        self.send_value(slot.number() as usize | handler::EXCHANGE)
    }

    fn send_value(self, value: usize) -> Sending {
        // The application may install a handler at any time: so this comes last.
        if !is_installed() {
            return Sending::Replaced;
        }
        self.queue(SIGNAL, value)
    }

    /// Queues a signal; 0 is none, and only checks that it could be.
    fn queue(self, signal: i32, value: usize) -> Sending {
        // SAFETY: both take no arguments and touch no memory.
        let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
        let info =
            QueuedSignal { signal, error: 0, code: libc::SI_QUEUE, _padding: 0, process, user, value, _rest: [0; 96] };
        // SAFETY: the system reads the structure, which has the length that it expects; it returns an error for a
        // thread that does not exist.
        let answer =
            unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, self.thread, signal, &raw const info) };
        match (answer, io::Error::last_os_error().raw_os_error()) {
            (0, _) => Sending::Done,
            (_, Some(libc::EPERM | libc::ENOSYS | libc::EACCES)) => Sending::Forbidden,
            _ => Sending::NotNow,
        }
    }

    /// Whether the thread blocks the signal: it may take it by `sigwait` as one that is meant for the application.
    pub(crate) fn blocks_signal(self) -> bool {
        blocks(self.thread.cast_unsigned(), SIGNAL)
    }

    /// Whether it is the process's first thread, whose stack the system has made.
    fn is_first_thread(self) -> bool {
        // SAFETY: takes no arguments and touches no memory.
        self.thread == unsafe { libc::getpid() }
    }

    /// Whether the thread has ended, as far as the system knows.
    pub(crate) fn has_ended(self) -> bool {
        // SAFETY: signal 0 is never delivered; the call only checks that the thread exists.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, 0) != 0 }
    }

    /// Whether the thread is running, or waits only for a processor (state R).
    #[cfg(test)]
    pub(crate) fn is_runnable(self) -> bool {
        crate::system::is_runnable(self.thread.cast_unsigned()) == Some(true)
    }
}

/// The calling thread's stack, from the lowest address on; none if the system does not report it.
pub(crate) fn own_stack() -> Option<Range<usize>> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut start = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the first call fills the attributes if it returns 0, and only then the others read and release them.
    let is_told = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 && {
            let answer = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            answer == 0
        }
    };
    is_told.then(|| start.addr()..start.addr() + size)
}

#[cfg(test)]
mod tests;
