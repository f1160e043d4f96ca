//! The requests of a recording with activities: which of them a thread worked for at each moment, for labels of
//! samples.
//!
//! Of .NET 11, the events of async operations tell that for each run of an operation that was made for the request.
//! Where these are missing, a thread counts for a request from each beginning or end of an activity of it until the
//! next activity on that thread, or until that takes other work from the queue of the thread pool.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use corprof_async::{Activity, ActivityKind, Frame, Request, RequestLimits, Requests, Step};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::async_trace::{self, Listener};
use crate::requests::{endpoint_of, is_asked};

/// The labels that samples get.
const ENDPOINT: &str = "endpoint";
const TRACE: &str = "trace";
const SPAN: &str = "span";
/// So many runs before a moment may reach as far as there.
const MOST_BEFORE: usize = 64;
/// The most runs, of 24 bytes each, and the most requests. Further ones have no labels.
const MOST_RUNS: usize = 8_000_000;
const MOST_REQUESTS: usize = 2_000_000;

/// Whether a label is one of those that requests give.
pub(super) fn is_label(name: &str) -> bool {
    [ENDPOINT, TRACE, SPAN].contains(&name)
}

/// The requests of a recording.
#[derive(Debug, Default)]
pub(super) struct RequestTimes {
    endpoints: IndexSet<String, FxBuildHasher>,
    requests: Vec<Labelled>,
    /// By the system's number of the thread, in order of their beginnings.
    runs: FxHashMap<u64, Vec<Run>>,
    count: usize,
}

/// A request, as samples are labelled with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Labelled {
    /// The number of its endpoint.
    endpoint: u32,
    trace: u128,
    span: u64,
    /// In ticks of the trace.
    length: u64,
    /// Whether it is one of the slowest of its endpoint that are asked for.
    pub(super) is_slow: bool,
}

/// A time in which a thread worked for a request, in ticks of the trace.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: u64,
    to: u64,
    request: u32,
}

impl RequestTimes {
    /// Reads those of a file. `slowest` is the part of each endpoint's requests that are slow, if that is asked for.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path, slowest: Option<f64>) -> Result<Self> {
        let mut gatherer = Gatherer::new();
        let tells_operations = async_trace::replay(path, &mut gatherer)?;
        let mut times = gatherer.finish(tells_operations);
        for runs in times.runs.values_mut() {
            runs.sort_unstable_by_key(|run| run.from);
        }
        if let Some(part) = slowest {
            times.find_slowest(part);
        }
        Ok(times)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The request that a thread worked for.
    pub(super) fn at(&self, thread: u64, ticks: u64) -> Option<&Labelled> {
        let runs = self.runs.get(&thread)?;
        let end = runs.partition_point(|run| run.from <= ticks);
        // The last one that has begun is the innermost.
        let before = runs.get(..end)?.iter().rev().take(MOST_BEFORE);
        let run = before.into_iter().find(|run| ticks < run.to)?;
        self.requests.get(run.request as usize)
    }

    /// The value of a label of a request.
    pub(super) fn label(&self, request: &Labelled, name: &str) -> Option<String> {
        match name {
            ENDPOINT => self.endpoints.get_index(request.endpoint as usize).cloned(),
            TRACE => Some(format!("{:032x}", request.trace)).filter(|_| request.trace != 0),
            SPAN => Some(format!("{:016x}", request.span)).filter(|_| request.span != 0),
            _ => None,
        }
    }

    fn find_slowest(&mut self, part: f64) {
        let mut by_endpoint: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, request) in self.requests.iter().enumerate() {
            by_endpoint.entry(request.endpoint).or_default().push(index);
        }
        for mut indexes in by_endpoint.into_values() {
            indexes.sort_unstable_by_key(|index| std::cmp::Reverse(self.requests.get(*index).map(|it| it.length)));
            let count = ((indexes.len() as f64 * part).ceil() as usize).max(1);
            for index in indexes.into_iter().take(count) {
                if let Some(request) = self.requests.get_mut(index) {
                    request.is_slow = true;
                }
            }
        }
    }

    /// Adds a request; answers with its number.
    fn add(&mut self, activity: &Activity, length: u64) -> Option<u32> {
        if self.requests.len() >= MOST_REQUESTS {
            return None;
        }
        let endpoint = u32::try_from(self.endpoints.insert_full(endpoint_of(Some(activity))).0).ok()?;
        self.requests.push(Labelled {
            endpoint,
            trace: activity.trace_id,
            span: activity.span_id,
            length,
            is_slow: false,
        });
        u32::try_from(self.requests.len() - 1).ok()
    }

    fn add_run(&mut self, thread: u64, run: Run) {
        if run.from < run.to && self.count < MOST_RUNS {
            self.count += 1;
            self.runs.entry(thread).or_default().push(run);
        }
    }
}

/// Whether a label of a sample is the one that is asked for. An endpoint may be given without the method of HTTP.
pub(super) fn is_value(name: &str, value: &str, asked: &str) -> bool {
    value == asked || name == ENDPOINT && value.split_once(' ').is_some_and(|(_method, path)| path == asked)
}

/// A time from an activity on a thread to the next one there, or to other work.
#[derive(Debug, Clone, Copy)]
struct Between {
    thread: u64,
    from: u64,
    to: u64,
    /// The span of the request.
    span: u64,
}

/// What is known of a file so far.
struct Gatherer {
    requests: Requests<fn(&[Frame]) -> bool>,
    finished: FinishedRequests,
    /// The request that each span is part of, by spans.
    roots: FxHashMap<u64, u64>,
    /// What each thread works for, by the last activity on it, and since when.
    works: FxHashMap<u64, (u64, u64)>,
    between: Vec<Between>,
}

/// The requests that have ended.
#[derive(Default)]
struct FinishedRequests {
    times: RequestTimes,
    by_span: FxHashMap<u64, u32>,
}

impl Gatherer {
    fn new() -> Self {
        // Operations that take requests one after the other are not told from others without activities.
        let is_loop: fn(&[Frame]) -> bool = |_| false;
        Self {
            requests: Requests::new(RequestLimits::default(), is_loop),
            finished: FinishedRequests::default(),
            roots: FxHashMap::default(),
            works: FxHashMap::default(),
            between: Vec::new(),
        }
    }

    /// Notes what the thread of an activity works for from now on.
    fn note(&mut self, thread: u64, ticks: u64, is_start: bool, activity: &Activity) {
        let span = activity.span_id;
        let is_server = activity.kind == ActivityKind::Server;
        let parent = self.roots.get(&activity.parent_span_id).copied().filter(|_| !is_server);
        let root = if is_start { parent.unwrap_or(span) } else { self.roots.get(&span).copied().unwrap_or(span) };
        if is_start && self.roots.len() < MOST_REQUESTS {
            self.roots.insert(span, root);
        }
        let works = if !is_start && root == span { None } else { Some((root, ticks)) };
        self.end_work(thread, ticks);
        if let Some(works) = works {
            self.works.insert(thread, works);
        }
    }

    /// Notes that a thread goes on with something else.
    fn end_work(&mut self, thread: u64, ticks: u64) {
        let Some((span, from)) = self.works.remove(&thread) else { return };
        if self.between.len() < MOST_RUNS {
            self.between.push(Between { thread, from, to: ticks, span });
        }
    }

    /// The requests with their times. Without events of operations, those between activities count.
    fn finish(mut self, tells_operations: bool) -> RequestTimes {
        self.requests.finish(|request| self.finished.add(&request));
        let FinishedRequests { mut times, by_span } = self.finished;
        for Between { thread, from, to, span } in self.between.into_iter().filter(|_| !tells_operations) {
            if let Some(request) = by_span.get(&span).copied() {
                times.add_run(thread, Run { from, to, request });
            }
        }
        times
    }
}

impl FinishedRequests {
    fn add(&mut self, request: &Request) {
        let Some(activity) = request.activity.as_ref().filter(|_| is_asked(request)) else { return };
        let Some(number) = self.times.add(activity, request.to.saturating_sub(request.from)) else { return };
        self.by_span.insert(activity.span_id, number);
        for run in request.operations.iter().flat_map(|operation| &operation.runs) {
            let to = run.known_until(request.to);
            self.times.add_run(run.thread, Run { from: run.from, to, request: number });
        }
    }
}

impl Listener for Gatherer {
    fn step(&mut self, step: Step) {
        self.requests.step(step, |request| self.finished.add(&request));
    }

    fn activity(&mut self, thread: u64, ticks: u64, is_start: bool, activity: Activity) {
        self.note(thread, ticks, is_start, &activity);
        if is_start {
            self.requests.start(thread, ticks, activity, |request| self.finished.add(&request));
        } else {
            self.requests.stop(ticks, activity, |request| self.finished.add(&request));
        }
    }

    fn work_queued(&mut self, _ticks: u64, _work: u64) {}

    fn work_taken(&mut self, ticks: u64, thread: u64, _work: u64) {
        self.end_work(thread, ticks);
    }

    fn end(&mut self, _at: u64) {}

    fn release(&mut self, until: u64) {
        self.requests.release(until, |request| self.finished.add(&request));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(name: &str, span: u64, parent: u64, kind: ActivityKind) -> Activity {
        let mut activity = Activity { span_id: span, parent_span_id: parent, trace_id: 0xab, ..Activity::default() };
        (activity.display_name, activity.kind) = (name.to_owned(), kind);
        activity
    }

    /// The labels of a thread at some times.
    fn endpoints(times: &RequestTimes, thread: u64, at: &[u64]) -> Vec<Option<String>> {
        at.iter().map(|ticks| times.label(times.at(thread, *ticks)?, ENDPOINT)).collect()
    }

    #[test]
    fn without_operations_a_thread_counts_from_one_activity_to_the_next() {
        let mut gatherer = Gatherer::new();
        let (a, b) = ("GET /a", "GET /b");
        let call = activity("GET", 3, 1, ActivityKind::Client);
        gatherer.activity(7, 10, true, activity(a, 1, 0, ActivityKind::Server));
        gatherer.activity(7, 20, true, call.clone());
        // After an await, on another thread, while the first one takes another request.
        gatherer.activity(7, 30, true, activity(b, 2, 0, ActivityKind::Server));
        gatherer.activity(8, 50, false, call.clone());
        gatherer.activity(8, 60, false, activity(a, 1, 0, ActivityKind::Server));
        // It may go on for the request, or for anything else.
        gatherer.activity(9, 50, true, call);
        gatherer.work_taken(55, 9, 1);
        gatherer.activity(7, 70, false, activity(b, 2, 0, ActivityKind::Server));
        let mut times = gatherer.finish(false);
        times.find_slowest(0.01);
        let [a, b] = [a, b].map(|name| Some(name.to_owned()));
        let of_7 = endpoints(&times, 7, &[9, 10, 25, 30, 69, 70]);
        assert_eq!(of_7, [None, a.clone(), a.clone(), b.clone(), b, None]);
        assert_eq!(endpoints(&times, 8, &[49, 50, 59, 60]), [None, a.clone(), a.clone(), None]);
        assert_eq!(endpoints(&times, 9, &[50, 54, 55, 69]), [a.clone(), a, None, None]);
        let request = times.at(7, 10).unwrap();
        assert_eq!(times.label(request, SPAN).as_deref(), Some("0000000000000001"));
        assert_eq!(times.label(request, TRACE).as_deref(), Some("000000000000000000000000000000ab"));
        assert!(request.is_slow, "the slowest of one is that one");
    }

    #[test]
    fn the_slowest_are_a_part_of_each_endpoint() {
        let mut times = RequestTimes::default();
        for length in 0..200 {
            times.add(&activity("GET /a", length, 0, ActivityKind::Server), length);
            times.add(&activity("GET /b", length, 0, ActivityKind::Server), 1_000 + length);
        }
        times.find_slowest(0.01);
        let slow: Vec<u64> = times.requests.iter().filter(|it| it.is_slow).map(|it| it.length).collect();
        assert_eq!(slow, [198, 1_198, 199, 1_199]);
    }

    #[test]
    fn an_endpoint_is_named_with_and_without_its_method() {
        assert!(is_value(ENDPOINT, "GET /a", "/a") && is_value(ENDPOINT, "GET /a", "GET /a"));
        assert!(!is_value(ENDPOINT, "GET /a", "GET") && !is_value("user", "GET /a", "/a"));
    }
}
