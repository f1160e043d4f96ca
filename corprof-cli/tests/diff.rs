//! `corprof diff` on recordings that these tests write.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use corprof_nettrace::events::universal::{Measured, ProcessSymbol};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Metadata, NewEvent, Thread, Trace, UtcTime, Writer};
use serde_json::Value;

const MILLISECOND: u64 = 1_000_000;
const ADDRESSES: [u64; 3] = [0x1000, 0x2000, 0x3000];

/// A recording of so many samples, a millisecond apart, whose method is the one of `method`.
fn recording(samples: u64, method: impl Fn(u64) -> usize) -> Result<Vec<u8>> {
    let began = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };
    let mut writer = Writer::new(Vec::new(), &Trace::new(began, 0, 1_000 * MILLISECOND))?;
    let cpu = Metadata::new(1, Provider::UNIVERSAL_EVENTS.name(), 1, Measured::CPU).with_fields(Measured::fields());
    let system = Provider::UNIVERSAL_SYSTEM.name();
    let symbol = Metadata::new(2, system, ProcessSymbol::ID, ProcessSymbol::NAME).with_fields(ProcessSymbol::fields());
    writer.define_event(&cpu)?;
    writer.define_event(&symbol)?;
    writer.define_thread(&Thread::new(1))?;
    for (id, (start_address, name)) in (1..).zip(ADDRESSES.iter().zip(["Shop.Main()", "Shop.Order()", "Shop.Pay()"])) {
        let mut payload = Vec::new();
        let end_address = start_address + 0xff;
        let name = Text::from(name);
        ProcessSymbol { id, mapping_id: 0, start_address: *start_address, end_address, name }.write(&mut payload)?;
        let mut event = NewEvent::new(2, 1, 0);
        event.payload = &payload;
        writer.write(&event)?;
    }
    let mut payload = Vec::new();
    Measured { value: 1 }.write(&mut payload);
    for sample in 0..samples {
        let mut event = NewEvent::new(1, 1, sample * MILLISECOND);
        let stack = [ADDRESSES[method(sample)] + 8, ADDRESSES[0] + 4];
        (event.payload, event.stack) = (&payload, &stack);
        writer.write(&event)?;
    }
    Ok(writer.finish()?)
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
    let base = write("base.nettrace", recording(4_000, |sample| 1 + usize::from(sample % 2 == 0))?)?;
    let new = write("new.nettrace", recording(4_000, |sample| 1 + usize::from(sample % 3 == 0))?)?;
    let few = write("few.nettrace", recording(50, |_| 1)?)?;
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
