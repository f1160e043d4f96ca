//! Logical stacks of sub-events that a source other than the runtime makes.

mod support;

use corprof_async::{
    Action, Change, Kind, Limits, LogicalStack, LogicalStacks, Moment, Origin, Outcome, Step, StreamId, WrapperMatch,
};
use support::{Calling, Hundreds, T, U, callstack, resume, started, take};

use Kind::{Runtime, StateMachine};

fn join(stacks: &LogicalStacks, id: StreamId, ticks: u64, physical: &[u64]) -> LogicalStack {
    let mut stack = LogicalStack::new();
    stacks.join(id.thread, ticks, physical, &Hundreds, &mut stack);
    stack
}

/// The addresses of a stack by their origin: physical, awaiting, creators.
fn parts(stack: &LogicalStack) -> [Vec<u64>; 3] {
    [Origin::Physical, Origin::Awaiting, Origin::Creator].map(|origin| {
        let frames = stack.frames.iter().filter(|frame| frame.origin == origin);
        frames.map(|frame| frame.address).collect()
    })
}

fn active(stacks: &LogicalStacks, id: StreamId, ticks: u64) -> Option<u64> {
    stacks.active(id.thread, ticks).map(|active| active.dispatcher())
}

#[test]
fn the_wrapper_leads_to_the_method_and_the_rest_awaits_it() {
    let mut stacks = started();
    resume(&mut stacks, T, 10, Runtime, 7, &[0, 110, 210, 310, 0, 410]);
    take(&mut stacks, T, 30, Action::Suspend { kind: Runtime });
    // Helpers above the method, the wrapper 2, and what brought the operation to run.
    let stack = join(&stacks, T, 20, &[9000, 250, 100_200, 8000]);
    assert_eq!((stack.outcome, stack.wrapper), (Outcome::Stitched, Some(WrapperMatch::Method)));
    assert_eq!(parts(&stack), [vec![9000, 250], vec![310, 410], vec![]]);
    // Another method than the chain has: the stack stays as it was.
    let stack = join(&stacks, T, 20, &[9000, 350, 100_200, 8000]);
    assert_eq!((stack.outcome, stack.wrapper), (Outcome::NoMatch, Some(WrapperMatch::Differs)));
    assert_eq!(parts(&stack), [vec![9000, 350, 100_200, 8000], vec![], vec![]]);
    let stack = join(&stacks, T, 20, &[9000, 8000]);
    assert_eq!((stack.outcome, stack.wrapper), (Outcome::NoMatch, None));
    assert_eq!(join(&stacks, T, 9, &[9000]).outcome, Outcome::Outside);
    assert_eq!(join(&stacks, T, 30, &[9000]).outcome, Outcome::Outside);
    assert_eq!(join(&stacks, U, 20, &[9000]).outcome, Outcome::Outside);
}

#[test]
fn wrappers_begin_again_after_the_last() {
    let mut stacks = started();
    let chain: Vec<u64> = (1..=70).map(|method| method * 100 + 5).collect();
    callstack(&mut stacks, T, 10, Moment::Resume, Runtime, 7, 30, &chain);
    // Index 30 calls the first of the chain.
    assert_eq!(parts(&join(&stacks, T, 10, &[101, 103_000]))[1].len(), 69);
    take(&mut stacks, T, 20, Action::WrapperIndex);
    take(&mut stacks, T, 40, Action::WrapperIndex);
    assert_eq!(parts(&join(&stacks, T, 20, &[300, 100_000]))[1].len(), 67);
    assert_eq!(parts(&join(&stacks, T, 40, &[3500, 100_000]))[1].len(), 35);
    assert_eq!(join(&stacks, T, 20, &[105, 100_000]).wrapper, Some(WrapperMatch::Differs));
}

#[test]
fn a_callstack_in_the_next_buffer_is_that_of_the_whole_run() {
    let mut stacks = started();
    take(&mut stacks, T, 10, Action::Resume { kind: StateMachine, dispatcher: 7 });
    stacks.settle(T, 10);
    assert_eq!(join(&stacks, T, 10, &[150]).outcome, Outcome::NoChain);
    let steps = callstack(&mut stacks, T, 90, Moment::Resume, StateMachine, 7, 0, &[110, 210]);
    assert!(matches!(&steps[..], [Step { ticks: 10, change: Change::Resumed { chain: Some(_) }, .. }]), "{steps:?}");
    assert_eq!(parts(&join(&stacks, T, 20, &[150])), [vec![150], vec![210], vec![]]);
    // It is one run, not two.
    take(&mut stacks, T, 100, Action::Suspend { kind: StateMachine });
    assert_eq!(active(&stacks, T, 100), None);
    stacks.settle(T, 120);
    stacks.settle(T, 110);
    assert_eq!((stacks.known_until(T.thread), stacks.known_until(99)), (120, 0));
}

#[test]
fn appended_methods_await_from_then_on() {
    let mut stacks = started();
    resume(&mut stacks, T, 10, StateMachine, 7, &[110]);
    callstack(&mut stacks, T, 20, Moment::Append, StateMachine, 7, 0, &[210, 310]);
    assert_eq!(parts(&join(&stacks, T, 15, &[150]))[1], []);
    assert_eq!(parts(&join(&stacks, T, 25, &[150]))[1], [210, 310]);
    take(&mut stacks, T, 30, Action::Complete { kind: StateMachine });
    assert_eq!(active(&stacks, T, 30), None);
}

/// A loop that awaits Load(1) calls Load(2), which needs not wait.
#[test]
fn a_call_of_a_method_that_has_ended_is_not_awaited() {
    const BOX: u64 = 200_000;
    let mut stacks = started();
    resume(&mut stacks, T, 10, StateMachine, 7, &[110, 210, 310]);
    assert_eq!(parts(&join(&stacks, T, 10, &[150, BOX])), [vec![150], vec![210, 310], vec![]]);
    method_ends(&mut stacks, T, 20, StateMachine);
    // Its end is told within it.
    assert_eq!(parts(&join(&stacks, T, 20, &[150, BOX])), [vec![150], vec![210, 310], vec![]]);
    method_ends(&mut stacks, T, 21, StateMachine);
    for physical in [&[150, 250, 350][..], &[150, 250, 350, BOX, 250, BOX]] {
        assert_eq!(parts(&join(&stacks, T, 30, physical)), [vec![150, 250, 350], vec![], vec![]]);
    }
    assert_eq!(join(&stacks, T, 30, &[150, 450]).outcome, Outcome::NoMatch);
}

/// Nor is what a resumed method calls the resumed one, though it is another call of the same method.
#[test]
fn a_method_that_calls_itself_is_resumed_where_it_goes_on() {
    const BOX: u64 = 200_000;
    let mut stacks = started();
    resume(&mut stacks, T, 10, StateMachine, 7, &[110, 120, 310]);
    assert_eq!(parts(&join(&stacks, T, 10, &[150, 160, 450, BOX])), [vec![150, 160], vec![120, 310], vec![]]);
    // What the runtime does not tell of goes on within it.
    assert_eq!(parts(&join(&stacks, T, 10, &[450, BOX, 150, BOX])), [vec![450, BOX, 150], vec![120, 310], vec![]]);
}

#[test]
fn ends_are_those_of_the_innermost_of_their_kind() {
    let mut stacks = started();
    resume(&mut stacks, T, 10, StateMachine, 1, &[110]);
    resume(&mut stacks, T, 20, Runtime, 2, &[210, 310]);
    take(&mut stacks, T, 25, Action::MethodComplete { kind: StateMachine });
    take(&mut stacks, T, 30, Action::Complete { kind: StateMachine });
    assert_eq!(active(&stacks, T, 30), Some(2));
    take(&mut stacks, T, 32, Action::MethodComplete { kind: Runtime });
    take(&mut stacks, T, 35, Action::Unwind { kind: Runtime, frames: 3 });
    let completed = |ticks| stacks.active(T.thread, ticks).map(|active| active.completed());
    assert_eq!([completed(29), completed(32), completed(35)], [Some(0), Some(1), Some(4)]);
    let steps = take(&mut stacks, T, 40, Action::Complete { kind: Runtime });
    let expected = Step { ticks: 40, thread: T.thread, dispatcher: 2, kind: Runtime, change: Change::Completed };
    assert_eq!(steps, [expected]);
    take(&mut stacks, T, 50, Action::Suspend { kind: Runtime });
    let stats = stacks.stats();
    assert_eq!((stats.unmatched, stats.interleaved), (1, 1));
}

#[test]
fn a_reset_forgets_and_a_replay_tells_again() {
    let mut stacks = LogicalStacks::new();
    // Before the first reset nothing is known.
    resume(&mut stacks, T, 1, Runtime, 1, &[110]);
    assert_eq!((active(&stacks, T, 1), stacks.stats().ignored), (None, 2));
    take(&mut stacks, T, 10, Action::Reset);
    resume(&mut stacks, T, 10, StateMachine, 1, &[110]);
    // One from before the session, whose end is not told.
    resume(&mut stacks, T, 10, Runtime, 0, &[910]);
    callstack(&mut stacks, T, 10, Moment::Resume, Runtime, 2, 4, &[210, 310]);
    assert_eq!(active(&stacks, T, 10), Some(2));
    take(&mut stacks, T, 20, Action::Suspend { kind: Runtime });
    assert_eq!(active(&stacks, T, 20), Some(1));
    take(&mut stacks, T, 30, Action::Reset);
    assert_eq!(active(&stacks, T, 30), None);
    resume(&mut stacks, T, 30, StateMachine, 3, &[]);
    assert_eq!(active(&stacks, T, 30), Some(3));
    stacks.forget(T);
    assert_eq!((active(&stacks, T, 30), active(&stacks, T, 29)), (None, Some(1)));
}

/// What awaits an operation of runtime async may run within the end of it: a replay tells that again, but no second end.
#[test]
fn what_has_ended_is_not_told_again_by_a_replay() {
    let mut stacks = started();
    for (ticks, dispatcher) in [(10, 7), (20, 8)] {
        resume(&mut stacks, T, ticks, Runtime, dispatcher, &[110]);
        take(&mut stacks, T, ticks + 5, Action::Complete { kind: Runtime });
    }
    resume(&mut stacks, T, 30, Runtime, 9, &[210]);
    take(&mut stacks, T, 40, Action::Reset);
    for (dispatcher, address) in [(7, 110), (8, 110), (9, 210)] {
        resume(&mut stacks, T, 40, Runtime, dispatcher, &[address]);
    }
    assert_eq!(active(&stacks, T, 40), Some(9));
    take(&mut stacks, T, 50, Action::Suspend { kind: Runtime });
    assert_eq!(active(&stacks, T, 50), None);
    // Another operation gets the number of one that has ended.
    resume(&mut stacks, T, 60, Runtime, 8, &[110]);
    take(&mut stacks, T, 70, Action::Reset);
    resume(&mut stacks, T, 70, Runtime, 8, &[110]);
    assert_eq!(active(&stacks, T, 70), Some(8));
    assert_eq!(stacks.stats().unmatched, 0);
}

#[test]
fn a_thread_whose_number_is_used_again_has_both_its_lives() {
    let mut stacks = started();
    let again = StreamId { context: 3, ..T };
    take(&mut stacks, again, 100, Action::Reset);
    resume(&mut stacks, again, 110, Runtime, 2, &[210]);
    // The last buffer of the thread that has ended comes late.
    resume(&mut stacks, T, 50, Runtime, 1, &[110]);
    take(&mut stacks, T, 60, Action::Complete { kind: Runtime });
    let active = |ticks| active(&stacks, T, ticks);
    assert_eq!([active(55), active(60), active(105), active(115)], [Some(1), None, None, Some(2)]);
}

#[test]
fn creators_follow_the_callers_over_threads() {
    let mut stacks = started();
    // The buffer of the child's thread comes first.
    resume(&mut stacks, U, 30, Runtime, 3, &[610]);
    // 1 makes 2 after its first method has returned, and 2 makes 3.
    resume(&mut stacks, T, 10, Runtime, 1, &[110, 210, 0, 310]);
    take(&mut stacks, T, 11, Action::MethodComplete { kind: Runtime });
    take(&mut stacks, T, 12, Action::Create { kind: Runtime, parent: 1, dispatcher: 2 });
    take(&mut stacks, T, 13, Action::Suspend { kind: Runtime });
    resume(&mut stacks, T, 20, Runtime, 2, &[410, 510]);
    take(&mut stacks, T, 21, Action::Create { kind: Runtime, parent: 2, dispatcher: 3 });
    take(&mut stacks, T, 22, Action::Complete { kind: Runtime });
    let expected = [vec![620], vec![], vec![410, 510, 210, 310]];
    assert_eq!(parts(&join(&stacks, U, 31, &[620, 100_000])), expected);
    assert_eq!((stacks.parent(3), stacks.parent(1)), (Some(2), None));
    // The operation 2 is over and forgotten, but not that it has made 3.
    stacks.release(25);
    assert_eq!((stacks.parent(2), stacks.parent(3)), (None, Some(2)));
    assert_eq!(parts(&join(&stacks, U, 31, &[620, 100_000])), expected);
}

#[test]
fn a_chain_that_was_cut_goes_on_with_its_creator() {
    let mut stacks = started();
    resume(&mut stacks, T, 10, Runtime, 1, &[110, 210]);
    take(&mut stacks, T, 11, Action::Create { kind: Runtime, parent: 1, dispatcher: 2 });
    let deep = vec![310; 255];
    resume(&mut stacks, U, 20, Runtime, 2, &deep);
    (0..8).for_each(|_| _ = take(&mut stacks, U, 30, Action::WrapperIndex));
    let stack = join(&stacks, U, 20, &[320, 102_000]);
    assert_eq!(
        (stack.outcome, parts(&stack)[1].len(), &parts(&stack)[2][..]),
        (Outcome::Stitched, 234, &[110, 210][..])
    );
    let stack = join(&stacks, U, 30, &[320, 102_000]);
    assert_eq!((stack.outcome, stack.wrapper), (Outcome::Beyond, Some(WrapperMatch::Beyond)));
    assert_eq!(parts(&stack), [vec![320], vec![], vec![110, 210]]);
}

fn create(stacks: &mut LogicalStacks, id: StreamId, ticks: u64, kind: Kind, parent: u64, dispatcher: u64) {
    take(stacks, id, ticks, Action::Create { kind, parent, dispatcher });
}

/// A state machine, 4, has made two others, 5 and 6.
fn with_two_made() -> LogicalStacks {
    let mut stacks = started();
    resume(&mut stacks, T, 1, StateMachine, 4, &[410]);
    create(&mut stacks, T, 2, StateMachine, 4, 5);
    create(&mut stacks, T, 3, StateMachine, 4, 6);
    stacks
}

fn method_ends(stacks: &mut LogicalStacks, id: StreamId, ticks: u64, kind: Kind) {
    take(stacks, id, ticks, Action::MethodComplete { kind });
}

fn complete(stacks: &mut LogicalStacks, id: StreamId, ticks: u64, kind: Kind) {
    take(stacks, id, ticks, Action::Complete { kind });
}

/// An endpoint of ASP.NET Core 11 behind a middleware: methods that the runtime suspends await state machines, and
/// these await them. Each runs within the end of the one before.
#[test]
fn what_goes_on_at_the_end_of_an_operation_awaits_it() {
    let mut stacks = started();
    resume(&mut stacks, T, 1, Runtime, 4, &[410]);
    create(&mut stacks, T, 2, StateMachine, 4, 40);
    create(&mut stacks, T, 3, Runtime, 4, 29);
    create(&mut stacks, T, 4, StateMachine, 4, 30);
    create(&mut stacks, T, 5, Runtime, 4, 31);
    take(&mut stacks, T, 6, Action::Suspend { kind: Runtime });
    // The endpoint goes on, and then as another operation.
    resume(&mut stacks, U, 10, StateMachine, 40, &[110, 210]);
    method_ends(&mut stacks, U, 12, StateMachine);
    create(&mut stacks, U, 13, StateMachine, 40, 41);
    complete(&mut stacks, U, 14, StateMachine);
    let told = |stacks: &LogicalStacks, ticks, physical| parts(&join(stacks, U, ticks, &[physical]));
    assert_eq!(told(&stacks, 11, 120), [vec![120], vec![210], vec![410]]);
    assert!(stacks.awaits_an_end(U.thread, 11, 0));
    assert!(!stacks.awaits_an_end(U.thread, 11, 3), "it began long ago");
    resume(&mut stacks, U, 20, StateMachine, 41, &[110, 210]);
    method_ends(&mut stacks, U, 22, StateMachine);
    method_ends(&mut stacks, U, 23, StateMachine);
    resume(&mut stacks, U, 24, Runtime, 29, &[0, 510]);
    complete(&mut stacks, U, 26, Runtime);
    resume(&mut stacks, U, 27, StateMachine, 30, &[610]);
    method_ends(&mut stacks, U, 29, StateMachine);
    resume(&mut stacks, U, 30, Runtime, 31, &[0, 710]);
    assert!(stacks.awaits_an_end(U.thread, 11, 0), "the last may have an awaiter");
    complete(&mut stacks, U, 31, Runtime);
    resume(&mut stacks, U, 32, Runtime, 4, &[0, 410]);
    take(&mut stacks, U, 33, Action::Suspend { kind: Runtime });
    complete(&mut stacks, U, 34, StateMachine);
    complete(&mut stacks, U, 35, StateMachine);
    let expected = [vec![120], vec![210, 510, 610, 710, 410], vec![]];
    assert_eq!([told(&stacks, 11, 120), told(&stacks, 21, 120)], [expected.clone(), expected]);
    assert_eq!(told(&stacks, 28, 620), [vec![620], vec![710, 410], vec![]]);
    assert!(!stacks.awaits_an_end(U.thread, 11, 0), "what has made it need not end");
    stacks.release(40);
    assert_eq!(active(&stacks, U, 41), None);
}

/// `Task.WhenAll` goes on at the end of the last.
#[test]
fn who_awaits_several_awaits_each() {
    let mut stacks = started();
    resume(&mut stacks, T, 1, Runtime, 4, &[410]);
    create(&mut stacks, T, 2, StateMachine, 4, 5);
    create(&mut stacks, T, 3, StateMachine, 4, 6);
    create(&mut stacks, T, 4, StateMachine, 4, 7);
    // It is made by the same operation, later, and nobody awaits it.
    create(&mut stacks, T, 5, StateMachine, 4, 8);
    take(&mut stacks, T, 6, Action::Suspend { kind: Runtime });
    resume(&mut stacks, U, 10, StateMachine, 5, &[110]);
    method_ends(&mut stacks, U, 12, StateMachine);
    complete(&mut stacks, U, 13, StateMachine);
    assert!(stacks.awaits_an_end(U.thread, 11, 0));
    resume(&mut stacks, T, 20, StateMachine, 6, &[110]);
    method_ends(&mut stacks, T, 22, StateMachine);
    resume(&mut stacks, T, 23, StateMachine, 7, &[210]);
    method_ends(&mut stacks, T, 24, StateMachine);
    resume(&mut stacks, T, 25, Runtime, 4, &[0, 410]);
    take(&mut stacks, T, 26, Action::Suspend { kind: Runtime });
    complete(&mut stacks, T, 27, StateMachine);
    complete(&mut stacks, T, 28, StateMachine);
    resume(&mut stacks, U, 30, StateMachine, 8, &[110]);
    method_ends(&mut stacks, U, 32, StateMachine);
    complete(&mut stacks, U, 33, StateMachine);
    // The same method in another run, whose awaiter goes on for another reason.
    resume(&mut stacks, T, 34, Runtime, 4, &[410]);
    create(&mut stacks, T, 35, StateMachine, 4, 9);
    create(&mut stacks, T, 36, StateMachine, 4, 10);
    take(&mut stacks, T, 37, Action::Suspend { kind: Runtime });
    resume(&mut stacks, T, 38, StateMachine, 9, &[110]);
    method_ends(&mut stacks, T, 39, StateMachine);
    complete(&mut stacks, T, 40, StateMachine);
    assert_eq!(parts(&join(&stacks, T, 38, &[120])), [vec![120], vec![], vec![410]]);
    for (id, ticks) in [(U, 11), (T, 21)] {
        assert_eq!(parts(&join(&stacks, id, ticks, &[120])), [vec![120], vec![210, 410], vec![]]);
        assert!(!stacks.awaits_an_end(id.thread, ticks, 0));
    }
    assert_eq!(parts(&join(&stacks, U, 31, &[120])), [vec![120], vec![], vec![410]]);
    stacks.settle_all(34);
    assert!(!stacks.awaits_an_end(U.thread, 31, 0));
}

/// The callers of the method 1, which the method 3 calls.
fn callers(stacks: &LogicalStacks, id: StreamId, ticks: u64) -> [Vec<u64>; 3] {
    let mut stack = LogicalStack::new();
    stacks.join(id.thread, ticks, &[120, 100_000], &Calling(3, 1), &mut stack);
    parts(&stack)
}

/// What was called before the first wait of its caller: the runtime does not tell by whom, the IL of the caller does.
#[test]
fn what_waits_at_the_end_of_a_run_has_started_what_its_methods_call() {
    // The maker is a method that the runtime suspends, and waits with those that it has called.
    let mut stacks = started();
    resume(&mut stacks, T, 1, Runtime, 4, &[410]);
    create(&mut stacks, T, 2, Runtime, 4, 5);
    create(&mut stacks, T, 3, Runtime, 4, 6);
    take(&mut stacks, T, 4, Action::Suspend { kind: Runtime });
    // Nobody has called this one but the maker.
    resume(&mut stacks, U, 5, Runtime, 6, &[210]);
    complete(&mut stacks, U, 6, Runtime);
    resume(&mut stacks, U, 10, Runtime, 5, &[110]);
    complete(&mut stacks, U, 12, Runtime);
    assert!(stacks.awaits_an_end(U.thread, 10, 0), "it is not known yet what waits");
    assert_eq!(callers(&stacks, U, 10), [vec![120], vec![], vec![410]]);
    // Another thread tells first that it has run the maker later on.
    resume(&mut stacks, U, 30, Runtime, 4, &[410]);
    assert!(stacks.awaits_an_end(U.thread, 10, 0), "another thread may have run it before");
    stacks.settle_all(10);
    stacks.release(4);
    assert!(stacks.awaits_an_end(U.thread, 10, 0), "another thread may have run it before");
    resume(&mut stacks, T, 20, Runtime, 4, &[0, 310, 410]);
    take(&mut stacks, T, 21, Action::Suspend { kind: Runtime });
    stacks.settle_all(20);
    assert!(!stacks.awaits_an_end(U.thread, 10, 0));
    assert_eq!(callers(&stacks, U, 10), [vec![120], vec![], vec![310, 410]]);
    assert_eq!(parts(&join(&stacks, U, 10, &[120, 100_000])), [vec![120], vec![], vec![410]], "without the IL");
    assert_eq!(parts(&join(&stacks, U, 5, &[220, 100_000])), [vec![220], vec![], vec![410]]);

    // The threads are asked for what they hold while the maker runs, and when it goes on.
    let mut stacks = started();
    resume(&mut stacks, T, 1, Runtime, 4, &[410]);
    take(&mut stacks, T, 2, Action::Reset);
    resume(&mut stacks, T, 2, Runtime, 4, &[410]);
    create(&mut stacks, T, 3, Runtime, 4, 5);
    take(&mut stacks, T, 4, Action::Suspend { kind: Runtime });
    resume(&mut stacks, U, 10, Runtime, 5, &[110]);
    complete(&mut stacks, U, 12, Runtime);
    take(&mut stacks, T, 20, Action::Reset);
    resume(&mut stacks, T, 20, Runtime, 4, &[0, 310, 410]);
    take(&mut stacks, T, 21, Action::Suspend { kind: Runtime });
    resume(&mut stacks, T, 30, Runtime, 4, &[0, 510, 410]);
    assert_eq!(callers(&stacks, U, 10), [vec![120], vec![], vec![310, 410]]);

    // The maker awaits a state machine, which has called it.
    let mut stacks = started();
    resume(&mut stacks, T, 1, Runtime, 4, &[410]);
    create(&mut stacks, T, 2, StateMachine, 4, 5);
    create(&mut stacks, T, 3, StateMachine, 4, 6);
    take(&mut stacks, T, 4, Action::Suspend { kind: Runtime });
    resume(&mut stacks, U, 10, StateMachine, 5, &[110]);
    method_ends(&mut stacks, U, 12, StateMachine);
    complete(&mut stacks, U, 12, StateMachine);
    resume(&mut stacks, T, 20, StateMachine, 6, &[310]);
    method_ends(&mut stacks, T, 21, StateMachine);
    resume(&mut stacks, T, 22, Runtime, 4, &[0, 410]);
    assert_eq!(callers(&stacks, U, 10), [vec![120], vec![], vec![310, 410]]);

    // It has ended before the end of the run: the method 3 has begun later, and calls another one.
    let mut stacks = started();
    resume(&mut stacks, T, 1, StateMachine, 4, &[410]);
    create(&mut stacks, T, 2, StateMachine, 4, 5);
    resume(&mut stacks, U, 3, StateMachine, 5, &[110]);
    method_ends(&mut stacks, U, 5, StateMachine);
    complete(&mut stacks, U, 5, StateMachine);
    create(&mut stacks, T, 6, StateMachine, 4, 6);
    complete(&mut stacks, T, 7, StateMachine);
    resume(&mut stacks, T, 20, StateMachine, 6, &[110, 310]);
    assert_eq!(callers(&stacks, U, 3), [vec![120], vec![], vec![410]]);

    // A piece of work of the pool, which is no operation, and another one behind it.
    let mut stacks = started();
    create(&mut stacks, T, 2, StateMachine, 0, 5);
    create(&mut stacks, T, 3, StateMachine, 0, 6);
    create(&mut stacks, T, 4, StateMachine, 0, 7);
    resume(&mut stacks, U, 10, StateMachine, 5, &[110]);
    method_ends(&mut stacks, U, 12, StateMachine);
    complete(&mut stacks, U, 12, StateMachine);
    assert!(stacks.awaits_an_end(U.thread, 10, 0), "it is not known yet what waits");
    resume(&mut stacks, T, 20, StateMachine, 6, &[310, 410]);
    resume(&mut stacks, T, 21, StateMachine, 7, &[510]);
    assert!(!stacks.awaits_an_end(U.thread, 10, 0));
    assert_eq!(callers(&stacks, U, 10), [vec![120], vec![], vec![310, 410]]);
    assert_eq!(parts(&join(&stacks, U, 10, &[120])), [vec![120], vec![], vec![]]);

    // The maker is a state machine, which has ended: what waits was made last. It is awaited by others.
    let mut stacks = with_two_made();
    method_ends(&mut stacks, T, 4, StateMachine);
    complete(&mut stacks, T, 4, StateMachine);
    // It goes on as another operation, after what it came from was forgotten.
    resume(&mut stacks, U, 10, StateMachine, 5, &[110]);
    create(&mut stacks, U, 11, StateMachine, 5, 7);
    complete(&mut stacks, U, 12, StateMachine);
    resume(&mut stacks, T, 20, StateMachine, 6, &[210, 310]);
    method_ends(&mut stacks, T, 22, StateMachine);
    method_ends(&mut stacks, T, 23, StateMachine);
    complete(&mut stacks, T, 24, StateMachine);
    assert_eq!(callers(&stacks, U, 10), [vec![120], vec![], vec![310, 410]]);
    resume(&mut stacks, U, 30, StateMachine, 7, &[110]);
    stacks.release(29);
    assert_eq!(callers(&stacks, U, 30), [vec![120], vec![], vec![310, 410]]);
}

/// `Task.WhenAll` of several methods goes on at the end of one of them, which is another one each time.
#[test]
fn what_has_ended_is_awaited_where_its_starter_has_awaited_it_before() {
    let mut stacks = started();
    let awaited = |stacks: &mut LogicalStacks, ticks: u64, first: u64| {
        resume(stacks, T, ticks, StateMachine, first, &[410]);
        create(stacks, T, ticks + 1, StateMachine, first, first + 1);
        create(stacks, T, ticks + 2, StateMachine, first, first + 2);
        method_ends(stacks, T, ticks + 3, StateMachine);
        complete(stacks, T, ticks + 3, StateMachine);
        resume(stacks, U, ticks + 10, StateMachine, first + 1, &[110]);
        // It goes on as another operation.
        create(stacks, U, ticks + 11, StateMachine, first + 1, first + 3);
        complete(stacks, U, ticks + 12, StateMachine);
        resume(stacks, U, ticks + 20, StateMachine, first + 3, &[110]);
    };
    let awaited_ends = |stacks: &mut LogicalStacks, ticks: u64| {
        method_ends(stacks, U, ticks, StateMachine);
        complete(stacks, U, ticks, StateMachine);
    };
    let goes_on = |stacks: &mut LogicalStacks, ticks: u64, first: u64| {
        resume(stacks, T, ticks, StateMachine, first + 2, &[310]);
        method_ends(stacks, T, ticks + 1, StateMachine);
        complete(stacks, T, ticks + 1, StateMachine);
    };
    let callers = |stacks: &LogicalStacks, ticks| {
        let mut stack = LogicalStack::new();
        stacks.join(U.thread, ticks, &[120], &Calling(3, 1), &mut stack);
        parts(&stack)
    };
    awaited(&mut stacks, 100, 10);
    awaited_ends(&mut stacks, 130);
    goes_on(&mut stacks, 140, 10);
    assert_eq!(callers(&stacks, 110), [vec![120], vec![], vec![310, 410]]);
    // At its end the other goes on.
    awaited(&mut stacks, 200, 20);
    method_ends(&mut stacks, U, 230, StateMachine);
    resume(&mut stacks, U, 231, StateMachine, 22, &[310]);
    method_ends(&mut stacks, U, 232, StateMachine);
    complete(&mut stacks, U, 232, StateMachine);
    complete(&mut stacks, U, 233, StateMachine);
    assert_eq!(callers(&stacks, 210), [vec![120], vec![310], vec![410]]);
    assert_eq!(callers(&stacks, 110), [vec![120], vec![310], vec![410]]);
    // The other has gone on before the end, as after a timeout.
    awaited(&mut stacks, 300, 30);
    goes_on(&mut stacks, 330, 30);
    awaited_ends(&mut stacks, 340);
    assert_eq!(callers(&stacks, 310), [vec![120], vec![], vec![310, 410]]);
}

/// Each is another operation after each of its waits.
#[test]
fn who_awaits_several_awaits_each_that_waits_more_than_once() {
    let mut stacks = with_two_made();
    create(&mut stacks, T, 4, StateMachine, 4, 7);
    method_ends(&mut stacks, T, 5, StateMachine);
    complete(&mut stacks, T, 5, StateMachine);
    for (made, ticks) in [(5, 10), (6, 20)] {
        resume(&mut stacks, U, ticks, StateMachine, made, &[110]);
        create(&mut stacks, U, ticks + 1, StateMachine, made, made + 10);
        complete(&mut stacks, U, ticks + 2, StateMachine);
    }
    resume(&mut stacks, U, 30, StateMachine, 15, &[110]);
    method_ends(&mut stacks, U, 31, StateMachine);
    complete(&mut stacks, U, 32, StateMachine);
    resume(&mut stacks, U, 40, StateMachine, 16, &[110]);
    method_ends(&mut stacks, U, 41, StateMachine);
    resume(&mut stacks, U, 42, StateMachine, 7, &[310]);
    for ticks in [10, 20, 30, 40] {
        assert_eq!(parts(&join(&stacks, U, ticks, &[120])), [vec![120], vec![310], vec![410]], "{ticks}");
    }
}

/// The runtime does not tell that methods of iterators end, and resumes them by other numbers.
#[test]
fn who_takes_elements_awaits_the_iterator() {
    let mut stacks = with_two_made();
    complete(&mut stacks, T, 4, StateMachine);
    let element = |stacks: &mut LogicalStacks, ticks: u64, number| {
        resume(stacks, U, ticks, StateMachine, number, &[110]);
        resume(stacks, U, ticks + 5, StateMachine, 6, &[210, 410]);
    };
    let is_over = |stacks: &mut LogicalStacks, ticks: u64| {
        take(stacks, U, ticks + 7, Action::Suspend { kind: StateMachine });
        complete(stacks, U, ticks + 8, StateMachine);
    };
    element(&mut stacks, 10, 5);
    create(&mut stacks, U, 16, StateMachine, 6, 5);
    is_over(&mut stacks, 10);
    // The last element.
    element(&mut stacks, 20, 7);
    is_over(&mut stacks, 20);
    for ticks in [11, 21] {
        assert_eq!(parts(&join(&stacks, U, ticks, &[120])), [vec![120], vec![210, 410], vec![]]);
    }
    // With a method that the runtime suspends, each element is made by the same operation.
    resume(&mut stacks, T, 30, Runtime, 8, &[0, 510]);
    create(&mut stacks, T, 31, StateMachine, 8, 9);
    take(&mut stacks, T, 32, Action::Suspend { kind: Runtime });
    resume(&mut stacks, U, 40, StateMachine, 9, &[310]);
    resume(&mut stacks, U, 41, Runtime, 8, &[0, 510]);
    take(&mut stacks, U, 42, Action::Suspend { kind: Runtime });
    take(&mut stacks, U, 43, Action::Suspend { kind: StateMachine });
    assert_eq!(parts(&join(&stacks, U, 40, &[320])), [vec![320], vec![510], vec![]]);
}

/// A caller that finds its callee at its end goes on at once. What it calls next is no reason to say that it awaited.
#[test]
fn what_has_ended_before_it_was_awaited_has_no_awaiter() {
    let mut stacks = started();
    resume(&mut stacks, T, 1, StateMachine, 4, &[410]);
    create(&mut stacks, T, 2, StateMachine, 4, 5);
    resume(&mut stacks, U, 3, StateMachine, 5, &[110]);
    method_ends(&mut stacks, U, 5, StateMachine);
    complete(&mut stacks, U, 6, StateMachine);
    create(&mut stacks, T, 7, StateMachine, 4, 6);
    create(&mut stacks, T, 8, StateMachine, 4, 7);
    complete(&mut stacks, T, 9, StateMachine);
    resume(&mut stacks, U, 10, StateMachine, 6, &[110]);
    method_ends(&mut stacks, U, 12, StateMachine);
    resume(&mut stacks, U, 13, StateMachine, 7, &[210, 410]);
    assert_eq!(parts(&join(&stacks, U, 11, &[120])), [vec![120], vec![210, 410], vec![]]);
    assert_eq!(parts(&join(&stacks, U, 4, &[120])), [vec![120], vec![], vec![410]]);
}

/// A method that goes on before its caller awaits it is told without callers at first.
#[test]
fn a_call_is_not_taken_for_the_next_one_of_its_caller() {
    let mut stacks = started();
    // The caller makes the next call at the end of this one, in the same operation.
    create(&mut stacks, T, 1, StateMachine, 0, 5);
    resume(&mut stacks, U, 2, StateMachine, 5, &[110]);
    callstack(&mut stacks, U, 4, Moment::Append, StateMachine, 5, 0, &[210, 410]);
    method_ends(&mut stacks, U, 5, StateMachine);
    method_ends(&mut stacks, U, 6, StateMachine);
    create(&mut stacks, U, 7, StateMachine, 5, 6);
    complete(&mut stacks, U, 8, StateMachine);
    // The next ends before it is awaited.
    resume(&mut stacks, T, 10, StateMachine, 6, &[110]);
    method_ends(&mut stacks, T, 11, StateMachine);
    resume(&mut stacks, T, 12, StateMachine, 7, &[310, 410]);
    assert_eq!(parts(&join(&stacks, U, 3, &[120])), [vec![120], vec![], vec![]]);
    assert_eq!(parts(&join(&stacks, U, 4, &[120])), [vec![120], vec![210, 410], vec![]]);
    assert_eq!(parts(&join(&stacks, T, 10, &[120]))[1], [310, 410]);
}

#[test]
fn what_a_thread_runs_next_need_not_await_what_it_has_ended() {
    let mut stacks = started();
    resume(&mut stacks, T, 1, Runtime, 4, &[410]);
    create(&mut stacks, T, 2, Runtime, 4, 5);
    create(&mut stacks, T, 3, Runtime, 4, 6);
    take(&mut stacks, T, 4, Action::Suspend { kind: Runtime });
    // Two parts of one operation, each from the queue of the pool, and then what has made both.
    resume(&mut stacks, U, 10, Runtime, 5, &[110]);
    complete(&mut stacks, U, 12, Runtime);
    resume(&mut stacks, U, 12, Runtime, 6, &[210]);
    complete(&mut stacks, U, 14, Runtime);
    resume(&mut stacks, U, 14, Runtime, 4, &[0, 410]);
    // A method that completes a source of others before its own end.
    resume(&mut stacks, U, 20, StateMachine, 8, &[510]);
    resume(&mut stacks, U, 21, StateMachine, 9, &[610]);
    complete(&mut stacks, U, 22, StateMachine);
    let told = |ticks, physical: &[u64]| parts(&join(&stacks, U, ticks, physical));
    assert_eq!(told(11, &[120, 100_000]), [vec![120], vec![], vec![410]]);
    assert_eq!(told(13, &[220, 100_000]), [vec![220], vec![410], vec![]]);
    assert_eq!(told(20, &[520]), [vec![520], vec![], vec![]]);
}

/// Each await makes an operation whose parent is that of the await before: these came before, and did not call.
#[test]
fn a_loop_of_state_machines_keeps_who_started_it() {
    let mut stacks = started();
    resume(&mut stacks, T, 1, StateMachine, 1, &[110, 210]);
    take(&mut stacks, T, 2, Action::Create { kind: StateMachine, parent: 1, dispatcher: 2 });
    take(&mut stacks, T, 3, Action::Complete { kind: StateMachine });
    for turn in 2..10_000 {
        let ticks = turn * 10;
        let inner = 1000 + turn % 3 * 100;
        resume(&mut stacks, T, ticks, StateMachine, turn, &[inner, 310]);
        if turn == 9_999 {
            assert_eq!(parts(&join(&stacks, T, ticks, &[inner + 5])), [vec![inner + 5], vec![310], vec![110, 210]]);
        }
        take(&mut stacks, T, ticks + 1, Action::Create { kind: StateMachine, parent: turn, dispatcher: turn + 1 });
        take(&mut stacks, T, ticks + 2, Action::Complete { kind: StateMachine });
        if turn % 7 == 0 {
            stacks.release(ticks);
            let (states, operations) = stacks.held();
            assert!(states < 100 && operations < 20, "{states} states, {operations} operations");
        }
    }
}

/// Each await of the loop makes an operation: thousands within the seconds of which all is remembered.
#[test]
fn a_long_loop_knows_what_waits_at_the_end_of_the_run_in_which_it_was_made() {
    let mut stacks = with_two_made();
    method_ends(&mut stacks, T, 4, StateMachine);
    complete(&mut stacks, T, 4, StateMachine);
    let mut turn = 5;
    for next in 1000..4000 {
        resume(&mut stacks, U, next, StateMachine, turn, &[110]);
        create(&mut stacks, U, next, StateMachine, turn, next);
        complete(&mut stacks, U, next, StateMachine);
        turn = next;
    }
    resume(&mut stacks, U, 4000, StateMachine, turn, &[110]);
    resume(&mut stacks, T, 4000, StateMachine, 6, &[310, 410]);
    assert_eq!(callers(&stacks, U, 4000), [vec![120], vec![], vec![310, 410]]);
    stacks.release(3999);
    assert_eq!(callers(&stacks, U, 4000), [vec![120], vec![], vec![310, 410]]);
}

#[test]
fn days_of_recording_take_no_more_memory_than_a_minute() {
    let mut stacks = started();
    let mut most = (0, 0);
    for request in 1..30_000_u64 {
        let id = if request % 2 == 0 { T } else { U };
        let ticks = request * 10;
        resume(&mut stacks, id, ticks, Runtime, 1, &[110, 210]);
        take(&mut stacks, id, ticks + 1, Action::Create { kind: Runtime, parent: 1, dispatcher: request + 1 });
        take(&mut stacks, id, ticks + 1, Action::Suspend { kind: Runtime });
        resume(&mut stacks, id, ticks + 2, Runtime, request + 1, &[310, 410]);
        take(&mut stacks, id, ticks + 3, Action::Complete { kind: Runtime });
        if request % 1000 == 0 {
            let (states, operations) = stacks.held();
            most = (most.0.max(states), most.1.max(operations));
            stacks.release(ticks);
        }
    }
    assert!(most.0 < 10_000 && most.1 < 1100, "{most:?}");
    stacks.release(u64::MAX);
    // The state that lasts, of each thread.
    assert_eq!(stacks.held(), (2, 0));
}

#[test]
fn what_is_never_released_or_ended_is_forgotten() {
    let mut limits = Limits::default();
    limits.threads = 10;
    limits.depth = 8;
    limits.states = 1000;
    limits.operations = 100;
    let mut stacks = LogicalStacks::with_limits(limits);
    for n in 1..20_000_u64 {
        let id = StreamId { context: u32::try_from(n % 50).expect("small"), thread: n % 50 };
        if n < 1000 || n % 7 == 0 {
            take(&mut stacks, id, 4 * n, Action::Reset);
        }
        take(&mut stacks, id, 4 * n + 1, Action::Create { kind: Runtime, parent: n - 1, dispatcher: n });
        resume(&mut stacks, id, 4 * n + 2, Runtime, n, &[n * 100, n * 200]);
        callstack(&mut stacks, id, 4 * n + 3, Moment::Append, Runtime, n, 0, &vec![n; 400]);
        let (states, operations) = stacks.held();
        assert!(states <= limits.states && operations <= limits.operations, "{states} states, {operations} operations");
    }
    let stats = stacks.stats();
    assert!(stats.forgotten_states > 0 && stats.forgotten_operations > 0 && stats.forgotten_threads > 0, "{stats:?}");
    let mut stacks = LogicalStacks::with_limits(limits);
    take(&mut stacks, T, 0, Action::Reset);
    (1..20).for_each(|n| _ = resume(&mut stacks, T, n, Runtime, n, &[110]));
    assert_eq!((active(&stacks, T, 20), stacks.stats().too_deep), (Some(8), 22));
}
