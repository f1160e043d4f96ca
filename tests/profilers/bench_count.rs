//! Counts allocated objects: `cargo xtask bench` measures it against the same in C (bench/floor.c).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::prelude::*;

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E01")]
struct Count(AtomicU64);

#[callbacks]
impl Callbacks for Count {
    fn object_allocated(&self, _cx: &InNoGc<'_>, _object: ObjectId<'_>, _class: ClassId) {
        self.0.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("counted={}", self.0.load(Relaxed));
    }
}
