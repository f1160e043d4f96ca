//! The catch-up of an attached profiler: its callbacks for what was there already.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::callback_event::CallbackEvent;
use crate::context::InCallback;
use crate::error::Result;
use crate::event_mask::Event;
use crate::id::{AssemblyId, FunctionId, ModuleId, ThreadId};
use crate::info::{PAUSE, is_passing};
use crate::profiler::Profiler;
use crate::report;
use crate::session::catch_up::CatchUp;
use crate::session::event_pipe_sessions::Callback;
use crate::session::panics::catch;

use super::Adapter;

impl<P: Profiler> Adapter<P> {
    /// Reports what the runtime lists and no event has reported.
    pub(super) fn catch_up(&self, cx: &mut InCallback<'_>, catch_up: &CatchUp) {
        for step in [Self::report_modules, Self::report_threads, Self::report_functions] {
            // A profiler that has been disabled is told nothing more.
            match step(self, cx, catch_up) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    report::line(format_args!("the profiler {} is not told all that was there: {error}", P::NAME));
                }
            }
        }
        catch_up.complete();
    }

    fn report_modules(&self, cx: &mut InCallback<'_>, catch_up: &CatchUp) -> Result<ControlFlow<()>> {
        let events = [
            Event::AppDomainCreationFinished,
            Event::AssemblyLoadFinished,
            Event::ModuleLoadFinished,
            Event::ModuleAttachedToAssembly,
        ];
        if !events.iter().any(|&event| P::EVENTS.contains(event)) {
            return Ok(ControlFlow::Continue(()));
        }
        let modules = cx.enum_modules()?;
        // One that is being loaded may have no assembly yet: then its event comes. One that has been unloaded has none,
        // either.
        let all: Vec<_> = modules
            .into_iter()
            .map(|module| (module, cx.module_info(module).ok().and_then(|module| module.assembly)))
            .collect();
        let assemblies: Vec<_> = all.iter().filter_map(|&(_, assembly)| assembly).collect();
        let domain_of = |&assembly: &AssemblyId| cx.assembly_info(assembly).ok()?.app_domain;
        let domains: BTreeSet<_> = assemblies.iter().filter_map(domain_of).collect();
        for domain in domains {
            let event = CallbackEvent::AppDomainCreationFinished { app_domain: domain, status: Ok(()) };
            if self.report(cx, catch_up, event, domain.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for assembly in assemblies {
            let event = CallbackEvent::AssemblyLoadFinished { assembly, status: Ok(()) };
            if self.report(cx, catch_up, event, assembly.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for (module, assembly) in all {
            let event = CallbackEvent::ModuleLoadFinished { module, status: Ok(()) };
            if self.report(cx, catch_up, event, module.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(assembly) = assembly else { continue };
            let event = CallbackEvent::ModuleAttachedToAssembly { module, assembly };
            if self.report(cx, catch_up, event, module.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn report_threads(&self, cx: &mut InCallback<'_>, catch_up: &CatchUp) -> Result<ControlFlow<()>> {
        let events = [Event::ThreadCreated, Event::ThreadAssignedToOsThread];
        if !events.iter().any(|&event| P::EVENTS.contains(event)) {
            return Ok(ControlFlow::Continue(()));
        }
        for thread in cx.enum_threads()? {
            let event = CallbackEvent::ThreadCreated { thread };
            if self.report(cx, catch_up, event, thread.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // None: the event comes when a thread of the system carries it.
            let Ok(os_id) = cx.os_thread_id(thread) else { continue };
            let event = CallbackEvent::ThreadAssignedToOsThread { thread, os_thread_id: os_id };
            if self.report(cx, catch_up, event, thread.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn report_functions(&self, cx: &mut InCallback<'_>, catch_up: &CatchUp) -> Result<ControlFlow<()>> {
        if !P::EVENTS.contains(Event::JitCompilationFinished) {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(functions) = self.settled_functions(cx)? else { return Ok(ControlFlow::Break(())) };
        for function in functions {
            // Its module may have been unloaded since.
            if cx.pin(function, "catch_up").is_err() {
                continue;
            }
            let event = CallbackEvent::JitCompilationFinished { function, status: Ok(()), is_safe_to_block: true };
            if self.report(cx, catch_up, event, function.as_raw()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The compiled functions; none if the profiler is disabled meanwhile.
    fn settled_functions(&self, cx: &mut InCallback<'_>) -> Result<Option<Vec<FunctionId>>> {
        let begin = Instant::now();
        while self.state.gate.is_open() {
            match cx.jitted_functions() {
                Err(error) if is_passing(&error, begin) => std::thread::sleep(PAUSE),
                functions => return functions.map(Some),
            }
        }
        Ok(None)
    }

    /// Delivers an event, unless the thing has been reported; `Break` if the profiler has been disabled or detaches.
    fn report(
        &self,
        cx: &mut InCallback<'_>,
        catch_up: &CatchUp,
        event: CallbackEvent<'_>,
        id: usize,
    ) -> ControlFlow<()> {
        if !P::EVENTS.contains(event.event()) || !catch_up.begin_report(event.event(), id) {
            return ControlFlow::Continue(());
        }
        let mut is_in = self.call(cx, event);
        while let Some(end) = catch_up.postponed_end() {
            if is_in
                && P::EVENTS.contains(end)
                && let Some(end) = end_of(end, id)
            {
                is_in = self.call(cx, end);
            }
        }
        if is_in { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Delivers one event, like a callback; `false` if the gate is closed.
    fn call(&self, cx: &mut InCallback<'_>, event: CallbackEvent<'_>) -> bool {
        let Some(_inside) = self.state.gate.enter() else { return false };
        // SAFETY: inside the gate.
        let Some(profiler) = (unsafe { self.profiler() }) else { return false };
        let _callback = Callback::begin(event.event());
        catch(|| deliver(profiler, cx, event), || self.disable_after_panic(event.event().method()));
        true
    }
}

/// Calls the profiler's methods for an event: `every`, and the event's own.
fn deliver<P: Profiler>(profiler: &P, cx: &mut InCallback<'_>, event: CallbackEvent<'_>) {
    if P::EVERY.contains(event.event()) {
        profiler.every(cx, &event);
    }
    match event {
        CallbackEvent::AppDomainCreationFinished { app_domain, status } => {
            profiler.app_domain_creation_finished(cx, app_domain, status);
        }
        CallbackEvent::AssemblyLoadFinished { assembly, status } => {
            profiler.assembly_load_finished(cx, assembly, status);
        }
        CallbackEvent::ModuleLoadFinished { module, status } => profiler.module_load_finished(cx, module, status),
        CallbackEvent::ModuleAttachedToAssembly { module, assembly } => {
            profiler.module_attached_to_assembly(cx, module, assembly);
        }
        CallbackEvent::ThreadCreated { thread } => profiler.thread_created(cx, thread),
        CallbackEvent::ThreadAssignedToOsThread { thread, os_thread_id } => {
            profiler.thread_assigned_to_os_thread(cx, thread, os_thread_id);
        }
        CallbackEvent::JitCompilationFinished { function, status, is_safe_to_block } => {
            profiler.jit_compilation_finished(cx, function, status, is_safe_to_block);
        }
        CallbackEvent::AssemblyUnloadStarted { assembly } => profiler.assembly_unload_started(cx, assembly),
        CallbackEvent::AssemblyUnloadFinished { assembly, status } => {
            profiler.assembly_unload_finished(cx, assembly, status);
        }
        CallbackEvent::ModuleUnloadStarted { module } => profiler.module_unload_started(cx, module),
        CallbackEvent::ModuleUnloadFinished { module, status } => profiler.module_unload_finished(cx, module, status),
        CallbackEvent::ThreadDestroyed { thread } => profiler.thread_destroyed(cx, thread),
        _ => {}
    }
}

/// An end that arrived while the beginning was being reported. The thing is gone by now: calls about it return errors.
fn end_of(end: Event, id: usize) -> Option<CallbackEvent<'static>> {
    Some(match end {
        Event::AssemblyUnloadStarted => CallbackEvent::AssemblyUnloadStarted { assembly: AssemblyId::from_raw(id)? },
        Event::AssemblyUnloadFinished => {
            CallbackEvent::AssemblyUnloadFinished { assembly: AssemblyId::from_raw(id)?.into(), status: Ok(()) }
        }
        Event::ModuleUnloadStarted => CallbackEvent::ModuleUnloadStarted { module: ModuleId::from_raw(id)? },
        Event::ModuleUnloadFinished => {
            CallbackEvent::ModuleUnloadFinished { module: ModuleId::from_raw(id)?.into(), status: Ok(()) }
        }
        Event::ThreadDestroyed => CallbackEvent::ThreadDestroyed { thread: ThreadId::from_raw(id)? },
        _ => return None,
    })
}
