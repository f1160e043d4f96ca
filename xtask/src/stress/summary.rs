//! The sums of all runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The part of the profiler's keys that are combined by maximum; all others are summed.
const LONGEST: &str = "longest";

/// The values in one line `key=value …` of the program or the profiler.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReportedValues(BTreeMap<String, u64>);

impl ReportedValues {
    /// The last line that contains `mark`, which may be in the middle of a line of the runtime.
    pub(super) fn last(text: &str, mark: &str) -> Option<Self> {
        let at = text.rfind(mark)? + mark.len();
        let line = text[at..].lines().next().unwrap_or_default();
        let pairs = line.split_whitespace().filter_map(|word| {
            let (key, value) = word.split_once('=')?;
            Some((key.to_owned(), value.parse().ok()?))
        });
        Some(Self(pairs.collect()))
    }

    /// The value with this name, or 0.
    pub(super) fn get(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (key, &value) in &other.0 {
            let sum = self.0.entry(key.clone()).or_default();
            *sum = if key.contains(LONGEST) { value.max(*sum) } else { *sum + value };
        }
    }

    /// The pairs whose key begins with `prefix`, without it.
    fn under(&self, prefix: &str) -> String {
        let codes = self.0.iter().filter_map(|(key, count)| Some(format!("{} {count}", key.strip_prefix(prefix)?)));
        codes.collect::<Vec<_>>().join(", ")
    }
}

/// The sums of all runs on one runtime.
#[derive(Debug, Default)]
pub struct Summary {
    /// The runtime.
    pub(super) runtime: String,
    pub(super) runs: u64,
    pub(super) elapsed: Duration,
    /// The runs whose end a fault of the runtime's own has overtaken.
    pub(super) ended_by_runtime: u64,
    /// The failures, one entry a run.
    pub(super) failures: Vec<String>,
    pub(super) profiler: ReportedValues,
    pub(super) program: ReportedValues,
    /// The heartbeat's longest absence without a profiler, for comparison, in milliseconds.
    pub(super) away_alone: u64,
}

impl Summary {
    /// Adds a run.
    pub(super) fn add(&mut self, profiler: &ReportedValues, program: &ReportedValues) {
        self.profiler.add(profiler);
        self.program.add(program);
    }

    /// Whether no run failed, and some work was done.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.runs > 0 && self.walks() > 0
    }

    /// Stacks that the sampler has asked the runtime to walk.
    #[must_use]
    pub fn walks(&self) -> u64 {
        self.profiler.0.iter().filter(|(key, _)| key.starts_with("walk.")).map(|(_, count)| count).sum()
    }

    /// Threads that ended during a round.
    #[must_use]
    pub fn died(&self) -> u64 {
        self.profiler.get("ended") + self.profiler.get("delayed")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, runs, elapsed, ended_by_runtime, failures, profiler, program, away_alone } = self;
        let get = |key| profiler.get(key);
        writeln!(f, "{runtime}: {runs} runs in {:.0} s, {} failed", elapsed.as_secs_f64(), failures.len())?;
        if *ended_by_runtime > 0 {
            writeln!(
                f,
                "  ended by SIGSEGV   {ended_by_runtime}, by a fault of the runtime's on musl (book: Deployment)"
            )?;
        }
        writeln!(f, "  rounds             {} made, {} skipped", get("rounds"), get("skipped"))?;
        writeln!(f, "  walks              {} of other threads, {} samples", self.walks(), get("samples"))?;
        writeln!(f, "  answers            {}", profiler.under("walk."))?;
        writeln!(f, "  suspensions        {} retries; refused: {}", get("retries"), profiler.under("suspend."))?;
        writeln!(f, "  threads that died  {} before their turn, {} had to wait", get("ended"), get("delayed"))?;
        writeln!(f, "  stuck walks        {} given up", get("abandoned"))?;
        writeln!(f, "  suspension         at most {} ms", get("suspension.longest-us") as f64 / 1000.0)?;
        let away = program.get("longest-away-ms");
        writeln!(f, "  heartbeat          away for {away} ms at most; {away_alone} ms without a profiler")?;
        writeln!(f, "  names              {} frames", get("named"))?;
        writeln!(f, "  own walks          {}, {} refused", get("own.walks"), get("own.refused"))?;
        writeln!(f, "  kept identifiers   {} answers, {} refused as dead", get("asked.good"), get("asked.dead"))?;
        writeln!(f, "  hooks              {}, {} out of turn", get("hooks"), get("strays"))?;
        writeln!(f, "  values             {} read, {} unreadable", get("values"), get("unreadable"))?;
        write!(f, "  collections        {}", get("collections.started"))?;
        failures.iter().try_for_each(|failure| write!(f, "\n  FAILED {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_also_in_the_middle_of_the_runtime_s() {
        let text =
            "stress: when=running rounds=1\nUnhandled exception. stress: when=shutdown rounds=2 walk.S_OK=3\nx=9\n";
        let told = ReportedValues::last(text, "stress:").unwrap();
        assert_eq!((told.get("rounds"), told.get("walk.S_OK"), told.get("x")), (2, 3, 0));
        assert_eq!(ReportedValues::last(text, "pulse:"), None);
    }

    #[test]
    fn runs_add_up_and_the_longest_stays() {
        let told = |text| ReportedValues::last(text, "t:").unwrap();
        let mut summary = Summary { runs: 2, ..Summary::default() };
        assert!(!summary.is_good(), "nothing was walked");
        summary
            .add(&told("t: walk.S_OK=3 walk.E_FAIL=1 ended=1 suspension.longest-us=70"), &told("t: longest-away-ms=5"));
        summary.add(&told("t: walk.S_OK=4 delayed=2 suspension.longest-us=50"), &told("t: longest-away-ms=3"));
        assert_eq!((summary.walks(), summary.died()), (8, 3));
        assert!(summary.is_good());
        let text = summary.to_string();
        assert!(
            text.contains("E_FAIL 1, S_OK 7") && text.contains("at most 0.07 ms") && text.contains("for 5 ms"),
            "{text}"
        );
        summary.failures.push("it hung".to_owned());
        assert!(!summary.is_good());
    }
}
