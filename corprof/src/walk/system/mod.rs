//! What the sampler asks the operating system: one file for each, under one name.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(not(any(target_os = "linux", windows)), path = "other.rs")]
mod imp;

use std::time::Duration;

/// How long a thread of this process has run on a processor since it was made; none if the system does not say.
pub(crate) fn cpu_time(os_thread_id: u32) -> Option<Duration> {
    imp::cpu_time(os_thread_id)
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod tests {
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
