//! Beeps whenever a class has been loaded.

use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A01")]
struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        eprint!("\x07");
    }
}
