//! The assemblies in a single-file application: the host program with the files behind it, and a list of them at the
//! end.

use std::io::Read;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use flate2::read::DeflateDecoder;

/// The end of the address of the list in the host: the SHA-256 of `.net core bundle\n`.
const SIGNATURE: [u8; 32] = [
    0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32, 0x13, 0xf5, 0xb9,
    0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
];

/// The type of a file that is an assembly.
const ASSEMBLY: u8 = 1;

/// The first version of the format whose list has the places of two files of settings.
const WITH_SETTINGS: u32 = 2;
/// The first version of the format in which files can be compressed.
const WITH_COMPRESSION: u32 = 6;

/// An assembly in an application.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bundled {
    /// Its path in the application.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

/// The assemblies in a program; `None` if it is not a single-file application.
///
/// # Errors
/// If the list or a file is damaged.
pub(super) fn assemblies(program: &[u8]) -> Result<Option<Vec<Bundled>>> {
    let Some(list) = list(program) else { return Ok(None) };
    let mut list = Reader(list);
    let major = list.u32()?;
    let _minor = list.u32()?;
    let count = list.u32()?;
    let _id = list.string()?;
    if major >= WITH_SETTINGS {
        list.bytes(5 * 8)?;
    }
    let mut found = Vec::new();
    for _ in 0..count {
        let offset = list.u64()?;
        let size = list.u64()?;
        let compressed = if major >= WITH_COMPRESSION { list.u64()? } else { 0 };
        let kind = list.bytes(1)?;
        let path = list.string()?;
        if kind != [ASSEMBLY] {
            continue;
        }
        let stored = if compressed == 0 { size } else { compressed };
        let stored = part(program, offset, stored).with_context(|| format!("{path} is not in the program"))?;
        let bytes = if compressed == 0 { stored.to_vec() } else { inflated(stored, size, &path)? };
        found.push(Bundled { path, bytes });
    }
    Ok(Some(found))
}

/// The program from the list on; a host without files has no address of one.
fn list(program: &[u8]) -> Option<&[u8]> {
    let signature = program.windows(SIGNATURE.len()).position(|window| window == SIGNATURE)?;
    let address = program.get(signature.checked_sub(8)?..)?.first_chunk()?;
    let address = usize::try_from(u64::from_le_bytes(*address)).ok().filter(|address| *address != 0)?;
    program.get(address..)
}

fn part(program: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let range = Range { start: usize::try_from(offset).ok()?, end: usize::try_from(offset.checked_add(size)?).ok()? };
    program.get(range)
}

fn inflated(stored: &[u8], size: u64, path: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    DeflateDecoder::new(stored)
        .take(size.saturating_add(1))
        .read_to_end(&mut bytes)
        .with_context(|| format!("{path} cannot be decompressed"))?;
    ensure!(bytes.len() as u64 == size, "{path} is not of the size that the list says");
    Ok(bytes)
}

/// The rest of the list.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count).context("the list of files is cut short")?;
        self.0 = rest;
        Ok(first)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into()?))
    }

    /// A text with its length before it: seven bits in each byte, the lowest first, while the highest bit is set.
    fn string(&mut self) -> Result<String> {
        let mut length = 0;
        for shift in [0, 7, 14] {
            let byte = self.bytes(1)?.first().copied().map_or(0, usize::from);
            length |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(String::from_utf8_lossy(self.bytes(length)?).into_owned());
            }
        }
        anyhow::bail!("a name in the list of files is too long")
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "that is how it fails")]

    use std::io::Write;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;

    fn text(list: &mut Vec<u8>, text: &str) {
        list.push(text.len() as u8);
        list.extend(text.as_bytes());
    }

    /// A host with these files behind it, and one that is not an assembly.
    pub(in crate::il) fn application(major: u32, files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut program = b"\x7fELF the host ".to_vec();
        let address = program.len();
        program.extend([0; 8]);
        program.extend(SIGNATURE);
        let mut list = major.to_le_bytes().to_vec();
        list.extend(0_u32.to_le_bytes());
        list.extend((files.len() as u32 + 1).to_le_bytes());
        text(&mut list, "an id");
        if major >= 2 {
            list.extend([0; 40]);
        }
        for (kind, (path, bytes)) in files.iter().map(|file| (1, *file)).chain([(4, ("App.json", &b"{}"[..]))]) {
            let mut stored = bytes.to_vec();
            if major >= 6 {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(bytes).unwrap();
                stored = encoder.finish().unwrap();
            }
            list.extend((program.len() as u64).to_le_bytes());
            list.extend((bytes.len() as u64).to_le_bytes());
            if major >= 6 {
                list.extend((stored.len() as u64).to_le_bytes());
            }
            list.push(kind);
            text(&mut list, path);
            program.extend(stored);
        }
        let at = program.len() as u64;
        program[address..address + 8].copy_from_slice(&at.to_le_bytes());
        program.extend(list);
        program
    }

    #[test]
    fn assemblies_are_found_in_each_version_of_the_format() {
        for major in [1, 2, 6] {
            let files: [(&str, &[u8]); 2] = [("App.dll", b"one one one one"), ("de/App.resources.dll", b"two")];
            let found = assemblies(&application(major, &files)).unwrap().unwrap();
            let found: Vec<_> = found.iter().map(|file| (&*file.path, &*file.bytes)).collect();
            assert_eq!(found, files, "version {major}");
        }
    }

    #[test]
    fn what_is_no_application_or_damaged_is_said() {
        assert_eq!(assemblies(b"MZ").unwrap(), None);
        // A host that no files were put behind.
        let mut host = vec![0; 64];
        host.extend(SIGNATURE);
        assert_eq!(assemblies(&host).unwrap(), None);
        let whole = application(6, &[("App.dll", &[7; 100])]);
        for length in 0..whole.len() {
            let _ = assemblies(&whole[..length]);
        }
        assert!(assemblies(&whole[..whole.len() - 1]).is_err());
        let mut wrong = whole;
        let at = wrong.windows(8).rposition(|window| window == 100_u64.to_le_bytes()).unwrap();
        wrong[at] = 99;
        assert!(assemblies(&wrong).unwrap_err().to_string().contains("App.dll"));
    }
}
