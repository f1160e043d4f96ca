//! Proves by its address that shared code which was compiled just in time cannot be unloaded.
//!
//! Before .NET 10 the runtime does not say which class shared code belongs to: `Cell<__Canon>` stays, `Pair<SomeStruct,
//! __Canon>` is unloaded with the module of the struct. The address of the code can tell. The runtime keeps the code of each
//! collectible loader allocator in separate heaps, and deletes these whole with the allocator (`EEJitManager::Unload` in
//! vm/codeman.cpp; `EECodeGenManager::Unload` in newer runtimes). So code on a page with code of a function that cannot die is not
//! in such a heap, and cannot die either.

/// The smallest unit of memory that can be mapped, and so part of one heap only. Where pages are larger, this is a part of a
/// page.
const PAGE: usize = 4096;

/// The distance between two probes. A shorter function may be missed; then less is proved, and nothing wrong.
const STEP: usize = 32;

/// How many pages are searched in each direction.
const PAGES: usize = 16;

/// Whether the code at `start` lies in a heap that cannot die. `function_at` returns the function at an address, and
/// `is_immortal` whether that function is known to stay.
pub(super) fn are_immortal(
    start: usize,
    function_at: impl Fn(usize) -> Option<usize>,
    is_immortal: impl Fn(usize) -> bool,
) -> bool {
    let is_immortal_at = |at| function_at(at).is_some_and(&is_immortal);
    let page_of = |at: usize| at & !(PAGE - 1);
    let has_immortal = |page: usize| (page..page.saturating_add(PAGE)).step_by(STEP).any(is_immortal_at);
    // Two pages belong to the same heap if one function lies on both sides of their border.
    let is_joined = |border: usize| {
        let before = border.checked_sub(1).and_then(&function_at);
        before.is_some() && before == function_at(border)
    };
    let first = page_of(start);
    if has_immortal(first) {
        return true;
    }
    let later = (1..=PAGES).map_while(|number| {
        let page = first.checked_add(number * PAGE)?;
        is_joined(page).then_some(page)
    });
    let earlier = (0..PAGES).map_while(|number| {
        let border = first.checked_sub(number * PAGE)?;
        is_joined(border).then(|| border - PAGE)
    });
    later.chain(earlier).any(has_immortal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMMORTAL: usize = 1;
    const SHARED: usize = 2;
    const OTHER: usize = 3;

    /// Whether the neighbours prove that [`SHARED`] cannot die. Each function lies from its first address to before its second.
    fn is_proved(functions: &[(usize, usize, usize)]) -> bool {
        let start = functions.iter().find(|(function, ..)| *function == SHARED).unwrap().1;
        let function_at =
            |at| functions.iter().find(|(_, start, end)| (*start..*end).contains(&at)).map(|found| found.0);
        are_immortal(start, function_at, |function| function == IMMORTAL)
    }

    #[test]
    fn shared_code_on_a_page_with_immortal_code_is_immortal() {
        assert!(is_proved(&[(IMMORTAL, 0x10_0040, 0x10_0080), (SHARED, 0x10_0200, 0x10_0300)]));
        assert!(is_proved(&[(SHARED, 0x10_0200, 0x10_0300), (IMMORTAL, 0x10_0fc0, 0x10_0ff0)]));
        assert!(!is_proved(&[(OTHER, 0x10_0040, 0x10_0080), (SHARED, 0x10_0200, 0x10_0300)]));
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
        assert!(!is_proved(&[(SHARED, 0x10, 0x20), (OTHER, 0x100, 0x200)]), "no page lies below the lowest");
    }
}
