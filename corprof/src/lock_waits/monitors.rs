//! Waits for monitors that the runtime has in native code, on .NET 8 to 10.
//!
//! While a thread waits for a monitor, an item on its stack says for which, and the runtime's object of the thread
//! leads to it: for debuggers (`DebugBlockingItem` in src/coreclr/vm/threaddebugblockinginfo.h of dotnet/runtime). The
//! monitor (`AwareLock` in src/coreclr/vm/syncblk.h) has its owner, and its index in the table of sync blocks. The
//! entry of the table leads back to it and to the object; the header of the object has the index again. These runtimes
//! do not say where all of this lies, so each part is recognised by the others: if one link of the circle does not fit,
//! nothing is known.

use super::{Found, WaitingThread};
use crate::runtime_layout::memory::{Evidence, word, words};

/// How many words of the runtime's object of a thread are looked through.
const THREAD_WORDS: usize = 384;
/// How far above the stack pointer the item may lie, in bytes: the frames of the runtime and of the system.
const STACK_BYTES: usize = 0x1_0000;
/// How many variables for debuggers are looked through for the table of sync blocks: more than there are.
const VARIABLES: usize = 512;

/// The parts of a monitor, in bytes.
const OWNER: usize = 8;
const OS_OWNER: usize = 16;
const INDEX: usize = 28;

/// The monitor is locked.
const IS_LOCKED: u32 = 1;
/// The bits of an index, in a monitor and in the header of an object.
const INDEX_BITS: u32 = 0x03ff_ffff;
/// The header has an index, and not a hash code.
const KIND_BITS: u32 = 0x0c00_0000;
const IS_INDEX: u32 = 0x0800_0000;

/// The greatest kind of an item: the thread waits in `Monitor.Wait`. The other one is 0: it wants to enter the monitor.
const WAITS: u32 = 1;
const NO_LIMIT: u32 = u32::MAX;

/// What is known of a thread.
pub(super) enum Finding<W> {
    /// It waits for no lock of this kind.
    None,
    /// It does, and this is all about it.
    Wait(W),
    /// It does, but for which lock is not known.
    Unknown,
}

/// The search for waits.
pub(super) struct Monitors {
    /// The addresses of the variables for debuggers.
    variables: Vec<usize>,
    /// The variable that leads to the table of sync blocks, once it is known.
    table: Option<usize>,
}

impl Monitors {
    /// With the address of the runtime's list of variables for debuggers.
    pub(super) fn new(list: usize) -> Self {
        Self { variables: words(list, VARIABLES), table: None }
    }

    /// What the thread waits for. `threads` has its owner.
    pub(super) fn wait_of(&mut self, thread: &WaitingThread, threads: &[WaitingThread]) -> Finding<Found> {
        match item_of(thread) {
            None => Finding::None,
            Some(item) if item.kind == WAITS => Finding::None,
            Some(item) => self.follow(item, thread, threads).unwrap_or(Finding::Unknown),
        }
    }

    /// Follows the links from the item; none if one does not fit.
    fn follow(&mut self, item: Item, thread: &WaitingThread, threads: &[WaitingThread]) -> Option<Finding<Found>> {
        let Item { address: item, mut evidence, .. } = item;
        let monitor = evidence.word(item)?;
        let has_limit = evidence.number(item + 20)? != NO_LIMIT;
        let index = evidence.number(monitor + INDEX)? & INDEX_BITS;
        let table = self.table(monitor, index as usize)?;
        let entry = evidence.word(table)? + 16 * index as usize;
        let object = evidence.word(entry + 8)?;
        if evidence.word(entry)? != monitor || !is_header_of(evidence.number(object.checked_sub(4)?)?, index) {
            return None;
        }
        let class = evidence.word(object)?;
        if evidence.number(monitor)? & IS_LOCKED == 0 {
            return Some(Finding::None); // nobody holds it just now
        }
        let os_owner = evidence.word(monitor + OS_OWNER)?;
        let owner = threads.iter().find(|owner| owner.os_id as usize == os_owner)?;
        // The runtime's own number of the owner as well: its object up to .NET 8, later a number.
        let number = evidence.word(monitor + OWNER)?;
        let is_same = number == owner.address || owner.managed_id.is_some_and(|id| id as usize == number & 0xffff_ffff);
        if !is_same || owner.os_id == thread.os_id {
            return None;
        }
        Some(Finding::Wait(Found {
            waiter: thread.os_id,
            owner: owner.os_id,
            lock: monitor,
            class,
            has_limit,
            evidence,
            runs: thread.runs,
        }))
    }

    /// The variable with the address of the table in which `monitor` is number `index`.
    fn table(&mut self, monitor: usize, index: usize) -> Option<usize> {
        if index == 0 {
            return None;
        }
        let has = |variable: usize| {
            let entry = word(variable).and_then(|table| table.checked_add(16 * index));
            entry.and_then(word) == Some(monitor)
        };
        if self.table.is_none_or(|table| !has(table)) {
            self.table = self.variables.iter().copied().filter(|variable| variable % 8 == 0).find(|it| has(*it));
        }
        self.table
    }
}

/// The item on the stack of a thread that says what it waits for.
struct Item {
    address: usize,
    kind: u32,
    evidence: Evidence,
}

/// The item of a thread, if it waits.
fn item_of(thread: &WaitingThread) -> Option<Item> {
    let stack = thread.stack_pointer..thread.stack_pointer.saturating_add(STACK_BYTES);
    let fields = words(thread.address, THREAD_WORDS);
    let places = fields.iter().enumerate().filter(|(_, value)| stack.contains(value) && **value % 8 == 0);
    for (place, item) in places {
        let mut evidence = Evidence::default();
        let mut kind_of = || {
            evidence.word(thread.address + 8 * place)?;
            let monitor = evidence.word(*item)?;
            let domain = evidence.word(item + 8)?;
            let kind = evidence.number(item + 16)?;
            let fits = monitor != 0 && monitor % 8 == 0 && domain == thread.app_domain && kind <= WAITS;
            fits.then_some(kind)
        };
        if let Some(kind) = kind_of() {
            return Some(Item { address: *item, kind, evidence });
        }
    }
    None
}

/// Whether this is the header of an object that has the sync block of this index.
pub(super) fn is_header_of(header: u32, index: u32) -> bool {
    header & KIND_BITS == IS_INDEX && header & INDEX_BITS == index
}
