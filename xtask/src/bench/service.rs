//! The web service for measurements: bench/Service.cs, with clients that keep the processors busy.
//!
//! The clients are threads of this process, which cost next to nothing compared with the service. The cost of a request
//! is the processor time of the service's process, which hardly depends on other work on the machine.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corprof_diagnostics::{Process, Uuid};

use super::bed::{Bed, Built};
use super::samples::quantile;

/// More than there are processors, so that there is always a request to work on.
const CLIENTS: usize = 8;

/// How long a busy runtime may take to attach a profiler.
const PATIENCE: Duration = Duration::from_secs(60);

/// The clock of /proc ticks a hundred times a second on every Linux that runs .NET.
const TICK: Duration = Duration::from_millis(10);

/// A running service. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Service {
    child: Child,
    /// Kept open, because the service must be able to write to it.
    _stdout: BufReader<ChildStdout>,
    /// Its standard error: a file, which needs no reader.
    stderr: tempfile::NamedTempFile,
    port: u16,
}

/// The results of answered requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// Milliseconds of processor time per request.
    pub(super) cost: f64,
    /// Requests per second.
    pub(super) rate: f64,
    /// The milliseconds within which 99 of 100 requests were answered.
    pub(super) slowest: f64,
}

impl Service {
    /// Starts the service under a profiler, and requests `path` until it answers.
    ///
    /// # Errors
    /// If it does not answer.
    pub(super) fn start(
        bed: &Bed,
        dll: &Path,
        profiler: Option<&Built>,
        settings: &[(&str, String)],
        path: &str,
    ) -> Result<Self> {
        let mut command = bed.command(dll, profiler)?;
        command.envs(settings.iter().map(|(name, value)| (name, value)));
        let stderr =
            tempfile::NamedTempFile::new().context("cannot make a file for the standard error of the service")?;
        command.stdout(Stdio::piped()).stderr(stderr.reopen().context("cannot open the file for its standard error")?);
        let mut child = command.spawn().context("cannot start the service")?;
        let mut stdout = BufReader::new(child.stdout.take().context("the service has no output")?);
        let mut line = String::new();
        stdout.read_line(&mut line).context("cannot read the output of the service")?;
        let port = line.strip_prefix("listening ").and_then(|port| port.trim().parse().ok());
        let Some(port) = port else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the service does not listen, it says {line:?}\n{}", fs::read_to_string(&stderr).unwrap_or_default());
        };
        let service = Self { child, _stdout: stdout, stderr, port };
        Client::new(port)?.get(path)?;
        Ok(service)
    }

    /// Attaches a profiler, which stays until the service ends.
    ///
    /// # Errors
    /// If the runtime refuses it.
    pub(super) fn attach(&self, profiler: &Built, settings: &[(&str, String)]) -> Result<()> {
        let clsid = Uuid::parse_str(&profiler.clsid).context("the CLSID is no UUID")?;
        let data: String = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let client = Process::open(self.child.id())?.client();
        client
            .attach_profiler(clsid, &profiler.library, data.as_bytes(), PATIENCE)
            .context("cannot attach the profiler")
    }

    /// Makes clients request `path` until they have had `requests` answers.
    ///
    /// # Errors
    /// If a request fails.
    pub(super) fn load(&self, path: &str, requests: u32) -> Result<Answered> {
        let next = AtomicU32::new(0);
        let before = self.processor_time()?;
        let start = Instant::now();
        let times = thread::scope(|scope| {
            let ask = || -> Result<Vec<f64>> {
                let mut client = Client::new(self.port)?;
                let mut times = Vec::new();
                while next.fetch_add(1, Relaxed) < requests {
                    let start = Instant::now();
                    client.get(path)?;
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                Ok(times)
            };
            let clients = [(); CLIENTS].map(|()| scope.spawn(ask));
            let mut times = Vec::new();
            for client in clients {
                times.extend(client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
            }
            anyhow::Ok(times)
        })?;
        let wall = start.elapsed();
        let used = self.processor_time()?.saturating_sub(before);
        Ok(Answered {
            cost: used.as_secs_f64() * 1e3 / f64::from(requests),
            rate: f64::from(requests) / wall.as_secs_f64(),
            slowest: quantile(times, 0.99),
        })
    }

    /// The processor time of all its threads, including ended ones.
    pub(super) fn processor_time(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).context("the service has ended")?;
        let ticks = ticks(&stat).with_context(|| format!("no processor time in {stat}"))?;
        Ok(TICK * ticks)
    }

    /// The standard error of the service and its profiler so far.
    pub(super) fn said(&self) -> Result<String> {
        fs::read_to_string(self.stderr.path()).context("cannot read the standard error of the service")
    }

    /// Ends the service, and returns its standard error and that of its profiler.
    ///
    /// # Errors
    /// If it ends with an error.
    pub(super) fn end(mut self) -> Result<String> {
        Client::new(self.port)?.get("/end")?;
        let status = self.child.wait().context("cannot wait for the service")?;
        let said = self.said()?;
        ensure!(status.success(), "the service ended by {status}: {said}");
        Ok(said)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // After `end` neither has a process any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time, the 14th and 15th field. The second field is the program's name in brackets, with any
/// characters.
fn ticks(stat: &str) -> Option<u32> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u32>().ok();
    Some(field(14)? + field(15)?)
}

/// A connection that stays open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect to the service")?;
        stream.set_nodelay(true).context("cannot set up the connection")?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request, and reads the answer to its end.
    fn get(&mut self, path: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).context("cannot ask the service")?;
        let mut length = 0;
        let mut line = String::new();
        for number in 0.. {
            line.clear();
            ensure!(self.0.read_line(&mut line).context("the service does not answer")? > 0, "the service hung up");
            let header = line.trim_end();
            ensure!(number > 0 || header.starts_with("HTTP/1.1 200"), "GET {path}: {header}");
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().with_context(|| format!("no length: {header}"))?;
            } else if header.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).context("the answer is cut off")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_does_not_shift_its_times() {
        let stat = "7 (.NET (x) y) S 1 7 7 0 -1 4194560 1 2 3 4 250 17 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(267));
        assert_eq!(ticks("7 (a) S"), None);
    }
}
