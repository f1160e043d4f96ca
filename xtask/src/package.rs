//! `cargo xtask package`: packs the crates as for crates.io. Cargo (1.90 or later) builds each packed crate with the
//! packed others.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::cargo::{self, Metadata, Package, workspace_root};
use crate::process::{self, announce, env_path, note};

/// Pack every published crate, and have cargo (1.90 or later) build each with the packed others.
///
/// Everything goes to a folder in `target`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {}

/// Part of an address that no repository can have: `.example` is reserved (RFC 2606).
const PLACEHOLDER: &str = ".example/";

/// Files that crates.io does not check, and that readers need.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Runs the command.
///
/// # Errors
/// If a crate lacks something, cannot be packed, or does not build from what was packed.
pub fn run(_args: &Args) -> Result<ExitCode> {
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

    forget_last_run(&packages, &target)?;
    let packed = target.join("package");
    patch_crates_io(&packages, &packed)?;
    announce(format_args!("Packing {} crates into {}, and building each", packages.len(), target.display()));
    let mut pack = cargo::cargo();
    pack.args(["package", "--quiet", "--allow-dirty", "--all-features"]).arg("--target-dir").arg(&target);
    pack.args(packages.iter().flat_map(|package| ["-p", &package.name]));
    process::run_as_progress(&mut pack)?;

    for package in &packages {
        let folder = packed.join(package.folder());
        check_files(&folder, &package.sources_beside())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes the packed crates of the last run and what was built with them. Cargo takes a packed crate for a dependency
/// from crates.io, which never changes without a new version, so it would neither unpack nor build a changed one again.
fn forget_last_run(packages: &[&Package], target: &Path) -> Result<()> {
    let home = env_path("CARGO_HOME").or_else(|| Some(env::home_dir()?.join(".cargo")));
    let unpacked = home.context("there is no home folder")?.join("registry").join("src");
    let mut old = vec![target.to_owned()];
    for registry in fs::read_dir(unpacked).into_iter().flatten().flatten() {
        // The folder of a registry is named after its host, and that of the packed crates has none.
        if registry.file_name().to_string_lossy().starts_with('-') {
            old.extend(packages.iter().map(|package| registry.path().join(package.folder())));
        }
    }
    for folder in old.iter().filter(|folder| folder.exists()) {
        fs::remove_dir_all(folder).with_context(|| format!("cannot delete {}", folder.display()))?;
    }
    Ok(())
}

/// Has a cargo that runs in one of the packed crates take the others from here: the build script of the command runs
/// one.
fn patch_crates_io(packages: &[&Package], packed: &Path) -> Result<()> {
    let mut config = "[patch.crates-io]\n".to_owned();
    for package in packages {
        let folder = packed.join(package.folder());
        config += &format!("{} = {{ path = {:?} }}\n", package.name, folder.display().to_string());
    }
    let folder = packed.join(".cargo");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("config.toml"), config)?;
    Ok(())
}

impl Package {
    /// The name of its folder once it is unpacked.
    fn folder(&self) -> PathBuf {
        format!("{}-{}", self.name, self.version).into()
    }

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
        Ok(())
    }
}

/// Checks that a packed crate has the necessary files and no others.
///
/// `sources` are the files of its code beside its manifest.
fn check_files(folder: &Path, sources: &[OsString]) -> Result<()> {
    for name in LICENCES {
        let packed = folder.join(name);
        let ours = workspace_root().join(name);
        let text = fs::read(&packed).with_context(|| format!("{} is not packed", packed.display()))?;
        // Where links are not supported, git makes a file with a link's target.
        ensure!(text == fs::read(&ours)?, "{} is not the text of {}", packed.display(), ours.display());
    }
    let known = ["Cargo.toml", "Cargo.toml.orig", "Cargo.lock", "README.md", "src", ".cargo_vcs_info.json"];
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let mut with_suffix = name.clone();
        with_suffix.push(".rs");
        // A source file, the folder of its modules, or the folder of the built-in profilers.
        let is_source = sources.contains(&name) || sources.contains(&with_suffix) || name == "library";
        let is_known = known.iter().chain(&LICENCES).any(|known| name == *known) || is_source;
        ensure!(is_known, "{} was packed too: see `include`", folder.join(name).display());
    }
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
