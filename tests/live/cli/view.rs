//! `corprof view` on a recording of the runtime: the bytes of a session, as dotnet-trace puts them into a file.

use std::io::ErrorKind;

use corprof_diagnostics::{KeywordSet, Level, Process, Provider, Rundown, SessionConfig};
use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::*;

/// Reads a session for a time, ends it, and reads the rest.
fn record(pid: u32, file: &Path, time: Duration) -> Result<()> {
    record_with(pid, file, time, None)
}

/// The same, of a provider more.
pub(super) fn record_with(pid: u32, file: &Path, time: Duration, more: Option<Provider>) -> Result<()> {
    let samples = Provider::new("Microsoft-DotNETCore-SampleProfiler", u64::MAX, Level::Informational);
    let providers = [samples, Provider::runtime(KeywordSet::PROFILER)].into_iter().chain(more);
    let config = SessionConfig::new(providers).with_rundown(Rundown::Default);
    let mut session = Process::open(pid)?.client().start_session(&config)?;
    session.set_read_timeout(Some(Duration::from_millis(100)));
    let mut out = fs::File::create(file)?;
    let mut buffer = vec![0; 1 << 16];
    let begin = Instant::now();
    let mut is_stopped = false;
    loop {
        if !is_stopped && begin.elapsed() >= time {
            session.stop()?;
            is_stopped = true;
        }
        ensure!(begin.elapsed() < time + Duration::from_secs(60), "the session does not end");
        match session.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => out.write_all(buffer.get(..count).unwrap_or_default())?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn the_text_of_perf_has_the_methods_that_run() -> Result<()> {
    if !Command::new("perf").args(["stat", "-e", "cpu-clock", "true"]).output().is_ok_and(|it| it.status.success()) {
        println!("SKIPPED: there is no perf on PATH, or it may not be used");
        return Ok(());
    }
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let [data, text] = ["perf.data", "perf.txt"].map(|name| folder.path().join(name));
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-F", "499", "-g", "-e", "cpu-clock", "-o"]).arg(&data).arg("--");
        command.args(application(runtime, "Shares")?).args([&(2000 * times).to_string(), "2"]);
        command.env("DOTNET_PerfMapEnabled", "1").env("DOTNET_EnableWriteXorExecute", "0");
        let output = command.output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let output = Command::new("perf").args(["script", "-F", "+pid", "-i"]).arg(&data).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        fs::write(&text, output.stdout)?;
        let output = corprof()?.arg("view").arg(&text).args(["--json", "--thread", "worker *"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(document["files"][0]["damaged_lines"] == 0, "{runtime}: {document}");
        let all = document["samples"].as_u64().context("no samples")?;
        let total = |name: &str| {
            let rows = document["rows"].as_array().into_iter().flatten();
            rows.filter(|row| row["name"] == name).filter_map(|row| row["total"].as_u64()).sum::<u64>()
        };
        let [burnt, sixty, ten] = ["Shares.Burn(int)", "Shares.Sixty()", "Shares.Ten()"].map(total);
        println!("{runtime}: {burnt} of {all} samples, {sixty} in Sixty, {ten} in Ten");
        ensure_or_longer!(all > 200, "{runtime}: {all} samples: {document}");
        ensure!(burnt * 10 > all * 8, "{runtime}: {burnt} of {all} samples: {document}");
        ensure!(sixty > ten, "{runtime}: {sixty} and {ten}");
        Ok(())
    })
}

#[test]
fn a_recording_of_the_runtime_has_the_methods_and_lines_that_run() -> Result<()> {
    for runtime in Runtime::all_for_modern("HotLines")? {
        if runtime.is_windows() || runtime.is_emulated() {
            continue;
        }
        let program = Program::start(Run::new(&runtime, "HotLines").args(["60000"]).command()?)?;
        program.expect("ready")?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("lines.nettrace");
        record(program.child.id(), &file, Duration::from_secs(2))?;
        drop(program);
        let output = corprof()?.arg("view").arg(&file).args(["--by", "line", "--only-my-code", "--json"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout)?;
        let rows = document["rows"].as_array().context("no rows")?;
        let named = |row: &&Value| row["name"].as_str().is_some_and(|name| name.contains("HotLines.cs:"));
        let own = |row: &Value| row["own"].as_u64().unwrap_or_default();
        let of_lines: u64 = rows.iter().filter(named).map(own).sum();
        let weight = document["weight"].as_u64().context("no weight")?;
        println!("{runtime}: {of_lines} of {weight} ns at lines, of {} samples", document["samples"]);
        ensure!(of_lines * 2 > weight, "{runtime}: {of_lines} of {weight} ns have a line: {document}");
        ensure!(document["files"][0]["cut_at"].is_null(), "{runtime}: {document}");

        // The page has the lines of a picked method, and a timeline.
        let page = folder.path().join("lines.html");
        let output = corprof()?.arg("view").arg(&file).arg("-o").arg(&page).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let page = fs::read_to_string(page)?;
        let (_, data) = page.split_once("id=\"data\">").context("no data")?;
        let data: Value = serde_json::from_str(data.split_once("</script>").context("no end of the data")?.0)?;
        let weights = data["lines"]["own"].as_array().context("no lines")?;
        let of_page: u64 = weights.iter().filter_map(Value::as_u64).sum();
        // What frameworks do for a line is not its own there.
        ensure!(of_page * 10 >= of_lines * 8, "{runtime}: {of_page} and {of_lines} ns have a line");
        ensure!(data["heat"]["title"] == "time of threads", "{runtime}: {}", data["heat"]["title"]);

        // The same file without its end, as of a process that was killed.
        let bytes = fs::read(&file)?;
        fs::write(&file, bytes.get(..bytes.len() / 2).context("a long file")?)?;
        let output = corprof()?.arg("view").arg(&file).output()?;
        let (_, stderr) = texts(&output);
        ensure!(stderr.contains("ends in the middle: read up to its last whole block"), "{runtime}: {output:?}");
    }
    Ok(())
}

mod long {
    use super::*;

    /// The profile that dotnet-trace takes of a whole machine by perf_events, of one process.
    #[test]
    fn a_recording_of_collect_linux_has_the_methods_that_run() -> Result<()> {
        if dotnet_trace()?.is_none() {
            return Ok(());
        }
        patiently(runtimes()?, |runtime, times| {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("cl.nettrace");
            // It takes the names of methods from the file for perf.
            let mut command = Run::new(runtime, "Shares").args(["60000", "1"]).command()?;
            let mut child = command.env("DOTNET_PerfMapEnabled", "1").stdout(Stdio::null()).spawn()?;
            let recorded = collect(child.id(), &file, 10 * times);
            child.kill()?;
            child.wait()?;
            let output = recorded?;
            let (_, stderr) = texts(&output);
            let cannot = ["perf_event", "Required runtime"].iter().any(|reason| stderr.contains(reason));
            if !output.status.success() && cannot {
                println!("SKIPPED on {runtime}: {stderr}");
                return Ok(());
            }
            ensure!(output.status.success() && file.exists(), "{runtime}: {output:?}");
            let output = corprof()?.arg("view").arg(&file).args(["--event", "cpu", "--json"]).output()?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let document: Value = serde_json::from_slice(&output.stdout)?;
            let total = |name: &str| {
                let rows = document["rows"].as_array().into_iter().flatten();
                let row = rows.into_iter().find(|row| row["name"] == name);
                row.and_then(|row| row["total"].as_f64()).unwrap_or_default()
            };
            let parts = ["Shares.Sixty()", "Shares.Thirty()", "Shares.Ten()"].map(total);
            let all: f64 = parts.iter().sum();
            println!("{runtime}: {parts:?} samples");
            ensure_or_longer!(all > 2000.0, "{all} samples: {document}");
            for (part, percent) in parts.into_iter().zip([60.0, 30.0, 10.0]) {
                let share = 100.0 * part / all;
                ensure!((share - percent).abs() <= 3.0, "{runtime}: {share:.1} % for {percent} %: {document}");
            }
            Ok(())
        })
    }

    /// The file of `--clrevents contention`: the events of ends have the time, those of begins the stacks.
    #[test]
    fn a_contention_file_of_dotnet_trace_has_the_waits() -> Result<()> {
        if dotnet_trace()?.is_none() {
            return Ok(());
        }
        for runtime in Runtime::all_for_modern("Locks")? {
            if runtime.is_windows() || runtime.is_emulated() {
                continue;
            }
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("contention.nettrace");
            // A thread keeps a lock for 50 ms at a time, for which three others wait.
            let mut child = Run::new(&runtime, "Locks").args(["2000"]).command()?.stdout(Stdio::null()).spawn()?;
            let mut command = dotnet_trace()?.context("no dotnet-trace")?;
            command.args(["collect", "--clrevents", "contention", "--clreventlevel", "informational"]);
            command.args(["-p", &child.id().to_string(), "--duration", "00:00:00:04", "-o"]).arg(&file);
            // It connects once the runtime listens.
            thread::sleep(Duration::from_secs(1));
            let output = command.stdin(Stdio::null()).output();
            child.kill()?;
            child.wait()?;
            let output = output?;
            ensure!(output.status.success() && file.exists(), "{runtime}: {output:?}");
            let view = |arguments: &[&str]| -> Result<Value> {
                let output = corprof()?.arg("view").arg(&file).arg("--json").args(arguments).output()?;
                ensure!(output.status.success(), "{runtime}: {output:?}");
                Ok(serde_json::from_slice(&output.stdout)?)
            };
            let whole = view(&["--only-my-code"])?;
            let number = |value: &Value| value.as_u64().unwrap_or_default();
            let (samples, weight) = (number(&whole["samples"]), number(&whole["weight"]));
            println!("{runtime}: {samples} waits, {weight} ns");
            ensure!(samples > 30 && weight / samples > 20_000_000, "{runtime}: {whole}");
            let wants = &whole["rows"][0];
            ensure!(wants["name"] == "Program.Wants()" && number(&wants["own"]) == weight, "{runtime}: {whole}");
            let halves = [view(&["--to", "50%"])?, view(&["--from", "50%"])?];
            ensure!(
                halves.iter().map(|half| number(&half["samples"])).sum::<u64>() == samples,
                "{runtime}: {halves:?}"
            );
            let threads = view(&["--by", "thread"])?;
            let is_waiter = |row: &&Value| number(&row["own"]) * 5 > weight;
            let waiters = threads["rows"].as_array().into_iter().flatten().filter(is_waiter).count();
            ensure!(waiters == 3, "{runtime}: {threads}");
        }
        Ok(())
    }

    fn collect(pid: u32, file: &Path, seconds: u64) -> Result<Output> {
        let mut command = dotnet_trace()?.context("no dotnet-trace")?;
        command.args(["collect-linux", "--profile", "cpu-sampling,thread-time", "-p", &pid.to_string()]);
        command.arg("--duration").arg(format!("00:{:02}:{:02}", seconds / 60, seconds % 60)).arg("-o").arg(file);
        Ok(command.stdin(Stdio::null()).output()?)
    }
}

#[test]
fn a_compressed_recording_is_small_and_has_what_another_has() -> Result<()> {
    const THROWN: u64 = 2_000;
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let [packed, plain] = ["app.nettrace.gz", "app.nettrace"].map(|name| folder.path().join(name));
        let mut command = corprof()?;
        command.args(["record", "--events", "exception", "-o"]).arg(&packed).arg("--");
        command.args(application(&runtime, "Diagnosed")?);
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        program.tell(&format!("throw {THROWN}"))?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        let output = corprof()?.arg("view").arg(&packed).arg("-o").arg(&plain).output()?;
        ensure!(output.status.success() && !texts(&output).1.contains("cut"), "{runtime}: {output:?}");
        let tables = [&packed, &plain].map(|file| -> Result<Value> {
            let output = corprof()?.arg("view").arg(file).args(["--event", "exceptions", "--json"]).output()?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            Ok(serde_json::from_slice(&output.stdout)?)
        });
        let [of_packed, of_plain] = tables;
        let (of_packed, of_plain) = (of_packed?, of_plain?);
        ensure!(of_packed["rows"] == of_plain["rows"], "{runtime}: {of_packed} is not {of_plain}");
        let lost = of_packed["files"][0]["lost"].as_u64().context("none lost")?;
        let seen = of_packed["samples"].as_u64().context("no samples")?;
        ensure!(seen > 0 && seen + lost >= THROWN, "{runtime}: {seen}, {lost} lost: {of_packed}");
        let [small, large] = [&packed, &plain].map(|file| fs::metadata(file).map(|found| found.len()));
        let (small, large) = (small?, large?);
        println!("{runtime}: {seen} exceptions in {small} bytes, unpacked {large}");
        ensure!(small * 4 < large && small < 15 * seen, "{runtime}: {small} of {large} bytes, {seen} exceptions");
    }
    Ok(())
}
