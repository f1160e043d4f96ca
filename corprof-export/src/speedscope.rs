//! The file format of speedscope: a table of frames, and a sampled profile for each thread.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use crate::caption::Caption;
use crate::names::Names;
use crate::profile::{Sample, Thread};
use crate::{FrameId, Profile, Unit};

pub(crate) fn write(profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut writer, &Document(profile))?;
    writer.flush()
}

/// Written as it is walked: samples are lists of frames here, which together need much more memory than the profile.
struct Document<'a>(&'a Profile);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profile = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("$schema", "https://www.speedscope.app/file-format-schema.json")?;
        map.serialize_entry("exporter", concat!("corprof-export ", env!("CARGO_PKG_VERSION")))?;
        let facts = Caption::new(profile).lines().next().unwrap_or_default();
        map.serialize_entry("name", &format!("{} ({facts})", profile.name))?;
        map.serialize_entry("activeProfileIndex", &busiest(profile))?;
        map.serialize_entry("shared", &Shared(profile))?;
        map.serialize_entry("profiles", &Profiles(profile))?;
        map.end()
    }
}

/// The thread with the most weight: its viewer begins with that.
fn busiest(profile: &Profile) -> usize {
    let weight = |thread: &Thread| profile.timed(thread).map(|(_, sample)| u128::from(sample.weight)).sum::<u128>();
    let weights = profile.threads.iter().map(weight).enumerate();
    // Of equal ones, the first.
    weights.rev().max_by_key(|(_, weight)| *weight).map_or(0, |(index, _)| index)
}

struct Shared<'a>(&'a Profile);

impl Serialize for Shared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shared = serializer.serialize_struct("shared", 1)?;
        shared.serialize_field("frames", &Frames(self.0))?;
        shared.end()
    }
}

struct Frames<'a>(&'a Profile);

impl Serialize for Frames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frames = (0u32..).map(FrameId).take(self.0.frames.len());
        let names = Names::of(self.0);
        serializer.collect_seq(frames.map(|id| Frame { name: names.name(id), frame: self.0.frame_of(id) }))
    }
}

struct Frame<'a> {
    name: Cow<'a, str>,
    frame: crate::Frame<'a>,
}

impl Serialize for Frame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        if let Some(file) = self.frame.file.or(self.frame.module) {
            map.serialize_entry("file", file)?;
        }
        if self.frame.line > 0 {
            map.serialize_entry("line", &self.frame.line)?;
        }
        map.end()
    }
}

struct Profiles<'a>(&'a Profile);

impl Serialize for Profiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut profiles = serializer.serialize_seq(None)?;
        for thread in &self.0.threads {
            profiles.serialize_element(&OfThread { profile: self.0, thread, samples: in_order(self.0, thread) })?;
        }
        if self.0.threads.is_empty() {
            // Its viewer refuses a file without profiles.
            let thread = Thread::default();
            profiles.serialize_element(&OfThread { profile: self.0, thread: &thread, samples: Vec::new() })?;
        }
        profiles.end()
    }
}

/// The samples by time; those of threads come in order nearly always.
fn in_order<'a>(profile: &'a Profile, thread: &'a Thread) -> Vec<&'a Sample> {
    let mut samples: Vec<_> = profile.timed(thread).collect();
    samples.sort_by_key(|(at, _)| *at);
    samples.into_iter().map(|(_, sample)| sample).collect()
}

struct OfThread<'a> {
    profile: &'a Profile,
    thread: &'a Thread,
    samples: Vec<&'a Sample>,
}

impl Serialize for OfThread<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Samples of a known interval are shown as time.
        let interval = self.profile.interval.map(crate::profile::nanoseconds);
        let (unit, factor) = match (self.profile.unit, interval) {
            (Unit::Samples, Some(interval)) => ("nanoseconds", interval),
            (Unit::Samples, None) => ("none", 1),
            (Unit::Nanoseconds, _) => ("nanoseconds", 1),
            (Unit::Bytes, _) => ("bytes", 1),
        };
        let weight = |sample: &&Sample| sample.weight.saturating_mul(factor);
        let end = self.samples.iter().map(weight).fold(0, u64::saturating_add);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "sampled")?;
        map.serialize_entry("name", &self.thread.title_with_id(self.profile.process))?;
        map.serialize_entry("unit", unit)?;
        map.serialize_entry("startValue", &0)?;
        map.serialize_entry("endValue", &end)?;
        map.serialize_entry("samples", &Stacks(self))?;
        map.serialize_entry("weights", &Sequence(self.samples.iter().map(weight)))?;
        map.end()
    }
}

struct Stacks<'a>(&'a OfThread<'a>);

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let root_first = |sample: &&Sample| {
            let mut frames: Vec<u32> = self.0.profile.leaf_first(sample.stack).map(|frame| frame.0).collect();
            frames.reverse();
            frames
        };
        serializer.collect_seq(self.0.samples.iter().map(root_first))
    }
}

/// An iterator as a JSON array.
struct Sequence<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Sequence<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}
