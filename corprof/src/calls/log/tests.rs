//! Tests of `log.rs`.

use std::sync::{Arc, Mutex};

use super::super::queue::EventReader;
use super::super::reader::{CallBegin, CallEnd, FoldedCalls};
use super::*;
use crate::profiler::BoxError;

/// Writes down all that it receives.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<String>>);

impl Notes {
    fn add(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

/// `+3` for three folded calls.
fn folded(folded: FoldedCalls) -> String {
    if folded.calls == 0 { String::new() } else { format!("+{}/{}", folded.calls, folded.time.as_nanos()) }
}

impl CallReader<char> for Notes {
    fn begin(&mut self, call: CallBegin<char>) -> Result<(), BoxError> {
        self.add(&format!("{}{}@{} ", call.function, call.depth, call.at.as_nanos()));
        Ok(())
    }
    fn end(&mut self, end: CallEnd) -> Result<(), BoxError> {
        self.add(&format!("end@{}{} ", end.at.as_nanos(), folded(end.folded)));
        Ok(())
    }
    fn alone(&mut self, end: CallEnd) -> Result<(), BoxError> {
        self.add(&format!("alone@{}{} ", end.at.as_nanos(), folded(end.folded)));
        Ok(())
    }
}

/// A step of a thread: it calls a function, a call ends, or an exception is thrown; with the stack pointer of the
/// caller.
enum Step {
    Enter(char, usize),
    Leave(usize),
    Unwound(usize),
}
use Step::*;

/// The output of a reader of such a thread, whose steps are ten nanoseconds apart; shorter calls than `minimum` are
/// folded.
fn log_of(steps: &[Step], room: usize, minimum: u64) -> (String, u64) {
    let clock = HookClock::of_nanoseconds();
    let log = CallLog { events: EventQueue::new(room, 1), start: 0, clock: clock.clone(), minimum };
    let notes = Notes::default();
    log.events.read_by(Nesting { reader: notes.clone(), clock, start: 0, names: None });
    let mut writer = log.writer();
    let mut now = 0;
    for step in steps {
        now += 10;
        match *step {
            Enter(function, stack_pointer) => writer.enter_at(stack_pointer, function, now),
            Leave(stack_pointer) => writer.leave_at(stack_pointer, now),
            Unwound(boundary) => writer.unwound_at(StackBoundary(boundary), now),
        }
    }
    // The clock of the tests stands still, so the end is made by hand.
    writer.unwound_at(StackBoundary(usize::MAX), now + 10);
    drop(writer);
    let dropped = log.finish().unwrap();
    let text = notes.0.lock().unwrap().trim_end().to_owned();
    (text, dropped)
}

/// With room for all, and nothing folded.
fn log(steps: &[Step]) -> String {
    log_of(steps, 64, 0).0
}

#[test]
fn calls_nest() {
    let steps = [Enter('a', 9), Enter('b', 8), Leave(8), Enter('c', 8), Leave(8), Leave(9)];
    assert_eq!(log(&steps), "a0@10 b1@20 end@30 c1@40 end@50 end@60");
}

#[test]
fn what_an_exception_left_has_ended_before_the_next_call() {
    let steps = [Enter('a', 9), Enter('b', 8), Enter('c', 7), Enter('d', 8)];
    assert_eq!(log(&steps), "a0@10 b1@20 c2@30 end@40 end@40 d1@40 end@50 end@50");
    let steps = [Enter('a', 9), Enter('b', 8), Enter('c', 7), Unwound(8), Leave(8), Leave(9)];
    assert_eq!(log(&steps), "a0@10 b1@20 c2@30 end@40 end@50 end@60");
}

#[test]
fn an_end_without_its_beginning_is_none() {
    assert_eq!(log(&[Enter('a', 9), Leave(8), Leave(9)]), "a0@10 end@30");
}

#[test]
fn short_calls_are_folded_into_the_next_that_is_not() {
    // `b` takes 20, with `c` in it, and `d` takes 10.
    let steps = [Enter('a', 9), Enter('b', 8), Enter('c', 7), Leave(7), Leave(8), Enter('d', 8), Leave(8), Leave(9)];
    assert_eq!(log_of(&steps, 64, 50).0, "a0@10 end@80+3/40");
    // `b` is long enough, and so is the call around it.
    assert_eq!(log_of(&steps, 64, 20).0, "a0@10 b1@20 end@50+1/10 end@80+1/10");
    // The whole is shorter than the minimum.
    assert_eq!(log_of(&steps, 64, 100).0, "alone@80+4/70");
    // Two short calls outside any other, then a long one.
    let steps = [Enter('a', 9), Leave(9), Enter('b', 9), Leave(9), Enter('c', 9), Enter('d', 8), Leave(8), Leave(9)];
    assert_eq!(log_of(&steps, 64, 30).0, "alone@40+2/20 c0@50 end@80+1/10");
}

#[test]
fn a_call_is_written_as_soon_as_it_has_lasted_long_enough() {
    let clock = HookClock::of_nanoseconds();
    let log = CallLog { events: EventQueue::new(64, 1), start: 0, clock: clock.clone(), minimum: 25 };
    let notes = Notes::default();
    log.events.read_by(Nesting { reader: notes.clone(), clock, start: 0, names: None });
    let mut writer = log.writer();
    for (at, function) in [(10, 'a'), (20, 'b'), (40, 'c')] {
        writer.enter_at(100 - at as usize, function, at);
    }
    assert_eq!((writer.written, writer.due), (1, 45), "only `a` is written, and `b` will be next");
    writer.leave_at(60, 50);
    assert_eq!((writer.written, writer.due), (2, u64::MAX), "`c` was short");
    std::mem::forget(writer);
}

#[test]
fn frames_of_recursion_are_written_from_the_outermost() {
    let steps: Vec<_> =
        (0..5).map(|depth| Enter('r', 100 - depth)).chain((0..5).rev().map(|d| Leave(100 - d))).collect();
    assert_eq!(log_of(&steps, 64, 25).0, "r0@10 r1@20 r2@30 r3@40 end@70+1/10 end@80 end@90 end@100");
}

#[test]
fn when_there_is_no_room_the_events_are_read_by_who_has_none() {
    let steps: Vec<_> = (0..1000).flat_map(|_| [Enter('a', 9), Leave(9)]).collect();
    let (text, dropped) = log_of(&steps, 4, 0);
    assert_eq!((text.split(' ').count(), dropped), (2000, 0));
}

#[test]
fn whatever_is_lost_each_call_ends_once() {
    let clock = HookClock::of_nanoseconds();
    let notes = Notes::default();
    let mut reader = Nesting { reader: notes.clone(), clock, start: 0, names: None };
    let mut thread = EventReader::<CallEvent<char>>::thread_started(&mut reader, 0);
    let begin = |at, depth, function| CallEvent::Begin { at, depth, function };
    let end = |at, depth| CallEvent::End { at, depth, folded: Ticks::default() };
    // The end of `b` is lost, then the beginning of the call that ends at 40, then the end of all.
    for event in [begin(10, 0, 'a'), begin(20, 1, 'b'), begin(30, 1, 'c'), end(40, 2), end(50, 1)] {
        reader.event(&mut thread, event).unwrap();
    }
    EventReader::<CallEvent<char>>::thread_ended(&mut reader, thread).unwrap();
    assert_eq!(notes.0.lock().unwrap().trim_end(), "a0@10 b1@20 end@30 c1@30 end@50 end@50");
}

#[test]
fn a_minimum_is_counted_in_ticks() {
    let log = CallLog::<char>::new(1, 1).folding(Duration::from_micros(1));
    let time = log.clock.between(0, log.minimum);
    assert!((990..=1010).contains(&time.as_nanos()), "{time:?}");
}
