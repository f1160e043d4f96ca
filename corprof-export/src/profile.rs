//! The profile: samples in memory, independent of the output format.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::about::About;
use crate::frame::FrameData;
use crate::{Frame, FrameId, FrameKind, StackId, ThreadId, kind};

/// The unit of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// How often a stack was seen.
    Samples,
    /// Nanoseconds spent in the stack's innermost frame.
    Nanoseconds,
    /// Bytes allocated there.
    Bytes,
}

/// Counts of data that a profile could not store; all zero unless limits were reached or handles of another profile
/// were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Frames that were left off because the limit of stacks was reached, one for each time that it happened.
    pub frames_cut: u64,
    /// Samples that named a thread which is not of this profile.
    pub samples_dropped: u64,
}

/// Samples of a run, gathered once and written in any [`Format`](crate::Format).
///
/// Handles ([`FrameId`], [`StackId`], [`ThreadId`]) are of the profile that gave them; another one takes them for
/// something else or for nothing, but does not panic.
#[derive(Debug)]
pub struct Profile {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) started: Option<SystemTime>,
    pub(crate) interval: Option<Duration>,
    pub(crate) process: u32,
    pub(crate) texts: IndexSet<Box<str>, FxBuildHasher>,
    pub(crate) frames: IndexSet<FrameData, FxBuildHasher>,
    /// File and line of frames that were made without.
    places: FxHashMap<FrameId, (u32, u32)>,
    /// Caller and frame. A caller's number is less than its callees'.
    pub(crate) stacks: IndexSet<(StackId, FrameId), FxBuildHasher>,
    pub(crate) threads: Vec<Thread>,
    /// By frame, and number of the file's text and line.
    pub(crate) lines: FxHashMap<(FrameId, u32, u32), LineWeight>,
    pub(crate) about: About,
    pub(crate) is_only_my_code: bool,
    pub(crate) has_raw_names: bool,
    pub(crate) kinds: Option<Arc<KindRule>>,
    pub(crate) is_summed: bool,
    stack_limit: usize,
    losses: Losses,
}

/// A profiler's own rule for kinds of frames.
pub(crate) struct KindRule(Box<Kinds>);

type Kinds = dyn Fn(&Frame<'_>) -> Option<FrameKind> + Send + Sync;

impl fmt::Debug for KindRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KindRule")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Thread {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// As they came, or one for each stack.
    pub(crate) samples: Vec<Sample>,
    /// Where the one sample of a stack is; only in a summed profile.
    pub(crate) of_stack: FxHashMap<StackId, usize>,
    /// How many samples were put into it.
    pub(crate) count: u64,
    /// How many entries of `samples` are in parts already.
    pub(crate) taken: usize,
}

impl Thread {
    /// Its name in viewers. On Linux a process' first thread has its identifier.
    pub(crate) fn title(&self, process: u32) -> String {
        match self.name.as_str() {
            "" if self.id == process && process != 0 => "main thread".to_owned(),
            "" => format!("thread {}", self.id),
            name => name.to_owned(),
        }
    }

    /// The same with its identifier, where a viewer has no place of its own for that.
    pub(crate) fn title_with_id(&self, process: u32) -> String {
        let title = self.title(process);
        if self.id == 0 || self.name.is_empty() { title } else { format!("{title} ({})", self.id) }
    }
}

/// The samples at a line of a method.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LineWeight {
    pub(crate) own: u64,
    pub(crate) total: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Nanoseconds since the start; how many samples there were, in a summed profile.
    at_or_count: u64,
    pub(crate) weight: u64,
    pub(crate) stack: StackId,
}

impl Profile {
    /// A profile that keeps each sample and its time. The name is that of the application
    /// ([`application_name`](crate::application_name)): every viewer shows it.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            unit,
            started: None,
            interval: None,
            process: 0,
            texts: IndexSet::default(),
            frames: IndexSet::default(),
            places: FxHashMap::default(),
            stacks: IndexSet::default(),
            threads: Vec::new(),
            lines: FxHashMap::default(),
            about: About::default(),
            is_only_my_code: false,
            has_raw_names: false,
            kinds: None,
            is_summed: false,
            stack_limit: StackId::EMPTY.0 as usize,
            losses: Losses::default(),
        }
    }

    /// A profile that keeps one sum for each thread and stack, and no times. A format that is ordered by time shows the
    /// sums one after the other.
    pub fn summed(name: impl Into<String>, unit: Unit) -> Self {
        Self { is_summed: true, ..Self::new(name, unit) }
    }

    /// When it began, by the wall clock: the moment that the times of samples are relative to.
    #[must_use]
    pub fn started_at(self, started: SystemTime) -> Self {
        Self { started: Some(started), ..self }
    }

    /// How often was asked to sample. With it, viewers turn numbers of samples into time.
    #[must_use]
    pub fn with_interval(self, interval: Duration) -> Self {
        Self { interval: Some(interval), ..self }
    }

    /// The process that was profiled.
    #[must_use]
    pub fn of_process(self, id: u32) -> Self {
        Self { process: id, ..self }
    }

    /// Decides the kinds of frames: the rule is asked first, and where it answers `None`, the profile's own rules hold.
    /// Kinds decide colours and "only my code".
    ///
    /// ```
    /// # use corprof_export::{FrameKind, Profile, Unit};
    /// let profile = Profile::new("shop", Unit::Samples).with_kinds(|frame| {
    ///     let is_library = frame.name().starts_with("Newtonsoft.");
    ///     is_library.then_some(FrameKind::Framework)
    /// });
    /// ```
    #[must_use]
    pub fn with_kinds(self, rule: impl Fn(&Frame<'_>) -> Option<FrameKind> + Send + Sync + 'static) -> Self {
        Self { kinds: Some(Arc::new(KindRule(Box::new(rule)))), ..self }
    }

    /// Draws flame graphs of the user's code only, with the framework calls that user code makes directly. In the HTML
    /// page it is a switch, which is on then.
    #[must_use]
    pub fn only_my_code(self) -> Self {
        Self { is_only_my_code: true, ..self }
    }

    /// Names methods as the runtime does, in every format: `Shop.Truth.<BurnAsync>d__5.MoveNext()` for
    /// `Shop.Truth.BurnAsync (async)`. Pictures then show whole names, too.
    #[must_use]
    pub fn with_raw_names(self) -> Self {
        Self { has_raw_names: true, ..self }
    }

    /// The limit of distinct stacks. Beyond it, a new stack is cut at its deepest frame whose
    /// stack is known, and [`Profile::losses`] counts it.
    #[must_use]
    pub fn with_stack_limit(self, limit: usize) -> Self {
        Self { stack_limit: limit.min(StackId::EMPTY.0 as usize), ..self }
    }

    /// The handle of a frame; equal frames have the same.
    pub fn frame(&mut self, frame: Frame<'_>) -> FrameId {
        let name = self.text(frame.name);
        let module = frame.module.map(|module| self.text(module));
        let file = frame.file.map(|file| self.text(file));
        let data = FrameData { name, module, file, line: frame.line, kind: frame.kind };
        FrameId(number(self.frames.insert_full(data).0))
    }

    /// Says where a frame is in the source, once that is known; the frame stays the same. As [`Frame::at`], which comes
    /// first.
    pub fn place(&mut self, frame: FrameId, file: &str, line: u32) {
        if (frame.0 as usize) < self.frames.len() {
            let file = self.text(file);
            self.places.insert(frame, (file, line));
        }
    }

    /// Adds to the weight of a source line of a method: that of the samples in which the line itself ran, and of those
    /// in which it ran or had called what ran. The HTML page shows these lines beside the method's callers and callees.
    ///
    /// Lines are counted apart from samples: a stack says which methods called each other, and not from where.
    ///
    /// ```
    /// # use corprof_export::{Frame, Profile, Unit};
    /// let mut profile = Profile::new("shop", Unit::Samples);
    /// let total = profile.frame(Frame::managed("Shop.Order.Total()"));
    /// profile.add_line(total, "/src/Order.cs", 41, 7, 9);
    /// ```
    pub fn add_line(&mut self, frame: FrameId, file: &str, line: u32, own: u64, total: u64) {
        let file = self.text(file);
        let weight = self.lines.entry((frame, file, line)).or_default();
        weight.own = weight.own.saturating_add(own);
        weight.total = weight.total.saturating_add(total);
    }

    fn text(&mut self, text: &str) -> u32 {
        let known = self.texts.get_index_of(text);
        number(known.unwrap_or_else(|| self.texts.insert_full(text.into()).0))
    }

    /// The stack in which `caller` has called `frame`; for a tracer, which knows the caller's stack already.
    pub fn called(&mut self, caller: StackId, frame: FrameId) -> StackId {
        let node = (caller, frame);
        if let Some(known) = self.stacks.get_index_of(&node) {
            return StackId(number(known));
        }
        let is_known = caller == StackId::EMPTY || (caller.0 as usize) < self.stacks.len();
        if self.stacks.len() >= self.stack_limit || !is_known {
            self.losses.frames_cut += 1;
            return caller;
        }
        StackId(number(self.stacks.insert_full(node).0))
    }

    /// The stack of these frames, `Main` first.
    pub fn stack_root_first(&mut self, frames: impl IntoIterator<Item = FrameId>) -> StackId {
        frames.into_iter().fold(StackId::EMPTY, |caller, frame| self.called(caller, frame))
    }

    /// The stack of these frames, innermost first, as a stack walk finds them.
    pub fn stack_leaf_first<I>(&mut self, frames: I) -> StackId
    where
        I: IntoIterator<Item = FrameId, IntoIter: DoubleEndedIterator>,
    {
        self.stack_root_first(frames.into_iter().rev())
    }

    /// A new thread, with its identifier in the system. Identifiers may come again, as the system reuses them; each
    /// call makes another thread.
    pub fn thread(&mut self, id: u32, name: impl Into<String>) -> ThreadId {
        self.threads.push(Thread { id, name: name.into(), ..Thread::default() });
        ThreadId(self.threads.len() - 1)
    }

    /// Names a thread anew: applications name a thread after it was started.
    pub fn rename_thread(&mut self, thread: ThreadId, name: impl Into<String>) {
        if let Some(thread) = self.threads.get_mut(thread.0) {
            thread.name = name.into();
        }
    }

    /// Adds a sample: `thread` was in `stack`, `at` after the start. In a summed profile the time is not kept.
    pub fn sample(&mut self, thread: ThreadId, at: Duration, stack: StackId, weight: u64) {
        if self.is_summed {
            return self.add_sum(thread, stack, 1, weight);
        }
        let Some(thread) = self.threads.get_mut(thread.0) else {
            self.losses.samples_dropped += 1;
            return;
        };
        thread.count += 1;
        thread.samples.push(Sample { at_or_count: nanoseconds(at), weight, stack });
    }

    /// Adds `count` samples of one stack, which have this weight together. A profile that keeps times has them as one
    /// sample.
    pub fn samples_of(&mut self, thread: ThreadId, at: Duration, stack: StackId, count: u64, weight: u64) {
        if self.is_summed {
            self.add_sum(thread, stack, count, weight);
        } else {
            self.sample(thread, at, stack, weight);
        }
    }

    /// Adds `count` samples to the sum of a stack, in a summed profile.
    pub(crate) fn add_sum(&mut self, thread: ThreadId, stack: StackId, count: u64, weight: u64) {
        let Some(thread) = self.threads.get_mut(thread.0) else {
            self.losses.samples_dropped += count;
            return;
        };
        thread.count += count;
        let place = *thread.of_stack.entry(stack).or_insert(thread.samples.len());
        match thread.samples.get_mut(place) {
            Some(sum) => {
                sum.at_or_count = sum.at_or_count.saturating_add(count);
                sum.weight = sum.weight.saturating_add(weight);
            }
            None => thread.samples.push(Sample { at_or_count: count, weight, stack }),
        }
    }

    /// Adds a tree of calls: for each node the place of its caller's, which comes before it, its frame, and its own
    /// weight, without its callees'.
    pub fn calls<'a>(&mut self, thread: ThreadId, nodes: impl IntoIterator<Item = (Option<usize>, Frame<'a>, u64)>) {
        let mut stacks: Vec<StackId> = Vec::new();
        for (caller, frame, weight) in nodes {
            let caller = caller.and_then(|caller| stacks.get(caller).copied()).unwrap_or(StackId::EMPTY);
            let frame = self.frame(frame);
            let stack = self.called(caller, frame);
            self.sample(thread, Duration::ZERO, stack, weight);
            stacks.push(stack);
        }
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        self.threads.iter().map(|thread| thread.count).sum()
    }

    /// The losses so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn leaf_first(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let node = |stack: StackId| self.stacks.get_index(stack.0 as usize).copied();
        std::iter::successors(node(stack), move |&(caller, _)| node(caller)).map(|(_, frame)| frame)
    }

    /// A frame; a foreign handle is a frame without a name.
    pub(crate) fn frame_of(&self, frame: FrameId) -> Frame<'_> {
        let Some(data) = self.frames.get_index(frame.0 as usize) else {
            return Frame::new(FrameKind::Native, "");
        };
        let text = |number: u32| self.texts.get_index(number as usize).map_or("", |text| text);
        let (file, line) = match (data.file, self.places.get(&frame)) {
            (None, Some(&(file, line))) => (Some(file), line),
            (file, _) => (file, data.line),
        };
        Frame { name: text(data.name), module: data.module.map(text), file: file.map(text), line, kind: data.kind }
    }

    /// The kind of a frame, as writers show it: never [`FrameKind::Managed`].
    pub(crate) fn kind_of(&self, frame: &Frame<'_>) -> FrameKind {
        let by_rule = self.kinds.as_ref().and_then(|rule| (rule.0)(frame));
        let kind = by_rule.unwrap_or(frame.kind);
        kind::of(&Frame { kind, ..*frame })
    }

    /// Whether samples have times.
    pub(crate) fn is_timed(&self) -> bool {
        !self.is_summed && self.threads.iter().any(|thread| !thread.samples.is_empty())
    }

    /// How many samples one entry stands for.
    pub(crate) fn count_of(&self, sample: &Sample) -> u64 {
        if self.is_summed { sample.at_or_count } else { 1 }
    }

    /// The samples of a thread with their times. Sums, which have none, follow each other.
    pub(crate) fn timed<'a>(&'a self, thread: &'a Thread) -> impl Iterator<Item = (u64, &'a Sample)> {
        let interval = self.interval.map_or(1_000_000, nanoseconds);
        let mut next = 0u64;
        thread.samples.iter().map(move |sample| {
            if !self.is_summed {
                return (sample.at_or_count, sample);
            }
            let at = next;
            let length = match self.unit {
                Unit::Nanoseconds => sample.weight,
                Unit::Samples => sample.weight.saturating_mul(interval),
                Unit::Bytes => sample.at_or_count.saturating_mul(interval),
            };
            next = next.saturating_add(length);
            (at, sample)
        })
    }
}

/// Numbers of things in memory fit: `u32::MAX` texts, frames or stacks would need more memory than there is.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// 584 years at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
