//! The headers of events: as they are, and compressed against the event before.

use crate::bytes::{Cursor, Malformed};
use crate::encode;

/// The header of an event, or of a definition in versions 4 and 5.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) metadata_id: u32,
    pub(crate) sequence: u32,
    pub(crate) thread: u64,
    pub(crate) capture_thread: u64,
    pub(crate) processor: u32,
    pub(crate) stack: u32,
    pub(crate) ticks: u64,
    /// Versions 4 and 5.
    pub(crate) activity: [u8; 16],
    /// Versions 4 and 5.
    pub(crate) related_activity: [u8; 16],
    /// Version 6.
    pub(crate) labels: u32,
    pub(crate) is_sorted: bool,
    pub(crate) payload_size: u32,
}

/// How the headers of a block are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) is_compressed: bool,
    pub(crate) is_v6: bool,
}

/// Which groups of fields a compressed header has.
mod has {
    pub(super) const METADATA_ID: u8 = 1;
    pub(super) const CAPTURE: u8 = 1 << 1;
    pub(super) const THREAD: u8 = 1 << 2;
    pub(super) const STACK: u8 = 1 << 3;
    /// In version 6 the label list.
    pub(super) const ACTIVITY: u8 = 1 << 4;
    pub(super) const RELATED_ACTIVITY: u8 = 1 << 5;
    pub(super) const IS_SORTED: u8 = 1 << 6;
    pub(super) const PAYLOAD_SIZE: u8 = 1 << 7;
}

/// This bit of an uncompressed metadata id says that the event is *not* sorted (runtime, `ep-block.c`; the document
/// leaves open which way round it is).
const IS_UNSORTED: u32 = 1 << 31;

impl Header {
    /// Reads the header at the front of `cursor`, which follows `self`, and moves on to the payload. Answers with how
    /// many bytes follow the header up to the next event.
    #[inline]
    pub(crate) fn read_next(&mut self, cursor: &mut Cursor<'_>, encoding: Encoding) -> Result<usize, Malformed> {
        if encoding.is_compressed {
            self.read_compressed(cursor, encoding.is_v6)?;
            usize::try_from(self.payload_size).map_err(|_| Malformed)
        } else {
            self.read_whole(cursor, encoding.is_v6)
        }
    }

    #[inline]
    fn read_compressed(&mut self, cursor: &mut Cursor<'_>, is_v6: bool) -> Result<(), Malformed> {
        let flags = cursor.u8()?;
        if flags & has::METADATA_ID != 0 {
            self.metadata_id = cursor.varuint32()?;
        }
        if flags & has::CAPTURE != 0 {
            self.sequence = self.sequence.wrapping_add(cursor.varuint32()?);
            self.capture_thread = cursor.varuint64()?;
            self.processor = cursor.varuint32()?;
        }
        if is_v6 || self.metadata_id != 0 {
            self.sequence = self.sequence.wrapping_add(1);
        }
        if flags & has::THREAD != 0 {
            self.thread = cursor.varuint64()?;
        }
        if flags & has::STACK != 0 {
            self.stack = cursor.varuint32()?;
        }
        self.ticks = self.ticks.wrapping_add(cursor.varuint64()?);
        if flags & has::ACTIVITY != 0 {
            if is_v6 {
                self.labels = cursor.varuint32()?;
            } else {
                self.activity = cursor.array()?;
            }
        }
        if flags & has::RELATED_ACTIVITY != 0 && !is_v6 {
            self.related_activity = cursor.array()?;
        }
        self.is_sorted = flags & has::IS_SORTED != 0;
        if flags & has::PAYLOAD_SIZE != 0 {
            self.payload_size = cursor.varuint32()?;
        }
        Ok(())
    }

    /// Appends it as it follows `before` in a compressed block of version 6.
    pub(crate) fn write_next(&self, before: &Self, out: &mut Vec<u8>) {
        let number = self.sequence.wrapping_sub(before.sequence).wrapping_sub(1);
        let has_capture =
            number != 0 || (self.capture_thread, self.processor) != (before.capture_thread, before.processor);
        let groups = [
            (has::METADATA_ID, self.metadata_id != before.metadata_id),
            (has::CAPTURE, has_capture),
            (has::THREAD, self.thread != before.thread),
            (has::STACK, self.stack != before.stack),
            (has::ACTIVITY, self.labels != before.labels),
            (has::IS_SORTED, self.is_sorted),
            (has::PAYLOAD_SIZE, self.payload_size != before.payload_size),
        ];
        let flags = groups.into_iter().filter(|(_, is_there)| *is_there).fold(0, |flags, (flag, _)| flags | flag);
        out.push(flags);
        if flags & has::METADATA_ID != 0 {
            encode::varuint(out, self.metadata_id.into());
        }
        if has_capture {
            encode::varuint(out, number.into());
            encode::varuint(out, self.capture_thread);
            encode::varuint(out, self.processor.into());
        }
        if flags & has::THREAD != 0 {
            encode::varuint(out, self.thread);
        }
        if flags & has::STACK != 0 {
            encode::varuint(out, self.stack.into());
        }
        encode::varuint(out, self.ticks.wrapping_sub(before.ticks));
        if flags & has::ACTIVITY != 0 {
            encode::varuint(out, self.labels.into());
        }
        if flags & has::PAYLOAD_SIZE != 0 {
            encode::varuint(out, self.payload_size.into());
        }
    }

    fn read_whole(&mut self, cursor: &mut Cursor<'_>, is_v6: bool) -> Result<usize, Malformed> {
        let size = cursor.count()?;
        let before = cursor.rest().len();
        let metadata_id = cursor.u32()?;
        self.metadata_id = metadata_id & !IS_UNSORTED;
        self.is_sorted = metadata_id & IS_UNSORTED == 0;
        self.sequence = cursor.u32()?;
        self.thread = cursor.u64()?;
        self.capture_thread = cursor.u64()?;
        self.processor = cursor.u32()?;
        self.stack = cursor.u32()?;
        self.ticks = cursor.u64()?;
        if is_v6 {
            self.labels = cursor.u32()?;
        } else {
            self.activity = cursor.array()?;
            self.related_activity = cursor.array()?;
        }
        self.payload_size = cursor.u32()?;
        let read = before - cursor.rest().len();
        let rest = size.checked_sub(read).ok_or(Malformed)?;
        if rest < usize::try_from(self.payload_size).map_err(|_| Malformed)? {
            return Err(Malformed);
        }
        // Blocks begin at a multiple of 4 in the file, and so does each event in them; the writer may or may not count
        // the padding as part of the event, and the last event may lack it.
        let padding = if is_v6 { 0 } else { (4 - (size + 4) % 4) % 4 };
        Ok((rest + padding).min(cursor.rest().len().max(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPRESSED: Encoding = Encoding { is_compressed: true, is_v6: false };

    #[test]
    fn what_a_compressed_header_leaves_out_is_as_before() {
        let mut header = Header::default();
        let first = [0b1100_1111, 7, 4, 9, 2, 9, 3, 100, 5, b'a'];
        let mut cursor = Cursor::new(&first);
        assert_eq!(header.read_next(&mut cursor, COMPRESSED), Ok(5));
        assert_eq!(cursor.rest(), b"a");
        let expected = Header {
            metadata_id: 7,
            sequence: 5,
            capture_thread: 9,
            processor: 2,
            thread: 9,
            stack: 3,
            ticks: 100,
            payload_size: 5,
            is_sorted: true,
            ..Header::default()
        };
        assert_eq!(header, expected);
        assert_eq!(header.read_next(&mut Cursor::new(&[0, 11]), COMPRESSED), Ok(5));
        assert_eq!(header, Header { sequence: 6, ticks: 111, is_sorted: false, ..expected });
    }

    #[test]
    fn definitions_are_not_numbered_before_version_6() {
        let mut header = Header::default();
        assert_eq!(header.read_next(&mut Cursor::new(&[0, 0]), COMPRESSED), Ok(0));
        assert_eq!(header.sequence, 0);
        let v6 = Encoding { is_v6: true, ..COMPRESSED };
        assert_eq!(header.read_next(&mut Cursor::new(&[0, 0]), v6), Ok(0));
        assert_eq!(header.sequence, 1);
    }

    #[test]
    fn an_uncompressed_header_is_not_larger_than_its_event() {
        let whole = Encoding { is_compressed: false, is_v6: false };
        let mut bytes = [0; 84];
        bytes[0] = 80;
        assert_eq!(Header::default().read_next(&mut Cursor::new(&bytes), whole), Ok(4));
        bytes[0] = 79;
        assert_eq!(Header::default().read_next(&mut Cursor::new(&bytes), whole), Ok(4), "padded");
        bytes[0] = 75;
        assert_eq!(Header::default().read_next(&mut Cursor::new(&bytes), whole), Err(Malformed));
        bytes[0] = 76;
        bytes[76] = 1;
        assert_eq!(Header::default().read_next(&mut Cursor::new(&bytes), whole), Err(Malformed), "payload");
    }
}
