//! .NET runtimes: the user's own, or one from `known.rs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::emulator::Emulator;
use crate::process::{self, env_path, find_on_path};

/// The framework that contains the CLR.
const FRAMEWORK: &str = "Microsoft.NETCore.App";

/// The oldest runtime that corprof supports.
const OLDEST: Version = Version { major: 8, minor: 0, patch: 0 };

/// An installed runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Runtime {
    /// The `dotnet` host.
    pub host: PathBuf,
    /// The newest framework that it can run.
    pub version: Version,
    /// The folder of that framework's libraries.
    pub framework: PathBuf,
    /// Who installed it.
    pub origin: Origin,
    /// Its emulator, if it is for another system.
    pub emulator: Option<Emulator>,
}

/// Who installed a runtime.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Origin {
    /// The user, before us.
    Own,
    /// This tool, from PyPI into the cache.
    Pinned,
    /// The user, in the folder of runtimes.
    Folder,
}

impl Runtime {
    /// The host at `path`, or in the folder `path`.
    ///
    /// # Errors
    /// If there is no host, or it has no runtime that corprof supports.
    pub fn at(path: &Path) -> Result<Self> {
        let host = if path.is_dir() { path.join(host_file()) } else { path.to_owned() };
        if !process::is_executable(&host) {
            bail!("no `dotnet` host at {}", host.display());
        }
        // Not its canonical path: some packages link `dotnet` to a launcher that depends on the name of its call.
        let host = std::path::absolute(&host).with_context(|| format!("cannot resolve {}", host.display()))?;
        let listed = process::output(Command::new(&host).arg("--list-runtimes"))?;
        let newest = frameworks(&listed).filter(|(version, _)| *version >= OLDEST).max();
        let (version, framework) = newest.with_context(|| {
            format!("{} lists no {FRAMEWORK} {OLDEST} or later (`dotnet --list-runtimes`)", host.display())
        })?;
        Ok(Self { host, version, framework, origin: Origin::Own, emulator: None })
    }

    /// The runtime unpacked in `folder`; does not start it, because it may be for Windows.
    ///
    /// # Errors
    /// If the folder has no framework.
    pub(crate) fn in_folder(folder: &Path, host: &str, origin: Origin) -> Result<Self> {
        let frameworks = folder.join("shared").join(FRAMEWORK);
        let entries =
            std::fs::read_dir(&frameworks).with_context(|| format!("cannot read {}", frameworks.display()))?;
        let versions = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<Version>().ok());
        let version = versions.max().with_context(|| format!("{} has no version of it", frameworks.display()))?;
        let framework = frameworks.join(version.to_string());
        Ok(Self { host: folder.join(host), version, framework, origin, emulator: None })
    }

    /// The user's own runtime, from `DOTNET_ROOT` or PATH; or the reason why it cannot be used.
    #[must_use]
    pub fn own() -> Option<Result<Self>> {
        let in_root = env_path("DOTNET_ROOT").map(|root| root.join(host_file())).filter(|host| host.is_file());
        in_root.or_else(|| find_on_path("dotnet")).map(|host| Self::at(&host))
    }

    /// A command that runs the managed program `dll`, which is absolute.
    #[must_use]
    pub fn command(&self, dll: &Path) -> Command {
        if let Some(emulator) = &self.emulator {
            return emulator.command(&self.host, dll);
        }
        let mut command = Command::new(&self.host);
        command.arg("exec").arg(dll);
        command
    }

    /// The path by which the runtime, and a profiler in it, know the file `path`, which is absolute.
    #[must_use]
    pub fn path(&self, path: &Path) -> OsString {
        self.emulator.as_ref().map_or_else(|| path.into(), |emulator| emulator.path(path))
    }

    /// The path of `csc.dll` in the newest .NET SDK of this host.
    #[must_use]
    pub fn csc(&self) -> Option<PathBuf> {
        let listed = process::output(Command::new(&self.host).arg("--list-sdks")).ok()?;
        // A line has the form `8.0.204 [/usr/share/dotnet/sdk]`.
        let sdks = listed.lines().filter_map(|line| {
            let (version, folder) = version_and_folder(line)?;
            Some((version, folder.join("Roslyn").join("bincore").join("csc.dll")))
        });
        let newest = sdks.filter(|(_, csc)| csc.is_file()).max_by_key(|(version, _)| *version);
        newest.map(|(_, csc)| csc)
    }
}

impl std::fmt::Display for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin = match self.origin {
            Origin::Own => "your own",
            Origin::Pinned => "pinned, from the cache",
            Origin::Folder => "from the folder of runtimes",
        };
        let emulator = self.emulator.as_ref().map(Emulator::to_string).unwrap_or_default();
        write!(f, ".NET {}{emulator} ({origin}: {})", self.version, self.host.display())
    }
}

/// The versions and folders of the CLR's framework in the output of `dotnet --list-runtimes`.
fn frameworks(listed: &str) -> impl Iterator<Item = (Version, PathBuf)> {
    // A line has the form `Microsoft.NETCore.App 8.0.4 [/usr/share/dotnet/shared/Microsoft.NETCore.App]`.
    listed.lines().filter_map(|line| version_and_folder(line.strip_prefix(FRAMEWORK)?))
}

/// Parses `8.0.4 [/some/folder]`: the version is in a subfolder with its own name.
fn version_and_folder(text: &str) -> Option<(Version, PathBuf)> {
    let (version, folder) = text.trim().split_once(" [")?;
    Some((version.parse().ok()?, Path::new(folder.strip_suffix(']')?).join(version)))
}

fn host_file() -> String {
    format!("dotnet{}", std::env::consts::EXE_SUFFIX)
}

/// Three numbers; a suffix behind a hyphen (`-preview.1`) is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (release, _preview) = text.split_once('-').unwrap_or((text, ""));
        let numbers = release.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
        match numbers.with_context(|| format!("`{text}` is not a version"))?[..] {
            [major, minor, patch] => Ok(Self { major, minor, patch }),
            _ => bail!("`{text}` is not a version of three numbers"),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use crate::process::testing::write_script;

    #[test]
    fn only_the_clr_s_framework_counts() {
        let listed = "Microsoft.AspNetCore.App 9.0.1 [/d/shared/Microsoft.AspNetCore.App]\n\
                      Microsoft.NETCore.App 2.1.30 [/d/shared/Microsoft.NETCore.App]\n\
                      Microsoft.NETCore.App 10.0.0-preview.2.1 [/a folder/shared/Microsoft.NETCore.App]\n\
                      Microsoft.NETCore.App 8.0.4 [/d/shared/Microsoft.NETCore.App]\n";
        let versions: Vec<_> = frameworks(listed).map(|(version, _)| version.to_string()).collect();
        assert_eq!(versions, ["2.1.30", "10.0.0", "8.0.4"]);
        let (_, folder) = frameworks(listed).max().unwrap();
        assert_eq!(folder, Path::new("/a folder/shared/Microsoft.NETCore.App/10.0.0-preview.2.1"));
    }

    #[cfg(unix)]
    #[test]
    fn a_host_is_asked_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let csc = dir.path().join("sdk/8.0.204/Roslyn/bincore/csc.dll");
        std::fs::create_dir_all(csc.parent().unwrap()).unwrap();
        std::fs::write(&csc, "").unwrap();
        let sdk = dir.path().canonicalize().unwrap().join("sdk");
        let script = format!(
            "#!/bin/sh\ncase $1 in\n--list-sdks) echo '6.0.1 [{0}]'; echo '8.0.204 [{0}]';;\n\
             *) echo 'Microsoft.NETCore.App 8.0.4 [x]';;\nesac\n",
            sdk.display()
        );
        write_script(&dir.path().join("dotnet"), &script);
        let runtime = Runtime::at(dir.path()).unwrap();
        assert_eq!(runtime.version, Version { major: 8, minor: 0, patch: 4 });
        assert_eq!(runtime.csc().unwrap(), csc.canonicalize().unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn a_host_without_a_runtime_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        write_script(&dir.path().join("dotnet"), "#!/bin/sh\necho 'Microsoft.NETCore.App 2.1.3 [x]'\n");
        let error = Runtime::at(dir.path()).unwrap_err().to_string();
        assert!(error.contains("8.0.0 or later"), "{error}");
        let error = Runtime::at(&dir.path().join("elsewhere")).unwrap_err().to_string();
        assert!(error.contains("no `dotnet` host at"), "{error}");
    }
}
