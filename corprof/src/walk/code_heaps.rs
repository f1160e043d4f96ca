//! The memory in which the runtime keeps the code that it compiles in this process.
//!
//! The runtime may be asked about any address there. About one in the precompiled code of a file it may not: if that
//! method has not run yet, the runtime looks for one before it that has, and reads past the beginning of the image's
//! table if there is none (.NET 11; `tests/live/attacks.rs`, `calls_from_the_first_moment_on_do_no_harm`).

use std::ops::Range;
use std::time::{Duration, Instant};

/// How long the ranges are taken for true.
const PAUSE: Duration = Duration::from_millis(250);

/// What the runtime calls the memory if it maps it twice, for writing and for execution.
const DOUBLE_MAPPED: &str = "/memfd:doublemapper";

/// The ranges, as they were shortly before.
#[derive(Default)]
pub(crate) struct CodeHeaps {
    /// In ascending order.
    ranges: Vec<Range<usize>>,
    read: Option<Instant>,
}

impl CodeHeaps {
    /// Whether an address is in them. Not while threads are suspended: it may allocate.
    pub(crate) fn contain(&mut self, address: usize) -> bool {
        if self.read.is_none_or(|read| read.elapsed() >= PAUSE) {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            self.ranges = maps.lines().filter_map(range_of).collect();
            self.read = Some(Instant::now());
        }
        let after = self.ranges.partition_point(|range| range.start <= address);
        let last = after.checked_sub(1).and_then(|index| self.ranges.get(index));
        last.is_some_and(|range| range.contains(&address))
    }
}

/// The range of a line of /proc/self/maps, if it is of such memory: `7f01-7f02 r-xs 00000000 00:01 5 /memfd:doublemapper`.
/// Without double mapping it has no name and can be written; copies of precompiled code cannot.
fn range_of(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let name = words.nth(3).unwrap_or_default();
    let is_heap = if name.is_empty() { rights.starts_with("rwx") } else { name.starts_with(DOUBLE_MAPPED) };
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    (is_heap && rights.contains('x')).then_some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_none_that_was_compiled_here() {
        assert_eq!(range_of("7f01-7f02 r-xs 00000000 00:01 5   /memfd:doublemapper (deleted)"), Some(0x7f01..0x7f02));
        assert_eq!(range_of("7f01-7f02 rwxp 00000000 00:00 0"), Some(0x7f01..0x7f02));
        assert_eq!(range_of("7f01-7f02 rw-s 00000000 00:01 5   /memfd:doublemapper (deleted)"), None);
        assert_eq!(range_of("7f01-7f02 r-xp 00000000 00:00 0"), None);
        assert_eq!(range_of("7f01-7f02 r-xp 00001000 fe:00 9   /a b/System.Private.CoreLib.dll"), None);
        assert_eq!(range_of(""), None);
    }

    #[test]
    fn an_address_is_in_one_of_the_ranges() {
        let mut heaps = CodeHeaps { ranges: vec![0x10..0x20, 0x30..0x40], read: Some(Instant::now()) };
        let is_in = [0xF, 0x10, 0x1F, 0x20, 0x3F, 0x40].map(|address| heaps.contain(address));
        assert_eq!(is_in, [false, true, true, false, true, false]);
        let mut heaps = CodeHeaps::default();
        assert!(!heaps.contain(range_of as fn(&str) -> _ as usize), "this is the code of a file");
    }
}
