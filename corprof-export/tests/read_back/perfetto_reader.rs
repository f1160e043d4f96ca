//! Reads a trace of Perfetto's by the rules of its format: packets of a sequence share a clock that counts from one to
//! the next, tables of names, and defaults. The live tests use it as well.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "that is how a test fails")]

use std::collections::BTreeMap;
use std::path::Path;

use protobuf::reflect::FileDescriptor;
use serde_json::Value;

/// An event of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// `B`, `E` or `i`, as in the other format.
    pub phase: char,
    /// In nanoseconds.
    pub at: u64,
    /// Empty for an end.
    pub name: String,
    /// Numbers by name.
    pub arguments: BTreeMap<String, u64>,
}

/// A thread's part of a trace.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub process: u64,
    pub thread: u64,
    pub name: Option<String>,
    pub events: Vec<Event>,
}

#[derive(Debug, Default)]
pub(crate) struct Read {
    pub process: String,
    /// By the number of the track.
    pub lanes: BTreeMap<u64, Lane>,
    pub packets: usize,
}

/// The state of a sequence.
#[derive(Default)]
struct Sequence {
    now: u64,
    track: u64,
    names: BTreeMap<u64, String>,
    arguments: BTreeMap<u64, String>,
}

/// Numbers of 64 bits are texts in JSON.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value[name].as_array().into_iter().flatten()
}

/// The file as its schema names it.
fn message(content: &[u8]) -> Value {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-export/tests/read_back"));
    let mut parser = protobuf_parse::Parser::new();
    let descriptors = parser.pure().include(folder).input(folder.join("trace.proto")).file_descriptor_set().unwrap();
    let file = FileDescriptor::new_dynamic(descriptors.file[0].clone(), &[]).unwrap();
    let message = file.message_by_package_relative_name("Trace").unwrap().parse_from_bytes(content).unwrap();
    let text = protobuf_json_mapping::print_to_string(&*message).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn read(content: &[u8]) -> Read {
    let mut read = Read::default();
    let mut sequences = BTreeMap::<u64, Sequence>::new();
    for packet in list(&message(content), "packet") {
        read.packets += 1;
        let number_of = number(&packet["trustedPacketSequenceId"]);
        if number(&packet["sequenceFlags"]) & 1 != 0 {
            sequences.insert(number_of, Sequence::default());
        }
        if let Some(process) = packet["trackDescriptor"]["process"].as_object() {
            read.process = process["processName"].as_str().unwrap().to_owned();
            continue;
        }
        let sequence = sequences.get_mut(&number_of).expect("a sequence begins by saying so");
        for clock in list(&packet["clockSnapshot"], "clocks").filter(|clock| clock["isIncremental"] == true) {
            assert_eq!(number(&clock["clockId"]), 64);
            sequence.now = number(&clock["timestamp"]);
        }
        let defaults = &packet["tracePacketDefaults"];
        if defaults.is_object() {
            assert_eq!(number(&defaults["timestampClockId"]), 64, "times of events are of the incremental clock");
            sequence.track = number(&defaults["trackEventDefaults"]["trackUuid"]);
        }
        let names = [("eventNames", &mut sequence.names), ("debugAnnotationNames", &mut sequence.arguments)];
        for (field, known) in names {
            for name in list(&packet["internedData"], field) {
                let before = known.insert(number(&name["iid"]), name["name"].as_str().unwrap_or_default().to_owned());
                assert_eq!(before, None, "a number stands for one name");
            }
        }
        let descriptor = &packet["trackDescriptor"];
        if descriptor.is_object() {
            let lane = read.lanes.entry(number(&descriptor["uuid"])).or_default();
            let thread = &descriptor["thread"];
            (lane.process, lane.thread) = (number(&thread["pid"]), number(&thread["tid"]));
            lane.name = thread["threadName"].as_str().map(str::to_owned).or(lane.name.take());
        }
        let event = &packet["trackEvent"];
        if event.is_object() {
            assert_eq!(number(&packet["sequenceFlags"]), 2, "it needs what was said before");
            sequence.now += number(&packet["timestamp"]);
            let name = |iid: &Value, known: &BTreeMap<u64, String>| known[&number(iid)].clone();
            let annotations = list(event, "debugAnnotations");
            let event = Event {
                phase: [' ', 'B', 'E', 'i'][number(&event["type"]) as usize],
                at: sequence.now,
                name: if event["nameIid"].is_null() { String::new() } else { name(&event["nameIid"], &sequence.names) },
                arguments: annotations
                    .map(|one| (name(&one["nameIid"], &sequence.arguments), number(&one["uintValue"])))
                    .collect(),
            };
            read.lanes.get_mut(&sequence.track).expect("the track is described first").events.push(event);
        }
    }
    read
}
