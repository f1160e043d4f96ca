//! What clients ask for, on its way to the thread.

use std::sync::Arc;

use crate::edit::{EditError, MethodEdit};
use crate::session::liveness::Lifeline;

use super::outcome::State;
use super::selector::{Selection, Selector};

/// A client's edit. It is the user's code, and dropping it is as well: both happen on the thread of the
/// instrumentation, or on that of the client when that thread has ended.
pub(super) type Edit = Arc<dyn Fn(&mut MethodEdit<'_>) -> Result<(), EditError> + Send + Sync>;

/// One client of one method.
pub(super) struct Client {
    pub(super) state: Arc<State>,
    pub(super) edit: Edit,
}

/// What a method becomes when a client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// The code that was there before.
    Revert,
    /// New code, from the body that the method was loaded with.
    Restore,
}

pub(super) enum Command {
    /// A new client; no lifeline for a module that has gone.
    Edit(Option<Lifeline>, Client),
    Select(Selector, Edit, Selection),
    Leave(Arc<State>, Leave),
    /// The second one takes the place of the first.
    Replace(Arc<State>, Option<Lifeline>, Client),
    LeaveAll(Selection, Leave),
    ModuleLoaded(usize),
    ModuleGone(usize),
}

/// The commands that the thread has not taken yet.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) commands: Vec<Command>,
    /// How many were ever asked for.
    pub(super) asked: u64,
    /// How many are done.
    pub(super) done: u64,
    /// The thread has ended.
    pub(super) is_closed: bool,
}
