//! Counts what an application allocates: at the end a table of bytes and objects by class, most bytes first.
//!
//! `cargo xtask demo allocations`; ALLOCATIONS_TOP=5 leaves five rows in it, without it there are 20. The size is that of
//! the object alone: not of what it refers to, nor what the heap adds to align the next one.
//!
//! Limits: it tells how much was allocated, not what stays alive, nor where in the code. Every single object is reported,
//! for which the runtime gives up its fast path. Samples, with stacks, will come later.

use corprof::sync::{Merge, Mutex, ThreadState};
use corprof::{prelude::*, settings::Setting};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A04")]
struct Allocations {
    top: AtomicUsize,
    /// Of the classes that are loaded now, each thread's.
    by_class: ThreadState<Counts>,
    /// Of all classes whose modules have been unloaded.
    by_name: Mutex<BTreeMap<Name, Count>>,
}

/// What was allocated, by class.
#[derive(Default)]
struct Counts(FxHashMap<ClassId, Count>);

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    bytes: usize,
    objects: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.objects += other.objects;
    }
}

impl Merge for Counts {
    fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(class, count)| self.0.entry(class).or_default().add(count));
    }
}

impl Allocations {
    /// Counts by name what has been counted by class: classes that are loaded later may get the identifiers of others.
    fn settle(&self, cx: &InCallback<'_>) {
        let counts = self.by_class.read(cx, std::mem::take);
        let mut by_name = self.by_name.lock(cx);
        for (class, count) in counts.0 {
            by_name.entry(cx.names().class(class)).or_default().add(count);
        }
    }
}

#[callbacks]
impl Callbacks for Allocations {
    fn initialize(&self, _cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        self.top.store(Setting::of("ALLOCATIONS_TOP").number(20, 1..=1_000_000)?, Relaxed);
        Ok(())
    }
    fn object_allocated(&self, cx: &InCallback<'_>, object: ObjectId<'_>, class: ClassId) {
        let count = Count { bytes: cx.object_size(object).unwrap_or(0), objects: 1 };
        self.by_class.with(cx, |counts| counts.0.entry(class).or_default().add(count));
    }
    fn module_unload_started(&self, cx: &mut InTriggers<'_>, _module: ModuleId) {
        self.settle(cx);
    }
    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        self.settle(cx);
        let mut rows: Vec<_> = std::mem::take(&mut *self.by_name.lock(cx)).into_iter().collect();
        rows.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        eprintln!("{:>14} {:>12}  class", "bytes", "objects");
        for (name, Count { bytes, objects }) in rows.iter().take(self.top.load(Relaxed)) {
            eprintln!("{bytes:>14} {objects:>12}  {name}");
        }
    }
}
