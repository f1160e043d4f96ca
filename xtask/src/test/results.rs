//! The results of tests, from the JUnit file that nextest writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::guard::PROCESSOR_TIME;

/// How many lines of a test's output are repeated, from its beginning and its end.
const FIRST: usize = 3;
const LAST: usize = 6;

/// The repeated length of a line.
const WIDTH: usize = 400;

/// The processor time that a quick test takes at most. Where it is not known, how long it takes.
pub(super) const QUICK: Duration = Duration::from_secs(5);

/// What each test of a run has come to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Results {
    pub(super) tests: Vec<Test>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) time: Duration,
    /// What it and all that it has started have had, if the guard has said so.
    pub(super) processor: Option<Duration>,
    /// Its output, shortened, if it has failed.
    pub(super) failure: Option<Vec<String>>,
    /// Why it has passed without all that it tests, if it says so: a line that begins with `skipped:`.
    pub(super) skipped: Option<String>,
}

/// The error of a command whose tests failed.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed: {status}")]
pub(super) struct TestsFailed {
    pub(super) command: String,
    pub(super) status: ExitStatus,
    pub(super) results: Results,
}

impl Results {
    /// Reads a JUnit file.
    pub(super) fn read(junit: &Path) -> Result<Self> {
        let text = fs::read_to_string(junit).with_context(|| format!("cannot read {}", junit.display()))?;
        Self::parse(&text).with_context(|| format!("cannot understand {}", junit.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader::from_str(text);
        let mut results = Self::default();
        let mut output: Option<String> = None;
        loop {
            match reader.read_event()? {
                Event::Start(start) => match start.name().as_ref() {
                    b"testcase" => results.tests.push(Test::of(&start)?),
                    b"failure" | b"error" => {
                        results.tests.last_mut().context("a failure of no test")?.failure = Some(Vec::new());
                        output.get_or_insert_default();
                    }
                    b"system-out" | b"system-err" => {
                        output.get_or_insert_default();
                    }
                    _ => {}
                },
                Event::Empty(start) if start.name().as_ref() == b"testcase" => results.tests.push(Test::of(&start)?),
                Event::Text(text) => {
                    if let Some(output) = &mut output {
                        output.push_str(&text.decode()?);
                    }
                }
                Event::GeneralRef(entity) => {
                    if let Some(output) = &mut output {
                        output.push_str(&resolved(&entity)?);
                    }
                }
                Event::End(end) if end.name().as_ref() == b"testcase" => {
                    if let (Some(output), Some(test)) = (output.take(), results.tests.last_mut()) {
                        test.take_output(&output);
                    }
                }
                // One output follows another.
                Event::End(_) => {
                    if let Some(output) = &mut output {
                        output.push('\n');
                    }
                }
                Event::Eof => return Ok(results),
                _ => {}
            }
        }
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.tests.iter().filter_map(|test| Some((test.name.as_str(), test.failure.as_deref()?)))
    }

    /// Why tests were skipped, each reason with the number of tests.
    pub(super) fn skipped(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for reason in self.tests.iter().filter_map(|test| test.skipped.as_deref()) {
            *reasons.entry(reason).or_default() += 1;
        }
        reasons
    }

    /// The slowest `count` tests, the slowest first.
    pub(super) fn slowest(&self, count: usize) -> Vec<&Test> {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by_key(|test| std::cmp::Reverse(test.time));
        tests.truncate(count);
        tests
    }

    /// The processor time of all tests, as far as it is known.
    pub(super) fn processor_time(&self) -> Duration {
        self.tests.iter().filter_map(|test| test.processor).sum()
    }

    /// The quick tests that have taken longer than a quick test may.
    pub(super) fn over_their_limit(&self) -> Vec<&Test> {
        self.tests.iter().filter(|test| !is_long(&test.name) && test.cost() > QUICK).collect()
    }
}

/// Whether a test declares itself long: it is in a module of that name.
pub(super) fn is_long(name: &str) -> bool {
    name.split("::").any(|part| part == "long")
}

impl Test {
    fn of(start: &BytesStart<'_>) -> Result<Self> {
        let attributes: BTreeMap<Vec<u8>, String> = start
            .attributes()
            .map(|attribute| {
                let attribute = attribute?;
                anyhow::Ok((
                    attribute.key.as_ref().to_vec(),
                    attribute.normalized_value(XmlVersion::Implicit1_0)?.into_owned(),
                ))
            })
            .collect::<Result<_>>()?;
        let get = |name: &str| attributes.get(name.as_bytes()).map(String::as_str);
        let seconds: f64 = get("time").unwrap_or("0").parse().context("a time")?;
        Ok(Self {
            name: get("name").context("a test without a name")?.to_owned(),
            time: Duration::try_from_secs_f64(seconds)?,
            processor: None,
            failure: None,
            skipped: None,
        })
    }

    /// What a machine has to do for it: not how long it takes, which other tests beside it change.
    pub(super) fn cost(&self) -> Duration {
        self.processor.unwrap_or(self.time)
    }

    fn take_output(&mut self, output: &str) {
        let processor = output.lines().find_map(|line| line.trim().strip_prefix(PROCESSOR_TIME)?.parse().ok());
        self.processor = processor.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if self.failure.is_some() {
            self.failure = Some(shortened(output));
        } else {
            self.skipped = output.lines().find_map(reason_to_skip);
        }
    }
}

/// What a line says of why a test is skipped.
fn reason_to_skip(line: &str) -> Option<String> {
    let (word, reason) = line.trim().split_once(':')?;
    let reason = reason.trim();
    // A sampler says how many rounds it has skipped.
    let is_reason = word.eq_ignore_ascii_case("skipped") && !reason.starts_with(|first: char| first.is_ascii_digit());
    is_reason.then(|| reason.chars().take(WIDTH).collect())
}

/// The character that an entity stands for.
fn resolved(entity: &BytesRef<'_>) -> Result<String> {
    if let Some(character) = entity.resolve_char_ref()? {
        return Ok(character.into());
    }
    Ok(resolve_predefined_entity(&entity.decode()?).unwrap_or_default().to_owned())
}

/// The first and the last lines; a backtrace is shown where the test ended.
fn shortened(output: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let is_backtrace = |line: &str| line.trim().eq_ignore_ascii_case("stack backtrace:");
    let before = output.lines().take_while(|line| !is_backtrace(line));
    for line in before.filter(|line| !line.trim().is_empty()) {
        if lines.len() == FIRST + LAST {
            lines.remove(FIRST);
        }
        lines.push(line.trim().chars().take(WIDTH).collect());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNIT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1">
  <testsuite name="corprof-tests::live" tests="3">
    <testcase name="hooks::a" classname="corprof-tests::live" time="6.250"></testcase>
    <testcase name="hooks::beside_others" classname="corprof-tests::live" time="7.5">
      <system-out>running 1 test
</system-out>
      <system-err>guard: processor time in seconds: 1.25
</system-err>
    </testcase>
    <testcase name="fire::long::b" classname="corprof-tests::live" time="90.5" />
    <testcase name="page::d" classname="corprof-cli::timeline" time="0.1">
      <system-out>running 1 test
skipped: there is no chromium
</system-out>
    </testcase>
    <testcase name="walks::c" classname="corprof-tests::live" time="0.5">
      <failure type="test failure">exit &lt;code&gt; 1</failure>
      <system-out>running 1 test
more</system-out>
    </testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn names_times_and_failures_are_read() {
        let results = Results::parse(JUNIT).unwrap();
        let names: Vec<_> = results.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["hooks::a", "hooks::beside_others", "fire::long::b", "page::d", "walks::c"]);
        assert_eq!(results.processor_time(), Duration::from_millis(1250));
        assert_eq!(results.slowest(1)[0].name, "fire::long::b");
        let failures: Vec<_> = results.failures().collect();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].0, "walks::c");
        assert_eq!(failures[0].1, ["exit <code> 1", "running 1 test", "more"]);
    }

    #[test]
    fn a_test_that_says_that_it_is_skipped_is_counted() {
        let results = Results::parse(JUNIT).unwrap();
        assert_eq!(results.skipped().into_iter().collect::<Vec<_>>(), [("there is no chromium", 1)]);
        assert_eq!(reason_to_skip("SKIPPED: no Go").as_deref(), Some("no Go"));
        assert_eq!(reason_to_skip("corprof: 3 lines skipped: too long"), None);
        assert_eq!(reason_to_skip("skipped: 384"), None);
    }

    #[test]
    fn a_slow_test_is_named_unless_it_says_that_it_is_long() {
        let results = Results::parse(JUNIT).unwrap();
        let names: Vec<_> = results.over_their_limit().iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["hooks::a"]);
    }

    #[test]
    fn the_first_and_the_last_lines_of_a_failure_are_kept() {
        let output: String = (0..100).map(|n| format!("line {n}\n\n")).collect();
        let lines = shortened(&output);
        assert_eq!(lines.len(), FIRST + LAST);
        assert_eq!((lines[0].as_str(), lines[FIRST + LAST - 1].as_str()), ("line 0", "line 99"));
    }
}
