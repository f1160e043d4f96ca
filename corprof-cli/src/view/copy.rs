//! `corprof view FILE -o COPY.nettrace`: a recording in the newest version of the format, with an end if it was cut;
//! compressed or not, by the name of the copy.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use corprof_profilers::is_packed_recording;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{complete, contents};

/// Copies a recording. The copy gets its name when it is complete, so it may be that of the recording.
///
/// # Errors
/// If one cannot be read, or the other not be written.
pub(super) fn write(from: &Path, to: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", to.display());
    let part = complete::begin(to)?;
    let mut file = BufWriter::new(part.as_file());
    let was_cut = if is_packed_recording(to) {
        let (packer, was_cut) = copied(from, to, GzEncoder::new(&mut file, Compression::default()))?;
        packer.finish().with_context(cannot)?;
        was_cut
    } else {
        copied(from, to, &mut file)?.1
    };
    file.flush().with_context(cannot)?;
    drop(file);
    complete::end(part, to)?;
    let end = if was_cut { ", with an end: the recording was cut" } else { "" };
    eprintln!("corprof: wrote {}{end}", to.display());
    Ok(())
}

/// Answers with the sink, and whether the recording was cut.
fn copied<W: Write>(from: &Path, to: &Path, sink: W) -> Result<(W, bool)> {
    corprof_nettrace::copy(contents::of(from)?, sink)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}
