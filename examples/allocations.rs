//! Counts what an application allocates: at the end a table of bytes and objects by class, most bytes first.
//!
//! `cargo xtask demo allocations`; ALLOCATIONS_TOP=5 leaves five rows in it, without it there are 20. The size is that of
//! the object alone: not of what it refers to, nor what the heap adds to align the next one.
//!
//! Limits: it tells how much was allocated, not what stays alive, nor where in the code. Every single object is reported,
//! for which the runtime gives up its fast path: an allocation takes about five times as long as without a profiler. (More
//! than half of the added time is the counting here, though it takes no lock.) Samples, with stacks, will come later.

use corprof::{prelude::*, settings::Setting, sync::Mutex};
use papaya::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A04")]
struct Allocations {
    top: AtomicUsize,
    /// By the classes that are loaded now.
    by_class: HashMap<ClassId, Arc<Row>>,
    /// Of all classes that ever were.
    rows: Mutex<Vec<Arc<Row>>>,
}

struct Row {
    name: Name,
    objects: AtomicUsize,
    bytes: AtomicUsize,
}

#[callbacks]
impl Callbacks for Allocations {
    fn initialize(&self, _cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        self.top.store(Setting::of("ALLOCATIONS_TOP").number(20, 1..=1_000_000)?, Relaxed);
        Ok(())
    }
    fn object_allocated(&self, cx: &InCallback<'_>, object: ObjectId<'_>, class: ClassId) {
        let by_class = self.by_class.pin();
        let row = by_class.get_or_insert_with(class, || {
            let row = Arc::new(Row { name: cx.names().class(class), objects: 0.into(), bytes: 0.into() });
            self.rows.lock(cx).push(row.clone());
            row
        });
        row.objects.fetch_add(1, Relaxed);
        row.bytes.fetch_add(cx.object_size(object).unwrap_or(0), Relaxed);
    }
    fn module_unload_started(&self, _cx: &mut InTriggers<'_>, _module: ModuleId) {
        self.by_class.pin().clear(); // other classes may get these identifiers
    }
    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        let mut by_name = BTreeMap::<Name, (usize, usize)>::new();
        for row in self.rows.lock(cx).iter() {
            let (bytes, objects) = by_name.entry(row.name.clone()).or_default();
            *bytes += row.bytes.load(Relaxed);
            *objects += row.objects.load(Relaxed);
        }
        let mut rows: Vec<_> = by_name.into_iter().collect();
        rows.sort_by_key(|&(_, counts)| std::cmp::Reverse(counts));
        eprintln!("{:>14} {:>12}  class", "bytes", "objects");
        for (name, (bytes, objects)) in rows.iter().take(self.top.load(Relaxed)) {
            eprintln!("{bytes:>14} {objects:>12}  {name}");
        }
    }
}
