//! What attached profilers share: the files by which they report to the command `corprof` that has attached them.

use std::path::{Path, PathBuf};

/// The file of this process that belongs to `out`: with the process id and an ending.
pub(crate) fn of_process(out: &Path, ending: &str) -> PathBuf {
    with_ending(out, &format!(".{}{ending}", std::process::id()))
}

pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Writes a file and renames it into place, so that it is complete as soon as it exists. If the folder is gone, so is
/// the reader. Whether it is there; otherwise that is said.
pub(crate) fn write(profiler: &str, file: &Path, text: &str) -> bool {
    let part = with_ending(file, ".part");
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, file));
    if let Err(error) = written
        && file.parent().is_some_and(Path::is_dir)
    {
        report!("{profiler}: {}: {error}", file.display());
        return false;
    }
    true
}
