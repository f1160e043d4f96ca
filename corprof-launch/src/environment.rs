//! The environment variables that make runtimes load profilers, in both families: `CORECLR_*`, and `DOTNET_*` of .NET 11.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The families of names. .NET 11 reads the second as well; earlier versions ignore it.
pub const FAMILIES: [&str; 2] = ["CORECLR", "DOTNET"];

/// The suffixes of path variables. The path for the process's own architecture takes precedence over the one without suffix.
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

/// The variables that make runtimes load `main` and `notification` profilers. Those of [`profiler_variables`] that are not
/// among them have to be cleared.
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

impl Configured {
    /// Reads the variables as a 64-bit runtime does that knows `families`.
    pub fn read<'a>(families: &[&str], value_of: impl Fn(&str) -> Option<&'a str>) -> Self {
        let first = |names: &[&str]| {
            let mut all = names.iter().flat_map(|name| families.iter().map(move |family| format!("{family}_{name}")));
            all.find_map(|name| {
                let value = value_of(&name).filter(|value| !value.is_empty())?.to_owned();
                Some((name, value))
            })
        };
        let (own, own_list) = if cfg!(target_arch = "aarch64") {
            ("PROFILER_PATH_ARM64", "NOTIFICATION_PROFILERS_ARM64")
        } else {
            ("PROFILER_PATH_64", "NOTIFICATION_PROFILERS_64")
        };
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
        let is_one = |variable: &Option<(String, String)>| variable.as_ref().is_some_and(|(_, value)| value == "1");
        is_one(&self.enable) || (self.notification.is_some() && is_one(&self.enable_notification))
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
