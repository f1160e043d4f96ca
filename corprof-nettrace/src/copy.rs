//! Copies of whole traces.

use std::io::{Read, Write};

use crate::{Error, FormatErrorKind, Item, Reader, WriteError, Writer};

/// Why a trace is not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] Error),

    /// The copy cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Copies a trace of any version into one of version 6, the format of `dotnet-trace collect-linux`. Answers with the
/// sink, and whether the trace was cut: the copy has what came before, and an end, so that others than corprof can open
/// it.
///
/// # Errors
/// If it is no trace, or damaged, or the copy cannot be written.
///
/// ```no_run
/// # use std::fs::File;
/// let (_, was_cut) = corprof_nettrace::copy(File::open("cut.nettrace")?, File::create("whole.nettrace")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy<W: Write>(from: impl Read, to: W) -> Result<(W, bool), CopyError> {
    let mut reader = Reader::new(from);
    let mut writer = Writer::new(to, reader.trace()?)?;
    let mut last_thread = None;
    let was_cut = loop {
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => {
                writer.copy(&event)?;
                last_thread = Some(event.capture_thread());
            }
            Ok(Some(Item::SequencePoint(point))) => writer.sequence_point(point.ticks)?,
            Ok(None) => break false,
            Err(Error::Format(error)) if error.kind == FormatErrorKind::Truncated => break true,
            Err(error) => return Err(error.into()),
        }
    };
    // Of those that were lost at the end, no event tells.
    let lost = reader.stats().lost.saturating_sub(writer.stats().lost);
    if let Some(thread) = last_thread {
        writer.lose(thread, u32::try_from(lost).unwrap_or(u32::MAX))?;
    }
    Ok((writer.finish()?, was_cut))
}
