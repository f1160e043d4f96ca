//! Takes heap snapshots as the files in a folder order: for `live/heap_dump.rs` and the figures in the book.
//!
//! When the file N.order exists, N from 1 up, it does what the file says and writes N.blocks and N.told. The orders:
//! `take`, `bare` (collects only), `two` (a second one meanwhile), `fail` (the sink fails), `late` (a deadline of
//! nothing), `doubled` (another session has the keyword), `storm` (again and again until the end), `leave` (detaches in
//! the middle).

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use corprof::detach::Detacher;
use corprof::events::{KeywordSet, Keywords, Level};
use corprof::heap_dump::{BlockFile, HeapDump, HeapDumpError};
use corprof::info::EventPipeProviderConfig;
use corprof::prelude::*;

const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1231")]
struct Dumps;

/// What a snapshot has come to, a fact a line.
fn told<S>(cx: &InCallback<'_>, dump: Result<HeapDump<S>, HeapDumpError>) -> String {
    let dump = match dump {
        Ok(dump) => dump,
        Err(error) => return format!("error: {error}\n"),
    };
    let mut text = format!("{:?}\n", dump.cost);
    for (key, class) in dump.classes {
        let _ = writeln!(text, "class {key} {}", cx.names().csharp().class(class));
    }
    text
}

fn answer(folder: &Path, number: u32, text: &str) {
    let file = folder.join(format!("{number}.told"));
    // Under another name first: the test reads it as soon as it is there.
    let part = file.with_extension("part");
    if fs::write(&part, text).and_then(|()| fs::rename(&part, &file)).is_err() {
        eprintln!("heap_dump| cannot write {}", file.display());
    }
}

fn obey(cx: &mut ProfilerThread<'_>, order: &str, blocks: &Path, detacher: Option<Detacher>) -> String {
    match order {
        "bare" => {
            let start = Instant::now();
            format!("{:?} in {:?}\n", cx.force_gc(), start.elapsed())
        }
        "two" => {
            let is_refused = Arc::new(AtomicBool::new(false));
            let is_told = Arc::clone(&is_refused);
            let second = cx.spawn_profiler_thread("second", move |cx| {
                loop {
                    match cx.take_heap_snapshot(PATIENCE, |_, _: &[u8]| Ok(())) {
                        Err(HeapDumpError::Busy) => break is_told.store(true, SeqCst),
                        _ if cx.wait(Duration::from_millis(1)).is_break() => break,
                        _ => {}
                    }
                }
            });
            let is_seen = Arc::clone(&is_refused);
            // It lasts until the other is refused. The application stands still meanwhile.
            let sink = move |_, _: &[u8]| {
                let until = Instant::now() + Duration::from_secs(60);
                while !is_seen.load(SeqCst) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            };
            let dump = loop {
                match cx.take_heap_snapshot(PATIENCE, sink.clone()) {
                    // The other began first. It tries again, and is refused then.
                    Err(HeapDumpError::Busy) if !cx.wait(Duration::from_millis(1)).is_break() => {}
                    dump => break dump,
                }
            };
            format!("{second:?}, refused: {}\n{}", is_refused.load(SeqCst), told(cx, dump))
        }
        "fail" => {
            let mut left = 3;
            let dump = cx.take_heap_snapshot(PATIENCE, move |_, _: &[u8]| {
                left -= 1;
                if left > 0 { Ok(()) } else { Err(io::Error::other("the disk is full")) }
            });
            told(cx, dump)
        }
        "late" => {
            let dump = cx.take_heap_snapshot(Duration::ZERO, |_, _: &[u8]| Ok(()));
            told(cx, dump)
        }
        "doubled" => {
            let set = KeywordSet::new(Keywords::GC_HEAP_DUMP, Level::Informational);
            let session = cx.event_pipe_start_session(&[EventPipeProviderConfig::runtime(set)], false);
            let dump = cx.take_heap_snapshot(PATIENCE, |_, _: &[u8]| Ok(()));
            let stopped = session.and_then(|session| cx.event_pipe_stop_session(session));
            format!("{stopped:?}\n{}", told(cx, dump))
        }
        "storm" | "leave" => {
            let mut text = String::new();
            while !cx.is_stopping() {
                let dump = cx.take_heap_snapshot(PATIENCE, |_, _: &[u8]| Ok(()));
                if let Ok(dump) = &dump {
                    eprintln!("heap_dump| {} objects", dump.cost.objects);
                }
                text = told(cx, dump);
                if let Some(detacher) = detacher.clone().filter(|_| order == "leave") {
                    // It waits for the threads of the profiler, so it is not one of them.
                    std::thread::spawn(move || eprintln!("heap_dump| detach: {:?}", detacher.detach()));
                }
            }
            text
        }
        _ => match BlockFile::create(blocks) {
            Ok(file) => {
                let dump = cx.take_heap_snapshot(PATIENCE, file);
                told(cx, dump)
            }
            Err(error) => format!("error: {error}\n"),
        },
    }
}

#[callbacks]
impl Callbacks for Dumps {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let folder = PathBuf::from(std::env::var_os("DUMPS").ok_or("DUMPS names no folder")?);
        let detacher = cx.detacher().ok();
        cx.spawn_profiler_thread("dumps", move |cx| {
            let mut number = 1;
            while cx.wait(Duration::from_millis(20)).is_continue() {
                let Ok(order) = fs::read_to_string(folder.join(format!("{number}.order"))) else { continue };
                if !order.ends_with('\n') {
                    continue; // it is still being written
                }
                let blocks = folder.join(format!("{number}.blocks"));
                let text = obey(cx, order.trim(), &blocks, detacher.clone());
                answer(&folder, number, &text);
                number += 1;
            }
        })?;
        Ok(Self)
    }
}
