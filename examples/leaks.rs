//! Takes two snapshots of the heap, five seconds apart, and prints the classes that have grown most.

use std::time::Duration;

use corprof::args::EventPipeEvent;
use corprof::heap_dump::{BlockFile, HeapSnapshots};
use corprof::prelude::*;
use corprof_heap::diff::{Summary, by_class};
use corprof_heap::{BulkReader, Dominators, GraphBuilder};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E1F")]
struct Leaks {
    snapshots: HeapSnapshots,
}

fn snapshot(cx: &mut ProfilerThread<'_>, snapshots: &HeapSnapshots) -> Result<Summary, BoxError> {
    // If the application ends meanwhile, the next call says so.
    let _ = cx.wait(Duration::from_secs(5));
    let file = tempfile::NamedTempFile::new()?;
    let dump = snapshots.take(cx, Duration::from_secs(60), BlockFile::create(file.path())?)?;
    let mut reader = BulkReader::new(GraphBuilder::new("heap"), true);
    for (key, class) in dump.classes {
        reader.builder().class(key, &cx.names().csharp().class(class), "", 0);
    }
    BlockFile::read(file.path(), |event, payload| _ = reader.event(event, payload))?;
    Ok(Summary::of(&Dominators::of(&reader.finish()?), 1))
}

fn compare(cx: &mut ProfilerThread<'_>, snapshots: &HeapSnapshots) -> Result<(), BoxError> {
    let before = snapshot(cx, snapshots)?;
    for class in by_class(&before, &snapshot(cx, snapshots)?).iter().take(20) {
        let change = class.change;
        eprintln!("{:+} bytes, {:+} objects of {}", change.retained_growth(), change.object_growth(), class.name);
    }
    Ok(())
}

#[callbacks]
impl Callbacks for Leaks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let snapshots = profiler.snapshots.clone();
        cx.spawn_profiler_thread("leaks", move |cx| {
            if let Err(error) = compare(cx, &snapshots) {
                eprintln!("leaks: {error}");
            }
        })?;
        Ok(profiler)
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.snapshots.event_pipe_event_delivered(cx, &event);
    }
}
