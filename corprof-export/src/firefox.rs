//! Files for the Firefox Profiler, by fxprof-processed-profile.

use std::io::{self, Write};
use std::time::SystemTime;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame as FoxFrame, FrameFlags, FrameHandle, FrameInfo,
    Profile as FoxProfile, SamplingInterval, StackHandle, ThreadHandle, Timestamp, WeightType,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::caption::Caption;
use crate::names::Names;
use crate::profile::{Thread, nanoseconds};
use crate::{FrameId, FrameKind, Profile, StackId, Unit};

/// The viewer shows a module as a kind within the kind of code; the format has room for 65,535 of them.
const MOST_MODULES: usize = 10_000;

pub(crate) fn write(profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    let start = serde_json::to_string(&Extra::new(profile)).map(|extra| format!("{META}\"extra\":{extra},"))?;
    serde_json::to_writer(Meta { writer: &mut writer, start, seen: 0 }, &Conversion::new(profile).whole())?;
    writer.flush()
}

/// The beginning of the file, before the first entry of its description.
const META: &str = "{\"meta\":{";

/// Adds an entry to the file's `meta`, for which the crate has no method.
struct Meta<W> {
    writer: W,
    /// The text written in place of [`META`].
    start: String,
    /// Bytes of `META` that have come.
    seen: usize,
}

impl<W: Write> Write for Meta<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(expected) = META.as_bytes().get(self.seen..).filter(|expected| !expected.is_empty()) else {
            return self.writer.write(bytes);
        };
        let length = expected.len().min(bytes.len());
        if bytes.get(..length) != expected.get(..length) {
            return Err(io::Error::other("the file begins in another way than this version of corprof-export expects"));
        }
        self.seen += length;
        if self.seen == META.len() {
            self.writer.write_all(self.start.as_bytes())?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A section of the viewer's panel about the profile.
#[derive(Serialize)]
struct Extra {
    label: &'static str,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    label: String,
    format: &'static str,
    value: String,
}

impl Extra {
    fn new(profile: &Profile) -> [Self; 1] {
        let entry = |label: &str, value| Entry { label: label.to_owned(), format: "string", value };
        let caption = Caption::new(profile);
        let mut entries = vec![entry("Run", caption.facts.join(" · "))];
        entries.extend(caption.warnings.into_iter().map(|warning| entry("Warning", warning)));
        entries.extend(caption.notes.into_iter().map(|note| entry("Note", note)));
        entries.push(entry("Written by", concat!("corprof-export ", env!("CARGO_PKG_VERSION")).to_owned()));
        [Self { label: "corprof", entries }]
    }
}

struct Conversion<'a> {
    profile: &'a Profile,
    names: Names<'a>,
    fox: FoxProfile,
    kinds: [CategoryHandle; 6],
    modules: FxHashMap<(FrameKind, &'a str), CategoryPairHandle>,
}

impl<'a> Conversion<'a> {
    fn new(profile: &'a Profile) -> Self {
        let started = profile.started.filter(|started| *started >= SystemTime::UNIX_EPOCH);
        let interval = SamplingInterval::from_nanos(profile.interval.map_or(1_000_000, nanoseconds).max(1));
        let mut fox = FoxProfile::new(&profile.name, started.unwrap_or(SystemTime::UNIX_EPOCH).into(), interval);
        // The frames have names already, so the viewer need not ask a server for symbols.
        fox.set_symbolicated(true);
        let kinds = [
            fox.add_category("User code", CategoryColor::Orange),
            fox.add_category("Framework", CategoryColor::Blue),
            fox.add_category("Native", CategoryColor::Yellow),
            fox.add_category("Runtime", CategoryColor::Purple),
            fox.add_category("Waits", CategoryColor::Gray),
            fox.add_category("Generated", CategoryColor::Green),
        ];
        Self { profile, names: Names::of(profile), fox, kinds, modules: FxHashMap::default() }
    }

    fn whole(mut self) -> FoxProfile {
        let start = Timestamp::from_nanos_since_reference(0);
        let process = self.fox.add_process(&self.profile.name, self.profile.process, start);
        let end = Timestamp::from_nanos_since_reference(nanoseconds(self.profile.duration()));
        self.fox.set_process_end_time(process, end);
        for thread in &self.profile.threads {
            // The viewer calls a main thread by the name of its process. On Linux it has the identifier of that, too.
            let is_main = thread.id == self.profile.process;
            let handle = self.fox.add_thread(process, thread.id, start, is_main);
            self.fox.set_thread_name(handle, &thread.title(self.profile.process));
            self.samples(thread, handle);
        }
        self.fox
    }

    fn samples(&mut self, thread: &Thread, handle: ThreadHandle) {
        let unit = match self.profile.unit {
            Unit::Samples => WeightType::Samples,
            Unit::Nanoseconds => WeightType::TracingMs,
            Unit::Bytes => WeightType::Bytes,
        };
        self.fox.set_thread_samples_weight_type(handle, unit);
        let mut stacks = FxHashMap::default();
        let mut sampled = FxHashMap::default();
        let mut rest = 0;
        for (at, sample) in self.profile.timed(thread) {
            let stack = match sampled.get(&sample.stack) {
                Some(&known) => known,
                None => {
                    let stack = self.sampled_stack(handle, sample.stack, &mut stacks);
                    sampled.insert(sample.stack, stack);
                    stack
                }
            };
            let weight = match self.profile.unit {
                // Whole milliseconds: the remainder is added to the next sample, so that the sum is right.
                Unit::Nanoseconds => {
                    let time = sample.weight.saturating_add(rest);
                    rest = time % 1_000_000;
                    time / 1_000_000
                }
                Unit::Samples | Unit::Bytes => sample.weight,
            };
            let at = Timestamp::from_nanos_since_reference(at);
            let weight = i32::try_from(weight).unwrap_or(i32::MAX);
            self.fox.add_sample(handle, at, stack, CpuDelta::ZERO, weight);
        }
    }

    /// The viewer's stack for that of a sample. The viewer takes the category of a sample from its leaf, so that of a
    /// thread which waits, as the profiler has found out, is a wait whatever its name.
    fn sampled_stack(
        &mut self,
        thread: ThreadHandle,
        stack: StackId,
        known: &mut FxHashMap<StackId, StackHandle>,
    ) -> Option<StackHandle> {
        let &(caller, leaf) = self.profile.stacks.get_index(stack.0 as usize)?;
        if !self.is_under_waits(caller) {
            return self.stack(thread, stack, known);
        }
        let caller = self.stack(thread, caller, known);
        let leaf = self.frame(thread, leaf, Some(FrameKind::Wait));
        Some(self.fox.intern_stack(thread, caller, leaf))
    }

    /// Whether the outermost frame of a stack is a wait: under such a frame a profiler puts the stacks of waiting
    /// threads.
    fn is_under_waits(&self, stack: StackId) -> bool {
        let mut next = stack;
        let mut outermost = None;
        while let Some(&(caller, frame)) = self.profile.stacks.get_index(next.0 as usize) {
            outermost = Some(frame);
            next = caller;
        }
        outermost.is_some_and(|frame| self.profile.kind_of(&self.profile.frame_of(frame)) == FrameKind::Wait)
    }

    /// The viewer's stack for one of ours. Callers come first, and the first known one ends the search.
    fn stack(
        &mut self,
        thread: ThreadHandle,
        stack: StackId,
        known: &mut FxHashMap<StackId, StackHandle>,
    ) -> Option<StackHandle> {
        let mut missing = Vec::new();
        let mut next = stack;
        let mut caller = None;
        while let Some(&(of, frame)) = self.profile.stacks.get_index(next.0 as usize) {
            caller = known.get(&next).copied();
            if caller.is_some() {
                break;
            }
            missing.push((next, frame));
            next = of;
        }
        for (stack, frame) in missing.into_iter().rev() {
            let frame = self.frame(thread, frame, None);
            let handle = self.fox.intern_stack(thread, caller, frame);
            known.insert(stack, handle);
            caller = Some(handle);
        }
        caller
    }

    /// The viewer's frame for one of ours, of this kind instead of its own.
    fn frame(&mut self, thread: ThreadHandle, frame: FrameId, kind: Option<FrameKind>) -> FrameHandle {
        let label = FoxFrame::Label(self.fox.intern_string(&self.names.name(frame)));
        let frame = self.profile.frame_of(frame);
        let kind = kind.unwrap_or_else(|| self.profile.kind_of(&frame));
        let info =
            FrameInfo { frame: label, category_pair: self.category(kind, frame.module), flags: FrameFlags::empty() };
        self.fox.intern_frame(thread, info)
    }

    fn category(&mut self, kind: FrameKind, module: Option<&'a str>) -> CategoryPairHandle {
        let [user, framework, native, runtime, wait, generated] = self.kinds;
        let category = match kind {
            FrameKind::Managed | FrameKind::User => user,
            FrameKind::Framework => framework,
            FrameKind::Native => native,
            FrameKind::Runtime => runtime,
            FrameKind::Wait => wait,
            FrameKind::Generated => generated,
        };
        let Some(module) = module else { return category.into() };
        if let Some(known) = self.modules.get(&(kind, module)) {
            return *known;
        }
        if self.modules.len() >= MOST_MODULES {
            return category.into();
        }
        let pair = self.fox.add_subcategory(category, module);
        self.modules.insert((kind, module), pair);
        pair
    }
}
