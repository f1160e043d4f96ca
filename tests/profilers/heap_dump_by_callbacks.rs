//! Takes one heap snapshot by callbacks, for runtimes without EventPipe sessions: for `live/heap_dump.rs`. When the file DUMPS/1.order
//! exists, it writes 1.blocks and 1.told.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use corprof::args::{GcReason, Generations, Roots, WeakTableElements};
use corprof::heap_dump::{BlockFile, HeapSnapshots};
use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1232")]
struct Dumps {
    snapshots: HeapSnapshots,
}

fn take(snapshots: &HeapSnapshots, cx: &mut ProfilerThread<'_>, folder: &std::path::Path) -> Result<String, BoxError> {
    let file = BlockFile::create(&folder.join("1.blocks"))?;
    let dump = snapshots.take(cx, Duration::from_secs(300), file)?;
    let mut text = format!("{:?}\n", dump.cost);
    for (key, class) in dump.classes {
        writeln!(text, "class {key} {}", cx.names().csharp().class(class))?;
    }
    Ok(text)
}

#[callbacks]
impl Callbacks for Dumps {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let folder = PathBuf::from(std::env::var_os("DUMPS").ok_or("DUMPS names no folder")?);
        let snapshots = self.snapshots.clone();
        cx.spawn_profiler_thread("dumps", move |cx| {
            while !folder.join("1.order").exists() {
                if cx.wait(Duration::from_millis(20)).is_break() {
                    return;
                }
            }
            let text = take(&snapshots, cx, &folder).unwrap_or_else(|error| format!("error: {error}"));
            let part = folder.join("1.part");
            let written = fs::write(&part, text).and_then(|()| fs::rename(&part, folder.join("1.told")));
            if let Err(error) = written {
                eprintln!("heap_dump| {error}");
            }
        })?;
        Ok(())
    }

    fn garbage_collection_started(&self, cx: &InCallback<'_>, generations: Generations<'_>, reason: GcReason) {
        self.snapshots.garbage_collection_started(cx, generations, reason);
    }

    fn root_references2(&self, cx: &InCallback<'_>, roots: Roots<'_>) {
        self.snapshots.root_references(cx, roots);
    }

    fn conditional_weak_table_element_references(&self, cx: &InCallback<'_>, elements: WeakTableElements<'_>) {
        self.snapshots.conditional_weak_table_element_references(cx, elements);
    }

    fn object_references(
        &self,
        cx: &InCallback<'_>,
        object: ObjectId<'_>,
        class: ClassId,
        references: &[Option<ObjectId<'_>>],
    ) {
        self.snapshots.object_references(cx, object, class, references);
    }

    fn garbage_collection_finished(&self, cx: &InCallback<'_>) {
        self.snapshots.garbage_collection_finished(cx);
    }
}
