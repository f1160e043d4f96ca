//! Which samples of a picture are left, by the frames on their stacks.

use globset::GlobMatcher;

use super::picture::Picture;

/// Globs of frames.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Only stacks with a frame of each of these.
    pub(crate) include: Vec<GlobMatcher>,
    /// No stack with a frame of one of these.
    pub(crate) exclude: Vec<GlobMatcher>,
}

impl Selection {
    /// Removes the samples that are not selected.
    pub(crate) fn apply(&self, picture: &mut Picture) {
        if self.include.is_empty() && self.exclude.is_empty() {
            return;
        }
        let shown = picture.shown_names();
        // Per glob and stack: whether the stack has a frame of the glob, by the name that is shown or by the runtime's.
        let has = |glob: &GlobMatcher| {
            let frames: Vec<bool> = picture
                .frames
                .iter()
                .zip(&shown)
                .map(|(frame, name)| glob.is_match(name) || glob.is_match(&frame.name))
                .collect();
            let mut stacks: Vec<bool> = Vec::with_capacity(picture.stacks.len());
            for &(caller, frame) in &picture.stacks {
                let by_caller = stacks.get(caller as usize).copied().unwrap_or(false);
                stacks.push(by_caller || frames.get(frame as usize).copied().unwrap_or(false));
            }
            stacks
        };
        let include: Vec<_> = self.include.iter().map(has).collect();
        let exclude: Vec<_> = self.exclude.iter().map(has).collect();
        let is_in = |stacks: &Vec<bool>, stack: u32| stacks.get(stack as usize).copied().unwrap_or(false);
        let is_left = |stack: u32| {
            include.iter().all(|stacks| is_in(stacks, stack)) && !exclude.iter().any(|stacks| is_in(stacks, stack))
        };
        picture.sums.retain(|(_, stack, _), _| is_left(*stack));
        if let Some(timed) = &mut picture.timed {
            timed.retain(|sample| is_left(sample.stack));
        }
        if let Some(cells) = &mut picture.cells {
            cells.retain(is_left);
        }
    }
}
