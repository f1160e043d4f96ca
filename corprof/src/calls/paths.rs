//! [`Paths`]: a thread's calls, summed by call path, in bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Stands for no path.
pub(super) const NOBODY: u32 = u32::MAX;

/// The number of paths that a thread allocates at the start.
const AT_FIRST: usize = 256;

/// How many more paths may be allocated, in all threads together.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<AtomicUsize>);

impl Room {
    /// Room for `paths` paths.
    pub(super) fn new(paths: usize) -> Self {
        // Paths are numbered by `u32`, whose greatest value means no path.
        Self(Arc::new(AtomicUsize::new(paths.min(NOBODY as usize / 2))))
    }

    /// Takes up to `wanted` from the room; returns how many it took.
    fn take(&self, wanted: usize) -> usize {
        let take = |left: usize| (left > 0).then(|| left.saturating_sub(wanted));
        self.0.fetch_update(Relaxed, Relaxed, take).map_or(0, |left| left.min(wanted))
    }

    fn give_back(&self, taken: usize) {
        self.0.fetch_add(taken, Relaxed);
    }
}

/// Calls by call path: one node for each path.
///
/// The time of a node is the exclusive time of its function. The inclusive time is the sum over the nodes below it, so
/// a call needs to know only the node that it is counted in.
#[derive(Debug)]
pub(super) struct Paths {
    /// By the caller's index and the function. Callers come before their callees.
    nodes: IndexMap<(u32, u32), Sums, FxBuildHasher>,
    room: Room,
    /// How much of the room it has taken.
    taken: usize,
    cut: u64,
    lost: u64,
}

/// The sums of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) calls: u64,
    /// In the clock's ticks.
    pub(super) ticks: u64,
    /// The nanoseconds of that in which the thread was not on a processor.
    pub(super) waited: u64,
    /// How often calls were suspended, and how often they went on: by another path, on any thread.
    pub(super) suspended: u64,
    pub(super) resumed: u64,
    /// The times when they went on less those when they were suspended, modulo 2^64: over all paths of a function this
    /// is the time that they have waited, less the time of each suspension whose call has not gone on.
    pub(super) between: u64,
    /// The path that it called last: the next is likely to be the same, as in a loop. A call in `timer` takes 19.4 ns
    /// by this guess, and 20.4 by a look-up each time (`cargo xtask bench --only hooks`).
    last: u32,
    /// The path that its caller called after it: a method that makes several calls makes them in the same order again.
    /// In a web service under `timer` look-ups took 9 % of the processor time without this guess, and take 1 %.
    next: u32,
}

impl Default for Sums {
    fn default() -> Self {
        Self { calls: 0, ticks: 0, waited: 0, suspended: 0, resumed: 0, between: 0, last: NOBODY, next: NOBODY }
    }
}

impl Paths {
    /// For the sums of all threads: threads bring the room that they have taken.
    pub(super) fn new(room: Room) -> Self {
        Self { nodes: IndexMap::default(), room, taken: 0, cut: 0, lost: 0 }
    }

    /// For a thread: allocates in advance, so that its first hooks need not.
    pub(super) fn with_room(room: Room) -> Self {
        let mut paths = Self::new(room);
        paths.grow();
        paths
    }

    /// Counts a call of `function` by the path `caller`, and returns the path of the call.
    #[inline]
    pub(super) fn call(&mut self, caller: u32, function: u32) -> u32 {
        let last = self.nodes.get_index(caller as usize).map_or(NOBODY, |(_, sums)| sums.last);
        if self.count_if_it_is(last, caller, function) {
            return last;
        }
        let next = self.nodes.get_index(last as usize).map_or(NOBODY, |(_, sums)| sums.next);
        if self.count_if_it_is(next, caller, function) {
            self.set_last(caller, next);
            return next;
        }
        self.call_another(caller, last, function)
    }

    /// Counts a call of `function` by `caller` if its path is the one that was guessed.
    #[inline]
    fn count_if_it_is(&mut self, guess: u32, caller: u32, function: u32) -> bool {
        let Some((key, sums)) = self.nodes.get_index_mut(guess as usize) else { return false };
        let is_it = *key == (caller, function);
        sums.calls += u64::from(is_it);
        is_it
    }

    #[inline]
    fn set_last(&mut self, caller: u32, path: u32) {
        if let Some((_, sums)) = self.nodes.get_index_mut(caller as usize) {
            sums.last = path;
        }
    }

    /// Adds to the time of a path.
    #[inline]
    pub(super) fn add_time(&mut self, path: u32, ticks: u64) {
        if let Some((_, sums)) = self.nodes.get_index_mut(path as usize) {
            sums.ticks += ticks;
        }
    }

    /// Adds to the time of a path in which the thread was not on a processor.
    #[cold]
    pub(super) fn add_wait(&mut self, path: u32, waited: Duration) {
        if let Some((_, sums)) = self.nodes.get_index_mut(path as usize) {
            sums.waited += u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// A call is suspended.
    pub(super) fn suspend(&mut self, path: u32, now: u64) {
        if let Some((_, sums)) = self.nodes.get_index_mut(path as usize) {
            sums.suspended += 1;
            sums.between = sums.between.wrapping_sub(now);
        }
    }

    /// The call that was counted last by this path is one that was suspended.
    pub(super) fn resume(&mut self, path: u32, now: u64) {
        if let Some((_, sums)) = self.nodes.get_index_mut(path as usize) {
            sums.calls -= 1;
            sums.resumed += 1;
            sums.between = sums.between.wrapping_add(now);
        }
    }

    /// Adds the sums of another thread. It brings its room, so there is enough.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.cut += other.cut;
        self.lost += other.lost;
        if self.nodes.is_empty() {
            // The first thread that ends is often the only one with many paths.
            std::mem::swap(&mut self.nodes, &mut other.nodes);
            self.nodes.shrink_to_fit();
            self.taken = self.nodes.len().min(other.taken);
            other.taken -= self.taken;
            return;
        }
        let before = self.nodes.len();
        let mut places: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for (&(caller, function), sums) in &other.nodes {
            let caller = places.get(caller as usize).copied().unwrap_or(NOBODY);
            let entry = self.nodes.entry((caller, function));
            places.push(entry.index() as u32);
            let sum = entry.or_default();
            sum.calls += sums.calls;
            sum.ticks += sums.ticks;
            sum.waited += sums.waited;
            sum.suspended += sums.suspended;
            sum.resumed += sums.resumed;
            sum.between = sum.between.wrapping_add(sums.between);
        }
        let moved = (self.nodes.len() - before).min(other.taken);
        self.taken += moved;
        other.taken -= moved;
    }

    /// Caller, function and sums of each path, callers before their callees.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32, Sums)> {
        self.nodes.iter().map(|(&(caller, function), &sums)| (caller, function, sums))
    }

    /// How many calls are counted without their callers, for lack of room.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Counts calls that could not be counted by path.
    pub(super) fn note_lost(&mut self, calls: u64) {
        self.lost += calls;
    }

    /// How many calls were lost, for lack of memory or elsewhere.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    #[inline(never)]
    fn call_another(&mut self, caller: u32, last: u32, function: u32) -> u32 {
        let path = match self.nodes.get_index_of(&(caller, function)) {
            Some(path) => path,
            None if self.nodes.len() < self.taken || self.grow() => {
                self.nodes.insert_full((caller, function), Sums::default()).0
            }
            None => return self.call_without_caller(caller, function),
        } as u32;
        if let Some((_, sums)) = self.nodes.get_index_mut(last as usize) {
            sums.next = path;
        }
        self.set_last(caller, path);
        self.count(path)
    }

    fn count(&mut self, path: u32) -> u32 {
        if let Some((_, sums)) = self.nodes.get_index_mut(path as usize) {
            sums.calls += 1;
        }
        path
    }

    /// Counts a call whose path has no room as if it had no caller; each function has room for that.
    #[cold]
    fn call_without_caller(&mut self, caller: u32, function: u32) -> u32 {
        if self.nodes.try_reserve(1).is_err() || self.nodes.len() >= NOBODY as usize - 1 {
            self.lost += 1;
            return NOBODY;
        }
        self.cut += u64::from(caller != NOBODY);
        let entry = self.nodes.entry((NOBODY, function));
        let path = entry.index() as u32;
        entry.or_default();
        self.count(path)
    }

    /// Whether there is room for one more path; makes it if it can.
    #[cold]
    fn grow(&mut self) -> bool {
        let more = self.room.take(self.taken.max(AT_FIRST));
        let needed = (self.taken + more).saturating_sub(self.nodes.len());
        if needed == 0 || self.nodes.try_reserve_exact(needed).is_err() {
            self.room.give_back(more);
            return false;
        }
        self.taken += more;
        true
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        self.room.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The calls of each path, whose functions stand from the outermost to the innermost.
    fn counts(paths: &Paths) -> HashMap<Vec<u32>, u64> {
        let mut functions: Vec<Vec<u32>> = Vec::new();
        let mut counts = HashMap::new();
        for (caller, function, sums) in paths.iter() {
            let mut path = functions.get(caller as usize).cloned().unwrap_or_default();
            path.push(function);
            counts.insert(path.clone(), sums.calls);
            functions.push(path);
        }
        counts
    }

    #[test]
    fn each_call_counts_for_its_path_whatever_was_called_before() {
        let mut random = fastrand::Rng::with_seed(36);
        let mut paths = Paths::with_room(Room::new(10_000));
        let mut expected: HashMap<Vec<u32>, u64> = HashMap::new();
        let mut stack: Vec<(u32, u32)> = Vec::new();
        for step in 0..100_000_u32 {
            // Now in an order that comes again, now in none.
            let function = if step % 1000 < 800 { step % 5 } else { random.u32(0..5) };
            let left = stack.len().saturating_sub(random.usize(0..4)).min(3);
            stack.truncate(left);
            let caller = stack.last().map_or(NOBODY, |&(path, _)| path);
            stack.push((paths.call(caller, function), function));
            *expected.entry(stack.iter().map(|&(_, function)| function).collect()).or_default() += 1;
        }
        assert!(expected.len() > 500, "{} paths", expected.len());
        assert_eq!(counts(&paths), expected);
    }
}
