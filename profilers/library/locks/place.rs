//! Where a thread is that waits for a lock or has one.

use std::borrow::Cow;

use corprof::prelude::*;
use corprof_export::SourceLines;

use crate::async_callers::Later;
use crate::code_frames::{CodeFrame, SourceStack, in_source, shown};
use crate::own_frames::is_of_framework;

/// The managed code in which threads wait for locks.
const LOCK_CODE: &str = "System.Threading.Lock.";

/// A thread and its stack, leaf first.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) os_id: u32,
    pub(super) name: Option<String>,
    pub(super) frames: Vec<CodeFrame>,
    /// Who awaits the method that the thread has resumed, if there may be one.
    pub(super) callers: Option<Later>,
}

impl Place {
    pub(super) fn new(os_id: u32, name: Option<Name>, frames: Vec<CodeFrame>, callers: Option<Later>) -> Self {
        Self { os_id, name: name.map(|name| name.to_string()), frames, callers }
    }

    /// The frames with the callers, as far as these are known.
    pub(super) fn all_frames(&self) -> Cow<'_, [CodeFrame]> {
        let Some(found) = self.callers.as_ref().and_then(Later::found) else { return Cow::Borrowed(&self.frames) };
        let physical = self.frames.get(..found.physical).unwrap_or(&self.frames);
        let spelling = self.frames.first().map(CodeFrame::spelling).unwrap_or_default();
        let callers = found.names.iter().map(|name| CodeFrame::named(name.clone(), spelling));
        Cow::Owned(physical.iter().cloned().chain(callers).collect())
    }

    /// Whether this is a thread of the pool without work.
    pub(super) fn is_idle(&self) -> bool {
        let is_in = |method: &str| self.frames.iter().any(|frame| frame.name.starts_with(method));
        is_in("System.Threading.PortableThreadPool.WorkerThread.")
            && !is_in("System.Threading.ThreadPoolWorkQueue.Dispatch(")
    }

    /// The innermost method that is not of the framework.
    pub(super) fn method(&self) -> String {
        let own = self.frames.iter().position(|frame| !is_of_framework(&frame.name)).unwrap_or_default();
        shown(&self.frames, own).unwrap_or_else(|| "[unknown]".to_owned())
    }

    /// By what the waits for a lock of this thread count.
    pub(super) fn key(&self) -> (String, Option<String>) {
        (self.method(), self.name.clone())
    }

    /// Whether the thread is in managed code that waits for a lock.
    pub(super) fn is_in_lock_code(&self) -> bool {
        self.frames.iter().any(|frame| frame.name.starts_with(LOCK_CODE))
    }

    /// Whether the thread waits for a `SemaphoreSlim` as for a lock. One that takes from a `BlockingCollection` waits
    /// for work.
    pub(super) fn waits_for_semaphore(&self) -> bool {
        let is_in = |method: &str| self.frames.iter().any(|frame| frame.name.starts_with(method));
        is_in("System.Threading.SemaphoreSlim.Wait") && !is_in("System.Collections.Concurrent.BlockingCollection<")
    }

    pub(super) fn in_source(&self, depth: usize, lines: &mut SourceLines) -> SourceStack {
        let frames = in_source(&self.all_frames(), depth, lines);
        SourceStack { thread: Some(self.os_id), name: self.name.clone(), frames }
    }
}
