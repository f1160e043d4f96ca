//! Requests to end this process, such as Ctrl-C. [`corprof_launch::application`] passes signals on to an application
//! instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The signals by which users, terminals and supervisors request an end.
#[cfg(unix)]
const REQUESTS: [i32; 4] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGQUIT];
#[cfg(not(unix))]
const REQUESTS: [i32; 2] = [SIGINT, SIGTERM];

/// A flag that Ctrl-C, or another request to end, sets from now on. The second one ends this process.
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
pub(crate) struct Signals(Arc<AtomicBool>);

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in REQUESTS {
            flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Whether there was a request since the last call.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
