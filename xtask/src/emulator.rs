//! What programs of other systems need here: Wine for Windows, QEMU for Linux on arm64, and libraries for musl.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::arm64::Qemu;
use crate::musl::Musl;
use crate::windows::Wine;

/// Passes the Wine prefix to the live tests.
const WINE_PREFIX: &str = "CORPROF_WINE_PREFIX";
/// Tells the live tests that their runtime is for arm64.
const FOR_ARM64: &str = "CORPROF_FOR_ARM64";
/// Passes the folder of libraries for musl to the live tests.
const MUSL_LIBRARIES: &str = "CORPROF_MUSL_LIBRARIES";

/// An emulator for a runtime of another system.
#[derive(Debug, Clone, PartialEq)]
pub enum Emulator {
    /// For Windows x64.
    Wine(Wine),
    /// For Linux on arm64.
    Qemu(Qemu),
    /// For Linux with musl: its programs run on this system, with libraries of their own.
    Musl(Musl),
}

impl Emulator {
    /// The emulator that `cargo xtask test` has passed to this process; without one, runtimes are of this system.
    #[must_use]
    pub fn named() -> Option<Self> {
        let wine = env::var_os(WINE_PREFIX).map(|prefix| Self::Wine(Wine { prefix: prefix.into() }));
        let arm64 = || env::var_os(FOR_ARM64).map(|_| Self::Qemu(Qemu));
        let musl = || env::var_os(MUSL_LIBRARIES).map(|path| Self::Musl(Musl { libraries: path.into() }));
        wine.or_else(arm64).or_else(musl)
    }

    /// Passes `emulator` to the live tests that `command` runs.
    pub fn name_to(emulator: Option<&Self>, command: &mut Command) {
        command.env_remove(WINE_PREFIX).env_remove(FOR_ARM64).env_remove(MUSL_LIBRARIES);
        match emulator {
            Some(Self::Wine(wine)) => command.env(WINE_PREFIX, &wine.prefix),
            Some(Self::Qemu(_)) => command.env(FOR_ARM64, "1"),
            Some(Self::Musl(musl)) => command.env(MUSL_LIBRARIES, &musl.libraries),
            None => command,
        };
    }

    /// A command that runs the managed program `dll` on the runtime of the host `host`.
    #[must_use]
    pub fn command(&self, host: &Path, dll: &Path) -> Command {
        match self {
            Self::Wine(wine) => {
                let mut command = wine.command(host);
                command.arg("exec").arg(Wine::path(dll));
                command
            }
            Self::Qemu(qemu) => qemu.command(host, dll),
            Self::Musl(_) => {
                let mut command = Command::new(host);
                command.arg("exec").arg(dll);
                command
            }
        }
    }

    /// The path by which these programs know the file `path`, which is absolute.
    #[must_use]
    pub fn path(&self, path: &Path) -> OsString {
        match self {
            Self::Wine(_) => Wine::path(path),
            Self::Qemu(_) | Self::Musl(_) => path.into(),
        }
    }

    /// The environment of a .NET program there, in addition to that of its profiler. `is_profiled`: whether it will
    /// have one.
    #[must_use]
    pub fn environment(&self, is_profiled: bool) -> Vec<(&'static str, OsString)> {
        match self {
            Self::Wine(_) if is_profiled => Vec::new(),
            Self::Wine(wine) => wine.without_profiler().into(),
            Self::Qemu(qemu) => qemu.environment().map(|(name, value)| (name, value.to_owned())).into(),
            Self::Musl(musl) => musl.environment().into(),
        }
    }

    /// Whether programs are for Windows.
    #[must_use]
    pub fn is_windows(&self) -> bool {
        matches!(self, Self::Wine(_))
    }

    /// Whether programs are for musl.
    #[must_use]
    pub fn is_musl(&self) -> bool {
        matches!(self, Self::Musl(_))
    }

    /// Whether every instruction of a program is emulated, which is slow. Wine's programs run on the processor itself.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Qemu(_))
    }
}

impl From<Wine> for Emulator {
    fn from(wine: Wine) -> Self {
        Self::Wine(wine)
    }
}

impl From<Musl> for Emulator {
    fn from(musl: Musl) -> Self {
        Self::Musl(musl)
    }
}

impl From<Qemu> for Emulator {
    fn from(qemu: Qemu) -> Self {
        Self::Qemu(qemu)
    }
}

/// ` for Windows, under Wine`
impl fmt::Display for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wine(_) => " for Windows, under Wine",
            Self::Qemu(_) => " for arm64, emulated",
            Self::Musl(_) => " for musl",
        })
    }
}
