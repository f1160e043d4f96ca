//! Blocks of a dump in a file.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::BlockSink;

/// Collected before they go to the file: some blocks.
const BUFFER: usize = 256 << 10;

/// The longest block that is read: the runtime's are of at most 64 KB.
const LONGEST: u32 = 1 << 24;

/// Writes the blocks of a dump into a file as they come.
///
/// The file is for [`read`](Self::read) in the same version of corprof: each block with its event and its length,
/// without the names of classes. Values of fields are blocks of the event [`FIELDS`](Self::FIELDS).
#[derive(Debug)]
pub struct BlockFile {
    out: BufWriter<File>,
}

impl BlockFile {
    /// The event of a block with the values of one object's fields, which is no event of the runtime: numbers of eight
    /// bytes each, the number of its [`FieldsOf`](super::FieldsOf), its address, and the values.
    pub const FIELDS: u16 = u16::MAX;

    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(File::create(path)?))
    }

    /// Writes into a file that is open, from where it stands.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { out: BufWriter::with_capacity(BUFFER, file) }
    }

    /// Calls `block` with the event and the payload of each block of a file, in their order.
    ///
    /// # Errors
    /// Those of the system. `UnexpectedEof` or `InvalidData`: the file is cut or no such file.
    pub fn read(path: &Path, mut block: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        let mut payload = Vec::new();
        loop {
            let mut header = [0; 6];
            match file.read(&mut header[..1])? {
                0 => return Ok(()),
                _ => file.read_exact(&mut header[1..])?,
            }
            let [low, high, length @ ..] = header;
            let length = u32::from_le_bytes(length);
            if length > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file of a heap dump's blocks"));
            }
            payload.resize(length as usize, 0);
            file.read_exact(&mut payload)?;
            block(u16::from_le_bytes([low, high]), &payload);
        }
    }
}

impl BlockSink for BlockFile {
    fn block(&mut self, event: u16, payload: &[u8]) -> io::Result<()> {
        self.out.write_all(&event.to_le_bytes())?;
        self.out.write_all(&(payload.len() as u32).to_le_bytes())?;
        self.out.write_all(payload)
    }

    fn fields(&mut self, of: usize, object: u64, values: &[u64]) -> io::Result<()> {
        let length = (2 + values.len()) * size_of::<u64>();
        self.out.write_all(&Self::FIELDS.to_le_bytes())?;
        self.out.write_all(&(length as u32).to_le_bytes())?;
        self.out.write_all(&(of as u64).to_le_bytes())?;
        self.out.write_all(&object.to_le_bytes())?;
        values.iter().try_for_each(|value| self.out.write_all(&value.to_le_bytes()))
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_back_its_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blocks");
        let mut file = BlockFile::create(&path).unwrap();
        let written = [(18, vec![7; 64_000]), (16, Vec::new()), (u16::MAX, vec![1])];
        for (event, payload) in &written {
            file.block(*event, payload).unwrap();
        }
        file.end().unwrap();
        let mut read = Vec::new();
        BlockFile::read(&path, |event, payload| read.push((event, payload.to_vec()))).unwrap();
        assert_eq!(read, written);

        let bytes = std::fs::read(&path).unwrap();
        for length in [1, 5, 7, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let error = BlockFile::read(&path, |_, _| {}).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}");
        }
        std::fs::write(&path, [255; 100]).unwrap();
        assert_eq!(BlockFile::read(&path, |_, _| {}).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
