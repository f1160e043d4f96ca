//! `corprof view` on recordings that others have written of programs on .NET 10 (dotnet-trace, its collect-linux, perf):
//! what each option leaves and each subject has adds up to the whole.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use lzma_rust2::XzReader;
use serde_json::Value;

/// A recording that others have written.
struct Recording {
    /// The packed file, from the folder of this package.
    file: &'static str,
    /// The events that are looked at, and how many there are: by TraceEvent, or by counting them.
    event: &'static str,
    samples: u64,
    /// What its program's methods begin with.
    program: &'static str,
}

const SAMPLED: Recording = Recording {
    file: "../corprof-nettrace/tests/traces/sampled.nettrace.xz",
    event: "samples",
    samples: 15_064,
    program: "P.",
};
const COLLECTIONS: Recording = Recording {
    file: "../corprof-nettrace/tests/traces/gc.nettrace.xz",
    event: "allocations",
    samples: 13_618,
    program: "P.",
};
/// Shares, on two threads: see the file beside them.
const COLLECT_LINUX: Recording =
    Recording { file: "tests/traces/collect_linux.nettrace.xz", event: "samples", samples: 1_231, program: "Shares." };
const PERF: Recording =
    Recording { file: "tests/traces/perf_script.txt.xz", event: "samples", samples: 602, program: "Shares." };

const RECORDINGS: [Recording; 4] = [SAMPLED, COLLECTIONS, COLLECT_LINUX, PERF];

/// The file of a recording, in a folder of its own.
fn unpacked(recording: &Recording) -> Result<(tempfile::TempDir, PathBuf)> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(recording.file);
    let mut bytes = Vec::new();
    XzReader::new(fs::File::open(&packed)?, true).read_to_end(&mut bytes)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("app.nettrace");
    fs::write(&path, bytes)?;
    Ok((folder, path))
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

/// What `--thread` wants of a row: the number, which stands behind a name if there is one.
fn number(thread: &str) -> Option<&str> {
    let behind_a_name = thread.strip_suffix(')').and_then(|thread| thread.rsplit_once('('));
    behind_a_name.map(|(_name, number)| number).or_else(|| thread.strip_prefix("thread "))
}

#[test]
fn rows_of_each_subject_add_up() -> Result<()> {
    for recording in &RECORDINGS {
        let Recording { file: name, event, samples, program } = recording;
        let (_folder, file) = unpacked(recording)?;
        let whole = total(&document(&file, event, &[])?);
        assert_eq!(whole.0, *samples, "{name}");
        for by in ["method", "line", "type", "thread", "label:user"] {
            let document = document(&file, event, &["--by", by])?;
            assert_eq!((total(&document), sum(&document)), (whole, whole), "{name} by {by}");
        }
        let mine = document(&file, event, &["--only-my-code"])?;
        assert_eq!(sum(&mine), whole, "{name}");
        let are_mine = |name: &&str| name.starts_with(program) || *name == "[no code of yours]";
        ensure!(names(&mine).iter().all(are_mine), "{name}: {:?}", names(&mine));
    }
    Ok(())
}

#[test]
fn parts_add_up_to_the_whole() -> Result<()> {
    for recording in &RECORDINGS {
        let Recording { file: name, event, samples, program } = recording;
        let (_folder, file) = unpacked(recording)?;
        let samples_of = |arguments: &[&str]| Ok::<_, anyhow::Error>(total(&document(&file, event, arguments)?).0);
        for moment in ["50%", "2.2"] {
            let before = samples_of(&["--to", moment])?;
            let after = samples_of(&["--from", moment])?;
            ensure!(before * 15 > *samples && after * 15 > *samples, "{name}: {before} and {after} samples");
            assert_eq!(before + after, *samples, "{name} at {moment}");
        }
        let methods = format!("{program}*");
        let with = samples_of(&["--include", &methods])?;
        let without = samples_of(&["--exclude", &methods])?;
        ensure!(with * 15 > *samples, "{name}: {with} samples of the program");
        assert_eq!(with + without, *samples, "{name}");
        let threads = document(&file, event, &["--by", "thread"])?;
        let mut of_threads = 0;
        for thread in names(&threads) {
            of_threads += samples_of(&["--thread", number(thread).context("a thread without a number")?])?;
        }
        assert_eq!(of_threads, *samples, "{name}");
    }
    Ok(())
}

/// Shares works in known shares of the time, which these two see from outside of the runtime.
#[test]
fn samples_of_the_system_have_the_shares_of_the_program() -> Result<()> {
    for recording in [&COLLECT_LINUX, &PERF] {
        let Recording { file: name, event, .. } = recording;
        let (_folder, file) = unpacked(recording)?;
        let with = |method: &str| Ok::<_, anyhow::Error>(total(&document(&file, event, &["--include", method])?).0);
        let burnt = with("Shares.Burn(int)")? as f64;
        for (method, percent) in [("Shares.Sixty()", 60.0), ("Shares.Thirty()", 30.0), ("Shares.Ten()", 10.0)] {
            let share = 100.0 * with(method)? as f64 / burnt;
            // Three standard deviations of a share of 60 % of 580 samples.
            ensure!((share - percent).abs() <= 6.1, "{name}: {method} has {share:.1} %");
        }
    }
    Ok(())
}

#[test]
fn times_of_the_day_are_those_since_the_beginning() -> Result<()> {
    // They began at 06:26:03, and at 13:18:43.
    for (recording, clock) in [(&SAMPLED, ["06:26:05", "06:26:06"]), (&COLLECT_LINUX, ["13:18:45", "13:18:46"])] {
        let (_folder, file) = unpacked(recording)?;
        let [from, to] = clock;
        let of_clock = total(&document(&file, "samples", &["--from", from, "--to", to])?);
        let of_a_second = total(&document(&file, "samples", &["--from", "2", "--to", "3"])?);
        let share = of_clock.0 as f64 / of_a_second.0 as f64;
        ensure!((0.8..1.25).contains(&share), "{}: {of_clock:?} and {of_a_second:?}", recording.file);
    }
    Ok(())
}
