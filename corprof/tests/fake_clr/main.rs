//! The fake CLR, seen by profilers that are loaded into it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod catch_up;
mod collections;
mod detach;
mod every;
mod exceptions;
mod lifecycle;
mod names;
mod refusals;
mod releases;
mod sampling;
mod sequences;
mod threads;

use corprof::prelude::*;
use corprof::sys;
use corprof::testing::FakeClr;
use windows_core::{HRESULT, Interface};

/// Calls the runtime below the contexts, from wherever a test wants it to.
fn raw<R>(clr: &FakeClr, call: impl FnOnce(&sys::ICorProfilerInfo15) -> R) -> R {
    call(&clr.info().cast::<sys::ICorProfilerInfo15>().unwrap())
}

fn thread_info(info: &sys::ICorProfilerInfo15, thread: ThreadId) -> HRESULT {
    let mut id = 0;
    // SAFETY: writes one number.
    unsafe { info.GetThreadInfo(thread.as_raw(), &mut id) }
}

/// Nothing at all.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0002", no_export)]
struct Nothing;

#[callbacks]
impl Callbacks for Nothing {}
