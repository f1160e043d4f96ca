//! Selects a profiler of a library.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use corprof_launch::checks::{self, Place};
use corprof_launch::environment::Chosen;
use corprof_launch::profiler;
use corprof_profilers::table::Profiler;
use uuid::Uuid;

use crate::embedded;
use crate::exit::{self, Failure};

/// The profiler of `library` with the CLSID or name `wanted`; without it, the only one. The name of a built-in profiler
/// selects that profiler.
///
/// # Errors
/// If there is none, or there are several and none is named: then the error lists them.
pub fn choose(library: &Path, wanted: Option<&str>) -> Result<Chosen> {
    if let (Some(built_in), None) = (Profiler::named(library), wanted) {
        let library = embedded::library()?;
        return Ok(Chosen { clsid: built_in.clsid.to_owned(), name: built_in.name.to_owned(), library });
    }
    let library = std::path::absolute(library).with_context(|| format!("`{}` is not a path", library.display()))?;
    let named = |clsid: String, name: String| Chosen { clsid, name, library: library.clone() };
    let clsid = wanted.and_then(|text| Uuid::parse_str(text).ok());
    let found = profiler::profilers(&library)?;
    if let Some(clsid) = clsid {
        let clsid = braced(clsid);
        let known = found.iter().find(|profiler| profiler.clsid == clsid);
        // A library of another SDK does not contain its CLSIDs; one of corprof's contains all.
        ensure!(
            found.is_empty() || known.is_some(),
            "{} has no profiler {clsid}, but {}",
            library.display(),
            list(&found)
        );
        let name = known.map(|profiler| profiler.name.clone());
        let file = || library.file_name().map_or_else(String::new, |file| file.to_string_lossy().into_owned());
        return Ok(named(clsid, name.unwrap_or_else(file)));
    }
    if found.is_empty() {
        bail!(
            "{} contains no CLSID: it was not made with corprof. Give the CLSID of its documentation by --clsid",
            library.display()
        );
    }
    let picked = match wanted {
        Some(name) => found.iter().find(|profiler| profiler.name == name),
        None => found.first().filter(|_| found.len() == 1),
    };
    let picked = picked.with_context(|| match wanted {
        Some(name) => format!("{} has no profiler {name}, but {}", library.display(), list(&found)),
        None => format!("{} has several profilers; name one by --clsid: {}", library.display(), list(&found)),
    })?;
    Ok(named(picked.clsid.clone(), picked.name.clone()))
}

/// The profiler of a library, or a built-in one. For an unreadable library, the error is that of the checks.
///
/// # Errors
/// If there is no such profiler. Do not start the application then.
pub fn choose_to_start(library: &Path, wanted: Option<&str>) -> Result<Chosen, Failure> {
    embedded::refuse_unknown(library).map_err(|error| Failure::new(exit::REFUSED, error))?;
    let is_built_in = wanted.is_none() && Profiler::named(library).is_some();
    let chosen = choose(library, wanted).map_err(|error| {
        if is_built_in {
            return error.context("the application was not started");
        }
        let absolute = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
        let finding = checks::library(&absolute, Place { program: None, library_path: None }).into_iter().next();
        finding.map_or(error, |finding| anyhow!("the application was not started:\n  {finding}"))
    });
    chosen.map_err(|error| Failure::new(exit::REFUSED, error))
}

/// The form of CORECLR_PROFILER.
pub fn braced(clsid: Uuid) -> String {
    format!("{{{}}}", clsid.hyphenated().to_string().to_uppercase())
}

fn list(profilers: &[profiler::Profiler]) -> String {
    profilers.iter().map(|profiler| format!("{} {}", profiler.name, profiler.clsid)).collect::<Vec<_>>().join(", ")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_profiler_is_meant_by_name_by_clsid_or_by_being_alone() {
        const ONE: &str = "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA0}";
        const TWO: &str = "{BDD57A0C-D4F7-486D-A8CA-86070DC12FA1}";
        let dir = tempfile::tempdir().unwrap();
        let make = |file: &str, profilers: &[(&str, &str)]| {
            let source = dir.path().join("source.c");
            let line = |(name, clsid): &(&str, &str)| {
                format!("const char CORPROF_PROFILER_{name}[] = \"corprof-profiler 1 {clsid} {name}\";\n")
            };
            let text: String = profilers.iter().map(line).collect();
            std::fs::write(&source, text + "int x;\n").unwrap();
            let library = dir.path().join(file);
            let mut cc = std::process::Command::new("cc");
            let status = cc.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
            assert!(status.expect("the tests need a C compiler").success());
            library
        };
        let both = make("both.so", &[("A", ONE), ("B", TWO)]);
        assert_eq!(choose(&both, Some("B")).unwrap().clsid, TWO);
        assert_eq!(choose(&both, Some(&ONE.to_lowercase())).unwrap().name, "A");
        let error = choose(&both, None).unwrap_err().to_string();
        assert!(error.contains(&format!("A {ONE}, B {TWO}")), "{error}");
        assert!(choose(&both, Some("C")).unwrap_err().to_string().contains("but A"));
        let missing = "{00000000-0000-0000-0000-000000000001}";
        assert!(choose(&both, Some(missing)).unwrap_err().to_string().contains("has no profiler {0000"));
        assert_eq!(choose(&make("one.so", &[("A", ONE)]), None).unwrap().name, "A");
        let foreign = make("foreign.so", &[]);
        assert!(choose(&foreign, None).unwrap_err().to_string().contains("--clsid"));
        assert_eq!(
            choose(&foreign, Some(ONE)).unwrap(),
            Chosen { clsid: ONE.into(), name: "foreign.so".into(), library: foreign }
        );
    }
}
