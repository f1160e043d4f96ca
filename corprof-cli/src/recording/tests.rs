//! What is read, against TraceEvent's reading of the same file (corprof-nettrace/tests/traces/README.md).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corprof_nettrace::UtcTime;
use tempfile::NamedTempFile;

use super::picture::Picture;
use super::table::{By, rows};
use super::{Choice, Moment, Options, ThreadChoice};
use crate::options::Names;
use crate::trace_methods::of_perf_map;

fn options(event: Option<&str>) -> Options {
    Options {
        choice: Choice::new(event),
        threads: ThreadChoice::default(),
        from: None,
        to: None,
        label: None,
        group_label: None,
        slowest: None,
        is_timed: false,
        cells: None,
        is_joined: false,
        has_lanes: false,
        has_runtime_frames: true,
        is_physical: false,
        names: Names { raw_names: true },
    }
}

fn traces() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-nettrace/tests/traces"))
}

fn unpacked(name: &str) -> NamedTempFile {
    unpacked_from(traces(), name)
}

fn unpacked_from(folder: &Path, name: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    let packed = File::open(folder.join(format!("{name}.nettrace.xz"))).unwrap();
    std::io::copy(&mut lzma_rust2::XzReader::new(packed, true), &mut file).unwrap();
    file
}

/// `Module!Namespace.Class.Method(signature)`, as TraceEvent names a method.
fn spelled(name: &str) -> String {
    let (module, method) = name.split_once('!').unwrap();
    let (path, parameters) = method.split_at(method.find('(').unwrap());
    let dot = path.rfind("..").unwrap_or_else(|| path.rfind('.').unwrap());
    let (class, method) = (&path[..dot], &path[dot + 1..]);
    of_perf_map(&format!("void [{module}] {class}::{method}{parameters}")).unwrap()
}

/// The weight of the stacks with a method of this name, and that of those with an entry point as well.
fn weights_below_main(picture: &Picture, method: &str) -> (u64, u64) {
    let (mut all, mut below_main) = (0, 0);
    for ((_, stack, _), sum) in &picture.sums {
        let names: Vec<&str> = picture
            .frames_of(*stack)
            .filter_map(|frame| Some(&*picture.frames.get_index(frame as usize)?.name))
            .collect();
        if !names.iter().any(|name| name.starts_with(method)) {
            continue;
        }
        all += sum.weight;
        if names.iter().any(|name| name.starts_with("Prog.") && name.contains("Main")) {
            below_main += sum.weight;
        }
    }
    (all, below_main)
}

#[test]
fn a_trace_of_the_runtime_has_those_that_await() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corprof-async/tests/traces"));
    for name in ["console_ra", "console_sm"] {
        let file = unpacked_from(folder, name);
        let picture = Picture::read(&[file.path()], &options(None), false).unwrap();
        let (burnt, below_main) = weights_below_main(&picture, "Prog.Burn(");
        assert!(below_main as f64 > 0.97 * burnt as f64, "{name}: {below_main} of {burnt}");
        let counts = picture.files[0].callers.unwrap();
        assert!(counts.known > 400 && counts.known <= counts.resumed, "{name}: {counts:?}");

        let physical = Options { is_physical: true, ..options(None) };
        let picture = Picture::read(&[file.path()], &physical, false).unwrap();
        assert_eq!(weights_below_main(&picture, "Prog.Burn("), (burnt, 0), "{name}: the weights are those");
        assert_eq!(picture.files[0].callers, None);
    }
}

#[test]
fn the_profile_is_that_of_trace_event() {
    let file = unpacked("sampled");
    let picture = Picture::read(&[file.path()], &options(None), false).unwrap();
    let mut expected: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let text = std::fs::read_to_string(traces().join("sampled.methods.expected.tsv")).unwrap();
    for line in text.lines() {
        let [name, own, total] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // It has no name for code of the runtime.
        if name == "?!?" {
            continue;
        }
        expected.insert(spelled(name), (own.parse().unwrap(), total.parse().unwrap()));
    }
    let mut found = 0;
    for row in rows(&picture, &By::Method, false) {
        let (own, total) = (row.own.weight as f64 / 1e3, row.total.weight as f64 / 1e3);
        // It has no row for a method without time.
        let Some((expected_own, expected_total)) = expected.get(&row.name) else {
            assert!(row.name == "[unknown code]" || row.total.weight == 0, "{row:?}");
            continue;
        };
        found += 1;
        // It has milliseconds in floating point: some nanoseconds are lost with each sample.
        assert!((own - expected_own).abs() < 5.0 && (total - expected_total).abs() < 5.0, "{row:?}: {expected_own}");
    }
    assert_eq!(found, expected.len());
    assert!(found > 100, "{found}");
    assert_eq!(picture.total().samples, 15_064);
}

#[test]
fn the_events_are_those_of_trace_event() {
    for name in ["sampled", "gc"] {
        let file = unpacked(name);
        let picture = Picture::read(&[file.path()], &options(None), false).unwrap();
        let facts = &picture.files[0];
        let text = std::fs::read_to_string(traces().join(format!("{name}.nettrace.expected.tsv"))).unwrap();
        let expected: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('\t')).collect();
        assert_eq!(facts.events.to_string(), expected["events"]);
        assert_eq!(facts.lost.to_string(), expected["lost"]);
        assert_eq!(facts.threads.to_string(), expected["threads"]);
        assert_eq!(format!("{:.3}", facts.duration.as_secs_f64() * 1e3), expected["last_ms"]);
        let mut kinds: Vec<_> =
            facts.kinds.iter().map(|kind| (kind.id.to_string(), kind.version.to_string(), kind.events)).collect();
        let mut expected_kinds: Vec<_> = expected
            .iter()
            .filter(|(key, _)| key.contains('/'))
            .map(|(key, count)| {
                let parts: Vec<_> = key.rsplit('/').collect();
                (parts[1].to_owned(), parts[0].to_owned(), count.parse().unwrap())
            })
            .collect();
        kinds.sort();
        expected_kinds.sort();
        assert_eq!(kinds, expected_kinds, "{name}");
    }
}

#[test]
fn allocations_have_the_bytes_of_their_events() {
    let file = unpacked("gc");
    let picture = Picture::read(&[file.path()], &options(Some("allocations")), false).unwrap();
    let by_type = rows(&picture, &By::Type, false);
    assert_eq!(picture.total().samples, 13_618);
    assert_eq!(by_type.iter().map(|row| row.own.weight).sum::<u64>(), picture.total().weight);
    assert!(by_type.iter().any(|row| row.name == "string[]" && row.own.samples == 2_440), "{by_type:?}");
}

#[test]
fn times_of_the_day_are_those_after_the_beginning() {
    let late = SystemTime::UNIX_EPOCH + Duration::from_secs(24 * 3600 - 570);
    let started = UtcTime::from_system_time(late).unwrap();
    let at = |text: &str| {
        let parts: Vec<u64> = text.split(':').map(|part| part.parse().unwrap()).collect();
        let clock = Moment::Clock(Duration::from_secs((parts[0] * 60 + parts[1]) * 60 + parts[2]));
        clock.at(Duration::ZERO, Some(started)).unwrap().as_secs()
    };
    assert_eq!([at("23:51:00"), at("0:00:30"), at("11:50:00")], [30, 600, 12 * 3600 - 30]);
    assert_eq!(at("23:50:00"), 0, "before the beginning");
    assert!(Moment::Clock(Duration::ZERO).at(Duration::ZERO, None).is_err());
}
