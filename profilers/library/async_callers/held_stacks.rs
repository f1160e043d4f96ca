//! The stacks that wait for what the runtime tells. It tells what each thread ran after the fact, so a stack of async
//! code waits until that has come. Its thread's later stacks wait with it, as those of a thread have to stay in order
//! of time.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof::id::CodeAddress;
use corprof::prelude::*;
use corprof::sampler::ticks;
use corprof_async::{
    ANSWER_TIME, Decoder, Limits, LogicalStack, LogicalStacks, Methods, Origin, Outcome, time_when_late,
};
use corprof_profilers::known_callers;

use super::il_calls::IlCalls;
use super::session::Inbox;
use super::{Joined, Role, StackFrame, ThreadKey, Waiting};

/// How many frames all waiting samples may have, of 32 bytes each.
const MOST_FRAMES: usize = 1 << 20;
/// How many addresses of code are remembered.
const MOST_ADDRESSES: usize = 1 << 14;
/// For how many seconds it is kept what threads have done, once no sample that waits needs it: one by a signal comes with
/// the next round.
const KEPT_SECONDS: usize = 3;
/// For how many seconds an operation may have run for its end to be waited for.
const MOST_SECONDS: usize = 5;
/// Marks the address of a physical frame, which is its place on the stack.
const PHYSICAL: u64 = 1 << 63;

/// The samples that wait, and what is known of their threads.
pub(super) struct HeldStacks<T> {
    inbox: Arc<Inbox>,
    decoder: Decoder,
    stacks: LogicalStacks,
    waiting: VecDeque<Waiting<T>>,
    /// How many samples of each thread wait.
    threads: HashMap<ThreadKey, usize>,
    /// The sum of the frames of waiting samples.
    frames: usize,
    known: KnownMethods,
    stack: LogicalStack,
    /// When threads were asked for what they hold, as far as they may not have answered yet.
    asked: VecDeque<Asked>,
    /// How late this thread was so far, all in all: so late may the runtime's timer be as well.
    late: Duration,
    /// Samples in resumed methods, and those whose callers were found.
    resumed: u64,
    joined: u64,
    /// Buffers that could not be decoded.
    damaged: u64,
    /// The times of the last seconds, in ticks.
    seconds: VecDeque<u64>,
}

/// What was found out of methods.
#[derive(Default)]
struct KnownMethods {
    /// By address.
    functions: RefCell<HashMap<u64, Option<FunctionId>>>,
    /// By number.
    ids: RefCell<HashMap<u64, FunctionId>>,
    il_calls: RefCell<IlCalls>,
}

/// A question to all threads.
struct Asked {
    ticks: u64,
    at: Instant,
    /// How late this thread had been before.
    late: Duration,
}

impl<T> HeldStacks<T> {
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
            known: KnownMethods::default(),
            stack: LogicalStack::new(),
            asked: VecDeque::new(),
            late: Duration::ZERO,
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

    pub(super) fn push(&mut self, sample: Waiting<T>) {
        *self.threads.entry(sample.thread).or_default() += 1;
        self.frames += sample.frames.len();
        self.waiting.push_back(sample);
    }

    /// Threads were asked for what they hold, from this time on. Asking takes its time on a busy machine: what a thread
    /// did meanwhile it may hold again.
    pub(super) fn ask(&mut self, from: u64) {
        self.asked.push_back(Asked { ticks: from, at: Instant::now(), late: self.late });
    }

    /// Whether a thread has not answered yet whose sample waits. The next question makes the answer come later.
    pub(super) fn awaits_an_answer(&self) -> bool {
        let Some(last) = self.asked.back() else { return false };
        self.waiting.iter().any(|sample| sample.ticks <= last.ticks && !self.is_known(sample))
    }

    /// This thread was so late, all in all.
    pub(super) fn set_late(&mut self, late: Duration) {
        self.late = late;
    }

    /// Moves the time up to which all is known.
    fn take_answers(&mut self) {
        while let Some(asked) = self.asked.front()
            && asked.at.elapsed() >= time_when_late(ANSWER_TIME, self.late.saturating_sub(asked.late))
        {
            self.stacks.settle_all(asked.ticks);
            self.asked.pop_front();
        }
    }

    /// Whether it is known what the thread ran: a buffer of that time or later has come, or the thread has not written
    /// any, though it was asked.
    fn is_known(&self, sample: &Waiting<T>) -> bool {
        sample.thread.1.is_some_and(|os_id| self.stacks.known_until(os_id.into()) >= sample.ticks)
    }

    /// Whether the thread is still to tell who awaits what it ran, as an operation does that ends soon. While many
    /// samples wait, none waits for that.
    fn may_have_more_callers(&self, sample: &Waiting<T>) -> bool {
        let Some(os_id) = sample.thread.1.filter(|_| self.frames < MOST_FRAMES / 2) else { return false };
        let oldest = self.seconds.front().filter(|_| self.seconds.len() == MOST_SECONDS);
        let since = oldest.copied().unwrap_or_default();
        self.stacks.awaits_an_end(os_id.into(), sample.ticks, since)
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
                Ok(buffer) => {
                    // A timer's thread may be late with the buffer of another one, which has gone on meanwhile.
                    let is_own = written.thread.map(u64::from) == Some(buffer.stream().thread);
                    let until = if is_own { written.ticks } else { buffer.end() };
                    self.stacks.take_buffer(&buffer, until, |_step| {});
                }
                Err(_) => self.damaged += 1,
            }
        }
        self.take_answers();
    }

    /// The oldest of the waiting samples, if it is due; all are if they shall wait no longer.
    pub(super) fn next_due(&mut self, is_last: bool) -> Option<Waiting<T>> {
        let sample = self.waiting.front()?;
        let is_due = is_last
            || self.frames > MOST_FRAMES
            || sample.has_waited_long()
            || !sample.may_be_async()
            || self.is_known(sample) && !self.may_have_more_callers(sample);
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
    pub(super) fn put_back(&mut self, sample: Waiting<T>) {
        *self.threads.entry(sample.thread).or_default() += 1;
        self.frames += sample.frames.len();
        self.waiting.push_front(sample);
    }

    /// Finds the callers of a sample; none if the runtime stands still just now, and does not say which method an
    /// address is of. A sample that can wait no longer has then its physical stack, as far as methods are unknown.
    pub(super) fn join<'s>(&mut self, cx: &InNoGc<'_>, sample: &'s Waiting<T>, can_wait: bool) -> Option<Joined<'s>> {
        let mut joined = Joined::physical(&sample.frames);
        let Some(os_id) = sample.thread.1.filter(|_| sample.may_be_async()) else { return Some(joined) };
        // The runtime tells of methods that have a frame.
        let is_left_out =
            |frame: &StackFrame| matches!(frame, StackFrame::Managed(_, Role::Stub, _) | StackFrame::Inlined(..));
        let frames = (0_u64..).zip(&sample.frames).filter(|(_, frame)| !is_left_out(frame));
        let places: Vec<u64> = frames.map(|(place, _)| PHYSICAL | place).collect();
        let found = Found::new(cx, &sample.frames, &self.known);
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
        if !self.is_known(sample) && self.stack.outcome != Outcome::Outside {
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
    fn count(&mut self, sample: &Waiting<T>) {
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
        self.known = KnownMethods::default();
        self.seconds.push_back(ticks());
        if self.seconds.len() > MOST_SECONDS {
            self.seconds.pop_front();
        }
        let until = self.seconds.iter().rev().nth(KEPT_SECONDS).copied().unwrap_or_default();
        self.stacks.release(self.oldest().map_or(until, |oldest| until.min(oldest)));
    }

    /// What a reader of the profile should know.
    pub(super) fn note(&self, cx: &InNoGc<'_>) -> Option<String> {
        let lost = self.inbox.lost(cx) + self.damaged;
        let lost = if lost == 0 { String::new() } else { format!("; {lost} buffers of the runtime are lost") };
        known_callers(self.joined, self.resumed, &lost)
    }
}

/// The method whose code has an address that the runtime has told of an async operation.
///
/// # Errors
/// If the runtime does not answer just now.
pub(crate) fn method_at(cx: &InNoGc<'_>, address: u64) -> Result<Option<FunctionId>> {
    let Ok(address) = usize::try_from(address) else { return Ok(None) };
    // SAFETY: the runtime has told the address of a method that was suspended, so it has run (fact: addresses).
    cx.function_from_ip(unsafe { CodeAddress::from_raw(address) })
}

/// Finds methods: of places on the stack of a sample, and of addresses that the runtime has told.
struct Found<'a> {
    cx: &'a InNoGc<'a>,
    frames: &'a [StackFrame],
    /// The methods on the stack by which others go on.
    resuming: Vec<(u64, Role)>,
    known: &'a KnownMethods,
    /// Whether the runtime has not answered.
    is_busy: Cell<bool>,
}

impl<'a> Found<'a> {
    fn new(cx: &'a InNoGc<'a>, frames: &'a [StackFrame], known: &'a KnownMethods) -> Self {
        let resuming = frames.iter().filter_map(|frame| match frame {
            StackFrame::Managed(function, role @ (Role::Wrapper(_) | Role::Box), _) => {
                Some((function.as_raw() as u64, *role))
            }
            _ => None,
        });
        Self { cx, frames, resuming: resuming.collect(), known, is_busy: Cell::new(false) }
    }

    fn function(&self, address: u64) -> Option<FunctionId> {
        if address & PHYSICAL != 0 {
            return match self.frames.get(usize::try_from(address & !PHYSICAL).ok()?)? {
                StackFrame::Managed(function, ..) => Some(*function),
                StackFrame::Native(..) | StackFrame::Inlined(..) => None,
            };
        }
        if let Some(known) = self.known.functions.borrow().get(&address) {
            return *known;
        }
        match method_at(self.cx, address) {
            Ok(function) => {
                let mut functions = self.known.functions.borrow_mut();
                if functions.len() >= MOST_ADDRESSES {
                    functions.clear();
                }
                functions.insert(address, function);
                let mut ids = self.known.ids.borrow_mut();
                ids.extend(function.map(|function| (function.as_raw() as u64, function)));
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
        self.resuming.iter().find_map(|resuming| match resuming {
            (known, Role::Wrapper(index)) if *known == method => Some(*index),
            _ => None,
        })
    }

    fn resumes(&self, method: u64) -> bool {
        self.resuming.contains(&(method, Role::Box))
    }

    fn calls(&self, caller: u64, called: u64) -> bool {
        let ids = self.known.ids.borrow();
        let (Some(caller), Some(called)) = (ids.get(&caller), ids.get(&called)) else { return false };
        self.known.il_calls.borrow_mut().is_call(self.cx, *caller, *called)
    }
}
