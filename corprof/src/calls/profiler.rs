//! [`CallProfiler`]: counts and times the calls of all threads in their hooks.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use indexmap::IndexSet;

#[cfg(doc)]
use super::CallTotals;
use super::cold_call::cold_call;
use super::paths::{NOBODY, Paths, Room};
use super::shadow_stack::ShadowStack;
use super::tree::{CallTree, Overhead};
use super::waits::{Rule, Waits};
use crate::hooks::clock::HookClock;
use crate::hooks::{InHook, StackBoundary};
use crate::lock::unpoisoned;

/// The default limit on call paths: 72 MiB of them.
const MOST: usize = 1 << 20;

/// Counts and times calls: each thread by itself, and all together as threads end.
///
/// Each hook reads a monotonic clock once. The time since the thread's last hook counts for the function that was
/// running. Time in which a thread waits counts like any other, and [`CallTotals::cpu`] lacks it; the time of a
/// function without hooks counts for its caller. From the suspension of an async method until it goes on, its call
/// [waits](CallTotals::waiting), without a thread.
///
/// The cost of the timing itself is [measured](Self::overhead) at the start and subtracted, except the way from
/// compiled code to the hooks.
///
/// Memory is bounded: 72 bytes for each call path, at most 1,048,576 paths in all threads together
/// ([`with_bound`](Self::with_bound)) plus one for each function in each thread; and 16 bytes for each call that a
/// thread is inside of, as in a [`ShadowStack`]. Calls without room are counted: [`CallTree::cut`], [`CallTree::lost`].
/// Paths take twice the memory while they grow and while a thread is [added](Self::add), and the [tree](Self::tree)
/// takes as much again.
///
/// ```
/// use corprof::calls::{CallProfiler, CallTimer};
/// use corprof::hooks::StackBoundary;
/// use corprof::prelude::*;
///
/// #[derive(Default)]
/// struct Times(CallProfiler);
///
/// impl FunctionHooks for Times {
///     type Function = u32;
///     type Thread = CallTimer;
///     const UNWINDS: bool = true;
///
///     fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<u32> {
///         Hook::Inlinable(self.0.number(&cx.names().function(function)))
///     }
///     fn thread_started(&self) -> CallTimer {
///         self.0.timer()
///     }
///     fn enter(&self, cx: &InHook<'_>, timer: &mut CallTimer, &function: &u32) {
///         timer.enter(cx, function);
///     }
///     fn leave(&self, cx: &InHook<'_>, timer: &mut CallTimer, _function: &u32) {
///         timer.leave(cx);
///     }
///     fn unwound(&self, timer: &mut CallTimer, boundary: StackBoundary) {
///         timer.unwound(boundary);
///     }
///     fn thread_ended(&self, timer: CallTimer) {
///         self.0.add(timer);
///     }
/// }
/// ```
#[derive(Debug)]
pub struct CallProfiler {
    clock: HookClock,
    overhead: Overhead,
    waits: Rule,
    room: Room,
    /// The names of functions, by number. No hook takes this lock.
    names: Mutex<IndexSet<String>>,
    /// The sums of the threads that have ended. No hook takes this lock.
    ended: Mutex<Paths>,
}

/// The calls of one thread: the [`FunctionHooks::Thread`](crate::hooks::FunctionHooks::Thread) of hooks that use a
/// [`CallProfiler`].
#[derive(Debug)]
pub struct CallTimer {
    clock: HookClock,
    /// The paths of the calls that the thread is inside of.
    stack: ShadowStack<u32>,
    paths: Paths,
    /// The time of its last hook.
    last: u64,
    waits: Waits,
}

impl CallProfiler {
    /// Room for 1,048,576 paths. The first takes up to a quarter of a second to measure the processor's counter and the
    /// cost of timing.
    pub fn new() -> Self {
        Self::with_bound(MOST)
    }

    /// Room for `paths` paths in all threads together.
    pub fn with_bound(paths: usize) -> Self {
        let clock = HookClock::new();
        let overhead = measure(&clock);
        let waits = Rule::new(&clock);
        Self::with_clock(clock, overhead, waits, paths)
    }

    fn with_clock(clock: HookClock, overhead: Overhead, waits: Rule, paths: usize) -> Self {
        let room = Room::new(paths);
        Self { clock, overhead, waits, names: Mutex::default(), ended: Mutex::new(Paths::new(room.clone())), room }
    }

    /// The number by which hooks know a function. Functions with the same name share a number.
    pub fn number(&self, name: &str) -> u32 {
        let mut names = lock(&self.names);
        let known = names.get_index_of(name);
        // Far fewer than 2^32 names fit into memory.
        known.unwrap_or_else(|| names.insert_full(name.to_owned()).0) as u32
    }

    /// The timer of a thread that begins: call it in [`thread_started`](crate::hooks::FunctionHooks::thread_started).
    pub fn timer(&self) -> CallTimer {
        CallTimer::new(self.clock.clone(), self.room.clone(), self.waits)
    }

    /// Adds the calls of a thread that [ends](crate::hooks::FunctionHooks::thread_ended). Calls that it is still inside
    /// of end now.
    pub fn add(&self, timer: CallTimer) {
        self.add_at(timer, self.clock.now());
    }

    pub(super) fn add_at(&self, mut timer: CallTimer, now: u64) {
        timer.charge_until(now);
        timer.paths.note_lost(timer.stack.lost());
        lock(&self.ended).merge(timer.paths);
    }

    /// The time subtracted for each call: from its function, and from its caller.
    ///
    /// It is the least cost of timing a call, with all data in the processor's cache. Otherwise times are slightly too
    /// long. It does not include the way from compiled code to the hooks, some five nanoseconds a call.
    pub fn overhead(&self) -> [Duration; 2] {
        [self.overhead.inside, self.overhead.outside].map(|nanoseconds| Duration::from_secs_f64(nanoseconds * 1e-9))
    }

    /// The sums of all threads that were [added](Self::add).
    pub fn tree(&self) -> CallTree {
        let names = lock(&self.names).iter().map(String::as_str).map(Box::from).collect();
        CallTree::new(names, &lock(&self.ended), &self.overhead, self.clock.now(), |ticks| self.clock.between(0, ticks))
    }
}

impl Default for CallProfiler {
    fn default() -> Self {
        Self::new()
    }
}

impl CallTimer {
    fn new(clock: HookClock, room: Room, rule: Rule) -> Self {
        let last = clock.now();
        Self { clock, stack: ShadowStack::new(), paths: Paths::with_room(room), last, waits: Waits::new(rule, last) }
    }

    /// A function begins: call this in [`enter`](crate::hooks::FunctionHooks::enter), with its
    /// [number](CallProfiler::number).
    #[inline]
    pub fn enter(&mut self, cx: &InHook<'_>, function: u32) {
        self.enter_at(cx.stack_pointer(), function, self.clock.at(cx));
    }

    /// A function ends: call this in [`leave`](crate::hooks::FunctionHooks::leave) and
    /// [`tailcall`](crate::hooks::FunctionHooks::tailcall).
    #[inline]
    pub fn leave(&mut self, cx: &InHook<'_>) {
        self.leave_at(cx.stack_pointer(), self.clock.at(cx));
    }

    /// The runtime suspends a function: call this in [`suspended`](crate::hooks::FunctionHooks::suspended). Its call
    /// waits from now on.
    pub fn suspended(&mut self, cx: &InHook<'_>) {
        self.suspended_at(cx.stack_pointer(), self.clock.at(cx));
    }

    /// A suspended function goes on: call this in [`resumed`](crate::hooks::FunctionHooks::resumed), with its
    /// [number](CallProfiler::number). It is not a new call, and has waited until now.
    pub fn resumed(&mut self, cx: &InHook<'_>, function: u32) {
        self.resumed_at(cx.stack_pointer(), function, self.clock.at(cx));
    }

    /// An exception has unwound functions: call this in [`unwound`](crate::hooks::FunctionHooks::unwound). Their calls
    /// end now.
    pub fn unwound(&mut self, boundary: StackBoundary) {
        self.unwound_at(boundary, self.clock.now());
    }

    pub(super) fn unwound_at(&mut self, boundary: StackBoundary, now: u64) {
        self.charge_until(now);
        self.stack.unwound(boundary, drop);
    }

    #[inline]
    pub(super) fn enter_at(&mut self, stack_pointer: usize, function: u32, now: u64) -> u32 {
        self.charge_until(now);
        self.stack.unwound(StackBoundary::of_caller(stack_pointer), drop);
        let caller = self.stack.top().copied().unwrap_or(NOBODY);
        let path = self.paths.call(caller, function);
        self.stack.enter_at(stack_pointer, path, drop);
        path
    }

    pub(super) fn suspended_at(&mut self, stack_pointer: usize, now: u64) {
        self.charge_until(now);
        if let Some(path) = self.stack.suspended_at(stack_pointer, drop) {
            self.paths.suspend(path, self.last);
        }
    }

    pub(super) fn resumed_at(&mut self, stack_pointer: usize, function: u32, now: u64) {
        let path = self.enter_at(stack_pointer, function, now);
        self.paths.resume(path, self.last);
    }

    #[inline]
    pub(super) fn leave_at(&mut self, stack_pointer: usize, now: u64) {
        self.charge_until(now);
        self.stack.leave_at(stack_pointer, drop);
    }

    /// Adds the time until `now` to the running function's.
    #[inline]
    fn charge_until(&mut self, now: u64) {
        // The counters of two processors may differ a little.
        let mut elapsed = now.saturating_sub(self.last);
        self.last = now;
        if self.waits.is_check_due(now, elapsed) {
            cold_call(|| elapsed = self.check_wait(elapsed));
        }
        if let Some(&path) = self.stack.top() {
            self.paths.add_time(path, elapsed);
        }
    }

    /// Checks for how much of the elapsed time the thread was on no processor. The check may itself take the thread off
    /// its processor, so the time of the check belongs to the same function: the result is the elapsed time with it.
    #[cold]
    fn check_wait(&mut self, elapsed: u64) -> u64 {
        let is_long = self.waits.is_long(elapsed);
        let Some((checked, waited)) = self.waits.check(&self.clock, self.last) else { return elapsed };
        let elapsed = elapsed + (checked - self.last);
        self.last = checked;
        if is_long && let Some(&path) = self.stack.top() {
            self.paths.add_wait(path, waited.min(self.clock.between(0, elapsed)));
        }
        elapsed
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn last(&self) -> u64 {
        self.last
    }
}

/// Measures the cost of timing: the least of several rounds, as the system may interrupt some. It takes a few
/// milliseconds.
fn measure(clock: &HookClock) -> Overhead {
    const CALLS: u64 = 1000;
    let mut best = Overhead { inside: f64::INFINITY, outside: f64::INFINITY };
    // The first round is slow.
    for _ in 0..50 {
        let mut timer = CallTimer::new(clock.clone(), Room::new(4), Rule::NEVER);
        timer.enter_at(2, 0, clock.now());
        for _ in 0..CALLS {
            timer.enter_at(1, 1, clock.now());
            timer.leave_at(1, clock.now());
        }
        timer.charge_until(clock.now());
        // The timer took all of this time: after the callee's enter and before its leave, or in its caller.
        let mut times =
            timer.paths.iter().map(|(_, _, sums)| clock.between(0, sums.ticks).as_nanos() as f64 / CALLS as f64);
        if let (Some(outside), Some(inside)) = (times.next(), times.next())
            && inside + outside < best.inside + best.outside
        {
            best = Overhead { inside, outside };
        }
    }
    best
}

/// No user code runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

#[cfg(test)]
impl CallProfiler {
    /// A profiler that takes times in nanoseconds and subtracts nothing.
    pub(super) fn counting_nanoseconds(paths: usize) -> Self {
        let clock = HookClock::of_nanoseconds();
        let nothing = Overhead { inside: 0.0, outside: 0.0 };
        let waits = Rule::new(&clock);
        Self::with_clock(clock, nothing, waits, paths)
    }

    pub(super) fn set_overhead(&mut self, inside: f64, outside: f64) {
        self.overhead = Overhead { inside, outside };
    }
}
