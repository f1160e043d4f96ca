//! Named pipes, on Windows and under Wine: the transport alone, as tests/fake_server.rs has the rest.
#![cfg(windows)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use corprof_diagnostics::ipc::{self, Command, HEADER_SIZE, Header};
use corprof_diagnostics::{Client, Error, PortServer, Process, Start, Uuid};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_millis(400);
/// The limit for a call with the deadline [`TIMEOUT`]: generous, because the machine may be busy.
const SURELY: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(30);

/// A pipe of this test.
fn pipe(name: &str) -> PathBuf {
    PathBuf::from(format!(r"\\.\pipe\corprof-test-{}-{name}", std::process::id()))
}

fn connect(path: &PathBuf) -> Result<File> {
    let start = Instant::now();
    loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            // Every instance is taken.
            Err(error) if error.raw_os_error() == Some(231) && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return Ok(opened?),
        }
    }
}

/// A runtime that connects and introduces itself.
fn runtime(path: &PathBuf, cookie: u8) -> Result<File> {
    let mut stream = connect(path)?;
    stream.write_all(&[b"ADVR_V1\0".to_vec(), vec![cookie; 16], 10_u64.to_le_bytes().to_vec(), vec![0; 2]].concat())?;
    Ok(stream)
}

fn read_message(stream: &mut File) -> Result<Command> {
    let mut header = [0; HEADER_SIZE];
    stream.read_exact(&mut header)?;
    let header = Header::decode(&header)?;
    stream.read_exact(&mut vec![0; header.payload_size])?;
    Ok(header.command)
}

#[test]
fn runtimes_connect_and_are_asked() -> Result {
    let path = pipe("port");
    let server = PortServer::bind(&path)?;
    let variable = server.variable(Start::Running).to_string_lossy().into_owned();
    assert!(variable.starts_with("corprof-test-") && variable.ends_with("port,connect,nosuspend"), "{variable}");
    let none = server.accept(TIMEOUT);
    assert!(matches!(none, Err(Error::TimedOut { .. })), "{none:?}");

    let mut garbage = connect(&path)?;
    let mut first = thread::spawn({
        let path = path.clone();
        move || runtime(&path, 1).map_err(|error| error.to_string())
    });
    garbage.write_all(&[1; 100])?;
    let accepted = server.accept(PATIENCE)?;
    assert_eq!(accepted.advertise().cookie, Uuid::from_bytes([1; 16]));
    let mut stream = first.join().map_err(|_| "it panicked")??;
    first = thread::spawn(move || {
        let asked = read_message(&mut stream).map_err(|error| error.to_string())?;
        assert_eq!(asked, Command::RESUME_RUNTIME);
        let answer = ipc::encode(Command::OK, &[0; 4]).unwrap_or_default();
        stream.write_all(&answer).map_err(|error| error.to_string())?;
        Ok(stream)
    });
    accepted.client().clone().with_timeout(PATIENCE).resume_runtime()?;
    first.join().map_err(|_| "it panicked")??;
    let next = accepted.client().clone().with_timeout(TIMEOUT).resume_runtime();
    assert!(matches!(next, Err(Error::TimedOut { .. })), "{next:?}");
    Ok(())
}

#[test]
fn one_that_does_not_answer_times_out() -> Result {
    let path = pipe("silent");
    let _server = PortServer::bind(&path)?;
    let start = Instant::now();
    for _ in 0..2 {
        // The second finds the only instance taken, or a client that is gone.
        let answer = Client::at(&path).with_timeout(TIMEOUT).process_info();
        assert!(matches!(answer, Err(Error::TimedOut { .. } | Error::Closed { .. })), "{answer:?}");
    }
    assert!(start.elapsed() < SURELY, "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn one_that_closes_is_told() -> Result {
    let path = pipe("closes");
    let server = PortServer::bind(&path)?;
    // The client's request is not an introduction, so the server refuses it.
    let closing = thread::spawn(move || server.accept(TIMEOUT * 4).is_err());
    let answer = Client::at(&path).with_timeout(PATIENCE).process_info();
    assert!(matches!(answer, Err(Error::Closed { .. })), "{answer:?}");
    assert!(closing.join().map_err(|_| "it panicked")?);
    Ok(())
}

#[test]
fn nobody_is_told() {
    let answer = Client::at(&pipe("nobody")).with_timeout(TIMEOUT).process_info();
    assert!(matches!(answer, Err(Error::Connect { .. })), "{answer:?}");
    // This process has no runtime in it.
    let own = Process::open(std::process::id());
    assert!(matches!(own, Err(Error::NoPort { .. })), "{own:?}");
    let none = Process::open(u32::MAX - 1);
    assert!(matches!(none, Err(Error::NoProcess { .. })), "{none:?}");
}
