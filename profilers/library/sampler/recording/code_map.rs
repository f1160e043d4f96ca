//! What is where in the trace: each address of a stack belongs to one symbol, in the whole trace.
//!
//! Code has its own addresses, as long as these had no other name before. The memory of code is used again when its
//! assembly is unloaded, or a dynamic method is freed; readers such as TraceEvent look names up by address alone,
//! whenever it was. So the second code at a place gets addresses that no process has ([`MOVED`]), and what has no code
//! gets others ([`LOGICAL`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::il_map::IlMap;
use super::mappings::{Mapping, Mappings};

/// Addresses from here on are not those of code: processors with 48 bits of address have none there.
const LOGICAL: u64 = 1 << 48;
/// Code whose own addresses had another name before.
const MOVED: u64 = 2 << 48;
const END: u64 = 3 << 48;
/// The addresses of a frame without code. Stacks have the one in the middle: readers take callers' addresses for those
/// of returns, and look one byte before.
const LOGICAL_SIZE: u64 = 16;
/// The most names of frames without code that are remembered. More get further addresses.
const MOST_LOGICAL: usize = 1 << 16;

/// The file of code that the runtime has compiled, as readers know it: they show such symbols as managed methods.
pub(super) const COMPILED: &str = "/memfd:doublemapper";

/// The number of a function's id, as long as its name is the same; [`NATIVE`] for native code.
pub(super) type Function = usize;
pub(super) const NATIVE: Function = 0;

/// Samples wait shorter than this until they are written. Until then their addresses keep their names.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What is at some addresses of the trace. A file that has them has to tell of it before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) id: u64,
    /// The number of its mapping.
    pub(super) mapping: u64,
    pub(super) range: Range<u64>,
    pub(super) name: Arc<str>,
    /// Of a method whose module has a PDB.
    pub(super) il: Option<Arc<IlMap>>,
    /// The number of the last file that tells of it.
    pub(super) defined_in: u64,
}

/// The code that is known.
#[derive(Default)]
pub(super) struct CodeMap {
    /// The code that is at an address now, by its first byte.
    pieces: BTreeMap<usize, Piece>,
    /// The addresses that have had a name. Ranges that touch are one, so there are no more than gaps in heaps of code.
    named: BTreeMap<usize, usize>,
    logical: HashMap<Arc<str>, u64>,
    areas: Option<Areas>,
    mappings: Mappings,
    /// What samples may have, by its first address in the trace.
    symbols: BTreeMap<u64, Symbol>,
    symbol_count: u64,
    /// The symbols that new samples do not have any more, and since when.
    gone: VecDeque<(Instant, u64)>,
}

/// Code with a name.
struct Piece {
    end: usize,
    function: Function,
    name: Arc<str>,
    /// The address of its first byte in the trace.
    place: u64,
}

/// The mappings of addresses that no code has, and what is free of them.
struct Areas {
    logical: (u64, u64),
    moved: (u64, u64),
}

impl CodeMap {
    /// The address in the trace of code that is known, if it still belongs to this function.
    pub(super) fn address(&self, function: Function, name: &str, address: usize) -> Option<u64> {
        let (start, piece) = self.pieces.range(..=address).next_back()?;
        if address >= piece.end || piece.function != function || *piece.name != *name {
            return None;
        }
        // TraceEvent takes the last byte of a symbol for the first one behind it.
        let last = (piece.end - start).saturating_sub(2);
        Some(piece.place + (address - start).min(last) as u64)
    }

    /// Keeps that there is code of this function, and which IL it is of.
    pub(super) fn learn(&mut self, function: Function, name: &str, code: Range<usize>, il: Option<Arc<IlMap>>) {
        if code.is_empty() {
            return;
        }
        if let Some(same) = self.pieces.get_mut(&code.start)
            && same.end == code.end
            && *same.name == *name
        {
            same.function = function;
            return;
        }
        self.remove(&code);
        let (place, mapping) = if self.has_named(&code) {
            self.moved(code.len() as u64)
        } else {
            (code.start as u64, self.mappings.of(&code))
        };
        self.name(&code);
        let name = self.define(mapping, place..place + code.len() as u64, name, il);
        self.pieces.insert(code.start, Piece { end: code.end, function, name, place });
    }

    /// The address of something without code.
    pub(super) fn logical(&mut self, name: &str) -> u64 {
        if let Some(place) = self.logical.get(name) {
            return place + LOGICAL_SIZE / 2;
        }
        if self.logical.len() >= MOST_LOGICAL {
            let now = Instant::now();
            self.gone.extend(self.logical.drain().map(|(_, place)| (now, place)));
        }
        let (mapping, free) = &mut self.areas().logical;
        let mapping = *mapping;
        let place = *free;
        *free += LOGICAL_SIZE;
        let name = self.define(mapping, place..place + LOGICAL_SIZE, name, None);
        self.logical.insert(name, place);
        place + LOGICAL_SIZE / 2
    }

    /// The symbol of an address of the trace.
    pub(super) fn symbol(&mut self, address: u64) -> Option<&mut Symbol> {
        let (_, symbol) = self.symbols.range_mut(..=address).next_back()?;
        symbol.range.contains(&address).then_some(symbol)
    }

    /// The mapping of a symbol.
    pub(super) fn mapping(&mut self, id: u64) -> Option<&mut Mapping> {
        self.mappings.get(id)
    }

    /// Forgets the names of code that is gone, once no sample can wait that has it.
    pub(super) fn forget_gone(&mut self) {
        while let Some((since, place)) = self.gone.front().copied()
            && since.elapsed() >= LONGEST_WAIT
        {
            self.gone.pop_front();
            self.symbols.remove(&place);
        }
    }

    fn define(&mut self, mapping: u64, range: Range<u64>, name: &str, il: Option<Arc<IlMap>>) -> Arc<str> {
        self.symbol_count += 1;
        let name: Arc<str> = name.into();
        let symbol = Symbol { id: self.symbol_count, mapping, range, name: Arc::clone(&name), il, defined_in: 0 };
        self.symbols.insert(symbol.range.start, symbol);
        name
    }

    /// Forgets the code that was there.
    fn remove(&mut self, code: &Range<usize>) {
        while let Some((&start, piece)) = self.pieces.range(..code.end).next_back()
            && piece.end > code.start
        {
            self.gone.push_back((Instant::now(), piece.place));
            self.pieces.remove(&start);
        }
    }

    /// Whether some of these addresses have had a name.
    fn has_named(&self, code: &Range<usize>) -> bool {
        self.named.range(..code.end).next_back().is_some_and(|(_, end)| *end > code.start)
    }

    fn name(&mut self, code: &Range<usize>) {
        let mut all = code.clone();
        while let Some((&start, &end)) = self.named.range(..=all.end).next_back()
            && end >= all.start
        {
            all = all.start.min(start)..all.end.max(end);
            self.named.remove(&start);
        }
        self.named.insert(all.start, all.end);
    }

    /// Free addresses, and their mapping.
    fn moved(&mut self, size: u64) -> (u64, u64) {
        let (mapping, free) = &mut self.areas().moved;
        let place = *free;
        *free += size;
        (place, *mapping)
    }

    fn areas(&mut self) -> &mut Areas {
        let Self { areas, mappings, .. } = self;
        areas.get_or_insert_with(|| {
            let mut area = |range: Range<u64>, what| {
                let place = range.start;
                (mappings.define(range, 0, format!("{COMPILED} ({what})")), place)
            };
            Areas { logical: area(LOGICAL..MOVED, "logical frames"), moved: area(MOVED..END, "memory used again") }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the trace by address.
    fn symbols(map: &CodeMap) -> Vec<(Range<u64>, String)> {
        map.symbols.values().map(|symbol| (symbol.range.clone(), symbol.name.to_string())).collect()
    }

    #[test]
    fn code_has_its_own_addresses() {
        let mut map = CodeMap::default();
        let function = 8;
        assert_eq!(map.address(function, "A", 0x1010), None);
        map.learn(function, "A", 0x1000..0x1020, None);
        map.learn(function, "A", 0x1000..0x1020, None);
        assert_eq!(map.address(function, "A", 0x1010), Some(0x1010));
        assert_eq!(map.address(function, "A", 0x101f), Some(0x101e), "within the symbol for TraceEvent");
        assert_eq!(map.address(function, "A", 0x1020), None);
        assert_eq!(symbols(&map), [(0x1000..0x1020, "A".to_owned())], "once");
    }

    #[test]
    fn code_at_a_place_that_had_another_name_gets_other_addresses() {
        let mut map = CodeMap::default();
        let first = 8;
        let second = 16;
        map.learn(first, "A", 0x1000..0x1020, None);
        map.learn(first, "B", 0x1020..0x1040, None);
        map.learn(second, "C", 0x1010..0x1030, None);
        assert_eq!(map.address(first, "A", 0x1000), None, "it is gone");
        assert_eq!(map.address(first, "B", 0x1038), None, "it is gone");
        assert_eq!(map.address(second, "C", 0x1018), Some(MOVED + 8));
        // The same name again is other code, and nobody minds.
        map.learn(first, "A", 0x1000..0x1020, None);
        assert_eq!(map.address(first, "A", 0x1000), Some(MOVED + 0x20));
        map.learn(second, "D", 0x1040..0x1050, None);
        assert_eq!(map.address(second, "D", 0x1040), Some(0x1040));
        let symbols = symbols(&map);
        assert_eq!(symbols.len(), 5);
        let overlaps = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        for (number, (range, _)) in symbols.iter().enumerate() {
            assert!(symbols.iter().skip(number + 1).all(|(other, _)| !overlaps(range, other)), "{symbols:x?}");
        }
        assert_eq!(map.named.len(), 1, "ranges that touch are one");
    }

    #[test]
    fn a_function_id_of_another_method_is_not_trusted() {
        let mut map = CodeMap::default();
        let function = 8;
        map.learn(function, "A", 0x1000..0x1020, None);
        assert_eq!(map.address(function, "B", 0x1010), None);
        map.learn(function, "B", 0x1000..0x1020, None);
        assert_eq!(map.address(function, "B", 0x1010), Some(MOVED + 0x10));
    }

    #[test]
    fn what_has_no_code_has_an_address() {
        let mut map = CodeMap::default();
        let [first, again, other] = ["[started by]", "[started by]", "Shop.Pay()"].map(|name| map.logical(name));
        let middle = LOGICAL + LOGICAL_SIZE / 2;
        assert_eq!((first, again, other), (middle, middle, middle + LOGICAL_SIZE));
        assert_eq!(symbols(&map).len(), 2);
    }

    #[test]
    fn names_of_code_that_is_gone_are_forgotten_later() {
        let mut map = CodeMap::default();
        let function = 8;
        map.learn(function, "A", 0x1000..0x1020, None);
        map.learn(function, "B", 0x1000..0x1020, None);
        map.forget_gone();
        assert_eq!(map.symbol(0x1010).map(|symbol| symbol.name.to_string()).as_deref(), Some("A"), "samples may wait");
        map.gone[0].0 -= LONGEST_WAIT;
        map.forget_gone();
        assert_eq!(map.symbol(0x1010), None);
        let mapping = map.symbol(MOVED).unwrap().mapping;
        assert!(map.mapping(mapping).unwrap().file.ends_with("(memory used again)"));
    }
}
