//! [`CallTree`]: how often functions were called, from where, and how long they took.

use std::cmp::Reverse;
use std::hash::Hash;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::paths::{NOBODY, Paths};

/// The cost of timing a call, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overhead {
    /// Counted as time of the called function.
    pub(super) inside: f64,
    /// Counted as time of its caller.
    pub(super) outside: f64,
}

/// The result of a [`CallProfiler`](super::CallProfiler): a tree of calls, with a node for each call path.
#[derive(Debug)]
pub struct CallTree {
    names: Vec<Box<str>>,
    nodes: Vec<Node>,
    /// How long the calls of each function have waited.
    waiting: Vec<Duration>,
    cut: u64,
    lost: u64,
}

#[derive(Debug)]
struct Node {
    caller: u32,
    function: u32,
    totals: CallTotals,
}

/// A call path: a node of a [`CallTree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallPath<'t> {
    /// The name of the called function.
    pub function: &'t str,
    /// The caller's index in [`CallTree::paths`], smaller than this one; none if no hooked function was running.
    pub caller: Option<usize>,
    /// The number and the time of the calls.
    pub totals: CallTotals,
}

/// Sums over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallTotals {
    /// How many calls began.
    pub calls: u64,
    /// The time from their beginnings to their ends. Nested calls of the same kind count once, with the outer call.
    pub inclusive: Duration,
    /// The time in which the functions themselves ran: without the hooked functions that they called.
    pub exclusive: Duration,
    /// What of the exclusive time the threads were on a processor: the rest they waited, for a lock, a disk, a
    /// processor. On systems other than Linux it is all of it.
    pub cpu: Duration,
    /// How long the calls waited without a thread, suspended (async methods): none of the times above. It is known
    /// of functions only, not of paths and callers, because a call goes on without its caller.
    pub waiting: Duration,
}

impl CallTree {
    /// Builds the tree from sums, with a function that converts the clock's ticks.
    pub(super) fn new(
        names: Vec<Box<str>>,
        paths: &Paths,
        overhead: &Overhead,
        now: u64,
        time: impl Fn(u64) -> Duration,
    ) -> Self {
        let mut calls_made = vec![0; paths.iter().len()];
        for (caller, _, sums) in paths.iter() {
            if let Some(calls) = calls_made.get_mut(caller as usize) {
                *calls += sums.calls + sums.resumed;
            }
        }
        let waiting = waiting(names.len(), paths, now).into_iter().map(&time).collect();
        let mut nodes: Vec<_> = paths
            .iter()
            .zip(calls_made)
            .map(|((caller, function, sums), made)| {
                let overhead = (sums.calls + sums.resumed) as f64 * overhead.inside + made as f64 * overhead.outside;
                let exclusive = time(sums.ticks).saturating_sub(Duration::from_nanos(overhead as u64));
                let cpu = exclusive.saturating_sub(Duration::from_nanos(sums.waited));
                Node {
                    caller,
                    function,
                    totals: CallTotals {
                        calls: sums.calls,
                        inclusive: exclusive,
                        exclusive,
                        cpu,
                        waiting: Duration::ZERO,
                    },
                }
            })
            .collect();
        // Callers come before their callees.
        for at in (0..nodes.len()).rev() {
            let Node { caller, totals, .. } = nodes[at];
            if let Some(caller) = nodes.get_mut(caller as usize) {
                caller.totals.inclusive += totals.inclusive;
            }
        }
        Self { names, nodes, waiting, cut: paths.cut(), lost: paths.lost() }
    }

    /// All paths, callers before their callees.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = CallPath<'_>> {
        self.nodes.iter().map(|node| {
            let caller = (node.caller != NOBODY).then_some(node.caller as usize);
            CallPath { function: self.name(node), caller, totals: node.totals }
        })
    }

    /// The called functions by name, those with the most processor time first, so that waits do not lead.
    pub fn functions(&self) -> Vec<(&str, CallTotals)> {
        let mut functions = self.sums(|node| node.function);
        for (function, totals) in &mut functions {
            totals.waiting = self.waiting.get(*function as usize).copied().unwrap_or_default();
        }
        let named =
            |(function, totals): (u32, CallTotals)| (self.names.get(function as usize).map_or("", |name| name), totals);
        functions.into_iter().map(named).collect()
    }

    /// The pairs of caller and called function by name, those with the most processor time of the called function
    /// first. The caller is none if no hooked function was running.
    pub fn edges(&self) -> Vec<((Option<&str>, &str), CallTotals)> {
        self.sums(|node| (self.nodes.get(node.caller as usize).map(|caller| self.name(caller)), self.name(node)))
    }

    /// How many calls are counted without their callers, for lack of room for more paths. The time of those callers
    /// lacks them.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// How many calls have no time of their own, as it counts for their callers: they were too deep for the
    /// [`ShadowStack`](super::ShadowStack), or there was no memory to count them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn name(&self, node: &Node) -> &str {
        self.names.get(node.function as usize).map_or("", |name| name)
    }

    /// The sums over all nodes with the same key.
    fn sums<'t, K: Copy + Eq + Hash>(&'t self, key: impl Fn(&'t Node) -> K) -> Vec<(K, CallTotals)> {
        // For each node its first callee, and the next one with the same caller; the last index stands for no caller.
        let count = self.nodes.len();
        let mut first = vec![None; count + 1];
        let mut next = vec![None; count];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            next[at] = first[count.min(node.caller as usize)].replace(at);
        }
        let mut sums = IndexMap::<K, (CallTotals, u32), FxBuildHasher>::default();
        let mut ahead = Vec::from_iter(first[count].map(|at| (at, false)));
        while let Some((at, is_over)) = ahead.pop() {
            let node = &self.nodes[at];
            let (totals, around) = sums.entry(key(node)).or_default();
            if is_over {
                *around -= 1;
                ahead.extend(next[at].map(|next| (next, false)));
                continue;
            }
            totals.calls += node.totals.calls;
            totals.exclusive += node.totals.exclusive;
            totals.cpu += node.totals.cpu;
            // The time of a call within another with the same key is in the outer one.
            if *around == 0 {
                totals.inclusive += node.totals.inclusive;
            }
            *around += 1;
            ahead.push((at, true));
            ahead.extend(first[at].map(|first| (first, false)));
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(key, (totals, _))| (key, totals)).collect();
        sums.sort_by_key(|(_, totals)| Reverse((totals.cpu, totals.exclusive)));
        sums
    }
}

/// How long the calls of each function have waited until `now`, in ticks.
fn waiting(functions: usize, paths: &Paths, now: u64) -> Vec<u64> {
    let mut waiting = vec![0_u64; functions];
    for (_, function, sums) in paths.iter() {
        if let Some(waiting) = waiting.get_mut(function as usize) {
            // Each call that has not gone on waits until now.
            let rest = sums.suspended.wrapping_sub(sums.resumed).wrapping_mul(now);
            *waiting = waiting.wrapping_add(sums.between).wrapping_add(rest);
        }
    }
    // The counters of two processors may differ a little.
    waiting.into_iter().map(|ticks| if ticks > u64::MAX / 2 { 0 } else { ticks }).collect()
}

#[cfg(test)]
mod tests;
