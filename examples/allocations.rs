//! Counts the objects that an application allocates, by class, and prints the ten classes with most bytes.

use std::cmp::Reverse;
use std::collections::HashMap;

use corprof::prelude::*;
use corprof::sync::Mutex;

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E04")]
struct Allocations {
    /// Bytes and objects of each class.
    classes: Mutex<HashMap<Name, (usize, usize)>>,
}

#[callbacks]
impl Callbacks for Allocations {
    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) -> Result<()> {
        let size = cx.object_size(object)?;
        let mut classes = self.classes.lock(cx);
        let (bytes, objects) = classes.entry(cx.names().class(class)).or_default();
        *bytes += size;
        *objects += 1;
        Ok(())
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let classes = self.classes.lock(cx);
        let mut rows: Vec<_> = classes.iter().collect();
        rows.sort_by_key(|&(_, count)| Reverse(count));
        for (class, (bytes, objects)) in rows.into_iter().take(10) {
            eprintln!("{bytes:>12} bytes {objects:>9} objects of {class}");
        }
    }
}
