//! Parts of documents that are written by `cargo xtask generate`. Each stands between two marks.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use corprof_profilers::table;

const END: &str = "<!-- end -->\n";

/// The reference of the settings of the built-in profilers, and the mark before it.
const SETTINGS: &str = "book/src/variables.md";
const SETTINGS_BEGIN: &str = "<!-- begin: the built-in profilers, by `cargo xtask generate` -->\n";

/// Writes the part of a document that begins with the line `begin`; with `check`, fails if it differs. `source` says
/// what it is made from.
///
/// # Errors
/// If the document cannot be read or written, or lacks the marks.
pub(crate) fn write_part(
    root: &Path,
    document: &str,
    begin: &str,
    part: &str,
    source: &str,
    check: bool,
) -> Result<()> {
    let path = root.join(document);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {document}"))?;
    let (before, rest) = text.split_once(begin).with_context(|| format!("{document} has no line {begin}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{document} has no line {END}"))?;
    let new = format!("{before}{begin}{part}{END}{after}");
    if check {
        ensure!(new == text, "the part of {document} differs from {source}: run `cargo xtask generate`");
        return Ok(());
    }
    fs::write(&path, new).with_context(|| format!("cannot write {document}"))
}

/// Writes the settings of the built-in profilers into the book.
pub(crate) fn write_settings(root: &Path, check: bool) -> Result<()> {
    write_part(root, SETTINGS, SETTINGS_BEGIN, &table::markdown(), "profilers/src/table/rows.rs", check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::workspace_root;

    #[test]
    fn the_book_has_the_settings_of_the_table() {
        write_settings(workspace_root(), true).unwrap();
    }
}
