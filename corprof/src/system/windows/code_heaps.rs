//! The memory in which the runtime keeps the code that it compiles in this process.

use std::ops::Range;

use windows_sys::Win32::System::Memory::{
    MEM_IMAGE, MEM_MAPPED, MEMORY_BASIC_INFORMATION, PAGE_EXECUTE, PAGE_EXECUTE_READ, PAGE_EXECUTE_READWRITE,
    VirtualQuery,
};

/// The ranges of that memory, in ascending order.
pub(in crate::system) fn code_heaps() -> Vec<Range<usize>> {
    let mut heaps = Vec::new();
    let mut address = 0;
    loop {
        let mut region = MEMORY_BASIC_INFORMATION::default();
        // SAFETY: the call writes one description, and returns 0 for an address behind the last region.
        let written = unsafe {
            VirtualQuery(std::ptr::without_provenance(address), &raw mut region, size_of::<MEMORY_BASIC_INFORMATION>())
        };
        if written == 0 {
            return heaps;
        }
        let start = region.BaseAddress.addr();
        let Some(end) = start.checked_add(region.RegionSize).filter(|&end| end > address) else { return heaps };
        if is_heap(&region) {
            heaps.push(start..end);
        }
        address = end;
    }
}

/// The runtime maps the memory twice, for writing and for execution. Without that it can be written; copies of
/// precompiled code cannot, and are not mapped.
fn is_heap(region: &MEMORY_BASIC_INFORMATION) -> bool {
    if region.Type == MEM_IMAGE {
        return false;
    }
    match region.Protect {
        PAGE_EXECUTE | PAGE_EXECUTE_READ => region.Type == MEM_MAPPED,
        PAGE_EXECUTE_READWRITE => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_was_not_compiled_here() {
        let own = is_heap as fn(&MEMORY_BASIC_INFORMATION) -> bool as usize;
        assert!(!code_heaps().iter().any(|range| range.contains(&own)), "this is the code of a file");
    }
}
