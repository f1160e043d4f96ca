//! Reads the tables beside this crate's sources.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::Error;

/// Reads a table.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    toml::from_str(&text).map_err(|source| Error::Toml { path: path.to_owned(), source: Box::new(source) })
}
