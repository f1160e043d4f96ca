//! Those of an earlier collection would make a tracker take dead objects for alive.
use std::sync::Mutex;

use corprof::args::GcReason;
use corprof::args::Generations;
use corprof::prelude::*;

struct Lazy(Mutex<Option<Generations<'static>>>);

#[callbacks]
impl Callbacks for Lazy {
    fn garbage_collection_started(&self, _cx: &InCallback<'_>, generations: Generations<'_>, _reason: GcReason) {
        *self.0.lock().unwrap() = Some(generations);
    }
}

fn main() {}
