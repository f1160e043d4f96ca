//! Hostile messages give errors: no panic, no end of memory, no hang. `corprof-diagnostics/fuzz` searches for longer.

use std::hint::black_box;

use corprof_diagnostics::ipc::{self, Advertise, HEADER_SIZE, Header};
use corprof_diagnostics::{Environment, ProcessInfo};
use fastrand::Rng;
use mutated::mutated;

#[path = "../../corprof-nettrace/tests/support/mutated.rs"]
mod mutated;

const CASES: u64 = 50_000;

#[test]
fn mutated_messages_are_decoded_or_refused() {
    let seeds = messages();
    let mut rng = Rng::with_seed(16);
    let mut good = 0;
    for _ in 0..CASES {
        good += decode_message(&mutated(&mut rng, &seeds));
    }
    assert!(good > CASES / 10, "{good} good ones in all");
}

/// Messages of runtimes, with the bytes that follow them.
fn messages() -> Vec<Vec<u8>> {
    let cookie = [7; 16];
    let pid = 4711_u64.to_le_bytes();
    let mut info = [&1_u32.to_le_bytes()[..], &pid, &cookie].concat();
    for value in ["dotnet App.dll", "Linux", "x64", "App", "8.0.4", "linux-x64"] {
        info.extend(text(value));
    }
    let mut environment = 3_u32.to_le_bytes().to_vec();
    for variable in ["A=1", "PATH=/bin", "=C:=C:"] {
        environment.extend(text(variable));
    }
    let advertise = [&b"ADVR_V1\0"[..], &cookie, &pid, &[0, 0]].concat();
    let ok = ipc::encode(ipc::Command::OK, &info).unwrap_or_default();
    let error = ipc::encode(ipc::Command::ERROR, &[0x85, 0x13, 0x13, 0x80]).unwrap_or_default();
    vec![info, environment, advertise, ok, error]
}

/// UTF-16 with a terminating zero, after its length.
fn text(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    let mut bytes = (units.len() as u32).to_le_bytes().to_vec();
    bytes.extend(units.into_iter().flat_map(u16::to_le_bytes));
    bytes
}

/// Decodes as every message that there is. Answers with how many it is.
fn decode_message(bytes: &[u8]) -> u64 {
    let mut good = 0;
    let info = ProcessInfo::decode(bytes);
    good += u64::from(info.is_ok());
    black_box(info.ok().and_then(|info| info.clr_major()));
    if let Ok(environment) = Environment::decode(bytes) {
        good += 1;
        assert!(environment.iter().count() <= bytes.len());
        black_box(environment.get("PATH"));
    }
    if let Some(bytes) = bytes.first_chunk() {
        good += u64::from(Advertise::decode(bytes).is_ok());
    }
    if let Some((header, payload)) = bytes.split_first_chunk::<HEADER_SIZE>()
        && let Ok(header) = Header::decode(header)
    {
        assert!(header.payload_size <= ipc::MAX_MESSAGE);
        good += u64::from(black_box(ipc::reply(header.command, payload)).is_ok());
    }
    good
}
