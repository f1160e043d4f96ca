//! What has to be asked of the operating system in its own way: one folder for each system, behind one name.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
#[cfg_attr(not(any(target_os = "linux", windows)), path = "other/mod.rs")]
mod imp;

#[cfg(all(test, target_os = "linux"))]
pub(crate) use imp::forbid;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use imp::signals;
#[cfg(all(windows, target_arch = "x86_64"))]
pub(crate) use imp::{probe, thread, unwind};

use std::time::Duration;

/// Keeps the library that this code is in loaded for as long as the process lives.
///
/// The runtime unloads a profiler's library when `Initialize` fails, and does not ask `DllCanUnloadNow` first. A thread that
/// the profiler has started would then run in memory that is gone.
pub(crate) fn pin_library() {
    imp::pin_library();
}

/// Gets ready for [`process_wide_barrier`], and answers whether it will do its work here. Those who rely on it fence for
/// themselves where it will not: on some systems, in a sandbox that forbids the call, with a kernel before Linux 4.14.
pub(crate) fn prepare_barrier() -> bool {
    imp::prepare_barrier()
}

/// Returns after every thread of this process has executed a full memory barrier, or is about to run one before it next
/// touches memory; only after [`prepare_barrier`] has answered `true`. With it, threads on a fast side need only a compiler
/// fence, and whoever asks pays for theirs (`session/gate.rs`).
///
/// Answers whether the other threads have done so. They have not if the application has shut itself into a sandbox since, which
/// forbids the call: then only the calling thread has had its barrier.
#[must_use]
pub(crate) fn process_wide_barrier() -> bool {
    imp::process_wide_barrier()
}

/// A number that tells threads apart, at the price of one load; never 0.
///
/// Two threads that live at the same time never have the same; one that starts after another has ended may. It is the address
/// of something that each thread has to itself: its control block where one instruction finds it, else a thread-local of
/// ours, which a shared library reaches only by a call.
#[inline]
pub(crate) fn thread_key() -> usize {
    imp::thread_key()
}

/// How far apart the [keys](thread_key) of two threads are at least, as a rule: what differs between them is above that.
pub(crate) const THREAD_KEY_DISTANCE: usize = imp::THREAD_KEY_DISTANCE;

/// Fills `bytes` from an address of this process, and answers whether it could: there may be no memory, and the system may
/// not let it be asked for. A fault cannot come of it. On systems where nobody has looked for a way it never succeeds.
pub(crate) fn read_memory(address: usize, bytes: &mut [u8]) -> bool {
    imp::read_memory(address, bytes)
}

/// The system's number for the calling thread, as the runtime gives it to profilers.
pub(crate) fn os_thread_id() -> u32 {
    imp::os_thread_id()
}

/// How long a thread of this process has run on a processor since it was made; none if the system does not say.
pub(crate) fn cpu_time(os_thread_id: u32) -> Option<Duration> {
    imp::cpu_time(os_thread_id)
}

/// A number that goes up whenever a thread of this process runs; none if the system has none.
pub(crate) fn run_count(os_thread_id: u32) -> Option<u64> {
    imp::run_count(os_thread_id)
}

/// What the scheduler says of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) struct Scheduling {
    /// It is on a processor, or could go on if it had one.
    pub(crate) is_runnable: bool,
    /// How often it has given its processor up to wait for something.
    pub(crate) waits: u64,
}

/// What the scheduler says of a thread of this process; none if the system does not tell.
pub(crate) fn scheduling(os_thread_id: u32) -> Option<Scheduling> {
    imp::scheduling(os_thread_id)
}

/// Whether a thread of this process is on a processor, or could go on if it had one; none if the system does not tell. On Linux a
/// third of the price of [`scheduling`].
pub(crate) fn is_runnable(os_thread_id: u32) -> Option<bool> {
    imp::is_runnable(os_thread_id)
}

/// How far apart those of [`thread_local_key`] are: threads' own memory is of all sizes, at least a cache line.
#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
const THREAD_LOCAL_KEY_DISTANCE: usize = 64;

/// The thread key of systems and processors on which nobody has looked for a cheaper one.
#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
#[inline]
fn thread_local_key() -> usize {
    /// The gate keeps something beside the key (`session/gate.rs`).
    #[repr(align(8))]
    struct Anchor;

    thread_local! {
        static ANCHOR: Anchor = const { Anchor };
    }
    ANCHOR.with(|anchor| std::ptr::from_ref(anchor).addr())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    #[cfg(any(target_os = "linux", windows))]
    fn memory_is_read_where_there_is_some_and_refused_where_not() {
        let text = *b"known";
        let mut found = [0; 5];
        assert!(super::read_memory(text.as_ptr().expose_provenance(), &mut found) && found == text);
        for nowhere in [0, 16, usize::MAX - 8] {
            assert!(!super::read_memory(nowhere, &mut found), "{nowhere:#x}");
        }
    }

    #[test]
    fn threads_that_live_together_have_different_keys() {
        let barrier = std::sync::Barrier::new(16);
        let keys: HashSet<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let key = super::thread_key();
                        barrier.wait();
                        assert_eq!(key, super::thread_key());
                        key
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(keys.len(), 16);
        assert!(!keys.contains(&0));
    }
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod cpu_time_tests {
    use std::time::{Duration, Instant};

    use super::cpu_time;

    #[cfg(target_os = "linux")]
    fn own_id() -> u32 {
        // SAFETY: takes no arguments and touches no memory.
        unsafe { libc::gettid() as u32 }
    }

    #[cfg(windows)]
    fn own_id() -> u32 {
        // SAFETY: takes no arguments and touches no memory.
        unsafe { windows_sys::Win32::System::Threading::GetCurrentThreadId() }
    }

    #[test]
    fn time_passes_on_a_processor_and_not_asleep() {
        let id = own_id();
        let before = cpu_time(id).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let asleep = cpu_time(id).unwrap() - before;
        assert!(asleep < Duration::from_millis(40), "{asleep:?} asleep");
        let start = Instant::now();
        while cpu_time(id).unwrap() - before - asleep < Duration::from_millis(30) {
            assert!(start.elapsed() < Duration::from_secs(60), "busy, and no time passes");
        }
    }

    #[test]
    fn a_thread_that_is_not_there_has_none() {
        assert_eq!(cpu_time(u32::MAX), None);
        assert_eq!(cpu_time(0x3FFF_FFFE), None);
    }
}
