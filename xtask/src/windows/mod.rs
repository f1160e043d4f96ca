//! Windows on a machine that is not one: profilers built for it, and run under Wine.
//!
//! [`Wine`] runs them, [`Target`](crate::target::Target) builds them. Both say what they install. The runtimes are pinned
//! like the others, in `known.rs`.

mod wine;

pub use wine::Wine;

use anyhow::{Result, ensure};

use crate::tools::{self, Packages};

/// What brings Wine, and the linker and C compiler for Windows, on Debian and its like.
const PACKAGES: Packages = Packages {
    what: "Wine and a linker for Windows",
    names: &["wine", "wine64", "gcc-mingw-w64-x86-64", "mingw-w64-x86-64-dev"],
};

/// The C compiler for Windows, which is also the linker that Rust calls for the target.
const GCC: &str = "x86_64-w64-mingw32-gcc";

/// The C compiler for this system, which is also the linker that Rust calls for it.
const CC: &str = "cc";

/// Has Wine and the linker installed.
///
/// # Errors
/// On a machine that Wine does not run on, or if they are missing and cannot be installed; the error says what to type.
pub fn install_tools() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "profilers are run for Windows under Wine, and for that on Linux x64 only: leave --windows out"
    );
    tools::ensure_programs(&["wine", "wineserver", GCC], &PACKAGES)
}
