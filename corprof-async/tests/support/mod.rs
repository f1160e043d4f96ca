//! Buffers as the runtime writes them, and methods without a runtime.

#![allow(dead_code, reason = "each test uses a part")]

use corprof_async::{Action, Callstack, Frame, Frames, Kind, LogicalStacks, Methods, Moment, Step, StreamId, SubEvent};

/// The beginning of a sub-event: its number, and the time since the one before, below 128.
pub(crate) fn sub_event(id: u8, passed: u8, width: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![id, passed];
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes();
    bytes.extend(&length[..usize::from(width)]);
    bytes.extend(payload);
    bytes
}

/// The payload of an event, with sub-events that begin at `start`.
pub(crate) fn buffer(context: u32, thread: u64, start: u64, end: u64, sub_events: &[Vec<u8>]) -> Vec<u8> {
    let sub_event_bytes = sub_events.concat();
    let size = u32::try_from(37 + sub_event_bytes.len()).unwrap_or(u32::MAX);
    let count = u32::try_from(sub_events.len()).unwrap_or(u32::MAX);
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.push(1);
    bytes.extend(size.to_le_bytes());
    bytes.extend(context.to_le_bytes());
    bytes.extend(thread.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(end.to_le_bytes());
    bytes.extend(sub_event_bytes);
    bytes
}

/// The method M has the addresses 100 × M to 100 × M + 99, `Continuation_Wrapper_N` is the method 1000 + N, and state
/// machines go on by the method 2000.
pub(crate) struct Hundreds;

impl Methods for Hundreds {
    fn method_at(&self, address: u64) -> Option<u64> {
        (address >= 100).then_some(address / 100)
    }

    fn wrapper_index(&self, method: u64) -> Option<u8> {
        u8::try_from(method.checked_sub(1000)?).ok()
    }

    fn resumes(&self, method: u64) -> bool {
        method == 2000
    }
}

/// The same, and the IL of the first method calls the second.
pub(crate) struct Calling(pub(crate) u64, pub(crate) u64);

impl Methods for Calling {
    fn method_at(&self, address: u64) -> Option<u64> {
        Hundreds.method_at(address)
    }

    fn wrapper_index(&self, method: u64) -> Option<u8> {
        Hundreds.wrapper_index(method)
    }

    fn resumes(&self, method: u64) -> bool {
        Hundreds.resumes(method)
    }

    fn calls(&self, caller: u64, called: u64) -> bool {
        (caller, called) == (self.0, self.1)
    }
}

pub(crate) const T: StreamId = StreamId { context: 1, thread: 10 };
pub(crate) const U: StreamId = StreamId { context: 2, thread: 20 };

pub(crate) fn frames(addresses: &[u64]) -> Vec<Frame> {
    addresses.iter().map(|address| Frame { address: *address, state: 0 }).collect()
}

pub(crate) fn take(stacks: &mut LogicalStacks, id: StreamId, ticks: u64, action: Action<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    stacks.take(id, &SubEvent { ticks, action }, |step| steps.push(step));
    steps
}

/// Resumes an operation with its chain.
pub(crate) fn resume(
    stacks: &mut LogicalStacks,
    id: StreamId,
    ticks: u64,
    kind: Kind,
    dispatcher: u64,
    addresses: &[u64],
) -> Vec<Step> {
    let mut steps = take(stacks, id, ticks, Action::Resume { kind, dispatcher });
    steps.extend(callstack(stacks, id, ticks, Moment::Resume, kind, dispatcher, 0, addresses));
    steps
}

#[expect(clippy::too_many_arguments, reason = "one for each field")]
pub(crate) fn callstack(
    stacks: &mut LogicalStacks,
    id: StreamId,
    ticks: u64,
    moment: Moment,
    kind: Kind,
    dispatcher: u64,
    wrapper_index: u8,
    addresses: &[u64],
) -> Vec<Step> {
    let frames = frames(addresses);
    let frames = Frames::from(&frames[..]);
    take(stacks, id, ticks, Action::Stack(Callstack { kind, moment, wrapper_index, dispatcher, frames }))
}

pub(crate) fn started() -> LogicalStacks {
    let mut stacks = LogicalStacks::new();
    take(&mut stacks, T, 0, Action::Reset);
    take(&mut stacks, U, 0, Action::Reset);
    stacks
}
