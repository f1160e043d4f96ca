//! One request, and what its answer means.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::{Agent, Body};

use super::message::{self, Message};
use super::{Engine, Options};

/// How much of an answer is read. Good answers are some bytes; of an error the first line is shown.
const ANSWER: u64 = 64 << 10;
/// How much of an error's text is shown.
const SHOWN: usize = 200;

/// A profile that has not been accepted.
#[derive(Debug)]
pub(super) struct Failure {
    /// What happened, for the user.
    pub(super) text: String,
    /// Whether the same request may succeed later.
    pub(super) is_passing: bool,
    /// The pause that the server asks for.
    pub(super) after: Option<Duration>,
}

impl Failure {
    fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_passing: true, after: None }
    }

    fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_passing: false, after: None }
    }
}

/// A client of one engine. It keeps no connection open between requests.
pub(super) struct Client {
    agent: Agent,
}

impl Client {
    pub(super) fn new() -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // The variables for proxies are the application's: an engine or agent is near.
            .proxy(None)
            .max_idle_connections(0)
            .user_agent(concat!("corprof/", env!("CARGO_PKG_VERSION")));
        Self { agent: config.build().into() }
    }

    /// Sends a message, and waits at most so long for the answer.
    pub(super) fn send(&self, options: &Options, message: &Message, timeout: Duration) -> Result<(), Failure> {
        let request = self.agent.post(options.destination.url()).config().timeout_global(Some(timeout)).build();
        let mut request = request.header("Content-Type", message.content_type);
        if let Some(encoding) = message.encoding {
            request = request.header("Content-Encoding", encoding);
        }
        match options.destination.engine() {
            Engine::Pyroscope => request = request.header("Connect-Protocol-Version", "1"),
            Engine::Parca => request = request.header("X-Grpc-Web", "1"),
            Engine::Otlp => {}
        }
        for (name, value) in &options.headers {
            request = request.header(*name, value);
        }
        let failed = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => Failure::passing(format!("no answer within {:.1} s", timeout.as_secs_f64())),
            ureq::Error::Io(error) => Failure::passing(error.to_string()),
            ureq::Error::HostNotFound => Failure::passing("there is no such host"),
            error => Failure::passing(error.to_string()),
        };
        let mut response = request.send(message.bytes.as_slice()).map_err(failed)?;
        let mut answer = Vec::new();
        let read = response.body_mut().as_reader().take(ANSWER).read_to_end(&mut answer);
        if !response.status().is_success() {
            return Err(refused(&response, &answer));
        }
        read.map_err(|error| Failure::passing(format!("the answer is cut off: {error}")))?;
        accepted(options.destination.engine(), response.headers(), &answer)
    }
}

/// The meaning of a status that is not a success.
fn refused(response: &Response<Body>, answer: &[u8]) -> Failure {
    let status = response.status();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let mut text = format!("HTTP {status}");
    let answer = shown(answer);
    if !answer.is_empty() {
        text += &format!(": {answer}");
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => text += " (give it its header Authorization)",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => text += " (is this the address of the engine?)",
        _ if status.is_redirection() => {
            text += &format!(" (give the address to which it leads: {})", header("Location").unwrap_or("unknown"));
        }
        _ => {}
    }
    let is_passing = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    let after = header("Retry-After").and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    Failure { text, is_passing, after }
}

/// Whether the engine has accepted the profile. A success of HTTP is not enough: other servers have pages for every
/// address.
fn accepted(engine: Engine, headers: &HeaderMap, answer: &[u8]) -> Result<(), Failure> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content = header("Content-Type").to_ascii_lowercase();
    let other = || {
        let text =
            format!("this is not {engine}: it answers HTTP 200 with the content type `{}`", shown(content.as_bytes()));
        Err(Failure::lasting(text))
    };
    match engine {
        Engine::Pyroscope if content.starts_with("application/proto") => Ok(()),
        Engine::Pyroscope => other(),
        Engine::Parca => {
            let trailers = message::trailers(answer).unwrap_or_default();
            let trailer = |name: &str| {
                let in_body = trailers.lines().filter_map(|line| line.split_once(':'));
                let mut found = in_body.filter(|(known, _)| known.trim().eq_ignore_ascii_case(name));
                found.next().map_or_else(|| header(name).to_owned(), |(_, value)| value.trim().to_owned())
            };
            match trailer("grpc-status").as_str() {
                "0" => Ok(()),
                "" => other(),
                code => {
                    let text = format!(
                        "gRPC status {}: {}",
                        shown(code.as_bytes()),
                        shown(trailer("grpc-message").as_bytes())
                    );
                    // Cancelled, deadline exceeded, resource exhausted, aborted, unavailable.
                    let is_passing = ["1", "4", "8", "10", "14"].contains(&code);
                    Err(Failure { text, is_passing, after: None })
                }
            }
        }
        Engine::Otlp if content.starts_with("application/x-protobuf") || answer.is_empty() => otlp(answer),
        Engine::Otlp => other(),
    }
}

#[cfg(feature = "push-otlp")]
fn otlp(answer: &[u8]) -> Result<(), Failure> {
    match super::otlp::refusal(answer) {
        None => Ok(()),
        Some((count, why)) => Err(Failure::lasting(format!("{count} profiles refused: {}", shown(why.as_bytes())))),
    }
}

#[cfg(not(feature = "push-otlp"))]
fn otlp(_: &[u8]) -> Result<(), Failure> {
    Ok(())
}

/// The first line of a text from elsewhere, as it can be shown.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).take(SHOWN).collect()
}
