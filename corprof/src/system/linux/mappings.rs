//! The list of this process's memory: `/proc/self/maps`.

use std::fs;
use std::ops::Range;

/// A line of the list.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Mapping<'a> {
    pub(crate) range: Range<usize>,
    /// `r-xp`: whether it may be read, written, executed, and is shared or private.
    rights: &'a str,
    /// Where it begins in its file.
    pub(crate) offset: usize,
    /// The path of its file, or a name in brackets. Empty if it has none.
    pub(crate) name: &'a str,
}

impl<'a> Mapping<'a> {
    /// Reads `7f01-7f02 r-xp 00001000 fe:00 9   /usr/lib/a name.so`.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let offset = fields.next()?;
        let _device = fields.next()?;
        let _inode = fields.next()?;
        let name = fields.next().unwrap_or_default().trim_start();
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Self { range: number(start)?..number(end)?, rights, offset: number(offset)?, name })
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.rights.starts_with("rw")
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.rights.contains('x')
    }
}

/// The text of the list; none where the system does not show it.
pub(crate) fn read_mappings() -> Option<String> {
    let bytes = fs::read("/proc/self/maps").ok()?;
    // A path may be of any bytes.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines of the text, in ascending order.
pub(crate) fn mappings(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(Mapping::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "7f01-7f02 r-xp 00001000 fe:00 9                          /usr/lib/a name.so\n\
                    7f03-7f04 rwxs 00000000 00:00 0 \n\
                    nonsense\n\
                    7ffd-7fff rw-p 00000000 00:00 0                          [stack]\n";
        let expected = [
            Mapping { range: 0x7f01..0x7f02, rights: "r-xp", offset: 0x1000, name: "/usr/lib/a name.so" },
            Mapping { range: 0x7f03..0x7f04, rights: "rwxs", offset: 0, name: "" },
            Mapping { range: 0x7ffd..0x7fff, rights: "rw-p", offset: 0, name: "[stack]" },
        ];
        assert_eq!(mappings(text).collect::<Vec<_>>(), expected);
        assert_eq!(mappings(text).map(|it| it.is_writable()).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(mappings(text).map(|it| it.is_executable()).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn the_list_has_this_code() {
        let own = read_mappings as fn() -> _ as usize;
        let text = read_mappings().unwrap();
        let mapping = mappings(&text).find(|mapping| mapping.range.contains(&own)).unwrap();
        assert!(mapping.is_executable() && mapping.name.starts_with('/'), "{mapping:?}");
    }
}
