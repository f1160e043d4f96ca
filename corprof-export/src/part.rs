//! Parts of a profile: what was sampled since the last part, to send away in intervals.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profile::{Sample, Thread};
use crate::{FrameId, Profile, StackId};

impl Profile {
    /// The samples that were added since the last call, or since the beginning, as a profile of their own: sums for
    /// each thread and stack, with only the names, frames and stacks that they need. The sum of all parts is the whole.
    ///
    /// Handles stay good. A profile with times ([`new`](Self::new)) keeps its samples, so that it can be written as a
    /// whole as well. From a [summed](Self::summed) profile the samples move into the part: its memory then depends on
    /// its names and stacks only.
    ///
    /// The part has the name, unit, interval, process and mode of the profile. Its beginning is unknown until
    /// [`started_at`](Self::started_at), its duration until [`set_duration`](Self::set_duration); the descriptions of
    /// the whole, such as [`set_skipped`](Self::set_skipped), stay with the whole.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use corprof_export::{Frame, Profile, Unit};
    /// let mut profile = Profile::summed("shop", Unit::Nanoseconds);
    /// let main = profile.frame(Frame::managed("Shop.Main()"));
    /// let stack = profile.stack_root_first([main]);
    /// let thread = profile.thread(4711, "main");
    /// profile.sample(thread, Duration::ZERO, stack, 10);
    /// assert_eq!(profile.take_part().samples(), 1);
    /// assert_eq!(profile.take_part().samples(), 0);
    /// ```
    #[must_use]
    pub fn take_part(&mut self) -> Self {
        let mut part = Self::summed(self.name.clone(), self.unit);
        part.process = self.process;
        part.interval = self.interval;
        part.about.mode = self.about.mode;
        part.is_only_my_code = self.is_only_my_code;
        part.has_raw_names = self.has_raw_names;
        part.kinds = self.kinds.as_ref().map(Arc::clone);
        let mut copies = Copies::default();
        for index in 0..self.threads.len() {
            let Some(thread) = self.threads.get_mut(index) else { break };
            let new: Vec<Sample> = thread.samples.get(thread.taken..).unwrap_or_default().to_vec();
            if self.is_summed {
                thread.forget();
            } else {
                thread.taken = thread.samples.len();
            }
            let Some(thread) = self.threads.get(index).filter(|_| !new.is_empty()) else { continue };
            let id = part.thread(thread.id, thread.name.clone());
            for sample in new {
                let stack = copies.stack(self, &mut part, sample.stack);
                part.add_sum(id, stack, self.count_of(&sample), sample.weight);
            }
        }
        part
    }
}

impl Thread {
    /// Drops the sums.
    fn forget(&mut self) {
        self.samples.clear();
        self.of_stack.clear();
        self.count = 0;
    }
}

/// The frames and stacks of the part, by those of the whole.
#[derive(Default)]
struct Copies {
    frames: FxHashMap<FrameId, FrameId>,
    stacks: FxHashMap<StackId, StackId>,
}

impl Copies {
    fn stack(&mut self, whole: &Profile, part: &mut Profile, stack: StackId) -> StackId {
        // A loop and not a recursion: stacks are deep.
        let mut missing = Vec::new();
        let mut known = stack;
        let mut copy = loop {
            if let Some(copy) = self.stacks.get(&known) {
                break *copy;
            }
            let Some((caller, frame)) = whole.stacks.get_index(known.0 as usize).copied() else { break StackId::EMPTY };
            missing.push((known, frame));
            known = caller;
        };
        for (stack, frame) in missing.into_iter().rev() {
            let frame = *self.frames.entry(frame).or_insert_with(|| part.frame(whole.frame_of(frame)));
            copy = part.called(copy, frame);
            self.stacks.insert(stack, copy);
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::{Format, Frame, Profile, Unit};

    /// The lines of the folded stacks, with their weights.
    fn folded(profile: &Profile) -> BTreeMap<String, u64> {
        let mut bytes = Vec::new();
        profile.write_to(Format::Folded, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(line, sum)| (line.to_owned(), sum.parse().unwrap()))
            .collect()
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        for mut profile in [Profile::new("shop", Unit::Nanoseconds), Profile::summed("shop", Unit::Nanoseconds)] {
            let frames: Vec<_> = (0..10).map(|number| profile.frame(Frame::managed(&format!("M{number}()")))).collect();
            let threads = [profile.thread(1, "one"), profile.thread(2, "two")];
            let mut whole: BTreeMap<String, u64> = BTreeMap::new();
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            let mut parts = Vec::new();
            for round in 0..30_usize {
                let stack = profile.stack_root_first(frames[..=round % 7].iter().copied());
                profile.sample(threads[round % 2], Duration::from_millis(round as u64), stack, round as u64 + 1);
                let names: Vec<_> = (0..=round % 7).map(|number| format!("M{number}()")).collect();
                *expected.entry(names.join(";")).or_default() += round as u64 + 1;
                if round % 10 == 9 {
                    parts.push(profile.take_part());
                }
            }
            assert_eq!(parts.iter().map(Profile::samples).collect::<Vec<_>>(), [10, 10, 10]);
            for part in &parts {
                assert_eq!(part.name, "shop");
                // Only what is needed: the frames M7 to M9 are on no stack.
                assert_eq!((part.frames.len(), part.threads.len()), (7, 2));
                for (stack, sum) in folded(part) {
                    *whole.entry(stack).or_default() += sum;
                }
            }
            assert_eq!(whole, expected);
            assert_eq!(profile.take_part().samples(), 0);
        }
    }

    #[test]
    fn a_summed_profile_forgets_and_one_with_times_keeps() {
        for (mut profile, kept) in [(Profile::summed("a", Unit::Samples), 1), (Profile::new("a", Unit::Samples), 2)] {
            let frame = profile.frame(Frame::managed("M()"));
            let stack = profile.stack_root_first([frame]);
            let thread = profile.thread(1, "");
            profile.sample(thread, Duration::ZERO, stack, 3);
            assert_eq!(profile.take_part().samples(), 1);
            profile.sample(thread, Duration::ZERO, stack, 4);
            assert_eq!(profile.samples(), kept);
            let part = profile.take_part();
            assert_eq!((part.samples(), part.threads[0].samples[0].weight), (1, 4));
        }
    }

    #[test]
    fn places_and_kinds_go_along() {
        let mut profile = Profile::new("a", Unit::Samples).with_kinds(|_| Some(crate::FrameKind::Runtime));
        let frame = profile.frame(Frame::managed("M()").in_module("/app/a.dll"));
        profile.place(frame, "a.cs", 7);
        let stack = profile.stack_root_first([frame]);
        let thread = profile.thread(1, "");
        profile.sample(thread, Duration::ZERO, stack, 1);
        let part = profile.take_part();
        let copy = part.frame_of(crate::FrameId(0));
        assert_eq!((copy.name, copy.module, copy.file, copy.line), ("M()", Some("/app/a.dll"), Some("a.cs"), 7));
        assert_eq!(part.kind_of(&copy), crate::FrameKind::Runtime);
    }
}
