//! The phases of a run, and the summary at its end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::results::{QUICK, Results, Test, TestsFailed};
use crate::process::{announce, note};

/// How many of the slowest tests the summary lists.
const SLOWEST: usize = 10;

/// The phases so far.
#[derive(Default)]
pub(super) struct Phases {
    done: Vec<Phase>,
}

struct Phase {
    name: &'static str,
    time: Duration,
    ending: Ending,
}

enum Ending {
    Passed(Results),
    Failed(Error),
    Skipped(String),
}

impl Phases {
    /// Runs one phase; after a failure the later ones still run.
    pub(super) fn run(&mut self, name: &'static str, phase: impl FnOnce() -> Result<Results>) {
        announce(format_args!("Phase: {name}"));
        let start = Instant::now();
        let ending = match phase() {
            Ok(results) => Ending::Passed(results),
            Err(error) => {
                eprintln!("error: {error:#}");
                Ending::Failed(error)
            }
        };
        let time = start.elapsed();
        announce(format_args!("Phase ended after {:.1} s: {name}", time.as_secs_f64()));
        self.done.push(Phase { name, time, ending });
    }

    pub(super) fn skip(&mut self, name: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        note(format_args!("SKIPPED: {name}: {reason}"));
        self.done.push(Phase { name, time: Duration::ZERO, ending: Ending::Skipped(reason) });
    }

    /// Prints the table of phases, the slowest tests, and what failed tests have printed: users read a log from its
    /// end.
    pub(super) fn summary(&self) -> ExitCode {
        announce("Summary");
        let width = self.done.iter().map(|phase| phase.name.len()).max().unwrap_or_default();
        for Phase { name, time, ending } in &self.done {
            let (word, detail) = match ending {
                Ending::Passed(_) => ("ok", self.count(ending)),
                Ending::Failed(error) => ("FAILED", format!("{}; {error:#}", self.count(ending))),
                Ending::Skipped(reason) => ("skipped", reason.clone()),
            };
            note(format_args!("{word:<8} {name:<width$} {:>7.1} s  {detail}", time.as_secs_f64()));
        }
        self.show_slowest();
        self.show_skipped();
        self.show_failures();
        let is_good = !self.done.iter().any(|phase| matches!(phase.ending, Ending::Failed(_)));
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn count(&self, ending: &Ending) -> String {
        let Some(results) = ending.results() else { return String::new() };
        let skipped: usize = results.skipped().values().sum();
        let rest = if skipped > 0 { format!(", {skipped} of them SKIPPED") } else { String::new() };
        let processor = match results.processor_time().as_secs_f64() {
            0.0 => String::new(),
            seconds => format!(", {seconds:.0} s of processor time"),
        };
        match (results.tests.len(), results.failures().count()) {
            (0, _) => String::new(),
            (tests, 0) => format!("{tests} tests{rest}{processor}"),
            (tests, failures) => format!("{failures} of {tests} tests failed{rest}"),
        }
    }

    /// Such a test has passed, and has not tested all that it is for.
    fn show_skipped(&self) {
        for results in self.done.iter().filter_map(|phase| phase.ending.results()) {
            for (reason, tests) in results.skipped() {
                let noun = if tests == 1 { "test" } else { "tests" };
                note(format_args!("SKIPPED, in whole or in part: {tests} {noun}: {reason}"));
            }
        }
    }

    fn show_slowest(&self) {
        let results = || self.done.iter().filter_map(|phase| Some((phase.name, phase.ending.results()?)));
        let line = |(phase, test): &(&str, &Test)| {
            let processor = test.processor.map(|time| format!(", processor {:.1} s", time.as_secs_f64()));
            let processor = processor.unwrap_or_default();
            note(format_args!("{:>7.1} s{processor}  {} ({phase})", test.time.as_secs_f64(), test.name));
        };
        let mut slowest: Vec<_> = results()
            .flat_map(|(phase, results)| results.slowest(SLOWEST).into_iter().map(move |test| (phase, test)))
            .collect();
        if slowest.is_empty() {
            return;
        }
        slowest.sort_by_key(|(_, test)| std::cmp::Reverse(test.time));
        note(format_args!("the {} slowest tests:", slowest.len().min(SLOWEST)));
        slowest.iter().take(SLOWEST).for_each(line);
        let over: Vec<_> = results()
            .flat_map(|(phase, results)| results.over_their_limit().into_iter().map(move |test| (phase, test)))
            .collect();
        if !over.is_empty() {
            note(format_args!(
                "over {} s of processor time, the limit of a quick test (make it shorter, or move it to a module `long`):",
                QUICK.as_secs()
            ));
            over.iter().for_each(line);
        }
    }

    fn show_failures(&self) {
        for results in self.done.iter().filter_map(|phase| phase.ending.results()) {
            for (test, lines) in results.failures() {
                note(format_args!("{test} said, in short:"));
                lines.iter().for_each(|line| note(format_args!("    {line}")));
            }
        }
    }
}

impl Ending {
    fn results(&self) -> Option<&Results> {
        match self {
            Self::Passed(results) => Some(results),
            Self::Failed(error) => error.downcast_ref::<TestsFailed>().map(|failed| &failed.results),
            Self::Skipped(_) => None,
        }
    }
}
