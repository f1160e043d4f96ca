//! What happens to operations, for timelines.

use crate::frame::{Chain, Kind};
use crate::sub_event::DispatcherId;

/// Something that happened to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When, in ticks of the trace.
    pub ticks: u64,
    /// The system's number of the thread that it happened on.
    pub thread: u64,
    /// The operation.
    pub dispatcher: DispatcherId,
    /// How its methods were compiled.
    pub kind: Kind,
    /// What happened.
    pub change: Change,
}

/// The kinds of [`Step`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It was made, and waits.
    Created {
        /// The operation that ran on the thread, or 0.
        parent: DispatcherId,
    },
    /// It runs.
    Resumed {
        /// Its methods, if the source tells them.
        chain: Option<Chain>,
    },
    /// It waits again.
    Suspended,
    /// It has ended.
    Completed,
    /// Where it waits, from its creation or suspension at the same time on.
    WaitsAt {
        /// Its methods.
        chain: Chain,
    },
}
