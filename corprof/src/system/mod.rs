//! Calls that each operating system makes in its own way: one folder for each system, behind one name.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
#[cfg_attr(not(any(target_os = "linux", windows)), path = "other/mod.rs")]
mod imp;

#[cfg(all(test, target_os = "linux"))]
pub(crate) use imp::forbid;
#[cfg(all(windows, target_arch = "x86_64"))]
pub(crate) use imp::{lock_check, thread, unwind};
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use imp::{mappings, signals};

/// A socket or pipe, by which other processes of this user can send a request. `new` takes its name; `accept` returns a
/// connection by which the given request has come, and none if there is no client.
pub(crate) use imp::Listener;

/// The standard library's waits last a multiple of this; zero if they are exact.
pub(crate) const WAIT_STEP: Duration = Duration::from_millis(if cfg!(windows) { 1 } else { 0 });

#[cfg(target_os = "linux")]
pub(crate) use imp::FileSizeErrors;

/// As long as this exists, a write of the calling thread that goes beyond a limit fails with an error, and no more: other
/// systems send no signal for it, or have no such limit.
#[cfg(not(target_os = "linux"))]
pub(crate) struct FileSizeErrors;

#[cfg(not(target_os = "linux"))]
impl FileSizeErrors {
    pub(crate) fn begin() -> Self {
        Self
    }
}

/// The processor clock of a thread of this process: `open` is none if there is no such thread, and `time` if the system
/// does not report it. On Windows the id is not reused while it is open.
pub(crate) use imp::ThreadClock;

use std::time::Duration;

/// Now, in ticks of the clock by which the runtime gives times to events (`Stopwatch.GetTimestamp`); 0 where that is
/// not known. May be called in a signal handler.
pub(crate) fn ticks() -> u64 {
    imp::ticks()
}

/// How many [`ticks`] a second has; 0 where there are none.
pub(crate) fn ticks_per_second() -> u64 {
    imp::ticks_per_second()
}

/// Whether [`ticks`] are made of the processor's counter: then all processors count alike.
pub(crate) fn has_ticks_of_counter() -> bool {
    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_os = "linux") && std::fs::read_to_string(CLOCK).is_ok_and(|name| name.trim() == "tsc")
}

/// Keeps the library of this code loaded for as long as the process lives.
///
/// The runtime unloads a profiler's library when `Initialize` fails, without asking `DllCanUnloadNow`. A thread of the
/// profiler would then run in unmapped memory.
pub(crate) fn pin_library() {
    imp::pin_library();
}

/// Prepares [`process_wide_barrier`], and returns whether it works here. If it does not, its users execute their own
/// fences: on some systems, in a sandbox that forbids the call, and with a kernel before Linux 4.14.
pub(crate) fn prepare_barrier() -> bool {
    imp::prepare_barrier()
}

/// Returns after every thread of this process has executed a full memory barrier, or is about to execute one before it
/// next touches memory; call it only after [`prepare_barrier`] has returned `true`. With it, threads on a fast side
/// need only a compiler fence, and the calling thread pays for theirs (`session/gate.rs`).
///
/// Returns whether the other threads have done so. They have not if the application has since entered a sandbox that
/// forbids the call: then only the calling thread has executed a barrier.
#[must_use]
pub(crate) fn process_wide_barrier() -> bool {
    imp::process_wide_barrier()
}

/// A number that identifies a thread, at the price of one load; never 0.
///
/// Two threads that live at the same time never have the same key; a thread that starts after another has ended may
/// reuse its key. It is the address of something that each thread has: its control block if one instruction finds it,
/// otherwise a thread-local of ours, which a shared library reaches only by a call.
#[inline]
pub(crate) fn thread_key() -> usize {
    imp::thread_key()
}

/// The usual least distance between the [keys](thread_key) of two threads: keys differ in the bits above it.
pub(crate) const THREAD_KEY_DISTANCE: usize = imp::THREAD_KEY_DISTANCE;

/// Fills `bytes` from an address of this process, and returns whether it could: the memory may be unmapped, and the
/// system may forbid the call. It cannot fault. On systems without an implementation it never succeeds.
pub(crate) fn read_memory(address: usize, bytes: &mut [u8]) -> bool {
    imp::read_memory(address, bytes)
}

/// Where the runtime keeps the code that it compiles in this process: ranges in ascending order, none on systems
/// without an implementation. To list them costs about a millisecond.
pub(crate) fn code_heaps() -> Vec<std::ops::Range<usize>> {
    imp::code_heaps()
}

/// The address of the symbol `name` of the library that has `code`; none if there is no such library or symbol, and on
/// systems without an implementation.
pub(crate) fn symbol_beside(code: usize, name: &std::ffi::CStr) -> Option<usize> {
    imp::symbol_beside(code, name)
}

/// The address of the symbol `name` of the library that was loaded first of those that have it, and that stays loaded
/// from then on; none if there is no such library, and on systems without an implementation.
pub(crate) fn first_symbol(name: &std::ffi::CStr) -> Option<usize> {
    imp::first_symbol(name)
}

/// The stack pointer of a thread of this process that waits in the system; none of a running one, and if the system
/// does not report it.
pub(crate) fn stack_pointer(os_thread_id: u32) -> Option<usize> {
    imp::stack_pointer(os_thread_id)
}

/// Whether a thread of this process is in the handler of the signal by which the runtime interrupts threads to suspend
/// them. Allocates nothing. Never on systems without an implementation.
pub(crate) fn is_interrupted_by_runtime(os_thread_id: u32) -> bool {
    imp::is_interrupted_by_runtime(os_thread_id)
}

/// The operating system's id of the calling thread, as the runtime reports it to profilers.
pub(crate) fn os_thread_id() -> u32 {
    imp::os_thread_id()
}

/// How late a wait for a condition variable may end; zero if it ends in time. `std::thread::sleep` ends in time
/// everywhere.
pub(crate) fn latest_wake_up() -> Duration {
    imp::latest_wake_up()
}

/// The processor time of a thread of this process; none if the system does not report it.
pub(crate) fn cpu_time(os_thread_id: u32) -> Option<Duration> {
    ThreadClock::open(os_thread_id)?.time()
}

/// A number that grows whenever a thread of this process runs; none if the system has none.
pub(crate) fn run_count(os_thread_id: u32) -> Option<u64> {
    imp::run_count(os_thread_id)
}

/// The scheduler's data about a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) struct Scheduling {
    /// Whether it is running or runnable.
    pub(crate) is_runnable: bool,
    /// How many times it has given up its processor to wait for something.
    pub(crate) waits: u64,
}

/// The scheduler's data about a thread of this process; none if the system does not report it.
pub(crate) fn scheduling(os_thread_id: u32) -> Option<Scheduling> {
    imp::scheduling(os_thread_id)
}

/// Whether a thread of this process is running or runnable; none if the system does not report it. On Linux it costs a
/// third of [`scheduling`].
pub(crate) fn is_runnable(os_thread_id: u32) -> Option<bool> {
    imp::is_runnable(os_thread_id)
}

/// The least distance between keys of [`thread_local_key`]: threads' own memory is of all sizes, at least a cache line.
#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
const THREAD_LOCAL_KEY_DISTANCE: usize = 64;

/// The thread key on systems and processors without a cheaper one.
#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
#[inline]
fn thread_local_key() -> usize {
    /// Aligned, because the gate stores a tag beside the key (`session/gate.rs`).
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
    #[cfg(any(target_os = "linux", windows))]
    fn a_listener_hears_its_request_and_nothing_else() {
        use std::io::{Read, Write};

        const NAME: &str = "corprof-test-of-a-listener";
        let connect = || {
            #[cfg(unix)]
            let client = std::os::unix::net::UnixStream::connect(std::env::temp_dir().join(NAME));
            #[cfg(windows)]
            let client = std::fs::OpenOptions::new().read(true).write(true).open(format!(r"\\.\pipe\{NAME}"));
            client
        };
        let mut listener = super::Listener::new(NAME).unwrap();
        assert!(super::Listener::new(NAME).is_err());
        // The attempt may have connected.
        let mut hear = || (0..3).find_map(|_| listener.accept(b"leave"));
        assert!(hear().is_none());
        let mut other = connect().unwrap();
        other.write_all(b"enter").unwrap();
        assert!(hear().is_none());
        drop(other);
        for _ in 0..2 {
            let mut client = connect().unwrap();
            client.write_all(b"leave").unwrap();
            let mut stream = hear().unwrap();
            stream.write_all(b"left").unwrap();
            drop(stream);
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer);
            assert_eq!(answer, "left");
        }
        drop(listener);
        assert!(connect().is_err());
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
