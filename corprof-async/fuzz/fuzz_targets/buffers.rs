//! Arbitrary bytes as buffers, one after the other: each two bytes of length come before a buffer, whose sizes are made
//! to agree.

#![no_main]

use corprof_async::{Decoder, LogicalStacks, Waits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = Decoder::new();
    let mut stacks = LogicalStacks::new();
    let mut waits = Waits::new(1000, 1000);
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (part, next) = after.split_at(length);
        rest = next;
        let size = (part.len() as u32 + 5).to_le_bytes();
        let payload = [&size[..], &[1], &size, part].concat();
        let Ok(buffer) = decoder.decode(&payload) else { continue };
        assert!(buffer.sub_events().count() <= payload.len());
        stacks.take_buffer(&buffer, buffer.end(), |step| waits.push(step, drop));
        let _ = stacks.active(buffer.stream().thread, buffer.end());
        let _ = stacks.creators(1);
        stacks.release(buffer.start());
    }
    waits.release(u64::MAX, drop);
});
