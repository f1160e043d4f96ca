//! The reader of traces on arbitrary bytes: an error or events, no more than the bytes can hold.

#![no_main]

use corprof_nettrace::{Item, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes);
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Event(event) = item {
            let decoded = event.decoded();
            let _ = (event.stack().addresses().count(), event.labels().count(), decoded.fields().count());
        }
    }
    assert!(reader.stats().events <= bytes.len() as u64);
});
