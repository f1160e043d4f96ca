//! The memory in which a thread records its stack: made before the first signal, and never freed.
//!
//! Slots are numbered, and a signal carries the number. So a handler never follows an address from a signal, whichever
//! process sent it, and a late signal always finds a slot. Slots of ended threads are reused.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use super::alternate_stack::is_small;
use super::{Address, Sending, interrupted_handlers};

/// The most threads that can be sampled at a time.
const MOST: usize = 16 * 1024;

/// How many words from the top of the stack are copied: 16 KB.
pub(crate) const WORDS: usize = 2048;

static SLOTS: [AtomicPtr<SampleSlot>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The states of a slot.
mod state {
    /// Idle: the sampler may request a sample.
    pub(super) const IDLE: u32 = 0;
    /// The sampler waits for the thread.
    pub(super) const REQUESTED: u32 = 1;
    /// The thread is writing.
    pub(super) const WRITING: u32 = 2;
    /// The sampler can read a sample.
    pub(super) const FILLED: u32 = 3;
    /// The sampler waits for the thread to exchange its alternate stack.
    pub(super) const EXCHANGE_REQUESTED: u32 = 4;
    /// The thread has exchanged it, or has found a reason not to.
    pub(super) const EXCHANGED: u32 = 5;
}

/// Another alternate stack for a thread: what the sampler asks for, and what the thread has found.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    /// The mapping that the thread's own stack lies in.
    pub(super) mapping: (usize, usize),
    /// Whether it is the process's first thread.
    pub(super) is_first_thread: bool,
    /// The address of the only alternate stack that may be exchanged; none for any small one.
    pub(super) replaces: Option<usize>,
    pub(super) new: libc::stack_t,
    /// The one that the thread had.
    pub(super) before: libc::stack_t,
    pub(super) outcome: ExchangeOutcome,
}

/// What a thread has done about its alternate stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExchangeOutcome {
    Done,
    /// It has none, or a large one, or that of another maker.
    NotNeeded,
    /// It was on its alternate stack, or on an unknown one, or a handler's frame lay there.
    Refused,
}

const NO_STACK: libc::stack_t = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

/// One thread's slot, with room for one sample.
pub(crate) struct SampleSlot {
    number: u32,
    state: AtomicU32,
    /// The key of the thread that may fill it ([`thread_key`](crate::system::thread_key)); 0 for none.
    owner: AtomicUsize,
    stack_start: AtomicUsize,
    stack_end: AtomicUsize,
    /// Belongs to the thread while the state is WRITING, and to the sampler while it is FILLED.
    sample: UnsafeCell<RawSample>,
    /// Belongs to the thread while the state is WRITING, and to the sampler while it is IDLE or EXCHANGED.
    exchange: UnsafeCell<Exchange>,
}

// SAFETY: only the owner by the state touches the sample, and each change of the state is one atomic step.
unsafe impl Sync for SampleSlot {}

/// A thread's registers and stack, as numbers.
#[derive(Debug)]
pub(crate) struct RawSample {
    /// When it was recorded, by [`ticks`](crate::system::ticks).
    pub(crate) ticks: u64,
    pub(crate) ip: usize,
    pub(crate) stack_pointer: usize,
    /// The frame pointer; `link` is the link register on processors that have one.
    pub(crate) frame_pointer: usize,
    pub(crate) link: usize,
    /// Whether the thread was on another stack than its own, as while it handles a fault. No stack was read then.
    pub(crate) is_elsewhere: bool,
    /// Whether the thread's alternate stack has become too small for signals again: somebody has replaced it.
    pub(crate) has_small_stack: bool,
    /// Whether there was no room for the outer frames.
    pub(crate) is_cut: bool,
    /// The frame records beyond the copied part of the stack: their addresses, the callers' frame pointers, and the
    /// return addresses. A frame of code that continues a loop has two. Plain numbers, so that unwritten ones cost no
    /// memory.
    records: Box<[[usize; 3]]>,
    depth: usize,
    words: Box<[usize]>,
    word_count: usize,
}

/// The memory that a frame pointer points at.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameRecord {
    /// The frame pointer.
    pub(super) place: usize,
    /// The caller's frame pointer.
    pub(super) next: usize,
    /// The return address.
    pub(super) return_address: usize,
}

impl SampleSlot {
    /// Makes a slot for stacks of `frames` frames; none if there are too many slots.
    pub(crate) fn new(frames: usize) -> Option<&'static Self> {
        let number = NEXT.fetch_update(Relaxed, Relaxed, |next| ((next as usize) < MOST).then_some(next + 1)).ok()?;
        let slot = Box::leak(Box::new(Self {
            number,
            state: AtomicU32::new(state::IDLE),
            owner: AtomicUsize::new(0),
            stack_start: AtomicUsize::new(0),
            stack_end: AtomicUsize::new(0),
            sample: UnsafeCell::new(RawSample::with_room(frames)),
            exchange: UnsafeCell::new(Exchange {
                mapping: (0, 0),
                is_first_thread: false,
                replaces: None,
                new: NO_STACK,
                before: NO_STACK,
                outcome: ExchangeOutcome::Refused,
            }),
        }));
        SLOTS.get(number as usize)?.store(slot, Release);
        Some(slot)
    }

    /// The slot with this number, if there is one. Called in the handler.
    pub(super) fn numbered(number: usize) -> Option<&'static Self> {
        let slot = SLOTS.get(number)?.load(Acquire);
        // SAFETY: null, or a slot that is never freed.
        unsafe { slot.as_ref() }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Makes it the calling thread's. It must be idle.
    pub(crate) fn take(&self, stack: &Range<usize>) {
        self.stack_start.store(stack.start, Relaxed);
        self.stack_end.store(stack.end, Relaxed);
        self.owner.store(crate::system::thread_key(), Release);
    }

    /// Whether it belongs to the calling thread.
    pub(crate) fn is_own(&self) -> bool {
        self.owner.load(Acquire) == crate::system::thread_key()
    }

    /// Requests a sample from the thread at this address, which owns the slot. Does not ask again before the last
    /// request is answered.
    pub(crate) fn request(&self, thread: Address) -> Sending {
        if self.state.compare_exchange(state::IDLE, state::REQUESTED, AcqRel, Relaxed).is_err() {
            return Sending::NotNow;
        }
        let sent = thread.send(self);
        if sent != Sending::Done {
            self.withdraw();
        }
        sent
    }

    /// Requests that the thread at this address exchange its alternate stack, on the sampler's thread. The slot must be
    /// idle.
    pub(super) fn request_exchange(&self, thread: Address, exchange: Exchange) -> Sending {
        if !self.is_idle() {
            return Sending::NotNow;
        }
        // SAFETY: IDLE: it belongs to the sampler.
        unsafe { *self.exchange.get() = exchange };
        self.state.store(state::EXCHANGE_REQUESTED, Release);
        let sent = thread.send_exchange(self);
        if sent != Sending::Done {
            self.withdraw_exchange();
        }
        sent
    }

    /// Requests that the thread at this address, which owns the slot, set its earlier alternate stack again in place of
    /// the one at `larger`.
    pub(super) fn request_return(&self, thread: Address, larger: usize, earlier: libc::stack_t) -> Sending {
        let mapping = (self.stack_start.load(Relaxed), self.stack_end.load(Relaxed));
        let exchange = Exchange {
            mapping,
            is_first_thread: thread.is_first_thread(),
            replaces: Some(larger),
            new: earlier,
            before: earlier,
            outcome: ExchangeOutcome::Refused,
        };
        self.request_exchange(thread, exchange)
    }

    /// Withdraws an exchange that will not be made; `false` if it is being made, or has been.
    pub(super) fn withdraw_exchange(&self) -> bool {
        self.state.compare_exchange(state::EXCHANGE_REQUESTED, state::IDLE, AcqRel, Relaxed).is_ok()
    }

    /// The exchange, once the thread has answered. Only the sampler's thread calls it.
    pub(super) fn take_exchange(&self) -> Option<Exchange> {
        if self.state.load(Acquire) != state::EXCHANGED {
            return None;
        }
        // SAFETY: EXCHANGED: the thread has written it and does not touch it any more.
        let exchange = unsafe { *self.exchange.get() };
        self.state.store(state::IDLE, Release);
        Some(exchange)
    }

    /// Lets the calling thread, in its handler, exchange its alternate stack, if that is requested: the system sets
    /// `current` when the handler returns. Afterwards the slot is the thread's. `registers` are those of the
    /// interrupted code.
    pub(super) fn exchange(
        &self,
        stack_pointer: usize,
        registers: impl Iterator<Item = usize>,
        current: &mut libc::stack_t,
    ) {
        if self.state.compare_exchange(state::EXCHANGE_REQUESTED, state::WRITING, AcqRel, Relaxed).is_err() {
            return;
        }
        // SAFETY: WRITING: it belongs to the calling thread, and the handler does not interrupt itself.
        let exchange = unsafe { &mut *self.exchange.get() };
        exchange.before = *current;
        let key = crate::system::thread_key();
        let stack = exchange.stack(key).filter(|stack| stack.contains(&stack_pointer));
        exchange.outcome = match &stack {
            Some(stack) => exchange.outcome_for(current, &(stack_pointer..stack.end), registers),
            None => ExchangeOutcome::Refused,
        };
        if let Some(stack) = &stack
            && exchange.outcome == ExchangeOutcome::Done
        {
            interrupted_handlers::exchange(stack_pointer..stack.end, &exchange.before, &exchange.new);
            *current = exchange.new;
        }
        if let Some(stack) = stack
            && exchange.outcome != ExchangeOutcome::Refused
        {
            self.stack_start.store(stack.start, Relaxed);
            self.stack_end.store(stack.end, Relaxed);
            self.owner.store(key, Release);
        }
        self.state.store(state::EXCHANGED, Release);
    }

    /// Whether no request is open and no sample is there to read.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.load(Acquire) == state::IDLE
    }

    /// Withdraws a request that will not be answered. A request that is being answered stays.
    pub(crate) fn withdraw(&self) {
        let _ = self.state.compare_exchange(state::REQUESTED, state::IDLE, AcqRel, Relaxed);
    }

    /// Calls `read` with the sample, if there is one, and makes room for the next. Only the sampler's thread calls it.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&RawSample) -> R) -> Option<R> {
        if self.state.load(Acquire) != state::FILLED {
            return None;
        }
        // SAFETY: FILLED: the thread has written it and does not touch it any more.
        let answer = read(unsafe { &*self.sample.get() });
        self.state.store(state::IDLE, Release);
        Some(answer)
    }

    /// Lets the calling thread, in its handler, write the sample, if one is requested.
    pub(super) fn fill(&self, write: impl FnOnce(&mut RawSample, Range<usize>)) {
        if !self.is_own() {
            return;
        }
        if self.state.compare_exchange(state::REQUESTED, state::WRITING, AcqRel, Relaxed).is_err() {
            return;
        }
        let stack = self.stack_start.load(Relaxed)..self.stack_end.load(Relaxed);
        // SAFETY: WRITING: it belongs to the calling thread, and the handler does not interrupt itself.
        write(unsafe { &mut *self.sample.get() }, stack);
        self.state.store(state::FILLED, Release);
    }
}

impl Exchange {
    /// The stack of the thread with this key, by the address of its control block. The C library puts that behind the
    /// stack, in the same mapping, which may go on with other memory. The first thread's is elsewhere: its stack is a
    /// mapping of its own.
    fn stack(&self, key: usize) -> Option<Range<usize>> {
        let (start, end) = self.mapping;
        if (start..=end).contains(&key) {
            return Some(start..key);
        }
        self.is_first_thread.then_some(start..end)
    }

    fn outcome_for(
        &self,
        current: &libc::stack_t,
        live: &Range<usize>,
        registers: impl Iterator<Item = usize>,
    ) -> ExchangeOutcome {
        if current.ss_flags & libc::SS_ONSTACK != 0 {
            return ExchangeOutcome::Refused;
        }
        let Some(larger) = self.replaces else {
            return if is_small(current) { ExchangeOutcome::Done } else { ExchangeOutcome::NotNeeded };
        };
        if current.ss_sp.addr() != larger {
            return ExchangeOutcome::NotNeeded;
        }
        // Its memory is freed afterwards.
        if interrupted_handlers::may_use(live, registers, current) {
            return ExchangeOutcome::Refused;
        }
        ExchangeOutcome::Done
    }
}

impl RawSample {
    /// Room for a sample with this many frames.
    pub(super) fn with_room(frames: usize) -> Self {
        Self {
            ticks: 0,
            ip: 0,
            stack_pointer: 0,
            frame_pointer: 0,
            link: 0,
            is_elsewhere: false,
            has_small_stack: false,
            is_cut: false,
            records: vec![[0; 3]; frames.max(1)].into_boxed_slice(),
            depth: 0,
            words: vec![0; WORDS].into_boxed_slice(),
            word_count: 0,
        }
    }

    /// A sample with these registers and this stack, of any size.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of(ip: usize, stack_pointer: usize, frame_pointer: usize, words: &[usize]) -> Self {
        let copied = words.into();
        Self { ip, stack_pointer, frame_pointer, words: copied, word_count: words.len(), ..Self::with_room(1) }
    }

    /// The top of the stack: the word at the stack pointer, and those above.
    pub(crate) fn words(&self) -> &[usize] {
        self.words.get(..self.word_count).unwrap_or_default()
    }

    /// A word of the thread's stack, if it was recorded.
    pub(crate) fn read(&self, place: usize) -> Option<usize> {
        let offset = place.checked_sub(self.stack_pointer)?;
        if !offset.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        if let Some(&word) = self.words().get(offset / size_of::<usize>()) {
            return Some(word);
        }
        let records = self.records.get(..self.depth).unwrap_or_default();
        // Records are sorted up the stack.
        let above = records.partition_point(|[start, ..]| *start <= place);
        let &[start, next, return_address] = records.get(above.checked_sub(1)?)?;
        match place - start {
            0 => Some(next),
            above if above == size_of::<usize>() => Some(return_address),
            _ => None,
        }
    }

    /// Removes the last sample.
    pub(super) fn clear(&mut self) {
        self.depth = 0;
        self.word_count = 0;
        self.is_cut = false;
        self.is_elsewhere = false;
    }

    /// Adds a frame beyond the copied part of the stack, and returns whether there was room.
    pub(super) fn push_record(&mut self, record: FrameRecord) -> bool {
        match self.records.get_mut(self.depth) {
            Some(place) => {
                *place = [record.place, record.next, record.return_address];
                self.depth += 1;
                true
            }
            None => {
                self.is_cut = true;
                false
            }
        }
    }

    /// Adds a word of the stack, and returns whether there was room.
    pub(super) fn push_word(&mut self, word: usize) -> bool {
        match self.words.get_mut(self.word_count) {
            Some(place) => {
                *place = word;
                self.word_count += 1;
                true
            }
            None => false,
        }
    }
}
