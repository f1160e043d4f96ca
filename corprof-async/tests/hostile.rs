//! Hostile bytes and impossible sub-events: no panic, no end of memory, no hang. `corprof-async/fuzz` searches for
//! longer.

#[path = "../../corprof-nettrace/tests/support/mutated.rs"]
mod mutated;
mod support;

use std::hint::black_box;

use corprof_async::{
    Action, Callstack, Decoder, Frame, Frames, Kind, Limits, LogicalStack, LogicalStacks, Moment, StreamId, SubEvent,
    Waits,
};
use fastrand::Rng;
use mutated::mutated;
use support::{Hundreds, buffer, sub_event};

const CASES: u64 = 50_000;

/// Buffers with all sub-events.
fn seeds() -> Vec<Vec<u8>> {
    let stack = |parent: &[u8]| [&[0, 1, 3][..], parent, &[7, 0xac, 0x02, 0x14, 0x13]].concat();
    let states = [0, 0, 2, 9, 0xac, 0x02, 0x02, 0x14, 0x03];
    let runtime = [
        sub_event(20, 0, 0, &[]),
        sub_event(1, 1, 1, &[3, 7]),
        sub_event(6, 0, 2, &stack(&[3])),
        sub_event(2, 5, 1, &[7]),
        sub_event(7, 0, 2, &stack(&[])),
        sub_event(9, 1, 0, &[]),
        sub_event(10, 1, 0, &[]),
        sub_event(21, 0, 0, &[]),
        sub_event(5, 2, 1, &[2]),
        sub_event(8, 0, 2, &stack(&[])),
        sub_event(3, 0, 0, &[]),
        sub_event(4, 0, 0, &[]),
    ];
    let machine = [
        sub_event(20, 0, 0, &[]),
        sub_event(11, 1, 1, &[7, 9]),
        sub_event(12, 1, 1, &[9]),
        sub_event(16, 1, 2, &states),
        sub_event(19, 1, 2, &states),
        sub_event(17, 1, 0, &[]),
        sub_event(18, 1, 0, &[]),
        sub_event(15, 1, 1, &[1]),
        sub_event(13, 1, 0, &[]),
        sub_event(14, 1, 0, &[]),
    ];
    let metadata = [sub_event(22, 0, 2, &[1, 2, 3, 4, 32, 2, 40, 1, 2, 2, 2, 1]), sub_event(23, 1, 1, &[5, 6])];
    vec![buffer(1, 1, 100, 110, &runtime), buffer(2, 2, 103, 112, &machine), buffer(3, 2, 101, 102, &metadata)]
}

/// Has the sizes of a buffer agree again.
fn with_its_size(mut bytes: Vec<u8>) -> Vec<u8> {
    if let (Some(size), true) = (bytes.len().checked_sub(4), bytes.len() >= 9) {
        let size = u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
        bytes[..4].copy_from_slice(&size);
        bytes[5..9].copy_from_slice(&size);
    }
    bytes
}

#[test]
fn mutated_buffers_are_read_or_refused() {
    let seeds = seeds();
    let mut rng = Rng::with_seed(11);
    let mut decoder = Decoder::new();
    for seed in &seeds {
        assert_eq!(decoder.decode(seed).map(|_| ()), Ok(()));
    }
    let mut limits = Limits::default();
    limits.threads = 20;
    limits.states = 2000;
    limits.operations = 200;
    let mut stacks = LogicalStacks::with_limits(limits);
    let mut waits = Waits::new(1000, 1000);
    let mut read = 0;
    let mut refused = 0;
    for case in 0..CASES {
        let bytes = mutated(&mut rng, &seeds);
        let bytes = if rng.u8(..8) > 0 { with_its_size(bytes) } else { bytes };
        let mut mutant = decoder.clone();
        let Ok(buffer) = mutant.decode(&bytes) else {
            refused += 1;
            continue;
        };
        read += 1;
        assert!(buffer.sub_events().count() <= bytes.len());
        stacks.take_buffer(&buffer, case, |step| waits.push(step, |wait| _ = black_box(wait)));
        let (states, operations) = stacks.held();
        assert!(states <= limits.states && operations <= limits.operations, "{states} states, {operations} operations");
        look(&stacks, &mut rng);
        if rng.u8(..) == 0 {
            stacks.release(rng.u64(..200));
        }
    }
    assert!(read > CASES / 30 && refused > CASES / 30, "{read} read, {refused} refused");
}

#[test]
fn impossible_sub_events_are_survived() {
    let mut limits = Limits::default();
    limits.threads = 40;
    limits.depth = 10;
    limits.states = 500;
    limits.operations = 50;
    limits.frames = 20;
    let mut rng = Rng::with_seed(12);
    let mut stacks = LogicalStacks::with_limits(limits);
    let mut waits = Waits::new(100, 50);
    for case in 0..2 * CASES {
        let id = StreamId { context: rng.u32(..9), thread: rng.u64(..5) };
        let kind = if rng.bool() { Kind::Runtime } else { Kind::StateMachine };
        let dispatcher = rng.u64(..60);
        let parent = rng.u64(..60);
        let frames: Vec<Frame> =
            (0..rng.usize(..8)).map(|_| Frame { address: rng.u64(..10) * 100, state: rng.i32(-2..3) }).collect();
        let moment = [Moment::Create { parent }, Moment::Resume, Moment::Suspend, Moment::Append][rng.usize(..4)];
        let frames = Frames::from(&frames[..]);
        let action = match rng.u8(..12) {
            0 => Action::Create { kind, parent, dispatcher },
            1 | 2 => Action::Resume { kind, dispatcher },
            3 => Action::Suspend { kind },
            4 => Action::Complete { kind },
            5 => Action::Unwind { kind, frames: rng.u32(..) },
            6 => Action::MethodComplete { kind },
            7 => Action::WrapperIndex,
            8 if rng.bool() => Action::Reset,
            _ => Action::Stack(Callstack { kind, moment, wrapper_index: rng.u8(..32), dispatcher, frames }),
        };
        let ticks = if rng.u8(..50) == 0 { rng.u64(..) } else { case };
        stacks.take(id, &SubEvent { ticks, action }, |step| waits.push(step, |wait| _ = black_box(wait)));
        let (states, operations) = stacks.held();
        assert!(states <= limits.states && operations <= limits.operations, "{states} states, {operations} operations");
        look(&stacks, &mut rng);
        match rng.u16(..500) {
            0 => stacks.release(case),
            1 => stacks.forget(id),
            2 => waits.release(case, |wait| _ = black_box(wait)),
            _ => {}
        }
    }
    assert!(stacks.stats().sub_events > CASES / 10, "{:?}", stacks.stats());
}

/// Asks all questions about a thread.
fn look(stacks: &LogicalStacks, rng: &mut Rng) {
    let thread = rng.u64(..5);
    let ticks = rng.u64(..300);
    let physical: Vec<u64> = (0..rng.usize(..6)).map(|_| rng.u64(..10) * 100 + rng.u64(..2) * 100_000).collect();
    let mut stack = LogicalStack::new();
    stacks.join(thread, ticks, &physical, &Hundreds, &mut stack);
    // 16 creators of 20 or 255 methods, or of as many as are appended.
    assert!(stack.frames.len() <= physical.len() + 17 * 1024);
    black_box((stacks.known_until(thread), stacks.creators(rng.u64(..60)), stacks.parent(rng.u64(..60))));
}
