//! Hostile bytes.

use corprof_events::{
    Description, Event, FieldList, Layout, Provider, Value, private_events, rundown_events, runtime_events, views,
};
use fastrand::Rng;

/// Numbers at which lengths and counts go wrong.
const ODD: [u32; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_fffe, u32::MAX];

/// Changes some bytes, and sometimes the length.
pub(crate) fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..5) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes[at] = rng.u8(..),
            3 => {
                let number = ODD[rng.usize(..ODD.len())].to_le_bytes();
                bytes.iter_mut().skip(at).zip(number).for_each(|(to, from)| *to = from);
            }
            _ => {
                let filler = vec![rng.u8(..); rng.usize(..12)];
                bytes.splice(at..at, filler);
            }
        }
    }
}

/// A payload with small numbers and texts in it, as most have.
pub(crate) fn payload(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(..40) {
        match rng.u8(..4) {
            0 => bytes.extend(rng.u32(..5).to_le_bytes()),
            1 => bytes.extend(rng.u64(..).to_le_bytes()),
            2 => bytes.extend([b'a', 0, b'b', 0, 0, 0]),
            _ => bytes.extend(rng.u16(..3).to_le_bytes()),
        }
    }
    bytes
}

/// A description of fields, in one of the layouts, with objects and arrays in it.
pub(crate) fn description(rng: &mut Rng, layout: Layout) -> Vec<u8> {
    let mut bytes = Vec::new();
    let count = rng.u16(1..5);
    match layout {
        Layout::V6 => bytes.extend(count.to_le_bytes()),
        _ => bytes.extend(u32::from(count).to_le_bytes()),
    }
    for index in 0..count {
        let ty = described_type(rng, layout, 3);
        let name = [b'f', 0, b'0' + index as u8, 0, 0, 0];
        match layout {
            Layout::V1 => bytes.extend([&ty[..], &name].concat()),
            Layout::V2 => {
                bytes.extend((4 + name.len() as u32 + ty.len() as u32).to_le_bytes());
                bytes.extend([&name[..], &ty].concat());
            }
            Layout::V6 => {
                bytes.extend((3 + ty.len() as u16).to_le_bytes());
                bytes.extend([&[2, b'f', b'0' + index as u8][..], &ty].concat());
            }
        }
    }
    bytes
}

fn described_type(rng: &mut Rng, layout: Layout, depth: u32) -> Vec<u8> {
    let code = |code: u32| if layout == Layout::V6 { vec![code as u8] } else { code.to_le_bytes().to_vec() };
    match rng.u8(..6) {
        0 if depth > 0 => [code(1), description(rng, layout)].concat(),
        1 if depth > 0 && layout != Layout::V1 => [code(19), described_type(rng, layout, depth - 1)].concat(),
        2 if depth > 0 && layout == Layout::V6 => {
            [code(22), described_type(rng, layout, depth - 1), vec![rng.u8(1..4), 0]].concat()
        }
        _ => code([3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18][rng.usize(..16)]),
    }
}

/// A whole description, as a profiler gets it.
pub(crate) fn metadata(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.u32(..20).to_le_bytes().to_vec();
    bytes.extend([b'E', 0, 0, 0]);
    bytes.extend([0; 16]);
    if rng.bool() {
        bytes.extend(description(rng, Layout::V1));
    } else {
        let fields = description(rng, Layout::V2);
        bytes.extend([0; 4]);
        bytes.extend((fields.len() as u32).to_le_bytes());
        bytes.push(2);
        bytes.extend(fields);
    }
    bytes
}

/// Looks at everything, and answers with how many values there were.
pub(crate) fn look_at(event: &Event<'_>) -> u64 {
    let shown = event.name().to_string().len() + event.fields().map(|(name, _)| name.to_string().len()).sum::<usize>();
    std::hint::black_box((shown, event.is_exact(), event.field("Count"), event.field("f1")));
    event.fields().map(|(_, value)| values(value)).sum()
}

fn values(value: Value<'_>) -> u64 {
    std::hint::black_box((value.as_u64(), value.as_i64(), value.as_f64()));
    match value {
        Value::List(list) => list.iter().map(values).sum(),
        Value::Record(record) => record.fields().map(|(_, value)| values(value)).sum(),
        Value::Text(text) => text.chars().count().min(1) as u64,
        other => other.to_string().len().min(1) as u64,
    }
}

/// Decodes the payload as everything that there is.
pub(crate) fn decode(metadata: &[u8], payload: &[u8]) -> u64 {
    let mut found = 0;
    for is_64_bit in [true, false] {
        for (provider, events) in [
            (Provider::RUNTIME, runtime_events()),
            (Provider::RUNDOWN, rundown_events()),
            (Provider::PRIVATE, private_events()),
        ] {
            // A few, from somewhere: all of them every time would take long.
            for known in events.iter().skip(payload.len() % 7).step_by(7) {
                let event = Event::new(provider, known.id(), known.version(), payload, is_64_bit);
                found += look_at(&event);
                typed(&event);
            }
        }
        if let Some(description) = Description::read(metadata) {
            found += look_at(&Event::described(Provider::of("Somebody"), &description, payload, is_64_bit));
        }
    }
    for layout in [Layout::V1, Layout::V2, Layout::V6] {
        let fields = FieldList::kept(layout, metadata);
        let event = Event::new(Provider::of("Kept"), 1, 0, payload, true).with_description("Kept", Some(fields));
        // The fields have not been checked, so that there may be billions of nothing.
        found += event.fields().take(100).count() as u64;
    }
    if let Some((fields, _)) = FieldList::read_v6(metadata) {
        let event = Event::new(Provider::of("Six"), 1, 0, payload, true).with_description("Six", Some(fields));
        found += look_at(&event);
    }
    found
}

fn typed(event: &Event<'_>) {
    if let Ok(types) = event.decode::<views::BulkType<'_>>() {
        let parameters = |entry: views::BulkTypeEntry<'_>| entry.type_parameters.take(1000).count();
        std::hint::black_box(types.values.map(parameters).sum::<usize>());
    }
    if let Ok(nodes) = event.decode::<views::GcBulkNode<'_>>() {
        assert!(nodes.values.count() <= event.payload().len());
    }
    if let Ok(fields) = event.decode::<views::GcBulkRootStaticVar<'_>>() {
        assert!(fields.values.count() <= event.payload().len());
    }
    let _ = std::hint::black_box(event.decode::<views::ModuleLoad<'_>>().map(|module| module.il_path.to_string()));
    let _ = std::hint::black_box(event.decode::<views::GcGlobalHeapHistory<'_>>().map(|history| history.reason));
}
