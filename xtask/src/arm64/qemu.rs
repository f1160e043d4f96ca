//! QEMU's user mode, and .NET for arm64 in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::bundle::Bundler;
use super::{EMULATOR, SYSTEM};
use crate::runtime::{Origin, Runtime, Version};

/// The version of the runtime in the archive. Only the runtime's own machine code contains it.
const VERSION: Version = Version { major: 10, minor: 0, patch: 9 };

/// The folder of executables for arm64, beside the programs that they run.
const FOLDER: &str = "on-arm64";

/// An emulator of arm64, and the .NET that runs in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Qemu {
    /// The unpacked archive `dotnet-10-linux-arm64`: `host`, an executable with the runtime linked into it, and `framework/`.
    pub root: PathBuf,
}

impl Qemu {
    /// The runtime in [`root`](Self::root).
    #[must_use]
    pub fn runtime(self) -> Runtime {
        Runtime {
            host: self.root.join("host"),
            version: VERSION,
            framework: self.root.join("framework"),
            origin: Origin::Folder,
            emulator: Some(self.into()),
        }
    }

    /// A command that runs the managed program `dll`, an absolute path. There is no `dotnet` for arm64 here; each program gets
    /// an executable of its own.
    ///
    /// # Errors
    /// If that executable cannot be made.
    pub fn command(&self, dll: &Path) -> Result<Command> {
        let folder = dll.parent().context("a program lies in a folder")?.join(FOLDER);
        let executable = Bundler { root: &self.root, folder: &folder }
            .executable(dll)
            .with_context(|| format!("cannot make an executable for arm64 of {}", dll.display()))?;
        Ok(Self::start(&executable))
    }

    /// A command that runs the program `executable`.
    pub(crate) fn start(executable: &Path) -> Command {
        let mut command = Command::new(EMULATOR);
        command.args(["-L", SYSTEM]).arg(executable);
        command
    }

    /// The runtime's environment. It maps memory twice, to write and to execute it, and the emulator does not notice that a
    /// change through one mapping affects the other.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, &'static OsStr); 1] {
        [("DOTNET_EnableWriteXorExecute", "0".as_ref())]
    }

    /// Makes `cargo` start the programs that it builds for arm64 in the emulator.
    pub fn run_what_is_built(cargo: &mut Command) -> &mut Command {
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {SYSTEM}"))
    }
}
