//! What operations did for a request.

use crate::frame::Frame;
use crate::operation::Operation;

/// A `System.Diagnostics.Activity`: a span of a distributed trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// Who made it, such as `Microsoft.AspNetCore`.
    pub source: String,
    /// What it is, such as `Microsoft.AspNetCore.Hosting.HttpRequestIn`.
    pub name: String,
    /// For people. Of a request to ASP.NET, the method when it begins, and with its route when it ends: `GET /orders`.
    pub display_name: String,
    /// Its place among others.
    pub kind: ActivityKind,
    /// The trace that it is part of; 0 if it is not told.
    pub trace_id: u128,
    /// Its number; 0 if it is not told.
    pub span_id: u64,
    /// The span that it is part of, maybe of another process; 0 if there is none.
    pub parent_span_id: u64,
}

/// The `ActivityKind` of an [`Activity`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ActivityKind {
    /// Within the application, or not told.
    #[default]
    Internal,
    /// The application is asked.
    Server,
    /// The application asks.
    Client,
    /// It sends a message.
    Producer,
    /// It takes a message.
    Consumer,
}

/// A request, from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its span, if the source of the request is an [`Activity`].
    pub activity: Option<Activity>,
    /// When it began, in ticks of the trace.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// The operation that it came to, such as that of the connection, then those that were made for it, in order of
    /// time. Of the first, what it did for the request. If it came to a thread that ran no operation, the first has the
    /// number 0, and what that thread ran until it had made the others. Empty if operations were not told.
    pub operations: Vec<Operation>,
    /// The activities within.
    pub calls: Vec<Call>,
    /// Whether all operations that were made for it had ended, when this was told.
    pub is_whole: bool,
    /// How many operations and calls were left out because of [`RequestLimits::operations`].
    pub left_out: u64,
}

/// An activity within a [`Request`], such as a call of another service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its span.
    pub activity: Activity,
    /// When it began, in ticks of the trace.
    pub from: u64,
    /// When it ended, if it had ended when the request was told.
    pub to: Option<u64>,
}

/// Bounds of the memory of [`Requests`](crate::Requests).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// Steps and activities that were not released. Of more, the oldest are used before their time.
    pub steps: usize,
    /// Requests that have not been told. Of more, the oldest are left out.
    pub requests: usize,
    /// Operations of one request, and the most runs of one operation, and the most activities within a request.
    pub operations: usize,
    /// How long after its end a request is told although operations that were made for it have not ended, in ticks of
    /// the trace.
    pub linger: u64,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { steps: 1 << 20, requests: 1 << 14, operations: 1000, linger: 1_000_000_000 }
    }
}

impl Request {
    /// How long any of its operations is known to have run, in ticks of the trace. What ran at once on several threads
    /// counts once.
    #[must_use]
    pub fn running(&self) -> u64 {
        let runs = self.operations.iter().flat_map(|operation| &operation.runs);
        let mut times: Vec<(u64, u64)> = runs.map(|run| (run.from, run.known_until(self.to).min(self.to))).collect();
        times.sort_unstable();
        let mut running = 0;
        let mut covered = self.from;
        for (from, to) in times {
            running += to.saturating_sub(from.max(covered));
            covered = covered.max(to);
        }
        running
    }

    /// The outermost method for which `is_application` holds, of the operations in order of time: what the endpoint is,
    /// where no activity tells.
    pub fn outermost(&self, is_application: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let chains = self.operations.iter().flat_map(|operation| {
            let runs = operation.runs.iter().flat_map(|run| [&run.chain, &run.place]);
            [&operation.place].into_iter().chain(runs).flatten()
        });
        chains.flat_map(|chain| chain.iter().rev()).find(|frame| frame.address != 0 && is_application(frame)).copied()
    }
}
