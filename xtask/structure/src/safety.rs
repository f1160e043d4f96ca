//! The tests that comments name: `(test: live FILE::NAME)`, or `(fact: NAME)` for a row of
//! `corprof-sys/gen/safety.toml`, which names tests in its turn. Each must exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::Item;

/// The table of facts about the runtime that several comments rest on.
const FACTS: &str = "corprof-sys/gen/safety.toml";

/// What comments and the table of facts name that does not exist, and facts that no comment names; below `root`.
///
/// # Errors
/// If a file cannot be read or parsed.
pub fn faults(root: &Path) -> Result<Vec<String>> {
    let mut tests = BTreeSet::new();
    for path in rust_files(&root.join("tests/live"))? {
        let name = path.strip_prefix(root.join("tests/live"))?.with_extension("");
        let parts = name.iter().map(|part| part.to_string_lossy().into_owned()).filter(|part| part != "mod");
        let parsed = syn::parse_file(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
        add_tests(&parts.collect::<Vec<_>>().join("::"), &parsed.items, &mut tests);
    }
    let table: toml::Table = fs::read_to_string(root.join(FACTS))?.parse()?;
    let facts = table.iter().map(|(name, row)| (name.as_str(), row.get("tests").and_then(toml::Value::as_array)));
    let facts: Vec<_> = facts.collect();
    let mut faults = Vec::new();
    for (fact, named) in &facts {
        let named = named.iter().copied().flatten().filter_map(toml::Value::as_str).collect::<Vec<_>>();
        let wrong = named.iter().filter(|test| !tests.contains(**test));
        faults.extend(wrong.map(|test| format!("{FACTS}: {fact}: no test `{test}`")));
        faults.extend(named.is_empty().then(|| format!("{FACTS}: {fact}: no tests")));
    }
    let mut unused: BTreeSet<_> = facts.iter().map(|(name, _)| *name).collect();
    for path in ["corprof", "corprof-cli", "corprof-diagnostics", "corprof-launch", "examples", "profilers", "tests"] {
        for path in rust_files(&root.join(path))? {
            let text = comments(&fs::read_to_string(&path)?);
            let shown = path.strip_prefix(root)?.display();
            for fact in named_by(&text, "(fact: ") {
                unused.remove(fact);
                let is_known = table.contains_key(fact);
                faults.extend((!is_known).then(|| format!("{shown}: no fact `{fact}` in {FACTS}")));
            }
            let wrong = named_by(&text, "(test: live ").into_iter().filter(|test| !tests.contains(*test));
            faults.extend(wrong.map(|test| format!("{shown}: no test `{test}` in tests/live")));
        }
    }
    faults.extend(unused.iter().map(|fact| format!("{FACTS}: {fact}: no comment names it")));
    Ok(faults)
}

/// The comments of a file, each with its lines joined.
fn comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_start());
    lines
        .filter_map(|line| Some(line.strip_prefix("//")?.trim_start_matches(['/', '!']).trim()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The names in all brackets that begin like this; commas are between several.
fn named_by<'t>(text: &'t str, begin: &str) -> Vec<&'t str> {
    let brackets = text.split(begin).skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    brackets.flat_map(|names| names.split(", ")).collect()
}

fn add_tests(module: &str, items: &[Item], tests: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Mod(inner) => {
                let items = inner.content.as_ref().map_or(&[][..], |(_, items)| items);
                add_tests(&format!("{module}::{}", inner.ident), items, tests);
            }
            Item::Fn(test) if test.attrs.iter().any(|attribute| attribute.path().is_ident("test")) => {
                tests.insert(format!("{module}::{}", test.sig.ident));
            }
            _ => {}
        }
    }
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGES: [&str; 6] =
        ["corprof-cli", "corprof-diagnostics", "corprof-launch", "examples", "profilers", "corprof/src"];

    /// The faults of a repository with this comment and this table.
    fn faults_of(comment: &str, table: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        PACKAGES.iter().for_each(|package| write(&format!("{package}/lib.rs"), "fn nothing() {}"));
        write("tests/live/edits.rs", "#[test] fn runs() {} fn helper() {} mod long { #[test] fn runs_on() {} }");
        write("tests/live/cli/run.rs", "#[test] fn ends() {}");
        write("corprof/src/info.rs", comment);
        write(FACTS, table);
        faults(root.path()).unwrap()
    }

    #[test]
    fn what_exists_may_be_named() {
        let comment = "fn f() {\n    // SAFETY: it stays (test: live\n    // edits::runs, edits::long::runs_on); as does this (fact: stays).\n}";
        let table = "[stays]\nsays = \"\"\ntests = [\"cli::run::ends\"]";
        assert_eq!(faults_of(comment, table), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_a_fault() {
        let fault = |comment: &str, table: &str| match &faults_of(comment, table)[..] {
            [fault] => fault.clone(),
            faults => format!("{faults:?}"),
        };
        let no_test = "corprof/src/info.rs: no test `edits::helper` in tests/live";
        assert_eq!(fault("// SAFETY: a (test: live edits::helper).", ""), no_test);
        let no_fact = "corprof/src/info.rs: no fact `moves` in corprof-sys/gen/safety.toml";
        assert_eq!(fault("// SAFETY: a (fact: moves).", ""), no_fact);
        let named = "// SAFETY: a (fact: stays).";
        assert!(fault(named, "[stays]\ntests = [\"edits::gone\"]").ends_with("stays: no test `edits::gone`"));
        assert!(fault(named, "[stays]\nsays = \"\"").ends_with("stays: no tests"));
        assert!(fault("", "[stays]\ntests = [\"edits::runs\"]").ends_with("stays: no comment names it"));
        assert_eq!(fault("let text = \"(fact: moves)\";", ""), "[]");
    }
}
