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
fn recording(mut method: impl FnMut(f64) -> Option<usize>) -> Picture {
    let mut picture =
        Picture { measure: Some(Measure::Cpu { interval: None }), timed: Some(Vec::new()), ..Picture::default() };
    let frame = |name: String| Frame { name, module: None, kind: FrameKind::Managed, place: None };
    let main = picture.frames.insert_full(frame("Main".to_owned())).0 as u32;
    let root = picture.stacks.insert_full((crate::recording::picture::NO_FRAMES, main)).0 as u32;
    let mut millisecond = 0.0;
    let mut samples = 0;
    while samples < SAMPLES {
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
    let rows = compare([base, new], &By::Method, false, normalised, RULE).unwrap();
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
