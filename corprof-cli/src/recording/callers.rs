//! Who awaits the methods on stacks, in a trace that the runtime has written, if it has the events of .NET 11's async
//! source. Names come at the end of a trace, so it is read before for these. What a thread ran comes after
//! the samples of that time, so samples wait.

use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use corprof_async::{LogicalFrame, MethodTable, Origin};
use corprof_nettrace::{Event, Item};
use rustc_hash::FxHashMap;

use super::samples::Sample;
use super::{Taken, open, read_items};
use crate::async_trace::LATEST;
use crate::event_pipe_samples::AsyncCallers;
use crate::trace_methods::Methods;

/// How often it is forgotten what no sample needs any more, while the longest wait of a sample goes by.
const RELEASES: u64 = 16;

/// What a trace tells of it so far, and the samples that wait.
#[derive(Debug)]
pub(super) struct TraceCallers {
    methods: Methods,
    callers: AsyncCallers,
    /// The longest wait of a sample, in ticks.
    latest: u64,
    /// What is older was forgotten.
    released: u64,
    /// By the number of the stack in the trace, until the next sequence point: none without a resumed method.
    stacks: FxHashMap<u32, Option<AsyncStack>>,
    waiting: VecDeque<Waiting>,
    counts: CallerCounts,
}

/// Samples in resumed methods, and those whose callers are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallerCounts {
    pub(crate) resumed: u64,
    pub(crate) known: u64,
}

/// A stack on which a resumed method may be.
#[derive(Debug, Clone)]
pub(super) struct AsyncStack {
    /// The innermost first.
    frames: Rc<[LogicalFrame]>,
    /// Whether what resumes methods is on it.
    is_resumed: bool,
}

/// A sample, and the one before of the same thread ends with it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) at: Duration,
    pub(super) thread: u32,
    /// None of a sample that is not looked at.
    pub(super) sample: Option<WaitingSample>,
}

#[derive(Debug)]
pub(super) struct WaitingSample {
    pub(super) sample: Sample,
    pub(super) process: u64,
    pub(super) os_thread: u64,
    pub(super) ticks: u64,
    /// None if no resumed method is there.
    pub(super) stack: Option<AsyncStack>,
    /// The number of a type, which is the innermost frame.
    pub(super) of_type: Option<u32>,
    /// Whether its weight is the time until the next one.
    pub(super) is_open: bool,
}

impl TraceCallers {
    /// Reads the names of a trace.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut methods = Methods::default();
        let mut reader = open(path)?;
        let latest = LATEST.as_secs().saturating_mul(reader.trace()?.ticks_per_second);
        read_items(path, &mut reader, |item| {
            if let Taken::Item(Item::Event(event)) = item {
                methods.event(&event.decoded(), event.ticks());
            }
        })?;
        Ok(Self {
            methods,
            callers: AsyncCallers::new(),
            latest,
            released: 0,
            stacks: FxHashMap::default(),
            waiting: VecDeque::new(),
            counts: CallerCounts::default(),
        })
    }

    /// Takes what a thread has told.
    pub(super) fn take(&mut self, payload: &[u8], written: u64) {
        self.callers.take(payload, written);
    }

    /// Numbers of stacks mean others from now on.
    pub(super) fn sequence_point(&mut self) {
        self.stacks.clear();
    }

    /// The stack of an event, if a resumed method may be on it.
    pub(super) fn stack(&mut self, event: &Event<'_>) -> Option<AsyncStack> {
        let methods = &self.methods;
        let stack = self.stacks.entry(event.stack_number()).or_insert_with(|| {
            let addresses = event.stack().addresses().enumerate();
            // The address of a caller is the one it returns to, which may be behind its end.
            let addresses = addresses.map(|(depth, address)| address.saturating_sub(u64::from(depth > 0)));
            let frames = addresses.map(|address| LogicalFrame { address, state: 0, origin: Origin::Physical });
            let frames: Rc<[LogicalFrame]> = frames.collect();
            let names = frames.iter().filter_map(|frame| methods.at(frame.address, event.ticks()));
            let mut is_resumed = false;
            let mut may_be_async = false;
            for method in names {
                is_resumed |= MethodTable::resumes(method.name) || MethodTable::wrapper_index(method.name).is_some();
                may_be_async |= method.name.ends_with(".MoveNext()");
            }
            (is_resumed || may_be_async).then_some(AsyncStack { frames, is_resumed })
        });
        stack.clone()
    }

    /// A sample waits for its callers.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// No sample waits any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.counts = CallerCounts::default();
    }

    /// The next sample whose time has come, with its logical stack if that is known; any one if all has come. `now` is
    /// the time of the last event.
    pub(super) fn next_due(&mut self, now: u64, is_last: bool) -> Option<(Waiting, Option<Rc<[LogicalFrame]>>)> {
        let until = now.saturating_sub(self.latest);
        self.callers.answered(until);
        let is_due = |waiting: &Waiting| {
            let Some(sample) = &waiting.sample else { return true };
            sample.stack.is_none()
                || sample.ticks <= until
                || self.callers.is_told(sample.os_thread, sample.ticks, until)
        };
        if !is_last && !self.waiting.front().is_some_and(is_due) {
            self.forget(until);
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        let joined = waiting.sample.as_ref().and_then(|sample| self.join(sample));
        Some((waiting, joined))
    }

    fn join(&mut self, sample: &WaitingSample) -> Option<Rc<[LogicalFrame]>> {
        let stack = sample.stack.as_ref()?;
        let joined = self.callers.join(sample.os_thread, sample.ticks, &stack.frames, &self.methods);
        let joined = joined.map(Rc::from);
        self.counts.resumed += u64::from(stack.is_resumed || joined.is_some());
        self.counts.known += u64::from(joined.is_some());
        joined
    }

    /// This goes through all that is held, which is too much for each event.
    fn forget(&mut self, until: u64) {
        if until.saturating_sub(self.released) > self.latest / RELEASES {
            self.released = until;
            self.callers.forget(until);
        }
    }

    pub(super) fn counts(&self) -> CallerCounts {
        self.counts
    }
}
