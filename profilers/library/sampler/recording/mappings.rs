//! The mappings of the process that have code, as far as samples are in them.

use std::fs;
use std::ops::Range;

use super::code_map::COMPILED;

/// What is mapped without a file is told of in so many bytes.
const PAGE: u64 = 4096;

/// A mapping. A file that has symbols of it has to tell of it before.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    pub(super) file_offset: u64,
    pub(super) file: String,
    /// The number of the last file that tells of it.
    pub(super) defined_in: u64,
}

/// The mappings that symbols are in. The number of the first is 1.
#[derive(Default)]
pub(super) struct Mappings {
    known: Vec<Mapping>,
}

/// A line of /proc/self/maps.
#[derive(Debug, PartialEq, Eq)]
struct MapsLine<'a> {
    range: Range<u64>,
    offset: u64,
    /// Empty if it has no file.
    path: &'a str,
}

impl Mappings {
    /// The number of the mapping of this code.
    pub(super) fn of(&mut self, code: &Range<usize>) -> u64 {
        let start = code.start as u64;
        let end = code.end as u64;
        if let Some(known) = self.known.iter().rposition(|mapping| mapping.range.contains(&start)) {
            return known as u64 + 1;
        }
        // Other systems than Linux have no such file.
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let line = maps.lines().filter_map(MapsLine::parse).find(|line| line.range.contains(&start));
        match line {
            Some(line) => self.define(line.range.clone(), line.file_offset(), line.file().to_owned()),
            None => self.define(start - start % PAGE..end.next_multiple_of(PAGE), 0, COMPILED.to_owned()),
        }
    }

    /// Adds a mapping, and returns its number.
    pub(super) fn define(&mut self, range: Range<u64>, file_offset: u64, file: String) -> u64 {
        self.known.push(Mapping { range, file_offset, file, defined_in: 0 });
        self.known.len() as u64
    }

    /// The mapping of this number.
    pub(super) fn get(&mut self, id: u64) -> Option<&mut Mapping> {
        self.known.get_mut(usize::try_from(id).ok()?.checked_sub(1)?)
    }
}

impl<'a> MapsLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut next = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (start, end) = next()?.split_once('-')?;
        let [_protection, offset, _device, _inode] = [next()?, next()?, next()?, next().unwrap_or_default()];
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { range: number(start)?..number(end)?, offset: number(offset)?, path: rest.trim() })
    }

    /// The file as readers know it. The memory of compiled code has one only with W^X, which is deleted.
    fn file(&self) -> &'a str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(self.path);
        if path.starts_with('/') { path } else { COMPILED }
    }

    /// Libraries in the format of Windows have no offset for readers.
    fn file_offset(&self) -> u64 {
        let is_assembly = [".dll", ".exe"].iter().any(|ending| self.path.ends_with(ending));
        if is_assembly || self.path.is_empty() { 0 } else { self.offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let read = |line| MapsLine::parse(line).unwrap();
        let library = read("7f00a000-7f00c000 r-xp 00002000 fe:01 123      /usr/lib/a name.so");
        assert_eq!((library.range.clone(), library.file_offset()), (0x7f00_a000..0x7f00_c000, 0x2000));
        assert_eq!(library.file(), "/usr/lib/a name.so");
        let assembly = read("7f00a000-7f00c000 r-xp 00002000 fe:01 123      /usr/lib/System.Linq.dll");
        assert_eq!((assembly.file(), assembly.file_offset()), ("/usr/lib/System.Linq.dll", 0));
        let heap = read("7f00a000-7f00c000 r-xs 00002000 00:01 123          /memfd:doublemapper (deleted)");
        assert_eq!((heap.file(), heap.file_offset()), (COMPILED, 0x2000));
        let anonymous = read("7f00a000-7f00c000 rwxp 00000000 00:00 0 ");
        assert_eq!((anonymous.file(), anonymous.file_offset()), (COMPILED, 0));
        assert_eq!(MapsLine::parse("nonsense"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn code_of_this_process_has_a_mapping() {
        let mut mappings = Mappings::default();
        let here = lines_of_maps_are_read as fn() as usize;
        let id = mappings.of(&(here..here + 8));
        assert_eq!(mappings.of(&(here + 8..here + 16)), id);
        let mapping = mappings.get(id).unwrap();
        assert!(mapping.range.contains(&(here as u64)) && mapping.file.starts_with('/'), "{mapping:?}");
        assert!(mappings.get(0).is_none() && mappings.get(id + 1).is_none());
    }
}
