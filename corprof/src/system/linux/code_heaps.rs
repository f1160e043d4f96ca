//! The memory in which the runtime keeps the code that it compiles in this process.

use std::ops::Range;

/// What the runtime calls the memory if it maps it twice, for writing and for execution.
const DOUBLE_MAPPED: &str = "/memfd:doublemapper";

/// The ranges of that memory, in ascending order.
pub(in crate::system) fn code_heaps() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(range_of).collect()
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
    fn code_of_files_was_not_compiled_here() {
        assert_eq!(range_of("7f01-7f02 r-xs 00000000 00:01 5   /memfd:doublemapper (deleted)"), Some(0x7f01..0x7f02));
        assert_eq!(range_of("7f01-7f02 rwxp 00000000 00:00 0"), Some(0x7f01..0x7f02));
        assert_eq!(range_of("7f01-7f02 rw-s 00000000 00:01 5   /memfd:doublemapper (deleted)"), None);
        assert_eq!(range_of("7f01-7f02 r-xp 00000000 00:00 0"), None);
        assert_eq!(range_of("7f01-7f02 r-xp 00001000 fe:00 9   /a b/System.Private.CoreLib.dll"), None);
        assert_eq!(range_of(""), None);
        let own = range_of as fn(&str) -> _ as usize;
        assert!(!code_heaps().iter().any(|range| range.contains(&own)), "this is the code of a file");
    }
}
