//! What a thread runs now, as far as its stream has been read.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::history::RunNumber;
use crate::frame::{Chain, Kind};
use crate::sub_event::DispatcherId;

/// The state of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Whether it has been reset, so that what follows is whole.
    pub(super) is_live: bool,
    /// Whether it tells again, after a reset, what its thread runs.
    pub(super) is_replay: bool,
    /// The operations that the thread runs, the innermost last.
    pub(super) stack: Vec<Running>,
    /// The operations that it ran when it was reset, and when each was resumed.
    pub(super) before_reset: FxHashMap<DispatcherId, u64>,
    /// The operation that was resumed and whose callstack has not come, and when it was.
    pub(super) resumed: Option<(u64, DispatcherId, Kind)>,
    /// The operation of runtime async whose end was the last sub-event, and when.
    pub(super) just_ended: Option<(u64, DispatcherId)>,
    /// The operations of runtime async that have ended last, the last first.
    pub(super) completed: VecDeque<DispatcherId>,
    /// The operation whose end has resumed the one whose callstack has not come.
    pub(super) awaited: Option<Awaited>,
    /// When the thread has run an operation last.
    pub(super) idle_since: u64,
    /// The operation that was made last.
    pub(super) created: DispatcherId,
    /// The time of its last sub-event.
    pub(super) last: u64,
}

/// An operation that has ended, and that another one probably awaits.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) dispatcher: DispatcherId,
    pub(super) is_certain: bool,
}

/// An operation that runs now.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) number: RunNumber,
    pub(super) kind: Kind,
    pub(super) dispatcher: DispatcherId,
    pub(super) began: u64,
    pub(super) chain: Option<Chain>,
    pub(super) base: i32,
    pub(super) completed: u32,
    /// Whether its end has resumed another one.
    pub(super) has_been_followed: bool,
}

impl Running {
    /// Whether all its methods have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| self.completed as usize >= chain.len())
    }
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
