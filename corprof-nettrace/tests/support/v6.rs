//! Traces of version 6, as `NetTraceFormat.md` of microsoft/perfview describes them.

use super::{Bytes, FREQUENCY, START, utc};

pub(crate) const TRACE: u8 = 1;
pub(crate) const EVENTS: u8 = 2;
pub(crate) const METADATA: u8 = 3;
pub(crate) const SEQUENCE_POINT: u8 = 4;
pub(crate) const STACKS: u8 = 5;
pub(crate) const THREADS: u8 = 6;
pub(crate) const REMOVED_THREADS: u8 = 7;
pub(crate) const LABELS: u8 = 8;

pub(crate) fn header(major: u32, minor: u32) -> Bytes {
    Bytes::default().bytes("Nettrace").u32(0).u32(major).u32(minor)
}

pub(crate) fn block(bytes: Bytes, kind: u8, contents: &Bytes) -> Bytes {
    bytes.u32(contents.0.len() as u32 | u32::from(kind) << 24).bytes(&contents.0)
}

pub(crate) fn trace() -> Bytes {
    let bytes = utc().u64(START).u64(FREQUENCY).u32(4).u32(3);
    bytes.utf8("ProcessId").utf8("4711").utf8("HardwareThreadCount").utf8("16").utf8("Host").utf8("größer")
}

pub(crate) fn threads() -> Bytes {
    let named = Bytes::default().varuint(1).u8(1).utf8("main").u8(2).varuint(9000).u8(3).varuint(300);
    let other = Bytes::default().varuint(2).u8(4).utf8("kind").utf8("fiber").u8(200).bytes([1, 2, 3]);
    Bytes::default().sized16(named).sized16(other)
}

/// A definition with types of version 6 and all options.
pub(crate) fn metadata() -> Bytes {
    let field = |name: &str, ty: &[u8]| Bytes::default().utf8(name).bytes(ty);
    let inner = Bytes::default().u16(1).sized16(field("Deep", &[6])).0;
    let fields = [
        field("Count", &[21]),
        field("Numbers", &[19, 9]),
        field("Four", &[22, 23, 4, 0]),
        field("Where", &[24, 8]),
        field("Inner", &[&[1][..], &inner].concat()).bytes([0xee; 3]),
    ];
    let row = Bytes::default().varuint(1).utf8("Test-Provider").varuint(5).utf8("First");
    let row = fields.into_iter().fold(row.u16(5), Bytes::sized16);
    let options = Bytes::default().u8(1).u8(7).u8(3).u64(0x10).u8(4).utf8("{0}").u8(5).utf8("What it is");
    let options = options.u8(6).utf8("k").utf8("v").u8(7).bytes([1; 16]).u8(8).u8(4).u8(9).u8(2);
    let row = row.sized16(options).bytes([0xdd; 5]);
    // Its fields have a type of a later version.
    let later = Bytes::default().varuint(2).utf8("Test-Provider").varuint(6).utf8("").u16(1);
    let later = later.sized16(field("x", &[99])).u16(0);
    Bytes::default().sized16(Bytes::default().bytes([1, 2, 3])).sized16(row).sized16(later)
}

pub(crate) fn stacks() -> Bytes {
    Bytes::default().u32(1).u32(2).u32(4).u32(0x1234).u32(8).u32(0x10).u32(u32::MAX)
}

pub(crate) fn labels() -> Bytes {
    let first = Bytes::default().u32(1).u32(2).u8(1).bytes([7; 16]).u8(2).bytes([8; 16]).u8(3).bytes([9; 16]);
    let first = first.u8(4).u64(5).u8(5).utf8("user").utf8("ann").u8(0x80 | 6).utf8("try").varuint(3);
    first.u8(7).u8(1).u8(8).u64(2).u8(9).u8(3).u8(0x80 | 10).u8(4)
}

/// A compressed event with all fields.
pub(crate) fn event(
    bytes: Bytes,
    metadata: u64,
    skipped: u64,
    thread: u64,
    stack: u64,
    labels: u64,
    payload: &[u8],
) -> Bytes {
    let bytes = bytes.u8(0b1101_1111).varuint(metadata).varuint(skipped).varuint(thread).varuint(5);
    let bytes = bytes.varuint(thread).varuint(stack).varuint(10).varuint(labels);
    bytes.varuint(payload.len() as u64).bytes(payload)
}

pub(crate) fn events(compressed: bool) -> Bytes {
    Bytes::default().u16(20).u16(compressed.into()).u64(START).u64(START + 100)
}

pub(crate) fn sequence_point(flags: u32, threads: &[(u64, u64)]) -> Bytes {
    let bytes = Bytes::default().u64(START + 200).u32(flags).u32(threads.len() as u32);
    threads.iter().fold(bytes, |bytes, (thread, number)| bytes.varuint(*thread).varuint(*number))
}

/// A trace with a block of each kind.
pub(crate) fn sample() -> Vec<u8> {
    let bytes = block(header(6, 3), TRACE, &trace());
    let bytes = block(bytes, THREADS, &threads());
    let bytes = block(bytes, METADATA, &metadata());
    let bytes = block(bytes, STACKS, &stacks());
    let bytes = block(bytes, LABELS, &labels());
    let first = event(events(true), 1, 0, 1, 2, 1, &[1, 2, 3]).u8(0).varuint(10).bytes([4, 5, 6]);
    let bytes = block(bytes, EVENTS, &event(first, 2, 0, 2, 0, 2, b"?"));
    let bytes = block(bytes, 77, &Bytes::default().bytes([1; 30]));
    let bytes = block(bytes, SEQUENCE_POINT, &sequence_point(0, &[(1, 4)]));
    let whole = Bytes::default().u32(1).u32(5).u64(1).u64(1).u32(2).u32(1).u64(START + 300).u32(0).u32(3).bytes("abc");
    let bytes = block(bytes, EVENTS, &events(false).u32(whole.0.len() as u32).bytes(whole.0));
    let bytes = block(bytes, REMOVED_THREADS, &Bytes::default().varuint(2).varuint(6));
    let bytes = block(bytes, SEQUENCE_POINT, &sequence_point(3, &[]));
    block(bytes, 0, &Bytes::default()).0
}
