//! The samples of one or more recordings, with names.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, bail};
use corprof_export::{FrameKind, SourceLines};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::stacks::{Code, EMPTY};
use super::{
    Cells, Facts, Frame, Gathered, Lanes, Measure, Options, Origin, Samples, Sum, Thread, Timed, joined, read,
};
use crate::event_pipe_samples::{MISSING, UNKNOWN, is_of_the_runtime};
use crate::options::Names;

/// The stack without frames.
pub(crate) const NO_FRAMES: u32 = EMPTY;

/// Samples with names.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(crate) files: Vec<Facts>,
    /// What the samples are. None: there are none.
    pub(crate) measure: Option<Measure>,
    pub(crate) frames: IndexSet<Frame, FxBuildHasher>,
    /// The caller's stack and the frame. A caller's number is less than its callees'.
    pub(crate) stacks: IndexSet<(u32, u32), FxBuildHasher>,
    pub(crate) threads: Vec<Thread>,
    /// Values of the label that sums are kept apart by.
    pub(crate) groups: IndexSet<String, FxBuildHasher>,
    /// By thread, stack and group.
    pub(crate) sums: FxHashMap<(u32, u32, u32), Sum>,
    /// Whether frames by which the runtime calls managed code and stops threads are on stacks.
    pub(crate) has_runtime_frames: bool,
    /// How methods are spelt where they are shown.
    pub(crate) names: Names,
    /// How state machines are shown that another picture has as well, by their names.
    pub(crate) agreed: FxHashMap<String, String>,
    /// None if times were not asked for, or there are too many samples.
    pub(crate) timed: Option<Vec<Timed>>,
    /// None if they were not asked for, or there are several files that are not joined.
    pub(crate) cells: Option<Cells>,
    /// None if they were not asked for, or there are several files.
    pub(crate) lanes: Option<Lanes>,
}

impl Picture {
    /// Reads files. With `with_lines`, code of different lines of a method are different frames.
    ///
    /// # Errors
    /// If one cannot be read, or they have samples of different kinds.
    pub(crate) fn read(paths: &[impl AsRef<Path>], options: &Options, with_lines: bool) -> Result<Self> {
        let mut picture = Self {
            has_runtime_frames: options.has_runtime_frames,
            names: options.names,
            timed: options.is_timed.then(Vec::new),
            ..Self::default()
        };
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        let files: Vec<(&Path, Option<Origin>)> = if options.is_joined && paths.len() > 1 {
            joined(&paths, options)?.into_iter().map(|(path, origin)| (path, Some(origin))).collect()
        } else {
            paths.into_iter().map(|path| (path, None)).collect()
        };
        for (path, origin) in files {
            let Some(gathered) = read(path, options, origin.as_ref())? else { continue };
            if let (Some(one), Some(other)) = (picture.measure, gathered.measure)
                && one.unit() != other.unit()
            {
                bail!(
                    "{} has events of another kind than the files before: name those that all have, by --event",
                    path.display()
                );
            }
            picture.add(gathered, with_lines, origin.is_some());
        }
        Ok(picture)
    }

    fn add(&mut self, gathered: Gathered, with_lines: bool, is_joined: bool) {
        let Gathered { facts, measure, threads, samples, lanes } = gathered;
        self.measure = self.measure.or(measure);
        let first_thread = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let mut lines = with_lines.then(SourceLines::new);
        let frames: Vec<Option<u32>> =
            samples.stacks.codes().map(|code| self.frame(&samples, code, lines.as_mut())).collect();
        let mut stacks: Vec<u32> = Vec::new();
        for (caller, code) in samples.stacks.paths() {
            let caller = stacks.get(caller as usize).copied().unwrap_or(NO_FRAMES);
            let frame = frames.get(code as usize).copied().flatten();
            stacks.push(match frame {
                Some(frame) => number(self.stacks.insert_full((caller, frame)).0),
                // A frame of the runtime's own.
                None => caller,
            });
        }
        drop(samples.stacks);
        let stack_of = |path: u32| stacks.get(path as usize).copied().unwrap_or(NO_FRAMES);
        let groups: Vec<u32> =
            samples.groups.iter().map(|group| number(self.groups.insert_full(group.clone()).0)).collect();
        for ((thread, path, group), sum) in samples.sums {
            let group = groups.get(group as usize).copied().unwrap_or_default();
            self.sums.entry((first_thread + thread, stack_of(path), group)).or_default().add(sum);
        }
        self.timed = match (self.timed.take(), samples.timed) {
            (Some(mut all), Some(timed)) => {
                all.extend(timed.into_iter().map(|sample| Timed {
                    thread: first_thread + sample.thread,
                    stack: stack_of(sample.stack),
                    ..sample
                }));
                Some(all)
            }
            _ => None,
        };
        let cells = samples.cells.map(|mut cells| {
            cells.renumber(stack_of);
            cells
        });
        self.cells = match (self.cells.take(), cells) {
            (None, cells) if self.files.is_empty() => cells,
            (Some(mut all), Some(cells)) if is_joined => {
                all.join(cells);
                Some(all)
            }
            _ => None,
        };
        self.lanes = lanes.filter(|_| self.files.is_empty());
        self.align();
        self.threads.extend(threads);
        self.files.push(facts);
    }

    /// The number of a frame. None for those that are not shown.
    fn frame(&mut self, samples: &Samples, code: Code, lines: Option<&mut SourceLines>) -> Option<u32> {
        let frame = match code {
            Code::At { process, address, ticks } => match samples.symbols.get(&process) {
                Some(symbols) => symbols.frame(address, ticks, lines),
                None => Frame::new(UNKNOWN, FrameKind::Native),
            },
            Code::Type(number) => {
                let name = samples.types.get_index(number as usize).map_or("", String::as_str);
                Frame::new(name, FrameKind::Generated)
            }
            Code::Named(number) => match samples.frames.get_index(number as usize) {
                Some(frame) => frame.clone(),
                None => Frame::new(UNKNOWN, FrameKind::Native),
            },
            Code::Missing => Frame::new(MISSING, FrameKind::Native),
        };
        let is_hidden = frame.kind == FrameKind::Managed && is_of_the_runtime(&frame.name);
        (!is_hidden || self.has_runtime_frames).then(|| number(self.frames.insert_full(frame).0))
    }

    /// The name that is shown of each frame. Who calls a state machine tells whether it is an iterator; one caller of
    /// an async method is enough.
    pub(crate) fn shown_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.frames.iter().map(|frame| self.shown_name(frame, None)).collect();
        if self.names.raw_names {
            return names;
        }
        let mut is_async: FxHashMap<u32, bool> = FxHashMap::default();
        for &(caller, number) in &self.stacks {
            let caller = self.stacks.get_index(caller as usize).map(|&(_, frame)| frame);
            let caller = caller.and_then(|caller| self.frames.get_index(caller as usize));
            let (Some(caller), Some(frame)) = (caller, self.frames.get_index(number as usize)) else { continue };
            if !frame.name.contains("MoveNext(") || is_async.get(&number) == Some(&true) {
                continue;
            }
            let shown = self.shown_name(frame, Some(&caller.name));
            is_async.insert(number, !shown.ends_with(" (iterator)"));
            if let Some(name) = names.get_mut(number as usize) {
                *name = shown;
            }
        }
        for (name, frame) in names.iter_mut().zip(&self.frames) {
            if let Some(agreed) = self.agreed.get(&*frame.name) {
                name.clone_from(agreed);
            }
        }
        names
    }

    /// Has both pictures show a state machine by one name, though it may have had other callers in the other one.
    pub(crate) fn agree(pictures: [&mut Self; 2]) {
        // One caller of an async method is enough.
        let rank = |shown: &str| match shown {
            _ if shown.ends_with(" (async)") || shown.ends_with(" (async iterator)") => 2,
            _ if shown.ends_with(" (iterator)") => 1,
            _ => 0,
        };
        let mut agreed: FxHashMap<String, String> = FxHashMap::default();
        for picture in &pictures {
            for (frame, shown) in picture.frames.iter().zip(picture.shown_names()) {
                if !frame.name.contains("MoveNext(") {
                    continue;
                }
                let best = agreed.entry(frame.name.to_string()).or_default();
                if best.is_empty() || rank(&shown) > rank(best) {
                    *best = shown;
                }
            }
        }
        let [one, other] = pictures;
        one.agreed.clone_from(&agreed);
        other.agreed = agreed;
    }

    fn shown_name(&self, frame: &Frame, caller: Option<&str>) -> String {
        match frame.kind {
            FrameKind::Managed => self.names.method(&frame.name, caller),
            _ => frame.name.clone(),
        }
    }

    /// Takes longer cells. Answers whether there are any.
    pub(crate) fn coarsen(&mut self) -> bool {
        let is_done = self.cells.as_mut().is_some_and(Cells::coarsen);
        self.align();
        is_done
    }

    /// Has cells and lanes of one length.
    fn align(&mut self) {
        if let (Some(cells), Some(lanes)) = (&mut self.cells, &mut self.lanes) {
            lanes.align(cells);
        }
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames_of(&self, stack: u32) -> impl Iterator<Item = u32> + '_ {
        let node = |stack: u32| self.stacks.get_index(stack as usize).copied();
        std::iter::successors(node(stack), move |&(caller, _)| node(caller)).map(|(_, frame)| frame)
    }

    /// The sum of all samples.
    pub(crate) fn total(&self) -> Sum {
        let mut total = Sum::default();
        self.sums.values().for_each(|sum| total.add(*sum));
        total
    }

    /// The name of the process that the recordings are of: that of its file if they do not say it.
    pub(crate) fn name(&self) -> String {
        let Some(file) = self.files.first() else { return "recording".to_owned() };
        let processes: HashMap<_, _> = self.files.iter().flat_map(|file| &file.processes).collect();
        if let ([(_, name)], 1) = (processes.iter().collect::<Vec<_>>().as_slice(), self.files.len()) {
            return (**name).clone();
        }
        file.path.file_stem().map_or_else(|| "recording".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
