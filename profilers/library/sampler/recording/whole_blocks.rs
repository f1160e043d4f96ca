//! The file that the blocks of a recording go to, as they are or compressed.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::mem;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A file that has whole blocks only: what there is no room for is cut off.
pub(super) struct WholeBlocks {
    file: File,
    length: u64,
    /// Compresses what goes to the file, if that is wanted. It begins with the file, as later blocks are like earlier
    /// ones.
    packer: Option<GzEncoder<Vec<u8>>>,
}

impl WholeBlocks {
    /// The end of a trace: a block of this kind, without contents.
    const END: [u8; 4] = [0; 4];

    pub(super) fn new(file: File, is_packed: bool) -> Self {
        let packer = is_packed.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { file, length: 0, packer }
    }

    /// The bytes of the file.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Ends a file after a failure, so that all readers take it. That may fail, too: then it is a cut one. So is a
    /// compressed one, as what follows would refer to what is missing.
    pub(super) fn end(&mut self) {
        if self.packer.is_none() {
            let _ = self.append(&Self::END);
        }
    }

    /// Ends the file of a trace that has its end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let Some(packer) = self.packer.take() else { return Ok(()) };
        let rest = packer.finish()?;
        self.append(&rest)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // Whether that succeeds or not, the error is the one to tell.
            let _ = self.file.set_len(self.length);
            let _ = self.file.seek(SeekFrom::Start(self.length));
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl Write for WholeBlocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(packer) = &mut self.packer else { return self.append(bytes) };
        packer.write_all(bytes)?;
        // A reader of a file that is cut here gets these blocks.
        packer.flush()?;
        let packed = mem::take(packer.get_mut());
        self.append(&packed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn what_a_compressed_file_has_so_far_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.nettrace.gz");
        let mut blocks = WholeBlocks::new(File::create_new(&path).unwrap(), true);
        let block = vec![7; 10_000];
        for count in 1..=3 {
            blocks.write_all(&block).unwrap();
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, blocks.length());
            assert!(bytes.len() < 1_000, "{} bytes", bytes.len());
            let mut read = vec![0; count * block.len()];
            let mut unpacker = GzDecoder::new(&bytes[..]);
            unpacker.read_exact(&mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == 7));
            let end = unpacker.read(&mut [0]).unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "it is cut");
        }
        blocks.finish().unwrap();
        let mut read = Vec::new();
        GzDecoder::new(File::open(&path).unwrap()).read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 3 * block.len());
    }
}
