//! Profiles that the tests write.

use std::io::Read;
use std::time::{Duration, SystemTime};

use corprof_export::{Format, Frame, Mode, Profile, StackId, Unit};

/// Main 1, Main → Work 3, Main → Work → read 2 on one thread; Main → Work 4 on another.
pub(crate) fn shop(unit: Unit) -> Profile {
    fill(Profile::new("shop", unit))
}

pub(crate) fn fill(profile: Profile) -> Profile {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let mut profile = profile.started_at(started).of_process(77);
    let main = profile.frame(Frame::managed("Shop.Main()").in_module("Shop.dll"));
    let work = profile.frame(Frame::managed("Shop.Work<T>(int32, \"x\")").in_module("Shop.dll").at("Work.cs", 12));
    let read = profile.frame(Frame::native("read").in_module("libc.so.6"));
    let stacks = [
        profile.stack_root_first([main]),
        profile.stack_leaf_first([work, main]),
        profile.stack_root_first([main, work, read]),
    ];
    let first = profile.thread(4711, "main");
    let second = profile.thread(4712, "");
    for (index, (thread, stack, weight)) in
        [(first, 0, 1), (first, 1, 3), (second, 1, 4), (first, 2, 2)].into_iter().enumerate()
    {
        profile.sample(thread, Duration::from_millis(index as u64 * 10), stacks[stack], weight);
    }
    profile
}

/// The shop in nanoseconds, with a full description of its run.
pub(crate) fn told() -> Profile {
    let mut profile = shop(Unit::Nanoseconds).with_interval(Duration::from_millis(10)).in_mode(Mode::Cpu);
    profile.set_duration(Duration::from_millis(5_230));
    profile.set_rate_reached(87.0);
    profile.set_skipped("rounds over the budget", 5_125);
    profile.note("start-up left out");
    profile.warn("native frames without names");
    profile
}

/// The texts that every format must contain.
pub(crate) const TOLD: [&str; 4] = [
    "processor time · 5.2 s · 4 samples · 100 Hz asked, 87 Hz reached · 2 threads · process 77",
    "Skipped: 5,125 rounds over the budget",
    "start-up left out",
    "native frames without names",
];

/// A valid input that no sensible profiler gives.
pub(crate) fn odd() -> Profile {
    let mut profile = Profile::new("a\0b\"]]>\u{1b}", Unit::Nanoseconds);
    let huge = "é<&>".repeat(2_500_000);
    let surrogate = String::from_utf16_lossy(&[0x41, 0xD800, 0x42]);
    let names = [
        "",
        " ",
        "12",
        "leaf 12",
        "x 1.5",
        "# comment",
        "a;b",
        "\"quoted\\\"",
        "line\nbreak\r\t",
        "\0\u{1}\u{7f}\u{85}",
        "\u{2028}\u{fffe}\u{ffff}",
        "]]></text>&amp;",
        "日本語.メソッド()",
        &surrogate,
        &huge,
    ];
    let thread = profile.thread(u32::MAX, "t\n\"\0");
    for name in names {
        let frame = profile.frame(Frame::runtime(name).in_module(name).at(name, u32::MAX));
        let stack = profile.stack_root_first([frame]);
        profile.sample(thread, Duration::MAX, stack, 1_000);
        let nested = profile.called(stack, frame);
        profile.sample(thread, Duration::ZERO, nested, 1_000);
        profile.sample(thread, Duration::ZERO, nested, 0);
    }
    profile.sample(thread, Duration::ZERO, StackId::EMPTY, 5);
    profile
}

/// One stack of 10,000 frames, with a sample at its leaf and one at each thousandth caller.
pub(crate) fn deep() -> Profile {
    let mut profile = Profile::new("deep", Unit::Samples);
    let frames: Vec<_> = (0..10).map(|index| profile.frame(Frame::managed(&format!("Recurse{index}()")))).collect();
    let thread = profile.thread(1, "main");
    let mut stack = StackId::EMPTY;
    for depth in 1..=10_000 {
        stack = profile.called(stack, frames[depth % 10]);
        if depth % 1_000 == 0 {
            profile.sample(thread, Duration::from_millis(depth as u64), stack, 1);
        }
    }
    profile
}

pub(crate) fn bytes(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write_to(format, &mut bytes).unwrap();
    bytes
}

pub(crate) fn text(profile: &Profile, format: Format) -> String {
    String::from_utf8(bytes(profile, format)).unwrap()
}

pub(crate) fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).unwrap();
    content
}

pub(crate) const ALL: [Format; 8] = [
    Format::Html,
    Format::FlameGraph,
    Format::Folded,
    Format::Speedscope,
    Format::SpeedscopeGz,
    Format::Pprof,
    Format::Firefox,
    Format::FirefoxGz,
];
