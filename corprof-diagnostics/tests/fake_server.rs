//! Runtimes with bad manners: each gives a named error, and within the deadline.
#![cfg(unix)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corprof_diagnostics::ipc::{self, Command, HEADER_SIZE, Header};
use corprof_diagnostics::{Client, Error, HResult, Level, PortServer, Provider, Rundown, SessionConfig, Start, Uuid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

#[path = "fake_server/sessions.rs"]
mod sessions;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Long on a busy machine, and short enough for a test in which it passes.
const TIMEOUT: Duration = Duration::from_millis(400);
/// The limit for a call with the deadline [`TIMEOUT`]: generous, because the machine may be busy.
const SURELY: Duration = Duration::from_secs(30);
/// For tests of something other than the time-out.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands and their payloads.
type Questions = Vec<(Command, Vec<u8>)>;

/// A server that does `behaviour` with each connection, one after the other, and records the requests.
struct Server {
    folder: tempfile::TempDir,
    asked: Arc<Mutex<Questions>>,
}

fn read_message(stream: &mut UnixStream) -> std::io::Result<(Command, Vec<u8>)> {
    let mut header = [0; HEADER_SIZE];
    stream.read_exact(&mut header)?;
    let header = Header::decode(&header).map_err(std::io::Error::other)?;
    let mut payload = vec![0; header.payload_size];
    stream.read_exact(&mut payload)?;
    Ok((header.command, payload))
}

impl Server {
    fn new(behaviour: impl Fn(UnixStream, Command, &[u8]) + Send + 'static) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("port"))?;
        let asked = Arc::<Mutex<Questions>>::default();
        let notes = Arc::clone(&asked);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if let Ok((command, payload)) = read_message(&mut stream) {
                    notes.lock().unwrap_or_else(PoisonError::into_inner).push((command, payload.clone()));
                    behaviour(stream, command, &payload);
                }
            }
        });
        Ok(Self { folder, asked })
    }

    /// One that answers every request with these bytes.
    fn answering(bytes: Vec<u8>) -> Result<Self> {
        Self::new(move |mut stream, _, _| drop(stream.write_all(&bytes)))
    }

    fn client(&self, timeout: Duration) -> Client {
        Client::at(&self.folder.path().join("port")).with_timeout(timeout)
    }

    fn asked(&self) -> Questions {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn ok(payload: &[u8]) -> Vec<u8> {
    ipc::encode(Command::OK, payload).unwrap_or_default()
}

fn refusal(code: u32) -> Vec<u8> {
    ipc::encode(Command::ERROR, &code.to_le_bytes()).unwrap_or_default()
}

fn text(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    let count = u32::try_from(units.len()).unwrap_or_default().to_le_bytes();
    count.into_iter().chain(units.into_iter().flat_map(u16::to_le_bytes)).collect()
}

/// The payload of an answer to `ProcessInfo`, with these strings.
fn info(strings: &[&str]) -> Vec<u8> {
    let fixed = 4711_u64.to_le_bytes().into_iter().chain([7; 16]);
    fixed.chain(strings.iter().flat_map(|string| text(string))).collect()
}

/// The outcome of a call to this server. Fails if the call takes longer than [`SURELY`].
fn ask<T>(server: &Server, timeout: Duration, call: impl FnOnce(&Client) -> std::result::Result<T, Error>) -> String {
    let start = Instant::now();
    let answer = call(&server.client(timeout));
    assert!(start.elapsed() < SURELY, "{:?}", start.elapsed());
    answer.err().map_or_else(|| "it was answered".to_owned(), |error| format!("{error:?}"))
}

fn process_info(server: &Server, timeout: Duration) -> String {
    ask(server, timeout, Client::process_info)
}

#[test]
fn one_that_never_answers_times_out() -> Result {
    let server = Server::new(|stream, _, _| {
        thread::sleep(SURELY);
        drop(stream);
    })?;
    assert!(process_info(&server, TIMEOUT).starts_with("TimedOut"));
    // It is still busy with the first client, and does not even accept.
    assert!(process_info(&server, TIMEOUT).starts_with("TimedOut"));
    Ok(())
}

#[test]
fn one_that_does_not_accept_times_out_also_when_its_queue_is_full() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("port");
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
    rustix::net::listen(&listener, 1)?;
    // Those that have given up stay in the queue, so that the later ones cannot even connect.
    for _ in 0..5 {
        let answer = Client::at(&path).with_timeout(TIMEOUT / 4).process_info();
        assert!(matches!(answer, Err(Error::TimedOut { .. })), "{answer:?}");
    }
    Ok(())
}

#[test]
fn one_that_closes_is_told_from_one_that_is_slow() -> Result {
    for length in [0, 10, HEADER_SIZE, 25] {
        let whole = ok(&info(&["a", "b", "c"]));
        let server = Server::answering(whole.get(..length).unwrap_or_default().to_vec())?;
        let error = process_info(&server, PATIENCE);
        assert!(error.starts_with("Closed"), "after {length} bytes: {error}");
    }
    Ok(())
}

#[test]
fn one_that_answers_half_and_stops_times_out() -> Result {
    for length in [1, HEADER_SIZE, 30] {
        let half = ok(&info(&["a", "b", "c"])).get(..length).unwrap_or_default().to_vec();
        let server = Server::new(move |mut stream, _, _| {
            let _ = stream.write_all(&half);
            thread::sleep(SURELY);
        })?;
        let error = process_info(&server, TIMEOUT);
        assert!(error.starts_with("TimedOut"), "after {length} bytes: {error}");
    }
    Ok(())
}

#[test]
fn one_that_trickles_does_not_move_the_deadline() -> Result {
    let server = Server::new(|mut stream, _, _| {
        for byte in ok(&[0; 5000]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(TIMEOUT / 10);
        }
    })?;
    assert!(process_info(&server, TIMEOUT).starts_with("TimedOut"));
    Ok(())
}

#[test]
fn garbage_is_no_answer() -> Result {
    let mut wrong_command = ok(&info(&["a", "b", "c"]));
    wrong_command[16] = 4;
    let mut too_small = ok(&[]);
    too_small[14] = 19;
    let cases = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "DOTNET_IPC_V1"),
        (vec![0; 100], "DOTNET_IPC_V1"),
        (wrong_command, "neither a success nor an error"),
        (too_small, "smaller than its header"),
        (ipc::encode(Command::ERROR, &[1, 2]).unwrap_or_default(), "without a code"),
        (ok(&[]), "too short"),
        (ok(&info(&["a", "b"])), "too short"),
        // Strings that are longer than the message.
        (ok(&[&info(&[])[..], &[0xff, 0xff, 0xff, 0xff, 1, 2]].concat()), "too short"),
    ];
    for (answer, expected) in cases {
        let error = process_info(&Server::answering(answer)?, PATIENCE);
        assert!(error.starts_with("BadReply") && error.contains(expected), "{expected}: {error}");
    }
    Ok(())
}

#[test]
fn a_length_that_is_a_lie_is_waited_for_up_to_the_deadline() -> Result {
    let mut longer = ok(&info(&["a", "b", "c"]));
    longer[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
    let server = Server::new(move |mut stream, _, _| {
        let _ = stream.write_all(&longer);
        thread::sleep(SURELY);
    })?;
    assert!(process_info(&server, TIMEOUT).starts_with("TimedOut"));
    Ok(())
}

#[test]
fn an_environment_that_is_a_lie_is_refused_or_waited_for() -> Result {
    let size = |bytes: u32| ok(&[&bytes.to_le_bytes()[..], &[0, 0]].concat());
    let environment = |answer| ask(&answer, PATIENCE, Client::environment);
    let error = environment(Server::answering(size(u32::MAX))?);
    assert!(error.starts_with("BadReply") && error.contains("more than 4 MB"), "{error}");
    assert!(environment(Server::answering(ok(&[1]))?).starts_with("BadReply"));
    assert!(environment(Server::answering(size(100))?).starts_with("Closed"));
    let short = [size(4), 5_u32.to_le_bytes().to_vec()].concat();
    let error = environment(Server::answering(short)?);
    assert!(error.starts_with("BadReply") && error.contains("shorter"), "{error}");
    let server = Server::new(move |mut stream, _, _| {
        let _ = stream.write_all(&size(100));
        thread::sleep(SURELY);
    })?;
    assert!(ask(&server, TIMEOUT, Client::environment).starts_with("TimedOut"));
    Ok(())
}

#[test]
fn refusals_have_names_and_cures() -> Result {
    let attach = |code| -> Result<Error> {
        let server = Server::answering(refusal(code))?;
        let answer = server.client(PATIENCE).attach_profiler(Uuid::nil(), Path::new("/x.so"), &[], TIMEOUT);
        Ok(answer.err().ok_or("it was answered")?)
    };
    let error = attach(0x8013_136a)?;
    assert_eq!(error.code(), Some(HResult::PROFILER_ALREADY_ACTIVE));
    let expected = "attach the profiler: the runtime answered CORPROF_E_PROFILER_ALREADY_ACTIVE (0x8013136a): another \
                    profiler is in the process, or is being attached or detached: a process has one at a time";
    assert_eq!(error.to_string(), expected);
    assert_eq!(attach(0x8123_4567)?.to_string(), "attach the profiler: the runtime answered 0x81234567");
    Ok(())
}

#[test]
fn a_runtime_that_is_not_suspended_yet_is_asked_again() -> Result {
    let asked = AtomicUsize::new(0);
    let server = Server::new(move |mut stream, _, _| {
        let is_suspended = asked.fetch_add(1, Ordering::Relaxed) == 2;
        drop(stream.write_all(&if is_suspended { ok(&[]) } else { refusal(0x8007_0057) }));
    })?;
    server.client(PATIENCE).startup_profiler(Uuid::nil(), Path::new("/x.so"))?;
    assert_eq!(server.asked().len(), 3);

    let resumed = Server::answering(refusal(0x8007_0057))?;
    let error = ask(&resumed, TIMEOUT, |client| client.startup_profiler(Uuid::nil(), Path::new("/x.so")));
    assert!(error.contains("E_INVALIDARG"), "{error}");
    Ok(())
}

#[test]
fn what_a_runtime_says_about_its_process_is_read() -> Result {
    let texts = info(&["dotnet x", "Linux", "x64", "x", "8.0.4", "linux-x64", "more"]);
    let server = Server::answering(ok(&[&1_u32.to_le_bytes()[..], &texts].concat()))?;
    let info = server.client(PATIENCE).process_info()?;
    assert_eq!((info.pid, info.command_line.as_str(), info.os.as_str()), (4711, "dotnet x", "Linux"));
    assert_eq!(
        (info.entry_assembly.as_str(), info.clr_major(), info.portable_rid.as_str()),
        ("x", Some(8), "linux-x64")
    );
    assert_eq!(server.asked().len(), 1);

    let old = Server::answering(refusal(0x8013_1385))?;
    let error = process_info(&old, PATIENCE);
    assert!(error.starts_with("Unsupported") && error.contains(".NET 8"), "{error}");
    let error = ask(&old, PATIENCE, Client::resume_runtime);
    assert!(error.contains("UNKNOWN_COMMAND"), "{error}");
    Ok(())
}

#[test]
fn questions_are_as_the_protocol_has_them() -> Result {
    let server = Server::answering(ok(&9_u64.to_le_bytes()))?;
    let client = server.client(PATIENCE);
    let clsid = Uuid::parse_str("{00010203-0405-0607-0809-0a0b0c0d0e0f}")?;
    client.attach_profiler(clsid, Path::new("/x"), &[1, 2], Duration::from_secs(3))?;
    client.set_environment_variable("A", None)?;
    let provider = Provider::new("P", 5, Level::Verbose).with_arguments("x=1");
    let session = client.start_session(&SessionConfig::new([provider]).with_rundown(Rundown::Keywords(3)))?;
    assert_eq!(session.id(), 9);
    let guid = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let attach = [&3000_u32.to_le_bytes()[..], &guid, &text("/x"), &[2, 0, 0, 0, 1, 2]].concat();
    let collect = [
        &64_u32.to_le_bytes()[..],
        &1_u32.to_le_bytes(),
        &3_u64.to_le_bytes(),
        &[1],
        &1_u32.to_le_bytes(),
        &5_u64.to_le_bytes(),
        &5_u32.to_le_bytes(),
        &text("P"),
        &text("x=1"),
    ];
    let expected = [
        (Command::ATTACH_PROFILER, attach),
        (Command::SET_ENVIRONMENT_VARIABLE, [text("A"), vec![0; 4]].concat()),
        (Command::COLLECT_TRACING_4, collect.concat()),
        // Whose answer says that the session is on.
        (Command::PROCESS_INFO, Vec::new()),
    ];
    // The session has ended, so the client does not wait until the last question is read.
    let end = Instant::now() + SURELY;
    while server.asked().len() < expected.len() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.asked(), expected);
    Ok(())
}

#[test]
fn what_makes_no_sense_is_not_sent() -> Result {
    let server = Server::answering(ok(&[]))?;
    let client = server.client(PATIENCE);
    let attach =
        |path: &str, data: &[u8]| format!("{:?}", client.attach_profiler(Uuid::nil(), Path::new(path), data, TIMEOUT));
    assert!(attach("libprofiler.so", &[]).contains("not absolute"));
    assert!(attach("/x\0.so", &[]).contains("not text"));
    assert!(attach("/x.so", &[0; 70_000]).contains("TooLong"));
    assert!(client.set_environment_variable("A=B", Some("x")).is_err());
    assert!(client.start_session(&SessionConfig::new([])).is_err());
    assert_eq!(server.asked(), []);
    Ok(())
}

#[test]
fn nobody_is_told_from_somebody_who_is_gone() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("port");
    let missing = Client::at(&path).process_info();
    assert!(matches!(missing, Err(Error::Connect { .. })), "{missing:?}");
    drop(UnixListener::bind(&path)?);
    let stale = Client::at(&path).process_info();
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    Ok(())
}

#[test]
fn a_path_that_is_too_long_for_an_address_is_reached() -> Result {
    let folder = tempfile::tempdir()?;
    let long = folder.path().join("x".repeat(120));
    std::fs::create_dir(&long)?;
    let server = Server::answering(ok(&info(&["a", "b", "c"])))?;
    // A socket can be moved.
    std::fs::rename(server.folder.path().join("port"), long.join("port"))?;
    let answer = Client::at(&long.join("port")).with_timeout(PATIENCE).process_info();
    if cfg!(target_os = "linux") {
        // It answers every form with the same payload, which is that of the oldest.
        assert!(matches!(answer, Err(Error::BadReply { .. })), "{answer:?}");
    }
    Ok(())
}

/// How a runtime introduces itself.
fn advertisement(cookie: u8, pid: u64) -> Vec<u8> {
    [b"ADVR_V1\0".to_vec(), vec![cookie; 16], pid.to_le_bytes().to_vec(), vec![0; 2]].concat()
}

#[test]
fn runtimes_connect_and_others_are_turned_away() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("port");
    let server = PortServer::bind(&path)?;
    assert!(server.variable(Start::Suspended).to_string_lossy().ends_with("/port,connect,suspend"));
    let none = server.accept(TIMEOUT);
    assert!(matches!(none, Err(Error::TimedOut { .. })), "{none:?}");

    let silent = UnixStream::connect(&path)?;
    let mut garbage = UnixStream::connect(&path)?;
    garbage.write_all(&[1; 100])?;
    let connect = |cookie, pid| -> Result<UnixStream> {
        let mut stream = UnixStream::connect(&path)?;
        stream.write_all(&advertisement(cookie, pid))?;
        Ok(stream)
    };
    let first = connect(1, 10)?;
    let _second = connect(2, 10)?;
    let runtimes = [server.accept(PATIENCE)?, server.accept(PATIENCE)?];
    let cookies = runtimes.each_ref().map(|runtime| (runtime.advertise().cookie, runtime.advertise().pid));
    assert_eq!(cookies, [(Uuid::from_bytes([1; 16]), 10), (Uuid::from_bytes([2; 16]), 10)]);
    drop(silent);

    // A question goes to the runtime that it is for, and uses up its connection.
    let answers = thread::spawn(move || {
        let mut first = first;
        let asked = read_message(&mut first)?;
        first.write_all(&ok(&[0; 4]))?;
        Ok::<_, std::io::Error>(asked.0)
    });
    runtimes[0].client().clone().with_timeout(PATIENCE).resume_runtime()?;
    assert_eq!(answers.join().map_err(|_| "it panicked")??, Command::RESUME_RUNTIME);
    let next = runtimes[0].client().clone().with_timeout(TIMEOUT).resume_runtime();
    assert!(matches!(next, Err(Error::TimedOut { .. })), "{next:?}");
    // It connects anew, and is not a new runtime.
    let _again = connect(1, 10)?;
    assert!(server.accept(TIMEOUT).is_err());
    drop((server, runtimes));
    assert!(!path.exists(), "the socket is left behind");
    Ok(())
}

#[test]
fn a_port_that_runtimes_could_not_name_is_refused() {
    for path in ["/tmp/a,b", "/tmp/a;b", "port", "/no/such/folder/port"] {
        let port = PortServer::bind(Path::new(path));
        assert!(matches!(port, Err(Error::Listen { .. })), "{port:?}");
    }
}
