//! Sums of calls, by hand-made hooks with hand-made times.

use std::time::Duration;

use crate::calls::CallProfiler;
use crate::hooks::StackBoundary;

use super::{CallTotals, CallTree};

/// A thread of `times`, with hooks at these places and times: the name of the function that begins, or "" for an end.
fn thread(times: &CallProfiler, hooks: &[(&str, usize, u64)]) {
    let mut timer = times.timer();
    for &(name, stack_pointer, at) in hooks {
        if name.is_empty() {
            timer.leave_at(stack_pointer, at);
        } else {
            timer.enter_at(stack_pointer, times.number(name), at);
        }
    }
    times.add_at(timer, hooks.last().map_or(0, |hook| hook.2));
}

/// The tree of one thread's hooks, whose clock counts nanoseconds, with nothing subtracted.
fn tree(hooks: &[(&str, usize, u64)]) -> CallTree {
    let times = CallProfiler::counting_nanoseconds(100);
    thread(&times, hooks);
    times.tree()
}

fn totals(calls: u64, inclusive: u64, exclusive: u64) -> CallTotals {
    let [inclusive, exclusive] = [inclusive, exclusive].map(Duration::from_nanos);
    // Nobody waits for long enough to be asked.
    CallTotals { calls, inclusive, exclusive, cpu: exclusive, waiting: Duration::ZERO }
}

/// Calls, inclusive and exclusive nanoseconds of a function.
fn of(tree: &CallTree, name: &str) -> CallTotals {
    tree.functions().iter().find(|function| function.0 == name).map_or_else(CallTotals::default, |found| found.1)
}

fn of_edge(tree: &CallTree, caller: Option<&str>, name: &str) -> CallTotals {
    tree.edges().iter().find(|edge| edge.0 == (caller, name)).map_or_else(CallTotals::default, |found| found.1)
}

#[test]
fn time_is_of_what_runs_and_of_what_is_around_it() {
    let tree = tree(&[("a", 9, 100), ("b", 8, 110), ("", 8, 140), ("b", 8, 145), ("", 8, 150), ("", 9, 200)]);
    assert_eq!(of(&tree, "a"), totals(1, 100, 65));
    assert_eq!(of(&tree, "b"), totals(2, 35, 35));
    assert_eq!(of_edge(&tree, Some("a"), "b"), totals(2, 35, 35));
    assert_eq!(of_edge(&tree, None, "a"), totals(1, 100, 65));
    let paths: Vec<_> = tree.paths().map(|path| (path.function, path.caller)).collect();
    assert_eq!(paths, [("a", None), ("b", Some(0))]);
}

#[test]
fn a_suspended_call_goes_on_as_the_same_call() {
    let times = CallProfiler::counting_nanoseconds(100);
    let waits = times.number("waits");
    let mut timer = times.timer();
    timer.enter_at(100, times.number("outer"), 0);
    timer.enter_at(90, waits, 10);
    // It calls from 80 when it is suspended.
    timer.suspended_at(80, 30);
    timer.leave_at(100, 40);
    times.add_at(timer, 40);
    let mut another = times.timer();
    another.resumed_at(70, waits, 130);
    another.leave_at(70, 150);
    times.add_at(another, 150);
    let tree = times.tree();
    assert_eq!(of(&tree, "outer"), totals(1, 40, 20));
    assert_eq!(of(&tree, "waits"), CallTotals { waiting: Duration::from_nanos(100), ..totals(1, 40, 40) });
}

#[test]
fn recursion_counts_its_time_once() {
    // a > b > a > b, ten nanoseconds each way.
    let hooks = [("a", 9, 0), ("b", 8, 10), ("a", 7, 20), ("b", 6, 30)];
    let ends = [("", 6, 40), ("", 7, 50), ("", 8, 60), ("", 9, 70)];
    let tree = tree(&[hooks, ends].concat());
    assert_eq!(of(&tree, "a"), totals(2, 70, 40));
    assert_eq!(of(&tree, "b"), totals(2, 50, 30));
    assert_eq!(of_edge(&tree, Some("a"), "b"), totals(2, 50, 30));
    assert_eq!(of_edge(&tree, Some("b"), "a"), totals(1, 30, 20));
}

#[test]
fn what_an_exception_leaves_ends_where_it_is_heard_of() {
    let times = CallProfiler::counting_nanoseconds(100);
    let numbers = ["a", "b", "c", "finally"].map(|name| times.number(name));
    let mut timer = times.timer();
    for (depth, number) in numbers.into_iter().take(3).enumerate() {
        timer.enter_at(9 - depth, number, 10 * depth as u64);
    }
    // `c` throws at 20, and at 50 a finally block of `a` runs, deeper down than the functions that are gone.
    timer.unwound_at(StackBoundary(9), 50);
    timer.enter_at(4, numbers[3], 60);
    timer.leave_at(4, 70);
    timer.leave_at(9, 100);
    times.add_at(timer, 100);
    let tree = times.tree();
    assert_eq!(of(&tree, "c"), totals(1, 30, 30));
    assert_eq!(of(&tree, "b"), totals(1, 40, 10));
    assert_eq!(of(&tree, "a"), totals(1, 100, 50));
    assert_eq!(of_edge(&tree, Some("a"), "finally"), totals(1, 10, 10));
}

#[test]
fn threads_add_up_and_what_they_are_inside_of_ends_with_them() {
    let times = CallProfiler::counting_nanoseconds(100);
    thread(&times, &[("a", 9, 0), ("b", 8, 10), ("", 8, 30), ("", 9, 40)]);
    thread(&times, &[("c", 9, 0), ("", 9, 5), ("a", 9, 5), ("b", 8, 15)]);
    let tree = times.tree();
    assert_eq!(of(&tree, "a"), totals(2, 50, 30));
    assert_eq!(of(&tree, "b"), totals(2, 20, 20));
    assert_eq!(of(&tree, "c"), totals(1, 5, 5));
    assert_eq!(tree.paths().len(), 3);
    assert_eq!((tree.cut(), tree.lost()), (0, 0));
}

#[test]
fn paths_without_room_are_counted_without_their_callers() {
    let times = CallProfiler::counting_nanoseconds(2);
    let nested = [("a", 9, 0), ("b", 8, 10), ("c", 7, 20), ("d", 6, 30)];
    let ends = [("", 6, 40), ("", 7, 50), ("", 8, 60), ("", 9, 70)];
    thread(&times, &[nested, ends, nested, ends].concat());
    let tree = times.tree();
    assert_eq!(tree.cut(), 4, "c and d, twice");
    assert_eq!(of(&tree, "c"), totals(2, 40, 40));
    assert_eq!(of(&tree, "d"), totals(2, 20, 20));
    assert_eq!(of(&tree, "a").calls, 2);
    let whole: Duration = tree.functions().iter().map(|function| function.1.exclusive).sum();
    assert_eq!(whole, Duration::from_nanos(140), "all time is counted for some path");
    // The room of a thread is free again when it has ended, except for the paths that it keeps.
    thread(&times, &[("a", 9, 0), ("b", 8, 10), ("", 8, 20), ("", 9, 30)]);
    assert_eq!((times.tree().cut(), of(&times.tree(), "b").calls), (5, 3));
}

#[test]
fn calls_too_deep_for_the_stack_are_told_of() {
    let times = CallProfiler::counting_nanoseconds(10);
    let mut timer = times.timer();
    let number = times.number("deep");
    let deepest = 1 << 17;
    for depth in 0..deepest + 3 {
        timer.enter_at(2 * deepest - depth, number, 0);
    }
    times.add_at(timer, 7);
    let tree = times.tree();
    assert_eq!((of(&tree, "deep").calls, tree.lost()), (deepest as u64 + 3, 3));
}

#[test]
fn what_timing_takes_is_measured_and_subtracted() {
    let times = CallProfiler::new();
    let [inside, outside] = times.overhead();
    assert!(inside > Duration::ZERO && outside > Duration::ZERO);
    assert!(inside + outside < Duration::from_micros(50), "{inside:?} and {outside:?} a call");
    let mut subtracting = CallProfiler::counting_nanoseconds(10);
    subtracting.set_overhead(2.0, 3.0);
    let hooks = [("a", 9, 0), ("b", 8, 10), ("", 8, 20), ("b", 8, 30), ("", 8, 31), ("", 9, 50)];
    thread(&subtracting, &hooks);
    let tree = subtracting.tree();
    assert_eq!(of(&tree, "b"), totals(2, 7, 7));
    assert_eq!(of(&tree, "a"), totals(1, 38, 31));
}

#[cfg(target_os = "linux")]
#[test]
fn a_wait_is_no_processor_time() {
    let times = CallProfiler::counting_nanoseconds(16);
    let mut timer = times.timer();
    let start = timer.last();
    // By this clock minutes pass, of which this thread runs for next to nothing.
    timer.enter_at(100, times.number("works"), start);
    timer.enter_at(90, times.number("waits"), start + 10_000);
    timer.leave_at(90, start + 120_000_000_000);
    timer.leave_at(100, start + 120_000_010_000);
    times.add_at(timer, start + 120_000_010_000);
    let tree = times.tree();
    let waits = of(&tree, "waits");
    assert_eq!(waits.exclusive, Duration::from_nanos(119_999_990_000));
    assert!(waits.cpu < Duration::from_secs(60), "{waits:?}");
    assert_eq!(of(&tree, "works"), totals(1, 120_000_010_000, 20_000));
}

#[cfg(target_os = "linux")]
#[test]
fn what_many_short_times_lack_is_no_wait_of_the_next_long_one() {
    use crate::system;
    let times = CallProfiler::counting_nanoseconds(16);
    let mut timer = times.timer();
    // An hour ahead of the real clock, which may be read in between and must stay behind.
    let start = timer.last() + 3_600_000_000_000;
    let short = 10_000;
    let calls = 1000;
    // By this clock the thread makes calls for ten milliseconds, of which the system counts next to nothing.
    timer.enter_at(100, times.number("calls"), start);
    for call in 0..calls {
        timer.enter_at(90, times.number("short"), start + call * short);
        timer.leave_at(90, start + (call + 1) * short);
    }
    // And then it runs, for longer than passes by this clock.
    let thread = system::os_thread_id();
    let begun = start + calls * short;
    let ran = system::cpu_time(thread).unwrap();
    timer.enter_at(90, times.number("runs"), begun);
    while system::cpu_time(thread).unwrap() - ran < Duration::from_millis(3) {}
    timer.leave_at(90, begun + 50_000);
    timer.leave_at(100, begun + 50_000);
    times.add_at(timer, begun + 50_000);
    assert_eq!(of(&times.tree(), "runs"), totals(1, 50_000, 50_000));
}
