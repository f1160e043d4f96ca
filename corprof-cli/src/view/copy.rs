//! `corprof view FILE -o COPY.nettrace`: a recording in the newest version of the format, with an end if it was cut.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::complete;
use crate::recording::bytes;

/// Whether the file to write is a recording.
pub(super) fn is_recording(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("nettrace"))
}

/// Copies a recording. The copy gets its name when it is complete, so it may be that of the recording.
///
/// # Errors
/// If one cannot be read, or the other not be written.
pub(super) fn write(from: &Path, to: &Path) -> Result<()> {
    let source = bytes(from)?;
    let part = complete::begin(to)?;
    let (mut writer, was_cut) = corprof_nettrace::copy(source, BufWriter::new(part.as_file()))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    writer.flush().with_context(|| format!("cannot write {}", to.display()))?;
    drop(writer);
    complete::end(part, to)?;
    let end = if was_cut { ", with an end: the recording was cut" } else { "" };
    eprintln!("corprof: wrote {}{end}", to.display());
    Ok(())
}
