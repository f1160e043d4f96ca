//! The decoder on bytes that mean no good: it must answer, and must not take longer than the bytes are.

#![no_main]

use corprof_events::{Description, Event, Provider, Value, private_events, rundown_events, runtime_events};
use libfuzzer_sys::fuzz_target;

fn count(value: Value<'_>) -> usize {
    match value {
        Value::List(list) => 1 + list.iter().map(count).sum::<usize>(),
        Value::Record(record) => 1 + record.fields().map(|(_, value)| count(value)).sum::<usize>(),
        _ => 1,
    }
}

fn look_at(event: &Event<'_>) {
    let values: usize = event.fields().map(|(_, value)| count(value)).sum();
    // A structure in a structure is a value more, sixteen deep at most.
    assert!(values <= 16 * (event.payload().len() + 8), "{values} values");
    let _ = event.fields().map(|(name, value)| name.to_string().len() + value.to_string().len()).sum::<usize>();
    let _ = (event.is_exact(), event.name());
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>, u16, bool)| {
    let (metadata, payload, which, is_64_bit) = input;
    if let Some(description) = Description::read(&metadata) {
        look_at(&Event::described(Provider::of("Fuzz"), &description, &payload, is_64_bit));
    }
    let events = [
(Provider::RUNTIME, runtime_events()), (Provider::RUNDOWN, rundown_events()), (Provider::PRIVATE, private_events()),];
    for (provider, events) in events {
        if let Some(known) = events.get(usize::from(which) % events.len()) {
            look_at(&Event::new(provider, known.id(), known.version(), &payload, is_64_bit));
        }
    }
});
