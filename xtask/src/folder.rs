//! Archives of runtimes and compilers in a folder: `$CORPROF_RUNTIMES`, else `../shared/runtimes` beside the
//! repository.
//!
//! .NET 10 is in no registry that our package clients reach, so users provide it in this folder: each entry is either
//! `NAME.tar.xz`, with its checksum in `SHA256SUMS`, or an unpacked folder `NAME`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::cargo::workspace_root;
use crate::process::{self, announce, env_path};
use crate::tools::{self, Packages};
use crate::wheel::sha256;

const VARIABLE: &str = "CORPROF_RUNTIMES";
const CHECKSUMS: &str = "SHA256SUMS";

const TAR: Packages = Packages { what: "tar and xz, which unpack .NET", names: &["tar", "xz-utils"] };

/// A folder of archives.
#[derive(Debug, Clone, PartialEq)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// This machine's folder, if it has one.
    #[must_use]
    pub fn find() -> Option<Self> {
        let beside = || workspace_root().parent().map(|parent| parent.join("shared").join("runtimes"));
        env_path(VARIABLE).or_else(beside).filter(|path| path.is_dir()).map(|path| Self { path })
    }

    /// Whether it has the entry `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.path.join(name).is_dir() || self.archive(name).is_file()
    }

    fn archive(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.tar.xz"))
    }

    /// The content of the entry `name`, unpacked into `cache` if it is an archive.
    ///
    /// # Errors
    /// If there is no such entry, its checksum is wrong, or it cannot be unpacked.
    pub fn unpack(&self, name: &str, cache: &Cache) -> Result<PathBuf> {
        let unpacked = self.path.join(name);
        if unpacked.is_dir() {
            return Ok(unpacked);
        }
        let archive = self.archive(name);
        let expected = self.checksum(&archive)?;
        let entry = entry(name, &expected);
        let folder = cache.install(&entry, |content| {
            announce(format_args!("Unpacking {} into {}", archive.display(), cache.path(&entry).display()));
            extract(&archive, &expected, content)
        })?;
        Ok(folder.join(name))
    }

    /// The content of the entry `name`, which is an archive, laid over a copy of the folder `under` in `cache`.
    ///
    /// # Errors
    /// As [`unpack`](Self::unpack), or if the folder cannot be copied.
    pub fn unpack_over(&self, name: &str, under: &Path, cache: &Cache) -> Result<PathBuf> {
        let archive = self.archive(name);
        let expected = self.checksum(&archive)?;
        let entry = entry(name, &expected);
        let folder = cache.install(&entry, |content| {
            let shown = (archive.display(), under.display(), cache.path(&entry));
            announce(format_args!("Unpacking {} over a copy of {} into {}", shown.0, shown.1, shown.2.display()));
            process::run_as_progress(Command::new("cp").arg("-r").arg(under).arg(content.join(name)))
                .with_context(|| format!("cannot copy {} (is the disk full?)", under.display()))?;
            extract(&archive, &expected, content)
        })?;
        Ok(folder.join(name))
    }

    /// The checksum of `archive` in `SHA256SUMS`.
    fn checksum(&self, archive: &Path) -> Result<String> {
        let list = self.path.join(CHECKSUMS);
        let text = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        let line = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
        let sum = line.map(|(sum, file)| (sum, file.trim_start_matches([' ', '*']))).find(|(_, file)| *file == name);
        sum.map(|(sum, _)| sum.to_lowercase()).with_context(|| format!("{} does not name {name}", list.display()))
    }
}

/// The name in the cache of an archive with this checksum: another archive with the same name gets an entry of its own.
fn entry(name: &str, checksum: &str) -> String {
    format!("{name}-{}", checksum.get(..12).unwrap_or(checksum))
}

/// Unpacks `archive`, whose checksum is `expected`, into `content`.
fn extract(archive: &Path, expected: &str, content: &Path) -> Result<()> {
    tools::ensure_programs(&["tar", "xz"], &TAR)?;
    let found = sha256(archive)?;
    ensure!(
        found == expected,
        "{} is not the file that {CHECKSUMS} beside it names\n  SHA-256 expected: {expected}\n  SHA-256 found:    {found}",
        archive.display()
    );
    let mut tar = Command::new("tar");
    // The modes in the archive apply for all users; its owners do not.
    tar.args(["--no-same-owner", "-xf"]).arg(archive).arg("-C").arg(content);
    process::run_as_progress(&mut tar)
        .with_context(|| format!("cannot unpack {} (is the disk full?)", archive.display()))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn folder_with_archive() -> (tempfile::TempDir, Folder, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let (path, cache) = (dir.path().join("in"), Cache::at(&dir.path().join("cache")).unwrap());
        fs::create_dir_all(path.join("made/thing")).unwrap();
        fs::write(path.join("made/thing/file"), "content").unwrap();
        let made =
            Command::new("tar").args(["-cJf", "thing.tar.xz", "-C", "made", "thing"]).current_dir(&path).status();
        assert!(made.unwrap().success());
        (dir, Folder { path }, cache)
    }

    #[test]
    fn an_archive_is_checked_and_unpacked_once() {
        let (_dir, folder, cache) = folder_with_archive();
        let sum = sha256(&folder.archive("thing")).unwrap();
        fs::write(folder.path.join(CHECKSUMS), format!("0123  other.tar.xz\n{sum}  thing.tar.xz\n")).unwrap();
        assert!(folder.has("thing") && !folder.has("other"));
        let unpacked = folder.unpack("thing", &cache).unwrap();
        assert_eq!(fs::read_to_string(unpacked.join("file")).unwrap(), "content");
        fs::write(folder.archive("thing"), "not read again").unwrap();
        assert_eq!(folder.unpack("thing", &cache).unwrap(), unpacked);
    }

    #[test]
    fn an_archive_is_laid_over_a_copy() {
        let (dir, folder, cache) = folder_with_archive();
        let sum = sha256(&folder.archive("thing")).unwrap();
        fs::write(folder.path.join(CHECKSUMS), format!("{sum}  thing.tar.xz\n")).unwrap();
        let under = dir.path().join("under");
        fs::create_dir_all(under.join("kept")).unwrap();
        fs::write(under.join("file"), "replaced").unwrap();
        let laid = folder.unpack_over("thing", &under, &cache).unwrap();
        assert_eq!(fs::read_to_string(laid.join("file")).unwrap(), "content");
        assert!(laid.join("kept").is_dir());
        assert_eq!(fs::read_to_string(under.join("file")).unwrap(), "replaced");
    }

    #[test]
    fn a_wrong_checksum_is_an_error_with_both() {
        let (_dir, folder, cache) = folder_with_archive();
        fs::write(folder.path.join(CHECKSUMS), "0123456789abcdef  thing.tar.xz\n").unwrap();
        let error = format!("{:#}", folder.unpack("thing", &cache).unwrap_err());
        assert!(error.contains("0123456789abcdef") && error.contains("found"), "{error}");
        fs::write(folder.path.join(CHECKSUMS), "").unwrap();
        assert!(folder.unpack("thing", &cache).unwrap_err().to_string().contains("does not name thing.tar.xz"));
    }
}
