//! The environment variables that make runtimes load profilers, in both families: `CORECLR_*`, and `DOTNET_*`, which
//! .NET 11 prefers.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The families of names, in the order in which .NET 11 looks up each variable. Earlier versions read the second only.
pub const FAMILIES: [&str; 2] = ["DOTNET", "CORECLR"];

/// The families that a runtime of version `major` reads, the preferred first; all, if the version is not known.
pub fn families(major: Option<u32>) -> &'static [&'static str] {
    /// The first version that reads `DOTNET_*`.
    const FIRST: u32 = 11;
    if major.is_some_and(|major| major < FIRST) { &["CORECLR"] } else { &FAMILIES }
}

/// The suffixes of path variables. The path for the process's own architecture takes precedence over the one without
/// suffix.
const ARCHITECTURES: [&str; 4] = ["32", "64", "ARM32", "ARM64"];

/// A library and the CLSID of the profiler in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The CLSID in braces.
    pub clsid: String,
    /// Its name, for messages.
    pub name: String,
    /// The library, absolute.
    pub library: PathBuf,
}

/// All variables that configure profilers, including those of .NET Framework.
pub fn profiler_variables() -> Vec<String> {
    let mut names = Vec::new();
    for family in ["CORECLR", "DOTNET", "COR"] {
        names.extend(["ENABLE_PROFILING", "PROFILER"].map(|name| format!("{family}_{name}")));
        let mut with_architectures = |name: &str| {
            names.push(format!("{family}_{name}"));
            names.extend(ARCHITECTURES.map(|architecture| format!("{family}_{name}_{architecture}")));
        };
        with_architectures("PROFILER_PATH");
        if family != "COR" {
            with_architectures("NOTIFICATION_PROFILERS");
            names.push(format!("{family}_ENABLE_NOTIFICATION_PROFILERS"));
        }
    }
    names
}

/// The variables that make runtimes load `main` and `notification` profilers. Those of [`profiler_variables`] that are
/// not among them have to be cleared.
///
/// # Errors
/// If a variable cannot contain the path of a notification profiler.
pub fn to_load(main: &Chosen, notification: &[Chosen]) -> Result<Vec<(String, OsString)>> {
    let mut list = OsString::new();
    for profiler in notification {
        let path = profiler.library.as_os_str();
        ensure!(
            !path.as_encoded_bytes().iter().any(|byte| b";=".contains(byte)),
            "the path {} has a `;` or `=`, which ends a path in CORECLR_NOTIFICATION_PROFILERS: copy the library to \
             another folder",
            path.display()
        );
        list.push(path);
        // .NET 9 and 10 drop an entry at the end that has no semicolon (dotnet/runtime#126197).
        list.push(format!("={};", profiler.clsid));
    }
    let mut variables = Vec::new();
    for family in FAMILIES {
        variables.push((format!("{family}_ENABLE_PROFILING"), "1".into()));
        variables.push((format!("{family}_PROFILER"), main.clsid.clone().into()));
        variables.push((format!("{family}_PROFILER_PATH"), main.library.clone().into_os_string()));
        if !list.is_empty() {
            variables.push((format!("{family}_ENABLE_NOTIFICATION_PROFILERS"), "1".into()));
            variables.push((format!("{family}_NOTIFICATION_PROFILERS"), list.clone()));
        }
    }
    Ok(variables)
}

/// The name and value of a setting that silently forbids all profilers, if there is one.
pub fn forbidding<'a>(value_of: impl Fn(&str) -> Option<&'a OsStr>) -> Option<(String, OsString)> {
    let settings = ["EnableDiagnostics", "EnableDiagnostics_Profiler"];
    // The runtime reads COMPlus_ as well, and the DOTNET_ form first.
    let of = |setting: &str| {
        let names = ["DOTNET", "COMPlus"].map(|prefix| format!("{prefix}_{setting}"));
        names.into_iter().find_map(|name| value_of(&name).map(|value| (name, value.to_owned())))
    };
    settings.into_iter().filter_map(of).find(|(_, value)| is_zero(value))
}

/// The runtime reads these numbers as hexadecimal.
fn is_zero(value: &OsStr) -> bool {
    value
        .to_str()
        .is_some_and(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).is_ok_and(|number| number == 0))
}

/// Whether a runtime takes this value of `…_ENABLE_PROFILING` for yes (live, on .NET 8, 10 and 11): it reads a
/// hexadecimal number of 32 bits from the beginning, ignores what follows, and wants any but 0.
pub fn enables(value: &str) -> bool {
    let number = value.trim_start().trim_start_matches(['+', '-']);
    let digits = number.strip_prefix("0x").or_else(|| number.strip_prefix("0X")).unwrap_or(number);
    let end = digits.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(digits.len());
    let digits = digits.get(..end).unwrap_or_default();
    u32::from_str_radix(digits, 16).is_ok_and(|number| number != 0)
}

/// A profiler's configuration by variables, correct or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configured {
    /// The value of `…_ENABLE_PROFILING`, with its name.
    pub enable: Option<(String, String)>,
    /// The value of `…_PROFILER`, with its name.
    pub clsid: Option<(String, String)>,
    /// The path that the runtime uses, with the name of its variable.
    pub path: Option<(String, String)>,
    /// The value of `…_NOTIFICATION_PROFILERS`, with its name.
    pub notification: Option<(String, String)>,
    /// The value of `…_ENABLE_NOTIFICATION_PROFILERS`, with its name.
    pub enable_notification: Option<(String, String)>,
}

/// The names, without family, of the variables with paths for the own architecture: of the main profiler, and of
/// notification profilers.
fn own_suffixes() -> (&'static str, &'static str) {
    if cfg!(target_arch = "aarch64") {
        ("PROFILER_PATH_ARM64", "NOTIFICATION_PROFILERS_ARM64")
    } else {
        ("PROFILER_PATH_64", "NOTIFICATION_PROFILERS_64")
    }
}

impl Configured {
    /// Reads the variables as a 64-bit runtime does that knows `families` ([`families`]). It looks up each variable by
    /// itself: one may come from the first family and another from the second. An empty one counts as unset. A path for
    /// its architecture comes before one without suffix, whatever the families.
    pub fn read<'a>(families: &[&str], value_of: impl Fn(&str) -> Option<&'a str>) -> Self {
        let first = |names: &[&str]| {
            let mut all = names.iter().flat_map(|name| families.iter().map(move |family| format!("{family}_{name}")));
            all.find_map(|name| {
                let value = value_of(&name).filter(|value| !value.is_empty())?.to_owned();
                Some((name, value))
            })
        };
        let (own, own_list) = own_suffixes();
        Self {
            enable: first(&["ENABLE_PROFILING"]),
            clsid: first(&["PROFILER"]),
            path: first(&[own, "PROFILER_PATH"]),
            notification: first(&[own_list, "NOTIFICATION_PROFILERS"]),
            enable_notification: first(&["ENABLE_NOTIFICATION_PROFILERS"]),
        }
    }

    /// Whether a runtime would try to load a profiler.
    pub fn is_enabled(&self) -> bool {
        let is_on = |variable: &Option<(String, String)>| variable.as_ref().is_some_and(|(_, value)| enables(value));
        is_on(&self.enable) || (self.notification.is_some() && is_on(&self.enable_notification))
    }

    /// Whether no variable is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The libraries that are named.
    pub fn libraries(&self) -> Vec<&Path> {
        let main = self.path.iter().map(|(_, path)| path.as_str());
        let entries = self.notification.iter().flat_map(|(_, list)| list.split(';'));
        main.chain(entries.filter_map(|entry| Some(entry.split_once('=')?.0))).map(Path::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str) -> Chosen {
        Chosen { clsid: format!("{{{name}}}"), name: name.into(), library: format!("/x/{name}.so").into() }
    }

    #[test]
    fn both_families_are_set_and_everything_else_is_known() {
        let set = to_load(&chosen("A"), &[chosen("B"), chosen("C")]).unwrap();
        let value = |name: &str| set.iter().find(|(other, _)| other == name).map(|(_, value)| value.to_str().unwrap());
        for family in FAMILIES {
            assert_eq!(value(&format!("{family}_ENABLE_PROFILING")), Some("1"));
            assert_eq!(value(&format!("{family}_PROFILER")), Some("{A}"));
            assert_eq!(value(&format!("{family}_PROFILER_PATH")), Some("/x/A.so"));
            assert_eq!(value(&format!("{family}_NOTIFICATION_PROFILERS")), Some("/x/B.so={B};/x/C.so={C};"));
        }
        let known = profiler_variables();
        assert!(set.iter().all(|(name, _)| known.contains(name)));
        for name in ["CORECLR_PROFILER_PATH_64", "COR_PROFILER", "DOTNET_PROFILER_PATH_ARM64"] {
            assert!(known.contains(&name.to_owned()), "{name}");
        }
    }

    #[test]
    fn a_path_that_the_list_cannot_hold_is_refused() {
        let error = to_load(&chosen("A"), &[chosen("B;C")]).unwrap_err().to_string();
        assert!(error.contains("another folder"), "{error}");
    }

    #[test]
    fn settings_that_forbid_profilers_are_found() {
        let with = |name: &'static str, value: &'static str| {
            forbidding(move |other| (other == name).then(|| OsStr::new(value))).map(|(name, _)| name)
        };
        assert_eq!(with("DOTNET_EnableDiagnostics", "0"), Some("DOTNET_EnableDiagnostics".into()));
        assert_eq!(
            with("COMPlus_EnableDiagnostics_Profiler", "0x0"),
            Some("COMPlus_EnableDiagnostics_Profiler".into())
        );
        assert_eq!(with("DOTNET_EnableDiagnostics", "1"), None);
        assert_eq!(with("DOTNET_EnableDiagnostics_IPC", "0"), None);
    }

    #[test]
    fn numbers_turn_profiling_on_as_runtimes_read_them() {
        let on = ["1", "2", "10", "0x1", "01", "f", " 1", "1 ", "1x", "-1"];
        let off = ["", "0", "00", "0x0", "true", "g", "100000000"];
        assert!(on.iter().all(|value| enables(value)));
        assert!(!off.iter().any(|value| enables(value)));
    }

    #[test]
    fn each_variable_is_looked_up_by_itself_and_the_new_family_first() {
        let (own, _) = own_suffixes();
        let read = |major: u32, variables: &[(&str, &str)]| {
            let value_of = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
            Configured::read(families(Some(major)), value_of)
        };
        let path = |major, variables: &[(&str, &str)]| read(major, variables).path.map(|(_, path)| path);
        let old = ("CORECLR_PROFILER_PATH", "old");
        let new = ("DOTNET_PROFILER_PATH", "new");
        assert_eq!(path(11, &[old, new]).as_deref(), Some("new"));
        assert_eq!(path(10, &[old, new]).as_deref(), Some("old"));
        assert_eq!(path(11, &[old, ("DOTNET_PROFILER_PATH", "")]).as_deref(), Some("old"));
        let old_own = format!("CORECLR_{own}");
        assert_eq!(path(11, &[(&old_own, "old own"), new]).as_deref(), Some("old own"));
        let new_own = format!("DOTNET_{own}");
        assert_eq!(path(11, &[(&old_own, "old own"), (&new_own, "new own"), new]).as_deref(), Some("new own"));
        let mixed = read(
            11,
            &[("CORECLR_PROFILER", "{A}"), new, ("DOTNET_ENABLE_PROFILING", "0"), ("CORECLR_ENABLE_PROFILING", "1")],
        );
        assert_eq!(mixed.clsid.as_ref().map(|(name, _)| name.as_str()), Some("CORECLR_PROFILER"));
        assert!(mixed.path.is_some() && !mixed.is_enabled(), "{mixed:?}");
    }

    #[test]
    fn a_path_for_the_architecture_comes_first() {
        let own =
            if cfg!(target_arch = "aarch64") { "CORECLR_PROFILER_PATH_ARM64" } else { "CORECLR_PROFILER_PATH_64" };
        let configured = Configured::read(&["CORECLR"], |name| match name {
            "CORECLR_ENABLE_PROFILING" => Some("1"),
            "CORECLR_PROFILER_PATH" => Some("/plain.so"),
            "CORECLR_NOTIFICATION_PROFILERS" => Some("/n.so={A};/m.so={B}"),
            name if name == own => Some("/own.so"),
            _ => None,
        });
        assert_eq!(configured.path, Some((own.to_owned(), "/own.so".to_owned())));
        assert_eq!(configured.libraries(), ["/own.so", "/n.so", "/m.so"].map(Path::new));
        assert!(configured.is_enabled());
        assert!(Configured::read(&["CORECLR"], |_| None).is_empty());
    }
}
