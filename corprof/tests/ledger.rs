//! Every Info method is accounted for: offered, or in the ledger with its reason, and never both.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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

/// The methods that the sources in corprof/src/info document by their contract.
fn offered() -> BTreeSet<String> {
    const MARK: &str = "#[doc = contract!(";
    let mut offered = BTreeSet::new();
    let mut folders = vec![Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/info")).to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for file in files {
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
