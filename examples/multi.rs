//! Two profilers in one library, which run beside a main profiler: one counts exceptions by class, the other
//! collections.

use std::collections::BTreeMap;

use corprof::prelude::*;
use corprof::sync::Mutex;

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A11", notification_only, no_export)]
struct Throws {
    by_class: Mutex<BTreeMap<Name, usize>>,
}

#[callbacks]
impl Callbacks for Throws {
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) -> Result<()> {
        let class = cx.names().class(cx.class_of(thrown)?);
        *self.by_class.lock(cx).entry(class).or_default() += 1;
        Ok(())
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        for (class, count) in &*self.by_class.lock(cx) {
            eprintln!("throws: {count} {class}");
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A12", notification_only, no_export)]
struct Collections {
    by_generations: Mutex<BTreeMap<String, usize>>,
}

#[callbacks]
impl Callbacks for Collections {
    fn garbage_collection_started(&self, cx: &InNoGc<'_>, generations: Generations, _reason: GcReason) {
        *self.by_generations.lock(cx).entry(generations.to_string()).or_default() += 1;
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        for (generations, count) in &*self.by_generations.lock(cx) {
            eprintln!("collections: {count} of {generations}");
        }
    }
}

corprof::export!(Throws, Collections);
