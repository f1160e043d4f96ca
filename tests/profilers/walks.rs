//! Walks of the own stack from many callbacks, one line each: `EVENT: leaf < caller < native < ...`.

#![allow(clippy::panic, reason = "one of them is there to panic")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use corprof::prelude::*;

/// The stack as names, the leaf first.
fn stack(cx: &InNoGc<'_>) -> String {
    let mut names = Vec::new();
    let walked = cx.walk_own_stack(|frame| {
        names.push(frame.function().map_or("native".into(), |function| cx.names().function(function)));
        ControlFlow::Continue(())
    });
    match walked {
        Ok(()) => names.join(" < "),
        Err(error) => format!("{error}"),
    }
}

fn tell(cx: &InNoGc<'_>, event: &str) {
    eprintln!("{event}: {}", stack(cx));
}

/// Walks in each callback about the program.
#[derive(Default, Profiler)]
#[profiler(clsid = "3D0B9E52-77C1-4E0D-9C0B-0E5A3F6B0001", no_export)]
struct Everywhere {
    has_main: AtomicBool,
}

impl Everywhere {
    fn tell(&self, cx: &InNoGc<'_>, event: &str) {
        if self.has_main.load(Relaxed) {
            tell(cx, event);
        }
    }
}

#[callbacks]
impl Callbacks for Everywhere {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        tell(cx, "initialize");
        Ok(Self::default())
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, _object: ObjectId<'_>, class: ClassId) {
        if cx.names().class(class) == "Marker" {
            tell(cx, "allocated");
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _safe: bool) {
        let name = cx.names().function(function);
        if name.starts_with("Chain.Main") {
            self.has_main.store(true, Relaxed);
        }
        if name.starts_with("Chain.First") || name.starts_with("Chain.Second") {
            tell(cx, "jit");
        }
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.tell(cx, "thread created");
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.tell(cx, "thread destroyed");
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if cx.class_of(thrown).is_ok_and(|class| cx.names().class(class) == "ChainException") {
            tell(cx, "thrown");
        }
    }

    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, _function: FunctionId) {
        self.tell(cx, "unwind");
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, _function: FunctionId, _object: Option<ObjectId<'_>>) {
        self.tell(cx, "caught");
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        tell(cx, "shutdown");
    }
}

/// Walks without having set the flag.
#[derive(Profiler)]
#[profiler(clsid = "3D0B9E52-77C1-4E0D-9C0B-0E5A3F6B0002", no_export)]
struct Flagless;

#[callbacks]
impl Callbacks for Flagless {
    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) -> Result<()> {
        let has_flag = || Ok::<_, Error>(cx.event_mask()?.contains(EventMask::ENABLE_STACK_SNAPSHOT));
        let before = has_flag()?;
        tell(cx, "thrown");
        eprintln!("flags: before {before}, after {}", has_flag()?);
        let innermost: Vec<Name> = cx.own_stack(2)?.into_iter().map(|function| cx.names().function(function)).collect();
        eprintln!("functions: {}", innermost.join(" < "));
        Ok(())
    }
}

/// Returns an error each time.
#[derive(Default, Profiler)]
#[profiler(clsid = "3D0B9E52-77C1-4E0D-9C0B-0E5A3F6B0004", no_export)]
struct Failing {
    tried: AtomicU32,
}

#[callbacks]
impl Callbacks for Failing {
    #[events(ModuleLoadStarted)]
    fn every(&self, cx: &InNoGc<'_>, _event: &CallbackEvent<'_>) -> Result<()> {
        cx.own_stack(1)?;
        cx.walk_own_stack(|_| ControlFlow::Continue(()))
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) -> Result<(), BoxError> {
        let tried = self.tried.fetch_add(1, Relaxed);
        eprintln!("tried: {tried}");
        Err(format!("no luck {tried}"))?;
        Ok(())
    }
}

/// Other forms of a walk: break off, nest, carry registers and frame infos, panic.
#[derive(Default, Profiler)]
#[profiler(clsid = "3D0B9E52-77C1-4E0D-9C0B-0E5A3F6B0003", no_export)]
struct Manners {
    is_done: AtomicBool,
}

#[callbacks]
impl Callbacks for Manners {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        Ok(Self::default())
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if !cx.class_of(thrown).is_ok_and(|class| cx.names().class(class) == "ChainException") {
            return;
        }
        if self.is_done.swap(true, Relaxed) {
            panics(cx);
        } else {
            breaks_off(cx);
            nests(cx);
            looks_closer(cx);
        }
    }
}

fn breaks_off(cx: &InNoGc<'_>) {
    let mut count = 0;
    let walked = cx.walk_own_stack(|_| {
        count += 1;
        if count < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    eprintln!("broke off after {count}: {walked:?}");
}

fn nests(cx: &InNoGc<'_>) {
    let mut inner = None;
    let outer = cx.walk_own_stack(|_| {
        inner = Some(cx.walk_own_stack(|_| ControlFlow::Continue(())));
        ControlFlow::Break(())
    });
    match inner {
        Some(Err(error)) => eprintln!("nested: {error}; around it: {outer:?}"),
        inner => eprintln!("nested: {inner:?}; around it: {outer:?}"),
    }
}

fn looks_closer(cx: &InNoGc<'_>) {
    let mut frames = 0;
    let mut ips_agree = true;
    let mut stack_falls = true;
    let mut last = 0;
    let walked = cx.walk_own_stack_with_registers(|frame| {
        let Some(registers) = frame.registers() else { return ControlFlow::Break(()) };
        frames += 1;
        ips_agree &= registers.instruction_pointer() == frame.ip() as u64;
        stack_falls &= registers.stack_pointer() > last;
        last = registers.stack_pointer();
        if let Some(info) = frame.info() {
            let plain = cx.function_info(info.function());
            let exact = cx.function_info_in_frame(info);
            let same_place = plain.as_ref().map(|info| info.token) == exact.as_ref().map(|info| info.token);
            let by_ip = frame.code_address().is_some_and(|ip| cx.function_from_ip(ip) == Ok(Some(info.function())));
            eprintln!(
                "frame {}: same definition {same_place}, by its ip {by_ip}, class {}, args {}",
                cx.names().function(info.function()),
                exact.as_ref().is_ok_and(|info| info.class.is_some()),
                exact.map_or(0, |info| info.type_args.len()),
            );
        }
        ControlFlow::Continue(())
    });
    eprintln!("registers of {frames}: ips {ips_agree}, stack {stack_falls}, {walked:?}");
}

fn panics(cx: &InNoGc<'_>) {
    let mut count = 0;
    let _ = cx.walk_own_stack(|_| {
        count += 1;
        if count == 3 { panic!("in a walk, at frame {count}") } else { ControlFlow::Continue(()) }
    });
}

corprof::export!(Everywhere, Failing, Flagless, Manners);
