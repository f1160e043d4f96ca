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
    let folders = ["info", "profiler_thread", "walk", "hooks", "detach"];
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

/// The public methods of each context with the names of their parameters, from the sources: `metadata(module)`.
fn methods_of_contexts() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for file in sources(concat!(env!("CARGO_MANIFEST_DIR"), "/src")) {
        let text = fs::read_to_string(file).unwrap();
        if !text.contains("impl") || text.starts_with("// @generated") {
            continue;
        }
        for item in syn::parse_file(&text).unwrap().items {
            let syn::Item::Impl(block) = item else { continue };
            let syn::Type::Path(of) = &*block.self_ty else { continue };
            let name = of.path.segments.last().unwrap().ident.to_string();
            let context = ["InCallback", "InTriggers", "ProfilerThread"].into_iter().find(|context| *context == name);
            let Some(context) = context.filter(|_| block.trait_.is_none()) else { continue };
            let methods = block.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(method) if matches!(method.vis, syn::Visibility::Public(_)) => {
                    Some(shown(&method.sig))
                }
                _ => None,
            });
            found.entry(context).or_default().extend(methods);
        }
    }
    found
}

/// A method's name and those of its parameters.
fn shown(signature: &syn::Signature) -> String {
    let parameters = signature.inputs.iter().filter_map(|input| match input {
        syn::FnArg::Typed(parameter) => match &*parameter.pat {
            syn::Pat::Ident(name) => Some(name.ident.to_string()),
            _ => Some("_".to_owned()),
        },
        syn::FnArg::Receiver(_) => None,
    });
    format!("{}({})", signature.ident, parameters.collect::<Vec<_>>().join(", "))
}

#[test]
fn every_method_of_a_context_is_known_where_it_is_absent() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/wrong_context.rs")).unwrap();
    let absent = |bound: &str| -> BTreeSet<String> {
        let (_, rest) = text.split_once(&format!("\n    {bound} {{\n")).unwrap();
        rest.split_once('}')
            .unwrap()
            .0
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut methods = methods_of_contexts();
    methods.get_mut("ProfilerThread").unwrap().retain(|method| method != "wait(duration)" && method != "is_stopping()");
    for (context, bound) in
        [("InCallback", "InCallbackContext"), ("InTriggers", "MayTriggerGc"), ("ProfilerThread", "OnProfilerThread")]
    {
        assert_eq!(absent(bound), methods[context], "the methods of {context}, and {bound} in src/wrong_context.rs");
    }
}
