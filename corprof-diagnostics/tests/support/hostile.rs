//! Hostile bytes: mutations of valid ones, made from a seed.

use std::hint::black_box;

use corprof_diagnostics::ipc::{self, Advertise, HEADER_SIZE, Header};
use corprof_diagnostics::nettrace::{Item, Limits, Reader};
use corprof_diagnostics::{Environment, ProcessInfo};
use fastrand::Rng;

use super::{Bytes, v4, v6};

/// Numbers at which lengths and counts go wrong.
const ODD: [u32; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX];

/// Traces of all versions.
pub(crate) fn traces() -> Vec<Vec<u8>> {
    vec![v4::sample(4), v4::sample(5), v6::sample()]
}

/// Messages of runtimes, with the bytes that follow them.
pub(crate) fn messages() -> Vec<Vec<u8>> {
    let text = |bytes: Bytes, text: &str| bytes.u32(text.len() as u32 + 1).utf16z(text);
    let texts = ["dotnet App.dll", "Linux", "x64", "App", "8.0.4", "linux-x64"];
    let info = Bytes::default().u32(1).u64(4711).bytes([7; 16]);
    let info = texts.into_iter().fold(info, text).0;
    let environment = ["A=1", "PATH=/bin", "=C:=C:"].into_iter().fold(Bytes::default().u32(3), text).0;
    let advertise = Bytes::default().bytes(b"ADVR_V1\0").bytes([7; 16]).u64(4711).u16(0).0;
    let ok = ipc::encode(ipc::Command::OK, &info).unwrap_or_default();
    let error = ipc::encode(ipc::Command::ERROR, &[0x85, 0x13, 0x13, 0x80]).unwrap_or_default();
    vec![info, environment, advertise, ok, error]
}

/// A few changes to one of the seeds, sometimes with a part of another.
pub(crate) fn mutated(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[rng.usize(..seeds.len())].clone();
    for _ in 0..rng.usize(1..6) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..9) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes[at] = rng.u8(..),
            3 | 4 => {
                let number = ODD[rng.usize(..ODD.len())].to_le_bytes();
                let width = [1, 2, 3, 4][rng.usize(..4)];
                bytes.iter_mut().skip(at).zip(number.into_iter().take(width)).for_each(|(to, from)| *to = from);
            }
            5 => {
                let end = (at + rng.usize(1..16)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let extra = rng.usize(1..16);
                let filler = rng.u8(..);
                bytes.splice(at..at, std::iter::repeat_n(filler, extra));
            }
            7 => {
                let end = (at + rng.usize(1..200)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let other = &seeds[rng.usize(..seeds.len())];
                bytes.truncate(at);
                bytes.extend(&other[rng.usize(..other.len())..]);
            }
        }
    }
    bytes
}

/// Reads a trace to its end or to its error, and looks at all of each event. Answers with how many events there were.
pub(crate) fn read_trace(bytes: &[u8], limits: Limits) -> u64 {
    let mut reader = Reader::with_limits(bytes, limits);
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Event(event) = item {
            let frames: u64 = event.stack().addresses().fold(0, u64::wrapping_add);
            let labels = event.labels().count();
            let ids = (event.activity(), event.related_activity(), event.os_thread_id(), event.process_id());
            let metadata = (&event.metadata().provider, event.thread_info());
            let decoded = event.decoded();
            black_box((decoded.name().is_empty(), decoded.fields().count(), decoded.is_exact()));
            black_box((frames, labels, ids, metadata, event.since_start(), event.payload().len()));
        }
    }
    // An event takes at least two bytes, so there is no end to reading only if there is none to the source.
    let events = reader.stats().events;
    assert!(events <= bytes.len() as u64, "{events} events in {} bytes", bytes.len());
    events
}

/// Decodes as every message that there is. Answers with how many it is.
pub(crate) fn decode_message(bytes: &[u8]) -> u64 {
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
