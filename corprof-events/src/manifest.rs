//! The runtime's events, as its manifest has them.

use crate::generated::events::{PRIVATE, RUNDOWN, RUNTIME, SAMPLE_PROFILER};
use crate::keywords::Keywords;
use crate::provider::Manifest;
use crate::types::ManifestField;

/// An event of the runtime, in one version.
#[derive(Debug)]
pub struct ManifestEvent {
    pub(crate) id: u16,
    pub(crate) version: u8,
    pub(crate) level: u8,
    pub(crate) keywords: u64,
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [ManifestField],
}

impl ManifestEvent {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id.into()
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version.into()
    }

    /// How important it is, from 1 (critical) to 5 (verbose); 0 where sessions of all levels get it.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level.into()
    }

    /// The groups that it belongs to. Those of the other providers than the runtime's main one have other meanings.
    #[must_use]
    pub fn keywords(&self) -> Keywords {
        Keywords::from_bits(self.keywords)
    }

    /// Its name, such as `GCStart`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The names of its fields.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name).filter(|name| !name.is_empty())
    }
}

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

/// The event in this version, or in the newest before it: newer ones have more fields at their end.
pub(crate) fn event(manifest: Manifest, id: u32, version: u32) -> Option<&'static ManifestEvent> {
    let (events, starts) = match manifest {
        Manifest::Runtime => (RUNTIME, &RUNTIME_NUMBERS),
        Manifest::Rundown => (RUNDOWN, &RUNDOWN_NUMBERS),
        Manifest::Private => (PRIVATE, &PRIVATE_NUMBERS),
        Manifest::SampleProfiler => (SAMPLE_PROFILER, &SAMPLE_PROFILER_NUMBERS),
        Manifest::None => return None,
    };
    let number = usize::try_from(id).ok()?;
    let start = *starts.get(number)?;
    let end = *starts.get(number + 1)?;
    let versions = events.get(start.into()..end.into())?;
    versions.iter().rev().find(|event| u32::from(event.version) <= version)
}
