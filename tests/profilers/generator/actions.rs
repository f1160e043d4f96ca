//! What a random profiler does besides the calls of the matrix: actions that keep what they are answered, and use what
//! is kept.
//!
//! Each is a small closure with a name, by the weakest context that offers it.

#![allow(clippy::unit_arg, reason = "an action ends early with `?`, and else with whatever it does last")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use corprof::info::HandleKind;
use corprof::prelude::*;
use fastrand::Rng;

use super::act;
use super::edits;
use super::plan::{self, Detach};
use super::pools;
use super::readers;
use super::sessions;

type OnAnyThread = (&'static str, fn(&Info, &mut Rng) -> Option<()>);
type InAnyCallback = (&'static str, fn(&InNoGc<'_>, &mut Rng) -> Option<()>);
type OfObject = (&'static str, fn(&InNoGc<'_>, ObjectId<'_>, &mut Rng) -> Option<()>);
type WithTriggers = (&'static str, fn(&mut InCallback<'_>, &mut Rng) -> Option<()>);
type OnProfilerThread = (&'static str, fn(&mut ProfilerThread<'_>, &mut Rng) -> Option<()>);

/// On any thread.
pub(super) const ANYWHERE: &[OnAnyThread] = &[
    ("handle: is it alive", |_, random| pools::HANDLES.pick(random)?.is_alive().ok().map(drop)),
    ("handle: drop", |_, random| pools::HANDLES.take(random).map(drop)),
    ("clone of Info: keep", |cx, random| Some(pools::INFOS.put(random, Info::clone(cx)))),
    ("clone of Info: use a kept one", |_, random| {
        let info = pools::INFOS.pick(random)?;
        info.module_info(pools::MODULES.pick(random)?).ok().map(drop)
    }),
    ("clone of Info: drop", |_, random| pools::INFOS.take(random).map(drop)),
    ("forget what is kept", |_, random| {
        match random.u32(0..6) {
            0 => std::mem::forget(pools::HANDLES.take(random)),
            1 => std::mem::forget(pools::INFOS.take(random)),
            2 => std::mem::forget(pools::REWRITES.take(random)),
            3 => std::mem::forget(pools::SELECTIONS.take(random)),
            4 => std::mem::forget(pools::BODIES.take(random)),
            _ => std::mem::forget(pools::DETACHERS.take(random)),
        }
        Some(())
    }),
    ("body: current", |cx, random| {
        let (module, method) = pools::METHODS.pick(random)?;
        cx.current_il_function_body(module, method).ok().map(drop)
    }),
    ("events: add", |cx, random| cx.add_events(some_events(random)).ok()),
    ("events: remove", |cx, random| cx.remove_events(some_events(random)).ok()),
    ("thread: name", |cx, random| cx.thread_name(pools::THREADS.pick(random)?).map(drop)),
    ("code: keep", |cx, random| {
        let function = pools::FUNCTIONS.pick(random)?;
        pools::CODE.put_all(random, cx.native_code(function).ok()?);
        Some(())
    }),
    ("raw thread: start", |cx, random| {
        let info = Info::clone(cx);
        let turns = random.u32(1..200);
        std::thread::Builder::new().spawn(move || (0..turns).for_each(|_| act::anywhere(&info, "raw thread"))).ok()?;
        Some(())
    }),
    ("rewrite: new", |_, random| edits::rewrite(random)),
    ("rewrite: all of some", |_, random| edits::rewrite_all(random)),
    ("rewrite: revert", |_, random| Some(pools::REWRITES.pick(random)?.revert())),
    ("rewrite: restore", |_, random| Some(pools::REWRITES.pick(random)?.restore())),
    ("rewrite: drop", |_, random| pools::REWRITES.take(random).map(drop)),
    ("rewrite: outcome", |_, random| {
        pools::REWRITES.pick(random).map(|rewrite| drop(format!("{:?}", rewrite.outcome())))
    }),
    ("rewrite: replace", |_, random| {
        let edit = edits::Edit::any(random);
        let new = pools::REWRITES.pick(random)?.replace(move |open| edit.apply(open));
        Some(pools::REWRITES.put(random, new))
    }),
    ("rewrite: at module loads", |_, random| {
        let longest = Duration::from_millis(random.u64(0..20));
        Some(pools::INSTRUMENTATION.pick(random)?.wait_at_module_load(longest))
    }),
    ("selection: new", |_, random| edits::select(random)),
    ("selection: revert", |_, random| Some(pools::SELECTIONS.pick(random)?.revert())),
    ("selection: restore", |_, random| Some(pools::SELECTIONS.pick(random)?.restore())),
    ("selection: keep its rewrites", |_, random| {
        let rewrites = pools::SELECTIONS.pick(random)?.rewrites();
        pools::REWRITES.put_all(random, rewrites.into_iter().take(20));
        Some(())
    }),
    ("detach: retire", |_, random| match plan::current()?.detach? {
        Detach::Anywhere(least) if act::count() >= least => pools::DETACHERS.pick(random)?.retire().ok(),
        _ => None,
    }),
    ("detach: state", |_, random| pools::DETACHERS.pick(random).map(|detacher| _ = detacher.state())),
    ("detach: begin", |_, random| match plan::current()?.detach? {
        Detach::Anywhere(least) if act::count() >= least => pools::DETACHERS.pick(random)?.detach().ok(),
        _ => None,
    }),
    ("detach: begin, then", |_, random| match plan::current()?.detach? {
        Detach::Anywhere(least) if act::count() >= least => {
            pools::DETACHERS.pick(random)?.detach_then(|_| std::thread::yield_now()).ok()
        }
        _ => None,
    }),
];

/// In every callback.
pub(super) const IN_NO_GC: &[InAnyCallback] = &[
    ("names: function", |cx, random| Some(drop(cx.names().function(pools::FUNCTIONS.pick(random)?)))),
    ("names: class", |cx, random| Some(drop(cx.names().csharp().class(pools::CLASSES.pick(random)?)))),
    ("names: module", |cx, random| Some(drop(cx.names().module(pools::MODULES.pick(random)?)))),
    ("names: assembly", |cx, random| Some(drop(cx.names().assembly(pools::ASSEMBLIES.pick(random)?)))),
    ("names: method", |cx, random| {
        let (module, method) = pools::METHODS.pick(random)?;
        Some(drop(cx.names().method_def(module, method)))
    }),
    ("code: keep an address near some", |cx, random| {
        let number = pools::CODE.pick(random)?.as_raw().wrapping_add(random.usize(0..1 << 20));
        let address = cx.code_address(number)?;
        pools::ADDRESSES.put(random, address);
        Some(())
    }),
    ("code: keep an address in a module", |cx, random| {
        let base = cx.module_info(pools::MODULES.pick(random)?).ok()?.base;
        let address = cx.code_address(base.wrapping_add(random.usize(0..16 << 20)))?;
        pools::ADDRESSES.put(random, address);
        Some(())
    }),
    ("code: ask about an address", |cx, random| cx.function_from_ip(pools::ADDRESSES.pick(random)?).ok().map(drop)),
    ("metadata: keep definitions", |cx, random| {
        let module = pools::MODULES.pick(random)?;
        let metadata = cx.metadata(module).ok()?;
        let classes = metadata.type_defs().ok()?;
        let class = *classes.get(random.usize(0..classes.len().max(1)))?;
        pools::TYPES.put_all(random, [(module, class)]);
        pools::METHODS.put_all(random, metadata.methods(class).ok()?.into_iter().map(|method| (module, method)));
        pools::FIELDS.put_all(random, metadata.fields(class).ok()?);
        Some(())
    }),
    ("metadata: read", |cx, random| {
        let (module, method) = pools::METHODS.pick(random)?;
        let metadata = cx.metadata(module).ok()?;
        let _ = (metadata.method(method), metadata.module_name(), metadata.type_refs(), metadata.assembly_refs());
        Some(())
    }),
    ("metadata: read anything", |cx, random| {
        let metadata = cx.metadata(pools::MODULES.pick(random)?).ok()?;
        (0..20).for_each(|_| readers::read_any_row(&metadata, random));
        Some(())
    }),
    ("stack: boundary", |cx, _| cx.stack_boundary().ok().map(drop)),
    ("hooks: the thread's state", |cx, _| {
        let look = |thread: &mut u64| {
            *thread += 1;
            act::anywhere(cx, "with a thread's state");
        };
        cx.with_hook_thread(look).ok()
    }),
    ("metadata: emit", |cx, random| {
        let emit = cx.metadata_emit(pools::MODULES.pick(random)?).ok()?;
        let _ = emit.define_user_string(&format!("generated {}", random.u32(0..50)));
        let _ = emit.define_module_ref("generated");
        let class = random.u32(1..20);
        let _ = emit.define_type_ref(corprof::metadata::Token::from_raw(0x2300_0001), &format!("Generated{class}"));
        super::made_up::define_nonsense(random, &emit);
        emit.import().ok()?.type_refs().ok().map(drop)
    }),
    ("handle: use", |cx, random| {
        let handle = pools::HANDLES.pick(random)?;
        let object = handle.get(cx).ok()??;
        pools::CLASSES.put_all(random, cx.class_of(object).ok());
        let kind = some_handle(random);
        pools::HANDLES.put_all(random, cx.create_handle(object, kind).ok().map(Arc::new));
        cx.object_size(object).ok().map(drop)
    }),
    ("stack: keep functions", |cx, random| {
        let mut functions = Vec::new();
        let walked = cx.walk_own_stack(|frame| {
            functions.extend(frame.function());
            if functions.len() < 30 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        pools::FUNCTIONS.put_all(random, functions);
        walked.ok()
    }),
    ("stack: with registers", |cx, _| cx.walk_own_stack_with_registers(|_| ControlFlow::Continue(())).ok()),
    ("stack: call inside", |cx, random| {
        let function = pools::FUNCTIONS.pick(random)?;
        let ask = |_: corprof::walk::Frame<'_>| {
            drop(cx.names().function(function));
            act::anywhere(cx, "visit of a frame");
            ControlFlow::Continue(())
        };
        cx.walk_own_stack(ask).ok()
    }),
    ("statics", readers::statics),
    ("EnumJITedFunctions", |cx, random| {
        pools::FUNCTIONS.put_all(random, cx.jitted_functions().ok()?.into_iter().take(50));
        Some(())
    }),
];

/// In callbacks that are given an object.
pub(super) const OF_OBJECTS: &[OfObject] = &[
    ("handle: make", |cx, object, random| {
        let kind = some_handle(random);
        pools::HANDLES.put_all(random, cx.create_handle(object, kind).ok().map(Arc::new));
        pools::CLASSES.put_all(random, cx.class_of(object).ok());
        Some(())
    }),
    ("object: value", |cx, object, random| readers::read(cx, object, random, 0)),
    ("links: follow", readers::follow),
    ("object: what it refers to", |cx, object, random| {
        let _ = cx.enumerate_object_references(object, |_| ControlFlow::Continue(()));
        pools::HANDLES.put_all(random, cx.create_handle(object, HandleKind::Weak).ok().map(Arc::new));
        Some(())
    }),
];

/// In callbacks from which a collection may start.
pub(super) const IN_CALLBACK: &[WithTriggers] = &[
    ("EnumModules", |cx, random| {
        pools::MODULES.put_all(random, cx.enum_modules().ok()?);
        Some(())
    }),
    ("EnumThreads", |cx, random| {
        pools::THREADS.put_all(random, cx.enum_threads().ok()?);
        Some(())
    }),
    ("class: of a definition", |cx, random| {
        let (module, class) = pools::TYPES.pick(random)?;
        let arguments: Vec<_> = (0..random.usize(0..3)).filter_map(|_| pools::CLASSES.pick(random)).collect();
        pools::CLASSES.put_all(random, cx.class_from_token(module, class, &arguments).ok());
        Some(())
    }),
    ("function: of a definition", |cx, random| {
        let (_, method) = pools::METHODS.pick(random)?;
        let class = pools::CLASSES.pick(random)?;
        let arguments: Vec<_> = (0..random.usize(0..2)).filter_map(|_| pools::CLASSES.pick(random)).collect();
        pools::FUNCTIONS.put_all(random, cx.function_from_token_and_type_args(class, method, &arguments).ok());
        Some(())
    }),
    ("links: learn", readers::learn),
    ("edit: a method", |cx, random| edits::edit_method(cx, random)),
    ("edit: a function once", |cx, random| edits::edit_once(cx, random)),
    ("edit: hand over a kept body", |cx, random| cx.set_checked_body(&pools::BODIES.pick(random)?).ok()),
    ("EventPipeCreateProvider", |cx, random| sessions::provide(cx, random)),
    ("EventPipeStartSession", |cx, random| sessions::start(cx, random)),
    ("EventPipeStartSession of the runtime", |cx, random| sessions::start_of_runtime(cx, random)),
    ("EventPipeAddProviderToSession", |cx, random| sessions::add(cx, random)),
    ("EventPipeStopSession", |cx, random| sessions::stop(cx, random)),
    ("EnumerateGCHeapObjects", |cx, random| {
        let mut left = random.u32(1..5000);
        let visit = |cx: &InNoGc<'_>, object: ObjectId<'_>| {
            left -= 1;
            act::of_object(cx, "visit of the heap", object);
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        cx.enumerate_gc_heap_objects(visit).ok().map(drop)
    }),
    ("thread: start", |cx, random| {
        let turns = random.u32(1..100);
        let wait = Duration::from_micros(random.u64(0..2000));
        let run = move |cx: &mut ProfilerThread<'_>| {
            for _ in 0..turns {
                act::on_own_thread(cx, "thread started later");
                if cx.wait(wait).is_break() {
                    return;
                }
            }
        };
        cx.spawn_profiler_thread("started later", run).ok()
    }),
    ("sampler: start", |cx, random| super::start_sampler(cx, random)),
];

/// On a profiler thread.
pub(super) const ON_OWN_THREAD: &[OnProfilerThread] = &[
    ("RequestReJIT", |cx, random| cx.request_rejit(&some_methods(random)).ok()),
    ("RequestReJITWithInliners", |cx, random| {
        cx.request_rejit_with_inliners(&some_methods(random), random.bool()).ok()
    }),
    ("RequestRevert", |cx, random| cx.request_revert(&some_methods(random)).ok().map(drop)),
    ("rewrite: wait for all", |cx, random| {
        let longest = Duration::from_millis(random.u64(0..50));
        drop(format!("{:?}", pools::INSTRUMENTATION.pick(random)?.wait_until_prepared(cx, longest)));
        Some(())
    }),
    ("selection: wait", |cx, random| {
        let longest = Duration::from_millis(random.u64(0..50));
        drop(format!("{:?}", pools::SELECTIONS.pick(random)?.wait_until_prepared(cx, longest)));
        Some(())
    }),
    ("rewrite: wait", |cx, random| {
        pools::REWRITES.pick(random)?.wait(cx, Duration::from_millis(random.u64(0..50)));
        Some(())
    }),
    ("functions: wait for all", |cx, random| {
        pools::FUNCTIONS.put_all(random, cx.wait_for_jitted_functions().ok()?.into_iter().take(50));
        Some(())
    }),
    ("EventPipeStopSession of the runtime", |cx, random| pools::RUNTIME_EVENTS.take(random)?.stop(cx).ok()),
    ("heap: snapshot", |cx, random| sessions::snapshot(cx, random)),
    ("wait", |cx, random| {
        let _ = cx.wait(Duration::from_millis(random.u64(0..20)));
        Some(())
    }),
];

/// Some flags, of which the runtime may refuse any.
fn some_events(random: &mut Rng) -> EventMask {
    // Not MONITOR_GC: see `may_walk_heap`. It is on from the beginning, or not at all.
    let all: Vec<_> = EventMask::all().iter().filter(|events| *events != EventMask::MONITOR_GC).collect();
    let at = random.usize(0..all.len().max(1));
    all.get(at).copied().unwrap_or(EventMask::empty())
}

fn some_handle(random: &mut Rng) -> HandleKind {
    [HandleKind::Weak, HandleKind::Strong, HandleKind::Pinned][random.usize(0..3)]
}

fn some_methods(random: &mut Rng) -> Vec<(ModuleId, corprof::metadata::MethodDef)> {
    (0..random.usize(1..4)).filter_map(|_| pools::METHODS.pick(random)).collect()
}
