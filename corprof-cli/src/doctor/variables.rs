//! Checks the variables of an application for the mistakes that runtimes silently ignore.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use corprof_launch::checks::{self, Finding, Place};
use corprof_launch::environment::{self, Configured, FAMILIES};
use corprof_launch::profiler;
use uuid::Uuid;

use crate::profiler_choice::braced;

/// Common profilers, by CLSID.
const VENDORS: [(&str, &str); 4] = [
    ("{846F5F1C-F9AE-4B07-969E-05C26BC060D8}", "Datadog"),
    ("{36032161-FFC0-4B61-B559-F6C5D41BAE5A}", "New Relic"),
    ("{918728DD-259F-4A6A-AC2B-B85E1B658318}", "OpenTelemetry"),
    ("{324F817A-7420-4E6D-B3C1-143FBED6D855}", "Microsoft's Instrumentation Engine (Application Insights)"),
];

/// All problems of the variables and of the libraries that they name, for a runtime of version `major` (of
/// any version, if that is not known). `root` is where the application's own files are, if that is not here.
pub(super) fn check<'a>(
    value_of: impl Fn(&str) -> Option<&'a str> + Copy,
    major: Option<u32>,
    place: Place<'_>,
    root: Option<&Path>,
) -> Vec<Finding> {
    if let Some(finding) = checks::compiled_ahead(place.program) {
        return vec![finding];
    }
    let families = environment::families(major);
    let configured = Configured::read(families, value_of);
    let mut findings = Vec::new();
    if let Some((name, value)) = environment::forbidding(|name| value_of(name).map(OsStr::new)) {
        let value = value.display();
        let finding = if name.ends_with("_Profiler") {
            let what = format!("{name} is {value}, which forbids profilers that start with the application");
            Finding::new("profilers-forbidden", what, format!("unset {name}, or attach, which it does not forbid"))
        } else {
            let what = format!("{name} is {value}, which forbids profilers");
            Finding::new("profilers-forbidden", what, format!("unset {name}"))
        };
        findings.push(finding);
    }
    if configured.is_empty() {
        findings.push(nothing(value_of, families));
        return findings;
    }
    findings.extend(blanks(&configured));
    findings.extend(switch(&configured));
    findings.extend(clsid(&configured));
    findings.extend(paths(&configured, families, value_of));
    findings.extend(families_differ(families, value_of));
    findings.extend(notification(&configured, major));
    for library in configured.libraries() {
        let seen: PathBuf = match (root, library.strip_prefix("/")) {
            (Some(root), Ok(inner)) => root.join(inner),
            _ => library.to_owned(),
        };
        let of_library = checks::library(&seen, place);
        let is_sound = of_library.is_empty();
        findings.extend(of_library);
        let is_main = configured.path.as_ref().is_some_and(|(_, path)| Path::new(path) == library);
        let is_clsid = findings.iter().all(|finding| finding.id != "clsid-is-malformed");
        if is_sound && is_main && is_clsid {
            findings.extend(not_in_library(&configured, &seen));
        }
    }
    findings
}

fn nothing<'a>(value_of: impl Fn(&str) -> Option<&'a str>, families: &[&str]) -> Finding {
    if value_of("COR_PROFILER").is_some() || value_of("COR_ENABLE_PROFILING").is_some() {
        let what = "the variables begin with COR_, which only .NET Framework reads";
        return Finding::new(
            "variables-of-framework",
            what,
            "name them CORECLR_ENABLE_PROFILING, CORECLR_PROFILER, CORECLR_PROFILER_PATH",
        );
    }
    if families.len() == 1 && value_of("DOTNET_PROFILER").is_some() {
        let what = "the variables begin with DOTNET_, which .NET 11 is the first to read";
        return Finding::new(
            "variables-of-newer-runtime",
            what,
            "set the same with CORECLR_ in place of DOTNET_ (`corprof run` sets both)",
        );
    }
    let cure = "start the application by `corprof run LIB -- COMMAND`, or set the three variables CORECLR_ENABLE_PROFILING, \
                CORECLR_PROFILER and CORECLR_PROFILER_PATH where it is started (sudo, systemd and containers drop them)";
    Finding::new("not-configured", "no variable of a profiler is set", cure)
}

/// A blank at an end of a value, which nobody sees and the runtime takes as a part of it.
fn blanks(configured: &Configured) -> Option<Finding> {
    let values = [&configured.clsid, &configured.path, &configured.notification];
    let (name, value) = values.into_iter().flatten().find(|(_, value)| value.trim() != value)?;
    let what = format!("{name} is `{value}`, with a blank at an end, which the runtime takes as a part of it");
    Some(Finding::new("blank-in-variable", what, format!("set {name} to `{}`", value.trim())))
}

/// `…_ENABLE_PROFILING` must be a number other than 0.
fn switch(configured: &Configured) -> Option<Finding> {
    if configured.clsid.is_none() && configured.path.is_none() && configured.enable.is_none() {
        return None;
    }
    match &configured.enable {
        Some((_, value)) if environment::enables(value) => None,
        Some((name, value)) => Some(Finding::new(
            "switch-is-not-1",
            format!("{name} is `{value}`, which turns profiling off"),
            format!("set {name} to 1"),
        )),
        None => Some(Finding::new(
            "switch-is-missing",
            "CORECLR_ENABLE_PROFILING is not set",
            "set CORECLR_ENABLE_PROFILING to 1",
        )),
    }
}

fn clsid(configured: &Configured) -> Option<Finding> {
    let Some((name, value)) = &configured.clsid else {
        let is_wanted = configured.enable.is_some() || configured.path.is_some();
        let cure = "set CORECLR_PROFILER to the CLSID in braces, which is in the source of the profiler (`clsid = …`)";
        return is_wanted.then(|| Finding::new("clsid-is-missing", "CORECLR_PROFILER is not set", cure));
    };
    let inner = value.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    match (inner.is_some_and(|text| Uuid::try_parse(text).is_ok() && text.len() == 36), Uuid::parse_str(value)) {
        (true, _) => vendor(name, value),
        (false, Ok(clsid)) => {
            let what = format!("{name} is `{value}`: a CLSID stands in braces and has hyphens");
            Some(Finding::new("clsid-is-malformed", what, format!("set {name} to {}", braced(clsid))))
        }
        (false, Err(error)) => {
            let cure = "copy it from the source of the profiler (`clsid = …`), in braces";
            Some(Finding::new(
                "clsid-is-malformed",
                format!("{name} is `{value}`, which is not a CLSID: {error}"),
                cure,
            ))
        }
    }
}

fn vendor(name: &str, value: &str) -> Option<Finding> {
    let (_, vendor) = VENDORS.iter().find(|(clsid, _)| clsid.eq_ignore_ascii_case(value))?;
    let what = format!("{name} is the CLSID of {vendor}: a process has one main profiler");
    let cure = "start the application by `corprof run`, which clears these variables, or without that agent";
    Some(Finding::new("profiler-of-a-vendor", what, cure))
}

fn paths<'a>(
    configured: &Configured,
    families: &[&str],
    value_of: impl Fn(&str) -> Option<&'a str>,
) -> Option<Finding> {
    let Some((name, value)) = &configured.path else {
        let is_wanted = configured.enable.is_some() || configured.clsid.is_some();
        let cure = "set CORECLR_PROFILER_PATH to the absolute path of the library";
        return is_wanted.then(|| Finding::new("path-is-missing", "CORECLR_PROFILER_PATH is not set", cure));
    };
    // Two paths without suffix, in two families, are the subject of `families_differ`.
    if name.ends_with("_PROFILER_PATH") {
        return None;
    }
    let mut plain = families.iter().map(|family| format!("{family}_PROFILER_PATH"));
    let (plain, other) = plain.find_map(|plain| {
        let other = value_of(&plain).filter(|other| !other.is_empty() && other != value)?;
        Some((plain, other))
    })?;
    let what = format!("{name} is {value}, which comes before {plain} ({other})");
    Some(Finding::new("other-path-comes-first", what, format!("unset {name}, or give both the same value")))
}

/// Each family by itself may be right, but they configure different profilers.
fn families_differ<'a>(families: &[&str], value_of: impl Fn(&str) -> Option<&'a str>) -> Option<Finding> {
    if families.len() == 1 {
        return None;
    }
    let differing = ["ENABLE_PROFILING", "PROFILER", "PROFILER_PATH"].into_iter().find(|name| {
        let value = |family| value_of(&format!("{family}_{name}")).filter(|value| !value.is_empty());
        let [new, old] = FAMILIES.map(value);
        old.is_some() && new.is_some() && old != new
    })?;
    let what = format!(
        "DOTNET_{differing} and CORECLR_{differing} differ: .NET 11 takes the first, earlier runtimes read the second only"
    );
    Some(Finding::new(
        "families-differ",
        what,
        "give both the same value (`corprof run` does), or unset those with DOTNET_",
    ))
}

fn notification(configured: &Configured, major: Option<u32>) -> Vec<Finding> {
    let Some((name, list)) = &configured.notification else { return Vec::new() };
    let mut findings = Vec::new();
    if configured.enable_notification.as_ref().is_none_or(|(_, value)| !environment::enables(value)) {
        let what = format!("{name} is set, but CORECLR_ENABLE_NOTIFICATION_PROFILERS is not 1");
        findings.push(Finding::new("notification-is-off", what, "set CORECLR_ENABLE_NOTIFICATION_PROFILERS to 1"));
    }
    // .NET 11 reads the last entry without it.
    if !list.ends_with(';') && major.is_none_or(|major| major < 11) {
        let what = format!(
            "{name} does not end with a semicolon: .NET 9 and 10 drop the last profiler then (dotnet/runtime#126197)"
        );
        findings.push(Finding::new("notification-list-end", what, format!("append `;` to {name}")));
    }
    let is_entry = |entry: &&str| {
        let clsid = entry.split_once('=').and_then(|(_, clsid)| clsid.strip_prefix('{')?.strip_suffix('}'));
        clsid.is_some_and(|clsid| Uuid::try_parse(clsid).is_ok())
    };
    if let Some(bad) = list.split(';').filter(|entry| !entry.is_empty()).find(|entry| !is_entry(entry)) {
        let what = format!("`{bad}` in {name} is not a profiler");
        findings.push(Finding::new("notification-list-malformed", what, "write PATH={CLSID};PATH={CLSID};"));
    }
    findings
}

/// Whether the library contains other profilers than the one named.
fn not_in_library(configured: &Configured, library: &Path) -> Option<Finding> {
    let (name, value) = configured.clsid.as_ref()?;
    let profilers = profiler::profilers(library).ok().filter(|profilers| !profilers.is_empty())?;
    if profilers.iter().any(|profiler| profiler.clsid.eq_ignore_ascii_case(value)) {
        return None;
    }
    let list = profilers
        .iter()
        .map(|profiler| format!("{} ({})", profiler.clsid, profiler.name))
        .collect::<Vec<_>>()
        .join(", ");
    let what = format!("{} has no profiler {value}", library.display());
    Some(Finding::new("clsid-of-another-library", what, format!("set {name} to one of {list}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLSID: &str = "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}";

    /// The names of what is found about these variables, without what is about files.
    fn found(major: Option<u32>, variables: &[(&str, &str)]) -> Vec<&'static str> {
        let value_of = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        let findings = check(value_of, major, Place { program: None, library_path: None }, None);
        assert!(findings.iter().all(|finding| !finding.what.is_empty() && !finding.cure.is_empty()));
        findings.into_iter().map(|finding| finding.id).filter(|id| *id != "library-missing").collect()
    }

    const SWITCH: (&str, &str) = ("CORECLR_ENABLE_PROFILING", "1");
    const PROFILER: (&str, &str) = ("CORECLR_PROFILER", CLSID);
    const PATH: (&str, &str) = ("CORECLR_PROFILER_PATH", "/nowhere/p.so");

    #[test]
    fn each_broken_set_of_variables_has_a_name() {
        assert_eq!(found(Some(8), &[SWITCH, PROFILER, PATH]), [""; 0]);
        assert_eq!(found(Some(8), &[]), ["not-configured"]);
        assert_eq!(
            found(Some(8), &[("COR_ENABLE_PROFILING", "1"), ("COR_PROFILER", CLSID)]),
            ["variables-of-framework"]
        );
        assert_eq!(found(Some(10), &[("DOTNET_PROFILER", CLSID)]), ["variables-of-newer-runtime"]);
        assert_eq!(found(Some(8), &[PROFILER, PATH]), ["switch-is-missing"]);
        assert_eq!(found(Some(8), &[("CORECLR_ENABLE_PROFILING", "true"), PROFILER, PATH]), ["switch-is-not-1"]);
        for number in ["2", "10", "0x1"] {
            assert_eq!(found(Some(10), &[("CORECLR_ENABLE_PROFILING", number), PROFILER, PATH]), [""; 0], "{number}");
        }
        assert_eq!(found(Some(8), &[SWITCH, PATH]), ["clsid-is-missing"]);
        assert_eq!(found(Some(8), &[SWITCH, PROFILER]), ["path-is-missing"]);
        for clsid in ["notaguid", &CLSID[1..37], "{BDD57A0CD4F7486DA8CA86070DC12FA0}"] {
            assert_eq!(found(Some(8), &[SWITCH, ("CORECLR_PROFILER", clsid), PATH]), ["clsid-is-malformed"], "{clsid}");
        }
        let blank = ("CORECLR_PROFILER_PATH", "/nowhere/p.so ");
        assert_eq!(found(Some(8), &[SWITCH, PROFILER, blank]), ["blank-in-variable"]);
        let datadog = ("CORECLR_PROFILER", "{846f5f1c-f9ae-4b07-969e-05c26bc060d8}");
        assert_eq!(found(Some(8), &[SWITCH, datadog, PATH]), ["profiler-of-a-vendor"]);
        let own =
            if cfg!(target_arch = "aarch64") { "CORECLR_PROFILER_PATH_ARM64" } else { "CORECLR_PROFILER_PATH_64" };
        assert_eq!(found(Some(8), &[SWITCH, PROFILER, PATH, (own, "/other.so")]), ["other-path-comes-first"]);
        assert_eq!(found(None, &[SWITCH, PROFILER, PATH, ("DOTNET_PROFILER_PATH", "/x.so")]), ["families-differ"]);
        let [off, none] = ["0", ""].map(|value| ("DOTNET_ENABLE_PROFILING", value));
        assert_eq!(found(Some(11), &[SWITCH, PROFILER, PATH, off]), ["switch-is-not-1", "families-differ"]);
        assert_eq!(found(Some(11), &[SWITCH, PROFILER, PATH, none]), [""; 0]);
        assert_eq!(found(Some(10), &[SWITCH, PROFILER, PATH, off]), [""; 0], "it reads one family");
        let other = ("DOTNET_PROFILER_PATH", "/other.so");
        assert_eq!(found(Some(11), &[SWITCH, PROFILER, (own, "/nowhere/p.so"), other]), ["other-path-comes-first"]);
        assert_eq!(
            found(Some(8), &[SWITCH, PROFILER, PATH, ("DOTNET_EnableDiagnostics", "0")]),
            ["profilers-forbidden"]
        );
        assert_eq!(
            found(Some(8), &[SWITCH, PROFILER, PATH, ("COMPlus_EnableDiagnostics_Profiler", "0")]),
            ["profilers-forbidden"]
        );
    }

    #[test]
    fn each_broken_list_of_notification_profilers_has_a_name() {
        let on = ("CORECLR_ENABLE_NOTIFICATION_PROFILERS", "1");
        let list = |text: &'static str| ("CORECLR_NOTIFICATION_PROFILERS", text);
        let good = "/nowhere/n.so={BDD57A0C-D4F7-486D-A8CA-86070DC12FA0};";
        assert_eq!(found(Some(10), &[on, list(good)]), [""; 0]);
        assert_eq!(found(Some(10), &[list(good)]), ["notification-is-off"]);
        assert_eq!(found(Some(10), &[on, list(good.trim_end_matches(';'))]), ["notification-list-end"]);
        assert_eq!(found(Some(11), &[on, list(good.trim_end_matches(';'))]), [""; 0]);
        assert_eq!(found(Some(10), &[on, list("/nowhere/n.so;")]), ["notification-list-malformed"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_clsid_that_the_library_does_not_have_has_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("p.c");
        let library = dir.path().join("p.so");
        let text = "const char CORPROF_PROFILER_P[] = \"corprof-profiler 1 {BDD57A0C-D4F7-486D-A8CA-86070DC12FA1} P\";\n\
                    int DllGetClassObject(void) { return 0; }\n";
        std::fs::write(&source, text).unwrap();
        let mut cc = std::process::Command::new("cc");
        assert!(cc.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap().success());
        let path = ("CORECLR_PROFILER_PATH", library.to_str().unwrap());
        assert_eq!(found(Some(8), &[SWITCH, PROFILER, path]), ["clsid-of-another-library"]);
    }
}
