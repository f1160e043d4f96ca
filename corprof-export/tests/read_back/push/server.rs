//! A server of the tests' own, which answers as it is told, well or badly. The live tests use this file, too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// A header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// What is answered.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "the live tests have no use for some of it")]
pub(crate) enum Reply {
    /// The answer of an engine that has accepted the profile.
    Good,
    /// A status, further headers (each with its end of line) and a body.
    Http(&'static str, &'static str, Vec<u8>),
    /// These bytes and the end.
    Bytes(Vec<u8>),
    /// Nothing; the connection stays open.
    Never,
    /// The end, before the request is read.
    Close,
}

impl Reply {
    /// A status alone.
    #[allow(dead_code, reason = "the live tests have no use for it")]
    pub(crate) fn status(status: &'static str) -> Self {
        Self::Http(status, "", Vec::new())
    }
}

/// Requests in the order in which they came.
#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<Request>>,
    changed: Condvar,
}

/// Listens on a port of this machine until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Seen>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    /// Answers the requests by their numbers, from 0.
    pub(crate) fn start(reply: impl Fn(usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&seen);
        let over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut kept = Vec::new();
            let mut number = 0;
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let reply = reply(number);
                number += 1;
                if let Some(stream) = serve(stream, reply, &of_thread) {
                    kept.push(stream);
                }
            }
        });
        Self { address, seen, is_over }
    }

    /// A URL for the option `--push`.
    pub(crate) fn url(&self, engine: &str) -> String {
        format!("{engine}+http://{}", self.address)
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    #[allow(dead_code, reason = "the live tests have no use for it")]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Request> {
        let end = Instant::now() + Duration::from_secs(300);
        let mut requests = self.seen.requests.lock().unwrap();
        while requests.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} requests", requests.len());
            requests = self.seen.changed.wait_timeout(requests, left).unwrap().0;
        }
        requests.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads a request and answers it. Returns the connection if it is to stay open.
fn serve(mut stream: TcpStream, reply: Reply, seen: &Seen) -> Option<TcpStream> {
    if matches!(reply, Reply::Close) {
        return None;
    }
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let request = read(&mut stream)?;
    let path = request.path.clone();
    // Before the answer: whoever has received it looks for the request.
    seen.requests.lock().unwrap().push(request);
    seen.changed.notify_all();
    let bytes = match reply {
        Reply::Never => return Some(stream),
        Reply::Close => return None,
        Reply::Bytes(bytes) => bytes,
        Reply::Good => {
            let (kind, body): (_, &[u8]) = if path.ends_with("/Push") {
                ("application/proto", b"")
            } else if path.ends_with("/WriteRaw") {
                ("application/grpc-web+proto", b"\0\0\0\0\0\x80\0\0\0\x0fgrpc-status:0\r\n")
            } else {
                ("application/x-protobuf", b"")
            };
            http("200 OK", &format!("Content-Type: {kind}\r\n"), body)
        }
        Reply::Http(status, headers, body) => http(status, headers, &body),
    };
    let _ = stream.write_all(&bytes);
    None
}

fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let mut fill = |bytes: &mut Vec<u8>| {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend(&buffer[..count]);
        Some(())
    };
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        fill(&mut bytes)?;
    };
    let text = String::from_utf8(bytes[..head].to_vec()).ok()?;
    let mut lines = text.lines();
    let path = lines.next()?.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    let mut request = Request { path, headers, body: Vec::new() };
    let length: usize = request.header("Content-Length").parse().ok()?;
    while bytes.len() < head + 4 + length {
        fill(&mut bytes)?;
    }
    request.body = bytes.split_off(head + 4);
    Some(request)
}
