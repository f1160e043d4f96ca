//! What is in a file that the user names, or comes by standard input: compressed or not.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;

/// What a compressed file begins with.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether standard input is meant.
pub(crate) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file, or standard input for `-`.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn of(path: &Path) -> Result<Box<dyn Read>> {
    let cannot = || format!("cannot read {}", path.display());
    if is_standard_input(path) {
        return unpacked(io::stdin().lock()).with_context(cannot);
    }
    File::open(path).and_then(unpacked).with_context(cannot)
}

fn unpacked(mut source: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut head = Vec::new();
    source.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;
    let is_packed = head == GZIP;
    let whole = Cursor::new(head).chain(source);
    if is_packed {
        return Ok(Box::new(Unpacked(MultiGzDecoder::new(whole))));
    }
    Ok(Box::new(whole))
}

/// Ends where a file that is cut does: whoever reads the contents sees that these are.
struct Unpacked<R>(R);

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        unpacked(Cursor::new(bytes))?.read_to_end(&mut contents)?;
        Ok(contents)
    }

    #[test]
    fn compressed_files_are_read_up_to_their_end_or_cut() {
        let text: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&text).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(read(packed.clone()).unwrap(), text);
        assert_eq!(read(text.clone()).unwrap(), text);
        assert!(read(Vec::new()).unwrap().is_empty());
        let twice = [&packed[..], &packed[..]].concat();
        assert_eq!(read(twice).unwrap().len(), 2 * text.len(), "files may be appended to each other");
        for length in (2..packed.len()).step_by(997) {
            let part = read(packed[..length].to_vec()).unwrap();
            assert!(text.starts_with(&part) && part.len() < text.len(), "cut at {length}");
        }
        let mut damaged = packed.clone();
        damaged[packed.len() / 2..].fill(0xff);
        read(damaged).unwrap_err();
    }
}
