//! Stacks of a recording, each kept once: a tree of addresses, whose roots are the outermost callers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use corprof_async::{LogicalFrame, Origin};
use corprof_nettrace::Stack;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};

/// The most distinct paths of calls, some 20 bytes each. Beyond it, a stack is cut at the deepest path that is known.
const MOST_PATHS: usize = 4_000_000;

/// Stacks that are remembered as they are in the trace, 48 bytes each: it says them again after each sequence point.
const REMEMBERED: usize = 1 << 20;

/// Addresses of frames without code, in recordings of corprof: no code is there.
const WITHOUT_CODE: Range<u64> = 1 << 48..2 << 48;

/// A place in code, or what stands on a stack in place of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Code {
    /// An address of a process, and when it was seen first: other code may be there later.
    At { process: u64, address: u64, ticks: u64 },
    /// A frame that the file names, by its number.
    Named(u32),
    /// A type that was allocated or thrown, by its number.
    Type(u32),
    /// The outer frames that the recorder has left out.
    Missing,
}

/// Numbers of paths. The path without frames is [`EMPTY`].
pub(super) type Path = u32;
pub(super) const EMPTY: Path = u32::MAX;

/// The stacks so far.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    codes: IndexSet<Code, FxBuildHasher>,
    /// The code that is at an address now.
    current: BTreeMap<(u64, u64), u32>,
    /// The paths of stacks whose code is still there.
    remembered: FxHashMap<Fingerprint, Path>,
    /// The caller's path and the code. A caller's number is less than its callees'.
    paths: IndexSet<(Path, u32), FxBuildHasher>,
    /// How often a stack was cut.
    cut: u64,
}

/// What tells a stack from others of a recording: its process, its bytes' number, and two numbers of 64 bits made of
/// the bytes. That two stacks of a million have the same is less likely than a fault of the memory that would keep
/// their bytes. To compare these took a fifth of the time of reading a file of 1 GB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Fingerprint {
    process: u64,
    length: usize,
    hashes: [u64; 2],
}

impl Fingerprint {
    fn of(process: u64, bytes: &[u8]) -> Self {
        let mut first = DefaultHasher::new();
        first.write(bytes);
        let mut second = FxHasher::default();
        second.write(bytes);
        Self { process, length: bytes.len(), hashes: [first.finish(), second.finish()] }
    }
}

impl Stacks {
    /// The path of a stack of a process. `is_cut` says that outer frames are missing.
    pub(super) fn add(&mut self, process: u64, ticks: u64, stack: Stack<'_>, is_cut: bool) -> Path {
        let fingerprint = Fingerprint::of(process, stack.as_bytes());
        if let Some(path) = self.remembered.get(&fingerprint) {
            return *path;
        }
        let addresses: Vec<u64> = stack.addresses().collect();
        let path = self.add_addresses(process, ticks, &addresses, is_cut);
        if self.remembered.len() >= REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(fingerprint, path);
        path
    }

    /// The addresses come innermost first.
    fn add_addresses(&mut self, process: u64, ticks: u64, addresses: &[u64], is_cut: bool) -> Path {
        let mut path = EMPTY;
        if is_cut {
            let missing = number(self.codes.insert_full(Code::Missing).0);
            path = self.called(path, missing);
        }
        for (depth, address) in addresses.iter().copied().enumerate().rev() {
            // The address of a caller is the one it returns to, which may be behind its end; but not that of a frame
            // without code, of which earlier recordings of corprof have the first one.
            let is_return = depth > 0 && !WITHOUT_CODE.contains(&address);
            let code = self.code_at(process, address.saturating_sub(u64::from(is_return)), ticks);
            path = self.called(path, code);
        }
        path
    }

    /// The path of a logical stack, the innermost frame first. `started_by` is the number of the named frame between the
    /// methods that await and those that have started them.
    pub(super) fn add_logical(&mut self, process: u64, ticks: u64, frames: &[LogicalFrame], started_by: u32) -> Path {
        let mut path = EMPTY;
        let mut before = None;
        for LogicalFrame { address, origin, .. } in frames.iter().rev() {
            if before == Some(Origin::Creator) && *origin != Origin::Creator {
                path = self.named(path, started_by);
            }
            before = Some(*origin);
            let code = self.code_at(process, *address, ticks);
            path = self.called(path, code);
        }
        path
    }

    /// The number of the code at an address, which is not one to return to.
    fn code_at(&mut self, process: u64, address: u64, ticks: u64) -> u32 {
        let codes = &mut self.codes;
        let insert = || number(codes.insert_full(Code::At { process, address, ticks }).0);
        *self.current.entry((process, address)).or_insert_with(insert)
    }

    fn named(&mut self, caller: Path, frame: u32) -> Path {
        let code = number(self.codes.insert_full(Code::Named(frame)).0);
        self.called(caller, code)
    }

    /// The path of frames that the file names, by their numbers, the innermost first.
    pub(super) fn add_named(&mut self, frames: &[u32]) -> Path {
        frames.iter().rev().fold(EMPTY, |path, frame| self.named(path, *frame))
    }

    /// The path in which a type is the innermost frame.
    pub(super) fn add_type(&mut self, path: Path, type_number: u32) -> Path {
        let code = number(self.codes.insert_full(Code::Type(type_number)).0);
        self.called(path, code)
    }

    fn called(&mut self, caller: Path, code: u32) -> Path {
        if self.paths.len() < MOST_PATHS {
            return number(self.paths.insert_full((caller, code)).0);
        }
        let known = self.paths.get_index_of(&(caller, code));
        self.cut += u64::from(known.is_none());
        known.map_or(caller, number)
    }

    /// Other code may be at these addresses from now on.
    pub(super) fn freed(&mut self, process: u64, first: u64, last: u64) {
        if first > last {
            return;
        }
        self.remembered.clear();
        let old: Vec<_> = self.current.range((process, first)..=(process, last)).map(|(key, _)| *key).collect();
        for key in old {
            self.current.remove(&key);
        }
    }

    /// No stack is added any more.
    pub(super) fn finish(&mut self) {
        self.remembered = FxHashMap::default();
        self.current.clear();
    }

    /// All code, by number.
    pub(super) fn codes(&self) -> impl Iterator<Item = Code> + '_ {
        self.codes.iter().copied()
    }

    /// All paths with their callers', by number.
    pub(super) fn paths(&self) -> impl Iterator<Item = (Path, u32)> + '_ {
        self.paths.iter().copied()
    }

    pub(super) fn cut(&self) -> u64 {
        self.cut
    }
}

/// There is no memory for as many things as do not fit.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_kept_once_until_its_code_is_freed() {
        let mut stacks = Stacks::default();
        let add = |stacks: &mut Stacks, ticks, addresses: &[u64]| stacks.add_addresses(7, ticks, addresses, false);
        let first = add(&mut stacks, 1, &[0x100, 0x201]);
        assert_eq!(add(&mut stacks, 2, &[0x100, 0x201]), first);
        stacks.freed(7, 0x100, 0x1ff);
        let later = add(&mut stacks, 3, &[0x100, 0x201]);
        assert_ne!(later, first);
        let at = |address, ticks| Code::At { process: 7, address, ticks };
        assert_eq!(stacks.codes().collect::<Vec<_>>(), [at(0x200, 1), at(0x100, 1), at(0x100, 3)]);
        assert_eq!(stacks.paths().collect::<Vec<_>>(), [(EMPTY, 0), (0, 1), (0, 2)]);
    }
}
