//! Where code is that was compiled in this process: how a number becomes an address that the runtime may be asked
//! about.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::id::CodeAddress;
use crate::lock::unpoisoned;
use crate::session::{Info, Observer};
use crate::{suspension, system};

/// How long the places of compiled code are taken for true, at least.
const TRUST: Duration = Duration::from_millis(250);
/// So much longer than it took to read them: a process may have ten thousands of mappings.
const TRUST_FOR_READING: u32 = 50;

/// Where the runtime keeps the code that it compiles in this process, as it was shortly before.
#[derive(Default)]
struct CodeHeaps(Mutex<Heaps>);

#[derive(Default)]
struct Heaps {
    /// In ascending order.
    ranges: Vec<Range<usize>>,
    /// How long they are taken for true. None: they were never read.
    trusted_until: Option<Instant>,
}

impl Observer for CodeHeaps {}

impl CodeHeaps {
    fn find(&self, address: usize, looks_again: bool) -> Option<CodeAddress> {
        // SAFETY: where code is compiled there is no precompiled code (fact: addresses).
        self.contain(address, looks_again).then(|| unsafe { CodeAddress::from_raw(address) })
    }

    /// Whether an address is in them. One that was not a moment ago may be in a new one.
    fn contain(&self, address: usize, looks_again: bool) -> bool {
        suspension::forbid("the list of mappings");
        {
            let heaps = unpoisoned(self.0.lock());
            let is_in_heap = heaps.contain(address);
            if heaps.are_trusted() && (is_in_heap || !looks_again) {
                return is_in_heap;
            }
        }
        // Without the lock, which would let other threads wait for a millisecond.
        let now = Heaps::read(system::code_heaps);
        let is_in_heap = now.contain(address);
        *unpoisoned(self.0.lock()) = now;
        is_in_heap
    }
}

impl Heaps {
    fn read(read: impl FnOnce() -> Vec<Range<usize>>) -> Self {
        let begin = Instant::now();
        let ranges = read();
        let trust = TRUST.max(begin.elapsed() * TRUST_FOR_READING);
        Self { ranges, trusted_until: Some(Instant::now() + trust) }
    }

    fn are_trusted(&self) -> bool {
        self.trusted_until.is_some_and(|until| Instant::now() < until)
    }

    fn contain(&self, address: usize) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let last = after.checked_sub(1).and_then(|index| self.ranges.get(index));
        last.is_some_and(|range| range.contains(&address))
    }
}

impl Info {
    /// The number as an address that the runtime may be asked about, if it is in code that was compiled in this
    /// process; none in precompiled code and elsewhere. The code may have been removed, or may be the runtime's own.
    ///
    /// A number that is not in such code costs a look at the list of this process's mappings, about a millisecond.
    /// Linux and Windows have such a list; elsewhere there is no answer but none.
    pub fn code_address(&self, address: usize) -> Option<CodeAddress> {
        let heaps: &CodeHeaps = self.extension();
        heaps.find(address, true)
    }

    /// Like [`code_address`](Self::code_address), for numbers of which most are no such address: code in memory that
    /// the runtime took a quarter of a second ago may be missed, and longer in a process with very many mappings.
    pub(crate) fn older_code_address(&self, address: usize) -> Option<CodeAddress> {
        let heaps: &CodeHeaps = self.extension();
        heaps.find(address, false)
    }
}

#[cfg(test)]
mod tests {
    use std::{iter, thread};

    use super::*;

    #[test]
    fn an_address_is_in_one_of_the_ranges() {
        let heaps = Heaps { ranges: vec![0x10..0x20, 0x30..0x40], trusted_until: None };
        let is_in = [0xF, 0x10, 0x1F, 0x20, 0x3F, 0x40].map(|address| heaps.contain(address));
        assert_eq!(is_in, [false, true, true, false, true, false]);
    }

    #[test]
    fn ranges_are_read_again_when_they_are_old_or_lack_the_address() {
        let known =
            |trusted_until| CodeHeaps(Mutex::new(Heaps { ranges: iter::once(0x10..0x20).collect(), trusted_until }));
        let later = Some(Instant::now() + TRUST);
        assert!(known(later).contain(0x10, true));
        let heaps = known(later);
        assert!(!heaps.contain(0x20, false));
        assert!(heaps.contain(0x10, false), "they are the same");
        assert!(!heaps.contain(0x20, true));
        assert!(!heaps.contain(0x10, false), "no code is there");
        assert!(!known(Some(Instant::now())).contain(0x10, false));
        assert!(!known(None).contain(0x10, false));
    }

    #[test]
    fn what_takes_long_to_read_is_read_seldom() {
        let begin = Instant::now();
        let heaps = Heaps::read(|| {
            thread::sleep(TRUST / 10);
            Vec::new()
        });
        assert!(heaps.trusted_until.is_some_and(|until| until > begin + 5 * TRUST));
        assert!(Heaps::read(Vec::new).are_trusted());
    }
}
