//! `corprof view` on recordings that these tests write, in the format of `dotnet-trace collect-linux` and of corprof.

mod recordings;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use corprof_nettrace::events::universal::{ExistingProcess, Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::events::{Provider, Text};
use corprof_nettrace::{Label, Metadata, NewEvent, Thread, Trace, UtcTime, Writer};
use recordings::MILLISECOND;
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;
const MAIN: u64 = 0x1000;
const ORDER: u64 = 0x2000;
const READ: u64 = 0x9000;

const CPU: u32 = 1;
const SWITCH: u32 = 2;
const MAPPING: u32 = 3;
const SYMBOL: u32 = 4;
const PROCESS: u32 = 5;

/// A recording of ten seconds: the thread `main` has 60 samples of `Order` in `Main`, `worker 1` has 40 of `read` in
/// `Main`, with the label `user`, and waits once, for half a second.
fn recording() -> Result<Vec<u8>> {
    let began = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };
    let mut writer = Writer::new(Vec::new(), &Trace::new(began, 0, SECOND))?;
    let system = Provider::UNIVERSAL_SYSTEM.name();
    let events = Provider::UNIVERSAL_EVENTS.name();
    for definition in [
        Metadata::new(CPU, events, 1, Measured::CPU).with_fields(Measured::fields()),
        Metadata::new(SWITCH, events, 2, Measured::CONTEXT_SWITCH).with_fields(Measured::fields()),
        Metadata::new(MAPPING, system, ProcessMapping::ID, ProcessMapping::NAME).with_fields(ProcessMapping::fields()),
        Metadata::new(SYMBOL, system, ProcessSymbol::ID, ProcessSymbol::NAME).with_fields(ProcessSymbol::fields()),
        Metadata::new(PROCESS, system, ExistingProcess::ID, ExistingProcess::NAME)
            .with_fields(ExistingProcess::fields()),
    ] {
        writer.define_event(&definition)?;
    }
    for (index, name) in [(1, "main"), (2, "worker 1")] {
        let mut thread = Thread::new(index);
        (thread.os_thread_id, thread.process_id, thread.name) = (Some(100 + index), Some(100), Some(name.to_owned()));
        writer.define_thread(&thread)?;
    }
    let mut payload = Vec::new();
    ExistingProcess { namespace_id: 0, name: Text::from("shop"), namespace_name: Text::from("") }
        .write(&mut payload)?;
    write(&mut writer, PROCESS, 0, &payload)?;
    for (id, start, file) in [(1, MAIN, "/app/Shop.dll"), (2, READ, "/lib/libc.so.6")] {
        payload.clear();
        let file_name = Text::from(file);
        let mapping = ProcessMapping {
            id,
            start_address: start,
            end_address: start + 0x1fff,
            file_offset: 0,
            file_name,
            metadata_id: 0,
        };
        mapping.write(&mut payload)?;
        write(&mut writer, MAPPING, 0, &payload)?;
    }
    let order = "instance int32 [Shop] Shop.Order::Total(int32)[Tier1]";
    for (id, mapping_id, start_address, name) in
        [(1, 1, MAIN, "Shop.App.Main()"), (2, 1, ORDER, order), (3, 2, READ, "read")]
    {
        payload.clear();
        let end_address = start_address + 0xff;
        ProcessSymbol { id, mapping_id, start_address, end_address, name: Text::from(name) }.write(&mut payload)?;
        write(&mut writer, SYMBOL, 0, &payload)?;
    }
    let labels = [Label::Text("user".to_owned(), "ann".to_owned())];
    for sample in 0..100 {
        let is_main = sample % 10 < 6;
        payload.clear();
        Measured { value: 1 }.write(&mut payload);
        let stack = [if is_main { ORDER + 8 } else { READ + 8 }, MAIN + 4];
        let mut event = NewEvent::new(CPU, if is_main { 1 } else { 2 }, sample * SECOND / 10);
        (event.payload, event.stack) = (&payload, &stack);
        event.labels = if is_main { &[] } else { &labels };
        writer.write(&event)?;
    }
    payload.clear();
    Measured { value: SECOND / 2 }.write(&mut payload);
    let mut event = NewEvent::new(SWITCH, 2, 10 * SECOND);
    (event.payload, event.stack) = (&payload, &[READ + 8, MAIN + 4]);
    writer.write(&event)?;
    Ok(writer.finish()?)
}

fn write(writer: &mut Writer<Vec<u8>>, definition: u32, ticks: u64, payload: &[u8]) -> Result<()> {
    let mut event = NewEvent::new(definition, 1, ticks);
    event.payload = payload;
    Ok(writer.write(&event)?)
}

fn view(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_corprof")).arg("view").args(arguments).output()?)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file in a folder of its own.
fn file(bytes: &[u8]) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.nettrace");
    fs::write(&path, bytes)?;
    Ok((folder, path))
}

/// The document about a recording.
fn document(path: &Path, arguments: &[&str]) -> Result<Value> {
    let path = path.to_str().context("a path of text")?;
    let output = view(&[&[path, "--json"], arguments].concat())?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Own and total samples by name.
fn rows(document: &Value) -> BTreeMap<String, (u64, u64)> {
    let rows = document["rows"].as_array().cloned().unwrap_or_default();
    let number = |row: &Value, field: &str| row[field].as_u64().unwrap_or_default();
    rows.iter()
        .map(|row| (row["name"].as_str().unwrap_or_default().to_owned(), (number(row, "own"), number(row, "total"))))
        .collect()
}

/// The rows of the document with these options.
fn rows_with(path: &Path, arguments: &[&str]) -> Result<Vec<(String, u64, u64)>> {
    let rows = rows(&document(path, arguments)?);
    Ok(rows.into_iter().map(|(name, (own, total))| (name, own, total)).collect())
}

fn row(name: &str, own: u64, total: u64) -> (String, u64, u64) {
    (name.to_owned(), own, total)
}

#[test]
fn methods_threads_and_labels_have_their_samples() -> Result<()> {
    let (_folder, path) = file(&recording()?)?;
    let methods = [row("Shop.App.Main()", 0, 100), row("Shop.Order.Total(int)", 60, 60), row("libc.so.6!read", 40, 40)];
    assert_eq!(rows_with(&path, &[])?, methods);
    assert_eq!(rows_with(&path, &["--by", "thread"])?, [row("main (101)", 60, 60), row("worker 1 (102)", 40, 40)]);
    assert_eq!(rows_with(&path, &["--by", "label:user"])?, [row("[no label]", 60, 60), row("ann", 40, 40)]);
    assert_eq!(
        rows_with(&path, &["--only-my-code"])?,
        [row("Shop.App.Main()", 40, 100), row("Shop.Order.Total(int)", 60, 60)]
    );
    Ok(())
}

#[test]
fn filters_leave_what_they_say() -> Result<()> {
    let (_folder, path) = file(&recording()?)?;
    let main = |own, total| row("Shop.App.Main()", own, total);
    let order = |samples| row("Shop.Order.Total(int)", samples, samples);
    let read = |samples| row("libc.so.6!read", samples, samples);
    assert_eq!(rows_with(&path, &["--thread", "worker*"])?, [main(0, 40), read(40)]);
    assert_eq!(rows_with(&path, &["--thread", "101"])?, [main(0, 60), order(60)]);
    assert_eq!(rows_with(&path, &["--include", "Shop.Order.*"])?, [main(0, 60), order(60)]);
    assert_eq!(rows_with(&path, &["--exclude", "Order"])?, [main(0, 40), read(40)]);
    assert_eq!(rows_with(&path, &["--label", "user=ann"])?, [main(0, 40), read(40)]);
    // The first second has ten samples, and one more at its end.
    assert_eq!(rows_with(&path, &["--to", "0.95"])?, [main(0, 10), order(6), read(4)]);
    assert_eq!(rows_with(&path, &["--from", "50%", "--to", "59.5%"])?, [main(0, 10), order(6), read(4)]);
    let waits = document(&path, &["--event", "waits"])?;
    assert_eq!((&waits["unit"], &waits["weight"]), (&"nanoseconds".into(), &(SECOND / 2).into()));
    Ok(())
}

#[test]
fn a_picture_tells_the_time_that_it_is_of() -> Result<()> {
    let (folder, path) = file(&recording()?)?;
    let page = folder.path().join("part.html");
    let arguments = ["--from", "2", "--to", "5", "-o", page.to_str().context("a path of text")?];
    let output = view(&[&[path.to_str().context("a path of text")?], &arguments[..]].concat())?;
    ensure!(output.status.success() && stderr(&output).contains("· 3.0 s ·"), "{output:?}");
    Ok(())
}

#[test]
fn samples_of_waiting_threads_weigh_time() -> Result<()> {
    let stack = [READ + 8, MAIN + 4];
    let samples = || (0..100).map(|sample| (sample * 10 * MILLISECOND, &stack[..]));
    let methods = [(MAIN, "Shop.App.Main()"), (READ, "Shop.App.Wait()")];
    let (_folder, path) = file(&recordings::of_samples(Measured::WAIT, &methods, samples())?)?;
    for arguments in [&[][..], &["--event", "waits"], &["--event", "wait"]] {
        let document = document(&path, arguments)?;
        assert_eq!((&document["unit"], &document["samples"]), (&"nanoseconds".into(), &100.into()), "{arguments:?}");
        let own = (100 * MILLISECOND, 100 * MILLISECOND);
        assert_eq!(rows(&document)["Shop.App.Wait()"], own, "{arguments:?}");
    }
    // Those that run come first.
    let (_folder, path) = file(&recording()?)?;
    assert_eq!(document(&path, &[])?["unit"], "samples");
    Ok(())
}

#[test]
fn a_cut_file_gets_an_end_in_a_copy() -> Result<()> {
    let whole = recording()?;
    let (folder, path) = file(whole.get(..whole.len() - 10).context("a long file")?)?;
    let path = path.to_str().context("a path of text")?;
    let copy = folder.path().join("whole.nettrace");
    let to = copy.to_str().context("a path of text")?;
    let output = view(&[path, "-o", to])?;
    ensure!(output.status.success() && stderr(&output).contains("with an end: the recording was cut"), "{output:?}");
    let document_of_copy = document(&copy, &[])?;
    assert_eq!((&document_of_copy["files"][0]["cut_at"], &document_of_copy["samples"]), (&Value::Null, &100.into()));
    // What is not a recording leaves an earlier copy as it is.
    let (_folder, other) = file(b"Nettrace, but no more")?;
    let output = view(&[other.to_str().context("a path of text")?, "-o", to])?;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(document(&copy, &[])?["samples"], 100);
    for part in [&[path, "--from", "1", "-o", to][..], &[path, path, "-o", to]] {
        assert_eq!(view(part)?.status.code(), Some(2), "{part:?}");
    }
    Ok(())
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() -> Result<()> {
    let whole = recording()?;
    // The end is cut off: the last sequence point.
    let (_folder, path) = file(whole.get(..whole.len() - 10).context("a long file")?)?;
    let path = path.to_str().context("a path of text")?;
    let output = view(&[path, "--json", "--event", "cpu"])?;
    ensure!(stderr(&output).contains("ends in the middle: read up to its last whole block, at byte"), "{output:?}");
    let document_of_cut: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(document_of_cut["files"][0]["cut_at"].is_u64(), "{document_of_cut}");
    assert_eq!(document_of_cut["samples"], 100);
    let (_folder, path) = file(&whole)?;
    assert_eq!(document(&path, &[])?["files"][0]["cut_at"], Value::Null);
    // Nothing but the header and a part of the definitions.
    let (_folder, path) = file(whole.get(..200).context("a long file")?)?;
    let output = view(&[path.to_str().context("a path of text")?])?;
    assert_eq!(output.status.code(), Some(3));
    ensure!(stderr(&output).contains("no event has a stack, as there are no events"), "{output:?}");
    Ok(())
}

#[test]
fn every_format_is_written() -> Result<()> {
    let (folder, path) = file(&recording()?)?;
    let path = path.to_str().context("a path of text")?;
    for name in ["a.html", "a.svg", "a.folded", "a.pb.gz", "a.speedscope.json", "a.json"] {
        let target = folder.path().join(name);
        let output = view(&[path, "-o", target.to_str().context("a path of text")?])?;
        ensure!(output.status.success() && stderr(&output).contains("corprof: wrote"), "{output:?}");
        ensure!(stderr(&output).contains("processor time · 10.0 s · 100 samples"), "{output:?}");
        ensure!(fs::metadata(&target)?.len() > 50);
    }
    let folded = fs::read_to_string(folder.path().join("a.folded"))?;
    ensure!(folded.contains("Shop.App.Main();Shop.Order.Total(int) 60"), "{folded}");
    let speedscope: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("a.speedscope.json"))?)?;
    let samples = speedscope["profiles"][0]["samples"].as_array().map(Vec::len);
    assert_eq!(samples, Some(60), "each sample has its time");
    Ok(())
}

#[test]
fn several_files_and_standard_input_are_one_profile() -> Result<()> {
    let (_folder, path) = file(&recording()?)?;
    let text = path.to_str().context("a path of text")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
    command.args(["view", text, "-", "--json"]).stdin(fs::File::open(&path)?).stdout(Stdio::piped());
    let output = command.output()?;
    ensure!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(rows(&document)["Shop.App.Main()"], (0, 200));
    assert_eq!(document["files"].as_array().map(Vec::len), Some(2));
    Ok(())
}

#[test]
fn mistakes_are_told_with_what_to_change() -> Result<()> {
    let (folder, path) = file(&recording()?)?;
    let path = path.to_str().context("a path of text")?;
    let none = folder.path().join("none.nettrace").display().to_string();
    let text_file = folder.path().join("text.nettrace").display().to_string();
    fs::write(&text_file, "not a trace, but a text of some length that is in a file")?;
    for (arguments, code, expected) in [
        (&[none.as_str()][..], 3, "cannot read"),
        (&[&text_file], 3, "is not a recording that can be read: give a .nettrace file"),
        (&[path, "--event", "exceptions"], 3, "give --event one that has stacks here: Universal.Events/cpu"),
        (&[path, "--from", "20"], 3, "no sample is left: give wider --from"),
        (&[path, "--from", "3", "--to", "2"], 3, "give --from a smaller value than --to"),
        (&[path, "--from", "soon"], 2, "give seconds, such as 2.5, or a percentage"),
        (&[path, "--to", "24:00"], 2, "or a time of the day by UTC"),
        (&[path, "--slowest", "1%"], 3, "tells of no requests: record it with `corprof record --events cpu,activity"),
        (&["-", "--slowest", "1%"], 3, "the requests of standard input are not known before its end: give a file"),
        (&[path, "--slowest", "0"], 2, "is not a part of the requests: give 1%, or 0.1%"),
        (&[path, "-o", "x.zip"], 2, "x.zip"),
        (&[path, "--by", "colour"], 2, "there are method, line, type, thread and label:NAME"),
    ] {
        let output = view(arguments)?;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        ensure!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    Ok(())
}

#[test]
fn top_prints_the_table_of_a_recording() -> Result<()> {
    let (_folder, path) = file(&recording()?)?;
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
        command.arg("top").arg(&path).args(arguments).output()
    };
    let path_text = path.to_str().context("a path of text")?;
    for arguments in [&[][..], &["--json"], &["--sort", "total"], &["--rows", "1"], &["--once"]] {
        let output = top(arguments)?;
        ensure!(output.status.success(), "{output:?}");
        let arguments: Vec<&str> = arguments.iter().copied().filter(|argument| *argument != "--once").collect();
        let expected = view(&[&[path_text], &arguments[..]].concat())?;
        assert_eq!(String::from_utf8(output.stdout)?, String::from_utf8(expected.stdout)?, "{arguments:?}");
    }
    let names = |output: Output| -> Result<Vec<Value>> {
        let document: Value = serde_json::from_slice(&output.stdout)?;
        Ok(document["rows"].as_array().context("rows")?.iter().map(|row| row["name"].clone()).collect())
    };
    assert_eq!(names(top(&["--json"])?)?.last(), Some(&"Shop.App.Main()".into()), "it does nothing itself");
    assert_eq!(names(top(&["--json", "--sort", "total"])?)?.first(), Some(&"Shop.App.Main()".into()));
    for (arguments, expected) in [
        (&["--duration", "3"], "chosen by `corprof view --from --to`"),
        (&["--rate", "50"], "a recording has been sampled already"),
    ] {
        let output = top(arguments)?;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        ensure!(stderr(&output).contains(expected), "{output:?}");
    }
    Ok(())
}

#[test]
fn the_events_of_a_recording_are_printed_in_order() -> Result<()> {
    let (_folder, path) = file(&recording()?)?;
    let events = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
        command.arg("events").arg(&path).args(arguments).output()
    };
    let output = events(&["--json", "--event", "cpu", "--event", "ProcessMapping"])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(stderr(&output).contains("102 events printed, of 107 in the recording, 0 lost"), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!((lines.len(), &lines[0]["fields"]["FileName"]), (102, &"/app/Shop.dll".into()));
    ensure!(lines.windows(2).all(|two| two[0]["ms"].as_f64() <= two[1]["ms"].as_f64()), "{text}");
    let output = events(&["--set", "gc"])?;
    assert_eq!(output.status.code(), Some(2));
    ensure!(stderr(&output).contains("what a recording has is chosen by --event"), "{output:?}");
    Ok(())
}

#[test]
fn a_wait_for_a_lock_has_the_stack_of_its_begin() -> Result<()> {
    let began = UtcTime { year: 2026, month: 11, day: 22, hour: 15, minute: 4, second: 5, millisecond: 6 };
    let mut writer = Writer::new(Vec::new(), &Trace::new(began, 0, SECOND))?;
    let runtime = Provider::RUNTIME.name();
    let (start, stop) = (Metadata::new(1, runtime, 81, ""), Metadata::new(2, runtime, 91, ""));
    let system = Provider::UNIVERSAL_SYSTEM.name();
    let symbol = Metadata::new(SYMBOL, system, ProcessSymbol::ID, ProcessSymbol::NAME);
    for (mut definition, version) in [(start, 2), (stop, 1), (symbol.with_fields(ProcessSymbol::fields()), 0)] {
        definition.version = version;
        writer.define_event(&definition)?;
    }
    writer.define_thread(&Thread::new(1))?;
    writer.define_thread(&Thread::new(2))?;
    for (id, start_address, name) in [(1, MAIN, "Shop.Pay()"), (2, ORDER, "Shop.Order()")] {
        let mut payload = Vec::new();
        let end_address = start_address + 0xff;
        ProcessSymbol { id, mapping_id: 0, start_address, end_address, name: Text::from(name) }.write(&mut payload)?;
        write(&mut writer, SYMBOL, 0, &payload)?;
    }
    let begin_payload = [0; 27];
    for (thread, address) in [(1, MAIN), (2, ORDER)] {
        let mut event = NewEvent::new(1, thread, thread);
        let stack = [address + 8];
        (event.payload, event.stack) = (&begin_payload, &stack);
        writer.write(&event)?;
    }
    for (thread, nanoseconds) in [(2, 3e6), (1, 1e6)] {
        let mut payload = vec![0; 3];
        payload.extend(f64::to_le_bytes(nanoseconds));
        let mut event = NewEvent::new(2, thread, 10 - thread);
        event.payload = &payload;
        writer.write(&event)?;
    }
    let (_folder, path) = file(&writer.finish()?)?;
    assert_eq!(
        rows_with(&path, &["--event", "contention"])?,
        [row("Shop.Order()", 3_000_000, 3_000_000), row("Shop.Pay()", 1_000_000, 1_000_000)]
    );
    Ok(())
}
