//! [`TracePattern`]: the methods that are traced, and the time above which a call is slow.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::part_glob;

/// Methods whose slow calls are kept: `Shop.Orders.*:50ms`, a glob of names and a limit. Without a limit it is
/// [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracePattern {
    /// The glob of the names, as it was given: see [`pattern`](Self::pattern).
    pub glob: String,
    /// A call that takes at least as long is slow.
    pub limit: Duration,
}

impl TracePattern {
    /// The limit of a pattern without one.
    pub const DEFAULT_LIMIT: Duration = Duration::from_millis(100);

    /// Between patterns in a setting: no name of a method has it.
    const SEPARATOR: char = ';';

    /// The whole glob: a plain word is a part of a name.
    #[must_use]
    pub fn pattern(&self) -> String {
        part_glob(&self.glob)
    }

    /// Parses the patterns of a setting.
    ///
    /// # Errors
    /// As of one pattern.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(Self::SEPARATOR).filter(|part| !part.is_empty()).map(Self::from_str).collect()
    }

    /// The text of a setting with these patterns.
    #[must_use]
    pub fn join(patterns: &[Self]) -> String {
        let texts: Vec<_> = patterns.iter().map(Self::to_string).collect();
        texts.join(&Self::SEPARATOR.to_string())
    }
}

impl FromStr for TracePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (glob, limit) = match text.rsplit_once(':') {
            Some((glob, limit)) => (glob, parse_limit(limit)?),
            None => (text, Self::DEFAULT_LIMIT),
        };
        if glob.is_empty() || glob.contains([Self::SEPARATOR, ':']) {
            return Err("give methods and a limit, such as 'Shop.Orders.*:50ms'".to_owned());
        }
        Ok(Self { glob: glob.to_owned(), limit })
    }
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    /// A day.
    const MOST: f64 = 24.0 * 60.0 * 60.0;
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    let parsed = units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    });
    let seconds = parsed.filter(|seconds| (0.0..=MOST).contains(seconds));
    let wrong = || format!("`{text}` is not a limit: give a time with its unit, such as 500us, 50ms, 2s or 1m");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// As it is parsed, with the limit in microseconds.
impl fmt::Display for TracePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}us", self.glob, self.limit.as_micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(glob: &str, micros: u64) -> TracePattern {
        TracePattern { glob: glob.to_owned(), limit: Duration::from_micros(micros) }
    }

    #[test]
    fn a_pattern_has_a_limit_or_the_default() {
        for (text, expected) in [
            ("Shop.Orders.*:50ms", pattern("Shop.Orders.*", 50_000)),
            ("Shop.Orders.*", pattern("Shop.Orders.*", 100_000)),
            ("*:0.5s", pattern("*", 500_000)),
            ("A.B(int, string):20us", pattern("A.B(int, string)", 20)),
            ("A.{B,C}:2m", pattern("A.{B,C}", 120_000_000)),
            ("A:0ms", pattern("A", 0)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_cure() {
        for (text, cure) in [
            ("A:50", "`50` is not a limit: give a time with its unit, such as 500us, 50ms, 2s or 1m"),
            ("A:-1ms", "`-1ms` is not a limit"),
            ("A:2d", "`2d` is not a limit"),
            ("A:NaNs", "`NaNs` is not a limit"),
            ("A:1441m", "`1441m` is not a limit"),
            (":50ms", "give methods and a limit"),
            ("", "give methods and a limit"),
            ("A;B:1s", "give methods and a limit"),
            ("A::M:1s", "give methods and a limit"),
        ] {
            let error = text.parse::<TracePattern>().unwrap_err();
            assert!(error.starts_with(cure), "{text}: {error}");
        }
    }

    #[test]
    fn patterns_of_a_setting_are_those_that_were_joined() {
        let patterns = [pattern("A.{B,C}.M(int, string)", 1500), pattern("*", 0)];
        let text = TracePattern::join(&patterns);
        assert_eq!(text, "A.{B,C}.M(int, string):1500us;*:0us");
        assert_eq!(TracePattern::parse_all(&text), Ok(patterns.to_vec()));
        assert_eq!(TracePattern::parse_all(""), Ok(Vec::new()));
        assert_eq!((patterns[1].pattern().as_str(), pattern("Orders", 0).pattern().as_str()), ("*", "*Orders*"));
    }
}
