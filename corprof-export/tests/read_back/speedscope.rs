//! speedscope files, by the rules of its schema: no field that it does not have, each of the right type.

use corprof_export::{Format, Profile, Unit};
use serde::Deserialize;

use crate::shapes;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "$schema")]
    schema: String,
    exporter: String,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    name: String,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sampled {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    unit: Scale,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(rename_all = "lowercase")]
enum Scale {
    Bytes,
    Nanoseconds,
    None,
}

fn read(profile: &Profile) -> File {
    let file: File = serde_json::from_slice(&shapes::bytes(profile, Format::Speedscope)).unwrap();
    assert_eq!(file.schema, "https://www.speedscope.app/file-format-schema.json");
    assert!(file.exporter.starts_with("corprof-export "));
    let most = file.profiles.iter().map(|sampled| sampled.end).max();
    assert_eq!(file.profiles.get(file.active).map(|sampled| sampled.end), most, "the busiest thread is shown first");
    for sampled in &file.profiles {
        assert_eq!((sampled.kind.as_str(), sampled.start), ("sampled", 0));
        assert_eq!(sampled.samples.len(), sampled.weights.len());
        assert_eq!(sampled.end, sampled.weights.iter().sum::<u64>());
        assert!(sampled.samples.iter().flatten().all(|&frame| frame < file.shared.frames.len()));
    }
    file
}

#[test]
fn threads_have_their_samples_in_time_order_root_first() {
    let file = read(&shapes::shop(Unit::Bytes));
    assert_eq!(file.name, "shop (30 ms · 4 samples · 2 threads · process 77)");
    let [main, work, read] = &file.shared.frames[..] else { panic!("{} frames", file.shared.frames.len()) };
    assert_eq!((main.name.as_str(), main.file.as_deref(), main.line), ("Shop.Main()", Some("Shop.dll"), None));
    assert_eq!((work.file.as_deref(), work.line), (Some("Work.cs"), Some(12)));
    assert_eq!(read.name, "read");
    let [first, second] = &file.profiles[..] else { panic!("{} threads", file.profiles.len()) };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("main (4711)", "thread 4712"));
    assert_eq!((&first.samples, &first.weights), (&vec![vec![0], vec![0, 1], vec![0, 1, 2]], &vec![1, 3, 2]));
    assert_eq!(first.unit, Scale::Bytes);
}

#[test]
fn samples_of_a_known_interval_are_time() {
    let without = read(&shapes::shop(Unit::Samples));
    assert_eq!((&without.profiles[0].unit, without.profiles[0].end), (&Scale::None, 6));
    let with = read(&shapes::shop(Unit::Samples).with_interval(std::time::Duration::from_millis(2)));
    assert_eq!((&with.profiles[0].unit, with.profiles[0].end), (&Scale::Nanoseconds, 12_000_000));
}

#[test]
fn an_empty_profile_has_one_empty_thread() {
    let file = read(&Profile::new("none", Unit::Samples));
    assert_eq!((file.profiles.len(), file.profiles[0].samples.len()), (1, 0));
}

#[test]
fn odd_and_deep_profiles_are_read() {
    assert_eq!(read(&shapes::odd()).profiles[0].samples.len(), 46);
    assert_eq!(read(&shapes::deep()).profiles[0].samples[9].len(), 10_000);
}
