//! Reports corprof's own messages, one line at a time: to standard error or, with the feature `tracing`, to the
//! profiler's subscriber. It never fails.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Reports a message: to the subscriber of this thread, or else as `corprof: message` and a line end, in one piece;
/// errors of standard error are ignored.
pub(crate) fn line(message: std::fmt::Arguments<'_>) {
    crate::suspension::forbid("a message");
    #[cfg(feature = "tracing")]
    if is_taken(message) {
        return;
    }
    let text = format!("corprof: {message}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Reports the first error that a callback of `profiler` returns; `has_failed` belongs to that callback.
pub fn callback_result<E: Display>(
    result: std::result::Result<(), E>,
    profiler: &str,
    callback: &str,
    has_failed: &AtomicBool,
) {
    let Err(error) = result else { return };
    if !has_failed.swap(true, Relaxed) {
        line(format_args!("{callback} of the profiler {profiler}: {error} (further errors of it are not shown)"));
    }
}

/// Whether there is a subscriber, which then has the message.
#[cfg(feature = "tracing")]
fn is_taken(message: std::fmt::Arguments<'_>) -> bool {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let is_there = tracing::dispatcher::get_default(|it| !it.is::<tracing::subscriber::NoSubscriber>());
    // A subscriber is the user's code, and this may run outside of all other guards. Nothing of ours is used
    // afterwards.
    is_there && catch_unwind(AssertUnwindSafe(|| tracing::error!(target: "corprof", "{message}"))).is_ok()
}
