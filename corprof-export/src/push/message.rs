//! The messages that Pyroscope and Parca take, and their answers: profiles in pprof format, with labels.
//!
//! The declarations are written from `push/v1/push.proto` of grafana/pyroscope and
//! `profilestore/v1alpha1/profilestore.proto` of parca-dev/parca.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use super::random::uuid;
use super::{Engine, Options};
use crate::pprof::{self, Samples};
use crate::{Mode, Profile, Unit};

/// What is sent by one request.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) content_type: &'static str,
    pub(super) encoding: Option<&'static str>,
    pub(super) bytes: Vec<u8>,
}

/// Encodes a profile for the engine.
pub(super) fn encode(profile: &Profile, options: &Options, lost: u64) -> io::Result<Message> {
    let series = || options.series(metric(profile));
    match options.destination.engine() {
        Engine::Pyroscope => {
            // Pyroscope makes a series of each set of labels, so there are none of threads.
            let raw_profile = gzip(|writer| pprof::write_by(Samples::Together, profile, writer))?;
            let labels = series().into_iter().map(|(name, value)| Label { name, value }).collect();
            let samples = vec![PyroscopeSample { raw_profile, id: uuid() }];
            let request = PushRequest { series: vec![PyroscopeSeries { labels, samples }] };
            Ok(Message { content_type: "application/proto", encoding: None, bytes: request.encode_to_vec() })
        }
        Engine::Parca => {
            let raw_profile = gzip(|writer| pprof::write_by(Samples::ByThread, profile, writer))?;
            let labels = series().into_iter().map(|(name, value)| Label { name, value }).collect();
            let samples = vec![ParcaSample { raw_profile }];
            let series = ParcaSeries { labels: Some(LabelSet { labels }), samples };
            // Frames have names and no addresses, which is what normalized means.
            let request = WriteRawRequest { series: vec![series], normalized: true };
            Ok(Message { content_type: GRPC_WEB, encoding: None, bytes: framed(&request.encode_to_vec()) })
        }
        #[cfg(feature = "push-otlp")]
        Engine::Otlp => {
            let bytes = super::otlp::encode(profile, options, lost);
            let bytes = gzip(|writer| io::Write::write_all(writer, &bytes))?;
            Ok(Message { content_type: super::otlp::CONTENT_TYPE, encoding: Some("gzip"), bytes })
        }
        #[cfg(not(feature = "push-otlp"))]
        Engine::Otlp => {
            let _ = lost;
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

/// The content type of gRPC-Web.
pub(super) const GRPC_WEB: &str = "application/grpc-web+proto";

/// The name of a series: the names that other profilers use.
fn metric(profile: &Profile) -> &'static str {
    match (profile.unit, profile.about.mode) {
        (Unit::Bytes, _) => "memory",
        (_, Some(Mode::Cpu)) => "process_cpu",
        (_, Some(Mode::Wall)) => "wall",
        (_, Some(Mode::Calls)) => "calls",
        (_, None) => "samples",
    }
}

fn gzip(content: impl FnOnce(&mut GzEncoder<Vec<u8>>) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    content(&mut writer)?;
    writer.finish()
}

/// A message of gRPC-Web: a byte of flags and the length precede it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = vec![0];
    framed.extend(length.to_be_bytes());
    framed.extend(message);
    framed
}

/// The trailers in an answer of gRPC-Web: lines in the part whose flags have the highest bit. None if it is no such
/// answer.
pub(super) fn trailers(mut answer: &[u8]) -> Option<String> {
    while let Some((head, rest)) = answer.split_first_chunk::<5>() {
        let [flags, length @ ..] = *head;
        let content = rest.get(..u32::from_be_bytes(length) as usize)?;
        if flags & 0x80 != 0 {
            return Some(String::from_utf8_lossy(content).into_owned());
        }
        answer = rest.get(content.len()..)?;
    }
    None
}

#[derive(Clone, PartialEq, prost::Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<PyroscopeSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PyroscopeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<PyroscopeSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PyroscopeSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// Of both engines.
#[derive(Clone, PartialEq, prost::Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WriteRawRequest {
    #[prost(message, repeated, tag = "2")]
    series: Vec<ParcaSeries>,
    #[prost(bool, tag = "3")]
    normalized: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ParcaSeries {
    #[prost(message, optional, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<ParcaSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ParcaSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_found_behind_the_message() {
        let mut answer = framed(b"message");
        assert_eq!(trailers(&answer), None);
        answer.extend([0x80, 0, 0, 0, 16]);
        answer.extend(b"grpc-status: 0\r\n");
        assert_eq!(trailers(&answer).as_deref(), Some("grpc-status: 0\r\n"));
        for length in 0..answer.len() {
            assert_eq!(trailers(&answer[..length]), None);
        }
        assert_eq!(trailers(&[0, 0xff, 0xff, 0xff, 0xff, 1]), None);
        assert_eq!(trailers(b"<!doctype html><p>no engine</p>"), None);
    }
}
