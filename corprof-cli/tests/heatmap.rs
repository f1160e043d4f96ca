//! `corprof heatmap` on recordings that these tests write, and its page in Chromium.

mod pages;
mod recordings;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use corprof_nettrace::events::universal::Measured;
use pages::shown;
use recordings::MILLISECOND;
use serde_json::Value;

const MAIN: u64 = 0x1000;
const ORDER: u64 = 0x2000;
const MARKUP: u64 = 0x3000;

/// A recording of 100 samples a second, each at 5 ms of its 10: `Main` alone in the first second, nothing in the second
/// one, `Order` in the third one, and a method with a name like markup in the last.
fn recording(distance: u64) -> Result<Vec<u8>> {
    let methods = [(MAIN, "Shop.Main()"), (ORDER, "Shop.Order()"), (MARKUP, "Shop.</script><b>bold()")];
    let seconds = [(0, &[MAIN + 4][..]), (2, &[ORDER + 8, MAIN + 4]), (3, &[MARKUP + 8, MAIN + 4])];
    let samples = seconds.into_iter().flat_map(|(second, stack)| {
        (0..100).map(move |sample| ((second * 1_000 + sample * 10 + 5) * MILLISECOND * distance, stack))
    });
    recordings::of_samples(Measured::CPU, &methods, samples)
}

fn file(bytes: &[u8]) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.nettrace");
    fs::write(&path, bytes)?;
    Ok((folder, path))
}

/// Runs the command in a folder.
fn heatmap(folder: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
    Ok(command.arg("heatmap").args(arguments).current_dir(folder).output()?)
}

/// The data of a page that the command has written.
fn data(folder: &Path, arguments: &[&str]) -> Result<Value> {
    let output = heatmap(folder, &[&["shop.nettrace"], arguments].concat())?;
    ensure!(output.status.success(), "{output:?}");
    pages::data(&folder.join("heatmap.html"))
}

#[test]
fn a_page_has_a_column_for_each_second() -> Result<()> {
    let (folder, _) = file(&recording(1)?)?;
    let data = data(folder.path(), &[])?;
    let heat = &data["heat"];
    assert_eq!((&heat["cell"], &heat["rows"], &heat["columns"]), (&0.02.into(), &50.into(), &4.into()));
    assert_eq!((&heat["first"], &heat["quantum"]), (&0.into(), &1.into()));
    let weights = data["threads"][0]["weight"].as_array().context("no weights")?;
    assert_eq!(weights.iter().filter_map(Value::as_u64).sum::<u64>(), 300);
    Ok(())
}

#[test]
fn a_long_recording_keeps_short_cells_and_is_drawn_in_longer_ones() -> Result<()> {
    let (folder, _) = file(&recording(1_000)?)?;
    let whole = data(folder.path(), &[])?;
    let heat = &whole["heat"];
    assert_eq!((&heat["cell"], &heat["rows"], &heat["columns"]), (&0.02.into(), &50.into(), &3996.into()));
    assert_eq!(heat["levels"][0], serde_json::json!([50, 60]));
    let part = data(folder.path(), &["--from", "2000", "--to", "2100", "--include", "Order"])?;
    let heat = &part["heat"];
    assert_eq!((&heat["cell"], &heat["first"], &heat["columns"]), (&0.02.into(), &2000.into(), &101.into()));
    Ok(())
}

#[test]
fn shorter_cells_of_a_long_recording_are_shown_on_demand() -> Result<()> {
    let (folder, _) = file(&recording(1_000)?)?;
    ensure!(heatmap(folder.path(), &["shop.nettrace"])?.status.success());
    let page = folder.path().join("heatmap.html");
    let choose = "key('Home'); for (let i = 0; i < 5; i++) key('ArrowDown'); key('Enter');";
    let click = |id: &str| format!("document.getElementById('moments-{id}').click();");
    let shorter = choose.to_owned() + &click("in");
    // The sample is in the first of the cells of its second.
    let shortest = shorter.clone() + "key('Home'); for (let i = 0; i < 5; i++) key('ArrowRight'); key('Enter');";
    let back = shortest.clone() + "key('-');";
    let in_and_out = click("in") + &click("out");
    let cases = [
        (("", ""), "All the time: 300 samples", "A column is a minute, from top to bottom; a cell 1 s."),
        (("", choose), "0:00:05 to 0:00:06: 1 sample", "A column is a minute"),
        (
            ("", &shorter),
            "0:00:05.00 to 0:00:06.00: 1 sample",
            "A column is a second, from top to bottom; a cell 20 ms.",
        ),
        (("", &shortest), "0:00:05.00 to 0:00:05.02: 1 sample", "A column is a second"),
        (("", &back), "0:00:05 to 0:00:06: 1 sample", "A column is a minute"),
        (("", &in_and_out), "All the time: 300 samples", "A column is a minute"),
        // A link asks for the cells that it needs.
        (("#at=2505-2506", ""), "0:41:45 to 0:41:46: 1 sample", "A column is a minute"),
        (("#at=2505-2505.02", ""), "0:41:45.00 to 0:41:45.02: 1 sample", "A column is a second"),
        (("#at=2505.02-2505.1", ""), "0:41:45.02 to 0:41:45.10: 0 samples", "A column is a second"),
    ];
    let Some(shown) = shown(&page, cases.map(|(used, ..)| used))? else { return Ok(()) };
    for ((used, expected, column), shown) in cases.iter().zip(&shown) {
        ensure!(pages::words(shown)?.starts_with(expected), "{used:?}: {}", pages::words(shown)?);
        ensure!(shown.contains(column), "{used:?}: {shown}");
    }
    Ok(())
}

#[test]
fn a_range_of_cells_chooses_what_the_flame_graph_is_of() -> Result<()> {
    let (folder, _) = file(&recording(1)?)?;
    let output = heatmap(folder.path(), &["shop.nettrace", "-o", "page.html"])?;
    ensure!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr)?;
    ensure!(told.contains("wrote page.html: 4 columns in cells of 20ms"), "{told}");
    let page = folder.path().join("page.html");
    let uses = ["", "#at=2.5-2.6", "#at=0-0.02", "#at=1.2-1.8"].map(|fragment| (fragment, ""));
    let Some([whole, third, first, idle]) = shown(&page, uses)? else { return Ok(()) };
    ensure!(whole.contains("All the time: 300 samples"), "{whole}");
    for expected in ["to 1 sample<", "A column is a second", ">300 samples shown."] {
        ensure!(whole.contains(expected), "{expected} in {whole}");
    }
    ensure!(!whole.contains("<b>bold"), "a name became markup");
    let has_row = |page: &str, method: &str| page.contains(&format!("title=\"{method}\""));
    ensure!(third.contains("0:02.50 to 0:02.60: 10 samples"), "{third}");
    ensure!(third.contains(">10 samples shown.") && has_row(&third, "Shop.Order()"), "{third}");
    ensure!(first.contains("0:00.00 to 0:00.02: 2 samples") && !has_row(&first, "Shop.Order()"), "{first}");
    ensure!(idle.contains("0:01.20 to 0:01.80: 0 samples"), "{idle}");
    Ok(())
}

#[test]
fn keys_and_pointers_choose_a_range() -> Result<()> {
    let (folder, _) = file(&recording(1)?)?;
    ensure!(heatmap(folder.path(), &["shop.nettrace"])?.status.success());
    let page = folder.path().join("heatmap.html");
    // In the middle of a cell: columns are 24 pixels wide, cells 3 high.
    let point = |name: &str, column: u32, row: u32| format!("point('{name}', {}, {});", column * 24 + 12, row * 3 + 1);
    let drag = [("pointerdown", 3, 10), ("pointermove", 2, 40), ("pointerup", 2, 40)];
    let drag = drag.map(|(name, column, row)| point(name, column, row)).concat();
    let click = point("pointerdown", 2, 7) + &point("pointerup", 2, 7);
    let cases = [
        ("key('Home'); for (let i = 0; i < 2; i++) key('ArrowRight'); key('Enter');", "0:02.00 to 0:02.02", 2),
        ("key('End'); key('ArrowUp', true); key('ArrowLeft', true); key('Enter');", "0:02.96 to 0:04.00", 104),
        (&click, "0:02.14 to 0:02.16", 2),
        (&drag, "0:02.80 to 0:03.22", 42),
        ("key('Home'); key('Enter'); key('Escape');", "All the time", 300),
    ];
    let Some(shown) = shown(&page, cases.map(|(todo, ..)| ("", todo)))? else { return Ok(()) };
    for ((todo, words, samples), shown) in cases.iter().zip(&shown) {
        let found = pages::words(shown)?;
        ensure!(found.starts_with(&format!("{words}: {samples} samples")), "{todo}: {found}");
        ensure!(shown.contains(&format!(">{samples} samples shown.")), "{todo}: {shown}");
    }
    Ok(())
}

#[test]
fn mistakes_are_told_with_what_to_change() -> Result<()> {
    let (folder, _) = file(&recording(1)?)?;
    for (arguments, code, expected) in [
        (&["none.nettrace"][..], 3, "cannot read none.nettrace"),
        (&["shop.nettrace", "-o", "x.svg"], 2, "a heat map is written as a page: name a file that ends in .html"),
        (&["shop.nettrace", "-o", "no/x.html"], 3, "cannot write the page"),
        (&["shop.nettrace", "--exclude", "Main"], 3, "no sample is left: give wider --from"),
        (&["shop.nettrace", "--event", "exceptions"], 3, "give --event one that has stacks here"),
        (&[], 2, "<FILE>"),
    ] {
        let output = heatmap(folder.path(), arguments)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        ensure!(text.contains(expected), "{arguments:?}: {text}");
    }
    Ok(())
}

/// The recording with another beginning: 15:04 and so many seconds.
fn beginning(second: u16) -> Result<Vec<u8>> {
    let samples = (0..100).map(|sample| ((sample * 10 + 5) * MILLISECOND, &[ORDER + 8, MAIN + 4][..]));
    let methods = [(MAIN, "Shop.Main()"), (ORDER, "Shop.Order()")];
    recordings::begun_at(second, Measured::CPU, &methods, samples)
}

#[test]
fn several_recordings_are_one_time() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, second) in [("b.nettrace", 15), ("a.nettrace", 5)] {
        fs::write(folder.path().join(name), beginning(second)?)?;
    }
    let data = |arguments: &[&str]| -> Result<Value> {
        let output = heatmap(folder.path(), &[&["b.nettrace", "a.nettrace"], arguments].concat())?;
        ensure!(output.status.success(), "{output:?}");
        pages::data(&folder.path().join("heatmap.html"))
    };
    let columns = |data: &Value| (data["heat"]["first"].clone(), data["heat"]["columns"].clone());
    let weight = |data: &Value| -> u64 {
        data["threads"][0]["weight"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum()
    };
    let whole = data(&[])?;
    assert_eq!((columns(&whole), weight(&whole)), ((0.into(), 11.into()), 200));
    let late = data(&["--from", "10.5"])?;
    assert_eq!((columns(&late), weight(&late)), ((10.into(), 1.into()), 50));
    let early = data(&["--to", "15:04:06.1"])?;
    assert_eq!((columns(&early), weight(&early)), ((0.into(), 1.into()), 100));
    let half = data(&["--from", "50%"])?;
    assert_eq!(weight(&half), 100);
    data(&[])?;
    let page = folder.path().join("heatmap.html");
    let Some([second, between]) = shown(&page, [("#at=10-10.1", ""), ("#at=2-9", "")])? else { return Ok(()) };
    ensure!(pages::words(&second)?.starts_with("0:10.00 to 0:10.10: 10 samples"), "{}", pages::words(&second)?);
    ensure!(pages::words(&between)?.contains(": 0 samples"), "{}", pages::words(&between)?);
    let output = heatmap(folder.path(), &["a.nettrace", "-"])?;
    ensure!(String::from_utf8_lossy(&output.stderr).contains("standard input cannot be joined"), "{output:?}");
    Ok(())
}
