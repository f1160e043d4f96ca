//! The tables of all traces are those that another decoder made (tests/traces/README.md).

#![cfg(feature = "nettrace")]

#[path = "../examples/async_table/table.rs"]
mod table;

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;
use serde_json::Value;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The traces of the repository, and those beside it if they are there.
fn folders() -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = package.join("../../shared/nettrace/async");
    let mut folders = vec![package.join("tests/traces")];
    if beside.is_dir() {
        folders.push(beside);
    }
    folders
}

#[test]
fn they_are_those_of_another_decoder() -> Result {
    let mut traces = 0;
    for folder in folders() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.to_string_lossy();
            if let Some(trace) = name.strip_suffix(".expected.json") {
                let expected = serde_json::from_str(&fs::read_to_string(&path)?)?;
                compare(trace, &expected)?;
                traces += 1;
            }
        }
    }
    assert!(traces >= 3, "{traces} traces");
    Ok(())
}

fn compare(trace: &str, expected: &Value) -> Result {
    let mut bytes = Vec::new();
    XzReader::new(File::open(format!("{trace}.nettrace.xz"))?, true).read_to_end(&mut bytes)?;
    let join = &expected["join"];
    let leaf = join["leaf"].as_str().ok_or("no leaf")?;
    let marks = join["by_mark_physical"].as_object().ok_or("no marks")?;
    let marks: Vec<String> = marks.keys().filter(|mark| *mark != "-").cloned().collect();
    let found = table::table(&bytes, leaf, &marks)?;
    let parts = found.as_object().ok_or("no object")?;
    assert_eq!(parts.len(), 7, "{trace}");
    let mut differences = Vec::new();
    for (key, found) in parts {
        differ(key, &expected[key], found, &mut differences);
    }
    assert!(differences.is_empty(), "{trace}: {differences:#?}");
    Ok(())
}

fn differ(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    let (Some(all), Some(others)) = (expected.as_object(), found.as_object()) else {
        if expected != found {
            differences.push(format!("{path}: {expected} expected, {found} found"));
        }
        return;
    };
    let mut keys: Vec<&String> = all.keys().chain(others.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        differ(&format!("{path}/{key}"), &expected[key], &found[key], differences);
    }
}
