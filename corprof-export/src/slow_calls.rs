//! Calls that took long, each with its own samples.

use std::time::Duration;

use crate::StackId;

/// The slowest calls of some methods.
#[derive(Debug, Clone, Default)]
pub struct SlowCalls {
    /// How many calls there were in all.
    pub calls: u64,
    /// How many of them were slow.
    pub slow: u64,
    /// What slow means: `at least 50 ms`.
    pub limit: String,
    /// The slowest ones, the slowest first.
    pub slowest: Vec<SlowCall>,
}

/// A call that took long.
#[derive(Debug, Clone)]
pub struct SlowCall {
    /// The full name of the method.
    pub method: String,
    /// The arguments, in parentheses.
    pub arguments: String,
    /// The name or the number of the thread.
    pub thread: String,
    /// When it began, since the start.
    pub at: Duration,
    /// How long it took.
    pub time: Duration,
    /// How much of that its thread ran on a processor.
    pub running: Duration,
    /// How it ended.
    pub end: CallEnding,
    /// Its samples.
    pub stacks: Vec<SlowStack>,
}

/// How a call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallEnding {
    /// The method has returned.
    Returned,
    /// An exception has left the method.
    Threw,
    /// It had not ended when the profile was written.
    StillRuns,
}

/// The samples of a call that have the same stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowStack {
    /// The stack, which waits if its root is a wait.
    pub stack: StackId,
    /// How many samples there were.
    pub samples: u64,
    /// What they weigh together.
    pub weight: u64,
}

impl SlowCalls {
    /// In a line.
    pub(crate) fn summary(&self) -> String {
        let Self { calls, slow, limit, slowest } = self;
        let one = if *calls == 1 { "call" } else { "calls" };
        if *slow == 0 {
            return format!("no slow call: none of {calls} traced {one} took {limit}");
        }
        let shown = if (slowest.len() as u64) < *slow {
            format!("; the {} slowest", slowest.len())
        } else {
            ", the slowest first".to_owned()
        };
        format!("slow calls: {slow} of {calls} traced {one} took {limit}{shown}")
    }
}
