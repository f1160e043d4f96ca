//! What is known of waits for locks, from which the answer is made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use corprof::lock_waits::LockWait;
use corprof_export::SourceLines;

use super::place::Place;
use super::report::{LockReport, Longest, Owner, SemaphoreWait, StandingWait, Waiter};

/// A thread that waits in managed code is looked at after this time, and then each time that the wait has become longer
/// by a part of it.
const FIRST_SIGHT: Duration = Duration::from_millis(20);
const PART: u32 = 8;

/// The waits so far. A clone is what was known at that time.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) start: Instant,
    /// The waits that go on, by the system's number of the waiting thread.
    pub(super) waits: HashMap<u32, Wait>,
    count: usize,
    total: Duration,
    /// Those of these waits that had not ended.
    unfinished: usize,
    by_waiter: HashMap<String, Sum>,
    /// The time for which threads have waited, by what the owner did, and the name of its thread.
    by_owner: HashMap<(String, Option<String>), Sum>,
    /// The longest wait of each pair of methods: that of the waiting thread, and that of the owner.
    longest: HashMap<[String; 2], (Duration, Wait)>,
    /// What was found when all threads were looked at.
    pub(super) deadlocks: Vec<Vec<Standing>>,
    pub(super) began_before: Vec<Standing>,
    /// The threads that waited for a lock of which nothing more could be known.
    pub(super) unknown: Vec<Place>,
    /// The threads that waited for a `SemaphoreSlim` then.
    pub(super) semaphores: Vec<Place>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: usize,
    total: Duration,
    longest: Duration,
}

impl Sum {
    fn add(&mut self, time: Duration) {
        *self = Self { count: self.count + 1, total: self.total + time, longest: self.longest.max(time) };
    }
}

#[derive(Clone)]
pub(super) struct Wait {
    pub(super) start: Instant,
    /// The same by the clock of samples.
    pub(super) start_ticks: u64,
    /// When the thread was last known to wait.
    pub(super) seen: Instant,
    /// The time until which what its owner does is known.
    pub(super) owner_seen: Instant,
    pub(super) lock: u64,
    pub(super) waiter: Place,
    /// Where the owner was when it was first seen during this wait, and when it was last seen.
    pub(super) owner: Option<Place>,
    pub(super) owner_now: Option<Place>,
    pub(super) has_ended: bool,
}

impl Wait {
    /// Whether the runtime may not report its end, so that somebody has to look at the thread.
    pub(super) fn is_due(&self) -> bool {
        let due = FIRST_SIGHT.max(self.start.elapsed() / PART);
        self.waiter.is_in_lock_code() && self.seen.elapsed() >= due
    }
}

/// A thread waits for a lock that another one holds, and neither has moved.
#[derive(Clone)]
pub(super) struct Standing {
    pub(super) waiter: Place,
    pub(super) owner: Place,
    pub(super) wait: LockWait,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            waits: HashMap::new(),
            count: 0,
            total: Duration::ZERO,
            unfinished: 0,
            by_waiter: HashMap::new(),
            by_owner: HashMap::new(),
            longest: HashMap::new(),
            deadlocks: Vec::new(),
            began_before: Vec::new(),
            unknown: Vec::new(),
            semaphores: Vec::new(),
        }
    }

    /// Adds the time for which threads have waited while the owner of their lock was here.
    pub(super) fn add_owner(&mut self, owner: &Place, waited: Duration) {
        self.by_owner.entry(owner.key()).or_default().add(waited);
    }

    /// Adds a wait of this time. Returns the owner and the end of the wait, after the last round: the owner is taken
    /// for where it was last seen, if it was.
    pub(super) fn finish(&mut self, wait: Wait, time: Duration) -> Option<(Place, Duration)> {
        let of_owner = wait.owner_seen.saturating_duration_since(wait.start);
        let owner = wait.owner_now.clone();
        let rest = time.saturating_sub(of_owner);
        self.add_rest(owner.as_ref(), rest);
        self.take_back(owner.as_ref(), of_owner.saturating_sub(time));
        self.count += 1;
        self.total += time;
        self.by_waiter.entry(wait.waiter.method()).or_default().add(time);
        let methods = [wait.waiter.method(), wait.owner.as_ref().map(Place::method).unwrap_or_default()];
        if self.longest.get(&methods).is_none_or(|(longest, _)| *longest < time) {
            self.longest.insert(methods, (time, wait));
        }
        owner.filter(|_| !rest.is_zero()).map(|owner| (owner, rest))
    }

    fn add_rest(&mut self, owner: Option<&Place>, rest: Duration) {
        if !rest.is_zero() {
            let key = owner.map_or_else(|| ("[not seen]".to_owned(), None), Place::key);
            self.by_owner.entry(key).or_default().total += rest;
        }
    }

    /// Takes back the time for which a wait was thought to go on, as its end was not reported.
    fn take_back(&mut self, owner: Option<&Place>, time: Duration) {
        if let Some(sum) = owner.and_then(|owner| self.by_owner.get_mut(&owner.key())) {
            sum.total = sum.total.saturating_sub(time);
        }
    }

    /// Adds the waits that go on, up to now. Returns what [`finish`](Self::finish) does.
    pub(super) fn finish_all(&mut self) -> Vec<(Place, Duration)> {
        let unfinished: Vec<Wait> = self.waits.drain().map(|(_, wait)| wait).collect();
        self.unfinished = unfinished.len();
        let finish = |mut wait: Wait| {
            // Where it is now says more than where it was.
            wait.owner = wait.owner_now.clone().or(wait.owner);
            let time = wait.start.elapsed();
            self.finish(wait, time)
        };
        unfinished.into_iter().filter_map(finish).collect()
    }

    /// The answer, of waits that are all [finished](Self::finish_all). This reads files.
    pub(super) fn report(&self, top: usize, depth: usize, lines: &mut SourceLines) -> LockReport {
        let waiter = |(method, sum): (&String, &Sum)| Waiter {
            method: method.clone(),
            waits: sum.count,
            total: sum.total,
            longest: sum.longest,
        };
        let owner = |((method, name), sum): (&(String, Option<String>), &Sum)| Owner {
            method: method.clone(),
            name: name.clone(),
            waited_for: sum.total,
            samples: sum.count,
        };
        let mut longest: Vec<_> = self.longest.values().collect();
        longest.sort_by_key(|(time, _)| Reverse(*time));
        let longest = longest.into_iter().take(top).map(|(time, wait)| Longest {
            time: *time,
            at_seconds: wait.start.saturating_duration_since(self.start).as_secs_f64(),
            has_ended: wait.has_ended,
            waiter: wait.waiter.in_source(depth, lines),
            owner: wait.owner.as_ref().map(|owner| owner.in_source(depth, lines)),
        });
        let longest = longest.collect();
        let mut in_source = |wait: &Standing| StandingWait {
            waiter: wait.waiter.in_source(depth, lines),
            owner: wait.owner.in_source(depth, lines),
            class: wait.wait.class.to_string(),
            lock: format!("{:#x}", wait.wait.lock),
            has_limit: wait.wait.has_limit,
            owner_has_run: wait.wait.owner_has_run,
        };
        let deadlocks = self.deadlocks.iter().map(|waits| waits.iter().map(&mut in_source).collect()).collect();
        let began_before = self.began_before.iter().map(&mut in_source).collect();
        let unknown = self.unknown.iter().take(top).map(|waiter| waiter.in_source(depth, lines)).collect();
        let semaphores = by_method(&self.semaphores, top)
            .into_iter()
            .map(|(method, places)| SemaphoreWait {
                method,
                threads: places.len(),
                waiter: places[0].in_source(depth, lines),
            })
            .collect();
        LockReport {
            deadlocks,
            began_before,
            unknown,
            semaphores,
            waits: self.count,
            waited: self.total,
            unfinished_waits: self.unfinished,
            waiters: largest(&self.by_waiter, top).into_iter().map(waiter).collect(),
            owners: largest(&self.by_owner, top).into_iter().map(owner).collect(),
            longest,
        }
    }
}

/// Places by their methods, those with the most first.
fn by_method(places: &[Place], top: usize) -> Vec<(String, Vec<&Place>)> {
    let mut by_method: BTreeMap<String, Vec<&Place>> = BTreeMap::new();
    for place in places {
        by_method.entry(place.method()).or_default().push(place);
    }
    let mut rows: Vec<_> = by_method.into_iter().collect();
    rows.sort_by_key(|(_, places)| Reverse(places.len()));
    rows.truncate(top);
    rows
}

/// The sums with the longest times, at most so many.
fn largest<K: Ord>(sums: &HashMap<K, Sum>, top: usize) -> Vec<(&K, &Sum)> {
    let mut rows: Vec<_> = sums.iter().collect();
    rows.sort_by(|(name, a), (other, b)| b.total.cmp(&a.total).then(name.cmp(other)));
    rows.truncate(top);
    rows
}
