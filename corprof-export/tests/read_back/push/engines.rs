//! The messages for Pyroscope and Parca, read by rust-protobuf from a schema of ours; the profiles in them by `go tool
//! pprof`.

use std::collections::BTreeMap;
use std::path::Path;

use corprof_export::push::Pusher;
use protobuf::reflect::FileDescriptor;

use super::server::{Reply, Request, Server};
use super::{LONG, options, quick};
use crate::{shapes, viewers};

/// A message as JSON, after a check that the schema has all of it.
fn json(name: &str, bytes: &[u8]) -> serde_json::Value {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_back/push"));
    let mut parser = protobuf_parse::Parser::new();
    let descriptors = parser.pure().include(folder).input(folder.join("engines.proto")).file_descriptor_set().unwrap();
    let file = FileDescriptor::new_dynamic(descriptors.file[0].clone(), &[]).unwrap();
    let message = file.message_by_package_relative_name(name).unwrap().parse_from_bytes(bytes).unwrap();
    assert_eq!(message.special_fields_dyn().unknown_fields().iter().count(), 0);
    serde_json::from_str(&protobuf_json_mapping::print_to_string(&*message).unwrap()).unwrap()
}

fn labels(labels: &serde_json::Value) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    labels.as_array().unwrap().iter().map(|label| (text(&label["name"]), text(&label["value"]))).collect()
}

/// The pprof file in a message, of which the schema says only that it is bytes.
fn raw_profile<'a>(message: &'a [u8], json: &serde_json::Value) -> &'a [u8] {
    let length = json.as_str().unwrap().trim_end_matches('=').len() * 3 / 4;
    let start = message.windows(3).position(|three| three == [0x1f, 0x8b, 8]).unwrap();
    &message[start..start + length]
}

/// Sends the shop, and answers the request.
fn sent(engine: &str) -> Request {
    let server = Server::start(|_| Reply::Good);
    let options = options(&server, engine).limits(quick()).runtime(".NET", "10.0.14");
    let options = options.label("region=eu-west".parse().unwrap());
    let options = options.authorization("Bearer s3cret").unwrap().tenant("team").unwrap();
    let pusher = Pusher::start(options).unwrap();
    pusher.push(shapes::told());
    let counts = pusher.finish(LONG);
    assert_eq!((counts.delivered, counts.lost, counts.error), (1, 0, None));
    let request = server.requests().remove(0);
    assert_eq!((request.header("Authorization"), request.header("X-Scope-OrgID")), ("Bearer s3cret", "team"));
    assert!(request.header("User-Agent").starts_with("corprof/"));
    request
}

/// The labels that both have.
fn check(labels: &BTreeMap<String, String>) {
    let label = |name: &str| labels[name].as_str();
    assert_eq!((label("__name__"), label("service_name"), label("region")), ("process_cpu", "shop", "eu-west"));
    assert_eq!(label("pid"), std::process::id().to_string());
    assert_eq!(label("runtime"), ".NET 10.0.14");
    assert!(!cfg!(target_os = "linux") || !label("host").is_empty());
}

fn pprof(bytes: &[u8], report: &str) -> Option<String> {
    let file = tempfile::Builder::new().suffix(".pb.gz").tempfile().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    viewers::pprof_of(file.path(), report)
}

#[test]
fn pyroscope_gets_pprof_and_labels() {
    let request = sent("pyroscope");
    assert_eq!(request.path, "/push.v1.PusherService/Push");
    assert_eq!(request.header("Content-Type"), "application/proto");
    let message = json("PushRequest", &request.body);
    check(&labels(&message["series"][0]["labels"]));
    let sample = &message["series"][0]["samples"][0];
    assert_eq!(sample["ID"].as_str().unwrap().len(), 36);
    let profile = raw_profile(&request.body, &sample["rawProfile"]);
    let Some(raw) = pprof(profile, "-raw") else { return };
    for expected in ["PeriodType: cpu nanoseconds", "samples/count cpu/nanoseconds[dflt]", "Duration: 5.23"] {
        assert!(raw.contains(expected), "{expected}: {raw}");
    }
    // The stack of two threads is one.
    assert!(!raw.contains("thread:[") && !raw.contains("thread_id"), "{raw}");
    let top = pprof(profile, "-top").unwrap();
    assert!(top.contains("Total samples = 10ns") && top.contains("Shop.Work<T>(int32, \"x\")"), "{top}");
}

#[test]
fn parca_gets_pprof_and_labels() {
    let request = sent("parca");
    assert_eq!(request.path, "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw");
    assert_eq!(request.header("Content-Type"), "application/grpc-web+proto");
    let (head, body) = request.body.split_at(5);
    assert_eq!((head[0], u32::from_be_bytes(head[1..].try_into().unwrap()) as usize), (0, body.len()));
    let message = json("WriteRawRequest", body);
    assert_eq!(message["normalized"], true);
    check(&labels(&message["series"][0]["labels"]["labels"]));
    let profile = raw_profile(body, &message["series"][0]["samples"][0]["rawProfile"]);
    let Some(raw) = pprof(profile, "-raw") else { return };
    assert!(raw.contains("thread:[main]") && raw.contains("thread_id:[4712]"), "{raw}");
    assert!(pprof(profile, "-top").unwrap().contains("Total samples = 10ns"));
}
