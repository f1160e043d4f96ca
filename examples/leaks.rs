//! Takes two snapshots of the heap, five seconds apart, and prints the classes that have grown most.

use std::time::Duration;

use corprof::heap_dump::BlockFile;
use corprof::prelude::*;
use corprof_heap::diff::{Summary, by_class};
use corprof_heap::{BulkReader, Dominators, GraphBuilder};

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E1F")]
struct Leaks;

fn snapshot(cx: &mut ProfilerThread<'_>) -> Result<Summary, BoxError> {
    // If the application ends meanwhile, the next call says so.
    let _ = cx.wait(Duration::from_secs(5));
    let file = tempfile::NamedTempFile::new()?;
    let dump = cx.take_heap_snapshot(Duration::from_secs(60), BlockFile::create(file.path())?)?;
    let mut reader = BulkReader::new(GraphBuilder::new("heap"), true);
    for (key, class) in dump.classes {
        reader.builder().class(key, &cx.names().csharp().class(class), "", 0);
    }
    BlockFile::read(file.path(), |event, payload| _ = reader.event(event, payload))?;
    Ok(Summary::of(&Dominators::of(&reader.finish()?), 1))
}

fn compare(cx: &mut ProfilerThread<'_>) -> Result<(), BoxError> {
    let before = snapshot(cx)?;
    for class in by_class(&before, &snapshot(cx)?).iter().take(20) {
        let change = class.change;
        eprintln!("{:+} bytes, {:+} objects of {}", change.retained_growth(), change.object_growth(), class.name);
    }
    Ok(())
}

#[callbacks]
impl Callbacks for Leaks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.spawn_profiler_thread("leaks", move |cx| {
            if let Err(error) = compare(cx) {
                eprintln!("leaks: {error}");
            }
        })?;
        Ok(Self)
    }
}
