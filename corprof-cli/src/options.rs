//! Options that are settings of a built-in profiler: their help, defaults and ranges are those of the table.

use std::ffi::OsStr;

use clap::builder::PossibleValuesParser;
use corprof_profilers::settings;
use corprof_profilers::table::{self, Kind, Profiler};

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

#[cfg(test)]
mod tests {
    use corprof_profilers::table::{SAMPLER, TOP};

    use super::*;

    #[test]
    fn an_option_is_what_the_table_says() {
        assert_eq!(help(&SAMPLER, "SAMPLER_HZ"), "Rounds per second");
        assert_eq!(default(&TOP, "TOP_BUDGET"), "2");
        let hertz = number(&SAMPLER, "SAMPLER_HZ");
        assert!(hertz("100").is_ok() && hertz("NaN").is_err());
        assert_eq!(hertz("0"), Err("give a number from 0.01 to 10000".to_owned()));
    }
}
