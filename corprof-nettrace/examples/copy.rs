//! Copies a trace of any version into one of version 6, the format of `dotnet-trace collect-linux`. A trace that was
//! cut gets an end, so that others than corprof can open it: `cargo run -p corprof-nettrace --example copy --
//! FROM.nettrace TO.nettrace`.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};

use corprof_nettrace::{Error as ReadError, FormatErrorKind, Item, Reader, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("which trace, and where to?".into());
    };
    copy(File::open(from)?, File::create(to)?)?;
    Ok(())
}

/// Answers with the sink.
pub(crate) fn copy<W: Write>(from: impl Read, to: W) -> Result<W, Box<dyn Error>> {
    let mut reader = Reader::new(from);
    let mut writer = Writer::new(to, reader.trace()?)?;
    let mut last_thread = None;
    loop {
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => {
                writer.copy(&event)?;
                last_thread = Some(event.capture_thread());
            }
            Ok(Some(Item::SequencePoint(point))) => writer.sequence_point(point.ticks)?,
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(ReadError::Format(error)) if error.kind == FormatErrorKind::Truncated => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Of those that were lost at the end, no event tells.
    let lost = reader.stats().lost.saturating_sub(writer.stats().lost);
    if let Some(thread) = last_thread {
        writer.lose(thread, lost.try_into()?)?;
    }
    Ok(writer.finish()?)
}
