//! The manifest that precompiled code has beside the metadata of its module.
//!
//! Precompiled code may name assemblies that the module itself does not refer to. It counts them on from the module's
//! own references, and `ApplyMetaData` makes that count one greater (`Module::GetAssemblyRefMax` in vm/ceeload.h): from
//! then on such code gets other assemblies than it means. The framework of .NET 11 is precompiled so wherever it
//! awaits; .NET 8 and 10 have empty manifests.

use crate::system;

/// The directory of the headers of managed code, in the optional header of a file.
const MANAGED_DIRECTORY: usize = 14;
/// Where the directory of the precompiled code stands in these headers.
const PRECOMPILED_DIRECTORY: usize = 64;
/// "RTR"
const PRECOMPILED: u32 = 0x0052_5452;
const MANIFEST_METADATA: u32 = 112;
/// "BSJB"
const METADATA: u32 = 0x424A_5342;
const ASSEMBLY_REF: u32 = 0x23;
/// More sections or streams than any file has.
const MANY: u32 = 256;

/// A module as it is mapped.
#[derive(Clone, Copy)]
struct Image {
    base: usize,
}

impl Image {
    fn bytes<const N: usize>(self, at: u32) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let address = self.base.checked_add(at as usize)?;
        system::read_memory(address, &mut bytes).then_some(bytes)
    }

    fn u16(self, at: u32) -> Option<u16> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: u32) -> Option<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    /// The place of the precompiled code's header.
    fn precompiled(self) -> Option<u32> {
        const PE64: u16 = 0x20b;
        let pe = self.u32(0x3c)?;
        let optional = pe.checked_add(24)?;
        let directories = if self.u16(optional)? == PE64 { 112 } else { 96 };
        let managed = self.u32(optional.checked_add(directories + 8 * MANAGED_DIRECTORY as u32)?)?;
        let header = self.u32(managed.checked_add(PRECOMPILED_DIRECTORY as u32)?)?;
        let is_there = managed != 0 && header != 0 && self.u32(header)? == PRECOMPILED;
        is_there.then_some(header)
    }

    /// The place of the manifest's metadata.
    fn manifest(self) -> Option<u32> {
        let header = self.precompiled()?;
        let count = self.u32(header.checked_add(12)?)?.min(MANY);
        for number in 0..count {
            let section = header.checked_add(16 + 12 * number)?;
            if self.u32(section)? == MANIFEST_METADATA {
                return self.u32(section.checked_add(4)?);
            }
        }
        None
    }

    /// How many assemblies metadata refer to.
    fn assembly_refs(self, metadata: u32) -> Option<u32> {
        if self.u32(metadata)? != METADATA {
            return None;
        }
        let length = self.u32(metadata.checked_add(12)?)?;
        let streams = metadata.checked_add(16)?.checked_add(length)?;
        let count = u32::from(self.u16(streams.checked_add(2)?)?).min(MANY);
        let mut at = streams.checked_add(4)?;
        for _ in 0..count {
            let stream = metadata.checked_add(self.u32(at)?)?;
            let name = self.bytes::<4>(at.checked_add(8)?)?;
            if name == *b"#~\0\0" || name == *b"#-\0\0" {
                return self.rows(stream, ASSEMBLY_REF);
            }
            at = self.after_name(at.checked_add(8)?)?;
        }
        None
    }

    /// The place behind a stream's name, which is a multiple of four bytes long.
    fn after_name(self, name: u32) -> Option<u32> {
        for word in 0..8 {
            let at = name.checked_add(4 * word)?;
            if self.bytes::<4>(at)?.contains(&0) {
                return at.checked_add(4);
            }
        }
        None
    }

    /// The number of rows of a table.
    fn rows(self, stream: u32, table: u32) -> Option<u32> {
        let tables = u64::from_le_bytes(self.bytes(stream.checked_add(8)?)?);
        if tables >> table & 1 == 0 {
            return Some(0);
        }
        let before = (tables & ((1 << table) - 1)).count_ones();
        self.u32(stream.checked_add(24 + 4 * before)?)
    }
}

/// Whether precompiled code of the module that is mapped at `base` names assemblies by a manifest of its own. Also
/// false if that could not be read.
pub(super) fn has_references(base: usize) -> bool {
    let image = Image { base };
    let count = image.manifest().and_then(|manifest| image.assembly_refs(manifest));
    count.is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with precompiled code and so many assemblies in the manifest; none without one.
    fn file(assemblies: Option<u32>) -> Vec<u8> {
        let mut file = vec![0; 0x400];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x3c, &0x80_u32.to_le_bytes());
        put(0x80 + 24, &0x20b_u16.to_le_bytes());
        put(0x80 + 24 + 112 + 8 * MANAGED_DIRECTORY, &0x200_u32.to_le_bytes());
        put(0x200 + PRECOMPILED_DIRECTORY, &0x260_u32.to_le_bytes());
        put(0x260, &PRECOMPILED.to_le_bytes());
        put(0x260 + 12, &2_u32.to_le_bytes());
        put(0x260 + 16, &100_u32.to_le_bytes());
        let Some(assemblies) = assemblies else { return file };
        put(0x260 + 28, &MANIFEST_METADATA.to_le_bytes());
        put(0x260 + 32, &0x300_u32.to_le_bytes());
        put(0x300, &METADATA.to_le_bytes());
        put(0x300 + 12, &4_u32.to_le_bytes());
        put(0x300 + 16 + 4 + 2, &2_u16.to_le_bytes());
        put(0x300 + 24 + 8, b"#Strings\0");
        put(0x300 + 24 + 20, &0x60_u32.to_le_bytes());
        put(0x300 + 24 + 28, b"#~\0\0");
        let tables: u64 = 1 | 1 << 2 | u64::from(assemblies > 0) << ASSEMBLY_REF;
        put(0x360 + 8, &tables.to_le_bytes());
        for (at, rows) in [1, 1, assemblies].into_iter().enumerate() {
            put(0x360 + 24 + 4 * at, &rows.to_le_bytes());
        }
        file
    }

    #[test]
    #[cfg_attr(miri, ignore = "it cannot ask the system to read memory")]
    fn manifests_with_references_are_told_from_others() {
        let has = |file: Vec<u8>| has_references(file.as_ptr().addr());
        assert!(has(file(Some(3))));
        assert!(!has(file(Some(0))));
        assert!(!has(file(None)));
        assert!(!has(vec![0; 0x400]) && !has_references(0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it cannot ask the system to read memory")]
    fn files_that_are_damaged_do_no_harm() {
        let whole = file(Some(3));
        for at in 0..whole.len() {
            for value in [0xff, 0x80, 0] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                has_references(damaged.as_ptr().addr());
            }
        }
    }
}
