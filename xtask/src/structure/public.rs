//! `cargo xtask structure --public`: counts the public items of corprof, from rustdoc's JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{Metadata, cargo};
use crate::process;

/// The public items of a crate. Each counts once, at whatever number of paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Public {
    /// The names in the root that are not modules.
    root: BTreeSet<String>,
    /// The names in the prelude.
    prelude: BTreeSet<String>,
    /// The number of items by kind.
    kinds: BTreeMap<String, usize>,
    seen: BTreeSet<String>,
}

impl Public {
    /// Lets rustdoc describe corprof, and counts.
    ///
    /// # Errors
    /// If rustdoc fails or its output cannot be read.
    pub(super) fn of_corprof() -> Result<Self> {
        let mut command = cargo();
        // The JSON output of rustdoc is unstable; the variable admits it on a stable compiler.
        command.env("RUSTC_BOOTSTRAP", "1").args(["rustdoc", "--quiet", "-p", "corprof", "--lib"]);
        command.args(["-Z", "unstable-options", "--output-format", "json"]);
        process::run_as_progress(&mut command)?;
        Self::read(&Metadata::load()?.target_directory.join("doc/corprof.json"))
    }

    /// Counts the items in a file that rustdoc has written.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let json: Value = serde_json::from_str(&text)?;
        let mut public = Self::default();
        let root = Self::item(&json, &json["root"]).context("rustdoc's output has no root")?;
        public.module(&json, root, Some("root"));
        Ok(public)
    }

    fn item<'j>(json: &'j Value, id: &Value) -> Option<&'j Value> {
        json["index"].get(id.to_string())
    }

    fn module(&mut self, json: &Value, module: &Value, name: Option<&str>) {
        for id in list(&module["inner"]["module"]["items"]) {
            let Some(mut item) = Self::item(json, id) else { continue };
            let import = &item["inner"]["use"];
            let shown = import["name"].as_str().or(item["name"].as_str()).unwrap_or_default().to_owned();
            let mut id = id;
            if !import.is_null() {
                match name {
                    Some("root") => _ = self.root.insert(shown.clone()),
                    Some("prelude") => _ = self.prelude.insert(shown.clone()),
                    _ => {}
                }
                // Items of other crates are not in the index.
                let Some(target) = Self::item(json, &import["id"]) else { continue };
                (item, id) = (target, &import["id"]);
            } else if name == Some("root") && item["inner"]["module"].is_null() {
                self.root.insert(shown.clone());
            }
            if import["is_glob"] == true {
                self.module(json, item, name);
            } else if self.seen.insert(id.to_string()) {
                self.count(json, item, &shown);
            }
        }
    }

    fn count(&mut self, json: &Value, item: &Value, name: &str) {
        let Some((kind, inner)) = item["inner"].as_object().and_then(|inner| inner.iter().next()) else { return };
        self.add(kind, 1);
        // Private fields, and what the documentation hides, are not in the index.
        let shown = |ids: &Value| list(ids).iter().filter(|id| Self::item(json, id).is_some()).count();
        self.add("trait item", if kind == "trait" { shown(&inner["items"]) } else { 0 });
        self.add("variant", shown(&inner["variants"]));
        self.add("field", shown(&inner["kind"]["plain"]["fields"]));
        for block in list(&inner["impls"]).iter().filter_map(|id| Self::item(json, id)) {
            let block = &block["inner"]["impl"];
            if block["trait"].is_null() && block["is_synthetic"] == false {
                let items = list(&block["items"]).iter().filter_map(|id| Self::item(json, id));
                self.add("method", items.filter(|item| item["visibility"] == "public").count());
            }
        }
        if kind == "module" {
            self.module(json, item, Some(name));
        }
    }

    fn add(&mut self, kind: &str, count: usize) {
        if count > 0 {
            *self.kinds.entry(kind.to_owned()).or_default() += count;
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl fmt::Display for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Public items: {}", self.kinds.values().sum::<usize>())?;
        self.kinds.iter().try_for_each(|(kind, count)| writeln!(f, "  {kind}: {count}"))?;
        let names = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        writeln!(f, "Names in the root, without modules: {}\n  {}", self.root.len(), names(&self.root))?;
        writeln!(f, "Names in the prelude: {}\n  {}", self.prelude.len(), names(&self.prelude))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_once_at_all_their_paths() {
        let json = serde_json::json!({
            "root": 0,
            "index": {
                "0": { "name": "a", "inner": { "module": { "items": [1, 2, 3] } } },
                "1": { "name": "inner", "inner": { "module": { "items": [4] } } },
                "2": { "name": null, "inner": { "use": { "name": "S", "id": 4, "is_glob": false } } },
                "3": { "name": null, "inner": { "use": { "name": "other", "id": 99, "is_glob": false } } },
                "4": { "name": "S", "inner": { "struct": { "kind": { "plain": { "fields": [5, 6] } }, "impls": [7, 8] } } },
                "5": { "name": "shown", "inner": { "struct_field": {} } },
                "7": { "name": null, "inner": { "impl": { "trait": null, "is_synthetic": false, "items": [9, 10] } } },
                "8": { "name": null, "inner": { "impl": { "trait": { "path": "Clone" }, "is_synthetic": false, "items": [9] } } },
                "9": { "name": "new", "visibility": "public", "inner": { "function": {} } },
                "10": { "name": "hidden", "visibility": "default", "inner": { "function": {} } }
            }
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), json.to_string()).unwrap();
        let public = Public::read(file.path()).unwrap();
        let kinds: Vec<_> = public.kinds.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        assert_eq!(kinds, [("field", 1), ("method", 1), ("module", 1), ("struct", 1)]);
        assert_eq!(public.root, ["S", "other"].map(str::to_owned).into());
    }
}
