//! Buffers that the traces of the repository lack: of a newer runtime, and damaged ones.

mod support;

use corprof_async::{Action, Callstack, Decoder, Frame, Kind, Moment, Problem};
use support::{buffer, sub_event};

fn problem(payload: &[u8]) -> Option<Problem> {
    Decoder::new().decode(payload).err().map(|error| error.problem)
}

#[test]
fn frames_are_addresses_and_differences() {
    let state_machine = [0, 3, 2, 7, 0x64, 0x02, 0x05, 0x03];
    let payload = buffer(1, 2, 100, 105, &[sub_event(16, 5, 2, &state_machine)]);
    let mut decoder = Decoder::new();
    let buffer = decoder.decode(&payload).expect("a buffer");
    assert_eq!((buffer.stream().context, buffer.stream().thread, buffer.start(), buffer.end()), (1, 2, 100, 105));
    let sub_events: Vec<_> = buffer.sub_events().collect();
    let [sub_event] = &sub_events[..] else { panic!("{sub_events:?}") };
    assert_eq!(sub_event.ticks, 105);
    let Action::Stack(Callstack { kind, moment, wrapper_index, dispatcher, frames }) = &sub_event.action else {
        panic!("{sub_event:?}")
    };
    assert_eq!((*kind, *moment, *wrapper_index, *dispatcher), (Kind::StateMachine, Moment::Resume, 3, 7));
    assert_eq!(frames.len(), 2);
    let expected = [Frame { address: 100, state: 1 }, Frame { address: 97, state: -2 }];
    assert_eq!(frames.clone().collect::<Vec<_>>(), expected);
    assert!(frames.clone().eq(corprof_async::Frames::from(&expected[..])));
}

/// A manifest with the sub-event 40, whose length is a u16, and with resumptions that have one as well.
#[test]
fn unknown_sub_events_and_longer_payloads_are_skipped_by_the_manifest() {
    let unknown = [sub_event(20, 0, 0, &[]), sub_event(40, 1, 2, &[9; 300]), sub_event(2, 1, 2, &[5, 77, 78])];
    let payload = buffer(1, 1, 10, 12, &unknown);
    assert_eq!(problem(&payload), Some(Problem::UnknownSubEvent(40)));

    let mut decoder = Decoder::new();
    let metadata = sub_event(22, 0, 2, &[1, 2, 3, 4, 32, 2, 40, 1, 2, 2, 2, 2]);
    decoder.decode(&buffer(2, 2, 5, 5, &[metadata])).expect("metadata");
    let buffer = decoder.decode(&payload).expect("a buffer of the newer runtime");
    let actions: Vec<_> = buffer.sub_events().map(|sub_event| sub_event.action).collect();
    let [Action::Reset, Action::Other { id: 40, payload }, Action::Resume { kind: Kind::Runtime, dispatcher: 5 }] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(payload.len(), 300);
}

#[test]
fn damage_is_told_with_its_place() {
    let whole = buffer(1, 1, 10, 11, &[sub_event(20, 0, 0, &[]), sub_event(2, 1, 1, &[5])]);
    assert_eq!(problem(&whole), None);
    assert_eq!(problem(&[]), Some(Problem::Truncated));
    assert_eq!(problem(&whole[..whole.len() - 1]), Some(Problem::Size));
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[at] = to;
        problem(&bytes)
    };
    assert_eq!(changed(4, 2), Some(Problem::Version(2)));
    assert_eq!(changed(5, 1), Some(Problem::Size));
    assert_eq!(changed(21, 9), Some(Problem::Count));
    assert_eq!(changed(33, 9), Some(Problem::Time));
    assert_eq!(changed(41, 99), Some(Problem::UnknownSubEvent(99)));
    let mut bytes = whole;
    let last = bytes.len() - 1;
    bytes[last] = 0x80;
    let error = Decoder::new().decode(&bytes).expect_err("a number without an end");
    assert_eq!((error.problem, error.offset), (Problem::Truncated, last - 3));
    let width = sub_event(22, 0, 2, &[1, 2, 3, 4, 32, 1, 40, 1, 4]);
    assert_eq!(problem(&buffer(1, 1, 1, 1, &[width])), Some(Problem::LengthWidth(4)));
}
