//! Folded stacks: `root;caller;leaf WEIGHT`, a line for each stack.

use std::borrow::Cow;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::names::Names;
use crate::{FrameId, Profile, StackId};

/// Stands for a stack without frames, and for a name without letters.
const NO_FRAMES: &str = "[no frames]";
const NO_NAME: &str = "[no name]";

pub(crate) fn write(profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    let mut sums: Vec<_> = sums(profile).into_iter().collect();
    sums.sort_unstable();
    let names = Names::of(profile);
    let mut line = String::new();
    for (stack, weight) in sums {
        line.clear();
        write_stack(profile, &names, stack, &mut line);
        writeln!(writer, "{line} {weight}")?;
    }
    writer.flush()
}

/// The weight of each stack over all threads; those of no weight are left out.
pub(crate) fn sums(profile: &Profile) -> FxHashMap<StackId, u64> {
    let mut sums = FxHashMap::default();
    let samples = profile.threads.iter().flat_map(|thread| &thread.samples);
    for sample in samples.filter(|sample| sample.weight > 0) {
        let sum: &mut u64 = sums.entry(sample.stack).or_default();
        *sum = sum.saturating_add(sample.weight);
    }
    sums
}

/// Appends the names of a stack, root first.
fn write_stack(profile: &Profile, names: &Names<'_>, stack: StackId, line: &mut String) {
    let frames: Vec<FrameId> = profile.leaf_first(stack).collect();
    if frames.is_empty() {
        line.push_str(NO_FRAMES);
    }
    for (depth, &frame) in frames.iter().rev().enumerate() {
        if depth > 0 {
            line.push(';');
        }
        line.push_str(&label(&names.name(frame)));
    }
}

/// A name without characters that end it, end the line, or are invalid in XML. Readers take a number after a blank for
/// a weight, and a line that begins with a hash and a blank for a comment.
pub(crate) fn label(name: &str) -> Cow<'_, str> {
    let is_bad = |c: char| c == ';' || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}');
    let replaced = |c: char| match c {
        ';' => ':',
        c if is_bad(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    let trimmed = name.trim();
    if trimmed.is_empty() {
        return Cow::Borrowed(NO_NAME);
    }
    let mut label = if trimmed.contains(is_bad) {
        Cow::Owned(trimmed.chars().map(replaced).collect::<String>())
    } else {
        Cow::Borrowed(trimmed)
    };
    let is_weight = |last: &str| last.chars().all(|c| c.is_ascii_digit() || c == '.');
    if label.rsplit_once(' ').is_some_and(|(_, last)| is_weight(last)) {
        label = Cow::Owned(label.replace(' ', "_"));
    }
    if label == "#" || label.starts_with("# ") {
        label = Cow::Owned(format!("_{label}"));
    }
    label
}
