//! The licences of all crates that are linked into what a release contains, which all of them ask to be passed on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::COMMAND;
use super::system::System;
use crate::cargo;
use crate::process;

/// What `cargo metadata` says of every crate.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// `None` for the crates of this workspace.
    source: Option<String>,
}

/// The text for `system`: each crate with its licences.
pub(super) fn of(system: System) -> Result<String> {
    let triple = system.target().triple();
    let mut list = cargo::cargo();
    list.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", triple]);
    let metadata: Metadata = serde_json::from_str(&process::output(&mut list)?).context("of `cargo metadata`")?;
    let packages: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| ((package.name.clone(), package.version.clone()), package)).collect();
    // The library of the profilers is an example, and has what those have.
    let mut all = linked(triple, COMMAND, "normal")?;
    all.extend(linked(triple, "corprof-profilers", "normal,dev")?);
    all.sort();
    all.dedup();

    let mut notices =
        "corprof is linked with these crates, under their licences. Where a crate offers several, the choice is \
                       yours. The texts follow, each once.\n\n"
            .to_owned();
    // Most crates have the same few texts.
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    for key in all {
        let package = packages.get(&key).with_context(|| format!("cargo knows no {} {}", key.0, key.1))?;
        if package.source.is_none() {
            continue;
        }
        let title = format!("{} {}", package.name, package.version);
        notices += &format!("{title}: {}\n", package.license.as_deref().unwrap_or("see its text"));
        for text in licences(package.manifest_path.parent().unwrap_or(Path::new("")))? {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    ensure!(!texts.is_empty(), "no crate has the text of a licence");
    for (text, crates) in texts {
        notices += &format!("\n{:=<100}\n{}\n\n{text}\n", "", crates.join(", "));
    }
    Ok(notices)
}

/// The crates that a package is linked with, by their kinds.
fn linked(triple: &str, package: &str, edges: &str) -> Result<Vec<(String, String)>> {
    let mut tree = cargo::cargo();
    tree.args(["tree", "--locked", "--target", triple, "--edges", edges, "--prefix", "none", "--format", "{p}"]);
    tree.args(["-p", package]);
    Ok(process::output(&mut tree)?.lines().filter_map(name_and_version).collect())
}

/// `serde v1.0.2 (proc-macro)` → `serde`, `1.0.2`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let version = words.next()?;
    Some((name.to_owned(), version.strip_prefix('v')?.to_owned()))
}

/// The texts of the licences in the folder of a crate.
fn licences(folder: &Path) -> Result<BTreeSet<String>> {
    let mut texts = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        if entry.path().is_file() && starts.iter().any(|start| name.starts_with(start)) {
            let text = fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
            texts.insert(String::from_utf8_lossy(&text).replace("\r\n", "\n").trim_end().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_are_read() {
        let parsed = |line| name_and_version(line).unwrap();
        assert_eq!(parsed("serde v1.0.2 (proc-macro)"), ("serde".into(), "1.0.2".into()));
        assert_eq!(parsed("corprof v0.1.0 (/work/corprof) (*)"), ("corprof".into(), "0.1.0".into()));
        assert_eq!(name_and_version(""), None);
    }

    #[test]
    fn crates_that_are_linked_are_named_and_others_are_not() {
        let notices = of(System::LinuxX64).unwrap();
        for linked in ["\nclap 4.", "\nobject 0.", "\nframehop 0.", "Permission is hereby granted"] {
            assert!(notices.contains(linked), "{linked}");
        }
        // Of the tests, and of this workspace.
        assert!(!notices.contains("\nproptest ") && !notices.contains("\ncorprof 0"));
    }
}
