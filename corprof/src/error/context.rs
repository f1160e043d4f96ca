//! [`ResultExt`]: adds to an error what the profiler was doing.

use std::fmt;

/// Any error at all, for [`Callbacks::initialize`](crate::Callbacks::initialize).
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Adds to an error what the profiler was doing.
pub trait ResultExt<T> {
    /// The same result; an error begins with `doing`: `reading calls.conf: No such file or directory`.
    ///
    /// ```
    /// use corprof::prelude::*;
    ///
    /// fn rounds() -> Result<u32, BoxError> {
    ///     Ok("many".parse::<u32>().context("SAMPLER_ROUNDS=many")?)
    /// }
    /// assert_eq!(rounds().unwrap_err().to_string(), "SAMPLER_ROUNDS=many: invalid digit found in string");
    /// ```
    ///
    /// # Errors
    /// If the result was an error.
    fn context(self, doing: impl fmt::Display) -> Result<T, BoxError>;
}

impl<T, E: Into<BoxError>> ResultExt<T> for Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Result<T, BoxError> {
        self.map_err(|error| Box::new(InContext { doing: doing.to_string(), error: error.into() }) as BoxError)
    }
}

/// An error, and what the profiler was doing. Its text contains the error's, so its source is the error's source.
#[derive(Debug)]
struct InContext {
    doing: String,
    error: BoxError,
}

impl fmt::Display for InContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.error)
    }
}

impl std::error::Error for InContext {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_being_done_and_once_only() {
        let failed: Result<(), _> = Err(crate::Error::new(crate::error::E_FAIL, "GetThreadInfo"));
        let error = failed.context("looking at thread 7").context("starting").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("starting: looking at thread 7: GetThreadInfo: E_FAIL"), "{text}");
        assert!(error.source().is_none(), "a shown source is not repeated");
        assert_eq!(Ok::<_, std::io::Error>(1).context("nothing").unwrap(), 1);
    }
}
