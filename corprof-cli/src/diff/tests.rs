//! Simulated recordings: what is only chance is not called changed, and what has changed is found.

use std::time::Duration;

use super::compare::{Rule, compare};
use super::statistics::Normalised;
use crate::recording::picture::Picture;
use crate::recording::table::By;
use crate::recording::{Frame, Measure, Sum, Timed};
use corprof_export::FrameKind;

const RULE: Rule = Rule { chance: 0.001, least: 0.02 };
const SAMPLES: usize = 10_000;

/// Numbers that look like chance, the same in each run.
struct Chance(u64);

impl Chance {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of this mean, exponentially distributed.
    fn length(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }
}

/// A recording of samples a millisecond apart; `method` gives the method at a time in milliseconds, or none for a
/// thread that does not run.
fn recording(method: impl FnMut(f64) -> Option<usize>) -> Picture {
    recording_of(SAMPLES, method)
}

/// The same, of so many samples.
fn recording_of(most: usize, mut method: impl FnMut(f64) -> Option<usize>) -> Picture {
    let mut picture =
        Picture { measure: Some(Measure::Cpu { interval: None }), timed: Some(Vec::new()), ..Picture::default() };
    let frame = |name: String| Frame { name, module: None, kind: FrameKind::Managed, place: None };
    let main = picture.frames.insert_full(frame("Main".to_owned())).0 as u32;
    let root = picture.stacks.insert_full((crate::recording::picture::NO_FRAMES, main)).0 as u32;
    let mut millisecond = 0.0;
    let mut samples = 0;
    while samples < most {
        millisecond += 1.0;
        let Some(number) = method(millisecond) else { continue };
        samples += 1;
        let leaf = picture.frames.insert_full(frame(format!("Method{number}"))).0 as u32;
        let stack = picture.stacks.insert_full((root, leaf)).0 as u32;
        let at = Duration::from_secs_f64(millisecond / 1e3);
        picture.sums.entry((0, stack, 0)).or_default().add(Sum { samples: 1, weight: 1 });
        picture.timed.as_mut().unwrap().push(Timed { at, thread: 0, stack, weight: 1 });
    }
    picture
}

/// An async method whose samples have this caller.
fn called_by(caller: &str) -> Picture {
    let mut picture = Picture::default();
    let frame = |name: &str| Frame { name: name.to_owned(), module: None, kind: FrameKind::Managed, place: None };
    let outer = picture.frames.insert_full(frame(caller)).0 as u32;
    let inner = picture.frames.insert_full(frame("Shop.<Load>d__1.MoveNext()")).0 as u32;
    let root = picture.stacks.insert_full((crate::recording::picture::NO_FRAMES, outer)).0 as u32;
    picture.stacks.insert((root, inner));
    picture
}

#[test]
fn a_state_machine_has_one_name_in_both_recordings() {
    let mut base = called_by("Shop.Work()");
    let mut new = called_by("System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start<Shop.<Load>d__1>()");
    assert_ne!(base.shown_names()[1], new.shown_names()[1]);
    Picture::agree([&mut base, &mut new]);
    assert_eq!([&base, &new].map(|picture| picture.shown_names()[1].clone()), ["Shop.Load (async)"; 2]);
}

/// A program that calls twelve methods in any order, for 20 ms on average: samples of one call come together.
fn clustered(seed: u64) -> Picture {
    let mut chance = Chance(seed);
    let mut end = 0.0;
    let mut method = 0;
    recording(|at| {
        while at >= end {
            method = (chance.next() * chance.next() * 12.0) as usize;
            end += chance.length(20.0);
        }
        Some(method)
    })
}

/// A service with a request every 13 ms, which takes some 5 ms in the first method, `slower` times that, and 4 in
/// others.
fn service(seed: u64, slower: f64) -> Picture {
    let mut chance = Chance(seed);
    let mut begin = 0.0;
    let mut parts = [0.0; 3];
    recording(|at| {
        while at >= begin {
            begin += 13.0;
            let mut around = |mean: f64| mean * (0.7 + 0.6 * chance.next());
            parts = [around(5.0 * slower), around(3.0), around(1.0)];
        }
        let mut since = at - (begin - 13.0);
        for (number, part) in parts.iter().enumerate() {
            if since < *part {
                return Some(number);
            }
            since -= part;
        }
        None
    })
}

fn changed(base: &Picture, new: &Picture, normalised: Normalised) -> Vec<String> {
    changed_by(base, new, normalised, RULE)
}

fn changed_by(base: &Picture, new: &Picture, normalised: Normalised, rule: Rule) -> Vec<String> {
    let rows = compare([base, new], &By::Method, false, normalised, rule).unwrap();
    assert!(rows.len() > 2);
    rows.into_iter().filter(|row| row.own.is_changed || row.total.is_changed).map(|row| row.name).collect()
}

#[test]
fn two_runs_of_one_program_have_not_changed() {
    for normalised in [Normalised::Count, Normalised::Time, Normalised::None] {
        for pair in 0..20 {
            let found = changed(&clustered(2 * pair), &clustered(2 * pair + 1), normalised);
            assert!(found.is_empty(), "{normalised:?}, pair {pair}: {found:?}");
            let found = changed(&service(2 * pair, 1.0), &service(2 * pair + 1, 1.0), normalised);
            assert!(found.is_empty(), "{normalised:?}, pair {pair}: {found:?}");
        }
    }
}

#[test]
fn a_method_that_is_a_tenth_slower_is_found() {
    for normalised in [Normalised::Count, Normalised::Time] {
        for pair in 0..20 {
            let found = changed(&service(2 * pair, 1.0), &service(2 * pair + 1, 1.1), normalised);
            assert!(found.contains(&"Method0".to_owned()), "{normalised:?}, pair {pair}: {found:?}");
        }
    }
}

/// A program whose calls are much shorter than the time between two samples: none says anything of the next. The first
/// method takes 40 % of the work, `slower` times that, and three others the rest. With `most` samples.
fn short_calls(seed: u64, slower: f64, most: usize) -> Picture {
    let mut chance = Chance(seed);
    let whole = 0.6 + 0.4 * slower;
    recording_of(most, |_| {
        let place = chance.next() * whole - 0.4 * slower;
        Some(if place < 0.0 { 0 } else { 1 + (place * 5.0) as usize })
    })
}

/// How many of twenty pairs have the first method changed, and how many any.
fn found_of_short_calls(slower: f64, samples: usize, normalised: Normalised, rule: Rule) -> [usize; 2] {
    let mut found = [0; 2];
    for pair in 0..20 {
        let base = short_calls(2 * pair, 1.0, samples);
        let more = samples as f64 * (0.6 + 0.4 * slower);
        let new = short_calls(2 * pair + 1, slower, more as usize);
        let rows = changed_by(&base, &new, normalised, rule);
        found[0] += usize::from(rows.contains(&"Method0".to_owned()));
        found[1] += usize::from(!rows.is_empty());
    }
    found
}

/// The share of a method of 40 % grows by 2.3 points if it is a tenth slower. The error of the difference of two shares
/// is 0.7 points with 10,000 independent samples each, so no honest test finds that always; the weights of the same
/// work differ by 4 points, and those are found.
#[test]
fn short_calls_are_compared_by_the_weights_of_the_same_work() {
    // A chance of 5 % is that of a mistake in a table: of twenty pairs, more than 4 such tables are too many.
    for normalised in [Normalised::Count, Normalised::None] {
        let [_, mistaken] = found_of_short_calls(1.0, SAMPLES, normalised, Rule { chance: 0.05, least: 0.0 });
        println!("{normalised:?}: {mistaken} of 20 tables have a mistake");
        assert!(mistaken <= 4, "{normalised:?}: {mistaken}");
    }
    let [by_weight, _] = found_of_short_calls(1.1, SAMPLES, Normalised::None, RULE);
    let [by_share, _] = found_of_short_calls(1.1, SAMPLES, Normalised::Count, RULE);
    let [by_share_of_many, _] = found_of_short_calls(1.1, 4 * SAMPLES, Normalised::Count, RULE);
    println!("by weight {by_weight}, by share {by_share}, of four times as many samples {by_share_of_many}");
    assert!(
        by_weight >= 18 && by_share_of_many >= 18 && by_share < by_weight,
        "{by_weight} {by_share} {by_share_of_many}"
    );
}

/// The machine gives the program a processor for 100 ms on average, and then takes it away for as long.
fn on_a_busy_machine(seed: u64, slower: f64, most: usize) -> Picture {
    let mut chance = Chance(seed + 1_000_000);
    let mut end = 0.0;
    let mut runs = false;
    let mut calls = service_without_pauses(seed, slower);
    recording_of(most, |at| {
        while at >= end {
            runs = !runs;
            end += chance.length(100.0);
        }
        runs.then(&mut calls)
    })
}

/// Turns of some 11 ms: the method of the next millisecond.
fn service_without_pauses(seed: u64, slower: f64) -> impl FnMut() -> usize {
    let mut chance = Chance(seed);
    let mut parts = [0.0; 4];
    let mut since = 0.0;
    move || {
        loop {
            for (number, part) in parts.iter().enumerate() {
                if since < parts.iter().take(number).sum::<f64>() + part {
                    since += 1.0;
                    return number;
                }
            }
            since -= parts.iter().sum::<f64>();
            parts = [4.4 * slower, 3.3, 2.2, 1.1].map(|mean: f64| mean * (0.9 + 0.2 * chance.next()));
        }
    }
}

#[test]
fn the_same_work_on_a_busy_machine_is_compared_by_its_weights() {
    let mut found = 0;
    for pair in 0..20 {
        let base = on_a_busy_machine(2 * pair, 1.0, SAMPLES);
        let same = on_a_busy_machine(2 * pair + 1, 1.0, SAMPLES);
        let rows = changed(&base, &same, Normalised::None);
        assert!(rows.is_empty(), "pair {pair}: {rows:?}");
        let slower = on_a_busy_machine(2 * pair + 1, 1.1, SAMPLES * 104 / 100);
        let rows = changed(&base, &slower, Normalised::None);
        found += usize::from(rows.contains(&"Method0".to_owned()));
    }
    println!("found {found} of 20");
    assert_eq!(found, 20);
}

#[test]
fn a_method_that_is_new_is_found() {
    let mut first = clustered(1);
    let second = recording(|at| Some(if (at as u64).is_multiple_of(40) { 99 } else { at as usize / 7 % 5 }));
    let found = changed(&first, &second, Normalised::Count);
    assert!(found.contains(&"Method99".to_owned()), "{found:?}");
    first.timed = None;
    let error = compare([&first, &second], &By::Method, false, Normalised::Count, RULE).unwrap_err();
    assert!(error.to_string().contains("too many samples"), "{error}");
}
