//! The memory in which the runtime keeps the code that it compiles in this process.

use std::ops::Range;

use super::mappings::{Mapping, mappings, read_mappings};

/// What the runtime calls the memory if it maps it twice, for writing and for execution.
const DOUBLE_MAPPED: &str = "/memfd:doublemapper";

/// The ranges of that memory, in ascending order.
pub(in crate::system) fn code_heaps() -> Vec<Range<usize>> {
    let text = read_mappings().unwrap_or_default();
    code_heaps_of(&text)
}

fn code_heaps_of(text: &str) -> Vec<Range<usize>> {
    mappings(text).filter(is_code_heap).map(|mapping| mapping.range).collect()
}

/// Without double mapping it has no name and can be written; copies of precompiled code cannot.
fn is_code_heap(mapping: &Mapping<'_>) -> bool {
    let may_be = if mapping.name.is_empty() { mapping.is_writable() } else { mapping.name.starts_with(DOUBLE_MAPPED) };
    may_be && mapping.is_executable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_was_not_compiled_here() {
        let count = |line| code_heaps_of(line).len();
        assert_eq!(count("7f01-7f02 r-xs 00000000 00:01 5   /memfd:doublemapper (deleted)"), 1);
        assert_eq!(count("7f01-7f02 rwxp 00000000 00:00 0"), 1);
        assert_eq!(count("7f01-7f02 rw-s 00000000 00:01 5   /memfd:doublemapper (deleted)"), 0);
        assert_eq!(count("7f01-7f02 r-xp 00000000 00:00 0"), 0);
        assert_eq!(count("7f01-7f02 r-xp 00001000 fe:00 9   /a b/System.Private.CoreLib.dll"), 0);
        let own = code_heaps_of as fn(&str) -> _ as usize;
        assert!(!code_heaps().iter().any(|range| range.contains(&own)), "this is the code of a file");
    }
}
