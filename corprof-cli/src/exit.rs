//! The exit codes: one table, which the help shows and the code uses.

use std::process::ExitCode;

/// Everything went well, or the application ended with 0.
pub const OK: u8 = 0;
/// The answer is no: a body was refused, an attach was refused, a check failed.
pub const NO: u8 = 1;
/// The command line makes no sense. clap ends with this.
pub const USAGE: u8 = 2;
/// Something that was needed to answer could not be read, asked or written.
pub const FAILED: u8 = 3;
/// `run --require-load`: the application ran, but a profiler was not loaded.
pub const NOT_LOADED: u8 = 124;
/// `run`: the application was not started, as the profiler could not have worked.
pub const REFUSED: u8 = 125;
/// `run`: the application's file is there, but cannot be started.
pub const CANNOT_START: u8 = 126;
/// `run`: there is no such application.
pub const NOT_FOUND: u8 = 127;
/// `run`: the application was ended by the signal with this number above 128.
pub const SIGNALLED: u8 = 128;

/// The table, as `corprof help exit-codes` shows it.
pub const TABLE: &str = "\
Exit codes:

    0  everything went well; no check failed
    1  the answer is no: `il check` refused a body, the runtime refused the profiler
       of `attach` or would have, `doctor` found something wrong
    2  the command line makes no sense
    3  the question could not be answered: no such process, an unreadable file

`corprof run` and `corprof record` pass on the exit code of the application, and have a few of
their own. `record` that was ended by Ctrl-C ends with 0 if the profile is written.

  124  the application ran, but a profiler was not loaded (`run`: with --require-load), or
       there is no profile (`record`)
  125  the application was not started, as the profiler could not have worked
  126  the application cannot be started (not executable)
  127  there is no such application
  128+N  the application was ended by signal N (130: Ctrl-C, 137: killed, 139: crash)";

/// Why a command ended without an answer, with the code that it ends with.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What happened, and what to change.
    pub error: anyhow::Error,
}

impl Failure {
    /// A failure with a code of its own.
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into() }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { code: FAILED, error: error.into() }
    }
}

/// How a command ends.
pub type Outcome = Result<ExitCode, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code() {
        for code in [OK, NO, USAGE, FAILED, NOT_LOADED, REFUSED, CANNOT_START, NOT_FOUND] {
            assert!(TABLE.lines().any(|line| line.trim_start().starts_with(&format!("{code}  "))), "{code}");
        }
        assert!(TABLE.contains(&format!("{SIGNALLED}+N")));
    }
}
