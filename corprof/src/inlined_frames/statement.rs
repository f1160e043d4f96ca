//! The statement of a method's IL that a return address is in.

use std::ops::Range;

use crate::context::InNoGc;
use crate::id::FunctionId;
use crate::info::{IlOffset, IlToNativeRange};

/// The part of the function's IL with the call that returns to this address; none where the runtime has no map.
/// `after_stores` has the offsets behind stores to variables.
pub(super) fn around(
    cx: &InNoGc<'_>,
    function: FunctionId,
    return_address: usize,
    after_stores: &[u32],
) -> Option<Range<u32>> {
    // A return address is that of the next statement if the call was the last of its own.
    let address = return_address.checked_sub(1)?;
    let codes = cx.native_code(function).ok()?;
    // A function has several pieces of code if the runtime compiles in tiers.
    let code = codes.into_iter().filter(|code| code.as_raw() <= address).max_by_key(|code| code.as_raw())?;
    let native = u32::try_from(address - code.as_raw()).ok()?;
    in_map(&cx.il_to_native_mapping(code).ok()?, native, after_stores)
}

/// The part of the IL that an offset in native code belongs to, by the map of that code.
///
/// The map has an entry for each statement that has code of its own. The compiler moves the call of a statement that
/// stores what it returns into the next one, if nothing else uses the variable: so that statement counts as well.
fn in_map(map: &[IlToNativeRange], native: u32, after_stores: &[u32]) -> Option<Range<u32>> {
    if !map.iter().any(|range| native < range.native_end) {
        return None;
    }
    let before = map.iter().map(|range| range.native_start).filter(|start| *start <= native).max()?;
    let offset = |range: &IlToNativeRange| match range.il {
        IlOffset::At(offset) => Some(offset),
        _ => None,
    };
    let here = || map.iter().filter(|range| range.native_start == before).filter_map(offset);
    let (first, last) = (here().min()?, here().max()?);
    let boundaries = || map.iter().filter_map(offset);
    let end = boundaries().filter(|boundary| *boundary > last).min().unwrap_or(u32::MAX);
    let mut start = first;
    while start > 0 && after_stores.contains(&start) {
        start = boundaries().filter(|boundary| *boundary < start).max().unwrap_or_default();
    }
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(IlOffset, u32)]) -> Vec<IlToNativeRange> {
        let ends = entries.iter().skip(1).map(|(_, start)| *start).chain([1000]);
        let range = |((il, native_start), native_end): (&(IlOffset, u32), u32)| IlToNativeRange {
            il: *il,
            native_start: *native_start,
            native_end,
        };
        entries.iter().zip(ends).map(range).collect()
    }

    #[test]
    fn a_statement_ends_where_the_next_one_of_the_il_begins() {
        // Native code in another order than the IL.
        let map = map(&[
            (IlOffset::Prolog, 0),
            (IlOffset::At(0), 4),
            (IlOffset::At(30), 20),
            (IlOffset::At(12), 40),
            (IlOffset::Epilog, 60),
        ]);
        assert_eq!(in_map(&map, 4, &[]), Some(0..12));
        assert_eq!(in_map(&map, 39, &[]), Some(30..u32::MAX));
        assert_eq!(in_map(&map, 41, &[]), Some(12..30));
        assert_eq!(in_map(&map, 0, &[]), None);
        assert_eq!(in_map(&map, 70, &[]), None);
        assert_eq!(in_map(&map, 1000, &[]), None);
    }

    #[test]
    fn statements_with_the_same_code_are_one() {
        let map = map(&[(IlOffset::At(0), 0), (IlOffset::At(5), 8), (IlOffset::At(9), 8), (IlOffset::At(15), 20)]);
        assert_eq!(in_map(&map, 10, &[]), Some(5..15));
    }

    #[test]
    fn what_is_stored_may_be_computed_later() {
        let map = map(&[(IlOffset::At(0), 0), (IlOffset::At(5), 8), (IlOffset::At(9), 16), (IlOffset::At(15), 24)]);
        assert_eq!(in_map(&map, 17, &[]), Some(9..15));
        assert_eq!(in_map(&map, 17, &[9]), Some(5..15));
        assert_eq!(in_map(&map, 17, &[5, 9]), Some(0..15));
        assert_eq!(in_map(&map, 9, &[9]), Some(5..9));
    }
}
