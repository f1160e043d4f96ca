//! Proves by its address that shared code which was compiled just in time cannot be unloaded.
//!
//! Before .NET 10 the runtime does not say which class shared code belongs to: `Cell<__Canon>` stays, `Pair<SomeStruct,
//! __Canon>` is unloaded with the module of the struct. The address of the code can tell. The runtime keeps the code of
//! each collectible loader allocator in separate heaps, and deletes these whole with the allocator
//! (`EEJitManager::Unload` in vm/codeman.cpp; `EECodeGenManager::Unload` in newer runtimes). So code on a page with
//! code of a function that cannot die is not in such a heap, and cannot die either.

use std::collections::BTreeSet;
use std::ops::Range;

/// The smallest unit of memory that can be mapped, and so part of one heap only. Where pages are larger, this is a part
/// of a page.
const PAGE: usize = 4096;

/// Where code of functions lies that cannot die. It never shrinks, so each such function is asked about once.
#[derive(Default)]
pub(super) struct ImmortalCode {
    functions: BTreeSet<usize>,
    pages: BTreeSet<usize>,
}

fn pages(ranges: &[Range<usize>]) -> impl Iterator<Item = usize> {
    let not_empty = ranges.iter().filter(|range| !range.is_empty());
    not_empty.flat_map(|range| range.start / PAGE..=(range.end - 1) / PAGE)
}

impl ImmortalCode {
    /// Whether the code of this function, which cannot die, is here.
    pub(super) fn has(&self, function: usize) -> bool {
        self.functions.contains(&function)
    }

    /// This function cannot die, and has this code.
    pub(super) fn add(&mut self, function: usize, code: &[Range<usize>]) {
        self.functions.insert(function);
        self.pages.extend(pages(code));
    }

    /// Whether some of this code lies on a page with code that cannot die.
    fn is_beside(&self, code: &[Range<usize>]) -> bool {
        pages(code).any(|page| self.pages.contains(&page))
    }

    /// Takes those of these functions with their code that lie in a heap which cannot die, and returns them. A function
    /// that lies on two pages proves it for its neighbours on both.
    pub(super) fn take(&mut self, doubtful: &mut Vec<(usize, Vec<Range<usize>>)>) -> Vec<usize> {
        let mut immortal = Vec::new();
        loop {
            let found: Vec<_> = doubtful.extract_if(.., |(_, code)| self.is_beside(code)).collect();
            if found.is_empty() {
                return immortal;
            }
            for (function, code) in found {
                self.add(function, &code);
                immortal.push(function);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMMORTAL: usize = 1;
    const SHARED: usize = 2;
    const OTHER: usize = 3;

    /// Whether the neighbours prove that [`SHARED`] cannot die. Each function lies from its first address to before its
    /// second.
    fn is_proved(functions: &[(usize, usize, usize)]) -> bool {
        let mut code = ImmortalCode::default();
        let mut doubtful = Vec::new();
        for &(function, start, end) in functions {
            let range = start..end;
            if function == IMMORTAL {
                code.add(function, &[range]);
            } else {
                doubtful.push((function, vec![range]));
            }
        }
        let immortal = code.take(&mut doubtful);
        assert!(immortal.iter().all(|function| code.has(*function)));
        assert_eq!(immortal.contains(&SHARED), doubtful.iter().all(|(function, _)| *function != SHARED));
        immortal.contains(&SHARED)
    }

    #[test]
    fn shared_code_on_a_page_with_immortal_code_is_immortal() {
        assert!(is_proved(&[(IMMORTAL, 0x10_0040, 0x10_0080), (SHARED, 0x10_0200, 0x10_0300)]));
        assert!(is_proved(&[(SHARED, 0x10_0200, 0x10_0300), (IMMORTAL, 0x10_0fc0, 0x10_0ff0)]));
        assert!(!is_proved(&[(OTHER, 0x10_0040, 0x10_0080), (SHARED, 0x10_0200, 0x10_0300)]));
        assert!(
            !is_proved(&[(IMMORTAL, 0x10_0200, 0x10_0200), (SHARED, 0x10_0200, 0x10_0300)]),
            "no code proves nothing"
        );
    }

    #[test]
    fn another_page_counts_only_if_a_function_lies_on_both() {
        let shared = (SHARED, 0x10_0200, 0x10_0300);
        assert!(!is_proved(&[shared, (IMMORTAL, 0x10_1000, 0x10_1100)]));
        assert!(!is_proved(&[(IMMORTAL, 0xf_f000, 0x10_0000), shared]));
        assert!(is_proved(&[shared, (OTHER, 0x10_0f00, 0x10_1080), (IMMORTAL, 0x10_1800, 0x10_1900)]));
        assert!(is_proved(&[(IMMORTAL, 0xf_f000, 0xf_f100), (OTHER, 0xf_ff00, 0x10_0100), shared]));
        assert!(is_proved(&[(IMMORTAL, 0xf_f000, 0x10_0100), shared]), "the neighbour's code ends on the page");
        assert!(
            is_proved(&[(SHARED, 0x10_0f00, 0x10_1080), (IMMORTAL, 0x10_1800, 0x10_1900)]),
            "its own code joins the pages"
        );
        assert!(!is_proved(&[(SHARED, 0x10, 0x20), (OTHER, 0x100, 0x200)]), "nothing is known to stay");
    }
}
