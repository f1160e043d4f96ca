//! The exit codes of a program that runs an application, and errors that carry one.

use std::process::ExitStatus;

/// The program could not do its work: a process or a file could not be reached, read or written.
pub const FAILED: u8 = 3;
/// The application was not started, because the profiler could not have worked.
pub const REFUSED: u8 = 125;
/// The application's file cannot be executed.
pub const CANNOT_START: u8 = 126;
/// There is no such application.
pub const NOT_FOUND: u8 = 127;
/// A signal ended the application; its number is added to 128.
pub const SIGNALLED: u8 = 128;

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What happened, and what to change.
    pub error: anyhow::Error,
}

impl Failure {
    /// A failure with the given exit code.
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into() }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { code: FAILED, error: error.into() }
    }
}

/// The exit code that a shell would report: the application's own, or [`SIGNALLED`] and the number of the signal that
/// ended it.
#[must_use]
pub fn code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return SIGNALLED.wrapping_add(signal as u8);
    }
    let code = status.code().unwrap_or(FAILED.into());
    // Windows has larger codes, of which a program of Rust can only pass on the low byte. A failure must not become a
    // success.
    u8::try_from(code).unwrap_or_else(|_| ((code & 0xff) as u8).max(1))
}

/// How the application died, if a signal has ended it: `SIGTERM has ended the application (exit code 143)`.
#[must_use]
pub fn death(status: ExitStatus) -> Option<String> {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        return Some(format!("{name} has ended the application (exit code {})", code(status)));
    }
    let _ = status;
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn codes_are_those_of_a_shell() {
        let code = |script| code(Command::new("sh").args(["-c", script]).status().unwrap());
        assert_eq!((code("exit 0"), code("exit 42"), code("kill -9 $$")), (0, 42, 137));
    }

    #[test]
    fn a_death_is_named() {
        let death = |script| death(Command::new("sh").args(["-c", script]).status().unwrap());
        assert_eq!(death("kill -TERM $$").unwrap(), "SIGTERM has ended the application (exit code 143)");
        assert_eq!(death("exit 143"), None);
    }
}
