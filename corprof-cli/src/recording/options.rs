//! The options of commands that read recordings.

use std::time::Duration;

use corprof_profilers::part_glob;
use globset::{Glob, GlobMatcher};

use super::selection::Selection;
use super::{Choice, Moment, Options, ThreadChoice, ThreadPattern};
use crate::options::Names;

/// What is looked at in a recording.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Looked {
    /// The events to look at, with the weight that they have: samples, waits (time), allocations (bytes), contention
    /// (time), exceptions; or any event with stacks, by NAME or PROVIDER/NAME [default: samples, else the next of
    /// these]
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,

    /// Only what is after this moment: seconds since the beginning, a percentage of the time, such as 25%, or a time of
    /// the day by UTC, such as 14:05 or 14:05:30.5
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) from: Option<Moment>,

    /// Only what is before this moment, likewise
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) to: Option<Moment>,

    /// Only this thread: its number, or a glob of names. Repeatable
    #[arg(long, value_name = "THREAD", value_parser = thread)]
    pub(crate) thread: Vec<ThreadPattern>,

    /// Only this process, of a recording that has several
    #[arg(long, value_name = "PID")]
    pub(crate) process: Option<u64>,

    /// Only events with this label: endpoint, trace and span of a request, where the recording has its activities, or
    /// one of the file's own
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) label: Option<(String, String)>,

    /// Only the slowest requests of each endpoint, such as 1%, where the recording has its activities
    #[arg(long, value_name = "PERCENT", value_parser = part)]
    pub(crate) slowest: Option<f64>,

    /// Only stacks with a method that this glob matches, such as 'Shop.Basket.*'. Repeatable: all must match
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) include: Vec<GlobMatcher>,

    /// No stacks with a method that this glob matches. Repeatable
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub(crate) exclude: Vec<GlobMatcher>,

    /// Also show the methods in which the runtime stops threads and by which it calls managed code
    #[arg(long)]
    pub(crate) runtime_frames: bool,

    /// Stacks as threads had them, in a recording of the runtime's sampler (dotnet-trace) that tells who awaits a resumed
    /// async method
    #[arg(long)]
    pub(crate) physical: bool,

    #[command(flatten)]
    pub(crate) names: Names,
}

impl Looked {
    /// What is read of a file.
    pub(crate) fn options(&self) -> Options {
        Options {
            choice: Choice::new(self.event.as_deref()),
            threads: ThreadChoice { threads: self.thread.clone(), process: self.process },
            from: self.from,
            to: self.to,
            label: self.label.clone(),
            group_label: None,
            slowest: self.slowest,
            is_timed: false,
            cells: None,
            is_joined: false,
            has_lanes: false,
            has_runtime_frames: self.runtime_frames,
            is_physical: self.physical,
            names: self.names,
        }
    }

    /// Whether this is not all of a file.
    pub(crate) fn is_part(&self) -> bool {
        let Self { event, from, to, thread, process, label, slowest, include, exclude, .. } = self;
        let is_moment = from.is_some() || to.is_some();
        let is_request = label.is_some() || slowest.is_some();
        let is_stack = !include.is_empty() || !exclude.is_empty();
        is_moment || is_request || is_stack || event.is_some() || !thread.is_empty() || process.is_some()
    }

    /// Which stacks are left.
    pub(crate) fn selection(&self) -> Selection {
        Selection { include: self.include.clone(), exclude: self.exclude.clone() }
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let wrong = || {
        format!(
            "`{text}` is not a moment: give seconds, such as 2.5, or a percentage up to 100%, such as 25%, or a time of the day by \
             UTC, such as 14:05:30"
        )
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    if let Some(percent) = text.strip_suffix('%') {
        let percent = number(percent).filter(|percent| *percent <= 100.0).ok_or_else(wrong)?;
        return Ok(Moment::Share(percent / 100.0));
    }
    if text.contains(':') {
        return clock(text).map(Moment::Clock).ok_or_else(wrong);
    }
    let seconds = number(text.strip_suffix('s').unwrap_or(text)).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(seconds).map(Moment::At).map_err(|_| wrong())
}

/// The time since midnight of `HH:MM` or `HH:MM:SS`.
fn clock(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let hours: u64 = parts.next()?.parse().ok().filter(|hours| *hours < 24)?;
    let minutes: u64 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let seconds: f64 = parts.next().unwrap_or("0").parse().ok().filter(|seconds| (0.0..60.0).contains(seconds))?;
    let since_midnight = Duration::from_secs(hours * 3600 + minutes * 60) + Duration::from_secs_f64(seconds);
    parts.next().is_none().then_some(since_midnight)
}

fn part(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent = number.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("`{text}` is not a part of the requests: give 1%, or 0.1%"))
}

fn thread(text: &str) -> Result<ThreadPattern, String> {
    match text.parse() {
        Ok(id) => Ok(ThreadPattern::Id(id)),
        Err(_) => glob(text).map(ThreadPattern::Name),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("give NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    Ok(Glob::new(&part_glob(text)).map_err(|error| format!("not a glob: {error}"))?.compile_matcher())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_seconds_or_percentages() {
        assert_eq!(moment("2.5"), Ok(Moment::At(Duration::from_millis(2500))));
        assert_eq!(moment("25%"), Ok(Moment::Share(0.25)));
        assert_eq!(moment("14:05"), Ok(Moment::Clock(Duration::from_secs(50_700))));
        assert_eq!(moment("0:00:30.5"), Ok(Moment::Clock(Duration::from_millis(30_500))));
        assert!(
            ["24:00", "1:60", "1:00:60", "1:2:3:4", "a:b", ":", "1:-2", "1:00:-1"]
                .iter()
                .all(|text| moment(text).is_err())
        );
        for wrong in ["", "-1", "NaN", "101%", "x%", "1e300"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_is_a_percentage() {
        assert_eq!((part("1%"), part("0.5")), (Ok(0.01), Ok(0.005)));
        assert!(["0", "101%", "-1", "NaN", "x"].iter().all(|wrong| part(wrong).is_err()));
    }

    #[test]
    fn a_plain_word_is_a_part_of_a_name() {
        assert!(glob("Basket").unwrap().is_match("Shop.Basket.Total(int[])"));
        assert!(!glob("Basket*").unwrap().is_match("Shop.Basket.Total(int[])"));
        assert!(glob("Shop.*.Total(*").unwrap().is_match("Shop.Basket.Total(int[])"));
        assert!(glob("[native code]").unwrap().is_match("[native code]"));
    }
}
