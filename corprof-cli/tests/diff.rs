//! `corprof diff` on recordings that these tests write.

mod recordings;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use corprof_nettrace::events::universal::Measured;
use recordings::MILLISECOND;
use serde_json::Value;

const MAIN: u64 = 0x1000;
const METHODS: [(u64, &str); 3] = [(MAIN, "Shop.Main()"), (0x2000, "Shop.Order()"), (0x3000, "Shop.Pay()")];
/// `Main` calls one of the others.
const STACKS: [[u64; 2]; 2] = [[0x2008, MAIN + 4], [0x3008, MAIN + 4]];

/// A recording of so many samples, a millisecond apart, whose stack is the one that `stack` says.
fn recording(samples: u64, stack: impl Fn(u64) -> usize) -> Result<Vec<u8>> {
    let samples = (0..samples).map(|sample| (sample * MILLISECOND, &STACKS[stack(sample)][..]));
    recordings::of_samples(Measured::CPU, &METHODS, samples)
}

fn diff(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_corprof")).arg("diff").args(arguments).output()?)
}

/// Recordings in which `Order` has a half and then two thirds, and one with few samples.
fn files() -> Result<(tempfile::TempDir, [String; 3])> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, bytes: Vec<u8>| {
        let path: PathBuf = folder.path().join(name);
        fs::write(&path, bytes)?;
        path.to_str().map(str::to_owned).context("a path of text")
    };
    let base = write("base.nettrace", recording(4_000, |sample| usize::from(sample % 2 == 0))?)?;
    let new = write("new.nettrace", recording(4_000, |sample| usize::from(sample % 3 == 0))?)?;
    let few = write("few.nettrace", recording(50, |_| 0)?)?;
    Ok((folder, [base, new, few]))
}

#[test]
fn what_has_changed_is_told_with_its_chance() -> Result<()> {
    let (_folder, [base, new, _]) = files()?;
    let output = diff(&[&base, &new, "--json"])?;
    ensure!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let row = |name: &str| {
        let rows = document["rows"].as_array()?;
        rows.iter().find(|row| row["name"] == name).cloned()
    };
    let order = row("Shop.Order()").context("no row")?;
    assert_eq!((&order["own"]["changed"], &order["own"]["base"]), (&true.into(), &0.5.into()));
    ensure!((order["own"]["new"].as_f64().context("a number")? - 0.6667).abs() < 0.001, "{order}");
    ensure!(order["own"]["chance"].as_f64().context("a number")? < 1e-5, "{order}");
    assert_eq!(row("Shop.Main()").context("no row")?["total"]["changed"], false);

    let text = String::from_utf8(diff(&[&base, &new])?.stdout)?;
    ensure!(text.contains("2 of 3 methods have changed"), "{text}");
    ensure!(text.contains("50.00     66.6"), "{text}");
    let same = String::from_utf8(diff(&[&base, &base])?.stdout)?;
    ensure!(same.contains("0 of 3 methods have changed") && same.contains("Within the noise:"), "{same}");
    Ok(())
}

#[test]
fn a_page_is_written_in_colours() -> Result<()> {
    let (folder, [base, new, _]) = files()?;
    let page = folder.path().join("changes.html");
    let output = diff(&[&base, &new, "-o", page.to_str().context("a path of text")?])?;
    ensure!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(page)?;
    ensure!(page.contains("<summary>Differences from ") && page.contains("\"change\":["), "no differences");
    Ok(())
}

#[test]
fn mistakes_are_told_with_what_to_change() -> Result<()> {
    let (_folder, [base, new, few]) = files()?;
    for (arguments, code, expected) in [
        (&[base.as_str(), &few][..], 3, "has 50 samples, too few to compare: record longer"),
        (&[&base, &new, "-o", "x.svg"], 2, "name a file that ends in .html"),
        (&[&base, &new, "--chance", "200"], 2, "give a number from 0 to 100"),
        (&[&base], 2, "<NEW>"),
    ] {
        let output = diff(arguments)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        ensure!(text.contains(expected), "{arguments:?}: {text}");
    }
    Ok(())
}
