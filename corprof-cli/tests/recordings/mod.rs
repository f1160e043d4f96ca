//! Recordings that these tests write.

use anyhow::Result;
use corprof_nettrace::events::universal::{Measured, ProcessSymbol};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Metadata, NewEvent, Thread, Trace, UtcTime, Writer};

pub(crate) const MILLISECOND: u64 = 1_000_000;

/// A recording of samples, events of [`Provider::UNIVERSAL_EVENTS`] of this name, each with its time in nanoseconds and
/// its stack. Methods have 256 bytes of code each, and a sample is of a millisecond.
pub(crate) fn of_samples<'a>(
    name: &str,
    methods: &[(u64, &str)],
    samples: impl IntoIterator<Item = (u64, &'a [u64])>,
) -> Result<Vec<u8>> {
    begun_at(5, name, methods, samples)
}

/// The same of a recording that began in a second of 15:04.
pub(crate) fn begun_at<'a>(
    second: u16,
    name: &str,
    methods: &[(u64, &str)],
    samples: impl IntoIterator<Item = (u64, &'a [u64])>,
) -> Result<Vec<u8>> {
    let began = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second, millisecond: 6 };
    let mut trace = Trace::new(began, 0, 1_000 * MILLISECOND);
    trace.properties.push(("ExpectedCPUSamplingRate".to_owned(), MILLISECOND.to_string()));
    if name == Measured::WAIT {
        // Only corprof writes these.
        trace.properties.push(("SamplingMode".to_owned(), "wall".to_owned()));
    }
    let mut writer = Writer::new(Vec::new(), &trace)?;
    let cpu = Metadata::new(1, Provider::UNIVERSAL_EVENTS.name(), 1, name).with_fields(Measured::fields());
    let system = Provider::UNIVERSAL_SYSTEM.name();
    let symbol = Metadata::new(2, system, ProcessSymbol::ID, ProcessSymbol::NAME).with_fields(ProcessSymbol::fields());
    writer.define_event(&cpu)?;
    writer.define_event(&symbol)?;
    writer.define_thread(&Thread::new(1))?;
    for (id, (start_address, name)) in (1..).zip(methods.iter().copied()) {
        let mut payload = Vec::new();
        let end_address = start_address + 0xff;
        ProcessSymbol { id, mapping_id: 0, start_address, end_address, name: Text::from(name) }.write(&mut payload)?;
        let mut event = NewEvent::new(2, 1, 0);
        event.payload = &payload;
        writer.write(&event)?;
    }
    let mut payload = Vec::new();
    Measured { value: 1 }.write(&mut payload);
    for (at, stack) in samples {
        let mut event = NewEvent::new(1, 1, at);
        event.payload = &payload;
        event.stack = stack;
        writer.write(&event)?;
    }
    Ok(writer.finish()?)
}
