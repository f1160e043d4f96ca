//! A `shutdown` that takes its time, in which threads end and others collect.

use std::time::Duration;

use corprof::prelude::*;

/// Longer than it takes to write a profile.
const LONG: Duration = Duration::from_millis(500);

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1298", no_export)]
pub(crate) struct Lingers;

#[callbacks]
impl Callbacks for Lingers {
    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        std::thread::sleep(LONG);
        eprintln!("attacks| has lingered");
    }
}
