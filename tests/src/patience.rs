//! Programs that run for longer where a short run has not shown enough: on a busy machine, or by chance.
//!
//! The number of a sampler's rounds in a second depends on the machine's other load. A test that needs to see an event,
//! or a share within the statistical error, states it by [`ensure_or_longer!`](crate::ensure_or_longer) and gets a
//! longer run. Conditions that must always hold use `ensure!`, which fails at once.

use std::fmt;

use anyhow::{Context, Result};

use crate::Runtime;

/// How much longer the later runs are than the first. Most are long enough at the second time.
const TIMES: [u64; 4] = [1, 2, 4, 16];

/// A run was too short to show the expected event: see [`ensure_or_longer!`](crate::ensure_or_longer).
#[derive(Debug)]
pub struct TooShort(pub String);

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooShort {}

/// Like `ensure!`, for conditions that a longer run under [`patiently`](crate::patiently) will meet.
#[macro_export]
macro_rules! ensure_or_longer {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err($crate::TooShort(format!($($message)*)).into());
        }
    };
}

/// Does `work` on each of `runtimes`, for one time, and for 2, 4 and 16 times as long if it ends in [`TooShort`].
///
/// # Errors
/// Any other error of `work`, at once, or that of the longest run.
pub fn patiently(runtimes: Vec<Runtime>, mut work: impl FnMut(&Runtime, u64) -> Result<()>) -> Result<()> {
    runtimes
        .iter()
        .try_for_each(|runtime| longer_and_longer(|times| work(runtime, times)).with_context(|| runtime.to_string()))
}

fn longer_and_longer(mut work: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let (longest, shorter) = TIMES.split_last().unwrap_or((&1, &[]));
    for times in shorter {
        match work(*times) {
            Err(error) if error.is::<TooShort>() => println!("too short a run, so a longer one follows: {error:#}"),
            result => return result,
        }
    }
    work(*longest)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn runs_get_longer_until_enough_is_seen() {
        let mut runs = Vec::new();
        let result = longer_and_longer(|times| {
            runs.push(times);
            ensure_or_longer!(times >= 4, "{times} seen");
            Ok(())
        });
        assert!(result.is_ok());
        assert_eq!(runs, [1, 2, 4]);
    }

    #[test]
    fn the_longest_run_decides() {
        let mut runs = 0;
        let result = longer_and_longer(|_| {
            runs += 1;
            Err(TooShort("nothing seen".to_owned())).context("in context")
        });
        assert_eq!(runs, TIMES.len());
        assert!(result.is_err_and(|error| format!("{error:#}") == "in context: nothing seen"));
    }

    #[test]
    fn what_may_never_be_fails_at_once() {
        let mut runs = 0;
        let result = longer_and_longer(|_| {
            runs += 1;
            bail!("crashed")
        });
        assert!(result.is_err());
        assert_eq!(runs, 1);
    }
}
