//! How many times a test repeats what it does.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};

/// The setting, from `cargo xtask test`: `few`, or `many` with `--all`.
const SETTING: &str = "CORPROF_TEST_REPETITIONS";

/// `few`, or `many` under `cargo xtask test --all`: a test with repetitions thus has a short form, which each check
/// runs.
#[must_use]
pub fn repetitions<N>(few: N, many: N) -> N {
    if env::var_os(SETTING).is_some_and(|setting| setting == "many") { many } else { few }
}

/// How long a test looks for something that is rare: the minutes in `MINUTES`, which the caller of `cargo xtask test`
/// sets, or these.
#[must_use]
pub fn minutes(usual: f64) -> Duration {
    let set = env::var("MINUTES").ok().and_then(|text| text.parse().ok());
    Duration::try_from_secs_f64(set.unwrap_or(usual) * 60.0).unwrap_or_default()
}

/// The number in an environment variable, such as the seed of a run that is to be repeated; none if it is not set.
///
/// # Errors
/// If it is not a number.
pub fn number(variable: &str) -> Result<Option<u64>> {
    let Some(text) = env::var_os(variable) else { return Ok(None) };
    Ok(Some(text.to_str().and_then(|text| text.parse().ok()).with_context(|| format!("{variable} is not a number"))?))
}
