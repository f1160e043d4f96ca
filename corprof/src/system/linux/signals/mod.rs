//! A look at a running thread of this process by a signal that only it gets.
//!
//! The thread that samples sends; the handler, on the thread that is sampled, notes its registers, its chain of frame pointers
//! and the top of its stack into a [`Slot`] that was made for it before (`handler.rs`). A thread is sent signals only after it
//! has been given an alternate stack with room for one (`alternate_stack.rs`).
//!
//! The signal is SIGURG. Its default action is to be ignored, so one that is still pending when the process calls `exec`, or
//! that arrives when nobody handles it any more, does nothing; SIGPROF's is to end the process. The runtime does not use it.

mod alternate_stack;
mod handler;
mod slot;

pub(crate) use alternate_stack::AlternateStack;
pub(crate) use slot::{RawSample, Slot};

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The signal that has a thread note where it is.
const SIGNAL: libc::c_int = libc::SIGURG;

/// What came of sending a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sending {
    /// It will arrive.
    Done,
    /// The thread has ended, or has not answered the last one.
    NotNow,
    /// The process may not send any, as in a sandbox.
    Forbidden,
}

/// Where a thread of this process is sent its signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) thread: i32,
}

/// Sets up the handler, once and for good: a signal may be on its way for as long as there are threads.
///
/// # Errors
/// If the application, or one of its libraries, has a handler for the signal.
pub(crate) fn install() -> io::Result<()> {
    match current_handler()? {
        handler if handler == handler::address() => return Ok(()),
        libc::SIG_DFL | libc::SIG_IGN => {}
        _ => return Err(io::Error::other("the application has a handler for SIGURG of its own")),
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeroes are a valid action; the calls fill and read it. The handler is one for SA_SIGINFO.
    let answer = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = handler::address();
        // Not SA_ONSTACK: the runtime leaves its alternate stack by a jump and keeps a live frame on it, which a signal that
        // starts at the top of that stack would overwrite.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigfillset(&raw mut action.sa_mask);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&raw mut action.sa_mask, fault);
        }
        libc::sigaction(SIGNAL, action, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the handler is still the one that [`install`] has set up.
pub(crate) fn is_installed() -> bool {
    current_handler().is_ok_and(|handler| handler == handler::address())
}

fn current_handler() -> io::Result<usize> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call fills the action, if it answers 0; zeroes are valid besides.
    unsafe {
        if libc::sigaction(SIGNAL, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(action.assume_init().sa_sigaction)
    }
}

/// What `rt_tgsigqueueinfo` takes: the kernel's `siginfo_t`, as a queued signal has it.
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

impl Address {
    /// The calling thread's.
    pub(crate) fn own() -> Self {
        // Not `gettid`, which glibc has since 2.30 only.
        // SAFETY: takes no arguments and touches no memory.
        Self { thread: unsafe { libc::syscall(libc::SYS_gettid) as i32 } }
    }

    /// Has the thread fill `slot`, which has been [prepared](Slot::request) for it.
    fn send(self, slot: &Slot) -> Sending {
        // SAFETY: both take no arguments and touch no memory.
        let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
        let value = slot.number() as usize;
        let info = QueuedSignal {
            signal: SIGNAL,
            error: 0,
            code: libc::SI_QUEUE,
            _padding: 0,
            process,
            user,
            value,
            _rest: [0; 96],
        };
        // SAFETY: the system reads the structure, which is as long as it takes; a thread that is not there is answered with an error.
        let answer =
            unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, self.thread, SIGNAL, &raw const info) };
        match (answer, io::Error::last_os_error().raw_os_error()) {
            (0, _) => Sending::Done,
            (_, Some(libc::EPERM | libc::ENOSYS | libc::EACCES)) => Sending::Forbidden,
            _ => Sending::NotNow,
        }
    }

    /// Whether the thread has ended, as far as the system knows.
    pub(crate) fn has_ended(self) -> bool {
        // SAFETY: signal 0 is sent to nobody; the call only looks whether the thread is there.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, 0) != 0 }
    }

    /// Whether the thread is running, or waits for nothing but a processor (state R).
    pub(crate) fn is_runnable(self) -> bool {
        crate::system::is_runnable(self.thread.cast_unsigned()) == Some(true)
    }
}

/// The calling thread's stack, from the lowest address on; none if the system does not tell.
pub(crate) fn own_stack() -> Option<Range<usize>> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call fills the attributes if it answers 0, and only then the others read them and let go of them.
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
