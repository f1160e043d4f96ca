//! Every Info method is accounted for: contracts.toml says how corprof offers it, and the sources agree. And the
//! compiler has a message for each method of a context, for calls from elsewhere.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use corprof_gen::Contracts;
use corprof_gen::contracts::Context;

fn contracts() -> Contracts {
    Contracts::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-sys/gen/contracts.toml"))).unwrap()
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
fn every_info_method_is_accounted_for() {
    let contracts = contracts();
    assert_eq!(contracts.info.len(), 112);
    let offered = offered();
    let rows = contracts.info.iter().filter(|row| !row.offered.is_empty() || row.step_of.is_some());
    let expected: BTreeSet<String> = rows.map(|row| row.method.clone()).collect();
    assert_eq!(offered, expected, "`contract!` in corprof/src, and offered or step_of in contracts.toml");
    for row in &contracts.info {
        if let Some(new) = &row.replaced_by {
            assert!(offered.contains(new), "{} is replaced by {new}, which is not there", row.method);
        }
        if row.never.is_some() {
            let answers_nothing = row.obsolete && row.returns.as_deref() == Some("E_NOTIMPL");
            assert!(answers_nothing, "{} does answer something", row.method);
        }
    }
}

/// The types whose methods make calls.
const CONTEXTS: [&str; 5] = ["Info", "InNoGc", "InCallback", "InInitialize", "ProfilerThread"];

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
            let context = CONTEXTS.into_iter().find(|context| *context == name);
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

/// Methods of contexts that are not calls of the runtime. The first eight have their messages in src/wrong_context.rs;
/// a message about the others would surprise users who misspell another method.
const NO_CALLS: &[(&str, Context)] = &[
    ("names()", Context::InNoGc),
    ("stack_boundary()", Context::InNoGc),
    ("own_stack(limit)", Context::InNoGc),
    ("with_hook_thread(look)", Context::InNoGc),
    ("spawn_profiler_thread(name, run)", Context::InCallback),
    ("edit_method(module, method, edit)", Context::InCallback),
    ("edit_once(function, edit)", Context::InCallback),
    ("set_checked_body(body)", Context::InCallback),
    ("start_runtime_events(set)", Context::InCallback),
    ("event_pipe_define(provider)", Context::InCallback),
    ("detacher()", Context::InInitialize),
    ("start_instrumentation()", Context::InInitialize),
    ("is_stopping()", Context::ProfilerThread),
    ("wait(duration)", Context::ProfilerThread),
    ("wait_for_jitted_functions()", Context::ProfilerThread),
    ("is_runtime_entry(function)", Context::InNoGc),
    ("value(object)", Context::InNoGc),
    ("take_heap_snapshot(deadline, sink)", Context::ProfilerThread),
    ("take_heap_snapshot_with_fields(deadline, sink, fields)", Context::ProfilerThread),
];

#[test]
fn every_method_of_a_context_is_in_its_row() {
    let contracts = contracts();
    for (name, methods) in methods_of_contexts() {
        let is_here = |context: Context| format!("{context:?}") == name;
        let rows = contracts.info.iter().filter(|row| is_here(row.context()));
        let forms = rows.flat_map(|row| &row.offered).filter(|form| !form.contains("::")).map(String::as_str);
        let others = NO_CALLS.iter().filter(|(_, context)| is_here(*context)).map(|(form, _)| *form);
        let expected: BTreeSet<String> = forms.chain(others).map(str::to_owned).collect();
        if name == "Info" {
            // It has methods besides, such as those with the compiler's messages.
            let missing: Vec<_> = expected.difference(&methods).collect();
            assert!(missing.is_empty(), "offered in contracts.toml, but no methods of Info: {missing:?}");
            continue;
        }
        assert_eq!(methods, expected, "the methods of {name}, and offered in contracts.toml");
    }
}
