//! Joins the stack of a thread with the operation that it runs.

use std::collections::HashMap;

use super::{Active, LogicalStacks, Segment};
use crate::frame::{Frame, Kind};
use crate::methods::Methods;
use crate::sub_event::DispatcherId;

/// The stack of a sample, with its logical callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogicalStack {
    /// The frames, the innermost first: [physical](Origin::Physical), then [awaiting](Origin::Awaiting), then
    /// [creators](Origin::Creator).
    pub frames: Vec<LogicalFrame>,
    /// How far it was found.
    pub outcome: Outcome,
    /// Whether the wrapper led to the method that runs. None without a wrapper: state machines have none.
    pub wrapper: Option<WrapperMatch>,
}

/// A frame of a [`LogicalStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogicalFrame {
    /// An address in the method. Never 0.
    pub address: u64,
    /// The number of the await, of awaiting state machines.
    pub state: i32,
    /// Why the frame is there.
    pub origin: Origin,
}

/// Why a frame is in a [`LogicalStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// It is on the stack of the thread.
    Physical,
    /// It awaits what runs.
    Awaiting,
    /// It made the operation, or the one that made that.
    Creator,
}

/// How far a [`LogicalStack`] was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The thread ran no operation, or none is known: the stack is physical.
    #[default]
    Outside,
    /// The method that runs was found in the chain of the operation.
    Stitched,
    /// No method of the chain is on the stack, or the wrapper leads to another method: the stack is physical.
    NoMatch,
    /// The source told no chain: the stack is physical.
    NoChain,
    /// The chain was cut before the method that runs: it has creators only.
    Beyond,
}

/// Whether the wrapper led to the method that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WrapperMatch {
    /// It did.
    Method,
    /// It led to a continuation without a method.
    ZeroFrame,
    /// It led past the end of the chain.
    Beyond,
    /// It led to another method.
    Differs,
}

/// Where the stack and the chain meet.
struct Meeting {
    /// How many frames of the stack are of the operation.
    physical: usize,
    /// The position in the chain of the method that runs.
    position: usize,
}

/// How far a stack has been put together.
struct End {
    dispatcher: DispatcherId,
    /// Its outermost method.
    outermost: Option<u64>,
}

impl LogicalStacks {
    /// The same as [`join`](Self::join), as a new stack.
    #[must_use]
    pub fn joined(&self, thread: u64, ticks: u64, physical: &[u64], methods: &impl Methods) -> LogicalStack {
        let mut stack = LogicalStack::new();
        self.join(thread, ticks, physical, methods, &mut stack);
        stack
    }

    /// The logical stack of a thread at a time. `physical` has the addresses of its stack, the innermost first; `stack`
    /// is overwritten.
    ///
    /// Physical frames below the operation are left out: they did not call it, but brought it to run.
    pub fn join(&self, thread: u64, ticks: u64, physical: &[u64], methods: &impl Methods, stack: &mut LogicalStack) {
        stack.frames.clear();
        stack.wrapper = None;
        let Some(active) = self.active(thread, ticks) else {
            stack.outcome = Outcome::Outside;
            return stack.push_physical(physical);
        };
        let Some(chain) = active.chain() else {
            stack.outcome = Outcome::NoChain;
            return stack.push_physical(physical);
        };
        let meeting = match active.kind() {
            Kind::Runtime => by_wrapper(&active, chain, physical, methods, &mut stack.wrapper),
            Kind::StateMachine => by_method(&active, chain, physical, methods),
        };
        let Some(Meeting { physical: count, position }) = meeting else {
            stack.outcome = Outcome::NoMatch;
            return stack.push_physical(physical);
        };
        stack.outcome = if position < chain.len() { Outcome::Stitched } else { Outcome::Beyond };
        stack.push_physical(physical.get(..count).unwrap_or(physical));
        stack.push(chain.get(position.saturating_add(1)..).unwrap_or_default(), Origin::Awaiting);
        let mut end = End { dispatcher: active.dispatcher(), outermost: last_method(chain, methods) };
        self.push_awaiters(&mut end, Origin::Awaiting, methods, stack);
        // What waits was made in the same run, so by the same creators.
        let creators = self.creators(end.dispatcher);
        let of_others = |segment: &&Segment| last_method(segment.frames(), methods) != end.outermost;
        let first = creators.iter().position(|segment| of_others(&segment)).unwrap_or(creators.len());
        self.push_starter(&mut end, ticks, methods, stack);
        for segment in creators.get(first..).unwrap_or_default() {
            let creators_outermost = last_method(segment.frames(), methods);
            // In state machines, each await may make an operation whose parent is that of the await before, with the
            // same callers: it came before, and did not call.
            let is_same_operation = creators_outermost.is_some() && creators_outermost == end.outermost;
            if !is_same_operation {
                stack.push(segment.frames(), Origin::Creator);
                end.outermost = creators_outermost;
            }
        }
    }

    /// Adds the method that has called the last operation, as far as the IL tells, and what awaits that.
    fn push_starter(&self, end: &mut End, ticks: u64, methods: &impl Methods, stack: &mut LogicalStack) {
        for starter in self.awaiters.starters(end.dispatcher, ticks) {
            let Some(from) = caller_of(end.outermost, &starter.chain, methods) else { continue };
            let (inner, frames) = starter.chain.split_at(from);
            let is_innermost = inner.iter().all(|frame| frame.address == 0);
            let has_awaited = is_innermost && self.awaiters.has_awaited(&starter, end.dispatcher);
            let origin = if has_awaited { Origin::Awaiting } else { Origin::Creator };
            stack.push(frames, origin);
            *end = End { dispatcher: starter.dispatcher, outermost: last_method(&starter.chain, methods) };
            return self.push_awaiters(end, origin, methods, stack);
        }
    }

    /// Adds the methods of the operations that await the last one.
    fn push_awaiters(&self, end: &mut End, origin: Origin, methods: &impl Methods, stack: &mut LogicalStack) {
        for awaiter in self.awaiters.of(end.dispatcher).take(self.limits.awaiters) {
            stack.push(&awaiter.chain, origin);
            *end = End { dispatcher: awaiter.dispatcher, outermost: last_method(&awaiter.chain, methods) };
        }
    }
}

impl LogicalStack {
    /// Is empty: [`LogicalStacks::join`] fills it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn push_physical(&mut self, addresses: &[u64]) {
        let frame = |address: &u64| LogicalFrame { address: *address, state: 0, origin: Origin::Physical };
        self.frames.extend(addresses.iter().map(frame));
    }

    /// Adds frames, without the places of continuations that have no method.
    fn push(&mut self, frames: &[Frame], origin: Origin) {
        let frames = frames.iter().filter(|frame| frame.address != 0);
        self.frames.extend(frames.map(|frame| LogicalFrame { address: frame.address, state: frame.state, origin }));
    }
}

/// The outermost method of a chain.
fn last_method(chain: &[Frame], methods: &impl Methods) -> Option<u64> {
    let last = chain.iter().rfind(|frame| frame.address != 0)?;
    methods.method_at(last.address)
}

/// The position in a chain of the method that has called another one. If several may have, it is the outermost: the
/// others were called by it.
fn caller_of(called: Option<u64>, chain: &[Frame], methods: &impl Methods) -> Option<usize> {
    let called = called?;
    let calls = |frame: &Frame| methods.method_at(frame.address).is_some_and(|method| methods.calls(method, called));
    chain.iter().rposition(|frame| frame.address != 0 && calls(frame))
}

/// The innermost wrapper on the stack tells the position; the method that it has called must be the one that is there
/// in the chain.
fn by_wrapper(
    active: &Active<'_>,
    chain: &[Frame],
    physical: &[u64],
    methods: &impl Methods,
    wrapper: &mut Option<WrapperMatch>,
) -> Option<Meeting> {
    let index_at = |address: &u64| methods.wrapper_index(methods.method_at(*address)?);
    let (count, index) = physical.iter().enumerate().find_map(|(at, address)| Some((at, index_at(address)?)))?;
    let position = usize::try_from(active.position_of_wrapper(index)).ok();
    let Some(position) = position else {
        *wrapper = Some(WrapperMatch::Differs);
        return None;
    };
    let found = match chain.get(position) {
        None => WrapperMatch::Beyond,
        Some(frame) if frame.address == 0 => WrapperMatch::ZeroFrame,
        Some(frame) => {
            let called = count.checked_sub(1).and_then(|above| methods.method_at(*physical.get(above)?));
            let is_same = called.is_some() && called == methods.method_at(frame.address);
            if is_same { WrapperMatch::Method } else { WrapperMatch::Differs }
        }
    };
    *wrapper = Some(found);
    (found != WrapperMatch::Differs).then_some(Meeting { physical: count, position })
}

/// The method that was resumed last is the outermost within the box by which it goes on: what is further inside it has
/// called. If the box is unknown, it is the innermost method of the chain.
///
/// Methods of the chain that have ended may be called again by those that go on, so they do not count, but for the last
/// of them: its end is told while it is still on the stack.
fn by_method(active: &Active<'_>, chain: &[Frame], physical: &[u64], methods: &impl Methods) -> Option<Meeting> {
    let stack: Vec<Option<u64>> = physical.iter().map(|address| methods.method_at(*address)).collect();
    let of_box = stack.iter().position(|method| method.is_some_and(|method| methods.resumes(method)));
    let resumed = stack.get(..of_box.unwrap_or_default()).unwrap_or_default();
    let completed = active.completed() as usize;
    for first in [completed, completed.saturating_sub(1)] {
        // The first position of each method.
        let mut positions = HashMap::new();
        for (position, frame) in chain.iter().enumerate().skip(first) {
            if let Some(method) = methods.method_at(frame.address) {
                positions.entry(method).or_insert(position);
            }
        }
        let meeting = |(at, method): (usize, &Option<u64>)| {
            Some(Meeting { physical: at + 1, position: *positions.get(&(*method)?)? })
        };
        let outermost = resumed.iter().enumerate().rev().find_map(meeting);
        let found = outermost.or_else(|| stack.iter().enumerate().find_map(meeting));
        if found.is_some() {
            return found;
        }
    }
    None
}
