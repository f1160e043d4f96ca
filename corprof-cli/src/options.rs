//! Options of several commands. Those that are settings of a built-in profiler have help, defaults and ranges of the
//! table.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use corprof_export::{Frame, Profile};
use corprof_heap::{Class, report as heap};
use corprof_launch::launch::Changes;
use corprof_profilers::settings;
use corprof_profilers::table::{self, Kind, Profiler};

use crate::exit::{self, Failure};

/// The help of the option.
pub(crate) fn help(profiler: &Profiler, variable: &str) -> String {
    let text = profiler.setting(variable).map(table::Setting::plain_meaning).unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Its default.
pub(crate) fn default(profiler: &Profiler, variable: &str) -> &'static str {
    profiler.setting(variable).map_or("", |setting| setting.default)
}

/// Parses a number in the setting's range.
pub(crate) fn number(
    profiler: &'static Profiler,
    variable: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        settings::check(profiler, variable, OsStr::new(text)).map_err(|error| error.cure)?;
        text.parse().map_err(|_| "give a number".to_owned())
    }
}

/// The setting's words.
pub(crate) fn words(profiler: &Profiler, variable: &str) -> PossibleValuesParser {
    let words = match profiler.setting(variable).map(|setting| setting.kind) {
        Some(Kind::Word(words)) => words,
        _ => &[],
    };
    PossibleValuesParser::new(words)
}

/// Parses the number of a process.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        if Path::new(text).is_file() {
            "give a process id, as `corprof ps` lists them: recordings are read by `corprof view`, `top`, `events`, `requests` and `waits`"
        } else {
            "give a process id, as `corprof ps` lists them"
        }
        .to_owned()
    })
}

/// Parses a number of seconds above 0, or of another unit.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    /// A year: the sampler takes no more.
    const MOST: f64 = 365.0 * DAY;
    const DAY: f64 = 24.0 * 60.0 * 60.0;
    let units = [('s', 1.0), ('m', 60.0), ('h', 60.0 * 60.0), ('d', DAY)];
    let seconds = in_units(text, &units).filter(|seconds| *seconds > 0.0 && *seconds <= MOST);
    seconds.ok_or_else(|| "give a time above 0, such as 30 or 0.5 (seconds), 90s, 5m, 1h or 1d".to_owned())
}

/// Parses a number of bytes above 0, or of another unit.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    /// The sampler takes no more.
    const MOST: f64 = (1_u64 << 50) as f64;
    let units = [('k', 1e3), ('K', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let bytes = in_units(text, &units).filter(|bytes| *bytes >= 1.0 && *bytes <= MOST);
    bytes.map(|bytes| bytes as u64).ok_or_else(|| "give a size, such as 500M or 2G".to_owned())
}

/// A number, times the unit that may follow.
fn in_units(text: &str, units: &[(char, f64)]) -> Option<f64> {
    let unit = units.iter().find_map(|(letter, factor)| Some((text.strip_suffix(*letter)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    Some(number.parse::<f64>().ok()? * factor)
}

/// The help of --physical.
pub(crate) const PHYSICAL_HELP: &str = "Show stacks as threads have them, not who awaits a resumed async method";

/// The help of --async-probe.
pub(crate) const ASYNC_PROBE_HELP: &str = "In a running process on .NET 8 to 10, show who awaits a resumed async method as well, by a call that is added to \
     a method of the core library: the profiler then stays, at rest, and no other one can attach before the process \
     ends";

/// The help of --raw-names.
pub(crate) const RAW_NAMES_HELP: &str =
    "Name methods as the runtime does: Beds.<Free>d__0.MoveNext() for Beds.Free (async)";

/// The help of --raw-names of reports about the heap.
pub(crate) const RAW_CLASSES_HELP: &str =
    "Name classes as the runtime does: Shop.<>c__DisplayClass3_0 for Shop.Load (closure)";

/// The spelling of methods.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Names {
    #[arg(long, help = RAW_NAMES_HELP)]
    pub(crate) raw_names: bool,
}

impl Names {
    /// The name that is shown of a method with this name, which this one has called.
    pub(crate) fn method(self, name: &str, caller: Option<&str>) -> String {
        if self.raw_names { name.to_owned() } else { corprof_export::in_source(name, caller) }
    }

    /// The name that is shown of a method that is known to be async.
    pub(crate) fn async_method(self, name: &str) -> String {
        // Iterators are not called by state machines: with itself as the caller, a state machine is that of an async
        // method.
        self.method(name, Some(name))
    }

    /// The same in pictures, where there is less room.
    pub(crate) fn async_label(self, name: &str) -> String {
        if self.raw_names { name.to_owned() } else { Frame::managed(name).label() }
    }

    /// How a report about a heap with these classes names them.
    pub(crate) fn of_heap<'c>(self, classes: impl IntoIterator<Item = &'c Class>) -> heap::Names {
        let spelled = |class: &Class| corprof_export::class_in_source(&class.name, &class.method);
        if self.raw_names {
            heap::Names::default()
        } else {
            heap::Names::of(classes, spelled, corprof_export::field_in_source)
        }
    }

    /// A profile whose files have these names.
    pub(crate) fn profile(self, profile: Profile) -> Profile {
        if self.raw_names { profile.with_raw_names() } else { profile }
    }

    /// The word of a profiler's setting.
    pub(crate) const fn word(self) -> &'static str {
        if self.raw_names { "raw" } else { "source" }
    }
}

/// The variables that `--env NAME=VALUE` gives.
///
/// # Errors
/// If one is not of this form.
pub(crate) fn given(variables: &[String]) -> Result<Changes, Failure> {
    let one = |text: &String| {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_owned(), Some(OsString::from(value))))
    };
    let checked =
        |text| one(text).ok_or_else(|| Failure::new(exit::USAGE, anyhow!("--env {text}: expected NAME=VALUE")));
    variables.iter().map(checked).collect()
}

#[cfg(test)]
mod tests {
    use corprof_profilers::table::{SAMPLER, TOP};

    use corprof_launch::launch;

    use super::*;

    #[test]
    fn an_option_is_what_the_table_says() {
        assert_eq!(help(&SAMPLER, "SAMPLER_HZ"), "Rounds per second");
        assert_eq!(default(&TOP, "TOP_BUDGET"), "2");
        let hertz = number(&SAMPLER, "SAMPLER_HZ");
        assert!(hertz("100").is_ok() && hertz("NaN").is_err());
        assert_eq!(hertz("0"), Err("give a number from 0.01 to 10000".to_owned()));
    }

    #[test]
    fn variables_have_a_name() {
        let changes = given(&["A=1".into(), "B=x=y".into(), "C=".into()]).unwrap();
        assert_eq!(launch::value_of(&changes, "B"), Some("x=y".into()));
        assert_eq!(launch::value_of(&changes, "C"), Some("".into()));
        assert!(given(&["=1".into()]).unwrap_err().error.to_string().contains("NAME=VALUE"));
        assert!(given(&["A".into()]).is_err());
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        let read = ["90s", "5m", "1h", "1d", "0.5h"].map(|text| seconds(text).unwrap());
        assert_eq!(read, [90.0, 300.0, 3600.0, 86_400.0, 1800.0]);
        assert!(["1w", "h", "400d", "-1m", "1 h", "1hm"].into_iter().all(|text| seconds(text).is_err()));
        let read = ["1000000", "500k", "100M", "1.5G", "1T"].map(|text| bytes(text).unwrap());
        assert_eq!(read, [1_000_000, 500_000, 100_000_000, 1_500_000_000, 1_000_000_000_000]);
        assert!(["0", "M", "1P", "-1M", "NaN", "9999T"].into_iter().all(|text| bytes(text).is_err()));
        assert!(seconds("0").is_err() && seconds("NaN").is_err() && seconds("inf").is_err() && seconds("-1").is_err());
    }
}
