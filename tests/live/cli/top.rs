//! `corprof top`.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::*;

/// A run of tests/managed/Pool.cs that works, for an hour at most.
fn pool(runtime: &Runtime) -> Result<Program> {
    let mut command = Run::new(runtime, "Pool").command()?;
    command.args(["3600000", "2", "100000", "ready"]);
    let program = Program::start(command)?;
    program.expect("ready")?;
    Ok(program)
}

fn top(pid: u32, options: &[&str]) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("top").arg(pid.to_string()).args(options);
    Ok(command)
}

/// Starts a command that counts for long, and waits until it does.
fn counting(pid: u32) -> Result<(Child, BufReader<std::process::ChildStderr>)> {
    let mut command = top(pid, &["--duration", "100000"])?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stderr = BufReader::new(child.stderr.take().context("no stderr")?);
    let mut line = String::new();
    stderr.read_line(&mut line)?;
    ensure!(line.contains(&format!("counting processor time in process {pid}")), "{line}");
    Ok((child, stderr))
}

/// Waits until the process has no profiler: another one can attach.
fn is_left_alone(pid: u32) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let output = corprof()?.args(["stacks", &pid.to_string()]).output()?;
        if output.status.success() {
            return Ok(());
        }
        ensure!(output.status.code() == Some(1) && Instant::now() < end, "the profiler stays: {output:?}");
        thread::sleep(Duration::from_secs(1));
    }
}

/// Total and own seconds of a method.
fn times(table: &Value, method: &str) -> (f64, f64) {
    let rows = table["methods"].as_array();
    let row = rows
        .and_then(|rows| rows.iter().find(|row| row["method"].as_str().is_some_and(|name| name.starts_with(method))));
    row.map_or((0.0, 0.0), |row| {
        (row["total_seconds"].as_f64().unwrap_or(-1.0), row["own_seconds"].as_f64().unwrap_or(-1.0))
    })
}

#[test]
fn the_shares_of_methods_are_shown() -> Result<()> {
    patiently(runtimes()?, |runtime, longer| {
        let program = pool(runtime)?;
        let pid = program.child.id();
        // A loaded machine suspends slowly: without its budget the sampler sees enough there, too.
        let seconds = 2 * longer;
        let duration = seconds.to_string();
        let output = top(pid, &["--once", "--json", "--budget", "50", "--duration", &duration])?.output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success() && !stderr.contains("has not detached"), "{output:?}");
        let table: Value = serde_json::from_str(&stdout).context("no JSON")?;
        ensure!(table["pid"] == pid && table["has_ended"] == false, "{table}");
        ensure!(table["command"].as_str().is_some_and(|line| line.contains("Pool.dll")), "{table}");
        ensure!(table["seconds"].as_f64().is_some_and(|told| told >= seconds as f64), "{table}");
        let [sixty, thirty, ten] = ["Pool.Sixty(", "Pool.Thirty(", "Pool.Ten("].map(|method| times(&table, method).0);
        let (works, works_own) = times(&table, "Pool.Works(");
        let (burn, burn_own) = times(&table, "Pool.Burn(");
        ensure_or_longer!(sixty > 0.0 && thirty > 0.0 && ten > 0.0, "not all were seen: {table}");
        ensure!(works >= sixty && works >= burn && burn >= burn_own, "{table}");
        let all = sixty + thirty + ten;
        for (share, expected) in [(sixty, 0.6), (thirty, 0.3), (ten, 0.1)] {
            ensure_or_longer!((share / all - expected).abs() < 0.25, "{share} of {all}: {table}");
        }
        ensure_or_longer!(burn_own > 0.8 * all && works_own < 0.2 * all, "{table}");
        Ok(())
    })
}

/// With one processor the clocks do not show which threads run, and which wait for it.
#[test]
fn what_distorts_the_times_is_said() -> Result<()> {
    const WORDS: &str = "Threads that wait for a processor count as working";

    patiently(runtimes()?, |runtime, times| {
        let pool = Run::new(runtime, "Pool").command()?;
        let mut bound = Command::new("taskset");
        bound.args(["-c", "0"]).arg(pool.get_program()).args(pool.get_args());
        bound.args(["3600000", "2", "100000", "ready"]);
        let program = Program::start(bound)?;
        program.expect("ready")?;
        let pid = program.child.id();
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let duration = times.to_string();
        let mut record = corprof()?;
        record.args(["record", "-p", &pid.to_string(), "--duration", &duration, "-o"]).arg(&file);
        let (_, said) = texts(&record.output()?);
        ensure_or_longer!(file.is_file(), "{runtime}: {said}");
        ensure!(said.contains(WORDS) && fs::read_to_string(&file)?.contains(WORDS), "{runtime}: {said}");
        let (table, said) = texts(&top(pid, &["--duration", &duration])?.output()?);
        ensure_or_longer!(table.contains("Pool.Burn"), "{runtime}: {table}{said}");
        ensure!(table.contains(WORDS), "{runtime}: {table}{said}");
        Ok(())
    })
}

#[test]
fn exceptions_allocations_and_collections_are_counted() -> Result<()> {
    patiently(runtimes()?, |runtime, longer| {
        let mut program = diagnosed(runtime, None)?;
        let duration = (5 * longer).to_string();
        let mut command = top(program.child.id(), &["--json", "--duration", &duration])?;
        let mut counting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        while counting.try_wait()?.is_none() {
            for command in ["throw 5", "allocate 1", "collect 1"] {
                program.tell(command)?;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let output = counting.wait_with_output()?;
        ensure!(output.status.success(), "{output:?}");
        let table: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
        ensure!(table["events_problem"].is_null(), "{table}");
        let events = &table["events"];
        ensure_or_longer!(!events.is_null(), "no events: {table}");
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        ensure_or_longer!(number(&events["exceptions"]) >= 5.0, "{table}");
        ensure_or_longer!(number(&events["allocated_bytes"]) >= 10e6, "{table}");
        ensure_or_longer!(number(&events["collections"][2]) >= 1.0, "{table}");
        ensure!(number(&events["collections"][0]) >= number(&events["collections"][2]), "{table}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{code:?}: {stderr}");
        Ok(())
    })
}

#[test]
fn an_interrupt_or_the_end_of_the_process_ends_the_count() -> Result<()> {
    for runtime in runtimes()? {
        let program = diagnosed(&runtime, None)?;
        let (interrupted, mut says) = counting(program.child.id())?;
        // The first numbers come after a second; without any, there is nothing to print.
        thread::sleep(Duration::from_secs(2));
        signal(interrupted.id(), "-INT")?;
        let output = interrupted.wait_with_output()?;
        let mut said = String::new();
        says.read_to_string(&mut said)?;
        let is_early = said.contains("interrupted before they came");
        ensure!(output.status.success() || is_early, "{runtime}: {output:?}: {said}");

        let (ended, mut says) = counting(program.child.id())?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        let output = ended.wait_with_output()?;
        says.read_to_string(&mut said)?;
        ensure!(output.status.success() && said.contains("has ended"), "{runtime}: {output:?}: {said}");
        ensure!(texts(&output).0.contains("total s method"), "{runtime}: {output:?}");
    }
    Ok(())
}

/// A command in a terminal of 100 columns, whose output is collected.
struct Terminal {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Terminal {
    /// Afterwards the shell prints the exit code and the terminal's settings.
    fn start(inner: &Command) -> Result<Self> {
        let mut shell = Command::new("sh");
        // The command begins with its process id.
        let inner_shell = "sh -c 'echo \"pid $$.\"; exec \"$0\" \"$@\"' \"$@\"";
        shell.args(["-c", &format!("stty rows 24 cols 100; {inner_shell}; echo code $?; stty -a"), "sh"]);
        shell.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let mut command = in_terminal(&shell);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let mut stdout = child.stdout.take().context("no output")?;
        let output = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                let text = String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned();
                collected.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Ok(Self { child, input, output, reader: Some(reader) })
    }

    fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn expect(&self, text: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.output().contains(text) {
            ensure!(Instant::now() < end, "no `{text}` on the terminal: {}", self.output().escape_debug());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The process id of the command.
    fn pid(&self) -> Result<u32> {
        self.expect(".\r\n")?;
        let output = self.output();
        let pid = output.split_once("pid ").and_then(|(_, rest)| rest.split_once('.'));
        Ok(pid.with_context(|| format!("no process id: {output:?}"))?.0.parse()?)
    }

    /// Presses a key that ends the command, and answers with all that came, if the terminal is as it was.
    fn end(mut self, key: &str) -> Result<String> {
        self.input.write_all(key.as_bytes())?;
        self.restored()
    }

    /// The command has been ended: answers with all that came, if the terminal is as it was.
    fn restored(mut self) -> Result<String> {
        self.expect("code 0")?;
        let _ = self.child.wait();
        self.reader.take().map(thread::JoinHandle::join);
        let output = self.output();
        let shown = output.escape_debug();
        let (screen, settings) = output.split_once("code 0").context("no exit code")?;
        let place = |text| screen.rfind(text).with_context(|| format!("no {text:?}: {shown}"));
        ensure!(place("\x1b[?1049h")? < place("\x1b[?1049l")?, "the screen is not restored: {shown}");
        let words: Vec<&str> = settings.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
        ensure!(
            ["icanon", "echo", "isig"].iter().all(|word| words.contains(word)),
            "the terminal is not restored: {shown}"
        );
        Ok(output)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_key_ends_the_live_table_and_restores_the_terminal() -> Result<()> {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no `script`, which makes a terminal");
        return Ok(());
    }
    for runtime in runtimes()? {
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id();
        let terminal = Terminal::start(&top(pid, &[])?)?;
        // In the lines above the table, once numbers have come.
        terminal.expect("samplings/s")?;
        let output = terminal.end("q")?;
        ensure!(!output.contains("has not detached"), "{runtime}: {output:?}");
        ensure!(program.child.try_wait()?.is_none(), "{runtime}: the application has ended");
        // The profiler has left, so the next one can come. The table stays when the application ends.
        let terminal = Terminal::start(&top(pid, &[])?)?;
        // In the lines above the table, once numbers have come.
        terminal.expect("samplings/s")?;
        program.child.kill()?;
        program.child.wait()?;
        terminal.expect("ENDED")?;
        let output = terminal.end("\x03")?;
        ensure!(output.contains(&format!("process {pid} has ended")), "{runtime}: {output:?}");
    }
    Ok(())
}

#[test]
fn a_signal_ends_the_live_table_and_restores_the_terminal() -> Result<()> {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no `script`, which makes a terminal");
        return Ok(());
    }
    for runtime in runtimes()?.into_iter().take(1) {
        let program = diagnosed(&runtime, None)?;
        for name in ["-TERM", "-HUP", "-INT"] {
            let terminal = Terminal::start(&top(program.child.id(), &[])?)?;
            terminal.expect("samplings/s")?;
            signal(terminal.pid()?, name)?;
            let output = terminal.restored()?;
            ensure!(!output.contains("has not detached"), "{runtime}: {name}: {output:?}");
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn the_profiler_leaves_when_the_command_is_killed_or_stopped() -> Result<()> {
        for runtime in runtimes()? {
            let mut first = diagnosed(&runtime, None)?;
            let mut second = diagnosed(&runtime, None)?;
            let (mut killed, _) = counting(first.child.id())?;
            let (mut stopped, mut says) = counting(second.child.id())?;
            killed.kill()?;
            killed.wait()?;
            signal(stopped.id(), "-STOP")?;
            for program in [&mut first, &mut second] {
                is_left_alone(program.child.id())?;
                program.tell("throw 1")?;
            }
            signal(stopped.id(), "-CONT")?;
            let mut said = String::new();
            says.read_to_string(&mut said)?;
            ensure!(
                stopped.wait()?.code() == Some(3) && said.contains("the profiler has left process"),
                "{runtime}: {said}"
            );
            for program in [first, second] {
                let (code, stderr) = program.end()?;
                ensure!(code == Some(0) && !stderr.contains("panicked"), "{runtime}: {code:?}: {stderr}");
            }
        }
        Ok(())
    }
}
