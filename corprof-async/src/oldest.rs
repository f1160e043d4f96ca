//! Forgets what is oldest, where there is too much.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Forgets half of the entries, of which those with the oldest times. Answers with how many.
pub(crate) fn forget_half<K: Eq + Hash, V, S: BuildHasher>(
    entries: &mut HashMap<K, V, S>,
    time: impl Fn(&V) -> u64,
) -> usize {
    let mut times: Vec<u64> = entries.values().map(&time).collect();
    if times.is_empty() {
        return 0;
    }
    let last = (times.len() - 1) / 2;
    let (older, youngest, _) = times.select_nth_unstable(last);
    let youngest = *youngest;
    // Several may have the time of the youngest that goes.
    let mut left = last + 1 - older.iter().filter(|time| **time < youngest).count();
    entries.retain(|_, entry| {
        let time = time(entry);
        let is_one_of_several = time == youngest && left > 0;
        left -= usize::from(is_one_of_several);
        time > youngest || time == youngest && !is_one_of_several
    });
    times.len() - entries.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_half_goes_also_if_all_have_one_time() {
        let mut entries: HashMap<u64, u64> = (0..10).map(|number| (number, number)).collect();
        assert_eq!(forget_half(&mut entries, |time| *time), 5);
        assert!((5..10).all(|number| entries.contains_key(&number)), "{entries:?}");
        entries.extend([(1, 1), (2, 7), (3, 7)]);
        forget_half(&mut entries, |time| *time);
        assert!(entries.len() == 4 && !entries.contains_key(&1) && !entries.contains_key(&5), "{entries:?}");
        let mut entries: HashMap<u64, u64> = (0..10).map(|number| (number, 7)).collect();
        assert_eq!((forget_half(&mut entries, |time| *time), entries.len()), (5, 5));
        assert_eq!(forget_half(&mut HashMap::<u64, u64>::new(), |time| *time), 0);
    }
}
