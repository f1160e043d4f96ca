//! Wine, with a prefix of its own in the cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{CC, GCC};
use crate::cache::Cache;
use crate::process::{self, announce, note};
use crate::system::profiler_environment;
use crate::wheel::hex;

/// A library that Rust's standard library needs and older Wines lack.
const SHIM: &str = "bcryptprimitives.dll";
const SHIM_SOURCE: &str = include_str!("bcryptprimitives.c");

/// Replaces dotnet.exe, and lays the process out as on Windows.
const HOST: &str = "corprof-dotnet.exe";
const HOST_SOURCE: &str = include_str!("dotnet.c");

/// A library of this system that is preloaded into Wine, so that threads end safely.
const EXITS: &str = "exits.so";
const EXITS_SOURCE: &str = include_str!("exits.c");

/// Wine, and its prefix (its drive C: and its registry).
#[derive(Debug, Clone, PartialEq)]
pub struct Wine {
    /// The folder of the prefix.
    pub prefix: PathBuf,
}

impl Wine {
    /// The Wine on PATH with the cached prefix; makes the prefix if necessary.
    ///
    /// # Errors
    /// If Wine cannot be started, or the prefix cannot be made.
    pub fn install(cache: &Cache) -> Result<Self> {
        // The output has the form `wine-8.0 (Debian 8.0~repack-4)`. A prefix serves the Wine that made it.
        let version = process::output(quiet(&mut Command::new("wine")).arg("--version"))?;
        let version = version.split_whitespace().next().context("`wine --version` says nothing")?;
        let sources = hex(&Sha256::digest([SHIM_SOURCE, HOST_SOURCE, EXITS_SOURCE].concat()));
        let prefix = cache.install(&format!("{version}-prefix-{}", &sources[..8]), |content| {
            announce(format_args!("Making a Wine prefix (some 700 MB) in {}", cache.path("").display()));
            Self { prefix: content.to_owned() }.make()
        })?;
        Ok(Self { prefix })
    }

    fn make(&self) -> Result<()> {
        // Every program started below must find it in its place.
        self.compile(CC, EXITS_SOURCE, &self.exits(), &["-shared", "-fPIC"], &["-ldl"])?;
        // The prefix needs neither Mono nor a browser, nor entries in the user's menus.
        let boot = self.tool("wine").args(["wineboot", "--init"]).env(OVERRIDES, WITHOUT).output();
        let boot = boot.context("cannot start wine")?;
        // A program that ends by an exception should just end. Wine would start a debugger, which writes pages into the
        // program's output and returns an exit code of its own. No debugger has this name.
        let debugger = r"HKLM\Software\Microsoft\Windows NT\CurrentVersion\AeDebug";
        process::output(self.tool("wine").args(["reg", "add", debugger, "/v", "Debugger", "/d", "-", "/f"]))?;
        // The server keeps the registry in memory. Ending it writes it out, before the prefix moves to its place.
        process::status(self.tool("wineserver").arg("-k"))?;
        process::status(self.tool("wineserver").arg("-w"))?;
        let system = self.prefix.join("drive_c").join("windows").join("system32");
        if !boot.status.success() || !system.join("kernel32.dll").is_file() {
            let said = String::from_utf8_lossy(&boot.stderr);
            anyhow::bail!("`wine wineboot --init` made no prefix: {}\n{}", boot.status, said.trim_end());
        }
        self.compile(GCC, HOST_SOURCE, &system.join(HOST), &["-municode"], &[])?;
        if system.join(SHIM).is_file() {
            return Ok(());
        }
        note(format_args!("this Wine has no {SHIM}: compiling one into the prefix"));
        self.compile(GCC, SHIM_SOURCE, &system.join(SHIM), &["-shared", "-Wno-array-bounds"], &["-ladvapi32"])
    }

    fn exits(&self) -> PathBuf {
        self.prefix.join(EXITS)
    }

    fn compile(&self, compiler: &str, text: &str, output: &Path, options: &[&str], libraries: &[&str]) -> Result<()> {
        let name = output.file_name().context("the output has no name")?;
        let source = self.prefix.join(name).with_extension("c");
        fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
        let mut command = Command::new(compiler);
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-s"]).args(options);
        command.arg("-o").arg(output).arg(source).args(libraries);
        process::run_as_progress(&mut command)
    }

    /// A command that runs `program`, a file made for Windows. It inherits the environment; the current folder is on
    /// the drive Z:, which is this machine's whole file system, so a path in a variable means the same file as here.
    ///
    /// A `dotnet.exe` is not started itself: `dotnet.c` documents its replacement, and the reason.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.tool("wine");
        if program.file_name().is_some_and(|name| name == "dotnet.exe") {
            command.arg(format!(r"C:\windows\system32\{HOST}"));
        }
        command.arg(Self::path(program));
        command
    }

    /// Makes `cargo` start the programs that it builds for Windows under Wine.
    pub fn run_what_is_built<'c>(&self, cargo: &'c mut Command) -> &'c mut Command {
        // Cargo and the compiler themselves do not need the preloaded library. JSON's lists of strings are TOML's, too.
        let runner = json!(["env", format!("{PRELOAD}={}", self.exits().display()), "wine"]);
        cargo.arg("--config").arg(format!("target.x86_64-pc-windows-gnu.runner={runner}"));
        quiet(cargo).env("WINEPREFIX", &self.prefix)
    }

    /// The environment of a .NET program without a profiler.
    ///
    /// The runtime cannot throw under older Wines without the fix in `bcryptprimitives.c`. Profilers load that library.
    /// Without a profiler, the runtime is made to load the library as one; it finds that it is none and goes on.
    #[must_use]
    pub fn without_profiler(&self) -> [(&'static str, OsString); 6] {
        let nobody = "{00000000-0000-0000-0000-000000000001}";
        profiler_environment(nobody, format!(r"C:\windows\system32\{SHIM}").into())
    }

    /// The path by which a program under Wine knows `path`, which is absolute.
    #[must_use]
    pub fn path(path: &Path) -> OsString {
        format!("Z:{}", path.to_string_lossy().replace('/', "\\")).into()
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        quiet(&mut command).env("WINEPREFIX", &self.prefix).env(PRELOAD, self.exits());
        command
    }
}

const PRELOAD: &str = "LD_PRELOAD";
const OVERRIDES: &str = "WINEDLLOVERRIDES";
const WITHOUT: &str = "mscoree=;mshtml=;winemenubuilder.exe=";

/// Keeps Wine's own messages, which are many and for Wine's developers, out of the program's output.
fn quiet(command: &mut Command) -> &mut Command {
    command.env("WINEDEBUG", "-all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_on_drive_z() {
        assert_eq!(Wine::path(Path::new("/tmp/a b/c.dll")), r"Z:\tmp\a b\c.dll");
    }

    #[test]
    fn a_command_names_the_prefix_and_keeps_wine_quiet() {
        let wine = Wine { prefix: "/cache/prefix".into() };
        let command = wine.command(Path::new("/rt/dotnet.exe"));
        assert_eq!(process::shown(&command), r"wine 'C:\windows\system32\corprof-dotnet.exe' 'Z:\rt\dotnet.exe'");
        assert_eq!(process::shown(&wine.command(Path::new("/app/app.exe"))), r"wine 'Z:\app\app.exe'");
        let variables: Vec<_> = command.get_envs().collect();
        assert!(variables.contains(&("WINEPREFIX".as_ref(), Some("/cache/prefix".as_ref()))), "{variables:?}");
        assert!(variables.contains(&("WINEDEBUG".as_ref(), Some("-all".as_ref()))), "{variables:?}");
        assert!(variables.contains(&("LD_PRELOAD".as_ref(), Some("/cache/prefix/exits.so".as_ref()))), "{variables:?}");
    }

    #[test]
    fn what_cargo_builds_is_run_by_wine() {
        let mut cargo = Command::new("cargo");
        Wine { prefix: "/a cache/prefix".into() }.run_what_is_built(&mut cargo);
        let runner = r#"target.x86_64-pc-windows-gnu.runner=["env","LD_PRELOAD=/a cache/prefix/exits.so","wine"]"#;
        assert_eq!(cargo.get_args().collect::<Vec<_>>(), ["--config", runner]);
    }
}
