//! What a thread runs now, as far as its stream has been read.

use crate::frame::{Chain, Kind};
use crate::sub_event::DispatcherId;

/// The state of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Whether it has been reset, so that what follows is whole.
    pub(super) is_live: bool,
    /// The operations that the thread runs, the innermost last.
    pub(super) stack: Vec<Running>,
    /// The operation that was resumed and whose callstack has not come, and when it was.
    pub(super) resumed: Option<(u64, DispatcherId, Kind)>,
    /// The operation that was made last.
    pub(super) created: DispatcherId,
    /// The time of its last sub-event.
    pub(super) last: u64,
}

/// An operation that runs now.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) dispatcher: DispatcherId,
    pub(super) chain: Option<Chain>,
    pub(super) base: i64,
    pub(super) completed: u32,
}

impl Stream {
    /// The index of the innermost operation of a kind.
    pub(super) fn innermost(&self, kind: Kind) -> Option<usize> {
        self.stack.iter().rposition(|running| running.kind == kind)
    }

    /// The innermost operation of a kind.
    pub(super) fn innermost_mut(&mut self, kind: Kind) -> Option<&mut Running> {
        self.stack.iter_mut().rfind(|running| running.kind == kind)
    }

    /// The innermost run of an operation.
    pub(super) fn run_of(&self, dispatcher: DispatcherId) -> Option<&Running> {
        self.stack.iter().rfind(|running| running.dispatcher == dispatcher)
    }
}
