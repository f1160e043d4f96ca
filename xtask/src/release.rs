//! `cargo xtask release`: builds the command with its profilers for every system, and packs what a release consists of.
//!
//! For each system: the command and the library of the profilers (`build.rs`), checked against what its oldest
//! supported system has (`check.rs`), in an archive with the completions for shells and the manual (`help.rs`) and the
//! licences of all that is linked in (`archive.rs`, `notices.rs`), and as a package for `dotnet tool` (`tool.rs`). The
//! commands for musl are an image for containers as well (`oci.rs`).

mod archive;
mod build;
mod check;
mod help;
mod notices;
mod oci;
mod system;
mod tool;

pub use system::System;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::cache::Cache;
use crate::cargo::{Metadata, workspace_root};
use crate::process::{self, announce, note};
use archive::Entry;
use tool::Tool;

/// The package of the command.
const COMMAND: &str = "corprof-cli";

/// The name of the file with the checksums of all others.
const CHECKSUMS: &str = "SHA256SUMS";

/// Build the command for every system, as archives with checksums, as packages for `dotnet tool`, and as an image for
/// containers.
///
/// On Linux x64. The linker and the C libraries for Linux are Zig's, from PyPI; those for Windows are mingw's. Nothing
/// is published.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The systems to build for; all of them if none is named
    #[arg(value_enum)]
    systems: Vec<System>,
    /// The folder for the files; it is emptied first. By default `release` in cargo's folder `target`
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Build without optimisation: to try this command, not for users
    #[arg(long)]
    dev: bool,
}

impl Args {
    /// For `cargo xtask test --all`: every system, without optimisation.
    pub(crate) fn for_tests() -> Self {
        Self { systems: Vec::new(), out: None, dev: true }
    }
}

/// Runs the command.
///
/// # Errors
/// If a tool is missing, a build fails, or what was built would not work on a system that is supported.
pub fn run(args: &Args) -> Result<ExitCode> {
    let metadata = Metadata::load()?;
    let version = &metadata.package(COMMAND)?.version;
    let systems = if args.systems.is_empty() { System::value_variants() } else { &args.systems };
    let mut systems = systems.to_vec();
    // This machine can start the command for its own system, which writes what the others' archives have as well.
    systems.sort_by_key(|system| *system != System::LinuxX64);
    let out = args.out.clone().unwrap_or_else(|| metadata.target_directory.join("release-files"));
    empty(&out)?;
    let cache = Cache::open()?;
    let mut files = Vec::new();
    let mut help = Vec::new();
    let mut parts = Vec::new();
    for &system in &systems {
        announce(format_args!("Release of corprof {version} for {}", system.name()));
        let built = build::build(system, args.dev, &cache, &metadata.target_directory)?;
        check::check(system, &built, &cache, &metadata.target_directory)?;
        if system == System::LinuxX64 {
            help = help::entries(&built.command)?;
        }
        let mut entries = contents(system, &built)?;
        if oci::architecture(system).is_some() {
            // The library is in the command.
            let entries = entries.iter().filter(|entry| entry.name != system.library()).cloned().collect();
            parts.push(oci::Part { system, entries });
        }
        entries.extend(help.iter().cloned());
        files.push(archive::write(system, version, &entries, &out)?);
        files.push(tool::write(&Tool::of(&metadata, &systems)?, system, &built, &out)?);
    }
    files.push(tool::write_pointer(&Tool::of(&metadata, &systems)?, &out)?);
    if !parts.is_empty() {
        let image = oci::write(&metadata, &parts, &out)?;
        oci::check(&image, &parts, &metadata.target_directory.join("release-check"))?;
        files.push(image);
    }
    if systems.len() < System::value_variants().len() {
        note("the package `corprof` for `dotnet tool` and the image have only the systems of this run");
    }
    if help.is_empty() {
        note("SKIPPED: completions and the manual, which the command for linux-x64 writes: name that system as well");
    }
    files.sort();
    let sums = archive::checksums(&files)?;
    fs::write(out.join(CHECKSUMS), &sums).with_context(|| format!("cannot write {CHECKSUMS}"))?;
    verify(&out)?;
    announce(format_args!("In {}:", out.display()));
    print!("{sums}");
    Ok(ExitCode::SUCCESS)
}

/// Packs the built `command` into `out` for `dotnet tool`, as the version `version`, which is only for Linux x64: for
/// tests, which install and update it.
///
/// # Errors
/// If cargo does not know the licences, or a file cannot be read or written.
pub fn pack_tool(command: &Path, version: &str, out: &Path) -> Result<()> {
    let metadata = Metadata::load()?;
    let tool = Tool::of(&metadata, &[System::LinuxX64])?.with_version(version);
    let built = build::Built { command: command.to_owned(), library: PathBuf::new() };
    tool::write(&tool, System::LinuxX64, &built, out)?;
    tool::write_pointer(&tool, out)?;
    Ok(())
}

/// The files of an archive.
fn contents(system: System, built: &build::Built) -> Result<Vec<Entry>> {
    let root = workspace_root();
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let entry = |name: &str, path: &Path| -> Result<Entry> {
        Ok(Entry { name: name.to_owned(), content: read(path)?, is_program: false })
    };
    Ok(vec![
        Entry { is_program: true, ..entry(&system.command(), &built.command)? },
        entry(&system.library(), &built.library)?,
        entry("README.md", &root.join(COMMAND).join("README.md"))?,
        entry("CHANGELOG.md", &root.join("CHANGELOG.md"))?,
        entry("LICENSE-MIT", &root.join("LICENSE-MIT"))?,
        entry("LICENSE-APACHE", &root.join("LICENSE-APACHE"))?,
        Entry { name: "THIRD-PARTY.txt".into(), content: notices::of(system)?.into_bytes(), is_program: false },
    ])
}

/// Has another program compare the files with their checksums, as a user would.
fn verify(out: &Path) -> Result<()> {
    process::output(Command::new("sha256sum").args(["--check", "--strict", CHECKSUMS]).current_dir(out))?;
    Ok(())
}

/// Makes the folder `out`, without files of an earlier release; refuses to delete anything else.
fn empty(out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = name == CHECKSUMS || name.starts_with("corprof");
        ensure!(ours, "{} is not of a release: name an empty folder by --out", path.display());
        fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("corprof-0.1.0-linux-x64.tar.gz"), "old").unwrap();
        empty(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
        assert!(empty(dir.path()).unwrap_err().to_string().contains("thesis.txt"));
        assert!(dir.path().join("thesis.txt").exists());
    }

    /// `cargo binstall` takes the names of the archives from the manifest of the command.
    #[test]
    fn binstall_finds_the_archives() {
        let mut list = crate::cargo::cargo();
        let list = process::output(list.args(["metadata", "--no-deps", "--format-version", "1"])).unwrap();
        let metadata: serde_json::Value = serde_json::from_str(&list).unwrap();
        let is_command = |package: &&serde_json::Value| package["name"] == COMMAND;
        let package = metadata["packages"].as_array().unwrap().iter().find(is_command).unwrap();
        let version = package["version"].as_str().unwrap();
        let binstall = &package["metadata"]["binstall"];
        for system in System::value_variants() {
            let triple = system.target().triple();
            let one = &binstall["overrides"][triple];
            let url = one["pkg-url"].as_str().unwrap().replace("{ version }", version);
            assert_eq!(url.rsplit('/').next().unwrap(), archive::name(*system, version), "{triple}");
            let bin_dir = one["bin-dir"].as_str().or_else(|| binstall["bin-dir"].as_str()).unwrap();
            assert_eq!(bin_dir, format!("corprof-{{ version }}-{}/{}", system.name(), system.command()));
        }
    }
}
