//! `corprof view` on the recordings that dotnet-trace has written of programs on .NET 10 (`../shared/nettrace`): what
//! each option leaves and each subject has adds up to the whole.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use lzma_rust2::XzReader;
use serde_json::Value;

/// A recording, the events that are looked at, and how many it has, by TraceEvent.
const RECORDINGS: [(&str, &str, u64); 2] = [("sampled", "samples", 15_064), ("gc", "allocations", 13_618)];

/// The recording in a folder of its own; none if it is not there.
fn unpacked(name: &str) -> Result<Option<(tempfile::TempDir, PathBuf)>> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../shared/nettrace/{name}.nettrace.xz"));
    let Ok(packed) = fs::File::open(&packed) else {
        println!("skipped: there is no {}", packed.display());
        return Ok(None);
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("app.nettrace");
    let mut bytes = Vec::new();
    XzReader::new(packed, true).read_to_end(&mut bytes)?;
    fs::write(&path, bytes)?;
    Ok(Some((folder, path)))
}

fn view(file: &Path, event: &str, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
    Ok(command.arg("view").arg(file).args(["--event", event]).args(arguments).output()?)
}

fn document(file: &Path, event: &str, arguments: &[&str]) -> Result<Value> {
    let output = view(file, event, &[&["--json"], arguments].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// How many samples a document has, and their weight.
fn total(document: &Value) -> (u64, u64) {
    let number = |name: &str| document[name].as_u64().unwrap_or_default();
    (number("samples"), number("weight"))
}

/// The same as the sum of its rows' own.
fn sum(document: &Value) -> (u64, u64) {
    let rows = document["rows"].as_array().into_iter().flatten();
    rows.fold((0, 0), |(samples, weight), row| {
        let number = |name: &str| row[name].as_u64().unwrap_or_default();
        (samples + number("own_samples"), weight + number("own"))
    })
}

fn names(document: &Value) -> Vec<&str> {
    document["rows"].as_array().into_iter().flatten().filter_map(|row| row["name"].as_str()).collect()
}

#[test]
fn rows_of_each_subject_add_up() -> Result<()> {
    for (name, event, samples) in RECORDINGS {
        let Some((_folder, file)) = unpacked(name)? else { return Ok(()) };
        let whole = total(&document(&file, event, &[])?);
        assert_eq!(whole.0, samples, "{name}");
        for by in ["method", "line", "type", "thread", "label:user"] {
            let document = document(&file, event, &["--by", by])?;
            assert_eq!((total(&document), sum(&document)), (whole, whole), "{name} by {by}");
        }
        let mine = document(&file, event, &["--only-my-code"])?;
        assert_eq!(sum(&mine), whole, "{name}");
        let are_mine = |name: &&str| name.starts_with("P.") || *name == "[no code of yours]";
        ensure!(names(&mine).iter().all(are_mine), "{name}: {:?}", names(&mine));
    }
    Ok(())
}

#[test]
fn parts_add_up_to_the_whole() -> Result<()> {
    for (name, event, samples) in RECORDINGS {
        let Some((_folder, file)) = unpacked(name)? else { return Ok(()) };
        let samples_of = |arguments: &[&str]| Ok::<_, anyhow::Error>(total(&document(&file, event, arguments)?).0);
        for moment in ["50%", "2.2"] {
            let before = samples_of(&["--to", moment])?;
            let after = samples_of(&["--from", moment])?;
            ensure!(before > 1_000 && after > 1_000, "{name}: {before} and {after} samples");
            assert_eq!(before + after, samples, "{name} at {moment}");
        }
        let with = samples_of(&["--include", "P.*"])?;
        let without = samples_of(&["--exclude", "P.*"])?;
        ensure!(with > 1_000, "{name}: {with} samples of the program");
        assert_eq!(with + without, samples, "{name}");
        let threads = document(&file, event, &["--by", "thread"])?;
        let mut of_threads = 0;
        for thread in names(&threads) {
            of_threads += samples_of(&["--thread", thread.strip_prefix("thread ").context("a thread without name")?])?;
        }
        assert_eq!(of_threads, samples, "{name}");
    }
    Ok(())
}

#[test]
fn times_of_the_day_are_those_since_the_beginning() -> Result<()> {
    // It began at 06:26:03.
    let Some((_folder, file)) = unpacked("sampled")? else { return Ok(()) };
    let of_clock = total(&document(&file, "samples", &["--from", "06:26:05", "--to", "06:26:06"])?);
    let of_a_second = total(&document(&file, "samples", &["--from", "2", "--to", "3"])?);
    let share = of_clock.0 as f64 / of_a_second.0 as f64;
    ensure!((0.95..1.05).contains(&share), "{of_clock:?} and {of_a_second:?}");
    Ok(())
}
