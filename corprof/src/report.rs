//! Writes corprof's own messages to standard error, one line at a time. It never fails.

use std::io::Write;

/// Writes `corprof: message` and a line end in one piece; errors of standard error are ignored.
pub(crate) fn line(message: std::fmt::Arguments<'_>) {
    crate::suspension::forbid("standard error");
    let text = format!("corprof: {message}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
