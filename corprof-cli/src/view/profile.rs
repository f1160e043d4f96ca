//! A picture of recordings as a profile, for all formats.

use std::time::Duration;

use corprof_export::{Frame, FrameId, FrameKind, Heat, HeatMap, Lane, Profile, StackId, ThreadId};

use rustc_hash::FxHashMap;

use crate::event_pipe_samples::LIMITS;
use crate::recording::picture::Picture;
use crate::recording::{Cells, CellsOf, Measure};

/// The profile.
pub(crate) fn of(picture: &Picture, only_mine: bool) -> Profile {
    with_frames(picture, only_mine, |_, _, _| {})
}

/// The profile. `see` gets each frame of it, with its number in the picture.
pub(crate) fn with_frames(
    picture: &Picture,
    only_mine: bool,
    mut see: impl FnMut(&mut Profile, FrameId, usize),
) -> Profile {
    let measure = picture.measure.unwrap_or(Measure::Count);
    let name = picture.name();
    // Sums keep no times; with times, each sample is there.
    let mut profile = match picture.timed {
        Some(_) => Profile::new(name, measure.unit()),
        None => Profile::summed(name, measure.unit()),
    };
    if let Some(mode) = measure.mode() {
        profile = profile.in_mode(mode);
    }
    if only_mine {
        profile = profile.only_my_code();
    }
    profile = picture.names.profile(profile);
    if let Measure::Cpu { interval: Some(interval) } = measure {
        profile = profile.with_interval(Duration::from_nanos(interval));
    }
    if let [file] = picture.files.as_slice() {
        if let Some(process) = file.process.and_then(|process| u32::try_from(process).ok()) {
            profile = profile.of_process(process);
        }
        if let Some(started) = file.started.and_then(|started| started.to_system_time()) {
            profile = profile.started_at(started);
        }
    }
    let mut builder = Builder { profile, picture, frames: Vec::new(), stacks: Vec::new(), threads: Vec::new() };
    builder.fill();
    for (number, frame) in builder.frames.iter().enumerate() {
        see(&mut builder.profile, *frame, number);
    }
    builder.lines();
    let moments = builder.moments(measure);
    let mut profile = builder.profile;
    if let Some(moments) = moments {
        profile.set_heat_map(moments);
    }
    describe(&mut profile, picture, measure);
    profile
}

struct Builder<'p> {
    profile: Profile,
    picture: &'p Picture,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    threads: Vec<Option<ThreadId>>,
}

impl Builder<'_> {
    fn fill(&mut self) {
        for frame in &self.picture.frames {
            let shown = Frame::new(frame.kind, &frame.name);
            let shown = frame.module.as_deref().map_or(shown, |module| shown.in_module(module));
            // A frame of a type has no module, by which it would be judged.
            let shown = if frame.kind == FrameKind::Generated { Frame::managed(&frame.name) } else { shown };
            let id = self.profile.frame(shown);
            self.frames.push(id);
        }
        for &(caller, frame) in &self.picture.stacks {
            let caller = self.stack(caller);
            let Some(frame) = self.frames.get(frame as usize).copied() else { continue };
            let stack = self.profile.called(caller, frame);
            self.stacks.push(stack);
        }
        self.threads = vec![None; self.picture.threads.len()];
        match &self.picture.timed {
            Some(timed) => {
                let mut timed = timed.clone();
                timed.sort_by_key(|sample| sample.at);
                timed.iter().for_each(|sample| self.sample(sample.thread, sample.at, sample.stack, 1, sample.weight));
            }
            None => {
                let mut sums: Vec<_> = self.picture.sums.iter().collect();
                sums.sort_unstable_by_key(|(place, _)| **place);
                for (&(thread, stack, _), sum) in sums {
                    self.sample(thread, Duration::ZERO, stack, sum.samples, sum.weight);
                }
            }
        }
    }

    /// The weights of lines, where frames have them.
    fn lines(&mut self) {
        if self.picture.frames.iter().all(|frame| frame.place.is_none()) {
            return;
        }
        let mut by_stack: FxHashMap<u32, u64> = FxHashMap::default();
        for ((_, stack, _), sum) in &self.picture.sums {
            let weight = by_stack.entry(*stack).or_default();
            *weight = weight.saturating_add(sum.weight);
        }
        for (stack, weight) in by_stack {
            let mut seen: Vec<u32> = Vec::new();
            for (depth, number) in self.picture.frames_of(stack).enumerate() {
                let place = self.picture.frames.get_index(number as usize).and_then(|frame| frame.place.as_ref());
                let (Some((file, line)), Some(frame)) = (place, self.frames.get(number as usize)) else { continue };
                // A line that calls itself counts once.
                let total = if seen.contains(&number) { 0 } else { weight };
                seen.push(number);
                self.profile.add_line(*frame, file, *line, if depth == 0 { weight } else { 0 }, total);
            }
        }
    }

    /// The moments, as a timeline if there are lanes.
    fn moments(&mut self, measure: Measure) -> Option<HeatMap> {
        let cells = self.picture.cells.as_ref().filter(|cells| !cells.is_full())?;
        let entries = cells.entries().iter();
        let heats = entries.filter_map(|entry| {
            let thread = self.thread(entry.thread)?;
            Some(Heat { cell: entry.cell, thread, stack: self.stack(entry.stack), weight: entry.weight })
        });
        let heats: Vec<_> = heats.collect();
        let level = cells.level();
        let Some(lanes) = &self.picture.lanes else {
            let (first, columns) = cells.columns();
            let map = HeatMap::new(level.cell, level.rows, first, columns, heats);
            return Some(map.with_levels(cells.longer()));
        };
        let weights = |cells: &Cells| -> Vec<(u32, u64)> {
            cells.entries().iter().map(|entry| (entry.cell, entry.weight)).collect()
        };
        let (collections, exceptions, locks) =
            (weights(&lanes.collections), weights(&lanes.exceptions), weights(&lanes.locks));
        let mut lanes = Vec::new();
        if !collections.is_empty() {
            lanes.push(Lane::timed("stood still for collections", collections));
        }
        if !exceptions.is_empty() {
            lanes.push(Lane::counted("exceptions thrown", exceptions));
        }
        if !locks.is_empty() {
            lanes.push(Lane::timed("waited for locks", locks));
        }
        let (first, count) = cells.span();
        Some(HeatMap::new(level.cell, 1, first, count, heats).as_timeline(measure.title(), lanes))
    }

    fn stack(&self, stack: u32) -> StackId {
        self.stacks.get(stack as usize).copied().unwrap_or(StackId::EMPTY)
    }

    fn sample(&mut self, thread: u32, at: Duration, stack: u32, samples: u64, weight: u64) {
        let stack = self.stack(stack);
        let Some(thread) = self.thread(thread) else { return };
        self.profile.samples_of(thread, at, stack, samples, weight);
    }

    fn thread(&mut self, number: u32) -> Option<ThreadId> {
        // A heat map does not tell threads apart.
        let is_merged = self.picture.cells.as_ref().is_some_and(|cells| cells.of() == CellsOf::Stacks);
        let number = if is_merged { 0 } else { number };
        let known = self.threads.get_mut(number as usize)?;
        if known.is_none() {
            let thread = self.picture.threads.get(number as usize)?;
            if is_merged {
                *known = Some(self.profile.thread(0, "all threads"));
                return *known;
            }
            let id = thread.id.and_then(|id| u32::try_from(id).ok()).unwrap_or_default();
            *known = Some(self.profile.thread(id, thread.name.clone().unwrap_or_default()));
        }
        *known
    }
}

fn describe(profile: &mut Profile, picture: &Picture, measure: Measure) {
    profile.set_duration(picture.files.iter().map(|file| file.looked_at).sum());
    profile.set_skipped("events that were lost", picture.files.iter().map(|file| file.lost).sum());
    if measure == Measure::Round {
        profile.note(format!("Samples {LIMITS}."));
    }
    for file in &picture.files {
        if file.cut_at.is_some() {
            profile.warn(format!("{} ends in the middle: what came after is missing.", file.path.display()));
        }
    }
    profile.set_skipped("damaged lines", picture.files.iter().map(|file| file.damaged).sum());
    let cut = picture.files.iter().map(|file| file.stacks_cut).sum();
    profile.set_skipped("frames, as there were too many distinct stacks", cut);
}
