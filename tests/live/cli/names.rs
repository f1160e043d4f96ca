//! One spelling of methods in all formats and tables, and the runtime's own with `--raw-names`.

use std::io::Read as _;
use std::time::SystemTime;

use corprof_tests::{ensure_or_longer, patiently, repetitions};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;

/// The methods of tests/managed/modern/Places.cs that a compiler has named: as they are shown, and as the runtime has
/// them.
const METHODS: [(&str, &str); 2] =
    [("Places.Later (async)", "Places.<Later>d__2.MoveNext("), ("Places.Work λ", "Places.<>c.<Work>b__1_0(")];
const FORMATS: [&str; 7] = ["folded", "speedscope.json", "json", "pb.gz", "html", "svg", "speedscope.json.gz"];

fn runtimes() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern("Places")?;
    Ok(all.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// The text of a file, as a reader of its format sees the names.
fn text(file: &Path) -> Result<String> {
    let mut bytes = fs::read(file)?;
    if file.extension().is_some_and(|extension| extension == "gz") {
        let mut unpacked = Vec::new();
        GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked)?;
        bytes = unpacked;
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok([("\\u003c", "<"), ("\\u003e", ">"), ("&lt;", "<"), ("&gt;", ">")]
        .into_iter()
        .fold(text, |text, (escaped, plain)| text.replace(escaped, plain)))
}

/// Whether a text has the methods in the one spelling, and none in the other.
fn check(text: &str, is_raw: bool) -> Result<()> {
    for (shown, raw) in METHODS {
        let (wanted, other) = if is_raw { (raw, shown) } else { (shown, raw) };
        ensure_or_longer!(text.contains(wanted), "{wanted} is missing");
        ensure!(!text.contains(other), "{other} is there");
    }
    Ok(())
}

#[test]
fn profiles_and_recordings_have_the_names_of_the_source_or_of_the_runtime() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let rounds = (times * 800).to_string();
        let program = || application(runtime, "Places");
        // A view of a recording is written in all of them.
        let of_record = FORMATS.iter().step_by(repetitions(4, 1));
        let all = of_record.map(|format| (*format, false)).chain([("folded", true), ("html", true)]);
        let all = all.take(repetitions(3, usize::MAX));
        for (format, is_raw) in all {
            let file = folder.path().join(format!("p.{format}"));
            let mut command = corprof()?;
            command.args(["record", "-q", "--rate", "1000", "-o"]).arg(&file);
            command.args(is_raw.then_some("--raw-names")).arg("--").args(program()?).arg(&rounds);
            let output = command.output()?;
            // On a busy machine there may be no sample.
            ensure_or_longer!(output.status.success(), "{runtime}: {output:?}");
            check(&text(&file)?, is_raw).with_context(|| format!("{runtime}: {format}, raw: {is_raw}"))?;
        }
        let recording = folder.path().join("p.nettrace");
        let mut command = corprof()?;
        command.args(["record", "-q", "--rate", "1000", "-o"]).arg(&recording);
        let output = command.arg("--").args(program()?).arg(&rounds).output()?;
        ensure_or_longer!(output.status.success(), "{runtime}: {output:?}");
        for is_raw in [false, true] {
            let raw = is_raw.then_some("--raw-names");
            let output = corprof()?.arg("view").arg(&recording).args(["--rows", "1000"]).args(raw).output()?;
            check(&texts(&output).0, is_raw).with_context(|| format!("{runtime}: view, raw: {is_raw}"))?;
            // The names of the source are written in all of them.
            let step = if is_raw { repetitions(3, 1) } else { 1 };
            for format in FORMATS.iter().step_by(step) {
                let file = folder.path().join(format!("view.{format}"));
                let output = corprof()?.arg("view").arg(&recording).arg("-o").arg(&file).args(raw).output()?;
                ensure!(output.status.success(), "{runtime}: {output:?}");
                check(&text(&file)?, is_raw).with_context(|| format!("{runtime}: view -o {format}, raw: {is_raw}"))?;
            }
            let profile: Value = serde_json::from_str(&text(&folder.path().join("view.json"))?)?;
            let started = profile["meta"]["startTime"].as_f64().unwrap_or_default();
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64() * 1e3;
            ensure!((now - started).abs() < 3.6e6, "{runtime}: {}", profile["meta"]);
            ensure!(profile["meta"]["interval"] == 1.0, "{runtime}: {}", profile["meta"]);
        }
        // What a table shows is found by that name, and by the runtime's.
        for name in METHODS.iter().flat_map(|(shown, raw)| [shown, raw]) {
            let output = corprof()?.arg("view").arg(&recording).args(["--include", &format!("{name}*")]).output()?;
            ensure!(output.status.success(), "{runtime}: {name}: {output:?}");
        }
        Ok(())
    })
}

fn of_process(pid: &str, times: u64) -> Result<()> {
    let begin = Instant::now();
    // It has no port before its runtime has started.
    while !corprof()?.args(["stacks", pid]).output()?.status.success() {
        ensure!(begin.elapsed() < PATIENCE, "process {pid} has no port");
        thread::sleep(Duration::from_millis(100));
    }
    for &is_raw in repetitions(&[false][..], &[false, true]) {
        let raw = is_raw.then_some("--raw-names");
        let seconds = times.to_string();
        let output =
            corprof()?.args(["top", pid, "--json", "--rate", "1000", "--duration", &seconds]).args(raw).output()?;
        ensure!(output.status.success(), "{output:?}");
        check(&texts(&output).0, is_raw).with_context(|| format!("top, raw: {is_raw}"))?;
        // Where the thread is right now is chance.
        let mut seen = String::new();
        for _ in 0..10 * times {
            let output = corprof()?.args(["stacks", pid, "--json"]).args(raw).output()?;
            ensure!(output.status.success(), "{output:?}");
            seen += &texts(&output).0;
            if check(&seen, is_raw).is_ok() {
                break;
            }
        }
        check(&seen, is_raw).with_context(|| format!("stacks, raw: {is_raw}"))?;
    }
    Ok(())
}

/// Checks what a command tells of a running program, in one of the spellings.
fn check_spelling(program: &Program, arguments: &[&str], method: (&str, &str), is_raw: bool) -> Result<()> {
    let (command, options) = arguments.split_first().context("no command")?;
    let (shown, raw) = method;
    let mut corprof = corprof()?;
    corprof.arg(command).arg(program.child.id().to_string()).args(options);
    let output = corprof.args(is_raw.then_some("--raw-names")).output()?;
    let (stdout, stderr) = texts(&output);
    ensure!(output.status.success(), "{command}: {stderr}");
    let file = options.iter().find(|option| option.contains('/'));
    let written = file.map(|file| text(Path::new(file))).transpose()?.unwrap_or_default();
    let (wanted, other) = if is_raw { (raw, shown) } else { (shown, raw) };
    for text in std::iter::once(&stdout).chain(file.map(|_| &written)) {
        ensure!(text.contains(wanted), "{command}, raw: {is_raw}: no {wanted}: {text}");
        ensure!(!text.contains(other), "{command}, raw: {is_raw}: {other} is there: {text}");
    }
    Ok(())
}

#[test]
fn pending_tasks_have_them_too() -> Result<()> {
    for runtime in super::runtimes()? {
        let program = Program::start(Run::new(&runtime, "Waiting").command()?)?;
        program.expect("ready")?;
        // The names of state machines are those of the compiler of this program.
        let method = ("Shop.Request (async)", "Shop.<Request>c__async");
        for arguments in [&["tasks"][..], &["tasks", "--json"]] {
            for is_raw in [false, true] {
                check_spelling(&program, arguments, method, is_raw).with_context(|| runtime.to_string())?;
            }
        }
        program.end()?;
    }
    Ok(())
}

mod differs {
    use super::*;

    /// What `requests` and `waits` of a service say, from a session of so many seconds.
    fn of_service(seconds: u64, outputs: &[&str], spellings: &[bool]) -> Result<()> {
        let seconds = seconds.to_string();
        for runtime in super::super::runtimes()? {
            if !runtime.has(Difference::AsyncOperations) {
                continue;
            }
            let program = Program::start(Run::new(&runtime, "WebWaits").command()?)?;
            program.expect("ready")?;
            let folder = tempfile::tempdir()?;
            let method = ("Shop.Collect (async)", "Shop.<Collect>d__");
            for (command, output) in
                ["requests", "waits"].iter().flat_map(|command| outputs.iter().map(move |it| (command, it)))
            {
                let file = folder.path().join(output).display().to_string();
                let options = if *output == "--json" { vec!["--json"] } else { vec!["-o", &file] };
                let arguments = [&[command, "--duration", &seconds], options.as_slice()].concat();
                for is_raw in spellings {
                    check_spelling(&program, &arguments, method, *is_raw).with_context(|| runtime.to_string())?;
                }
            }
            program.end()?;
        }
        Ok(())
    }

    #[test]
    fn async_operations_have_those_of_the_runtime_on_request() -> Result<()> {
        of_service(2, &["--json"], &[true])
    }

    mod long {
        use super::*;

        #[test]
        fn all_outputs_of_async_operations_have_them() -> Result<()> {
            of_service(4, &["--json", "p.html"], &[false, true])
        }
    }
}

mod long {
    use super::*;

    #[test]
    fn top_and_stacks_have_them_too() -> Result<()> {
        patiently(runtimes()?, |runtime, times| {
            let mut command = Run::new(runtime, "Places").args(["1000000"]).command()?;
            let mut child = command.stdout(Stdio::null()).spawn()?;
            let pid = child.id().to_string();
            let result = of_process(&pid, times).with_context(|| runtime.to_string());
            child.kill()?;
            child.wait()?;
            result
        })
    }
}
