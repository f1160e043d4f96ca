//! Folded stacks, split as flamegraph.pl splits them.

use std::collections::BTreeMap;
use std::time::Duration;

use corprof_export::{Format, Frame, Profile, Unit};
use proptest::prelude::*;

use crate::shapes;

/// Stacks and weights: the weight follows the last blank.
pub(crate) fn parse(text: &str) -> BTreeMap<Vec<String>, u64> {
    let mut stacks = BTreeMap::new();
    for line in text.split_terminator('\n') {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let frames = stack.split(';').map(str::to_owned).collect();
        assert_eq!(stacks.insert(frames, weight.parse().unwrap()), None, "{line}");
    }
    stacks
}

#[test]
fn each_stack_has_its_sum_over_all_threads() {
    let text = shapes::text(&shapes::shop(Unit::Samples), Format::Folded);
    let expected =
        "Shop.Main() 1\nShop.Main();Shop.Work<T>(int32, \"x\") 7\nShop.Main();Shop.Work<T>(int32, \"x\");read 2\n";
    assert_eq!(text, expected);
}

#[test]
fn a_summed_profile_says_the_same() {
    let summed = shapes::fill(Profile::summed("shop", Unit::Samples));
    assert_eq!(shapes::text(&summed, Format::Folded), shapes::text(&shapes::shop(Unit::Samples), Format::Folded));
}

#[test]
fn past_the_limit_stacks_are_cut_at_the_deepest_known_frame() {
    let profile = shapes::fill(Profile::new("shop", Unit::Samples).with_stack_limit(2));
    assert_eq!(profile.losses().frames_cut, 1);
    let stacks = parse(&shapes::text(&profile, Format::Folded));
    assert_eq!(stacks.into_values().collect::<Vec<_>>(), [1, 9]);
}

proptest! {
    #[test]
    fn whatever_the_names_no_weight_gets_lost(
        stacks in prop::collection::vec((prop::collection::vec("\\PC{0,6}|[ ;\\n0-9#.]{0,4}", 0..6), 0u64..1000), 0..20)
    ) {
        let mut profile = Profile::new("any", Unit::Samples);
        let thread = profile.thread(1, "t");
        for (names, weight) in &stacks {
            let frames: Vec<_> = names.iter().map(|name| profile.frame(Frame::managed(name))).collect();
            let stack = profile.stack_root_first(frames);
            profile.sample(thread, Duration::ZERO, stack, *weight);
        }
        let text = shapes::text(&profile, Format::Folded);
        let mut total = 0;
        for line in text.split_terminator('\n') {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            let frames: Vec<_> = stack.split(';').collect();
            prop_assert!(frames.iter().all(|frame| !frame.trim().is_empty()), "{line:?}");
            prop_assert!(!stack.starts_with("# "), "{line:?}");
            total += weight.parse::<u64>().unwrap();
        }
        prop_assert_eq!(total, stacks.iter().map(|(_, weight)| weight).sum::<u64>());
        let svg = shapes::text(&profile, Format::FlameGraph).replace(',', "");
        let expected = if total == 0 { "No samples".to_owned() } else { format!("<title>all ({total} samples 100.00%)") };
        prop_assert!(svg.contains(&expected), "{expected}: {text}");
    }
}
