//! The diagnostics port of real runtimes, on Linux: there this process and the runtime are processes of one system.
//! Under Wine a pipe is Wine's own, and in an emulator the runtime's own number of itself is the emulator's.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corprof_diagnostics::{
    Error, EventFilter, FullBuffer, HResult, Level, PortServer, Process, Provider, Rundown, SessionConfig, Start, Uuid,
};
use corprof_nettrace::Reader;
use corprof_tests::{Difference, Run, Runtime};

/// Long enough for any answer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn runtimes() -> Result<Vec<Runtime>> {
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        Runtime::all()?.into_iter().partition(|runtime| !runtime.is_windows() && !runtime.is_emulated());
    for runtime in elsewhere {
        println!("SKIPPED: the diagnostics port of {runtime} is not one of this system");
    }
    Ok(here)
}

/// A run of tests/managed/Diagnosed.cs, which ends when it is not needed any more.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// Its standard error, which is read all the time: a full pipe would block the program.
    error: Option<JoinHandle<String>>,
}

impl Program {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the program")?;
        let input = child.stdin.take();
        let stdout = child.stdout.take().context("no output")?;
        let (sender, output) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut stderr = child.stderr.take().context("no standard error")?;
        let error = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { child, input, output, error: Some(error) })
    }

    /// One that is up.
    pub(crate) fn ready(command: Command) -> Result<Self> {
        let program = Self::start(command)?;
        program.expect("ready")?;
        Ok(program)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line. A runtime that is suspended prints warnings there.
    pub(super) fn expect(&self, expected: &str) -> Result<()> {
        loop {
            let line = self.output.recv_timeout(PATIENCE).with_context(|| format!("no line `{expected}`"))?;
            if line == expected {
                return Ok(());
            }
        }
    }

    /// Its own number of itself, which is Wine's under Wine.
    pub(crate) fn own_pid(&mut self) -> Result<u32> {
        writeln!(self.input.as_mut().context("its input is closed")?, "pid")?;
        loop {
            let line = self.output.recv_timeout(PATIENCE).context("no process id")?;
            if let Some(pid) = line.strip_prefix("pid ") {
                self.expect("done pid")?;
                return Ok(pid.parse()?);
            }
        }
    }

    pub(crate) fn tell(&mut self, command: &str) -> Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        writeln!(input, "{command}")?;
        self.expect(&format!("done {command}"))
    }

    /// Lets it end, and answers with its standard error.
    pub(crate) fn end(mut self) -> Result<String> {
        drop(self.input.take());
        let error = self.error.take().context("its standard error is read already")?;
        let stderr = error.join().map_err(|_| anyhow!("panicked"))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {stderr}");
        Ok(stderr)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that ends by itself leaves no socket behind.
        drop(self.input.take());
        let end = Instant::now() + Duration::from_secs(60);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(runtime: &Runtime) -> Result<Command> {
    Run::new(runtime, "Diagnosed").command()
}

/// CLSID and path of the profiler of an example, as the harness would set them.
pub(crate) fn profiler(runtime: &Runtime, name: &str) -> Result<(Uuid, PathBuf)> {
    set_by(&Run::new(runtime, "Diagnosed").profiler(name))
}

/// The same of one of several profilers in an example's library.
pub(crate) fn profiler_named(runtime: &Runtime, library: &str, name: &str) -> Result<(Uuid, PathBuf)> {
    set_by(&Run::new(runtime, "Diagnosed").profiler_named(library, name))
}

/// The same of a built-in profiler.
pub(crate) fn built_in(runtime: &Runtime, name: &str) -> Result<(Uuid, PathBuf)> {
    set_by(&Run::new(runtime, "Diagnosed").built_in(name))
}

fn set_by(run: &Run) -> Result<(Uuid, PathBuf)> {
    let command = run.command()?;
    let value = |name: &str| {
        let value = command.get_envs().find(|(other, _)| *other == name).and_then(|(_, value)| value);
        value.with_context(|| format!("no {name}"))
    };
    let clsid = value("CORECLR_PROFILER")?.to_string_lossy();
    Ok((Uuid::parse_str(&clsid)?, value("CORECLR_PROFILER_PATH")?.into()))
}

/// The names of the runtime's own events, which a trace does not have.
fn gc_event(id: u32) -> Option<&'static str> {
    Some(match id {
        1 => "GCStart",
        2 => "GCEnd",
        3 => "GCRestartEEEnd",
        4 => "GCHeapStats",
        8 => "GCSuspendEEEnd",
        9 => "GCSuspendEEBegin",
        _ => return None,
    })
}

#[test]
fn a_process_tells_what_it_is() -> Result<()> {
    for runtime in runtimes()? {
        let mut start = command(&runtime)?;
        start.env("CORPROF_MARK", "grün=1");
        let program = Program::ready(start)?;
        let process = Process::open(program.pid())?;
        ensure!(process.inner_pid() == program.pid(), "{runtime}: {process:?}");
        ensure!(Process::all()?.contains(&process), "{runtime}: not listed: {process:?}");

        let client = process.client().with_timeout(PATIENCE);
        let info = client.process_info()?;
        println!("{runtime}: {info:?}");
        ensure!(info.pid == u64::from(program.pid()), "{info:?}");
        ensure!(info.command_line.contains("Diagnosed.dll"), "{info:?}");
        ensure!(info.os == "Linux" && info.architecture == "x64", "{info:?}");
        ensure!(info.clr_major() == Some(runtime.major), "{info:?}");
        ensure!(info.entry_assembly == "Diagnosed", "{info:?}");
        ensure!(info.portable_rid == "linux-x64", "{info:?}");
        ensure!(client.process_info()? == info, "{runtime}: it is told otherwise the second time");

        ensure!(client.environment()?.get("CORPROF_MARK") == Some("grün=1"), "{runtime}");
        client.set_environment_variable("CORPROF_MARK", Some("set"))?;
        ensure!(client.environment()?.get("CORPROF_MARK") == Some("set"), "{runtime}: not set");
        client.set_environment_variable("CORPROF_MARK", None)?;
        ensure!(client.environment()?.get("CORPROF_MARK").is_none(), "{runtime}: not removed");
    }
    Ok(())
}

#[test]
fn a_process_in_a_container_is_found_and_asked() -> Result<()> {
    /// Numbers of processes of its own, and a folder for temporary files that cannot be seen from outside.
    const CONTAINER: [&str; 8] = [
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        "mount -t tmpfs none /var/tmp && exec \"$0\" \"$@\"",
    ];
    let may = Command::new("unshare").args(&CONTAINER[..7]).arg("mount -t tmpfs none /var/tmp").output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: this user may not make containers by `unshare`");
        return Ok(());
    }
    for runtime in runtimes()? {
        let inner = command(&runtime)?;
        let mut start = Command::new("unshare");
        start.args(CONTAINER).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => start.env(name, value),
                None => start.env_remove(name),
            };
        }
        start.env("TMPDIR", "/var/tmp");
        let program = Program::ready(start)?;
        let children = format!("/proc/{0}/task/{0}/children", program.pid());
        let pid: u32 = fs::read_to_string(children)?.trim().parse().context("unshare has no child, or several")?;
        let process = Process::open(pid)?;
        println!("{runtime}: {process:?}");
        ensure!(process.inner_pid() != pid, "{runtime}: {process:?} is in no container");
        ensure!(Process::all()?.contains(&process), "{runtime}: {process:?} is not listed");
        let info = process.client().with_timeout(PATIENCE).process_info()?;
        ensure!(info.pid == u64::from(process.inner_pid()), "{runtime}: {info:?}");
    }
    Ok(())
}

#[test]
fn a_killed_process_leaves_a_socket_that_is_told_from_living_ones() -> Result<()> {
    for runtime in runtimes()? {
        let mut program = Program::ready(command(&runtime)?)?;
        let process = Process::open(program.pid())?;
        program.child.kill()?;
        program.child.wait()?;
        let scan = Process::scan()?;
        ensure!(!scan.processes.contains(&process), "{runtime}: {process:?} is listed");
        ensure!(scan.stale.iter().any(|path| path == process.port()), "{runtime}: {:?}", scan.stale);
        ensure!(matches!(Process::open(process.pid()), Err(Error::NoProcess { .. })), "{runtime}");
        let asked = process.client().process_info();
        ensure!(matches!(asked, Err(Error::Stale { .. })), "{runtime}: {asked:?}");
        fs::remove_file(process.port())?;
    }
    Ok(())
}

#[test]
fn a_client_that_says_nothing_is_waited_for_up_to_the_deadline() -> Result<()> {
    for runtime in runtimes()? {
        let program = Program::ready(command(&runtime)?)?;
        let process = Process::open(program.pid())?;
        let silent = UnixStream::connect(process.port())?;
        let asked = process.client().with_timeout(Duration::from_millis(500)).process_info();
        ensure!(asked.as_ref().is_err_and(Error::is_timeout), "{runtime}: {asked:?}");
        drop(silent);
        process.client().with_timeout(PATIENCE).process_info()?;
    }
    Ok(())
}

#[test]
fn a_profiler_is_attached() -> Result<()> {
    for runtime in runtimes()? {
        let (clsid, library) = profiler(&runtime, "attached")?;
        let mut program = Program::ready(command(&runtime)?)?;
        program.tell("throw 3")?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);

        let missing = client.attach_profiler(clsid, &library.with_extension("missing"), &[], PATIENCE);
        let code = missing.as_ref().err().and_then(Error::code);
        ensure!(code == Some(HResult(0x8007_007e)), "{runtime}: {missing:?}");
        let text = missing.err().map_or_else(String::new, |error| error.to_string());
        ensure!(text.contains("ERROR_MOD_NOT_FOUND"), "{text}");

        client.attach_profiler(clsid, &library, &[1, 2, 3], PATIENCE)?;
        let again = client.attach_profiler(clsid, &library, &[], PATIENCE);
        let code = again.as_ref().err().and_then(Error::code);
        ensure!(code == Some(HResult::PROFILER_ALREADY_ACTIVE), "{runtime}: {again:?}");

        program.tell("throw 5")?;
        let stderr = program.end()?;
        for expected in ["attached| given [1, 2, 3]\n", "attached| complete\n", "attached| exceptions: 5\n"] {
            ensure!(stderr.contains(expected), "{runtime}: no {expected}: {stderr}");
        }
    }
    Ok(())
}

#[test]
fn a_session_tells_of_each_collection() -> Result<()> {
    const GC: u64 = 1;
    const ROUNDS: usize = 10;
    for runtime in runtimes()? {
        let mut program = Program::ready(command(&runtime)?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        let config = SessionConfig::new([Provider::new(Provider::RUNTIME, GC, Level::Informational)])
            .with_rundown(Rundown::Default);
        let mut session = client.start_session(&config)?;
        session.set_read_timeout(Some(PATIENCE));
        program.tell(&format!("collect {ROUNDS}"))?;
        session.stop()?;

        let mut reader = Reader::new(session);
        let trace = reader.trace()?.clone();
        ensure!(trace.version == 4 && trace.pointer_size == 8, "{trace:?}");
        ensure!(trace.process_id == Some(program.pid().into()), "{trace:?}");
        let mut induced = 0;
        let mut ends = 0;
        let mut rundown = 0;
        let mut suspensions = 0;
        while let Some(event) = reader.next_event()? {
            let metadata = event.metadata();
            if metadata.provider != Provider::RUNTIME {
                rundown += usize::from(metadata.provider.ends_with("Rundown"));
                continue;
            }
            ensure!(event.process_id() == Some(program.pid().into()), "{event:?}");
            match gc_event(metadata.event_id) {
                // Count, depth, reason; the reason 1 is that the program asked.
                Some("GCStart") => induced += usize::from(event.payload().get(8..12) == Some(&[1, 0, 0, 0])),
                Some("GCEnd") => ends += 1,
                Some("GCSuspendEEBegin") => suspensions += 1,
                _ => {}
            }
        }
        let stats = reader.stats();
        println!(
            "{runtime}: {induced} induced, {ends} ends, {suspensions} suspensions, {rundown} of rundown, {stats:?}"
        );
        ensure!(induced == ROUNDS, "{runtime}: {induced} collections were asked for");
        ensure!(ends >= ROUNDS && suspensions >= ROUNDS, "{runtime}: {ends} ends, {suspensions} suspensions");
        ensure!(rundown > 100, "{runtime}: {rundown} events of rundown");
        ensure!(stats.lost == 0 && stats.sequence_points > 0, "{runtime}: {stats:?}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn what_only_newer_runtimes_can_do_is_refused_by_name() -> Result<()> {
    const GC: u64 = 1;
    const GC_START: u32 = 1;
    for runtime in runtimes()? {
        let mut program = Program::ready(command(&runtime)?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        let provider = || Provider::new(Provider::RUNTIME, GC, Level::Informational);
        let only_starts = provider().with_filter(EventFilter::Only(vec![GC_START]));
        let not_starts = provider().with_filter(EventFilter::Except(vec![GC_START]));
        let without_stacks = SessionConfig::new([provider()]).without_stacks();
        let configs = [
            (Difference::SessionsWithoutStacks, without_stacks.clone(), [true, true]),
            (
                Difference::SessionsWithoutStacks,
                SessionConfig::new([provider()]).with_rundown(Rundown::Keywords(0x8)),
                [true, true],
            ),
            (Difference::FiltersOfEvents, SessionConfig::new([only_starts]), [true, false]),
            (Difference::FiltersOfEvents, SessionConfig::new([not_starts]), [false, true]),
        ];
        for (needs, config, expected) in configs {
            let session = client.start_session(&config);
            if !runtime.has(needs) {
                ensure!(matches!(session, Err(Error::Unsupported { .. })), "{runtime}: {config:?}: {session:?}");
                continue;
            }
            let mut session = session.with_context(|| format!("{runtime}: {config:?}"))?;
            session.set_read_timeout(Some(PATIENCE));
            program.tell("collect 2")?;
            session.stop()?;
            let mut reader = Reader::new(session);
            let mut seen = [false, false];
            let mut frames = 0;
            while let Some(event) = reader.next_event()? {
                if event.metadata().provider == Provider::RUNTIME {
                    let is_start = event.metadata().event_id == GC_START;
                    seen[usize::from(!is_start)] = true;
                    frames += event.stack().addresses().len();
                }
            }
            ensure!(seen == expected, "{runtime}: {config:?}: {seen:?}");
            println!("{runtime}: {frames} frames by {config:?}");
            ensure!(frames == 0 || config != without_stacks, "{runtime}: {frames} frames without stacks");
        }
    }
    Ok(())
}

#[test]
fn no_event_is_lost_where_the_threads_that_write_can_wait() -> Result<()> {
    const EXCEPTIONS: u64 = 0x8000;
    const EXCEPTION_THROWN: u32 = 80;
    /// Several times as many as the buffer has room for.
    const THROWN: u64 = 10_000;
    for runtime in runtimes()? {
        let mut program = Program::ready(command(&runtime)?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        let provider = Provider::new(Provider::RUNTIME, EXCEPTIONS, Level::Verbose);
        let config = SessionConfig::new([provider]).with_buffer_mb(1);
        let mut session = client.start_session(&config.clone().with_full_buffer(FullBuffer::WaitIfPossible))?;
        let required = client.start_session(&config.with_full_buffer(FullBuffer::Wait)).map(drop);
        let is_refused = matches!(required, Err(Error::Unsupported { .. }));
        ensure!(is_refused || required.is_ok(), "{runtime}: {required:?}");
        ensure!(session.drops_events() == is_refused, "{runtime}: the one is refused and the other is not");
        ensure!(is_refused != runtime.has(Difference::WaitsWhileBufferIsFull), "{runtime}: {required:?}");
        session.set_read_timeout(Some(PATIENCE));
        let id = session.id();
        let reading = thread::spawn(move || -> Result<(u64, u64)> {
            // Until then the buffer is full.
            thread::sleep(Duration::from_millis(500));
            let mut reader = Reader::new(session);
            let mut thrown = 0;
            while let Some(event) = reader.next_event()? {
                thrown += u64::from(event.metadata().event_id == EXCEPTION_THROWN);
            }
            Ok((thrown, reader.stats().lost))
        });
        program.tell(&format!("throw {THROWN}"))?;
        client.stop_session(id)?;
        let (thrown, lost) = reading.join().map_err(|_| anyhow!("the reader panicked"))??;
        println!("{runtime}: {thrown} of {THROWN} came, {lost} were lost");
        ensure!(is_refused || thrown == THROWN, "{runtime}: {thrown} came, {lost} were lost");
        // No thread waits for a session that stops: what one writes just then may be lost (seen once on 11).
        ensure!(is_refused || lost <= 1, "{runtime}: {lost} were lost");
        program.end()?;
    }
    Ok(())
}

#[test]
fn a_runtime_connects_and_waits_until_it_is_resumed() -> Result<()> {
    const PROFILER: u64 = 0x200_0000_0000;
    const PROFILER_MESSAGE: u32 = 299;
    for runtime in runtimes()? {
        let (clsid, library) = profiler(&runtime, "attached")?;
        let folder = tempfile::tempdir()?;
        let server = PortServer::bind(&folder.path().join("port"))?;
        let mut start = command(&runtime)?;
        start.env("DOTNET_DiagnosticPorts", server.variable(Start::Suspended));
        let program = Program::start(start)?;
        let connected = server.accept(PATIENCE)?;
        ensure!(connected.advertise().pid == u64::from(program.pid()), "{connected:?}");
        let client = connected.client().clone().with_timeout(PATIENCE);
        let info = client.process_info()?;
        println!("{runtime}: suspended: {info:?}");
        ensure!(info.cookie == connected.advertise().cookie, "{info:?}");
        ensure!(program.output.try_recv().is_err(), "{runtime}: it runs");

        // The runtime's answer to the profiler's load, which follows the resume.
        let config = SessionConfig::new([Provider::new(Provider::RUNTIME, PROFILER, Level::Verbose)]);
        let mut session = client.start_session(&config)?;
        session.set_read_timeout(Some(PATIENCE));
        client.set_environment_variable("CORPROF_MARK", Some("set"))?;
        client.startup_profiler(clsid, &library)?;
        client.resume_runtime()?;
        program.expect("ready")?;
        println!("{runtime}: running: {:?}", client.process_info()?);
        ensure!(client.environment()?.get("CORPROF_MARK") == Some("set"), "{runtime}: not set");
        let late = client.startup_profiler(clsid, &library);
        ensure!(matches!(late, Err(Error::BadRequest { .. })), "{runtime}: {late:?}");
        session.stop()?;
        let mut reader = Reader::new(session);
        let mut messages = Vec::new();
        while let Some(event) = reader.next_event()? {
            if event.metadata().event_id == PROFILER_MESSAGE {
                let units = event.payload().chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
                messages.push(char::decode_utf16(units).flatten().collect::<String>());
            }
        }
        println!("{runtime}: {messages:?}");
        ensure!(messages.iter().any(|text| text.contains("loaded successfully")), "{runtime}: {messages:?}");
        if server.accept(Duration::from_millis(100)).is_ok() {
            bail!("{runtime}: it is told of twice");
        }
        let stderr = program.end()?;
        ensure!(stderr.contains("attached| loaded at start-up\n"), "{runtime}: {stderr}");
    }
    Ok(())
}
