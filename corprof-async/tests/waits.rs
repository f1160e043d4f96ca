//! Waits of operations that a source other than the runtime tells of.

mod support;

use corprof_async::{Action, Change, Kind, Moment, Step, Waits};
use support::{T, U, callstack, resume, started, take};

use Kind::Runtime;

#[test]
fn waits_lead_from_one_thread_to_another() {
    let mut stacks = started();
    let mut steps = Vec::new();
    // The thread that resumes tells first.
    steps.extend(resume(&mut stacks, U, 30, Runtime, 2, &[110, 210]));
    steps.extend(take(&mut stacks, U, 50, Action::Complete { kind: Runtime }));
    steps.extend(take(&mut stacks, T, 5, Action::Create { kind: Runtime, parent: 0, dispatcher: 2 }));
    steps.extend(resume(&mut stacks, T, 10, Runtime, 2, &[110, 210]));
    steps.extend(callstack(&mut stacks, T, 20, Moment::Suspend, Runtime, 2, 0, &[0, 910]));
    steps.extend(take(&mut stacks, T, 20, Action::Suspend { kind: Runtime }));
    let mut waits = Waits::new(100, 100);
    let mut ended = Vec::new();
    steps.iter().for_each(|step| waits.push(step.clone(), |wait| ended.push(wait)));
    waits.release(29, |wait| ended.push(wait));
    assert_eq!(ended.len(), 1);
    assert_eq!(waits.waiting().map(|(id, since, _)| (id, since)).collect::<Vec<_>>(), [(2, 20)]);
    waits.release(u64::MAX, |wait| ended.push(wait));
    let found: Vec<_> = ended
        .iter()
        .map(|wait| {
            let place = wait.place.as_deref().unwrap_or_default();
            let addresses: Vec<u64> = place.iter().map(|frame| frame.address).collect();
            (wait.from, wait.to, wait.is_first, wait.thread, addresses)
        })
        .collect();
    assert_eq!(found, [(5, 10, true, T.thread, vec![110, 210]), (20, 30, false, U.thread, vec![0, 910])]);
    assert_eq!(waits.waiting().count(), 0);
}

#[test]
fn waits_without_an_end_are_forgotten() {
    let mut waits = Waits::new(10, 100);
    let mut ended = 0;
    for n in 1..1000 {
        let change = Change::Created { parent: 0 };
        waits.push(Step { ticks: n, thread: 1, dispatcher: n, kind: Runtime, change }, |_| ended += 1);
        assert!(waits.waiting().count() <= 100);
    }
    assert_eq!(ended, 0);
    assert!(waits.forgotten() >= 800, "{}", waits.forgotten());
}
