//! How many times a test repeats what it does.

use std::env;

/// The setting, from `cargo xtask test`: `few`, or `many` with `--all`.
const SETTING: &str = "CORPROF_TEST_REPETITIONS";

/// `few`, or `many` under `cargo xtask test --all`: a test with repetitions thus has a short form, which each check runs.
#[must_use]
pub fn repetitions<N>(few: N, many: N) -> N {
    if env::var_os(SETTING).is_some_and(|setting| setting == "many") { many } else { few }
}
