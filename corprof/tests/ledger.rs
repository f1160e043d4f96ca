//! Every Info method is accounted for: offered, or in the ledger with its reason, and never both. And every method of a
//! context is known to what the compiler says when it is called elsewhere.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use corprof_gen::Contracts;

/// corprof-sys/gen/unmapped.toml.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    replaced: BTreeMap<String, String>,
    never: BTreeMap<String, String>,
    later: BTreeMap<String, String>,
}

fn generator() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-sys/gen"))
}

/// The files in a folder and those below it.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// The methods that the sources document by their contract.
fn offered() -> BTreeSet<String> {
    const MARK: &str = "#[doc = contract!(";
    let mut offered = BTreeSet::new();
    let folders = ["info", "profiler_thread", "walk", "hooks"];
    let folders = folders.map(|folder| format!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/{}"), folder));
    for file in folders.iter().flat_map(|folder| sources(folder)) {
        let text = fs::read_to_string(file).unwrap();
        for rest in text.split(MARK).skip(1) {
            let (method, _) = rest.split_once(')').unwrap();
            assert!(offered.insert(method.to_owned()), "{method} is offered twice");
        }
    }
    offered
}

#[test]
fn every_info_method_is_offered_or_in_the_ledger() {
    let contracts = Contracts::read(&generator().join("contracts.toml")).unwrap();
    let ledger: Ledger = toml::from_str(&fs::read_to_string(generator().join("unmapped.toml")).unwrap()).unwrap();
    let offered = offered();
    let all: BTreeSet<String> = contracts.info.iter().map(|row| row.method.clone()).collect();
    assert_eq!(all.len(), 112);

    let mut seen = offered.clone();
    for method in ledger.replaced.keys().chain(ledger.never.keys()).chain(ledger.later.keys()) {
        assert!(seen.insert(method.clone()), "{method} is in the ledger and offered, or in the ledger twice");
    }
    assert_eq!(seen, all);
    for (old, new) in &ledger.replaced {
        assert!(
            offered.contains(new) || ledger.later.contains_key(new),
            "{old} is replaced by {new}, which is not there"
        );
    }
    for method in ledger.never.keys() {
        let row = contracts.info.iter().find(|row| row.method == *method).unwrap();
        assert!(row.obsolete && row.returns.as_deref() == Some("E_NOTIMPL"), "{method} does answer something");
    }
}

/// The public methods of each context, from the sources.
fn methods_of_contexts() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for file in sources(concat!(env!("CARGO_MANIFEST_DIR"), "/src")) {
        let text = fs::read_to_string(file).unwrap();
        let mut context = None;
        for line in text.lines() {
            if line.starts_with("impl") {
                let is_of = |name: &&str| line.contains(&format!(" {name}<'")) && !line.contains(" for ");
                context = ["InCallback", "InTriggers", "ProfilerThread"].into_iter().find(is_of);
            }
            let (Some(context), Some(rest)) = (context, line.strip_prefix("    pub ")) else { continue };
            let Some(rest) = rest.strip_prefix("unsafe ").unwrap_or(rest).strip_prefix("fn ") else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.entry(context).or_default().insert(name);
        }
    }
    found
}

#[test]
fn every_method_of_a_context_has_a_shadow_that_names_its_rule() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/misplaced.rs")).unwrap();
    let shadows = |name: &str| -> BTreeSet<String> {
        let (_, rest) = text.split_once(&format!("    {name} if ")).unwrap();
        let (_, rest) = rest.split_once('{').unwrap();
        rest.split_once('}').unwrap().0.split_whitespace().map(str::to_owned).collect()
    };
    let mut methods = methods_of_contexts();
    methods.get_mut("ProfilerThread").unwrap().retain(|name| name != "wait" && name != "is_stopping");
    for (context, name) in [
        ("InCallback", "OnlyInsideACallback"),
        ("InTriggers", "OnlyWhereACollectionMayStart"),
        ("ProfilerThread", "OnlyOnAThreadOfTheProfiler"),
    ] {
        assert_eq!(shadows(name), methods[context], "the methods of {context}, and {name} in src/misplaced.rs");
    }
}
