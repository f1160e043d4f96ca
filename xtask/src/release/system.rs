//! The systems that a release is for.

use clap::ValueEnum;

use crate::target;

/// A system that a release is for, by its name in .NET (the runtime identifier).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Linux on x64, from glibc 2.28 on.
    LinuxX64,
    /// Linux on arm64, from glibc 2.28 on.
    LinuxArm64,
    /// Linux on x64 with musl, such as Alpine.
    LinuxMuslX64,
    /// Linux on arm64 with musl.
    LinuxMuslArm64,
    /// Windows on x64.
    WinX64,
}

/// The oldest glibc that the files for Linux run on: Debian 10's and RHEL 8's.
pub(super) const GLIBC: (u32, u32) = (2, 28);

impl System {
    /// The runtime identifier.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LinuxX64 => "linux-x64",
            Self::LinuxArm64 => "linux-arm64",
            Self::LinuxMuslX64 => "linux-musl-x64",
            Self::LinuxMuslArm64 => "linux-musl-arm64",
            Self::WinX64 => "win-x64",
        }
    }

    /// What cargo builds for.
    pub(super) fn target(self) -> target::System {
        match self {
            Self::LinuxX64 => target::System::X64,
            Self::LinuxArm64 => target::System::Arm64,
            Self::LinuxMuslX64 => target::System::Musl,
            Self::LinuxMuslArm64 => target::System::MuslArm64,
            Self::WinX64 => target::System::Windows,
        }
    }

    /// The same processor with the other C library, for whose processes the command has profilers as well.
    pub(super) fn other_libc(self) -> Option<Self> {
        match self {
            Self::LinuxX64 => Some(Self::LinuxMuslX64),
            Self::LinuxMuslX64 => Some(Self::LinuxX64),
            Self::LinuxArm64 => Some(Self::LinuxMuslArm64),
            Self::LinuxMuslArm64 => Some(Self::LinuxArm64),
            Self::WinX64 => None,
        }
    }

    /// The file of the command.
    pub(super) fn command(self) -> String {
        let suffix = if self == Self::WinX64 { ".exe" } else { "" };
        format!("corprof{suffix}")
    }

    /// The file of the library with the profilers.
    pub(super) fn library(self) -> String {
        let (prefix, suffix) = if self == Self::WinX64 { ("", "dll") } else { ("lib", "so") };
        format!("{prefix}corprof_profilers.{suffix}")
    }
}
