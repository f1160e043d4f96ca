//! Input that no format was made for: every format takes it, without a panic.

use std::io;
use std::time::Duration;

use corprof_export::{Format, Frame, Profile, StackId, Unit};
use proptest::prelude::*;

use crate::shapes;

#[test]
fn handles_of_another_profile_do_no_harm() {
    let mut full = shapes::deep();
    let frame = full.frame(Frame::managed("Other()"));
    let thread = full.thread(9, "other");
    let stack = full.called(StackId::EMPTY, frame);
    let mut small = Profile::new("small", Unit::Samples);
    let own = small.thread(1, "own");
    small.sample(thread, Duration::ZERO, stack, 1);
    small.sample(own, Duration::ZERO, stack, 1);
    let with_foreign_frame = small.called(StackId::EMPTY, frame);
    small.sample(own, Duration::ZERO, with_foreign_frame, 1);
    assert_eq!(small.called(stack, frame), stack);
    assert_eq!((small.losses().samples_dropped, small.losses().frames_cut, small.samples()), (1, 1, 2));
    for format in shapes::ALL {
        assert!(!shapes::bytes(&small, format).is_empty(), "{format:?}");
    }
}

#[test]
fn weights_beyond_every_sum_are_written() {
    for unit in [Unit::Samples, Unit::Nanoseconds, Unit::Bytes] {
        for profile in [Profile::new("big", unit), Profile::summed("big", unit)] {
            let mut profile = profile.with_interval(Duration::MAX);
            let frames = ["a", "b"].map(|name| profile.frame(Frame::managed(name)));
            let thread = profile.thread(1, "main");
            for frame in frames {
                let stack = profile.called(StackId::EMPTY, frame);
                profile.sample(thread, Duration::MAX, stack, u64::MAX);
                profile.sample(thread, Duration::MAX, stack, u64::MAX);
            }
            for format in shapes::ALL {
                assert!(!shapes::bytes(&profile, format).is_empty(), "{format:?}");
            }
            let svg = shapes::text(&profile, Format::FlameGraph);
            assert!(svg.contains("a (") && svg.contains(", 50.00%)"), "{unit:?}");
        }
    }
}

/// Takes so many bytes, then fails.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("full"));
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_fails_is_an_error_of_every_format() {
    let profile = shapes::shop(Unit::Samples);
    for format in shapes::ALL {
        let length = shapes::bytes(&profile, format).len();
        for room in [0, 1, length / 2, length - 1] {
            assert!(profile.write_to(format, Full(room)).is_err(), "{format:?} with room for {room} of {length}");
        }
        assert!(profile.write_to(format, Full(length)).is_ok(), "{format:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_profile_makes_a_format_fail(
        unit in prop::sample::select(vec![Unit::Samples, Unit::Nanoseconds, Unit::Bytes]),
        is_summed: bool,
        samples in prop::collection::vec((prop::collection::vec(".{0,4}", 0..5), any::<u64>(), any::<u64>(), 0..3usize), 0..12),
    ) {
        let mut profile = if is_summed { Profile::summed("any", unit) } else { Profile::new("any", unit) };
        let threads = [(); 3].map(|()| profile.thread(1, "same"));
        for (names, at, weight, thread) in samples {
            let frames: Vec<_> = names.iter().map(|name| profile.frame(Frame::native(name).in_module(name))).collect();
            let stack = profile.stack_leaf_first(frames);
            profile.sample(threads[thread], Duration::from_nanos(at), stack, weight);
        }
        for format in shapes::ALL {
            // Folded stacks without a weight are not lines at all.
            let is_written = format == Format::Folded || !shapes::bytes(&profile, format).is_empty();
            prop_assert!(is_written && profile.write_to(format, io::sink()).is_ok(), "{format:?}");
        }
    }
}
