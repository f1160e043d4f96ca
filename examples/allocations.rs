//! Counts what an application allocates. At exit it prints a table of bytes and objects by class, most bytes first.
//!
//! Run it with `cargo xtask demo allocations`. ALLOCATIONS_TOP=5 limits the table to five rows; the default is 20. The size of
//! an object does not include the objects it refers to, nor the padding that aligns the next object on the heap.
//!
//! Limits: the table does not show which objects are still alive, or which code allocated them. The runtime reports every object,
//! and does not use its fast allocation path.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::sync::OnceLock;

use corprof::prelude::*;
use corprof::settings::Setting;
use corprof::sync::{Merge, Mutex, ThreadState};
use rustc_hash::FxHashMap;

/// The profiler. In the library of the command `corprof`, `examples/src/lib.rs` exports it (`no_export` here).
#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A04")]
#[cfg_attr(corprof_bundle, profiler(no_export))]
pub struct Allocations {
    /// The number of rows of the table.
    top: OnceLock<usize>,
    /// Counts of the classes that are loaded now: one table per thread, so that threads do not wait for each other.
    by_class: ThreadState<Counts>,
    /// Counts of the classes whose modules have been unloaded.
    by_name: Mutex<BTreeMap<Name, Count>>,
}

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
        for (class, count) in other.0 {
            self.0.entry(class).or_default().add(count);
        }
    }
}

impl Allocations {
    /// Moves the counts from class ids to names: a class that is loaded later may get the id of an unloaded one.
    fn move_to_names(&self, cx: &InCallback<'_>) {
        let counts = self.by_class.read(cx, mem::take);
        let mut by_name = self.by_name.lock(cx);
        for (class, count) in counts.0 {
            by_name.entry(cx.names().class(class)).or_default().add(count);
        }
    }
}

#[callbacks]
impl Callbacks for Allocations {
    fn initialize(&self, _cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let top = Setting::of("ALLOCATIONS_TOP").number(20, 1..=1_000_000)?;
        self.top.get_or_init(|| top);
        Ok(())
    }

    fn object_allocated(&self, cx: &InCallback<'_>, object: ObjectId<'_>, class: ClassId) {
        let count = Count { bytes: cx.object_size(object).unwrap_or(0), objects: 1 };
        self.by_class.with(cx, |counts| counts.0.entry(class).or_default().add(count));
    }

    fn module_unload_started(&self, cx: &mut InTriggers<'_>, _module: ModuleId) {
        self.move_to_names(cx);
    }

    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        self.move_to_names(cx);
        let Some(&top) = self.top.get() else { return };
        let mut rows: Vec<_> = mem::take(&mut *self.by_name.lock(cx)).into_iter().collect();
        rows.sort_by_key(|&(_, count)| Reverse(count));
        eprintln!("{:>14} {:>12}  class", "bytes", "objects");
        for (name, Count { bytes, objects }) in rows.iter().take(top) {
            eprintln!("{bytes:>14} {objects:>12}  {name}");
        }
    }
}
