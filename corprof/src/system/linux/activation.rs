//! Which signals a thread blocks: among them the one by which the runtime interrupts threads that run compiled code, to
//! suspend them.

use std::io::Write;

/// As long as the path of a thread's status, and as that status up to its masks of signals.
const PATH: usize = 64;
const STATUS: usize = 2048;

/// Whether a thread is in the handler of that signal: meanwhile the system keeps the signal from it, as the runtime
/// does not ask for another (`inject_activation_handler` in pal/src/exception/signal.cpp; test: live
/// `cli::stacks::dynamic_methods_that_run_are_innermost`). Also of a thread that blocks the signal itself, which the
/// runtime cannot interrupt.
pub(in crate::system) fn is_interrupted_by_runtime(os_thread_id: u32) -> bool {
    blocks(os_thread_id, libc::SIGRTMIN())
}

/// Whether a thread does not receive a signal now. If in doubt, it does. Allocates nothing.
pub(super) fn blocks(os_thread_id: u32, signal: libc::c_int) -> bool {
    let mut status = [0; STATUS];
    let length = read_status(os_thread_id, &mut status).unwrap_or_default();
    blocked_signals(status.get(..length).unwrap_or_default()).is_some_and(|blocked| blocked & (1 << (signal - 1)) != 0)
}

/// Reads the beginning of a thread's status. Allocates nothing: the runtime is suspended.
fn read_status(os_thread_id: u32, status: &mut [u8]) -> Option<usize> {
    let mut path = [0; PATH];
    // The last byte stays: it ends the path.
    write!(path.get_mut(..PATH - 1)?, "/proc/self/task/{os_thread_id}/status").ok()?;
    // SAFETY: the path ends with a zero, and is read during the call only.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: the system writes at most as many bytes as there is room for.
    let length = unsafe { libc::read(file, status.as_mut_ptr().cast(), status.len()) };
    // SAFETY: the file was opened above, and has no other user.
    unsafe { libc::close(file) };
    usize::try_from(length).ok()
}

/// The signals that a thread does not receive now, a bit each, by its status.
fn blocked_signals(status: &[u8]) -> Option<u64> {
    // The name comes earlier, on a line of its own, with its line ends escaped.
    let mut lines = status.split(|&byte| byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigBlk:"))?;
    u64::from_str_radix(std::str::from_utf8(mask).ok()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    #[test]
    fn a_thread_that_blocks_the_signal_is_told_from_others() {
        let has_thread = std::thread::spawn(|| {
            let before = is_interrupted_by_runtime(system::os_thread_id());
            // SAFETY: the set is made empty before it is used, and the thread ends soon.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGRTMIN());
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            }
            (before, is_interrupted_by_runtime(system::os_thread_id()))
        });
        assert_eq!(has_thread.join().unwrap(), (false, true));
        assert!(!is_interrupted_by_runtime(u32::MAX), "there is no such thread");
    }

    #[test]
    fn the_mask_is_read_from_its_line() {
        assert_eq!(blocked_signals(b"Name:\ta\\nSigBlk:\t0\nSigPnd:\t1\nSigBlk:\t0000000200000000\n"), Some(1 << 33));
        assert_eq!(blocked_signals(b"SigBlk:\tx\n"), None);
        assert_eq!(blocked_signals(b"Name:\ta\n"), None);
    }
}
