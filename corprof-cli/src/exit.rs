//! The exit codes: one table, which the help shows and the code uses.

use std::process::{ExitCode, ExitStatus};

pub use corprof_launch::exit::{CANNOT_START, FAILED, Failure, NOT_FOUND, REFUSED, SIGNALLED};

/// Success, or the application ended with 0.
pub const OK: u8 = 0;
/// A body or an attach was refused, or a check failed.
pub const NO: u8 = 1;
/// The command line is wrong. clap uses this code.
pub const USAGE: u8 = 2;
/// `run --require-load`: the application ran, but a profiler was not loaded.
pub const NOT_LOADED: u8 = 124;

/// The table, as `corprof help exit-codes` shows it.
pub const TABLE: &str = "\
Exit codes:

    0  success; no check failed
    1  `il check` refused a body, the runtime refused the profiler of `attach`, `stacks`,
       `tasks`, `top`, `record -p` or a question (`locks` and so on) or would have refused
       it, the profiler stays despite `detach`, or `doctor` has findings
    2  the command line is wrong
    3  the command could not do its work: no such process, an unreadable file

`corprof run`, `corprof record`, `corprof attach --wait`, and questions, `requests` and `waits`
before `--` exit with the code of the application, or with one of these.
If Ctrl-C ends `record`, a question, `requests`, `waits` or `run` with a built-in profiler, the
code is 0 if there is a profile or an answer.

  124  the application ran, but a profiler was not loaded (`run`: with --require-load), or
       there is no profile, or none has arrived (`record`; without a profile, the code of
       an application that ended with another than 0 is kept), or there is no answer (a
       question that was ended before)
  125  the application was not started, because the profiler could not have worked
  126  the application cannot be started (not executable)
  127  there is no such application
  128+N  signal N ended the application (130: Ctrl-C, 137: killed, 139: crash)";

/// The result of a command.
pub type Outcome = Result<ExitCode, Failure>;

/// The application's own exit code.
pub fn of_application(status: ExitStatus) -> ExitCode {
    corprof_launch::exit::code(status).into()
}

/// The application's own exit code, and how it died, if a signal has ended it.
pub fn of_death(status: ExitStatus) -> (u8, Option<String>) {
    (corprof_launch::exit::code(status), corprof_launch::exit::death(status))
}

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
