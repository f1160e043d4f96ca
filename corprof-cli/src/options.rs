//! Options of several commands. Those that are settings of a built-in profiler have help, defaults and ranges of the
//! table.

use std::ffi::{OsStr, OsString};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
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

/// Parses a number of seconds above 0.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    /// A year: the sampler takes no more.
    const MOST: f64 = 365.0 * 24.0 * 60.0 * 60.0;
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= MOST);
    seconds.ok_or_else(|| "give a number of seconds above 0, such as 30 or 0.5".to_owned())
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
        assert!(seconds("0").is_err() && seconds("NaN").is_err() && seconds("inf").is_err() && seconds("-1").is_err());
    }
}
