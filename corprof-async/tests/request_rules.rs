//! Requests of steps and activities that no trace of the repository has.

use corprof_async::{Activity, ActivityKind, Change, Frame, Kind, Request, RequestLimits, Requests, Step, Waits};
use fastrand::Rng;

type NoLoop = fn(&[Frame]) -> bool;

struct Source<F> {
    requests: Requests<F>,
    told: Vec<Request>,
}

impl<F: Fn(&[Frame]) -> bool> Source<F> {
    fn new(limits: RequestLimits, is_loop: F) -> Self {
        Self { requests: Requests::new(limits, is_loop), told: Vec::new() }
    }

    fn step(&mut self, thread: u64, ticks: u64, dispatcher: u64, change: Change) {
        let step = Step { ticks, thread, dispatcher, kind: Kind::Runtime, change };
        self.requests.step(step, |request| self.told.push(request));
    }

    fn resume(&mut self, thread: u64, ticks: u64, dispatcher: u64, method: u64) {
        let chain = Some([Frame { address: method, state: 0 }].into());
        self.step(thread, ticks, dispatcher, Change::Resumed { chain });
    }

    fn start(&mut self, thread: u64, ticks: u64, kind: ActivityKind, span_id: u64, parent_span_id: u64) {
        let activity = Activity { kind, span_id, parent_span_id, ..Activity::default() };
        self.requests.start(thread, ticks, activity, |request| self.told.push(request));
    }

    fn stop(&mut self, ticks: u64, span_id: u64) {
        let activity = Activity { span_id, display_name: "the end".to_owned(), ..Activity::default() };
        self.requests.stop(ticks, activity, |request| self.told.push(request));
    }

    fn finish(mut self) -> Vec<Request> {
        self.requests.finish(|request| self.told.push(request));
        self.told
    }
}

/// The steps of an iterator whose elements a method takes, as .NET 11 tells them: 33, which was made, goes on as 42.
fn iterator(mut step: impl FnMut(u64, u64, Change)) {
    let resumed = |method| Change::Resumed { chain: Some([Frame { address: method, state: 0 }].into()) };
    step(10, 33, Change::Created { parent: 6 });
    step(12, 34, Change::Created { parent: 6 });
    step(20, 33, resumed(8));
    step(22, 34, resumed(9));
    step(25, 33, Change::Created { parent: 34 });
    step(26, 34, Change::Suspended);
    step(27, 33, Change::Completed);
    step(40, 42, resumed(8));
    step(43, 34, resumed(9));
    step(46, 34, Change::Completed);
    step(48, 42, Change::Completed);
}

#[test]
fn iterators_go_on_by_other_numbers() {
    let mut source = by_activities(RequestLimits::default());
    source.resume(1, 1, 6, 7);
    source.start(1, 5, ActivityKind::Server, 1, 0);
    iterator(|ticks, dispatcher, change| source.step(1, ticks, dispatcher, change));
    source.stop(50, 1);
    let told = source.finish();
    let [request] = &told[..] else { panic!("{told:?}") };
    assert!(request.is_whole, "{request:?}");
    assert_eq!(times(request), (5, 50, vec![(6, 45), (33, 7), (34, 7), (42, 8)]));
    let waits = request.operations.iter().flat_map(|operation| operation.waits().map(|wait| (wait.from, wait.to)));
    assert_eq!(waits.collect::<Vec<_>>(), [(10, Some(20)), (12, Some(22)), (26, Some(43)), (25, Some(40))]);

    let mut waits = Waits::new(100, 100);
    let mut found = Vec::new();
    iterator(|ticks, dispatcher, change| {
        let step = Step { ticks, thread: 1, dispatcher, kind: Kind::StateMachine, change };
        waits.push(step, |wait| found.push((wait.from, wait.to)));
    });
    waits.release(u64::MAX, |wait| found.push((wait.from, wait.to)));
    assert_eq!(found, [(10, 20), (12, 22), (25, 40), (26, 43)]);
}

/// Another iterator of the same method waits all the time: its wait is not taken for that of the busy one.
#[test]
fn iterators_are_told_apart_by_their_consumers() {
    let mut waits = Waits::new(100, 100);
    let mut found = Vec::new();
    let mut step = |thread, ticks, dispatcher, change| {
        let step = Step { ticks, thread, dispatcher, kind: Kind::StateMachine, change };
        waits.push(step, |wait| found.push((wait.from, wait.to)));
    };
    let resumed = |method| Change::Resumed { chain: Some([Frame { address: method, state: 0 }].into()) };
    step(2, 1, 50, resumed(8));
    step(2, 2, 51, resumed(9));
    step(2, 3, 50, Change::Created { parent: 51 });
    step(2, 4, 51, Change::Suspended);
    step(2, 5, 50, Change::Completed);
    iterator(|ticks, dispatcher, change| step(1, ticks, dispatcher, change));
    waits.release(u64::MAX, |wait| found.push((wait.from, wait.to)));
    assert_eq!(found, [(10, 20), (12, 22), (25, 40), (26, 43)]);
    let mut still: Vec<(u64, u64)> = waits.waiting().map(|(number, since, _)| (number, since)).collect();
    still.sort_unstable();
    assert_eq!(still, [(50, 3), (51, 4)]);
}

/// The thread of the request told for the last time at 30; the end of the request was told by another source.
#[test]
fn a_run_that_was_not_told_to_its_end_is_unknown_from_there_on() {
    let of_request = || {
        let mut source = by_activities(RequestLimits::default());
        source.resume(1, 1, 6, 7);
        source.start(1, 5, ActivityKind::Server, 1, 0);
        source.stop(50, 1);
        source
    };
    let told = of_request().finish();
    assert_eq!((told[0].running(), told[0].operations[0].runs[0].unknown_from), (45, None));

    let Source { mut requests, mut told } = of_request();
    requests.finish_cut_off(|_thread| 30, |request| told.push(request));
    assert_eq!((told[0].running(), told[0].operations[0].runs[0].unknown_from), (25, Some(30)));
    assert_eq!(times(&told[0]), (5, 50, vec![(6, 25)]));
    assert_eq!(told[0].operations[0].waits().count(), 0, "{told:?}");

    // What it tells to the end of the request ends there.
    let Source { mut requests, mut told } = of_request();
    requests.finish_cut_off(|_thread| 60, |request| told.push(request));
    assert_eq!((told[0].running(), told[0].operations[0].runs[0].unknown_from), (45, None));
}

fn by_activities(limits: RequestLimits) -> Source<NoLoop> {
    Source::new(limits, |_| false)
}

fn times(request: &Request) -> (u64, u64, Vec<(u64, u64)>) {
    let operations = request.operations.iter().map(|operation| (operation.dispatcher, operation.running(request.to)));
    (request.from, request.to, operations.collect())
}

#[test]
fn a_connection_takes_one_request_after_the_other() {
    let mut source =
        Source::new(RequestLimits::default(), |chain: &[Frame]| chain.iter().any(|frame| frame.address == 7));
    source.resume(1, 10, 100, 7);
    source.step(1, 12, 101, Change::Created { parent: 100 });
    source.step(1, 15, 100, Change::Suspended);
    source.resume(2, 20, 101, 8);
    source.step(2, 30, 101, Change::Completed);
    // The response, and in the same run the next request, which was there already.
    source.resume(2, 31, 100, 7);
    source.step(2, 34, 102, Change::Created { parent: 100 });
    source.step(2, 35, 100, Change::Suspended);
    source.resume(1, 50, 102, 8);
    source.step(1, 51, 102, Change::Completed);
    source.resume(1, 60, 100, 7);
    source.step(1, 61, 100, Change::Suspended);
    // A run that makes nothing is not a request.
    source.resume(1, 70, 100, 7);
    source.step(1, 71, 100, Change::Suspended);
    let told = source.finish();
    let expected = [(10, 34, vec![(100, 8), (101, 10)]), (34, 61, vec![(100, 2), (102, 1)])];
    assert_eq!(told.iter().map(times).collect::<Vec<_>>(), expected);
    assert_eq!(told.iter().map(Request::running).collect::<Vec<_>>(), [18, 3]);
    let waits: Vec<_> = told[0].operations[1].waits().map(|wait| (wait.from, wait.to)).collect();
    assert_eq!(waits, [(12, Some(20))]);
    assert_eq!(told[0].outermost(|frame| frame.address != 7).map(|frame| frame.address), Some(8));
}

/// The first request of a connection is taken outside of any operation.
#[test]
fn a_request_may_come_to_a_thread() {
    let mut source = by_activities(RequestLimits::default());
    source.start(1, 10, ActivityKind::Server, 1, 0);
    source.step(1, 11, 101, Change::Created { parent: 0 });
    source.resume(1, 15, 200, 9);
    // The thread does something else by now.
    source.step(1, 16, 201, Change::Created { parent: 0 });
    source.step(1, 17, 200, Change::Completed);
    source.resume(2, 20, 101, 9);
    source.start(2, 21, ActivityKind::Client, 2, 1);
    source.step(2, 22, 102, Change::Created { parent: 101 });
    source.step(2, 23, 101, Change::Suspended);
    source.stop(30, 2);
    source.stop(40, 1);
    let told = source.finish();
    assert_eq!(told.iter().map(times).collect::<Vec<_>>(), [(10, 40, vec![(101, 3), (102, 0)])]);
    let [request] = &told[..] else { panic!("{told:?}") };
    let names = [request.activity.as_ref(), request.calls.first().map(|call| &call.activity)];
    assert_eq!(names.map(|activity| activity.map(|activity| &activity.display_name[..])), [Some("the end"); 2]);
    assert_eq!((request.calls[0].from, request.calls[0].to, request.is_whole), (21, Some(30), false));
}

/// What a thread does for the first request of a connection, before that waits.
#[test]
fn what_runs_before_the_first_operation_is_of_the_request() {
    let mut source = by_activities(RequestLimits::default());
    source.resume(9, 1, 300, 9);
    source.start(1, 10, ActivityKind::Server, 1, 0);
    source.step(1, 35, 101, Change::Created { parent: 0 });
    source.step(1, 36, 102, Change::Created { parent: 0 });
    // The thread takes other work, and makes something for that before.
    source.step(1, 1_000_000_000, 103, Change::Created { parent: 0 });
    source.resume(1, 1_000_000_001, 200, 9);
    source.resume(2, 1_000_000_060, 101, 9);
    source.step(2, 1_000_000_062, 101, Change::Completed);
    source.stop(1_000_000_070, 1);
    // One that ends without any operation.
    source.start(3, 1_000_000_080, ActivityKind::Server, 2, 0);
    source.stop(1_000_000_095, 2);
    let told = source.finish();
    let times: Vec<_> = told.iter().map(times).collect();
    let first = (10, 1_000_000_070, vec![(0, 26), (101, 2), (102, 0), (103, 0)]);
    assert!(times.contains(&first), "{times:?}");
    assert!(times.contains(&(1_000_000_080, 1_000_000_095, vec![(0, 15)])), "{times:?}");
}

/// As runtimes before .NET 11 tell it.
#[test]
fn without_operations_activities_are_part_of_others_by_their_spans() {
    let mut source = by_activities(RequestLimits::default());
    source.start(1, 10, ActivityKind::Server, 1, 0);
    source.start(1, 11, ActivityKind::Client, 2, 1);
    source.start(1, 12, ActivityKind::Server, 3, 0);
    // Part of a request that began before the session, on a thread that has taken up others since.
    source.start(1, 13, ActivityKind::Internal, 4, 99);
    source.start(2, 14, ActivityKind::Internal, 5, 1);
    for (ticks, span) in [(20, 5), (21, 4), (22, 3), (23, 2), (30, 1)] {
        source.stop(ticks, span);
    }
    let told = source.finish();
    let of = |span: u64| {
        let is_it = |request: &&Request| request.activity.as_ref().is_some_and(|activity| activity.span_id == span);
        told.iter().find(is_it).unwrap_or_else(|| panic!("no {span}: {told:?}"))
    };
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(of(1).calls.iter().map(|call| call.activity.span_id).collect::<Vec<_>>(), [2, 5]);
    assert_eq!((of(1).from, of(1).to), (10, 30));
    assert!(of(3).calls.is_empty() && of(4).calls.is_empty(), "{told:?}");
}

/// Connections are made for requests, and are none.
#[test]
fn connections_are_no_requests() {
    let mut requests = Requests::new(RequestLimits::default(), |_| false);
    let activity = Activity {
        source: "Experimental.System.Net.Http.Connections".to_owned(),
        name: "connection_setup".to_owned(),
        span_id: 1,
        ..Activity::default()
    };
    let mut told = Vec::new();
    requests.start(1, 10, activity.clone(), |request| told.push(request));
    requests.stop(20, activity, |request| told.push(request));
    requests.finish(|request| told.push(request));
    assert!(told.is_empty(), "{told:?}");
}

/// A batch whose jobs follow each other in one async method, each an activity of its own.
#[test]
fn activities_that_are_part_of_nothing_are_requests() {
    let mut source = by_activities(RequestLimits::default());
    for (span, from) in [(1, 10), (2, 30), (3, 50)] {
        source.resume(1, from, 100, 9);
        source.start(1, from + 1, ActivityKind::Internal, span, 0);
        // A part of the first.
        source.start(1, from + 2, ActivityKind::Internal, span + 10, span);
        source.stop(from + 3, span + 10);
        source.step(1, from + 4, 100, Change::Suspended);
        source.resume(1, from + 8, 100, 9);
        // A connection is made for it, and says that it is part of nothing.
        let connections = "Experimental.System.Net.Http.Connections".to_owned();
        let connection = Activity { source: connections, span_id: span + 20, ..Activity::default() };
        source.requests.start(1, from + 8, connection, |_| panic!("nothing has ended"));
        source.stop(from + 8, span + 20);
        source.stop(from + 9, span);
        source.step(1, from + 10, 100, Change::Suspended);
    }
    let told = source.finish();
    let found: Vec<_> = told.iter().map(|request| (request.from, request.to, request.calls.len())).collect();
    assert_eq!(found, [(11, 19, 2), (31, 39, 2), (51, 59, 2)]);
    assert_eq!(told.iter().map(Request::running).collect::<Vec<_>>(), [4; 3]);
}

#[test]
fn requests_without_an_end_are_left_out() {
    let mut limits = RequestLimits::default();
    (limits.steps, limits.requests, limits.operations, limits.linger) = (10, 20, 5, 1000);
    let mut source = by_activities(limits);
    for n in 1..1000_u64 {
        source.start(n, n * 10, ActivityKind::Server, n, 0);
        (0..10).for_each(|child| source.step(n, n * 10 + 1, n * 100 + child, Change::Created { parent: 0 }));
        assert!(source.requests.open() <= 20);
    }
    assert!(source.requests.left_out() > 900);
    source.stop(20_000, 999);
    source.requests.release(20_000, |_| panic!("its operations have not ended"));
    source.step(1, 22_000, 5, Change::Suspended);
    source.requests.release(22_000, |request| source.told.push(request));
    // Long after its end it is told all the same.
    let told = source.told;
    let [request] = &told[..] else { panic!("{told:?}") };
    // What its thread has run for it is one of the five.
    assert_eq!((request.operations.len(), request.left_out, request.is_whole), (5, 6, false));
}

#[test]
fn impossible_steps_are_survived() {
    let mut limits = RequestLimits::default();
    (limits.steps, limits.requests, limits.operations, limits.linger) = (50, 10, 8, 100);
    let mut source = Source::new(limits, |chain: &[Frame]| chain.iter().any(|frame| frame.address == 3));
    let mut rng = Rng::with_seed(13);
    let mut told = 0;
    for case in 0..200_000_u64 {
        let thread = rng.u64(..4);
        let dispatcher = rng.u64(..30);
        let parent = rng.u64(..30);
        let span = rng.u64(..20);
        let ticks = if rng.u8(..) == 0 { rng.u64(..case + 1) } else { case };
        match rng.u8(..9) {
            0 | 1 => source.step(thread, ticks, dispatcher, Change::Created { parent }),
            2 | 3 => source.resume(thread, ticks, dispatcher, rng.u64(..5)),
            4 => source.step(thread, ticks, dispatcher, Change::Suspended),
            5 => source.step(thread, ticks, dispatcher, Change::Completed),
            6 => source.step(thread, ticks, dispatcher, Change::WaitsAt { chain: [][..].into() }),
            7 => {
                let kind = if rng.bool() { ActivityKind::Server } else { ActivityKind::Internal };
                source.start(thread, ticks, kind, span, rng.u64(..20));
            }
            _ => source.stop(ticks, span),
        }
        for request in source.told.drain(..) {
            told += 1;
            let waits: usize = request.operations.iter().map(|operation| operation.waits().count()).sum();
            assert!(request.operations.len() <= 8 && request.calls.len() <= 8 && waits <= 8 * 9);
            assert!(request.running() <= request.to.saturating_sub(request.from));
        }
        assert!(source.requests.open() <= 10);
    }
    assert!(told > 1000, "{told} requests");
}
