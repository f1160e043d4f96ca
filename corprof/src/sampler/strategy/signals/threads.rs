//! The threads that signals can sample. None receives a signal before it is prepared or after its end.
//!
//! A thread prepares itself when the runtime reports that it runs: it gets a larger alternate stack and a slot. At its
//! end, again on the thread itself, it is removed from the list and gets its old alternate stack back, which the
//! runtime then frees. The end of a thread that the runtime did not make is reported later, on another thread; then
//! both its stacks are freed here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use crate::id::ThreadId;
use crate::info::Info;
use crate::lock::unpoisoned;
use crate::system;
use crate::system::signals::{
    Address, AlternateStack, GivingBack, Preparation, PreparationRequest, Prepared, SampleSlot, Sending, own_stack,
};

/// The threads of this process, which has one sampler that sends signals.
static THREADS: OnceLock<PreparedThreads> = OnceLock::new();

/// The prepared threads.
#[derive(Default)]
pub(super) struct PreparedThreads {
    lists: Mutex<ThreadLists>,
    /// How many threads could not be prepared, and are not sampled.
    unprepared: AtomicUsize,
}

/// The lists of prepared threads, and what was made for them.
#[derive(Default)]
struct ThreadLists {
    /// The capacity of a slot in frames.
    depth: usize,
    /// By the runtime's id, each with its larger alternate stack, if it needed one.
    threads: HashMap<usize, (Arc<PreparedThread>, Option<AlternateStack>)>,
    /// Prepared threads that the sampler has not taken over yet.
    new: Vec<Arc<PreparedThread>>,
    /// Threads that are older than the sampler and are being prepared, by the runtime's id.
    preparing: HashMap<usize, PreparingThread>,
    /// Larger alternate stacks that these threads have had, or were meant to have, by the runtime's id. A handler that
    /// has not returned may set one again, so each is kept for its thread.
    spare_stacks: HashMap<usize, (Address, AlternateStack)>,
    free_slots: Vec<&'static SampleSlot>,
    /// The alternate stacks of threads whose end was reported on another thread, until the system has ended them as
    /// well.
    orphaned_stacks: Vec<(Address, AlternateStack)>,
}

/// An older thread that was asked, or is about to be, to make a slot its own.
struct PreparingThread {
    thread: ThreadId,
    address: Address,
    preparation: Preparation,
    /// None until it is asked.
    requested: Option<Instant>,
    has_ended: bool,
}

/// A thread that can be sampled.
pub(super) struct PreparedThread {
    pub(super) thread: ThreadId,
    pub(super) slot: &'static SampleSlot,
    address: Address,
    /// Its processor time when it was prepared.
    pub(super) cpu_time_before: Duration,
    /// Its processor time at its end, in nanoseconds; 0 before.
    total_cpu_time: AtomicU64,
    has_ended: AtomicBool,
    /// Held while a signal is sent. The thread's end waits for it: afterwards another thread may have its id.
    sending: Mutex<()>,
}

impl PreparedThreads {
    /// Prepares threads from now on, with room for stacks of `depth` frames.
    pub(super) fn begin(depth: usize) -> &'static Self {
        let threads = THREADS.get_or_init(Self::default);
        {
            let mut lists = threads.lists();
            lists.depth = depth;
            // The threads of an earlier sampler.
            let known = lists.threads.values().map(|(prepared, _)| Arc::clone(prepared)).collect();
            lists.new = known;
        }
        threads
    }

    /// Those of this process, if there was a sampler by signals.
    pub(super) fn known() -> Option<&'static Self> {
        THREADS.get()
    }

    fn lists(&self) -> MutexGuard<'_, ThreadLists> {
        unpoisoned(self.lists.lock())
    }

    /// The threads that were prepared since the last call.
    pub(super) fn take_new(&self) -> Vec<Arc<PreparedThread>> {
        std::mem::take(&mut self.lists().new)
    }

    /// How many threads could not be prepared.
    pub(super) fn unprepared(&self) -> usize {
        self.unprepared.load(Ordering::Relaxed)
    }

    /// Stops sampling a thread whose alternate stack somebody has replaced by a small one. It can be prepared again.
    pub(super) fn give_up(&self, thread: &PreparedThread) {
        thread.has_ended.store(true, Ordering::Release);
        let mut lists = self.lists();
        let id = thread.thread.as_raw();
        if let Some((_, Some(alternate))) = lists.threads.remove(&id) {
            lists.spare_stacks.insert(id, (thread.address, alternate));
        }
    }

    /// Whether older threads were asked and have not answered.
    pub(super) fn is_preparing(&self) -> bool {
        !self.lists().preparing.is_empty()
    }

    /// Ends the sampling of all threads, and returns those that have a larger stack to give back.
    pub(super) fn dismiss_all(&self) -> Vec<GivingBack> {
        let threads = std::mem::take(&mut self.lists().threads);
        let mut with_stacks = Vec::new();
        for (prepared, larger) in threads.into_values() {
            prepared.end();
            let PreparedThread { address, slot, .. } = *prepared;
            match larger {
                Some(larger) => with_stacks.push(GivingBack::new(address, slot, larger)),
                None if slot.is_idle() => self.give_back(slot),
                None => {}
            }
        }
        with_stacks
    }

    /// Returns the slot of a thread that has ended and will not write to it any more.
    pub(super) fn give_back(&self, slot: &'static SampleSlot) {
        self.lists().free_slots.push(slot);
    }

    fn prepare(&self, thread: ThreadId) -> Option<()> {
        let stack = own_stack()?;
        let alternate = AlternateStack::enlarge().ok()?;
        let mut lists = self.lists();
        let Some(slot) = lists.free_slot() else {
            drop(lists);
            alternate.into_iter().for_each(AlternateStack::restore);
            return None;
        };
        slot.take(&stack);
        lists.add(thread, Address::own(), slot, alternate);
        Some(())
    }

    /// Whether a thread is prepared, or is asked to be.
    pub(super) fn knows(&self, thread: ThreadId) -> bool {
        let lists = self.lists();
        let id = thread.as_raw();
        lists.threads.contains_key(&id) || lists.preparing.contains_key(&id)
    }

    /// Readies an older thread, and returns what to ask it with. [`settle`](Self::settle) it afterwards. From now on
    /// its end is not missed.
    pub(super) fn ready(&self, thread: ThreadId, address: Address) -> Option<PreparationRequest> {
        let mut lists = self.lists();
        let slot = lists.free_slot()?;
        let spare = lists.spare_stacks.remove(&thread.as_raw()).map(|(_, spare)| spare);
        let Some(preparation) = Preparation::new(slot, spare) else {
            lists.free_slots.push(slot);
            return None;
        };
        let request = preparation.request();
        let preparing = PreparingThread { thread, address, preparation, requested: None, has_ended: false };
        lists.preparing.insert(thread.as_raw(), preparing);
        Some(request)
    }

    /// Notes whether the thread was asked.
    pub(super) fn settle(&self, thread: ThreadId, is_asked: bool) {
        let mut lists = self.lists();
        if is_asked {
            let preparing = lists.preparing.get_mut(&thread.as_raw());
            preparing.into_iter().for_each(|preparing| preparing.requested = Some(Instant::now()));
            return;
        }
        let id = thread.as_raw();
        let Some(PreparingThread { address, preparation, has_ended, .. }) = lists.preparing.remove(&id) else { return };
        lists.free_slots.push(preparation.slot());
        lists.keep(id, address, preparation.discard(), has_ended);
    }

    /// Takes over the older threads that have answered.
    pub(super) fn take_answers(&self) {
        let mut lists = self.lists();
        let asked: Vec<usize> =
            lists.preparing.iter().filter(|(_, thread)| thread.requested.is_some()).map(|(id, _)| *id).collect();
        for id in asked {
            let Some(preparing) = lists.preparing.remove(&id) else { continue };
            if let Some(waiting) = lists.take_answer(preparing) {
                lists.preparing.insert(id, waiting);
            }
        }
    }
}

impl ThreadLists {
    fn free_slot(&mut self) -> Option<&'static SampleSlot> {
        self.free_slots.pop().or_else(|| SampleSlot::new(self.depth))
    }

    fn add(
        &mut self,
        thread: ThreadId,
        address: Address,
        slot: &'static SampleSlot,
        alternate: Option<AlternateStack>,
    ) {
        let prepared = Arc::new(PreparedThread {
            thread,
            slot,
            address,
            cpu_time_before: system::cpu_time(address.thread.cast_unsigned()).unwrap_or_default(),
            total_cpu_time: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            sending: Mutex::new(()),
        });
        self.new.push(Arc::clone(&prepared));
        self.threads.insert(thread.as_raw(), (prepared, alternate));
    }

    /// The stacks of threads that the system has ended as well.
    fn take_orphans(&mut self) -> Vec<AlternateStack> {
        let ended = self.orphaned_stacks.extract_if(.., |(address, _)| address.has_ended());
        ended.map(|(_, alternate)| alternate).collect()
    }

    /// Keeps a stack that the thread does not have, or not any more.
    fn keep(&mut self, id: usize, address: Address, spare: AlternateStack, has_ended: bool) {
        if has_ended {
            self.orphaned_stacks.push((address, spare.without_earlier()));
        } else {
            self.spare_stacks.insert(id, (address, spare));
        }
    }

    /// Takes the answer of an older thread; the thread again if it has not answered yet.
    fn take_answer(&mut self, preparing: PreparingThread) -> Option<PreparingThread> {
        let PreparingThread { thread, address, preparation, requested, has_ended } = preparing;
        let slot = preparation.slot();
        match preparation.answer() {
            Ok(Prepared::Yes(alternate)) if !has_ended => match self.threads.get_mut(&thread.as_raw()) {
                // Its own callback came meanwhile: it has a slot, and one of the two has made the stack.
                Some((_, own)) => {
                    *own = own.take().or(alternate);
                    self.free_slots.push(slot);
                }
                None => self.add(thread, address, slot, alternate),
            },
            Ok(Prepared::Yes(alternate)) => {
                self.orphaned_stacks.extend(alternate.map(|alternate| (address, alternate)));
                self.free_slots.push(slot);
            }
            Ok(Prepared::NotNow(spare)) => {
                self.keep(thread.as_raw(), address, spare, has_ended);
                self.free_slots.push(slot);
            }
            Err(preparation) => {
                let is_late = requested.is_some_and(|requested| requested.elapsed() > ANSWER_TIMEOUT);
                let given_up = if is_late { preparation.give_up() } else { Err(preparation) };
                match given_up {
                    Ok(spare) => {
                        self.keep(thread.as_raw(), address, spare, has_ended);
                        self.free_slots.push(slot);
                    }
                    Err(preparation) => {
                        return Some(PreparingThread { thread, address, preparation, requested, has_ended });
                    }
                }
            }
        }
        None
    }
}

/// How long an older thread may take for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A managed thread has begun to run, nearly always the calling one; for another the runtime would call on that thread.
pub(crate) fn thread_assigned(info: &Info) {
    let Some(threads) = THREADS.get() else { return };
    let is_prepared = |thread: ThreadId| threads.lists().threads.contains_key(&thread.as_raw());
    let Some(own) = info.current_thread().ok().flatten() else { return };
    if !is_prepared(own) && threads.prepare(own).is_none() {
        threads.unprepared.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread ends: it receives no signal from now on.
pub(crate) fn thread_ending(thread: usize) {
    let Some(threads) = THREADS.get() else { return };
    let mut lists = threads.lists();
    let orphans = lists.take_orphans();
    if let Some(preparing) = lists.preparing.get_mut(&thread) {
        preparing.has_ended = true;
    }
    if let Some((address, spare)) = lists.spare_stacks.remove(&thread) {
        lists.keep(thread, address, spare, true);
    }
    let removed = lists.threads.remove(&thread);
    drop(lists);
    orphans.into_iter().for_each(AlternateStack::free);
    let Some((prepared, alternate)) = removed else { return };
    let total_cpu_time = prepared.cpu_time().unwrap_or_default().as_nanos();
    prepared.total_cpu_time.store(u64::try_from(total_cpu_time).unwrap_or(u64::MAX), Ordering::Relaxed);
    prepared.end();
    let Some(alternate) = alternate else { return };
    // A key alone is not enough: the control block of a new thread may lie where that of the ended one was.
    if prepared.slot.is_own() && prepared.address == Address::own() {
        alternate.restore();
        return;
    }
    threads.lists().orphaned_stacks.push((prepared.address, alternate));
}

impl PreparedThread {
    pub(super) fn blocks_signal(&self) -> bool {
        self.address.blocks_signal()
    }

    /// From now on it is not asked any more.
    fn end(&self) {
        let _sending = unpoisoned(self.sending.lock());
        self.has_ended.store(true, Ordering::Release);
    }

    /// Requests a sample.
    pub(super) fn request(&self) -> Sending {
        let _sending = unpoisoned(self.sending.lock());
        if self.has_ended() { Sending::NotNow } else { self.slot.request(self.address) }
    }

    /// Its processor time in all, once it has ended.
    pub(super) fn total_cpu_time(&self) -> Duration {
        Duration::from_nanos(self.total_cpu_time.load(Ordering::Relaxed))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether it has ended and no signal handler will write to its slot any more.
    pub(super) fn is_done(&self) -> bool {
        if !self.has_ended() {
            return false;
        }
        // A foreign thread lives on when it is no longer a managed one, and may still receive a signal.
        if self.address.has_ended() {
            self.slot.withdraw();
        }
        self.slot.is_idle()
    }

    pub(super) fn os_id(&self) -> u32 {
        self.address.thread.cast_unsigned()
    }

    /// Its processor time.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        system::cpu_time(self.os_id())
    }

    /// Whether it runs, or waits only for a processor.
    pub(super) fn is_runnable(&self) -> bool {
        system::is_runnable(self.os_id()) == Some(true)
    }
}
