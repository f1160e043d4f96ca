//! The methods in which the most weight is.

use std::collections::HashMap;

use crate::Profile;
use crate::view::{self, Item, View};

impl Profile {
    /// The methods that have the most weight themselves, without what they call, the first ones of the page's table:
    /// each with its share of the whole, from 0 to 1, and the label that pictures show. At most `most`, and none with
    /// less than a hundredth.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<(f64, String)> {
        const LEAST: f64 = 0.01;
        let looks = view::looks(self);
        let view = View::new(self, &looks);
        let mut own: Vec<u128> = view.nodes.iter().map(|node| node.total).collect();
        for node in &view.nodes {
            if let Some(caller) = node.caller.and_then(|caller| own.get_mut(caller)) {
                *caller = caller.saturating_sub(node.total);
            }
        }
        let mut sums: HashMap<&str, u128> = HashMap::new();
        for (node, own) in view.nodes.iter().zip(&own) {
            let Item::Frame(frame) = node.item else { continue };
            if let Some(look) = looks.get(frame.0 as usize) {
                *sums.entry(&look.label).or_default() += own;
            }
        }
        let share = |(label, weight): (&str, u128)| (weight as f64 / view.total as f64, label.to_owned());
        let mut shares: Vec<(f64, String)> = sums.into_iter().map(share).filter(|(share, _)| *share >= LEAST).collect();
        shares.sort_by(|(a, name), (b, other)| b.total_cmp(a).then_with(|| name.cmp(other)));
        shares.truncate(most);
        shares
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Frame, Profile, Unit};

    #[test]
    fn methods_are_ordered_by_what_they_have_themselves() {
        let mut profile = Profile::new("app", Unit::Samples);
        let thread = profile.thread(1, "");
        let [main, busy, rare] = ["Shop.App.Main()", "Shop.App.Busy(int)", "Shop.App.Rare()"]
            .map(|name| profile.frame(Frame::managed(name)));
        for (frames, weight) in
            [(vec![main], 30), (vec![main, busy], 50), (vec![main, busy, busy], 15), (vec![rare], 5)]
        {
            let stack = profile.stack_root_first(frames);
            profile.sample(thread, Duration::ZERO, stack, weight);
        }
        let shown = |most| {
            let shown = |(share, label): (f64, String)| format!("{:.0} {label}", 100.0 * share);
            profile.busiest(most).into_iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(shown(9), ["65 App.Busy", "30 App.Main", "5 App.Rare"]);
        assert_eq!(shown(1), ["65 App.Busy"]);
        assert!(Profile::new("none", Unit::Samples).busiest(5).is_empty());
    }
}
