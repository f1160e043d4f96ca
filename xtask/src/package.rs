//! `cargo xtask package`: packs the crates as for crates.io, and builds a profiler with the packed crates outside the
//! workspace.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use corprof_launch::{bundled, profiler};

use crate::cargo::{self, Metadata, Package, workspace_root};
use crate::process::{self, announce, note};

/// Pack every published crate, and build the README's profiler with the packed ones.
///
/// Everything goes to a folder in `target`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Build the profiler as `cargo build --release` does
    #[arg(long)]
    release: bool,
}

/// A crate that no other crate uses as a library: it has entry points of its own. The command's build script builds it.
const EXAMPLES: &str = "corprof-examples";

/// Part of an address that no repository can have: `.example` is reserved (RFC 2606).
const PLACEHOLDER: &str = ".example/";

/// Files that crates.io does not check, and that readers need.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Runs the command.
///
/// # Errors
/// If a crate lacks something, cannot be packed, or does not build outside the workspace.
pub fn run(args: &Args) -> Result<ExitCode> {
    let metadata = Metadata::load()?;
    let target = metadata.target_directory.join("packed");
    let packages = metadata.published();
    ensure!(!packages.is_empty(), "no crate is to be published");
    for package in &packages {
        package.check_for_readers()?;
    }

    let is_placeholder =
        |package: &&&Package| package.repository.as_deref().is_some_and(|url| url.contains(PLACEHOLDER));
    let placeholders = packages.iter().filter(is_placeholder).count();
    if placeholders > 0 {
        note(format_args!(
            "{placeholders} crates name a placeholder as their repository: set it in Cargo.toml before publishing"
        ));
    }
    announce(format_args!("Packing {} crates into {}", packages.len(), target.display()));
    let mut pack = cargo::cargo();
    // The packed crates are built below, all at once; cargo would build each alone, one after the other.
    pack.args(["package", "--quiet", "--no-verify", "--allow-dirty"]).arg("--target-dir").arg(&target);
    pack.args(packages.iter().flat_map(|package| ["-p", &package.name]));
    process::run_as_progress(&mut pack)?;

    let outside = target.join("outside");
    if outside.exists() {
        fs::remove_dir_all(&outside).with_context(|| format!("cannot empty {}", outside.display()))?;
    }
    fs::create_dir_all(&outside)?;
    for package in &packages {
        let folder = unpack(package, &target.join("package"), &outside)?;
        check_files(&folder, &package.sources_beside())?;
    }

    write_profiler(&packages, &outside)?;
    announce("Building a profiler with them, and the command");
    let mut build = cargo::cargo();
    // A folder of its own, so that a build of the workspace does not see other flags in its folder.
    build.args(["build", "-p", "outside", "-p", "corprof-cli"]).current_dir(&outside);
    build.arg("--target-dir").arg(target.join("build"));
    build.args(args.release.then_some("--release"));
    process::run_as_progress(&mut build)?;
    let built = target.join("build").join(if args.release { "release" } else { "debug" });
    let library = built.join(format!("{}outside{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
    let found = profiler::pick(&library, None)?;
    let size = fs::metadata(&library).with_context(|| library.display().to_string())?.len();
    note(format_args!("{} exports {} and has {} kB", library.display(), found.name, size / 1000));
    check_command(&built.join(format!("corprof{}", std::env::consts::EXE_SUFFIX)), &target.join("cache"))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that the packed command contains its profilers.
pub(crate) fn check_command(command: &Path, cache: &Path) -> Result<()> {
    if cache.exists() {
        fs::remove_dir_all(cache).with_context(|| format!("cannot empty {}", cache.display()))?;
    }
    // It unpacks them before it looks at the application, which is no .NET application here.
    let mut run = Command::new(command);
    run.args(["run", "sampler", "--"]).arg(command).arg("exit-codes").env("CORPROF_CACHE", cache);
    process::output(&mut run)?;
    let folder = cache.join("profilers");
    let library = fs::read_dir(&folder).with_context(|| folder.display().to_string())?.next();
    let library = library.context("the command has unpacked no profilers")??.path();
    let found: Vec<_> = profiler::profilers(&library)?.into_iter().map(|profiler| profiler.name).collect();
    ensure!(found.len() == bundled::ALL.len(), "{} has only {}", library.display(), found.join(", "));
    note(format_args!("{} brings {}", command.display(), found.join(", ")));
    Ok(())
}

impl Package {
    /// The names of the source files in the package's own folder.
    fn sources_beside(&self) -> Vec<OsString> {
        let folder = self.manifest_path.parent();
        let beside = self.targets.iter().map(|target| &target.src_path).filter(|path| path.parent() == folder);
        beside.filter_map(|path| path.file_name()).map(OsString::from).collect()
    }

    /// Checks that crates.io and docs.rs have all that they show of a crate.
    fn check_for_readers(&self) -> Result<()> {
        let texts = [
            ("description", &self.description),
            ("license", &self.license),
            ("repository", &self.repository),
            ("readme", &self.readme),
            ("documentation", &self.documentation),
        ];
        let mut missing: Vec<_> = texts.iter().filter(|(_, text)| text.is_none()).map(|(what, _)| *what).collect();
        missing.extend(self.keywords.is_empty().then_some("keywords"));
        missing.extend(self.categories.is_empty().then_some("categories"));
        ensure!(
            missing.is_empty(),
            "{}/Cargo.toml lacks {}; a crate that is not to be published says `publish = false`",
            self.name,
            missing.join(", ")
        );
        if self.repository.as_ref().is_some_and(|address| address.contains(".example")) {
            note(format_args!("{}: its repository is a name that stands for one: see Cargo.toml", self.name));
        }
        Ok(())
    }
}

/// Unpacks a packed crate, and returns its folder.
fn unpack(package: &Package, packed: &Path, into: &Path) -> Result<PathBuf> {
    let name = format!("{}-{}", package.name, package.version);
    let file = packed.join(format!("{name}.crate"));
    // Packed files all have one date: without -m, cargo would take the last run's build for current.
    process::run_as_progress(Command::new("tar").arg("-xzmf").arg(&file).arg("-C").arg(into))
        .with_context(|| format!("cannot unpack {}", file.display()))?;
    Ok(into.join(name))
}

/// Checks that a packed crate has the necessary files and no others.
///
/// `sources` are the files of its code beside its manifest.
fn check_files(folder: &Path, sources: &[OsString]) -> Result<()> {
    for name in LICENCES {
        let (packed, ours) = (folder.join(name), workspace_root().join(name));
        let text = fs::read(&packed).with_context(|| format!("{} is not packed", packed.display()))?;
        // Where links are not supported, git makes a file with a link's target.
        ensure!(text == fs::read(&ours)?, "{} is not the text of {}", packed.display(), ours.display());
    }
    let known = ["Cargo.toml", "Cargo.toml.orig", "Cargo.lock", "README.md", "src", ".cargo_vcs_info.json"];
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let mut with_suffix = name.clone();
        with_suffix.push(".rs");
        // A source file, the folder of its modules, or the folder of those that several share.
        let is_source = sources.contains(&name) || sources.contains(&with_suffix) || name == "shared";
        let is_known = known.iter().chain(&LICENCES).any(|known| name == *known) || is_source;
        ensure!(is_known, "{} was packed too: see `include`", folder.join(name).display());
    }
    Ok(())
}

/// Writes a package outside the workspace: the first profiler of the README, with all packed crates as its dependencies, with
/// all of their features.
fn write_profiler(packages: &[&Package], folder: &Path) -> Result<()> {
    // All are members, so that the command's build script, which builds one of them by itself, finds the others too.
    let mut manifest = "[package]\nname = \"outside\"\nedition = \"2024\"\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n\
                        [workspace]\nmembers = [\"corprof-*\"]\n\n[profile.dev]\ndebug = false\n\n[dependencies]\n"
        .to_owned();
    for Package { name, version, features, .. } in packages.iter().filter(|package| package.name != EXAMPLES) {
        let features: Vec<_> = features.keys().collect();
        manifest += &format!("{name} = {{ version = \"={version}\", features = {features:?} }}\n");
    }
    manifest += "\n[patch.crates-io]\n";
    for Package { name, version, .. } in packages {
        manifest += &format!("{name} = {{ path = \"{name}-{version}\" }}\n");
    }
    let readme = fs::read_to_string(workspace_root().join("README.md"))?;
    let Some((code, _)) = readme.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```")) else {
        bail!("README.md begins with no profiler");
    };
    fs::write(folder.join("Cargo.toml"), manifest)?;
    // Uses the versions that the workspace is tested with, without a request to a registry.
    fs::copy(workspace_root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::create_dir(folder.join("src"))?;
    fs::write(folder.join("src").join("lib.rs"), code)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_has_all_that_readers_look_for() {
        let metadata = Metadata::load().unwrap();
        let published = metadata.published();
        let names: Vec<_> = published.iter().map(|package| package.name.as_str()).collect();
        assert!(names.contains(&"corprof") && names.contains(&"corprof-il"), "{names:?}");
        assert!(!names.contains(&"xtask") && !names.contains(&"corprof-gen"), "{names:?}");
        for package in published {
            package.check_for_readers().unwrap();
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in LICENCES {
            fs::copy(workspace_root().join(name), dir.path().join(name)).unwrap();
        }
        let check = || check_files(dir.path(), &["build.rs".into()]);
        let refusal = || check().unwrap_err().to_string();
        check().unwrap();
        fs::write(dir.path().join("build.rs"), "").unwrap();
        fs::write(dir.path().join("notes.txt"), "").unwrap();
        assert!(refusal().contains("notes.txt was packed too"));
        fs::remove_file(dir.path().join("notes.txt")).unwrap();
        fs::write(dir.path().join("LICENSE-MIT"), "../LICENSE-MIT").unwrap();
        assert!(refusal().contains("is not the text of"));
        fs::remove_file(dir.path().join("LICENSE-MIT")).unwrap();
        assert!(refusal().contains("LICENSE-MIT is not packed"));
    }
}
