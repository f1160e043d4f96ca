//! Where methods are in the source, by the portable PDBs of their modules.
//!
//! Finding the PDB is done here, from the module's debug directory; `symbolic-ppdb` reads it. It leaves out which code
//! has no line, so `hidden` reads that.

mod hidden;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use object::LittleEndian as LE;
use object::read::pe::{ImageNtHeaders, PeFile, PeFile32, PeFile64};
use object::read::{FileKind, ReadCache, ReadCacheOps, ReadRef};
use object::{pe, pod};
use symbolic_ppdb::{LineInfo, PortablePdb, PortablePdbCache, PortablePdbCacheConverter};

use self::hidden::Hidden;

/// Bytes of a PDB that is read. Those of large applications have some ten megabytes.
const LARGEST: u64 = 64 << 20;

/// Bytes of all PDBs that one [`SourceLines`] reads.
const LARGEST_SUM: u64 = 256 << 20;

/// Bytes of a PDB's identity in its module: a path and little more.
const LONGEST_IDENTITY: u64 = 4096;

/// Entries of a debug directory that are looked at; compilers write four or so.
const MOST_ENTRIES: usize = 64;

/// The kind of debug directory entry that holds a compressed portable PDB, which `object` has no name for.
const EMBEDDED_PORTABLE_PDB: u32 = 17;

/// The table that method tokens are of.
const METHOD_DEF: u32 = 0x0600_0000;

/// How far into a method its first line is looked for: compilers begin async methods and iterators with code of no
/// line.
const PREFIX: u32 = 512;

/// Finds the file and line of managed methods, and of offsets in their IL.
///
/// A module's portable PDB is searched in the module itself (`DebugType` `embedded`), then beside it, by the name that
/// the module gives it. A PDB of another build is not used. Where there is none, or it cannot be read, lines are
/// unknown, which is no error. Each module is looked at once, and PDBs of more than 64 MB are left alone.
///
/// Reading one takes some milliseconds a megabyte, so this belongs where a profile is written, not where samples are
/// taken.
///
/// ```
/// use std::path::Path;
/// use corprof_export::{Frame, Profile, SourceLines, Unit};
///
/// let mut profile = Profile::new("shop", Unit::Samples);
/// let total = profile.frame(Frame::managed("Shop.Order.Total()").in_module("/app/Shop.dll"));
/// let mut lines = SourceLines::new();
/// if let Some((file, line)) = lines.of_method(Path::new("/app/Shop.dll"), 0x0600_0007) {
///     profile.place(total, file, line);
/// }
/// ```
#[derive(Debug, Default)]
pub struct SourceLines {
    modules: HashMap<PathBuf, Option<Lines>>,
    /// Bytes that have been read.
    read: u64,
}

/// The lines of one module.
#[derive(Debug)]
struct Lines {
    /// In the form that `symbolic-ppdb` looks them up in.
    cache: Vec<u8>,
    /// None if it cannot be told.
    hidden: Option<Hidden>,
}

/// The reference of a module to its PDB.
#[derive(Debug, Default)]
struct DebugDirectory {
    /// The PDB's identifier and file name.
    identity: Option<([u8; 16], String)>,
    has_embedded: bool,
    /// The PDB, if it is embedded, and not too large.
    embedded: Option<Vec<u8>>,
}

impl SourceLines {
    /// Knows no module yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The source file of a method, as passed to its compiler, and the line of its first statement, counted from 1.
    ///
    /// `module` is the module's file, and `token` the method's in the module's metadata (`MethodDef`). None if that is
    /// not known.
    pub fn of_method(&mut self, module: &Path, token: u32) -> Option<(&str, u32)> {
        let row = row(token)?;
        self.of_module(module)?.first_of(row)
    }

    /// The source file of a method, and the line of the statement that its IL has at this offset.
    ///
    /// The offset may lie anywhere within the IL of the statement. Code that the compiler adds without a line belongs
    /// to the statement before it, and to the first one at the beginning of a method. None if the lines are not known.
    pub fn of_offset(&mut self, module: &Path, token: u32, il_offset: u32) -> Option<(&str, u32)> {
        let row = row(token)?;
        self.of_module(module)?.at(row, il_offset)
    }

    /// As [`of_offset`](Self::of_offset), but None for code that the compiler adds without a line of its own, such as
    /// the await at the end of `await using`.
    pub fn of_own_offset(&mut self, module: &Path, token: u32, il_offset: u32) -> Option<(&str, u32)> {
        let row = row(token)?;
        let lines = self.of_module(module)?;
        let is_own = lines.hidden.as_ref().is_some_and(|hidden| !hidden.covers(row, il_offset));
        if is_own { lines.at(row, il_offset) } else { None }
    }

    /// Whether a module has a PDB, embedded or beside it. That is not read, so it may be of another build.
    #[must_use]
    pub fn are_there(module: &Path) -> bool {
        let Ok(file) = File::open(module) else { return false };
        let Some(directory) = DebugDirectory::of_module(&ReadCache::new(file), 0) else { return false };
        let is_beside = |name: &str| module.with_file_name(name).is_file();
        directory.has_embedded || directory.identity.is_some_and(|(_, name)| is_beside(&name))
    }

    fn of_module(&mut self, module: &Path) -> Option<&Lines> {
        if !self.modules.contains_key(module) {
            let lines = self.read_module(module);
            self.modules.insert(module.to_owned(), lines);
        }
        self.modules.get(module)?.as_ref()
    }

    fn read_module(&mut self, module: &Path) -> Option<Lines> {
        let rest = LARGEST_SUM.saturating_sub(self.read).min(LARGEST);
        let directory = DebugDirectory::of_module(&ReadCache::new(File::open(module).ok()?), rest)?;
        let (guid, name) = directory.identity?;
        let pdb = match directory.embedded {
            Some(pdb) => pdb,
            None => read_up_to(File::open(module.with_file_name(name)).ok()?, rest)?,
        };
        self.read = self.read.saturating_add(pdb.len() as u64);
        // A file that its reader does not expect must not take the profile with it.
        catch_unwind(AssertUnwindSafe(|| Lines::of_pdb(&pdb, guid))).ok().flatten()
    }
}

impl Lines {
    /// The lines in a PDB, if it is the one with this identifier.
    fn of_pdb(bytes: &[u8], guid: [u8; 16]) -> Option<Self> {
        let pdb = PortablePdb::parse(bytes).ok()?;
        if pdb.pdb_id()?.uuid().to_bytes_le() != guid {
            return None;
        }
        let mut converter = PortablePdbCacheConverter::new();
        converter.process_portable_pdb(&pdb).ok()?;
        let mut cache = Vec::new();
        converter.serialize(&mut cache).ok()?;
        Some(Self { cache, hidden: Hidden::of_pdb(bytes) })
    }

    fn first_of(&self, row: u32) -> Option<(&str, u32)> {
        let lines = PortablePdbCache::parse(&self.cache).ok()?;
        place((0..PREFIX).find_map(|offset| lines.lookup(row, offset))?)
    }

    fn at(&self, row: u32, il_offset: u32) -> Option<(&str, u32)> {
        let lines = PortablePdbCache::parse(&self.cache).ok()?;
        match lines.lookup(row, il_offset) {
            Some(found) => place(found),
            None => self.first_of(row),
        }
    }
}

/// The row of a method's token.
fn row(token: u32) -> Option<u32> {
    token.checked_sub(METHOD_DEF).filter(|row| (1..1 << 24).contains(row))
}

/// File and line, if both are known.
fn place(found: LineInfo<'_>) -> Option<(&str, u32)> {
    (found.line > 0 && !found.file_name.is_empty()).then_some((found.file_name, found.line))
}

impl DebugDirectory {
    /// Reads that of a module, and an embedded PDB of at most so many bytes.
    fn of_module<R: ReadCacheOps>(file: &ReadCache<R>, most: u64) -> Option<Self> {
        match FileKind::parse(file).ok()? {
            FileKind::Pe32 => Self::of_pe(&PeFile32::parse(file).ok()?, file, most),
            FileKind::Pe64 => Self::of_pe(&PeFile64::parse(file).ok()?, file, most),
            _ => None,
        }
    }

    fn of_pe<'d, P, R>(pe: &PeFile<'d, P, R>, data: R, most: u64) -> Option<Self>
    where
        P: ImageNtHeaders,
        R: ReadRef<'d>,
    {
        let place = pe.data_directory(pe::IMAGE_DIRECTORY_ENTRY_DEBUG)?;
        // The section may be long: read the directory alone.
        let address = place.virtual_address.get(LE);
        let size = place.size.get(LE) as usize;
        let (offset, _) = pe.section_table().pe_file_range_at(address)?;
        let count = (size / size_of::<pe::ImageDebugDirectory>()).min(MOST_ENTRIES);
        let entries = data.read_slice_at::<pe::ImageDebugDirectory>(offset.into(), count).ok()?;
        let mut directory = Self::default();
        for entry in entries {
            let offset = entry.pointer_to_raw_data.get(LE).into();
            let size = entry.size_of_data.get(LE).into();
            let read = |most| (size <= most).then(|| data.read_bytes_at(offset, size).ok()).flatten();
            match entry.typ.get(LE) {
                pe::IMAGE_DEBUG_TYPE_CODEVIEW if directory.identity.is_none() => {
                    directory.identity = read(LONGEST_IDENTITY).and_then(identity);
                }
                EMBEDDED_PORTABLE_PDB if directory.embedded.is_none() => {
                    directory.has_embedded = true;
                    directory.embedded = read(most).and_then(|bytes| embedded(bytes, most));
                }
                _ => {}
            }
        }
        Some(directory)
    }
}

/// The content of a CodeView entry: `RSDS`, the identifier, an age, and a path.
fn identity(bytes: &[u8]) -> Option<([u8; 16], String)> {
    let (guid, rest) = pod::from_bytes::<[u8; 16]>(bytes.strip_prefix(b"RSDS")?).ok()?;
    let path = rest.get(4..)?;
    let path = path.split(|byte| *byte == 0).next().and_then(|path| std::str::from_utf8(path).ok())?;
    // The folder is one of the machine that the module was built on.
    let name = path.rsplit(['/', '\\']).next().filter(|name| !matches!(*name, "" | "." | ".."))?;
    Some((*guid, name.to_owned()))
}

/// The content of an embedded PDB's entry: `MPDB`, the number of bytes, and the compressed bytes.
fn embedded(bytes: &[u8], most: u64) -> Option<Vec<u8>> {
    let compressed = bytes.strip_prefix(b"MPDB")?.get(4..)?;
    read_up_to(DeflateDecoder::new(compressed), most)
}

/// All bytes, if there are no more than that.
fn read_up_to(reader: impl Read, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

#[cfg(test)]
mod tests;
