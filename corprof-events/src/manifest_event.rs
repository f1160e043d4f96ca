//! [`ManifestEvent`]: a row of the runtime's manifest.

use crate::keywords::Keywords;
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
