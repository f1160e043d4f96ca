//! The decoders of messages on arbitrary bytes: an error or a message, no longer than the bytes.

#![no_main]

use corprof_diagnostics::ipc::{self, Advertise, HEADER_SIZE, Header};
use corprof_diagnostics::{Environment, ProcessInfo, ProcessInfoVersion};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for version in [ProcessInfoVersion::V1, ProcessInfoVersion::V2, ProcessInfoVersion::V3] {
        let _ = ProcessInfo::decode(bytes, version).map(|info| info.clr_major());
    }
    if let Ok(environment) = Environment::decode(bytes) {
        assert!(environment.iter().count() <= bytes.len());
    }
    if let Some(bytes) = bytes.first_chunk() {
        let _ = Advertise::decode(bytes);
    }
    if let Some((header, payload)) = bytes.split_first_chunk::<HEADER_SIZE>()
        && let Ok(header) = Header::decode(header)
    {
        assert!(header.payload_size <= ipc::MAX_MESSAGE);
        let _ = ipc::reply(header.command, payload);
    }
});
