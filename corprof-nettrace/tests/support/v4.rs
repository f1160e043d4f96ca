//! Traces of versions 4 and 5, as `NetTraceFormat_v5.md` of microsoft/perfview describes them.

use super::{Bytes, FREQUENCY, START, utc};

/// A trace up to its first block.
pub(crate) fn start(version: u32, pointer_size: u32) -> Bytes {
    let bytes = Bytes::default().bytes("Nettrace").u32(20).bytes("!FastSerialization.1");
    let bytes = type_of(bytes, "Trace", version, 4);
    let bytes = bytes.bytes(utc().0).u64(START).u64(FREQUENCY).u32(pointer_size);
    // Process, processors, sampling rate.
    bytes.u32(4711).u32(8).u32(0).u8(6)
}

fn type_of(bytes: Bytes, name: &str, version: u32, needs: u32) -> Bytes {
    bytes.u8(5).u8(5).u8(1).u32(version).u32(needs).u32(name.len() as u32).bytes(name).u8(6)
}

/// Appends a block.
pub(crate) fn block(bytes: Bytes, name: &str, contents: &Bytes) -> Bytes {
    block_needing(bytes, name, 2, contents)
}

/// Appends a block that a reader of this version is needed for.
pub(crate) fn block_needing(bytes: Bytes, name: &str, needs: u32, contents: &Bytes) -> Bytes {
    let mut bytes = type_of(bytes, name, needs, needs).u32(contents.0.len() as u32);
    while !bytes.0.len().is_multiple_of(4) {
        bytes = bytes.u8(0);
    }
    bytes.bytes(&contents.0).u8(6)
}

/// The end of a trace.
pub(crate) fn end(bytes: Bytes) -> Vec<u8> {
    bytes.u8(1).0
}

/// The header of a block of events or definitions.
pub(crate) fn events(compressed: bool) -> Bytes {
    Bytes::default().u16(24).u16(compressed.into()).u64(START).u64(START + 100).bytes(*b"more")
}

/// A compressed event with all its fields.
pub(crate) struct Event<'a> {
    pub(crate) metadata: u32,
    /// After the number of the event before in the block.
    pub(crate) skipped: u32,
    pub(crate) thread: u64,
    pub(crate) stack: u32,
    /// After the event before in the block.
    pub(crate) ticks: u64,
    pub(crate) payload: &'a [u8],
}

pub(crate) const ACTIVITY: [u8; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl Event<'_> {
    pub(crate) fn compressed(&self, bytes: Bytes) -> Bytes {
        let bytes = bytes.u8(0b1101_1111).varuint(self.metadata.into());
        let bytes = bytes.varuint(self.skipped.into()).varuint(self.thread).varuint(3);
        let bytes = bytes.varuint(self.thread).varuint(self.stack.into()).varuint(self.ticks);
        bytes.bytes(ACTIVITY).varuint(self.payload.len() as u64).bytes(self.payload)
    }

    /// Here `skipped` is the number of the event, and `ticks` its time.
    pub(crate) fn whole(&self, bytes: Bytes, is_sorted: bool) -> Bytes {
        let unsorted = if is_sorted { 0 } else { 1 << 31 };
        let event = Bytes::default().u32(self.metadata | unsorted).u32(self.skipped).u64(self.thread).u64(self.thread);
        let event = event.u32(3).u32(self.stack).u64(self.ticks).bytes(ACTIVITY).bytes([0; 16]);
        let event = event.u32(self.payload.len() as u32).bytes(self.payload);
        let mut bytes = bytes.u32(event.0.len() as u32).bytes(event.0);
        while !bytes.0.len().is_multiple_of(4) {
            bytes = bytes.u8(0);
        }
        bytes
    }
}

/// A definition in a block of definitions: a compressed event of the number 0.
pub(crate) fn definition(bytes: Bytes, definition: &Bytes) -> Bytes {
    bytes.u8(0b1000_0000).varuint(0).varuint(definition.0.len() as u64).bytes(&definition.0)
}

/// A definition up to its fields.
pub(crate) fn definition_of(id: u32, provider: &str, event: u32, name: &str) -> Bytes {
    Bytes::default().u32(id).utf16z(provider).u32(event).utf16z(name).u64(0x10).u32(2).u32(4)
}

/// Fields of the first layout.
pub(crate) fn simple_fields(bytes: Bytes) -> Bytes {
    // A number; an object of a string and a GUID.
    let bytes = bytes.u32(2).u32(9).utf16z("Number");
    bytes.u32(1).u32(2).u32(18).utf16z("Text").u32(17).utf16z("Id").utf16z("Inner")
}

/// The tags of version 5: an opcode, and an array in the second layout.
pub(crate) fn tags(bytes: Bytes) -> Bytes {
    let array = Bytes::default().utf16z("Numbers").u32(19).u32(10);
    let number = Bytes::default().utf16z("Number").u32(9).bytes([0; 3]);
    let fields = [array, number]
        .into_iter()
        .fold(Bytes::default().u32(2), |fields, field| fields.u32(field.0.len() as u32 + 4).bytes(field.0));
    let bytes = bytes.u32(0).u32(1).u8(1).u8(7).u32(2).u8(99).bytes([0; 2]);
    bytes.u32(fields.0.len() as u32).u8(2).bytes(fields.0)
}

/// Stacks of a block, from the number 1 on.
pub(crate) fn stacks(stacks: &[&[u64]]) -> Bytes {
    let bytes = Bytes::default().u32(1).u32(stacks.len() as u32);
    stacks.iter().fold(bytes, |bytes, stack| {
        stack.iter().fold(bytes.u32(stack.len() as u32 * 8), |bytes, address| bytes.u64(*address))
    })
}

/// A sequence point with threads and the numbers that they have reached.
pub(crate) fn sequence_point(ticks: u64, threads: &[(u64, u32)]) -> Bytes {
    let bytes = Bytes::default().u64(ticks).u32(threads.len() as u32);
    threads.iter().fold(bytes, |bytes, (thread, number)| bytes.u64(*thread).u32(*number))
}

/// A trace with a block of each kind.
pub(crate) fn sample(version: u32) -> Vec<u8> {
    let first = simple_fields(definition_of(1, "Test-Provider", 5, "First"));
    let second = definition_of(2, "Test-Provider", 6, "Second");
    let second = if version >= 5 { tags(second) } else { second.u32(0) };
    let definitions = definition(definition(events(true), &first), &second);
    let event =
        |metadata, skipped, thread, stack, payload| Event { metadata, skipped, thread, stack, ticks: 10, payload };
    let block_of_events = event(1, 0, 77, 2, &[1, 2, 3]).compressed(events(true));
    // As the event before, ten ticks later.
    let block_of_events = block_of_events.u8(0).varuint(10).bytes([4, 5, 6]);
    let block_of_events = event(2, 0, 78, 1, &[]).compressed(block_of_events);
    let bytes = block(start(version, 8), "MetadataBlock", &definitions);
    let bytes = block(bytes, "StackBlock", &stacks(&[&[0x1234], &[0x10, u64::MAX]]));
    let bytes = block(bytes, "EventBlock", &block_of_events);
    let bytes = block(bytes, "SPBlock", &sequence_point(START + 200, &[(77, 4), (78, 3)]));
    let later = event(1, 5, 77, 1, &[9]);
    let bytes = block(bytes, "EventBlock", &Event { ticks: START + 300, ..later }.whole(events(false), true));
    let bytes = block_needing(bytes, "NewBlock", 9, &Bytes::default().bytes([1; 30]));
    end(bytes)
}
