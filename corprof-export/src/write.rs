//! From a profile to bytes, in the format that a file's name asks for, and from bytes to a file.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{Error, Format, Profile, firefox, flame_graph, folded, html, pprof, speedscope};

impl Format {
    /// The format that the name of a file asks for; upper and lower case are the same.
    ///
    /// # Errors
    /// [`Error::UnknownExtension`], which lists the known ones, and [`Error::TraceOfSamples`] for `.trace.json`.
    pub fn of_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if name.ends_with(".trace.json") || name.ends_with(".trace.json.gz") {
            return Err(Error::TraceOfSamples { path: path.to_owned() });
        }
        Self::of_name(&name).ok_or_else(|| Error::UnknownExtension { path: path.to_owned() })
    }
}

impl Profile {
    /// Writes the profile in the format that the extension of the path asks for, and says which that was.
    ///
    /// # Errors
    /// If the extension is unknown, or the file cannot be written; a file that was there is then as it was.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Format, Error> {
        let path = path.as_ref();
        let format = Format::of_path(path)?;
        replace(path, |file| self.write_to(format, file))?;
        Ok(format)
    }

    /// Writes the profile in a format of your choice. The writer is best buffered.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, format: Format, writer: impl std::io::Write) -> std::io::Result<()> {
        encode(self, format, writer)
    }
}

/// Writes `profile` in `format`.
fn encode(profile: &Profile, format: Format, writer: impl Write) -> io::Result<()> {
    match format {
        Format::Html => html::write(profile, writer),
        Format::FlameGraph => flame_graph::write(profile, writer),
        Format::Folded => folded::write(profile, writer),
        Format::Speedscope => speedscope::write(profile, writer),
        Format::SpeedscopeGz => compressed(writer, |writer| speedscope::write(profile, writer)),
        Format::Pprof => compressed(writer, |writer| pprof::write(profile, writer)),
        Format::Firefox => firefox::write(profile, writer),
        Format::FirefoxGz => compressed(writer, |writer| firefox::write(profile, writer)),
    }
}

fn compressed<W: Write>(
    writer: W,
    content: impl FnOnce(&mut BufWriter<GzEncoder<W>>) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(GzEncoder::new(writer, Compression::default()));
    content(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?.flush()
}

/// Writes a file beside `path`, and puts it there once it is whole.
pub(crate) fn replace(path: &Path, content: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> Result<(), Error> {
    let create = |source| Error::Create { path: path.to_owned(), source };
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut options = tempfile::Builder::new();
    options.prefix(".corprof-");
    if let Some(permissions) = permissions() {
        options.permissions(permissions);
    }
    let file = options.tempfile_in(folder).map_err(create)?;
    let mut writer = BufWriter::new(file.as_file());
    content(&mut writer).and_then(|()| writer.flush()).map_err(failed)?;
    drop(writer);
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Those of any new file, from which the system takes the user's umask; a temporary file would be its owner's alone.
fn permissions() -> Option<Permissions> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    #[cfg(not(unix))]
    None
}
