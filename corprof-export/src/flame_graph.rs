//! Flame graphs, drawn by inferno.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use crate::{Profile, StackId, Unit, folded};

/// Levels that are drawn; each is 16 pixels high.
const DEEPEST: u32 = 1_000;
/// A frame narrower than this share of the whole is less than a fifth of a pixel on most screens, and inferno would
/// leave it out.
const NARROWEST: u64 = 10_000;
/// Whole numbers up to here are exact in the arithmetic of inferno and of browsers.
const LARGEST_TOTAL: u128 = 1 << 53;

const EMPTY: &str = r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="60" viewBox="0 0 1200 60">
<rect width="100%" height="100%" fill="#f8f8f8"/>
<text x="600" y="36" text-anchor="middle" font-family="monospace" font-size="16">No samples</text>
</svg>
"##;

pub(crate) fn write(profile: &Profile, mut writer: impl Write) -> io::Result<()> {
    let (lines, factor) = lines(profile);
    if lines.is_empty() {
        return writer.write_all(EMPTY.as_bytes()).and_then(|()| writer.flush());
    }
    let mut options = Options::default();
    options.title =
        profile.name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    // The same function has the same colour in every graph.
    options.deterministic = true;
    (options.count_name, options.factor) = match profile.unit {
        Unit::Samples => ("samples".into(), factor),
        Unit::Nanoseconds => ("µs".into(), factor / 1000.0),
        Unit::Bytes => ("bytes".into(), factor),
    };
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut writer)?;
    writer.flush()
}

/// Folded stacks of what can be seen, and what to multiply their weights by.
fn lines(profile: &Profile) -> (Vec<String>, f64) {
    let sums = folded::sums(profile);
    let total: u128 = sums.values().map(|&weight| u128::from(weight)).sum();
    let shift = (0..128).find(|shift| total >> shift <= LARGEST_TOTAL).unwrap_or(0);
    let narrowest = total / u128::from(NARROWEST);

    // A callee's number is greater than its caller's, so one pass backwards adds up what each stack includes, and moves
    // what is too narrow or too deep to its caller.
    let callers: Vec<StackId> = profile.stacks.iter().map(|&(caller, _)| caller).collect();
    let mut depths: Vec<u32> = Vec::with_capacity(callers.len());
    for caller in &callers {
        depths.push(depths.get(caller.0 as usize).map_or(1, |depth: &u32| depth.saturating_add(1)));
    }
    let mut own: Vec<u128> = vec![0; callers.len()];
    let mut without = 0u128;
    for (stack, weight) in sums {
        match own.get_mut(stack.0 as usize) {
            Some(own) => *own += u128::from(weight),
            None => without += u128::from(weight),
        }
    }
    let mut inclusive = own.clone();
    let mut cut: Vec<u128> = vec![0; callers.len()];
    for index in (0..callers.len()).rev() {
        let (Some(&caller), Some(&depth)) = (callers.get(index), depths.get(index)) else { continue };
        let (all, below) = (at(&inclusive, index), at(&cut, index));
        let caller = caller.0 as usize;
        if let Some(sum) = inclusive.get_mut(caller) {
            *sum += all;
            if depth > DEEPEST {
                set(&mut cut, caller, |sum| *sum += all);
                set(&mut own, index, |sum| *sum = 0);
                set(&mut cut, index, |sum| *sum = 0);
            } else if all < narrowest {
                let moved = at(&own, index) + below;
                set(&mut own, caller, |sum| *sum += moved);
                set(&mut own, index, |sum| *sum = 0);
                set(&mut cut, index, |sum| *sum = 0);
            }
        }
    }

    let mut lines = Vec::new();
    let mut add = |stack: StackId, leaf: &str, weight: u128| {
        let weight = weight >> shift;
        if weight > 0 {
            let mut line = String::new();
            folded::write_stack(profile, stack, &mut line);
            lines.push(format!("{line}{leaf} {weight}"));
        }
    };
    add(StackId::EMPTY, "", without);
    for ((index, &own), &cut) in (0u32..).zip(&own).zip(&cut) {
        add(StackId(index), "", own);
        add(StackId(index), ";[deeper]", cut);
    }
    (lines, (1u128 << shift) as f64)
}

fn at(sums: &[u128], index: usize) -> u128 {
    sums.get(index).copied().unwrap_or(0)
}

fn set(sums: &mut [u128], index: usize, change: impl FnOnce(&mut u128)) {
    if let Some(sum) = sums.get_mut(index) {
        change(sum);
    }
}
