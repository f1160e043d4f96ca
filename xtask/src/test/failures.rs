//! Shows the output of tests, and repeats that of failed ones at the end: users read a log from its end, and its beginning is
//! often cut off. For the same reason tests that passed are counted, not listed.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// How many lines of a test's output are repeated, from its beginning and its end.
const FIRST: usize = 3;
const LAST: usize = 6;

/// The repeated length of a line.
const WIDTH: usize = 400;

/// After so many passed tests the count is shown.
const STEP: usize = 25;

/// The output of one failed test, shortened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) test: String,
    pub(super) lines: Vec<String>,
}

/// The error of a command whose tests failed.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed: {status}")]
pub(super) struct TestsFailed {
    command: String,
    status: ExitStatus,
    pub(super) failures: Vec<Failure>,
}

/// Runs tests and shows their output as it comes, without the names of those that passed; the error [`TestsFailed`] if some fail.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let shown = process::shown(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let failures = repeat(stdout).with_context(|| format!("cannot read the output of `{shown}`"))?;
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    if !status.success() {
        bail!(TestsFailed { command: shown, status, failures });
    }
    Ok(())
}

fn repeat(from: ChildStdout) -> io::Result<Vec<Failure>> {
    let mut collector = Collector::default();
    let mut to = io::stdout().lock();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let mut passed = 0;
    while from.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if is_passed(&text) {
            passed += 1;
            if passed % STEP == 0 {
                writeln!(to, "  {passed} tests have passed")?;
            }
        } else {
            to.write_all(&line)?;
        }
        to.flush()?;
        collector.line(text.trim_end());
        line.clear();
    }
    Ok(collector.failures)
}

/// Whether a line is that of a test that passed.
fn is_passed(line: &str) -> bool {
    line.starts_with("test ") && line.trim_end().ends_with(" ... ok")
}

/// Finds the part of libtest's output that begins with `failures:` and has a heading for each test.
#[derive(Default)]
struct Collector {
    failures: Vec<Failure>,
    is_inside: bool,
}

impl Collector {
    fn line(&mut self, line: &str) {
        let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(test) = heading {
            self.is_inside = true;
            self.failures.push(Failure { test: test.to_owned(), lines: Vec::new() });
        } else if ["failures:", "Stack backtrace:", "stack backtrace:"].contains(&line) {
            // A list of names follows the output of the last test.
            self.is_inside = false;
        } else if self.is_inside
            && !line.trim().is_empty()
            && let Some(Failure { lines, .. }) = self.failures.last_mut()
        {
            if lines.len() == FIRST + LAST {
                lines.remove(FIRST);
            }
            lines.push(line.chars().take(WIDTH).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passed_is_left_out() {
        assert!(is_passed("test a::b ... ok\n") && is_passed("test src/lib.rs - a (line 3) ... ok"));
        for line in ["test a ... FAILED", "test result: ok. 3 passed", "test a has been running for over 60 seconds"] {
            assert!(!is_passed(line), "{line}");
        }
    }

    #[test]
    fn what_a_failed_test_said_first_and_last_is_kept() {
        let mut collector = Collector::default();
        let long = (0..100).map(|n| format!("line {n}"));
        let output = ["running 2 tests", "test a::b ... FAILED", "", "failures:", "", "---- a::b stdout ----"];
        let end =
            ["", "---- c stdout ----", "Error: short", "", "failures:", "    a::b", "    c", "test result: FAILED."];
        let lines = output.into_iter().map(str::to_owned).chain(long).chain(end.into_iter().map(str::to_owned));
        lines.for_each(|line| collector.line(&line));
        let [first, second] = &collector.failures[..] else { panic!("{:?}", collector.failures) };
        assert_eq!(first.test, "a::b");
        assert_eq!(first.lines.len(), FIRST + LAST);
        assert_eq!((first.lines[0].as_str(), first.lines[FIRST + LAST - 1].as_str()), ("line 0", "line 99"));
        assert_eq!(*second, Failure { test: "c".to_owned(), lines: vec!["Error: short".to_owned()] });
    }
}
