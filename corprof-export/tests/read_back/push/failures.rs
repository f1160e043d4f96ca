//! Servers that are down, slow, broken or something else; nothing waits for them, and losses are counted.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use corprof_export::push::{Counts, Limits, Options, Pusher};
use corprof_export::{Frame, Profile, Unit};

use super::server::{Reply, Server};
use super::{LONG, options, pusher, quick};

/// A profile with this number of samples.
fn profile(samples: u64) -> Profile {
    let mut profile = Profile::summed("shop", Unit::Samples);
    let frame = profile.frame(Frame::managed("Shop.Main()"));
    let stack = profile.stack_root_first([frame]);
    let thread = profile.thread(1, "main");
    (0..samples).for_each(|_| profile.sample(thread, Duration::ZERO, stack, 1));
    profile
}

/// Waits until the counts are so.
fn until(pusher: &Pusher, is_so: impl Fn(&Counts) -> bool) -> Counts {
    let start = Instant::now();
    loop {
        let counts = pusher.counts();
        if is_so(&counts) {
            return counts;
        }
        assert!(start.elapsed() < LONG, "{counts:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An address at which nothing listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("pyroscope+http://{}", listener.local_addr().unwrap())
}

#[test]
fn what_fails_for_a_time_is_sent_again() {
    let passing: [fn(usize) -> Reply; 8] = [
        |_| Reply::status("500 Internal Server Error"),
        |_| Reply::status("503 Service Unavailable"),
        |_| Reply::status("408 Request Timeout"),
        |_| Reply::Http("429 Too Many Requests", "Retry-After: 0\r\n", b"slow down".to_vec()),
        |_| Reply::Close,
        |_| Reply::Bytes(b"\x16\x03\x01garbage\0\r\n\r\n".to_vec()),
        |_| {
            Reply::Bytes(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nContent-Length: 100\r\n\r\nhalf".to_vec(),
            )
        },
        |_| Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()),
    ];
    for (kind, bad) in passing.into_iter().enumerate() {
        let server = Server::start(move |number| if number < 2 { bad(number) } else { Reply::Good });
        let pusher = pusher(&server, "pyroscope");
        pusher.push(profile(3));
        pusher.push(profile(4));
        let counts = until(&pusher, |counts| counts.delivered == 2);
        assert_eq!((counts.lost, counts.waiting), (0, 0), "{kind}: {counts:?}");
        assert!(counts.error.is_some(), "{kind}");
        assert_eq!(pusher.finish(LONG).delivered, 2);
    }
}

#[test]
fn what_will_not_be_accepted_is_lost_at_once() {
    let page = b"<!doctype html>\n<p>Welcome</p>".to_vec();
    let refused = b"\x80\0\0\0\x2agrpc-status: 3\r\ngrpc-message: no labels\r\n\r\n".to_vec();
    let rejected = vec![0x0a, 0x0b, 0x08, 0x01, 0x12, 0x07, b't', b'o', b'o', b' ', b'o', b'l', b'd'];
    let cases = [
        (
            "pyroscope",
            Reply::Http("400 Bad Request", "", b"no such label\x1b[31m".to_vec()),
            "400 Bad Request: no such label\u{fffd}",
        ),
        ("pyroscope", Reply::status("401 Unauthorized"), "its header Authorization"),
        ("otlp", Reply::status("404 Not Found"), "is this the address of the engine?"),
        (
            "parca",
            Reply::Http("301 Moved Permanently", "Location: http://elsewhere/\r\n", Vec::new()),
            "http://elsewhere/",
        ),
        ("pyroscope", Reply::Http("200 OK", "Content-Type: text/html\r\n", page.clone()), "this is not Pyroscope"),
        ("parca", Reply::Http("200 OK", "Content-Type: text/html\r\n", page.clone()), "this is not Parca"),
        ("otlp", Reply::Http("200 OK", "Content-Type: text/html\r\n", page), "this is not the OpenTelemetry Collector"),
        ("parca", Reply::Http("200 OK", "", refused), "gRPC status 3: no labels"),
        ("parca", Reply::Http("200 OK", "grpc-status: 16\r\n", Vec::new()), "gRPC status 16"),
        (
            "otlp",
            Reply::Http("200 OK", "Content-Type: application/x-protobuf\r\n", rejected),
            "1 profiles refused: too old",
        ),
    ];
    for (engine, reply, said) in cases {
        let server = Server::start(move |number| if number == 0 { reply.clone() } else { Reply::Good });
        let pusher = pusher(&server, engine);
        pusher.push(profile(3));
        let counts = until(&pusher, |counts| counts.lost == 1);
        assert_eq!(counts.lost_samples, 3);
        let error = counts.error.clone().unwrap();
        assert!(error.contains(said), "{said}: {error}");
        assert_eq!(server.requests().len(), 1, "{said}: not sent again");
        // The next one says what was lost before it.
        pusher.push(profile(5));
        let counts = pusher.finish(LONG);
        assert_eq!((counts.delivered, counts.lost, counts.lost_samples), (1, 1, 3), "{said}");
        assert!(counts.to_string().contains("1 profile delivered, 1 lost ("), "{counts}");
    }
}

#[test]
fn a_server_that_is_down_costs_the_application_nothing() {
    let mut limits = quick();
    limits.waiting = 4;
    let pusher = Pusher::start(Options::new(nowhere().parse().unwrap(), "shop").limits(limits)).unwrap();
    // More than may wait: the oldest are lost. At most one is being sent.
    (0..20).for_each(|_| pusher.push(profile(2)));
    let counts = pusher.counts();
    assert!((15..=16).contains(&counts.lost) && (4..=5).contains(&counts.waiting), "{counts:?}");
    assert_eq!(counts.lost_samples, counts.lost * 2);
    // At the end it does not wait for a server that is not there.
    let counts = pusher.finish(LONG);
    assert_eq!((counts.delivered, counts.lost, counts.lost_samples, counts.waiting), (0, 20, 40, 0));
    assert!(counts.error.unwrap().to_lowercase().contains("refused"));
}

#[test]
fn the_bytes_that_wait_have_a_limit() {
    let mut limits = quick();
    limits.bytes = 1;
    let pusher = Pusher::start(Options::new(nowhere().parse().unwrap(), "shop").limits(limits)).unwrap();
    (0..3).for_each(|_| pusher.push(profile(1)));
    assert_eq!(pusher.finish(LONG).lost, 3);
}

#[test]
fn a_server_that_never_answers_holds_nobody_up() {
    let server = Server::start(|_| Reply::Never);
    let pusher = Pusher::start(options(&server, "parca").limits(quick())).unwrap();
    pusher.push(profile(2));
    server.wait_for(1);
    // The request stays open, and these return all the same.
    (0..10).for_each(|_| pusher.push(profile(3)));
    assert_eq!(pusher.counts().waiting, 11);
    let start = Instant::now();
    let counts = pusher.finish(Duration::from_millis(300));
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    assert_eq!((counts.delivered, counts.lost, counts.lost_samples), (0, 11, 32));
    assert!(counts.error.unwrap().contains("not sent within 0.3 s"));
}

#[test]
fn a_request_has_a_time_limit() {
    let server = Server::start(|number| if number == 0 { Reply::Never } else { Reply::Good });
    let mut limits = quick();
    limits.request = Duration::from_millis(500);
    let pusher = Pusher::start(options(&server, "otlp").limits(limits)).unwrap();
    pusher.push(profile(2));
    let counts = until(&pusher, |counts| counts.delivered == 1);
    assert!(counts.error.unwrap().contains("no answer within 0.5 s"));
}

#[test]
fn retries_end() {
    let server = Server::start(|_| Reply::Http("503 Service Unavailable", "Retry-After: 100000\r\n", Vec::new()));
    let mut limits = quick();
    limits.retry_for = Duration::from_millis(200);
    let pusher = Pusher::start(options(&server, "otlp").limits(limits)).unwrap();
    pusher.push(profile(2));
    let counts = until(&pusher, |counts| counts.lost == 1);
    assert!(counts.error.unwrap().contains("503"));
    assert!(server.requests().len() > 1);
}

#[test]
fn dropping_it_ends_it() {
    let server = Server::start(|_| Reply::status("503 Service Unavailable"));
    let pusher = pusher(&server, "otlp");
    pusher.push(profile(2));
    server.wait_for(1);
    drop(pusher);
}

#[test]
fn what_is_empty_is_not_sent() {
    let server = Server::start(|_| Reply::Good);
    let pusher = pusher(&server, "otlp");
    pusher.push(profile(0));
    assert_eq!(pusher.counts(), Counts::default());
    assert_eq!(pusher.finish(LONG), Counts::default());
    assert_eq!(Limits::default().waiting, 64);
    assert!(server.requests().is_empty());
}
