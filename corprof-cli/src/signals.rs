//! Requests to end this process, such as Ctrl-C. [`corprof_launch::application`] passes signals on to an application
//! instead.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use corprof_launch::signals::Requests;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that Ctrl-C, or another request to end, sets from now on. The second one ends this process.
#[cfg(unix)]
pub(crate) fn stop_requests() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let is_requested = Arc::clone(&flag);
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("corprof-signals".to_owned()).spawn(move || {
        let mut requests = Requests::default();
        for signal in signals.forever() {
            if requests.is_new(signal) && is_requested.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        }
    })?;
    Ok(flag)
}

/// A flag that Ctrl-C, or another request to end, sets from now on. The second one ends this process.
#[cfg(not(unix))]
pub(crate) fn stop_requests() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order the first only sets the flag.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
        flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// From now on requests to end do not end this process.
pub(crate) struct Signals {
    requests: Arc<AtomicBool>,
    /// Set by supervisors.
    terminations: Arc<AtomicBool>,
    /// Set when the terminal goes away.
    hangups: Arc<AtomicBool>,
    was_interrupted: AtomicBool,
    /// The requests of others than users that were taken.
    taken: Mutex<Requests>,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let requests = Arc::new(AtomicBool::new(false));
        let terminations = Arc::new(AtomicBool::new(false));
        let hangups = Arc::new(AtomicBool::new(false));
        flag::register(SIGINT, Arc::clone(&requests))?;
        flag::register(SIGTERM, Arc::clone(&terminations))?;
        #[cfg(unix)]
        flag::register(signal_hook::consts::SIGQUIT, Arc::clone(&requests))?;
        #[cfg(unix)]
        flag::register(signal_hook::consts::SIGHUP, Arc::clone(&hangups))?;
        Ok(Self { requests, terminations, hangups, was_interrupted: AtomicBool::new(false), taken: Mutex::default() })
    }

    /// Whether there was a request since the last call, other than one that repeats the last.
    ///
    /// A terminal that goes away is the first request or none: shell and system report it one after the other, which is
    /// not a user who interrupts a second time.
    pub(crate) fn is_interrupted(&self) -> bool {
        let is_requested = self.requests.swap(false, Ordering::Relaxed);
        let is_terminated = self.terminations.swap(false, Ordering::Relaxed);
        let has_hung_up = self.hangups.swap(false, Ordering::Relaxed);
        let is_first = !self.was_interrupted.load(Ordering::Relaxed);
        let is_of_others = is_terminated || has_hung_up && is_first;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_interrupted = is_requested || is_of_others && taken.is_new(SIGTERM);
        self.was_interrupted.fetch_or(is_interrupted, Ordering::Relaxed);
        is_interrupted
    }
}

#[cfg(all(test, unix))]
mod tests {
    use signal_hook::consts::SIGHUP;
    use signal_hook::low_level::raise;

    use std::time::Duration;

    use corprof_launch::signals::SAME_REQUEST;

    use super::*;

    #[test]
    fn a_terminal_that_goes_away_interrupts_once_and_users_as_often_as_they_want() {
        let signals = Signals::catch().unwrap();
        assert!(!signals.is_interrupted());
        let expected = [(SIGHUP, true), (SIGHUP, false), (SIGINT, true), (SIGINT, true), (SIGHUP, false)];
        for (signal, is_interrupted) in expected {
            raise(signal).unwrap();
            assert_eq!(signals.is_interrupted(), is_interrupted, "signal {signal}");
            assert!(!signals.is_interrupted());
        }
        // `timeout` sends it twice.
        for is_interrupted in [true, false] {
            std::thread::sleep(if is_interrupted { SAME_REQUEST } else { Duration::ZERO });
            raise(SIGTERM).unwrap();
            assert_eq!(signals.is_interrupted(), is_interrupted);
        }
    }
}
