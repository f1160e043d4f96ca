//! A notification profiler, loaded beside a main one: for `live/cli/run.rs`.

use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E13F7")]
struct Beside;

#[callbacks]
impl Callbacks for Beside {
    fn load_as_notification_only(&self) -> bool {
        true
    }

    fn initialize(&self, _cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        eprintln!("beside| loaded");
        Ok(())
    }
}
