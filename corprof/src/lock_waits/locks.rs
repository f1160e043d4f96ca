//! Waits for `System.Threading.Lock`, on .NET 9 and later, and for the monitors that .NET 11 makes of it.
//!
//! A lock is an object of the heap, and a field has the number of its owner: up to .NET 10 the system's, on .NET 11 the
//! one by which managed code knows the thread. The thread that waits is in a method of the class, whose frame refers to
//! the lock. So the frames between the stack pointer and the method that has called the class are looked through for a
//! reference to an object of exactly this class. If there are several that the thread does not hold, it is the one to
//! whose event the frames refer as well; if that does not leave exactly one, nothing is known.
//!
//! On .NET 11 the sync block of an object has a handle of the lock. What the runtime says of its own layout leads
//! there.

use std::collections::BTreeSet;

use super::monitors::{Finding, is_header_of};
use super::{Found, WaitingThread};
use crate::runtime_layout::descriptor::Descriptor;
use crate::runtime_layout::memory::{Evidence, number, word, words};

/// How much of a stack is looked through, in words.
const STACK_WORDS: usize = 0x2000;
/// How many entries of the table of sync blocks are looked through.
const MOST_ENTRIES: u32 = 1 << 20;

/// The class, and the offsets of its fields.
#[derive(Clone, Copy)]
pub(super) struct LockClass {
    pub(super) class: usize,
    pub(super) owner: usize,
    pub(super) event: usize,
    /// Whether the number of the owner is the system's.
    pub(super) is_owner_of_system: bool,
}

impl LockClass {
    /// The number by which a lock knows the thread.
    fn number_of(self, thread: &WaitingThread) -> Option<u32> {
        if self.is_owner_of_system { Some(thread.os_id) } else { thread.managed_id }
    }
}

/// A reference to a lock, on a stack.
struct Reference {
    place: usize,
    lock: usize,
    owner: u32,
    event: usize,
}

/// What the thread waits for. `threads` has its owner.
pub(super) fn wait_of(
    thread: &WaitingThread,
    threads: &[WaitingThread],
    class: LockClass,
    table: Option<&SyncTable>,
) -> Finding<Found> {
    let Some(frames) = inner_frames(thread) else { return Finding::Unknown };
    let own = class.number_of(thread);
    let mut others = references(thread, &frames, class);
    others.retain(|reference| Some(reference.owner) != own);
    if others.len() > 1 {
        others.retain(|reference| reference.event != 0 && frames.contains(&reference.event));
    }
    match others.as_slice() {
        // It has just been released.
        [Reference { owner: 0, .. }] => Finding::None,
        [waited] => read(waited, thread, threads, class, table).map_or(Finding::Unknown, Finding::Wait),
        _ => Finding::Unknown,
    }
}

/// Reads all about the wait once more, as evidence.
fn read(
    reference: &Reference,
    thread: &WaitingThread,
    threads: &[WaitingThread],
    class: LockClass,
    table: Option<&SyncTable>,
) -> Option<Found> {
    let mut evidence = Evidence::default();
    let lock = evidence.word(reference.place)?;
    let is_lock = lock == reference.lock && evidence.word(lock)? == class.class;
    let number = evidence.number(lock + class.owner)?;
    if !is_lock || number != reference.owner {
        return None;
    }
    let owner = threads.iter().find(|owner| class.number_of(owner) == Some(number))?;
    if !class.is_owner_of_system {
        evidence.number(owner.address + owner.managed_id_offset?)?;
    }
    let class = if thread.frames.is_in_monitor { table?.class_of(lock, &mut evidence)? } else { class.class };
    Some(Found {
        waiter: thread.os_id,
        owner: owner.os_id,
        lock,
        class,
        has_limit: thread.frames.has_limit,
        evidence,
        runs: thread.runs,
    })
}

/// The words on the stack from its end to where the method begins that has called the class.
fn inner_frames(thread: &WaitingThread) -> Option<Vec<usize>> {
    let mut stack = words(thread.stack_pointer, STACK_WORDS);
    let mut place = 0;
    // A frame's address is where its callee returns to, which the call has put on the stack.
    for address in &thread.frames.inner_addresses {
        let next = stack.get(place..)?.iter().position(|word| word == address);
        if let Some(next) = next {
            place += next + 1;
        }
    }
    let end = stack.get(place..)?.iter().position(|word| Some(*word) == thread.frames.caller_address)?;
    stack.truncate(place + end);
    Some(stack)
}

/// The references to different locks, the innermost first.
fn references(thread: &WaitingThread, frames: &[usize], class: LockClass) -> Vec<Reference> {
    let mut seen = BTreeSet::new();
    let mut references = Vec::new();
    for (index, lock) in frames.iter().copied().enumerate() {
        if lock % 8 != 0 || lock < 0x1_0000 || !seen.insert(lock) || word(lock) != Some(class.class) {
            continue;
        }
        if let (Some(owner), Some(event)) = (number(lock + class.owner), word(lock + class.event)) {
            let place = thread.stack_pointer + index * size_of::<usize>();
            references.push(Reference { place, lock, owner, event });
        }
    }
    references
}

/// The table of sync blocks, where these have locks: since .NET 11.
pub(super) struct SyncTable {
    entries: usize,
    count: u32,
    entry_size: usize,
    block: usize,
    object: usize,
    lock: usize,
}

impl SyncTable {
    /// By what the runtime says of its layout; none if its sync blocks have no such locks.
    pub(super) fn new(descriptor: &Descriptor) -> Option<Self> {
        let cache = word(descriptor.global("SyncBlockCache")?)?;
        let count = number(cache + descriptor.offset("SyncBlockCache", "FreeSyncTableIndex")?)?;
        Some(Self {
            entries: descriptor.global("SyncTableEntries")?,
            count: count.min(MOST_ENTRIES),
            entry_size: descriptor.size("SyncTableEntry")?,
            block: descriptor.offset("SyncTableEntry", "SyncBlock")?,
            object: descriptor.offset("SyncTableEntry", "Object")?,
            lock: descriptor.offset("SyncBlock", "Lock")?,
        })
    }

    /// The class of the object whose monitor the lock is.
    fn class_of(&self, lock: usize, evidence: &mut Evidence) -> Option<usize> {
        let table = word(self.entries)?;
        for index in 1..self.count {
            let entry = table + self.entry_size * index as usize;
            let handle = word(entry + self.block).filter(|block| *block != 0).and_then(|block| word(block + self.lock));
            if handle.filter(|handle| *handle != 0).and_then(word) != Some(lock) {
                continue;
            }
            evidence.word(self.entries)?;
            let block = evidence.word(entry + self.block)?;
            let handle = evidence.word(block + self.lock)?;
            let object = evidence.word(entry + self.object)?;
            let header = evidence.number(object.checked_sub(4)?)?;
            let is_same = evidence.word(handle)? == lock && is_header_of(header, index);
            return evidence.word(object).filter(|_| is_same);
        }
        None
    }
}
