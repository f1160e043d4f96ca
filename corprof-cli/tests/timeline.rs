//! The timeline of `corprof view -o page.html`, in Chromium.

mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use corprof_nettrace::events::universal::{Measured, ProcessSymbol};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Metadata, NewEvent, Thread, Trace, UtcTime, Writer};
use pages::{shown, words};

const MILLISECOND: u64 = 1_000_000;
const MAIN: u64 = 0x1000;
const ORDER: u64 = 0x2000;

const CPU: u32 = 1;
const SYMBOL: u32 = 2;
const SUSPEND: u32 = 3;
const RESTART: u32 = 4;
const THROWN: u32 = 5;
const CONTENTION: u32 = 6;

/// An event at a time in milliseconds, of the thread 1 or 2.
struct Happening {
    at: u64,
    thread: u64,
    definition: u32,
    payload: Vec<u8>,
    stack: Vec<u64>,
}

/// A recording of two seconds: the thread 1 has a sample each 10 ms in the first, the thread 2 in the second. A
/// collection stops threads from 0.500 to 0.530 s, a profiler from 0.7 to 0.8 s; three exceptions are thrown at 1.000
/// s, and the thread 2 has waited for a lock from 1.205 to 1.225 s.
fn recording() -> Result<Vec<u8>> {
    let began = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };
    let mut writer = Writer::new(Vec::new(), &Trace::new(began, 0, 1_000 * MILLISECOND))?;
    let system = Provider::UNIVERSAL_SYSTEM.name();
    let runtime = |id, number, version| {
        let mut definition = Metadata::new(id, Provider::RUNTIME.name(), number, "");
        definition.version = version;
        definition
    };
    for definition in [
        Metadata::new(CPU, Provider::UNIVERSAL_EVENTS.name(), 1, Measured::CPU).with_fields(Measured::fields()),
        Metadata::new(SYMBOL, system, ProcessSymbol::ID, ProcessSymbol::NAME).with_fields(ProcessSymbol::fields()),
        runtime(SUSPEND, 9, 1),
        runtime(RESTART, 3, 1),
        runtime(THROWN, 80, 1),
        runtime(CONTENTION, 91, 1),
    ] {
        writer.define_event(&definition)?;
    }
    for index in [1, 2] {
        let mut thread = Thread::new(index);
        (thread.os_thread_id, thread.name) = (Some(100 + index), Some(format!("worker {index}")));
        writer.define_thread(&thread)?;
    }
    let mut happenings = Vec::new();
    let mut add = |at, thread, definition, payload: Vec<u8>, stack: &[u64]| {
        happenings.push(Happening { at, thread, definition, payload, stack: stack.to_vec() });
    };
    for (id, start_address, name) in [(1, MAIN, "Shop.Main()"), (2, ORDER, "Shop.Order()")] {
        let mut payload = Vec::new();
        let end_address = start_address + 0xff;
        ProcessSymbol { id, mapping_id: 0, start_address, end_address, name: Text::from(name) }.write(&mut payload)?;
        add(0, 1, SYMBOL, payload, &[]);
    }
    for sample in 0..200 {
        let mut payload = Vec::new();
        Measured { value: 1 }.write(&mut payload);
        let (thread, method) = if sample < 100 { (1, MAIN) } else { (2, ORDER) };
        add(sample * 10 + 5, thread, CPU, payload, &[method + 8]);
    }
    let suspended = |reason: u32| [&reason.to_le_bytes()[..], &[0; 6]].concat();
    add(500, 1, SUSPEND, suspended(1), &[]);
    add(530, 1, RESTART, vec![0; 2], &[]);
    add(700, 1, SUSPEND, suspended(8), &[]);
    add(800, 1, RESTART, vec![0; 2], &[]);
    for _ in 0..3 {
        let name: Vec<u8> = "E\0\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
        add(1000, 2, THROWN, [&name[..], &[0; 16]].concat(), &[]);
    }
    add(1225, 2, CONTENTION, [&[0; 3][..], &f64::to_le_bytes(20e6)].concat(), &[]);
    happenings.sort_by_key(|happening| happening.at);
    for Happening { at, thread, definition, payload, stack } in happenings {
        let mut event = NewEvent::new(definition, thread, at * MILLISECOND);
        (event.payload, event.stack) = (&payload, &stack);
        writer.write(&event)?;
    }
    Ok(writer.finish()?)
}

fn view(folder: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
    Ok(command.arg("view").args(arguments).current_dir(folder).output()?)
}

/// The page of the recording, in a folder of its own.
fn page(arguments: &[&str]) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("shop.nettrace"), recording()?)?;
    let output = view(folder.path(), &[&["shop.nettrace", "-o", "page.html"], arguments].concat())?;
    ensure!(output.status.success(), "{output:?}");
    let page = folder.path().join("page.html");
    Ok((folder, page))
}

const LANES: &str = "stood still for collections 30 ms · exceptions thrown 3 · waited for locks 20 ms";

#[test]
fn a_range_chooses_what_picture_and_table_are_of() -> Result<()> {
    let (_folder, page) = page(&[])?;
    let uses = ["", "#at=1.2-1.22", "#at=0.5-0.52"].map(|fragment| (fragment, ""));
    let Some([whole, part, paused]) = shown(&page, uses)? else { return Ok(()) };
    ensure!(words(&whole)?.starts_with(&format!("All the time: 200 samples · {LANES}. Click")), "{}", words(&whole)?);
    let expected = "0:01.20 to 0:01.22: 2 samples · stood still for collections 0 µs · exceptions thrown 0 · waited for locks 15 ms";
    assert_eq!(words(&part)?, expected);
    let has_row = |page: &str, method: &str| page.contains(&format!("title=\"{method}\""));
    ensure!(part.contains(">2 samples shown.") && has_row(&part, "Shop.Order()") && !has_row(&part, "Shop.Main()"));
    ensure!(words(&paused)?.contains("collections 20 ms") && has_row(&paused, "Shop.Main()"), "{}", words(&paused)?);
    Ok(())
}

#[test]
fn keys_pointers_and_threads_choose_as_well() -> Result<()> {
    let (_folder, page) = page(&[])?;
    // A bar is of one cell, as the window is wide enough for 100.
    let drag = "const at = (cell) => canvas.clientWidth * (cell + 0.5) / 100;
        point('pointerdown', at(2), 30); point('pointermove', at(39), 90); point('pointerup', at(39), 90);";
    let cases = [
        ("key('Home'); key('ArrowRight'); key('Enter');", "0:00.02 to 0:00.04: 2 samples", 2),
        (
            "key('End'); key('PageUp', true); key('ArrowLeft', true); key('Enter');",
            "0:01.76 to 0:02.00: 24 samples",
            24,
        ),
        ("point('pointerdown', 1, 5); point('pointerup', 1, 5);", "0:00.00 to 0:00.02: 2 samples", 2),
        (drag, "0:00.04 to 0:00.80: 76 samples", 76),
        ("key('Home'); key('Enter'); key('Escape');", "All the time: 200 samples", 200),
        // The second thread alone.
        ("choose('threads', '1');", "All the time: 100 samples", 100),
        (
            "choose('threads', '1'); key('End'); key('Home', true); key('Enter');",
            "0:00.00 to 0:02.00: 100 samples",
            100,
        ),
    ];
    let Some(shown) = shown(&page, cases.map(|(todo, ..)| ("", todo)))? else { return Ok(()) };
    for ((todo, expected, samples), shown) in cases.iter().zip(&shown) {
        let found = words(shown)?;
        ensure!(found.starts_with(*expected), "{todo}: {found}");
        ensure!(shown.contains(&format!(">{samples} samples shown.")), "{todo}: {shown}");
    }
    Ok(())
}

#[test]
fn lanes_are_of_the_part_and_the_thread_that_are_looked_at() -> Result<()> {
    let lanes = |arguments: &[&str]| -> Result<Vec<String>> {
        let (_folder, page) = page(arguments)?;
        let data = pages::data(&page)?;
        assert_eq!((&data["heat"]["cell"], &data["heat"]["rows"]), (&0.02.into(), &1.into()));
        let lanes = data["heat"]["lanes"].as_array().cloned().unwrap_or_default();
        Ok(lanes.iter().map(|lane| lane["title"].as_str().unwrap_or_default().to_owned()).collect())
    };
    let [collections, exceptions, locks] =
        ["stood still for collections", "exceptions thrown", "waited for locks"].map(str::to_owned);
    assert_eq!(lanes(&[])?, [collections.clone(), exceptions.clone(), locks.clone()]);
    assert_eq!(lanes(&["--from", "0.6", "--to", "1.1"])?, std::slice::from_ref(&exceptions));
    assert_eq!(lanes(&["--thread", "101"])?, std::slice::from_ref(&collections));
    assert_eq!(lanes(&["--thread", "102"])?, [collections, exceptions, locks]);
    Ok(())
}

#[test]
fn several_files_have_no_timeline() -> Result<()> {
    let (folder, page) = page(&[])?;
    let output = view(folder.path(), &["shop.nettrace", "shop.nettrace", "-o", "page.html"])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(pages::data(&page)?.get("heat").is_none());
    Ok(())
}
