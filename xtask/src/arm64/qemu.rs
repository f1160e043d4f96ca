//! QEMU's user mode, and .NET for arm64 in it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::{EMULATOR, SYSTEM};

/// An emulator of arm64 for single programs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Qemu;

impl Qemu {
    /// A command that runs the managed program `dll`, an absolute path, on the runtime of the host `host`.
    #[must_use]
    pub fn command(self, host: &Path, dll: &Path) -> Command {
        let mut command = Self::start(host);
        command.arg("exec").arg(dll);
        command
    }

    /// A command that runs the program `executable`.
    pub(crate) fn start(executable: &Path) -> Command {
        let mut command = Command::new(EMULATOR);
        command.args(["-L", SYSTEM]).arg(executable);
        command
    }

    /// The runtime's environment. It maps memory twice, to write and to execute it, and the emulator does not notice
    /// that a change through one mapping affects the other. There is no ICU for arm64 beside it.
    #[must_use]
    pub fn environment(self) -> [(&'static str, &'static OsStr); 2] {
        [("DOTNET_EnableWriteXorExecute", "0".as_ref()), ("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1".as_ref())]
    }

    /// Makes `cargo` start the programs that it builds for arm64 in the emulator.
    pub fn run_what_is_built(cargo: &mut Command) -> &mut Command {
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {SYSTEM}"))
    }
}
