//! The runtime's events, as its manifest has them.

use crate::generated::events::{PRIVATE, RUNDOWN, RUNTIME, SAMPLE_PROFILER};
use crate::manifest_event::ManifestEvent;
use crate::provider::Manifest;
use crate::universal_rows::UNIVERSAL_SYSTEM;

/// The events of the runtime, by number and version.
#[must_use]
pub fn runtime_events() -> &'static [ManifestEvent] {
    RUNTIME
}

/// The events of the runtime's rundown, by number and version.
#[must_use]
pub fn rundown_events() -> &'static [ManifestEvent] {
    RUNDOWN
}

/// The events of the runtime's private provider, by number and version.
#[must_use]
pub fn private_events() -> &'static [ManifestEvent] {
    PRIVATE
}

/// The events of the runtime's sampler, by number and version.
#[must_use]
pub fn sample_profiler_events() -> &'static [ManifestEvent] {
    SAMPLE_PROFILER
}

/// Above all numbers of events.
const NUMBERS: usize = 512;

/// Where in a list of events, sorted by number, those of each number begin; one more, where the last end.
const fn starts(events: &[ManifestEvent]) -> [u16; NUMBERS + 1] {
    let mut starts = [0; NUMBERS + 1];
    let mut number = 0;
    let mut at = 0;
    while number <= NUMBERS {
        while at < events.len() && (events[at].id as usize) < number {
            at += 1;
        }
        starts[number] = at as u16;
        number += 1;
    }
    starts
}

static RUNTIME_NUMBERS: [u16; NUMBERS + 1] = starts(RUNTIME);
static RUNDOWN_NUMBERS: [u16; NUMBERS + 1] = starts(RUNDOWN);
static PRIVATE_NUMBERS: [u16; NUMBERS + 1] = starts(PRIVATE);
static SAMPLE_PROFILER_NUMBERS: [u16; NUMBERS + 1] = starts(SAMPLE_PROFILER);
static UNIVERSAL_SYSTEM_NUMBERS: [u16; NUMBERS + 1] = starts(UNIVERSAL_SYSTEM);

/// The event in this version, or in the newest before it: newer ones have more fields at their end.
pub(crate) fn event(manifest: Manifest, id: u32, version: u32) -> Option<&'static ManifestEvent> {
    let (events, starts) = match manifest {
        Manifest::Runtime => (RUNTIME, &RUNTIME_NUMBERS),
        Manifest::Rundown => (RUNDOWN, &RUNDOWN_NUMBERS),
        Manifest::Private => (PRIVATE, &PRIVATE_NUMBERS),
        Manifest::SampleProfiler => (SAMPLE_PROFILER, &SAMPLE_PROFILER_NUMBERS),
        Manifest::UniversalSystem => (UNIVERSAL_SYSTEM, &UNIVERSAL_SYSTEM_NUMBERS),
        // These describe themselves.
        Manifest::UniversalEvents | Manifest::None => return None,
    };
    let number = usize::try_from(id).ok()?;
    let start = *starts.get(number)?;
    let end = *starts.get(number + 1)?;
    let versions = events.get(start.into()..end.into())?;
    versions.iter().rev().find(|event| u32::from(event.version) <= version)
}
