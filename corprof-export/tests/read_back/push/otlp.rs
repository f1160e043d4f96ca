//! OTLP messages, read by Python from the declarations of the OpenTelemetry project.
//!
//! `cargo xtask test` fetches these from PyPI, and names their folders in CORPROF_OTLP. Without them the tests are
//! skipped, with a message.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use corprof_export::push::Pusher;
use corprof_export::{Profile, Unit};

use super::server::{Reply, Server};
use super::{LONG, options, quick};
use crate::shapes;

/// A request as Python reads it. None without the declarations.
pub(crate) fn python(request: &[u8]) -> Option<serde_json::Value> {
    let Some(modules) = env::var_os("CORPROF_OTLP") else {
        eprintln!("skipped: CORPROF_OTLP names no folders with opentelemetry-proto and protobuf from PyPI");
        return None;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_back/push/otlp.py");
    let mut command = Command::new("python3");
    let command = command.arg(script).env("PYTHONPATH", modules).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(request).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The requests for these profiles, unzipped.
fn sent(profiles: Vec<Profile>) -> Vec<Vec<u8>> {
    let server = Server::start(|_| Reply::Good);
    let options = options(&server, "otlp").limits(quick()).runtime(".NET", "10.0.14");
    let pusher = Pusher::start(options.label("region=eu-west".parse().unwrap())).unwrap();
    let count = profiles.len() as u64;
    profiles.into_iter().for_each(|profile| pusher.push(profile));
    assert_eq!(pusher.finish(LONG).delivered, count);
    let unzipped = server.requests().into_iter().map(|request| {
        assert_eq!(request.path, "/v1development/profiles");
        let kind = (request.header("Content-Type"), request.header("Content-Encoding"));
        assert_eq!(kind, ("application/x-protobuf", "gzip"));
        shapes::unzipped(&request.body)
    });
    unzipped.collect()
}

#[test]
fn a_collector_gets_stacks_threads_and_the_process() {
    let sent = sent(vec![shapes::told()]);
    let Some(read) = python(&sent[0]) else { return };
    let resource = &read["resource"];
    assert_eq!((&resource["service.name"], &resource["region"]), (&"shop".into(), &"eu-west".into()));
    assert_eq!(resource["process.pid"], std::process::id());
    assert_eq!(resource["process.runtime.name"], ".NET");
    assert_eq!(resource["process.runtime.version"], "10.0.14");
    assert_eq!(resource["process.executable.name"], "shop");
    assert_eq!(read["scope"], "corprof-export");
    let profiles = read["profiles"].as_array().unwrap();
    let types: Vec<_> = profiles.iter().map(|profile| profile["type"].clone()).collect();
    assert_eq!(types, [serde_json::json!(["samples", "count"]), serde_json::json!(["cpu", "nanoseconds"])]);
    for (profile, values) in profiles.iter().zip([[1, 1, 1, 1], [1, 3, 2, 4]]) {
        assert_eq!(profile["period"], serde_json::json!(["cpu", "nanoseconds", 10_000_000]));
        assert_eq!(profile["times"], serde_json::json!([1_700_000_000_000_000_000_u64, 5_230_000_000_u64]));
        let samples = profile["samples"].as_array().unwrap();
        let found: Vec<_> = samples.iter().map(|sample| sample["value"].as_u64().unwrap()).collect();
        assert_eq!(found, values);
        let names = |index: usize| {
            let stack = samples[index]["stack"].as_array().unwrap();
            stack.iter().map(|frame| frame["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(2), ["read", "Shop.Work<T>(int32, \"x\")", "Shop.Main()"]);
        let work = &samples[1]["stack"][0];
        assert_eq!(
            (&work["file"], &work["line"], &work["module"]),
            (&"Work.cs".into(), &12.into(), &"Shop.dll".into())
        );
        assert_eq!(work["profile.frame.type"], "dotnet");
        assert_eq!(samples[2]["stack"][0]["profile.frame.type"], "native");
        assert_eq!((&samples[1]["thread.name"], &samples[1]["thread.id"]), (&"main".into(), &4711.into()));
        assert_eq!(samples[3]["thread.name"], "thread 4712");
    }
}

#[test]
fn odd_and_deep_profiles_and_other_units_are_read() {
    let bytes = shapes::fill(Profile::summed("shop", Unit::Bytes));
    let samples = shapes::shop(Unit::Samples).with_interval(std::time::Duration::from_millis(10));
    let sent = sent(vec![shapes::odd(), shapes::deep(), bytes, samples]);
    let Some(odd) = python(&sent[0]) else { return };
    assert_eq!(odd["profiles"][0]["samples"].as_array().unwrap().len(), 31);
    let deep = python(&sent[1]).unwrap();
    assert_eq!(deep["profiles"][0]["samples"][9]["stack"].as_array().unwrap().len(), 10_000);
    let types = |read: &serde_json::Value| {
        let profiles = read["profiles"].as_array().unwrap().iter();
        profiles.map(|profile| profile["type"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(types(&deep), ["samples"]);
    assert_eq!(types(&python(&sent[2]).unwrap()), ["objects", "space"]);
    let read = python(&sent[3]).unwrap();
    assert_eq!(types(&read), ["samples", "time"]);
    assert_eq!(read["profiles"][1]["samples"][1]["value"], 30_000_000);
}

#[test]
fn a_loss_is_in_the_next_message() {
    let server = Server::start(|number| if number == 0 { Reply::status("400 Bad Request") } else { Reply::Good });
    let pusher = super::pusher(&server, "otlp");
    pusher.push(shapes::told());
    while pusher.counts().lost == 0 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    pusher.push(shapes::told());
    assert_eq!(pusher.finish(LONG).delivered, 1);
    let Some(read) = python(&shapes::unzipped(&server.requests()[1].body)) else { return };
    assert_eq!(read["resource"]["corprof.profiles.lost"], 1);
}
