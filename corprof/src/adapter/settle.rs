//! The begin and the end of an attach: waits until no unload is under way that the runtime has not announced
//! (`session/liveness/attach.rs` says why), and finds the moment from which on it announces the end of each dynamic
//! method.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::{Error, Result};
use crate::event_mask::EventMask;
use crate::id::{FunctionId, ModuleId};
use crate::metadata::MethodDef;
use crate::profiler_thread::ProfilerThread;
use crate::session::liveness::Scout;
use crate::walk::suspended::{OnStacks, look_for};

/// Unloading takes milliseconds, but the machine may be busy, and a long collection keeps the runtime from being
/// suspended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Unloading takes much less: the wait on a runtime that has no such finalizer, and for which there is no proof. All
/// known ones have it.
const LONG: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(1);
/// The longest time between two looks that nobody waits for.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The class whose finalizer unloads modules, and the one whose finalizer ends dynamic methods.
const SCOUT: [&str; 1] = ["System.Reflection.LoaderAllocatorScout"];
const DYNAMIC_SCOUT: [&str; 2] = ["System.Reflection.Emit.DynamicResolver", "DestroyScout"];

/// Inside `InitializeForAttach`: from now on the runtime may be unloading something unannounced.
pub(super) fn begin(cx: &mut InCallback<'_>) -> Result<()> {
    let info = cx.info();
    let modules = cx.list_modules()?;
    info.liveness().attach_begins(info.runtime(), find_finalizer(cx, &modules, &SCOUT));
    // If none of them can be unloaded: `ModuleLoadFinished` reports later ones.
    if !info.liveness().may_miss_unloads(info.runtime()) {
        cx.note_modules(modules)?;
    }
    Ok(())
}

/// The finalizer of a class of the core library, which is the first of the modules. The class is named with those
/// around it.
fn find_finalizer(cx: &InCallback<'_>, modules: &[ModuleId], classes: &[&str]) -> Option<(ModuleId, MethodDef)> {
    let core = *modules.first()?;
    let metadata = cx.metadata(core).ok()?;
    let mut found = None;
    for class in classes {
        found = Some(metadata.find_type_def(class, found).ok()??);
    }
    let method = metadata.methods_named(found?, "Finalize").ok()?.into_iter().next()?;
    Some((core, method))
}

/// Inside `ProfilerAttachComplete`, before the user's method: from now on the runtime announces each unload that
/// begins. Waits for the others.
pub(super) fn complete(cx: &mut InCallback<'_>) -> Result<()> {
    wait_for_unloads(cx)?;
    watch_dynamic_methods(cx)
}

fn wait_for_unloads(cx: &mut InCallback<'_>) -> Result<()> {
    let info = cx.info();
    if info.liveness().may_miss_unloads(info.runtime()) {
        // Not before: the runtime has reported no new threads so far, and so the searcher could not work.
        info.runtime().searches().code_goes();
        match info.liveness().scout(info.runtime()) {
            Scout::NotLoaded => {}
            Scout::Loaded(scout) => return wait_for(cx, scout),
            Scout::Unknown => std::thread::sleep(LONG),
        }
    }
    settle(cx)
}

/// What was unloaded unannounced is not listed any more, and what was loaded unannounced is.
fn settle(cx: &mut InCallback<'_>) -> Result<()> {
    let info = cx.info();
    let before = info.liveness().recorded_modules();
    let listed = cx.list_modules()?;
    let listed = cx.note_modules(listed)?;
    info.liveness().modules_remain(&before, &listed);
    info.liveness().attach_is_settled();
    Ok(())
}

/// Waits until the finalizer is on no stack.
///
/// The runtime is suspended on a thread of corprof's own, as always. If it takes long, that thread goes on alone.
fn wait_for(cx: &mut InCallback<'_>, scout: FunctionId) -> Result<()> {
    cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
    let (sender, answer) = channel();
    let look = move |cx: &mut ProfilerThread<'_>| {
        let answer = loop {
            match look_for(cx, scout) {
                Ok(OnStacks::No) => break settle(cx),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            if cx.wait(PAUSE).is_break() {
                return;
            }
        };
        let _ = sender.send(answer);
    };
    let refused =
        |cure| Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "SuspendRuntime").about("an attach", cure);
    cx.spawn_profiler_thread("attach", look).map_err(|_| refused("the system has no thread left for corprof"))?;
    match answer.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Disconnected) => Ok(()), // the profiler ends already
        Err(RecvTimeoutError::Timeout) => Err(refused("an assembly has been being unloaded for long: ask again later")),
    }
}

/// Dynamic methods that are older than the profiler have names as soon as the runtime announces the end of each: once
/// the one that may be ending unannounced has ended. Nobody waits for that.
fn watch_dynamic_methods(cx: &mut InCallback<'_>) -> Result<()> {
    let info = cx.info();
    if !info.current_event_mask()?.watches_dynamic_methods() {
        return Ok(());
    }
    let modules = cx.list_modules()?;
    let Some((module, method)) = find_finalizer(cx, &modules, &DYNAMIC_SCOUT) else { return Ok(()) };
    let scout = match info.runtime().ask_loaded_function(module, method) {
        Ok(Some(scout)) => scout,
        Ok(None) => {
            info.liveness().watch_older_dynamic_methods();
            return Ok(());
        }
        Err(_) => return Ok(()),
    };
    cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
    let ended_before = info.liveness().dynamic_methods_ended();
    let look = move |cx: &mut ProfilerThread<'_>| {
        let mut pause = PAUSE;
        loop {
            // The finalizer thread ends one after another: an announced end comes after the unannounced one.
            let is_over = cx.liveness().dynamic_methods_ended() > ended_before;
            if is_over || look_for(cx, scout) == Ok(OnStacks::No) {
                cx.liveness().watch_older_dynamic_methods();
                return;
            }
            if cx.wait(pause).is_break() {
                return;
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    };
    // Without it they have no names.
    let _ = cx.spawn_profiler_thread("attach", look);
    Ok(())
}
