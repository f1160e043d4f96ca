//! Reads and writes snapshots, in the format of the file's extension.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use corprof_heap::report::{Options, Report};
use corprof_heap::{Dominators, HeapGraph, chrome, gcdump, perfetto};

use crate::complete;
use crate::options::Names;

/// The format of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Own,
    Perfetto,
    GcDump,
    Chrome,
    Html,
    Json,
    Text,
}

impl Format {
    /// By the extension of the file.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        Ok(match extension.as_deref() {
            Some("heap") => Self::Own,
            Some("pftrace" | "perfetto-trace") => Self::Perfetto,
            Some("gcdump") => Self::GcDump,
            Some("heapsnapshot") => Self::Chrome,
            Some("html") => Self::Html,
            Some("json") => Self::Json,
            Some("txt") => Self::Text,
            _ => bail!(
                "{}: its name does not say how to write it: use .heap, .pftrace, .gcdump, .heapsnapshot, .html, .json or .txt",
                path.display()
            ),
        })
    }
}

/// Reads a snapshot.
pub(super) fn read(path: &Path) -> Result<HeapGraph> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    HeapGraph::read(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// Writes a snapshot. The file gets its name when it is complete.
pub(super) fn write(graph: &HeapGraph, path: &Path, pid: u32, names: Names) -> Result<()> {
    let format = Format::of(path)?;
    let file = complete::begin(path)?;
    let mut out = BufWriter::new(file);
    write_to(graph, format, pid, names, &mut out).with_context(|| format!("cannot write {}", path.display()))?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    complete::end(file, path)?;
    eprintln!("corprof: wrote {}", path.display());
    Ok(())
}

fn write_to(graph: &HeapGraph, format: Format, pid: u32, names: Names, out: &mut impl Write) -> Result<()> {
    if format == Format::Own {
        graph.write(&mut *out)?;
        return Ok(out.flush()?);
    }
    let tree = Dominators::of(graph);
    let report = || Report::of(&tree, Options::default(), &names.of_heap(graph.classes()));
    match format {
        Format::Own => {}
        Format::Perfetto => perfetto::write(&tree, pid, &mut *out)?,
        Format::GcDump => {
            let written = gcdump::write(&tree, pid, &mut *out)?;
            if written.clamped > 0 {
                eprintln!("corprof: {} objects are larger than the format can say", written.clamped);
            }
        }
        Format::Chrome => {
            let written = chrome::write(&tree, chrome::DEFAULT_CAP, &mut *out)?;
            if written.left_out > 0 {
                eprintln!("corprof: {} objects are summed up in their owners, for the viewer's sake", written.left_out);
            }
        }
        Format::Html => report().write_html(&mut *out)?,
        Format::Json => report().write_json(&mut *out)?,
        Format::Text => report().write_text(&mut *out)?,
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how() {
        assert_eq!(Format::of(Path::new("a/b.HEAP")).unwrap(), Format::Own);
        assert_eq!(Format::of(Path::new("x.heapsnapshot")).unwrap(), Format::Chrome);
        let error = Format::of(Path::new("x.zip")).unwrap_err().to_string();
        assert!(error.contains(".gcdump"), "{error}");
    }
}
