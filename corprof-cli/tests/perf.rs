//! Commands that read recordings, on the text of `perf script`.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A text of `perf script`, of the program Shares of the tests, shortened, with switches.
const SHARES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perf/shares.perf.txt");

fn corprof(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_corprof")).args(arguments).output()?)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Names with own and total weights.
fn rows(document: &Value) -> Vec<(String, u64, u64)> {
    let rows = document["rows"].as_array().cloned().unwrap_or_default();
    let number = |row: &Value, field: &str| row[field].as_u64().unwrap_or_default();
    let row =
        |row: &Value| (row["name"].as_str().unwrap_or_default().to_owned(), number(row, "own"), number(row, "total"));
    rows.iter().map(row).collect()
}

fn rows_with(arguments: &[&str]) -> Result<Vec<(String, u64, u64)>> {
    Ok(rows(&document(&corprof(&[&["view", SHARES, "--json"], arguments].concat())?)?))
}

fn of(rows: &[(String, u64, u64)], name: &str) -> Option<(u64, u64)> {
    rows.iter().find(|(row, _, _)| row == name).map(|(_, own, total)| (*own, *total))
}

#[test]
fn methods_have_the_one_spelling_of_names() -> Result<()> {
    let rows = rows_with(&[])?;
    for (name, expected) in [
        ("Shares.Burn(int)", (4, 4)),
        ("Shares.Sixty()", (0, 1)),
        ("Shares.Works(int)", (0, 1)),
        ("Shares.Main(string[])", (0, 1)),
        ("[kernel.kallsyms]!security_vm_enough_memory_mm", (1, 1)),
        ("libc.so.6!__mprotect", (0, 1)),
        ("[libcoreclr.so]", (0, 1)),
        ("[System.Private.CoreLib.dll]", (0, 1)),
    ] {
        assert_eq!(of(&rows, name), Some(expected), "{name} in {rows:?}");
    }
    let mine = rows_with(&["--only-my-code"])?;
    ensure!(mine.iter().all(|(name, _, _)| name.starts_with("Shares")), "{mine:?}");
    let threads = rows_with(&["--by", "thread"])?;
    assert_eq!(of(&threads, "worker 0 (28077)"), Some((2, 2)), "{threads:?}");
    Ok(())
}

#[test]
fn moments_threads_and_events_are_chosen() -> Result<()> {
    assert_eq!(of(&rows_with(&["--from", "0.5", "--to", "0.6"])?, "Shares.Burn(int)"), Some((1, 1)));
    assert_eq!(of(&rows_with(&["--to", "50%"])?, "Shares.Burn(int)"), Some((1, 1)));
    assert_eq!(of(&rows_with(&["--thread", "worker 1"])?, "Shares.Burn(int)"), Some((2, 2)));
    // The main thread ran again after 20 ms, the other one at its next sample, after 5 ms.
    for arguments in [["--event", "waits"], ["--event", "sched:sched_switch"]] {
        let rows = rows_with(&arguments)?;
        assert_eq!(of(&rows, "Shares.Main(string[])"), Some((0, 20_000_000)), "{rows:?}");
        assert_eq!(of(&rows, "[kernel.kallsyms]!__schedule"), Some((25_000_000, 25_000_000)), "{rows:?}");
    }
    let document = document(&corprof(&["view", SHARES, "--json"])?)?;
    let file = &document["files"][0];
    assert_eq!((&file["version"], &file["damaged_lines"], &file["threads"]), (&Value::Null, &0.into(), &3.into()));
    let kinds = file["kinds"].as_array().context("no kinds")?;
    let kind = |kind: &Value| format!("{} {} {}", kind["provider"], kind["event"], kind["stacks"]);
    let kinds: Vec<_> = kinds.iter().map(kind).collect();
    assert_eq!(kinds, ["\"perf\" \"cpu-clock\" 5", "\"perf\" \"sched:sched_switch\" 2"]);
    Ok(())
}

#[test]
fn the_other_commands_read_it_too() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [page, heat] = ["a.html", "h.html"].map(|name| folder.path().join(name).display().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_corprof"));
    let piped = command.args(["view", "-", "--json"]).stdin(File::open(SHARES)?).stdout(Stdio::piped()).output()?;
    assert_eq!(rows(&document(&piped)?), rows_with(&[])?);
    let top = document(&corprof(&["top", SHARES, "--json"])?)?;
    assert_eq!(rows(&top), rows_with(&[])?);
    for arguments in [&["view", SHARES, "-o", &page][..], &["heatmap", SHARES, "-o", &heat]] {
        let output = corprof(arguments)?;
        ensure!(output.status.success() && stderr(&output).contains("wrote"), "{output:?}");
    }
    ensure!(fs::read_to_string(page)?.contains("Shares.Burn"));
    let output = corprof(&["diff", SHARES, SHARES])?;
    ensure!(stderr(&output).contains("too few samples") || stderr(&output).contains("samples"), "{output:?}");
    Ok(())
}

/// Writes a text into a folder of its own, and views it.
fn view_of(text: &[u8]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("app.txt");
    fs::write(&file, text)?;
    view(&file)
}

fn view(file: &Path) -> Result<Output> {
    corprof(&["view", file.to_str().context("a path of text")?, "--json"])
}

#[test]
fn damaged_lines_are_skipped_and_told_once() -> Result<()> {
    let whole = fs::read_to_string(SHARES)?;
    let damaged =
        whole.replace("\t    7f6302a8298c int64", "\t    7f63.2a8298c int64").replace("worker 1 28078", "worker 1 x");
    let output = view_of(damaged.as_bytes())?;
    // Frames without an event belong to none.
    let told = stderr(&output);
    ensure!(told.matches("skipped").count() == 1 && told.contains("lines that are not of `perf script`"), "{told}");
    let document = document(&output)?;
    assert_eq!(document["samples"], 3);
    ensure!(document["files"][0]["damaged_lines"].as_u64() >= Some(4), "{document}");
    // Half a text, and bytes that are none.
    for bytes in
        [whole.as_bytes().get(..900).context("a long text")?, &[whole.as_bytes(), &[0xff, 0xfe, 0x00]].concat()]
    {
        ensure!(view_of(bytes)?.status.success());
    }
    Ok(())
}

#[test]
fn code_without_names_is_told_with_what_to_change() -> Result<()> {
    let text = fs::read_to_string(SHARES)?;
    ensure!(!stderr(&view_of(text.as_bytes())?).contains("WriteXorExecute"));
    let unnamed = text.replace(
        "int64 [Shares] Shares::Burn(int32)[OptimizedTier1]+0x2b (/tmp/perf-28067.map)",
        "[unknown] (/memfd:doublemapper (deleted))",
    );
    let told = stderr(&view_of(unnamed.as_bytes())?);
    ensure!(told.contains("DOTNET_EnableWriteXorExecute=0") && told.contains("DOTNET_PerfMapEnabled=1"), "{told}");
    Ok(())
}

#[test]
fn other_files_are_refused_with_what_to_give() -> Result<()> {
    for (bytes, expected) in [
        (&b"PERFILE2\x68\x00\x00"[..], "is of `perf record`: give its text, by `perf script -i"),
        (b"some words\nof a text\n", "or the text of `perf script`"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "or the text of `perf script`"),
        (b"", "or the text of `perf script`"),
        // Without a time.
        (b"dotnet 1 cpu-clock:\n\tff main (/bin/x)\n", "or the text of `perf script`"),
    ] {
        let output = view_of(bytes)?;
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        ensure!(stderr(&output).contains(expected), "{output:?}");
    }
    Ok(())
}
