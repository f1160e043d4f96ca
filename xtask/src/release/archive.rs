//! Archives, and the checksums of files.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::system::System;
use crate::cargo::workspace_root;
use crate::process;
use crate::wheel;

/// A file in an archive.
#[derive(Clone)]
pub(super) struct Entry {
    /// Its path in the archive.
    pub(super) name: String,
    pub(super) content: Vec<u8>,
    /// Whether it can be started.
    pub(super) is_program: bool,
}

impl Entry {
    pub(super) fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }
}

/// The name of the archive for `system`.
pub(super) fn name(system: System, version: &str) -> String {
    let suffix = if system == System::WinX64 { "zip" } else { "tar.gz" };
    format!("{}.{suffix}", folder(system, version))
}

/// The folder in the archive.
fn folder(system: System, version: &str) -> String {
    format!("corprof-{version}-{}", system.name())
}

/// Writes the archive of `entries` into the folder `out`.
pub(super) fn write(system: System, version: &str, entries: &[Entry], out: &Path) -> Result<PathBuf> {
    let path = out.join(name(system, version));
    let folder = folder(system, version);
    let inside = entries.iter().map(|entry| (format!("{folder}/{}", entry.name), entry));
    let content = if system == System::WinX64 { zipped(inside) } else { tarred(inside) };
    let content = content.with_context(|| format!("cannot pack {}", path.display()))?;
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn tarred<'e>(entries: impl Iterator<Item = (String, &'e Entry)>) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let time = time_of_commit();
    for (name, entry) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.content.len() as u64);
        header.set_mode(entry.mode());
        header.set_mtime(time);
        tar.append_data(&mut header, name, &entry.content[..])?;
    }
    Ok(tar.into_inner()?.finish()?)
}

/// A zip file of `entries` by their paths.
pub(super) fn zipped<'e>(entries: impl Iterator<Item = (String, &'e Entry)>) -> Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, entry) in entries {
        // Without a time: the same files make the same archive.
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        zip.start_file(name, options.unix_permissions(entry.mode()))?;
        zip.write_all(&entry.content)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// The time of the commit in seconds since 1970, so that the same sources make the same archive; 0 outside a
/// repository.
pub(super) fn time_of_commit() -> u64 {
    let mut git = Command::new("git");
    let time = process::output(git.args(["log", "-1", "--format=%ct"]).current_dir(workspace_root()));
    time.ok().and_then(|time| time.trim().parse().ok()).unwrap_or(0)
}

/// A line for each file, as `sha256sum` writes them.
pub(super) fn checksums(files: &[PathBuf]) -> Result<String> {
    let mut lines = String::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        lines += &format!("{}  {name}\n", wheel::sha256(file)?);
    }
    Ok(lines)
}

/// Unpacks `archive` into the empty folder `into` by the program that a user would use.
#[cfg(test)]
fn unpack(archive: &Path, into: &Path) {
    let mut tar = Command::new("tar");
    process::output(tar.arg("-xzf").arg(archive).arg("-C").arg(into)).unwrap();
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    fn entries() -> Vec<Entry> {
        vec![
            Entry { name: "corprof".into(), content: b"program".to_vec(), is_program: true },
            Entry { name: "README.md".into(), content: b"text".to_vec(), is_program: false },
        ]
    }

    #[test]
    fn an_archive_unpacks_to_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let archive = write(System::LinuxX64, "1.2.3", &entries(), dir.path()).unwrap();
        assert!(archive.ends_with("corprof-1.2.3-linux-x64.tar.gz"), "{}", archive.display());
        unpack(&archive, dir.path());
        let folder = dir.path().join("corprof-1.2.3-linux-x64");
        assert_eq!(fs::read(folder.join("corprof")).unwrap(), b"program");
        assert_eq!(fs::read(folder.join("README.md")).unwrap(), b"text");
        assert!(process::is_executable(&folder.join("corprof")) && !process::is_executable(&folder.join("README.md")));
    }

    #[test]
    fn windows_gets_a_zip() {
        let dir = tempfile::tempdir().unwrap();
        let archive = write(System::WinX64, "1.2.3", &entries(), dir.path()).unwrap();
        let mut zip = zip::ZipArchive::new(File::open(archive).unwrap()).unwrap();
        let mut text = String::new();
        zip.by_name("corprof-1.2.3-win-x64/README.md").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((zip.len(), text.as_str()), (2, "text"));
    }

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        fs::write(&file, "abc").unwrap();
        let sums = checksums(&[file]).unwrap();
        assert_eq!(sums, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n");
    }
}
