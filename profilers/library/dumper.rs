//! Attaches to a running application, writes a snapshot of its heap into a file, and detaches.
//!
//! `corprof heap PID` uses it. The attach data are HEAP_OUT=/tmp/it/heap: an empty file in a folder of the reader, who
//! holds the file open. The profiler opens it and removes its name, so that the system frees its room when both have
//! closed it, however they end. Into the file go the blocks of the runtime (`BlockFile`), some 48 bytes an object.
//! Afterwards the profiler creates the file /tmp/it/heap.4711, with the process id:
//!
//! ```text
//! heap 1                                  the version of the format
//! repeated 1                              how many snapshots before this one were cut; left out for none
//! pause 460312                            microseconds for which the application stood still
//! later 204100                            the same for a further collection, which .NET 8 makes
//! objects 10000000
//! bytes 480000000                         of the blocks
//! frozen 139941298798600 4096             beginning and length of a range whose objects are never collected
//! class 140113 System.Private.CoreLib string[]    number in the blocks, assembly, name, separated by tabs
//! made 140118 <Load>b__0                  a class that a compiler has made, and a method that tells for what
//! static 139941298798640 Shop.Catalogue    the address of a static field, and its class
//! code 139941298798612 Shop.Orders.LoadAsync()    an address at which a suspended method goes on, and its name
//! machine …AsyncStateMachineBox<Shop.Orders.<SaveAsync>d__1>    the class of a task, and the method whose state it has
//! ```
//!
//! Behind the name, if the runtime tells the place in the IL: the module, the token of the method, and the offset,
//! separated by tabs. Behind a machine: the module and the token of the method. Both come with HEAP_TASKS=yes, as
//! blocks with fields of tasks do (`task_fields.rs`), for `corprof tasks`.
//!
//! If there is no snapshot, the second line is `full` or `error`, with the reason; `full`: the file system has no room.
//! After the detach it creates /tmp/it/heap.4711.left, which contains the reason if the profiler could not detach.
//!
//! The profiler begins when the reader has created the file /tmp/it/heap.wanted: the runtime has then answered the
//! attach, which need not wait for a collection. If this file is removed, the profiler detaches as soon as the runtime
//! lets it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, ErrorKind, Seek};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corprof::heap_dump::{BlockFile, FieldsOf, HeapDumpError};
use corprof::id::CodeAddress;
use corprof::prelude::*;
use corprof_profilers::settings::Settings;
use corprof_profilers::table::DUMPER;

use crate::class_assembly::assembly;
use crate::code_frames::IlPlace;
use crate::lease::Lease;
use crate::made_class::telling_method;
use crate::question::leave;
use crate::report_files::{of_process, with_ending, write};
use crate::static_fields::StaticFields;
use crate::task_fields::{PartOfTasks, TaskBlocks, method_of_box, task_fields};

/// The name in messages.
const NAME: &str = "dumper";

/// The interval at which it checks whether it is done, or no longer wanted.
const LOOK: Duration = Duration::from_millis(10);
/// The time limit for the reader to want the snapshot.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many snapshots are thrown away before there is none.
const MOST_REPEATED: u32 = 2;
/// The reader gives up earlier, unless it was killed.
const DEADLINE: Duration = Duration::from_secs(3600);

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A2D", no_export)]
pub struct Dumper;

#[callbacks]
impl Callbacks for Dumper {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Err("it can only attach to a running application: `corprof heap PID`".into())
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        let _ = detacher.listen(cx); // it leaves by itself, too
        let settings = Settings::of_attach(&DUMPER, data)?;
        let has_tasks = settings.of("HEAP_TASKS").word(&[("no", false), ("yes", true)])?;
        let out = settings.of("HEAP_OUT").path();
        let out = out.ok_or("HEAP_OUT is missing: attach it by `corprof heap PID`")?;
        cx.spawn_profiler_thread("leaves", move |cx| {
            let lease = Lease::of(&out);
            if work(cx, &out, has_tasks, lease.as_ref()).is_break() {
                return; // the application ends
            }
            // This also ends a snapshot that is being taken.
            leave(NAME, &detacher, Some(out), lease.map(Arc::new));
        })?;
        Ok(Self)
    }
}

/// Waits until the snapshot is wanted, and has it taken, until it is done or no longer wanted.
fn work(cx: &mut ProfilerThread<'_>, out: &Path, has_tasks: bool, lease: Option<&Lease>) -> ControlFlow<()> {
    let is_over = || lease.is_some_and(Lease::is_over);
    let wanted = with_ending(out, ".wanted");
    let start = Instant::now();
    while !wanted.exists() {
        if start.elapsed() > PATIENCE || !out.exists() || is_over() {
            return ControlFlow::Continue(());
        }
        cx.wait(LOOK)?;
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let is_written = Arc::clone(&is_done);
    let file = out.to_owned();
    let thread = cx.spawn_profiler_thread("snapshot", move |cx| {
        write(NAME, &of_process(&file, ""), &text(snapshot(cx, &file, has_tasks)));
        is_written.store(true, Ordering::Release);
    });
    if let Err(error) = thread {
        write(NAME, &of_process(out, ""), &text(Err(HeapDumpError::Thread(error))));
        return ControlFlow::Continue(());
    }
    while !is_done.load(Ordering::Acquire) && wanted.exists() && !is_over() {
        cx.wait(LOOK)?;
    }
    ControlFlow::Continue(())
}

/// Takes the snapshot, and describes it.
fn snapshot(cx: &mut ProfilerThread<'_>, out: &Path, has_tasks: bool) -> Result<String, HeapDumpError> {
    let mut blocks = File::options().write(true).open(out).map_err(HeapDumpError::Sink)?;
    // Windows may refuse that while the reader has it open: then the reader removes it.
    let _ = std::fs::remove_file(out);
    let fields = if has_tasks { task_fields(cx).map_err(HeapDumpError::Runtime)? } else { Vec::new() };
    let (parts, fields): (Vec<PartOfTasks>, Vec<FieldsOf>) = fields.into_iter().unzip();
    let mut repeated = 0;
    let dump = loop {
        let file = BlockFile::new(blocks.try_clone().map_err(HeapDumpError::Sink)?);
        let statics = StaticFields::default();
        let sink = TaskBlocks { file, statics, parts: parts.clone(), addresses: BTreeSet::new() };
        let error = match cx.take_heap_snapshot_with_fields(DEADLINE, sink, fields.clone()) {
            Ok(dump) => break dump,
            Err(error) => error,
        };
        // The reader has it open, so that it would take room until the reader has learned the reason: which needs some
        // itself.
        blocks.set_len(0).and_then(|()| blocks.rewind()).map_err(HeapDumpError::Sink)?;
        // On a busy machine, beside collections that the application forces, about one in forty is cut.
        let is_cut = matches!(error, HeapDumpError::Cut(_) | HeapDumpError::Doubled(_));
        if !is_cut || repeated == MOST_REPEATED {
            return Err(error);
        }
        repeated += 1;
    };
    let mut text = String::new();
    if repeated > 0 {
        let _ = writeln!(text, "repeated {repeated}");
    }
    let _ = writeln!(text, "pause {}", dump.cost.pause.as_micros());
    for pause in &dump.cost.later_pauses {
        let _ = writeln!(text, "later {}", pause.as_micros());
    }
    let _ = writeln!(text, "objects {}\nbytes {}", dump.cost.objects, dump.cost.bytes);
    // A runtime that does not tell them keeps no such objects.
    for range in cx.non_gc_heap_bounds().unwrap_or_default() {
        let _ = writeln!(text, "frozen {} {}", range.start, range.length);
    }
    for &(key, class) in &dump.classes {
        let assembly = assembly(cx, class).unwrap_or_default();
        let name = cx.names().csharp().class(class);
        let _ = writeln!(text, "class {key}\t{}\t{}", line(&assembly), line(&name));
        if let Some(method) = telling_method(cx, class) {
            let _ = writeln!(text, "made {key} {}", line(&method));
        }
        if parts.contains(&PartOfTasks::Machine)
            && let Some((module, token)) = method_of_box(cx, class)
        {
            let _ = writeln!(text, "machine {}\t{}\t{token}", line(&name), line(&module));
        }
    }
    for (address, class) in dump.sink.statics.classes(cx) {
        let _ = writeln!(text, "static {address} {}", line(&class));
    }
    for &address in &dump.sink.addresses {
        // SAFETY: a suspended method goes on there, so it has run (fact: addresses).
        let code = unsafe { CodeAddress::from_raw(address as usize) };
        let function = cx.function_version_from_ip(code)?;
        if let Some(version) = function {
            let _ = write!(text, "code {address} {}", line(&cx.names().csharp().function(version.function)));
            if let Some(IlPlace { module, token, offset }) = IlPlace::of_address(cx, version.function, address as usize)
            {
                let _ = write!(text, "\t{}\t{token}\t{offset}", line(&module));
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// The file of a snapshot, or of the reason why there is none.
fn text(snapshot: Result<String, HeapDumpError>) -> String {
    let is_full = |error: &io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let rest = match snapshot {
        Ok(text) => text,
        Err(HeapDumpError::Sink(error)) if is_full(&error) => format!("full {}\n", line(&error.to_string())),
        Err(error) => format!("error {}\n", line(&error.to_string())),
    };
    format!("heap 1\n{rest}")
}

/// Obfuscated names may contain line breaks.
fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
