//! Files that get their names when they are complete.

use std::path::Path;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// A file for what will be `path`, in its folder, with the usual permissions and not those of a temporary file.
///
/// # Errors
/// If the folder cannot be written to.
pub(crate) fn begin(path: &Path) -> Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[cfg(unix)]
    let file =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)).tempfile_in(folder);
    #[cfg(not(unix))]
    let file = NamedTempFile::new_in(folder);
    file.with_context(|| format!("cannot write into {}", folder.display()))
}

/// Gives a complete file its name; one that has it is replaced.
///
/// # Errors
/// If the system refuses.
pub(crate) fn end(file: NamedTempFile, path: &Path) -> Result<()> {
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
