//! Callers for profilers that go on without them, and look later whether they are known.

use std::sync::{Arc, OnceLock};

use corprof::prelude::*;
use corprof::sync::Mutex;

use super::{AsyncSource, AsyncWork, Callers, Joined, Joins, StackFrame, ThreadKey, Waiting};

/// The callers of a resumed method.
#[derive(Debug, Default)]
pub(crate) struct FoundCallers {
    /// How many frames of the stack are above them: the others are not callers.
    pub(crate) physical: usize,
    /// Those that are not on it, the innermost first.
    pub(crate) names: Vec<Name>,
}

/// Callers that are known some time. A clone is of the same stack.
#[derive(Clone, Debug)]
pub(crate) struct Later(Arc<OnceLock<Option<FoundCallers>>>);

impl Later {
    /// Whether nothing more comes.
    pub(crate) fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// The callers; none if no resumed method is known on the stack, or that is not known yet.
    pub(crate) fn found(&self) -> Option<&FoundCallers> {
        self.0.get()?.as_ref()
    }

    fn tell(&self, cx: &InNoGc<'_>, stack: &Waiting<Self>, joined: &Joined<'_>) {
        // Nobody awaits the outermost method of an operation, and what it calls is on the stack.
        let is_resumed = joined.has_callers() || joined.physical.len() < stack.frames.len();
        let found = is_resumed.then(|| FoundCallers { physical: joined.physical.len(), names: joined.names(cx) });
        let _ = self.0.set(found); // it is told once
    }
}

/// The stacks whose callers are known later.
#[derive(Default)]
pub(crate) struct LaterCallers(Callers<Later>);

impl LaterCallers {
    /// The callers of a stack that the thread had at this time, the innermost frame first.
    pub(crate) fn of(
        stacks: &Mutex<Self>,
        cx: &InNoGc<'_>,
        thread: ThreadKey,
        ticks: u64,
        frames: Box<[StackFrame]>,
    ) -> Later {
        let later = Later(Arc::default());
        let stack = Waiting::new(thread, ticks, frames, later.clone());
        stacks.lock(cx).0.add(cx, stack, |stack, joined| stack.what.tell(cx, stack, joined));
        later
    }

    /// The work for these stacks.
    pub(crate) fn work(stacks: &Arc<Mutex<Self>>, hears: &AsyncSource) -> AsyncWork<Self> {
        AsyncWork::new(Arc::clone(stacks), hears.clone(), false)
    }

    /// Has all callers known, as far as they ever will be. What a reader should know of them.
    pub(crate) fn finish(&mut self, cx: &InNoGc<'_>) -> Option<String> {
        self.settle(cx, true);
        self.0.note(cx)
    }
}

impl Joins for LaterCallers {
    type Of = Later;

    fn callers(&mut self) -> &mut Callers<Later> {
        &mut self.0
    }

    fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool) {
        self.0.settle(cx, is_last, |stack, joined| stack.what.tell(cx, stack, joined));
    }
}
