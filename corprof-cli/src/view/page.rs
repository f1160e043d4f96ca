//! Pages with the moments of a recording, of a bounded size.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::profile;
use crate::recording::picture::Picture;

/// The most bytes of a page, if longer cells help.
const MOST_BYTES: u64 = 15_000_000;

/// Writes the page, with longer cells of time if it is too large and they make it smaller. Answers with its profile.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write(picture: &mut Picture, path: &Path, only_mine: bool) -> anyhow::Result<corprof_export::Profile> {
    let mut last = u64::MAX;
    loop {
        let profile = profile::of(picture, only_mine);
        profile.write(path).context("cannot write the page")?;
        let size = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
        let is_no_help = size > last / 10 * 9;
        if size <= MOST_BYTES || is_no_help || !picture.coarsen() {
            return Ok(profile);
        }
        last = size;
    }
}
