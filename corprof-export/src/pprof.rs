//! pprof files: samples summed by thread and stack, in protobuf.

use std::io::{self, Write};
use std::time::SystemTime;

use indexmap::{IndexMap, IndexSet};
use prost::Message;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::about::Mode;
use crate::caption::Caption;
use crate::names::Names;
use crate::profile::{Thread, nanoseconds};
use crate::{FrameId, Profile, StackId, Unit};

mod proto;

pub(crate) fn write(profile: &Profile, writer: impl Write) -> io::Result<()> {
    write_by(Samples::ByThread, profile, writer)
}

/// What makes two samples of the same stack two: engines make a series of each distinct set of labels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Samples {
    /// Each thread has its own, with labels.
    ByThread,
    /// Those of all threads are summed.
    #[cfg_attr(not(feature = "push"), expect(dead_code, reason = "files have the threads"))]
    Together,
}

pub(crate) fn write_by(samples: Samples, profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    writer.write_all(&message(profile, samples).encode_to_vec())?;
    writer.flush()
}

/// The table of texts; number 0 is the empty one, by the format's rule.
struct Texts(IndexSet<Box<str>, FxBuildHasher>);

impl Texts {
    fn number(&mut self, text: &str) -> i64 {
        let known = self.0.get_index_of(text);
        signed(known.unwrap_or_else(|| self.0.insert_full(text.into()).0) as u64)
    }
}

fn message(profile: &Profile, samples: Samples) -> proto::Profile {
    let mut texts = Texts(IndexSet::default());
    texts.number("");
    let mut types = |names: &[(&str, &str)]| -> Vec<proto::ValueType> {
        names
            .iter()
            .map(|(name, unit)| proto::ValueType { r#type: texts.number(name), unit: texts.number(unit) })
            .collect()
    };
    let interval = profile.interval.map(nanoseconds);
    let time = profile.about.mode.map_or("time", Mode::word);
    let period_type = types(&[(time, "nanoseconds")]).pop();
    let sample_type = match (profile.unit, interval) {
        (Unit::Samples, None) => types(&[("samples", "count")]),
        (Unit::Samples, Some(_)) | (Unit::Nanoseconds, _) => types(&[("samples", "count"), (time, "nanoseconds")]),
        (Unit::Bytes, _) => types(&[("objects", "count"), ("space", "bytes")]),
    };
    let values = |count: u64, weight: u64| match (profile.unit, interval) {
        (Unit::Samples, None) => vec![signed(weight)],
        (Unit::Samples, Some(interval)) => vec![signed(weight), signed(weight.saturating_mul(interval))],
        (Unit::Nanoseconds | Unit::Bytes, _) => vec![signed(count), signed(weight)],
    };

    let mut sample = Vec::new();
    let groups: Vec<&[Thread]> = match samples {
        Samples::ByThread => profile.threads.chunks(1).collect(),
        Samples::Together => vec![&profile.threads],
    };
    for group in groups {
        let mut sums: FxHashMap<StackId, (u64, u64)> = FxHashMap::default();
        for sample in group.iter().flat_map(|thread| &thread.samples) {
            let (count, weight) = sums.entry(sample.stack).or_default();
            *count = count.saturating_add(profile.count_of(sample));
            *weight = weight.saturating_add(sample.weight);
        }
        let label = match group {
            [thread] if samples == Samples::ByThread => vec![
                proto::Label { key: texts.number("thread"), str: texts.number(&thread.title(profile.process)), num: 0 },
                proto::Label { key: texts.number("thread_id"), str: 0, num: i64::from(thread.id) },
            ],
            _ => Vec::new(),
        };
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable();
        sample.extend(sums.into_iter().map(|(stack, (count, weight))| proto::Sample {
            // Number 0 means "none", so everything is counted from 1.
            location_id: profile.leaf_first(stack).map(|frame| u64::from(frame.0) + 1).collect(),
            value: values(count, weight),
            label: label.clone(),
        }));
    }
    let (mapping, location, function) = tables(profile, &mut texts);
    let since_epoch = profile.started.and_then(|started| started.duration_since(SystemTime::UNIX_EPOCH).ok());
    let mut lines = vec![profile.name.clone()];
    lines.extend(Caption::new(profile).lines());
    let comment = lines.iter().map(|line| texts.number(line)).collect();
    let default_sample_type = sample_type.last().map_or(0, |last| last.r#type);
    proto::Profile {
        sample_type,
        sample,
        mapping,
        location,
        function,
        time_nanos: since_epoch.map_or(0, |duration| signed(nanoseconds(duration))),
        duration_nanos: signed(nanoseconds(profile.duration())),
        period_type: interval.and(period_type),
        period: interval.map_or(0, signed),
        comment,
        default_sample_type,
        string_table: texts.0.into_iter().map(String::from).collect(),
    }
}

/// A location for each frame; the functions in them; the modules that these are of.
fn tables(profile: &Profile, texts: &mut Texts) -> (Vec<proto::Mapping>, Vec<proto::Location>, Vec<proto::Function>) {
    let mut modules: IndexSet<i64, FxBuildHasher> = IndexSet::default();
    // Readers call the whole after the first module: that is the application.
    modules.insert(texts.number(&profile.name));
    let mut functions: IndexMap<(i64, i64, u64), proto::Function, FxBuildHasher> = IndexMap::default();
    let mut locations = Vec::with_capacity(profile.frames.len());
    let names = Names::of(profile);
    for id in (0..profile.frames.len()).filter_map(|index| u32::try_from(index).ok()) {
        let frame = profile.frame_of(FrameId(id));
        let module = frame.module.map(|module| modules.insert_full(texts.number(module)).0 as u64 + 1).unwrap_or(0);
        let name = names.name(FrameId(id));
        let name = texts.number(if name.is_empty() { "[no name]" } else { &name });
        let filename = frame.file.map_or(0, |file| texts.number(file));
        let next = functions.len() as u64 + 1;
        let function =
            functions.entry((name, filename, module)).or_insert(proto::Function { id: next, name, filename });
        let line = vec![proto::Line { function_id: function.id, line: i64::from(frame.line) }];
        locations.push(proto::Location { id: u64::from(id) + 1, mapping_id: module, line });
    }
    let mapping = |(id, filename)| proto::Mapping { id, filename, has_functions: true };
    let mappings = (1u64..).zip(modules).map(mapping).collect();
    (mappings, locations, functions.into_values().collect())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
