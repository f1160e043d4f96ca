//! Slow calls: the options.

use std::ffi::OsString;

use anyhow::anyhow;
use corprof_profilers::TracePattern;
use globset::Glob;

use crate::exit::{self, Failure};

/// The options.
#[derive(Debug, clap::Args)]
pub(super) struct SlowCallOptions {
    /// Keep the slow calls of these methods, each with its arguments and its own samples, running and waiting: a glob
    /// of names, such as 'Shop.Orders.*:50ms', where a plain word is a part of a name. A call is slow from LIMIT on
    /// (500us, 50ms, 2s; default: 100ms). The terminal shows the slowest ones as a table, and so does the page, where
    /// each has a flame graph. Calls of async methods are those of their parts that run between two waits. In a running
    /// process (--pid) methods are traced from their next call on, and the sampler stays, at rest. Repeatable; the
    /// first that matches a method counts
    #[arg(long, value_name = "METHODS[:LIMIT]", value_parser = pattern)]
    trace: Vec<TracePattern>,

    /// How many slow calls are kept. Default: 20
    #[arg(long, value_name = "COUNT", requires = "trace", value_parser = clap::value_parser!(u32).range(1..=1000))]
    slowest: Option<u32>,
}

fn pattern(text: &str) -> Result<TracePattern, String> {
    let pattern: TracePattern = text.parse()?;
    match Glob::new(&pattern.pattern()) {
        Ok(_) => Ok(pattern),
        Err(error) => Err(format!("not a glob: {error}")),
    }
}

impl SlowCallOptions {
    /// Whether any method is traced.
    pub(super) fn is_wanted(&self) -> bool {
        !self.trace.is_empty()
    }

    /// Refuses what cannot be had together.
    pub(super) fn check(&self, has_file: bool) -> Result<(), Failure> {
        let wrong = |text: &str| Err(Failure::new(exit::USAGE, anyhow!("{text}")));
        if self.is_wanted() && !has_file {
            return wrong("--trace needs a file, as slow calls are not sent: give one by -o");
        }
        if self.is_wanted() && cfg!(not(target_os = "linux")) {
            return wrong("--trace is available on Linux only");
        }
        Ok(())
    }

    /// The variables of the sampler.
    pub(super) fn settings(&self) -> Vec<(&'static str, OsString)> {
        let trace = self.is_wanted().then(|| TracePattern::join(&self.trace));
        let all = [("SAMPLER_TRACE", trace), ("SAMPLER_SLOWEST", self.slowest.map(|count| count.to_string()))];
        all.into_iter().filter_map(|(name, value)| Some((name, value?.into()))).collect()
    }
}

/// The variables that the shell may have for another run.
pub(super) const VARIABLES: [&str; 2] = ["SAMPLER_TRACE", "SAMPLER_SLOWEST"];

#[cfg(test)]
mod tests {
    use corprof_profilers::table::SAMPLER;

    use super::*;

    #[test]
    fn variables_are_those_of_the_sampler() {
        assert!(VARIABLES.iter().all(|name| SAMPLER.setting(name).is_some()));
        let trace = ["Shop.*:50ms", "Stock"].map(|text| pattern(text).unwrap()).to_vec();
        let settings = SlowCallOptions { trace, slowest: Some(7) }.settings();
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect();
        assert_eq!(settings, [("SAMPLER_TRACE", "Shop.*:50000us;Stock:100000us"), ("SAMPLER_SLOWEST", "7")]);
        assert!(SlowCallOptions { trace: Vec::new(), slowest: None }.settings().is_empty());
    }

    #[test]
    fn a_wrong_pattern_is_refused() {
        assert!(pattern("Shop:5").unwrap_err().contains("is not a limit"));
    }
}
