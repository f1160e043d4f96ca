//! What corprof itself has to say goes to standard error, one line at a time, and never fails.

use std::io::Write;

/// Writes `corprof: message` and a line end in one piece; a closed standard error is not our problem to raise.
pub(crate) fn line(message: std::fmt::Arguments<'_>) {
    crate::suspension::forbid("standard error");
    let text = format!("corprof: {message}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
