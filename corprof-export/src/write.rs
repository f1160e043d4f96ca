//! From a profile to bytes, and from bytes to a file.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{Error, Format, Profile, firefox, flame_graph, folded, html, pprof, speedscope};

/// Writes `profile` in `format`.
pub(crate) fn encode(profile: &Profile, format: Format, writer: impl Write) -> io::Result<()> {
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
