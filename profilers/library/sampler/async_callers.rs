//! The async callers of samples: who awaits the method that a thread has resumed, and who started it. Both are gone
//! from the thread's stack.
//!
//! The runtime tells what each thread ran after the fact, so a sample of async code waits until that has come. Its
//! thread's later samples wait with it, as those of a thread have to stay in order of time.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof::id::{CodeAddress, Inert};
use corprof::prelude::*;
use corprof::sampler::ticks;
use corprof_async::{Decoder, Limits, LogicalStack, LogicalStacks, Methods, Origin, Outcome};

use super::async_probe::Machine;
use super::async_session::Inbox;

/// How long a sample waits at most. Threads are asked each second for what they hold.
pub(super) const LONGEST: Duration = Duration::from_secs(4);
/// How long threads may take for an answer: the runtime writes each second what threads hold that were idle for 250 ms,
/// and others write it at their next async operation.
pub(super) const ANSWER: Duration = Duration::from_millis(1800);
/// How many frames all waiting samples may have, of 32 bytes each.
const MOST_FRAMES: usize = 1 << 20;
/// How many addresses of code are remembered.
const MOST_ADDRESSES: usize = 1 << 14;
/// For how many seconds it is kept what threads have done: a sample comes late, and then waits.
const KEPT_SECONDS: usize = 5;
/// Marks the address of a physical frame, which is its place on the stack.
const PHYSICAL: u64 = 1 << 63;

/// The thread of a sample: the runtime's, on a thread of the system.
pub(super) type ThreadKey = (Inert<ThreadId>, Option<u32>);

/// What a method is for async stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Role {
    /// Any other.
    #[default]
    Other,
    /// `Continuation_Wrapper_N`, by which the runtime calls what it resumes.
    Wrapper(u8),
    /// Code of the runtime's between the two.
    Stub,
    /// `MoveNext` of a state machine, perhaps one of an async method.
    StateMachine,
    /// `MoveNext` of a box, by which the thread pool and completed methods have a suspended method go on.
    Box,
}

impl Role {
    /// That of the method with this name, spelt as in C#.
    pub(super) fn of(name: &str) -> Self {
        const WRAPPER: &str = "System.Runtime.CompilerServices.AsyncProfiler.ContinuationWrapper.Continuation_Wrapper_";
        if let Some(rest) = name.strip_prefix(WRAPPER) {
            let digits = rest.split('(').next().unwrap_or_default();
            return digits.parse().map_or(Self::Other, Self::Wrapper);
        }
        if name.starts_with("<stub ") {
            return Self::Stub;
        }
        if is_of_box(name) {
            return Self::Box;
        }
        if name.ends_with(".MoveNext()") { Self::StateMachine } else { Self::Other }
    }
}

/// Whether it is by a method with this name that boxes go on.
fn is_of_box(name: &str) -> bool {
    const BOXES: [(&str, &str, &str); 2] = [
        ("AsyncTaskMethodBuilder<", ">.AsyncStateMachineBox<", ">.MoveNext(System.Threading.Thread)"),
        ("PoolingAsyncValueTaskMethodBuilder<", ">.StateMachineBox<", ">.MoveNext()"),
    ];
    let Some(rest) = name.strip_prefix("System.Runtime.CompilerServices.") else { return false };
    BOXES
        .iter()
        .any(|(builder, class, method)| rest.starts_with(builder) && rest.contains(class) && rest.ends_with(method))
}

/// A frame of a waiting sample.
#[derive(Debug, Clone)]
pub(super) enum StackFrame {
    Managed(FunctionId, Role, TraceAddress),
    /// By its name.
    Native(Arc<str>, TraceAddress),
}

/// The address of a frame in a recording; 0 without one.
pub(super) type TraceAddress = u64;

/// A sample that waits.
pub(super) struct Waiting {
    pub(super) thread: ThreadKey,
    /// When the thread had this stack, by the clock of events, and since the start of sampling.
    pub(super) ticks: u64,
    pub(super) at: Duration,
    pub(super) weight: u64,
    /// The innermost first.
    pub(super) frames: Box<[StackFrame]>,
    /// Whether the thread was waiting.
    pub(super) is_waiting: bool,
}

impl Waiting {
    /// Whether a resumed method may be on the stack.
    fn may_be_async(&self) -> bool {
        has_async(&self.frames)
    }
}

/// Whether a resumed method may be on a stack.
pub(super) fn has_async(frames: &[StackFrame]) -> bool {
    frames.iter().any(|frame| matches!(frame, StackFrame::Managed(_, Role::Wrapper(_) | Role::StateMachine, _)))
}

/// The stack of a sample that has waited.
pub(super) struct Joined<'a> {
    /// Its physical frames.
    pub(super) physical: &'a [StackFrame],
    /// The methods that await these, the innermost first.
    pub(super) awaiting: Vec<Caller>,
    /// The methods that started these.
    pub(super) creators: Vec<Caller>,
}

/// A method that is not on the stack.
pub(super) enum Caller {
    Function(FunctionId),
    Machine(Machine),
    /// Unknown code.
    Unknown,
}

impl From<Option<FunctionId>> for Caller {
    fn from(function: Option<FunctionId>) -> Self {
        function.map_or(Self::Unknown, Self::Function)
    }
}

/// The samples that wait, and what is known of their threads.
pub(super) struct AsyncCallers {
    inbox: Arc<Inbox>,
    decoder: Decoder,
    stacks: LogicalStacks,
    waiting: VecDeque<Waiting>,
    /// How many samples of each thread wait.
    threads: HashMap<ThreadKey, usize>,
    /// The sum of the frames of waiting samples.
    frames: usize,
    functions: RefCell<HashMap<u64, Option<FunctionId>>>,
    stack: LogicalStack,
    /// When threads were asked for what they hold, in ticks too, as far as they may not have answered yet.
    asked: VecDeque<(u64, Instant)>,
    /// All is known up to this time.
    answered_until: u64,
    /// Samples in resumed methods, and those whose callers were found.
    resumed: u64,
    joined: u64,
    /// Buffers that could not be decoded.
    damaged: u64,
    /// The times of the last seconds, in ticks.
    seconds: VecDeque<u64>,
}

impl AsyncCallers {
    pub(super) fn new(inbox: Arc<Inbox>) -> Self {
        let mut limits = Limits::default();
        limits.states = 1 << 19;
        limits.operations = 1 << 16;
        Self {
            inbox,
            decoder: Decoder::new(),
            stacks: LogicalStacks::with_limits(limits),
            waiting: VecDeque::new(),
            threads: HashMap::new(),
            frames: 0,
            functions: RefCell::default(),
            stack: LogicalStack::new(),
            asked: VecDeque::new(),
            answered_until: 0,
            resumed: 0,
            joined: 0,
            damaged: 0,
            seconds: VecDeque::new(),
        }
    }

    /// Whether a sample of this thread has to wait because an earlier one does.
    pub(super) fn holds(&self, thread: ThreadKey) -> bool {
        self.threads.contains_key(&thread)
    }

    pub(super) fn push(&mut self, sample: Waiting) {
        *self.threads.entry(sample.thread).or_default() += 1;
        self.frames += sample.frames.len();
        self.waiting.push_back(sample);
    }

    /// Threads are asked just now for what they hold.
    pub(super) fn ask(&mut self) {
        self.asked.push_back((ticks(), Instant::now()));
    }

    /// Moves the time up to which all is known.
    fn take_answers(&mut self) {
        while let Some((asked, at)) = self.asked.front()
            && at.elapsed() >= ANSWER
        {
            self.answered_until = *asked;
            self.asked.pop_front();
        }
    }

    /// Whether it is known what the thread ran: a buffer of that time or later has come, or the thread has not written
    /// any, though it was asked.
    fn is_told(&self, sample: &Waiting) -> bool {
        let until = sample.thread.1.map_or(0, |os_id| self.stacks.known_until(os_id.into()));
        until.max(self.answered_until) >= sample.ticks
    }

    /// The time of the oldest sample that waits, in ticks.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.waiting.iter().map(|sample| sample.ticks).min()
    }

    /// Whether samples wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes what threads have told.
    pub(super) fn take_buffers(&mut self, cx: &InNoGc<'_>) {
        while let Some(written) = self.inbox.next(cx) {
            match self.decoder.decode(&written.payload) {
                Ok(buffer) => self.stacks.take_buffer(&buffer, written.ticks, |_step| {}),
                Err(_) => self.damaged += 1,
            }
        }
        self.take_answers();
    }

    /// The oldest of the waiting samples, if it is due; all are if they shall wait no longer.
    pub(super) fn next_due(&mut self, now: Duration, is_last: bool) -> Option<Waiting> {
        let sample = self.waiting.front()?;
        let is_due = is_last
            || self.frames > MOST_FRAMES
            || now.saturating_sub(sample.at) >= LONGEST
            || !sample.may_be_async()
            || self.is_told(sample);
        if !is_due {
            return None;
        }
        let sample = self.waiting.pop_front()?;
        self.frames -= sample.frames.len();
        if let Some(count) = self.threads.get_mut(&sample.thread) {
            *count -= 1;
            if *count == 0 {
                self.threads.remove(&sample.thread);
            }
        }
        Some(sample)
    }

    /// Puts a sample back that [`next_due`](Self::next_due) has given.
    pub(super) fn put_back(&mut self, sample: Waiting) {
        *self.threads.entry(sample.thread).or_default() += 1;
        self.frames += sample.frames.len();
        self.waiting.push_front(sample);
    }

    /// Finds the callers of a sample; none if the runtime stands still just now, and does not say which method an
    /// address is of. A sample that can wait no longer has then its physical stack, as far as methods are unknown.
    pub(super) fn join<'s>(&mut self, cx: &InNoGc<'_>, sample: &'s Waiting, can_wait: bool) -> Option<Joined<'s>> {
        let mut joined = Joined { physical: &sample.frames, awaiting: Vec::new(), creators: Vec::new() };
        let Some(os_id) = sample.thread.1.filter(|_| sample.may_be_async()) else { return Some(joined) };
        let is_stub = |frame: &StackFrame| matches!(frame, StackFrame::Managed(_, Role::Stub, _));
        let frames = (0_u64..).zip(&sample.frames).filter(|(_, frame)| !is_stub(frame));
        let places: Vec<u64> = frames.map(|(place, _)| PHYSICAL | place).collect();
        let found = Found { cx, frames: &sample.frames, functions: &self.functions, is_busy: Cell::new(false) };
        self.stacks.join(os_id.into(), sample.ticks, &places, &found, &mut self.stack);
        for frame in &self.stack.frames {
            match frame.origin {
                Origin::Physical => {}
                Origin::Awaiting => joined.awaiting.push(found.function(frame.address).into()),
                Origin::Creator => joined.creators.push(found.function(frame.address).into()),
            }
        }
        if found.is_busy.get() && can_wait {
            return None;
        }
        // What the thread ran last may be over.
        if !self.is_told(sample) && self.stack.outcome != Outcome::Outside {
            self.stack.outcome = Outcome::NoChain;
            joined.awaiting.clear();
            joined.creators.clear();
        }
        if matches!(self.stack.outcome, Outcome::Stitched | Outcome::Beyond) {
            let last = self.stack.frames.iter().rfind(|frame| frame.origin == Origin::Physical);
            let count = last.map_or(0, |frame| (frame.address & !PHYSICAL) as usize + 1);
            joined.physical = sample.frames.get(..count).unwrap_or(&sample.frames);
        }
        self.count(sample);
        Some(joined)
    }

    /// Counts a sample that was just joined.
    fn count(&mut self, sample: &Waiting) {
        let has_wrapper =
            || sample.frames.iter().any(|frame| matches!(frame, StackFrame::Managed(_, Role::Wrapper(_), _)));
        match self.stack.outcome {
            Outcome::Stitched => {
                self.resumed += 1;
                self.joined += 1;
            }
            // An iterator, or an async method before its first wait, whose callers are on the stack.
            Outcome::Outside if !has_wrapper() => {}
            _ => self.resumed += 1,
        }
    }

    /// Forgets what no sample needs any more. To be called each second.
    pub(super) fn forget(&mut self) {
        // The memory of code may be used again, once its assembly was unloaded.
        self.functions.borrow_mut().clear();
        self.seconds.push_back(ticks());
        if self.seconds.len() <= KEPT_SECONDS {
            return;
        }
        let Some(until) = self.seconds.pop_front() else { return };
        self.stacks.release(self.oldest().map_or(until, |oldest| until.min(oldest)));
    }

    /// What a reader of the profile should know.
    pub(super) fn note(&self, cx: &InNoGc<'_>) -> Option<String> {
        if self.resumed == 0 {
            return None;
        }
        let share = 100.0 * self.joined as f64 / self.resumed as f64;
        let lost = self.inbox.lost(cx) + self.damaged;
        let lost = if lost == 0 { String::new() } else { format!("; {lost} buffers of the runtime are lost") };
        Some(format!(
            "Async callers: known of {share:.1} % of {} samples in resumed methods{lost}. The others have their \
             physical stacks",
            self.resumed
        ))
    }
}

/// Finds methods: of places on the stack of a sample, and of addresses that the runtime has told.
struct Found<'a> {
    cx: &'a InNoGc<'a>,
    frames: &'a [StackFrame],
    functions: &'a RefCell<HashMap<u64, Option<FunctionId>>>,
    /// Whether the runtime has not answered.
    is_busy: Cell<bool>,
}

impl Found<'_> {
    fn function(&self, address: u64) -> Option<FunctionId> {
        if address & PHYSICAL != 0 {
            return match self.frames.get(usize::try_from(address & !PHYSICAL).ok()?)? {
                StackFrame::Managed(function, ..) => Some(*function),
                StackFrame::Native(..) => None,
            };
        }
        if let Some(known) = self.functions.borrow().get(&address) {
            return *known;
        }
        // SAFETY: the runtime has told the address of a method that was suspended, so it has run (fact: addresses).
        let code = unsafe { CodeAddress::from_raw(usize::try_from(address).ok()?) };
        match self.cx.function_from_ip(code) {
            Ok(function) => {
                let mut functions = self.functions.borrow_mut();
                if functions.len() >= MOST_ADDRESSES {
                    functions.clear();
                }
                functions.insert(address, function);
                function
            }
            Err(_) => {
                self.is_busy.set(true);
                None
            }
        }
    }
}

impl Methods for Found<'_> {
    fn method_at(&self, address: u64) -> Option<u64> {
        self.function(address).map(|function| function.as_raw() as u64)
    }

    fn wrapper_index(&self, method: u64) -> Option<u8> {
        self.frames.iter().find_map(|frame| match frame {
            StackFrame::Managed(function, Role::Wrapper(index), _) if function.as_raw() as u64 == method => {
                Some(*index)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_async_stacks_are_known_by_their_names() {
        let wrapper = "System.Runtime.CompilerServices.AsyncProfiler.ContinuationWrapper.Continuation_Wrapper_";
        for (name, role) in [
            (format!("{wrapper}7(System.Runtime.CompilerServices.Continuation, ref byte)"), Role::Wrapper(7)),
            (format!("{wrapper}31"), Role::Wrapper(31)),
            (format!("{wrapper}x()"), Role::Other),
            ("Shop.Truth.<BurnAsync>d__5.MoveNext()".to_owned(), Role::StateMachine),
            ("Shop.Truth.MoveNext(int)".to_owned(), Role::Other),
            (
                "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<long>.AsyncStateMachineBox<Shop.<Load>d__2>\
                 .MoveNext(System.Threading.Thread)"
                    .to_owned(),
                Role::Box,
            ),
            (
                "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder<int>.StateMachineBox<Shop.<Read>d__3>\
                 .MoveNext()"
                    .to_owned(),
                Role::Box,
            ),
        ] {
            assert_eq!(Role::of(&name), role, "{name}");
        }
    }
}
