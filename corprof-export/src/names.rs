//! The names of a profile's frames, as files of data have them.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::label::{self, Machine};
use crate::{FrameId, FrameKind, Profile};

/// Bytes of a name that a label is made of; no screen is as wide.
const LONGEST_NAME: usize = 2_000;

/// The names: in the words of the source, or as the runtime has them.
pub(crate) struct Names<'p> {
    profile: &'p Profile,
    machines: FxHashMap<FrameId, Machine>,
}

impl<'p> Names<'p> {
    pub(crate) fn of(profile: &'p Profile) -> Self {
        let machines = if profile.has_raw_names { FxHashMap::default() } else { machines(profile) };
        Self { profile, machines }
    }

    pub(crate) fn name(&self, id: FrameId) -> Cow<'p, str> {
        let frame = self.profile.frame_of(id);
        let is_managed = !matches!(frame.kind, FrameKind::Native | FrameKind::Runtime);
        // A name that is longer than anybody reads is not worth the work.
        if self.profile.has_raw_names || !is_managed || frame.name.len() > LONGEST_NAME {
            return Cow::Borrowed(frame.name);
        }
        Cow::Owned(label::full(frame.name, self.machines.get(&id).copied().unwrap_or(Machine::Async)))
    }
}

/// The source constructs behind state machines, as their callers tell them.
pub(crate) fn machines(profile: &Profile) -> FxHashMap<FrameId, Machine> {
    let frames = (0u32..).map(FrameId).take(profile.frames.len());
    let sources: FxHashMap<FrameId, String> =
        frames.filter_map(|id| Some((id, label::state_machine(profile.frame_of(id).name)?))).collect();
    let mut machines = FxHashMap::default();
    for &(caller, frame) in &profile.stacks {
        let Some(source) = sources.get(&frame) else { continue };
        let caller = profile.stacks.get_index(caller.0 as usize).map(|&(_, frame)| profile.frame_of(frame).name);
        let found = Machine::of(source, caller);
        // One caller that gives it away is enough; that of an iterator says less than that of an async method.
        let known = machines.entry(frame).or_insert(found);
        if *known == Machine::Iterator {
            *known = found;
        }
    }
    machines
}

/// The beginning of a name, as much as anybody reads.
pub(crate) fn clipped(name: &str) -> &str {
    let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    name.get(..end).unwrap_or(name)
}
