//! Builds the command and the library of its profilers for one system.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::COMMAND;
use super::system::{GLIBC, System};
use crate::cache::Cache;
use crate::cargo::workspace_root;
use crate::process;
use crate::target::Target;
use crate::{tools, windows};

/// What was built for one system.
pub(super) struct Built {
    /// The command, with the library in it.
    pub(super) command: PathBuf,
    /// The library.
    pub(super) library: PathBuf,
}

/// Builds for `system`; with `dev` without optimisation.
pub(super) fn build(system: System, dev: bool, cache: &Cache, target_directory: &Path) -> Result<Built> {
    // Of its own: other flags than those of the workspace's other builds.
    let folder = target_directory.join("release-build");
    let target = Target::prepare(system.target(), target_directory)?;
    let triple = system.target().triple();
    let mut cargo = if system == System::WinX64 {
        windows::install_linker()?;
        let mut cargo = target.cargo("build");
        cargo.env_remove("CORPROF_BUNDLE");
        cargo
    } else {
        let mut cargo = zigbuild(system, cache, &folder)?;
        target.choose_compiler(&mut cargo);
        cargo
    };
    if let Some(other) = system.other_libc() {
        cargo.env("CORPROF_BUNDLE_OTHER", library(other, dev, cache, target_directory, &folder)?);
    }
    finish(&mut cargo, COMMAND, dev, &folder);
    process::run_as_progress(&mut cargo)?;

    let profile = folder_of_profile(dev);
    let folder = folder.join(triple).join(profile);
    // Where the build script of the command has it built.
    let library = folder.join("corprof-profilers").join(triple).join(profile).join("examples").join(system.library());
    let built = Built { command: folder.join(system.command()), library };
    for file in [&built.command, &built.library] {
        ensure!(file.is_file(), "the build made no {}", file.display());
    }
    Ok(built)
}

/// Builds only the library for `system`.
fn library(system: System, dev: bool, cache: &Cache, target_directory: &Path, folder: &Path) -> Result<PathBuf> {
    let target = Target::prepare(system.target(), target_directory)?;
    let mut cargo = zigbuild(system, cache, folder)?;
    target.choose_compiler(&mut cargo);
    // Beside the builds by the build script of the command.
    let folder = folder.join("other-libc");
    finish(&mut cargo, "corprof-profilers", dev, &folder);
    cargo.args(["--example", "corprof_profilers"]);
    process::run_as_progress(&mut cargo)?;
    let built = folder.join(system.target().triple()).join(folder_of_profile(dev)).join("examples");
    Ok(built.join(system.library()))
}

/// Has `cargo` build a package for users.
fn finish(cargo: &mut Command, package: &str, dev: bool, folder: &Path) {
    let (profile, variable) = if dev { ("dev", "DEV") } else { ("release", "RELEASE") };
    cargo.args(["--locked", "-p", package, "--profile", profile, "--target-dir"]).arg(folder);
    cargo.env(format!("CARGO_PROFILE_{variable}_DEBUG"), "false");
    cargo.env(format!("CARGO_PROFILE_{variable}_STRIP"), "symbols");
}

fn folder_of_profile(dev: bool) -> &'static str {
    if dev { "debug" } else { "release" }
}

/// `cargo build` with Zig as the linker.
fn zigbuild(system: System, cache: &Cache, folder: &Path) -> Result<Command> {
    let (zigbuild, zig) = tools::zigbuild(cache).context("no linker for a release")?;
    let mut command = Command::new(zigbuild);
    let triple = system.target().triple();
    let target = match system {
        // A library that links statically to musl cannot be loaded by a program.
        System::LinuxMuslX64 | System::LinuxMuslArm64 => {
            let variable = format!("CARGO_TARGET_{}_RUSTFLAGS", triple.to_uppercase().replace('-', "_"));
            command.env(variable, "-C target-feature=-crt-static");
            triple.to_owned()
        }
        _ => format!("{triple}.{}.{}", GLIBC.0, GLIBC.1),
    };
    command.current_dir(workspace_root()).args(["zigbuild", "--target", &target]);
    command.env("CARGO_ZIGBUILD_ZIG_PATH", zig).env("CARGO_ZIGBUILD_CACHE_DIR", folder.join("zigbuild"));
    command.env("ZIG_GLOBAL_CACHE_DIR", folder.join("zig"));
    // The build script builds the profilers.
    command.env_remove("CORPROF_BUNDLE");
    Ok(command)
}
