//! OTLP profiles, version `v1development`: the message for an OpenTelemetry Collector, and its answer.
//!
//! All tables are in a dictionary that the profiles of a message share. The first entry of each stands for "none".

use std::hash::Hash;
use std::time::SystemTime;

use indexmap::{IndexMap, IndexSet};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::{Options, random::random};
use crate::about::Mode;
use crate::names::Names;
use crate::profile::{Thread, nanoseconds};
use crate::{FrameId, FrameKind, Profile, StackId, Unit};

pub(super) const CONTENT_TYPE: &str = "application/x-protobuf";

/// The bytes of a request.
pub(super) fn encode(profile: &Profile, options: &Options, lost: u64) -> Vec<u8> {
    let mut tables = Tables::new(profile);
    let rows = samples(&mut tables);
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scoped = otlp::ScopeProfiles {
        scope: Some(scope),
        profiles: profiles(&mut tables, &rows),
        ..otlp::ScopeProfiles::default()
    };
    let resource = otlp::ResourceProfiles {
        resource: Some(Resource { attributes: attributes(profile, options, lost), ..Resource::default() }),
        scope_profiles: vec![scoped],
        ..otlp::ResourceProfiles::default()
    };
    let request =
        ExportProfilesServiceRequest { resource_profiles: vec![resource], dictionary: Some(tables.into_dictionary()) };
    request.encode_to_vec()
}

/// How many profiles of a message the answer refuses, and why. None if it refuses none.
pub(super) fn refusal(answer: &[u8]) -> Option<(i64, String)> {
    let answer = ExportProfilesServiceResponse::decode(answer).ok()?;
    let partial = answer.partial_success.filter(|partial| partial.rejected_profiles > 0)?;
    Some((partial.rejected_profiles, partial.error_message))
}

/// The sum of a stack on a thread.
struct Row {
    stack: i32,
    attributes: Vec<i32>,
    count: u64,
    weight: u64,
}

/// The samples, with threads as attributes. No two have the same stack and attributes.
fn samples(tables: &mut Tables<'_>) -> Vec<Row> {
    let profile = tables.profile;
    let mut rows: IndexMap<(StackId, Vec<i32>), (u64, u64), FxBuildHasher> = IndexMap::default();
    for thread in &profile.threads {
        let attributes = tables.attributes_of(thread);
        for sample in &thread.samples {
            let (count, weight) = rows.entry((sample.stack, attributes.clone())).or_default();
            *count = count.saturating_add(profile.count_of(sample));
            *weight = weight.saturating_add(sample.weight);
        }
    }
    let row = |((stack, attributes), (count, weight))| Row { stack: tables.stack(stack), attributes, count, weight };
    rows.into_iter().map(row).collect()
}

/// The value of a row, if samples have this interval.
type RowValue = fn(&Row, u64) -> u64;

/// A profile for each kind of value: how many samples, and their weight.
fn profiles(tables: &mut Tables<'_>, rows: &[Row]) -> Vec<otlp::Profile> {
    let profile = tables.profile;
    let time = profile.about.mode.map_or("time", Mode::word);
    let interval = profile.interval.map(nanoseconds);
    let since_epoch = profile.started.and_then(|started| started.duration_since(SystemTime::UNIX_EPOCH).ok());
    let count: RowValue = |row, _| row.count;
    let weight: RowValue = |row, _| row.weight;
    let times: RowValue = |row, interval| row.weight.saturating_mul(interval);
    let kinds = match (profile.unit, interval) {
        (Unit::Samples, None) => vec![("samples", "count", weight)],
        (Unit::Samples, Some(_)) => vec![("samples", "count", weight), (time, "nanoseconds", times)],
        (Unit::Nanoseconds, _) => vec![("samples", "count", count), (time, "nanoseconds", weight)],
        (Unit::Bytes, _) => vec![("objects", "count", count), ("space", "bytes", weight)],
    };
    let mut made = Vec::new();
    for (name, unit, value) in kinds {
        let sample_type = tables.value_type(name, unit);
        let period_type = interval.map(|_| tables.value_type(time, "nanoseconds"));
        let samples = rows.iter().map(|row| otlp::Sample {
            stack_index: row.stack,
            attribute_indices: row.attributes.clone(),
            values: vec![signed(value(row, interval.unwrap_or(0)))],
            ..otlp::Sample::default()
        });
        made.push(otlp::Profile {
            sample_type: Some(sample_type),
            samples: samples.collect(),
            time_unix_nano: since_epoch.map_or(0, nanoseconds),
            duration_nano: nanoseconds(profile.duration()),
            period_type,
            period: interval.map_or(0, signed),
            profile_id: random().to_be_bytes().to_vec(),
            ..otlp::Profile::default()
        });
    }
    made
}

/// The attributes of the process, by the semantic conventions; those of the user come first.
fn attributes(profile: &Profile, options: &Options, lost: u64) -> Vec<KeyValue> {
    let mut attributes: Vec<KeyValue> = Vec::new();
    let mut add = |key: &str, value: Value| {
        if attributes.iter().all(|known| known.key != key) {
            let value = Some(AnyValue { value: Some(value) });
            attributes.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
        }
    };
    let text = |text: &str| Value::StringValue(text.to_owned());
    add("service.name", text(&options.service));
    for label in &options.labels {
        add(&label.name, text(&label.value));
    }
    if let Some(host) = &options.process.host {
        add("host.name", text(host));
    }
    add("process.pid", Value::IntValue(i64::from(options.process.id)));
    add("process.executable.name", text(&profile.name));
    if let Some((name, version)) = &options.process.runtime {
        add("process.runtime.name", text(name));
        add("process.runtime.version", text(version));
    }
    if lost > 0 {
        add("corprof.profiles.lost", Value::IntValue(signed(lost)));
    }
    attributes
}

/// A table whose first entry stands for "none".
struct Table<T>(IndexSet<T, FxBuildHasher>);

impl<T: Hash + Eq + Default> Table<T> {
    fn new() -> Self {
        Self(IndexSet::from_iter([T::default()]))
    }

    fn index(&mut self, entry: T) -> i32 {
        i32::try_from(self.0.insert_full(entry).0).unwrap_or_default()
    }

    fn into_vec(self) -> Vec<T> {
        self.0.into_iter().collect()
    }
}

/// The tables of the dictionary.
struct Tables<'a> {
    profile: &'a Profile,
    names: Names<'a>,
    texts: Table<String>,
    mappings: Table<otlp::Mapping>,
    functions: Table<otlp::Function>,
    stacks: Table<otlp::Stack>,
    locations: Vec<otlp::Location>,
    location_of: FxHashMap<FrameId, i32>,
    attributes: Vec<otlp::KeyValueAndUnit>,
    attribute_of: FxHashMap<(i32, String), i32>,
}

impl<'a> Tables<'a> {
    fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            names: Names::of(profile),
            texts: Table::new(),
            mappings: Table::new(),
            functions: Table::new(),
            stacks: Table::new(),
            locations: vec![otlp::Location::default()],
            location_of: FxHashMap::default(),
            attributes: vec![otlp::KeyValueAndUnit::default()],
            attribute_of: FxHashMap::default(),
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        self.texts.index(text.to_owned())
    }

    fn value_type(&mut self, name: &str, unit: &str) -> otlp::ValueType {
        otlp::ValueType { type_strindex: self.text(name), unit_strindex: self.text(unit) }
    }

    fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let key_strindex = self.text(key);
        let next = i32::try_from(self.attributes.len()).unwrap_or_default();
        *self.attribute_of.entry((key_strindex, format!("{value:?}"))).or_insert_with(|| {
            let value = Some(AnyValue { value: Some(value) });
            self.attributes.push(otlp::KeyValueAndUnit { key_strindex, value, unit_strindex: 0 });
            next
        })
    }

    fn attributes_of(&mut self, thread: &Thread) -> Vec<i32> {
        let title = thread.title(self.profile.process);
        vec![
            self.attribute("thread.id", Value::IntValue(i64::from(thread.id))),
            self.attribute("thread.name", Value::StringValue(title)),
        ]
    }

    fn stack(&mut self, stack: StackId) -> i32 {
        let profile = self.profile;
        let location_indices = profile.leaf_first(stack).map(|frame| self.location(frame)).collect();
        self.stacks.index(otlp::Stack { location_indices })
    }

    fn location(&mut self, id: FrameId) -> i32 {
        if let Some(known) = self.location_of.get(&id) {
            return *known;
        }
        let frame = self.profile.frame_of(id);
        let name = self.names.name(id);
        let name_strindex = self.text(if name.is_empty() { "[no name]" } else { &name });
        let filename_strindex = frame.file.map_or(0, |file| self.text(file));
        let function_index =
            self.functions.index(otlp::Function { name_strindex, filename_strindex, ..otlp::Function::default() });
        let mapping_index = frame.module.map_or(0, |module| {
            let filename_strindex = self.text(module);
            self.mappings.index(otlp::Mapping { filename_strindex, ..otlp::Mapping::default() })
        });
        // The words of the semantic conventions, as far as they have one.
        let kind = match frame.kind {
            FrameKind::Native | FrameKind::Runtime | FrameKind::Wait => "native",
            _ => "dotnet",
        };
        let attribute_indices = vec![self.attribute("profile.frame.type", Value::StringValue(kind.to_owned()))];
        let lines = vec![otlp::Line { function_index, line: i64::from(frame.line), column: 0 }];
        let index = i32::try_from(self.locations.len()).unwrap_or_default();
        self.locations.push(otlp::Location { mapping_index, lines, attribute_indices, address: 0 });
        self.location_of.insert(id, index);
        index
    }

    fn into_dictionary(self) -> otlp::ProfilesDictionary {
        otlp::ProfilesDictionary {
            mapping_table: self.mappings.into_vec(),
            location_table: self.locations,
            function_table: self.functions.into_vec(),
            link_table: vec![otlp::Link::default()],
            string_table: self.texts.into_vec(),
            attribute_table: self.attributes,
            stack_table: self.stacks.into_vec(),
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_is_a_refusal() {
        use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesPartialSuccess;
        let answer = |rejected_profiles| {
            let partial = ExportProfilesPartialSuccess { rejected_profiles, error_message: "too old".to_owned() };
            ExportProfilesServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!(refusal(&answer(2)), Some((2, "too old".to_owned())));
        assert_eq!(refusal(&answer(0)), None);
        assert_eq!(refusal(b""), None);
        assert_eq!(refusal(b"<!doctype html>"), None);
    }
}
