//! A recording: every sample with its time, thread and stack, in a `.nettrace` that grows as samples come.
//!
//! Its events are those of `dotnet-trace collect-linux`, so that readers know them: a sample is an event of
//! Universal.Events with its stack as addresses, [`CPU`](Measured::CPU) of a thread that runs and [`WAIT`] of one that
//! waits; mappings and symbols of Universal.System name the addresses (`code_map`). Frames without an address, such as
//! the methods that await a resumed one, have addresses that no code has.
//!
//! Samples are written in order of time, so they wait until no older one can come ([`Recording::settle`]). The
//! runtime's own events stand among the samples (`runtime_events`). What is written reaches the file at least each
//! second ([`Recording::flush`]): a file that is cut reads up to the cut.
//!
//! There may be one file after the other (`files`). Each tells by itself of what its samples refer to, shortly before
//! (`trace_file`). A file whose name ends in `.gz` is compressed as it grows (`whole_blocks`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corprof::id::NativeCode;
use corprof::info::{CodeRange, FunctionVersion};
use corprof::prelude::*;
use corprof::sampler::{NativeFunction, Round, SampledFrame};
use corprof_export::OutputFile;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::async_callers::ThreadKey;
use crate::own_frames::is_of_the_runtime;
use code_map::{CodeMap, NATIVE};
use files::Files;
use il_map::IlMap;
use trace_file::{Entry, TraceEvent, TraceFile, TraceSample};

mod code_map;
mod files;
mod il_map;
mod mappings;
mod runtime_events;
mod trace_file;
mod whole_blocks;

pub(super) use files::Rotation;
pub(super) use il_map::ModulesWithLines;
pub(super) use runtime_events::{EventInbox, EventKinds, EventWork, Held, HeldEvent, move_events};
pub(super) use trace_file::Timing;

/// The most frames of a stack: a stack of the format has 64 KB.
const DEEPEST: usize = 8_000;

/// A recording that is being written.
pub(super) struct Recording {
    trace: TraceFile,
    code: CodeMap,
}

/// A managed function that a sample has, at an address that is not known yet.
pub(super) struct UnknownCode {
    function: FunctionId,
    name: Name,
    address: usize,
}

/// The same with the code around the address, and which IL it is of.
pub(super) struct FoundCode {
    function: FunctionId,
    name: Name,
    range: CodeRange,
    il: Option<Arc<IlMap>>,
}

/// The code of a version of a function.
#[derive(Default)]
struct VersionCode {
    ranges: Vec<CodeRange>,
    /// The beginnings of pieces, from which the runtime counts offsets.
    codes: Vec<NativeCode>,
}

/// The addresses in the trace of frames of events; none for those that are not shown.
pub(super) type EventPlaces = FxHashMap<(FunctionId, usize), Option<u64>>;

/// A sample of a thread.
pub(super) struct RecordedSample<'a> {
    pub(super) thread: ThreadKey,
    pub(super) ticks: u64,
    pub(super) weight: Duration,
    pub(super) is_waiting: bool,
    /// Addresses in the trace, the innermost first.
    pub(super) stack: &'a [u64],
}

impl Recording {
    pub(super) fn new(file: OutputFile, rotation: Option<Rotation>, timing: Timing) -> Self {
        Self { trace: TraceFile::new(Files::new(file, rotation), timing), code: CodeMap::default() }
    }

    /// The newest file.
    pub(super) fn path(&self) -> &Path {
        self.trace.files().path()
    }

    /// All files, the oldest first; none if there is one at most.
    pub(super) fn files(&self) -> Option<Vec<&Path>> {
        let files = self.trace.files();
        files.rotation().map(|_| files.kept().collect())
    }

    /// How many files were removed.
    pub(super) fn removed(&self) -> u64 {
        self.trace.files().removed()
    }

    /// Why nothing more is written, if the recording has ended by itself.
    pub(super) fn why_over(&self) -> Option<&str> {
        self.trace.why_over()
    }

    /// The same, if it has not failed.
    pub(super) fn limit(&self) -> Option<&str> {
        self.trace.limit()
    }

    /// The code of a round that is not known yet.
    pub(super) fn unknown_code(&self, round: &Round<'_, '_>) -> Vec<UnknownCode> {
        let frames = round.samples().flat_map(|sample| sample.frames().iter().enumerate());
        let frames = frames.filter_map(|(depth, frame)| Some((frame.function?, address_of(depth, frame))));
        self.unknown(round.cx(), frames)
    }

    /// The same of events.
    pub(super) fn unknown_code_of_events(&self, cx: &InNoGc<'_>, held: &Held) -> Vec<UnknownCode> {
        let frames: FxHashSet<_> =
            held.events.iter().flat_map(|event| event.frames.iter().chain(&event.methods).copied()).collect();
        self.unknown(cx, frames.into_iter())
    }

    fn unknown(&self, cx: &InNoGc<'_>, frames: impl Iterator<Item = (FunctionId, usize)>) -> Vec<UnknownCode> {
        let mut unknown: Vec<UnknownCode> = Vec::new();
        for (function, address) in frames {
            let name = cx.names().csharp().function(function);
            let is_known = self.code.address(function.as_raw(), &name, address).is_some();
            if !is_known && !unknown.iter().any(|other| other.address == address) {
                unknown.push(UnknownCode { function, name, address });
            }
        }
        unknown
    }

    /// Keeps what was found about unknown code.
    pub(super) fn learn(&mut self, found: Vec<FoundCode>) {
        for FoundCode { function, name, range, il } in found {
            self.code.learn(function.as_raw(), &name, range.start..range.start + range.size, il);
        }
    }

    /// The address of a managed frame in the trace.
    pub(super) fn managed(&mut self, function: FunctionId, name: &str, depth: usize, frame: &SampledFrame) -> u64 {
        self.managed_at(function, name, address_of(depth, frame))
    }

    fn managed_at(&mut self, function: FunctionId, name: &str, address: usize) -> u64 {
        self.code.address(function.as_raw(), name, address).unwrap_or_else(|| self.code.logical(name))
    }

    /// The address of a native frame in the trace. The library is that of the mapping, as readers show both.
    pub(super) fn native(&mut self, function: &NativeFunction, address: usize) -> u64 {
        let name = function.name.split_once('!').map_or(function.name.as_str(), |(_library, symbol)| symbol);
        if self.code.address(NATIVE, name, address).is_none() {
            self.code.learn(NATIVE, name, function.code.clone(), None);
        }
        self.code.address(NATIVE, name, address).unwrap_or_else(|| self.code.logical(&function.name))
    }

    /// The address of something that has no code.
    pub(super) fn logical(&mut self, name: &str) -> u64 {
        self.code.logical(name)
    }

    /// Says the name of a thread, before a sample of it.
    pub(super) fn name_thread(&mut self, thread: ThreadKey, name: Option<&str>) {
        self.trace.name_thread((Some(thread.0), thread.1), name);
    }

    /// Adds a sample, which is written once no older one can come.
    pub(super) fn add(&mut self, sample: &RecordedSample<'_>) {
        let outermost = sample.stack.len().min(DEEPEST);
        self.trace.push(Entry::Sample(TraceSample {
            thread: (Some(sample.thread.0), sample.thread.1),
            ticks: sample.ticks,
            weight: sample.weight,
            is_waiting: sample.is_waiting,
            stack: sample.stack.get(..outermost).unwrap_or_default().into(),
        }));
    }

    /// Keeps how events of the runtime are described that came for the first time.
    pub(super) fn define_events(&mut self, held: &Held) {
        for (kind, description) in &held.descriptions {
            self.trace.describe_event(*kind, description);
        }
    }

    /// Adds events of the runtime, except for frames that are not shown. `places` has the frames of events shortly
    /// before.
    pub(super) fn add_events(&mut self, cx: &InNoGc<'_>, events: Vec<HeldEvent>, places: &mut EventPlaces) {
        for event in events {
            self.trace.name_thread(event.thread, event.thread_name.as_deref());
            let mut stack = Vec::with_capacity(event.frames.len());
            for (function, address) in &event.frames {
                let place = places.entry((*function, *address)).or_insert_with(|| {
                    let name = cx.names().csharp().function(*function);
                    let is_shown = !is_of_the_runtime(cx, *function, &name);
                    is_shown.then(|| self.managed_at(*function, &name, *address))
                });
                stack.extend(*place);
            }
            let mut methods = Vec::with_capacity(event.methods.len());
            for (function, address) in &event.methods {
                let name = cx.names().csharp().function(*function);
                methods.extend(self.code.address(function.as_raw(), &name, *address));
            }
            self.trace.push(Entry::Event(TraceEvent {
                thread: event.thread,
                ticks: event.ticks,
                kind: event.kind,
                activity: event.activity,
                payload: event.payload,
                stack: stack.into(),
                methods: methods.into(),
            }));
        }
    }

    /// Says that there was no room for some events.
    pub(super) fn lose_events(&mut self, held: &Held) {
        if held.lost > 0 {
            self.trace.lose(held.lost);
        }
    }

    /// How many events of the runtime it has, and how many were lost.
    pub(super) fn events(&self) -> (u64, u64) {
        self.trace.events()
    }

    /// Writes the samples that are older than all that may still come, as `oldest_waiting` is of those that are held
    /// back; all of them with `is_last`.
    pub(super) fn settle(&mut self, oldest_waiting: Option<u64>, is_last: bool) {
        self.trace.settle(&mut self.code, oldest_waiting, is_last);
        self.code.forget_gone();
    }

    /// Has the file get what was written; the error is the first one, after which nothing more is written.
    pub(super) fn flush(&mut self) -> Result<(), BoxError> {
        self.trace.flush()
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) -> Result<(), BoxError> {
        self.trace.finish()
    }
}

/// The address in the code of a frame. That of a caller is the return address, which may be behind the function.
fn address_of(depth: usize, frame: &SampledFrame) -> usize {
    frame.ip.saturating_sub(usize::from(depth > 0))
}

/// Asks the runtime for the code around addresses. It may wait for a collection, so nothing may be locked.
pub(super) fn find_code(
    cx: &mut InCallback<'_>,
    unknown: Vec<UnknownCode>,
    modules: &mut ModulesWithLines,
) -> Vec<FoundCode> {
    let mut found: Vec<FoundCode> = Vec::new();
    let mut versions: HashMap<FunctionId, VersionCode> = HashMap::new();
    for UnknownCode { function, name, address } in unknown {
        let version = versions.entry(function).or_default();
        if !version.ranges.iter().any(|range| range.contains(address)) {
            *version = version_at(cx, function, address);
        }
        let Some(range) = version.ranges.iter().find(|range| range.contains(address)).copied() else { continue };
        if found.iter().any(|other| other.range == range) {
            continue;
        }
        let code = version.codes.iter().find(|code| code.as_raw() == range.start);
        let il = code.and_then(|code| modules.il_map(cx, function, *code));
        found.push(FoundCode { function, name, range, il });
    }
    found
}

/// The code of the version of a function that is at an address; none if another function has taken its place.
fn version_at(cx: &mut InCallback<'_>, function: FunctionId, address: usize) -> VersionCode {
    for rejit in cx.rejit_ids(function).unwrap_or_default() {
        let codes = cx.native_code(FunctionVersion { function, rejit }).unwrap_or_default();
        let ranges = codes.iter().flat_map(|code| cx.native_code_ranges(*code).unwrap_or_default());
        let ranges: Vec<_> = ranges.collect();
        if ranges.iter().any(|range| range.contains(address)) {
            return VersionCode { ranges, codes };
        }
    }
    VersionCode::default()
}
