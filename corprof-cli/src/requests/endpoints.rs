//! Sums of requests by endpoint, and the slowest ones whole.

use std::collections::{BTreeMap, HashMap};

use corprof_async::{Activity, ActivityKind, Call, Chain, Frame, Request, RequestLimits, Requests, Step};

use super::timeline::{Does, Part, parts};
use crate::async_trace::{Listener, Spread};

/// The most endpoints; further ones count as [`OTHERS`]. An application may name its requests by what is asked.
const MOST: usize = 1000;
/// The most places of an endpoint, of which nobody reads more.
const MOST_PLACES: usize = 1000;
/// Which share of an endpoint's requests is kept by itself as the slowest, as one of so many, and how many at most.
pub(super) const SLOWEST_OF: u64 = 100;
const MOST_SLOWEST: usize = 200;
/// As many more are kept meanwhile: the share grows with the requests.
const SPARE: usize = 10;
/// The endpoint of those beyond.
const OTHERS: &str = "[other endpoints]";

/// Requests by endpoint, as they end.
pub(super) struct Endpoints {
    requests: Requests<fn(&[Frame]) -> bool>,
    finished: FinishedRequests,
    /// The time of the last activity.
    last: u64,
}

/// Those that have ended.
#[derive(Debug, Default)]
pub(super) struct FinishedRequests {
    /// A part of the names of the endpoints that count.
    wanted: Option<String>,
    /// How many of the slowest are kept.
    most: usize,
    /// Requests that end later do not count.
    end: Option<u64>,
    pub(super) sums: BTreeMap<String, Sums>,
    /// The slowest, the slowest first.
    pub(super) slowest: Vec<Slow>,
    /// How long ago those began that had not ended.
    pub(super) unfinished: Vec<u64>,
}

/// An endpoint's requests, in ticks of the trace.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) times: Spread,
    pub(super) running: u64,
    pub(super) waiting: u64,
    /// What resumed them was in the queue of the thread pool.
    pub(super) queued: u64,
    /// The time by what waited, as [`Part::chains`] has it.
    pub(super) waits: HashMap<Vec<Chain>, WaitSums>,
    /// The time by what ran.
    pub(super) runs: HashMap<Vec<Chain>, u64>,
    /// The activities within, by name.
    pub(super) calls: HashMap<String, CallSums>,
    /// The slowest requests, the slowest first: their times and parts.
    slowest: Vec<(u64, Vec<Part>)>,
}

/// The time at a place.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct WaitSums {
    pub(super) waiting: u64,
    pub(super) queued: u64,
}

/// Activities of a name.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CallSums {
    pub(super) count: u64,
    /// Of all together, also at once.
    pub(super) time: u64,
}

/// A slow request.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) endpoint: String,
    pub(super) request: Request,
    pub(super) parts: Vec<Part>,
}

impl Slow {
    pub(super) fn length(&self) -> u64 {
        self.request.to.saturating_sub(self.request.from)
    }

    /// When an activity began and ended, within the request.
    pub(super) fn time_of(&self, call: &Call) -> (u64, u64) {
        time_of(&self.request, call)
    }
}

fn time_of(request: &Request, call: &Call) -> (u64, u64) {
    let from = call.from.clamp(request.from, request.to);
    (from, call.to.unwrap_or(request.to).clamp(from, request.to))
}

impl Endpoints {
    /// Keeps so many of the slowest, and counts the requests whose endpoint has `wanted` in its name.
    pub(super) fn new(most: usize, wanted: Option<String>) -> Self {
        // Operations that take requests one after the other are not told from others without activities.
        let is_loop: fn(&[Frame]) -> bool = |_| false;
        Self {
            requests: Requests::new(RequestLimits::default(), is_loop),
            finished: FinishedRequests { wanted, most, ..FinishedRequests::default() },
            last: 0,
        }
    }

    /// All of them, after the end.
    pub(super) fn finish(mut self) -> FinishedRequests {
        self.requests.finish(|request| self.finished.add(request));
        let last = self.finished.end.unwrap_or(self.last);
        let ages = self.requests.unfinished().filter_map(|from| last.checked_sub(from));
        self.finished.unfinished = ages.collect();
        self.finished
    }
}

impl Listener for Endpoints {
    fn step(&mut self, step: Step) {
        self.requests.step(step, |request| self.finished.add(request));
    }

    fn activity(&mut self, thread: u64, ticks: u64, is_start: bool, activity: Activity) {
        self.last = self.last.max(ticks);
        if is_start {
            self.requests.start(thread, ticks, activity, |request| self.finished.add(request));
        } else {
            self.requests.stop(ticks, activity, |request| self.finished.add(request));
        }
    }

    fn work_queued(&mut self, ticks: u64, work: u64) {
        self.requests.work_queued(ticks, work, |request| self.finished.add(request));
    }

    fn work_taken(&mut self, ticks: u64, thread: u64, work: u64) {
        self.requests.work_taken(ticks, thread, work, |request| self.finished.add(request));
    }

    fn end(&mut self, at: u64) {
        self.finished.end = Some(at);
    }

    fn cut_off(&mut self, known_until: &dyn Fn(u64) -> u64) {
        self.requests.finish_cut_off(known_until, |request| self.finished.add(request));
    }

    fn release(&mut self, until: u64) {
        self.requests.release(until, |request| self.finished.add(request));
    }
}

impl FinishedRequests {
    fn add(&mut self, request: Request) {
        if !is_asked(&request) {
            return;
        }
        let endpoint = endpoint_of(request.activity.as_ref());
        let is_wanted = self.wanted.as_ref().is_none_or(|wanted| endpoint.contains(wanted));
        let is_late = self.end.is_some_and(|end| request.to > end);
        if !is_wanted || is_late {
            return;
        }
        let parts = parts(&request);
        let is_known = self.sums.contains_key(&endpoint) || self.sums.len() < MOST;
        let sums = self.sums.entry(if is_known { endpoint.clone() } else { OTHERS.to_owned() }).or_default();
        sums.add(request.to.saturating_sub(request.from), &parts);
        request.calls.iter().for_each(|call| sums.add_call(&request, call));
        let slow = Slow { endpoint, request, parts };
        let place = self.slowest.partition_point(|other| other.length() >= slow.length());
        if place < self.most {
            self.slowest.insert(place, slow);
            self.slowest.truncate(self.most);
        }
    }
}

impl Sums {
    /// The slowest of [`SLOWEST_OF`] requests each.
    pub(super) fn slowest(&self) -> &[(u64, Vec<Part>)] {
        let share = usize::try_from(self.times.count() / SLOWEST_OF).unwrap_or(MOST_SLOWEST);
        self.slowest.get(..share.clamp(1, MOST_SLOWEST)).unwrap_or(&self.slowest)
    }

    fn add_slow(&mut self, length: u64, parts: &[Part]) {
        let share = usize::try_from(self.times.count() / SLOWEST_OF).unwrap_or(MOST_SLOWEST);
        let most = share.min(MOST_SLOWEST) + SPARE;
        let place = self.slowest.partition_point(|(other, _)| *other >= length);
        if place < most {
            self.slowest.insert(place, (length, parts.to_vec()));
            self.slowest.truncate(most);
        }
    }

    fn add(&mut self, length: u64, parts: &[Part]) {
        self.times.add(length);
        self.add_slow(length, parts);
        for part in parts {
            let mut sums = WaitSums::default();
            match part.does {
                Does::Runs => self.add_run(part),
                Does::Nothing => {}
                Does::Waits => sums.waiting = part.length(),
                Does::Queued => sums.queued = part.length(),
            }
            self.waiting += sums.waiting;
            self.queued += sums.queued;
            if !part.does.is_wait() || part.chains.is_empty() {
                continue;
            }
            if let Some(known) = self.waits.get_mut(&part.chains) {
                known.waiting += sums.waiting;
                known.queued += sums.queued;
            } else if self.waits.len() < MOST_PLACES {
                self.waits.insert(part.chains.clone(), sums);
            }
        }
    }

    fn add_call(&mut self, request: &Request, call: &Call) {
        let name = name_of(&call.activity);
        if self.calls.len() >= MOST_PLACES && !self.calls.contains_key(&name) {
            return;
        }
        let (from, to) = time_of(request, call);
        let sum = self.calls.entry(name).or_default();
        sum.count += 1;
        sum.time += to - from;
    }

    fn add_run(&mut self, part: &Part) {
        self.running += part.length();
        if let Some(known) = self.runs.get_mut(&part.chains) {
            *known += part.length();
        } else if self.runs.len() < MOST_PLACES {
            self.runs.insert(part.chains.clone(), part.length());
        }
    }
}

/// Whether a request was asked of the application: what it asks of others by itself was not.
pub(crate) fn is_asked(request: &Request) -> bool {
    let is_own = |activity: &Activity| [ActivityKind::Client, ActivityKind::Producer].contains(&activity.kind);
    !request.activity.as_ref().is_some_and(is_own)
}

/// What the request asked for.
pub(crate) fn endpoint_of(activity: Option<&Activity>) -> String {
    activity.map_or_else(|| "[without activity]".to_owned(), shown)
}

/// What an activity within a request is called: with its source, as the name may be only a method of HTTP.
pub(super) fn name_of(activity: &Activity) -> String {
    let name = shown(activity);
    if activity.source.is_empty() { name } else { format!("{name} ({})", activity.source) }
}

fn shown(activity: &Activity) -> String {
    let name = if activity.display_name.is_empty() { &activity.name } else { &activity.display_name };
    name.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, length: u64) -> Request {
        let activity = Activity { display_name: name.to_owned(), ..Activity::default() };
        Request {
            activity: Some(activity),
            from: 1000,
            to: 1000 + length,
            operations: vec![],
            calls: vec![],
            is_whole: true,
            left_out: 0,
        }
    }

    #[test]
    fn the_slowest_are_kept_in_order() {
        let mut finished = FinishedRequests { most: 2, ..FinishedRequests::default() };
        for length in [5, 9, 3, 9, 7] {
            finished.add(request("GET /a", length));
        }
        assert_eq!(finished.slowest.iter().map(Slow::length).collect::<Vec<_>>(), [9, 9]);
        assert_eq!(finished.sums["GET /a"].times.count(), 5);
    }

    #[test]
    fn the_slowest_of_a_hundred_each_are_kept_by_endpoint() {
        let mut finished = FinishedRequests::default();
        for length in 0..350 {
            finished.add(request("GET /a", (length * 37) % 350));
            finished.add(request("GET /b", length % 2));
        }
        let lengths = |endpoint: &str| -> Vec<u64> {
            finished.sums[endpoint].slowest().iter().map(|(length, _)| *length).collect()
        };
        assert_eq!(lengths("GET /a"), [349, 348, 347]);
        assert_eq!(lengths("GET /b"), [1, 1, 1]);
    }

    #[test]
    fn what_ends_too_late_does_not_count() {
        let mut finished = FinishedRequests { end: Some(1010), ..FinishedRequests::default() };
        finished.add(request("GET /a", 10));
        finished.add(request("GET /a", 11));
        assert_eq!(finished.sums["GET /a"].times.count(), 1);
    }

    #[test]
    fn endpoints_are_chosen_and_bounded() {
        let mut finished = FinishedRequests { wanted: Some("/a".to_owned()), ..FinishedRequests::default() };
        finished.add(request("GET /a", 1));
        finished.add(request("GET /b", 1));
        let mut asked = request("GET /a", 1);
        asked.activity = asked.activity.map(|activity| Activity { kind: ActivityKind::Client, ..activity });
        finished.add(asked);
        assert_eq!(finished.sums.keys().collect::<Vec<_>>(), ["GET /a"]);
        assert_eq!(finished.sums["GET /a"].times.count(), 1);
        let mut finished = FinishedRequests::default();
        for number in 0..MOST + 5 {
            finished.add(request(&format!("GET /{number}"), 1));
        }
        assert_eq!(finished.sums.len(), MOST + 1);
        assert_eq!(finished.sums[OTHERS].times.count(), 5);
    }
}
