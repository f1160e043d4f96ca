//! `facts.toml`: facts that the inputs cannot state.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::Error;

/// The table; the file explains its parts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// First release with an interface.
    pub since: BTreeMap<String, String>,
    /// Enumerations whose values are combined, with the reason.
    pub bitflags: BTreeMap<String, String>,
    /// Enumerations that are unsigned, with the reason.
    pub unsigned: BTreeMap<String, String>,
    /// Types of other APIs, with the reason.
    pub opaque: BTreeMap<String, String>,
    /// Declarations that give way to `supplement.idl`, with the reason.
    pub superseded: BTreeMap<String, String>,
    /// COM's result codes.
    pub hresults: BTreeMap<String, u32>,
    /// Windows error numbers.
    pub win32: BTreeMap<String, u32>,
}

impl Facts {
    /// Reads the table.
    pub fn read(path: &Path) -> Result<Self, Error> {
        crate::tables::read_toml(path)
    }
}
