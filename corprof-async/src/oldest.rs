//! Forgets what is old, or what is oldest where there is too much.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Forgets the entries that are not to be kept, and gives their memory back.
///
/// Where an entry was, a map keeps a mark; when marks and entries fill it, it takes twice the memory. And it gives none
/// back by itself. So it is made anew before it has no room for as many entries as go at once.
pub(crate) fn forget<K: Eq + Hash, V, S: BuildHasher + Default>(
    entries: &mut HashMap<K, V, S>,
    keep: impl FnMut(&K, &mut V) -> bool,
) {
    let before = entries.len();
    entries.retain(keep);
    let gone = before - entries.len();
    let room = entries.capacity() - entries.len();
    let wanted = entries.len() + gone + gone / 4;
    if room < gone || entries.capacity() > 4 * wanted + 256 {
        let mut anew = HashMap::with_capacity_and_hasher(wanted, S::default());
        anew.extend(entries.drain());
        *entries = anew;
    }
}

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
    fn entries_that_come_and_go_take_no_more_memory() {
        let mut entries: HashMap<u64, u64> = HashMap::new();
        let mut most = 0;
        for second in 0..2000_u64 {
            entries.extend((0..100).map(|number| (100 * second + number, second)));
            most = most.max(entries.capacity());
            forget(&mut entries, |_, came| *came + 5 > second);
        }
        assert_eq!(entries.len(), 500);
        assert!(most < 1000, "{most}");
        entries.extend((0..100_000).map(|number| (u64::MAX - number, 0)));
        forget(&mut entries, |_, came| *came > 0);
        forget(&mut entries, |_, _| true);
        assert!(entries.len() == 500 && entries.capacity() < 3000, "{}", entries.capacity());
    }

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
