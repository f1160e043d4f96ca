//! Hooks of a random part of all functions, which act.

use std::hint::black_box;
use std::time::Duration;

use corprof::calls::{CallBegin, CallEnd, CallLog, CallProfiler, CallReader, CallTimer, CallWriter, ShadowStack};
use corprof::hooks::{HookValues, InSlowHook, Precompiled, StackBoundary};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

use super::act;
use super::plan::{self, Hooks, Plan};

/// Sets the hooks that the plan has, if it has any.
pub(super) fn install(cx: &mut InInitialize<'_>, plan: &Plan) -> Result<()> {
    let precompiled =
        if plan.number("precompiled").is_multiple_of(2) { Precompiled::Keep } else { Precompiled::Compile };
    match plan.hooks {
        Hooks::No => Ok(()),
        Hooks::Fast if plan.number("records").is_multiple_of(2) => {
            let records = Records::start(cx, plan);
            cx.hooks(records).install().map(drop)
        }
        Hooks::FastByIl if plan.number("records").is_multiple_of(2) => {
            let records = Records::start(cx, plan);
            cx.hooks(records).inserted(precompiled).install().map(drop)
        }
        Hooks::Fast => cx.hooks(Acts).install().map(drop),
        Hooks::Values => cx.hooks(ActsOnValues).install().map(drop),
        Hooks::FastByIl => cx.hooks(Acts).inserted(precompiled).install().map(drop),
        Hooks::ValuesByIl => cx.hooks(ActsOnValues).inserted(precompiled).install().map(drop),
    }
}

/// Without values.
struct Acts;

/// Records calls in each way that there is. Whether somebody reads them is the seed's.
struct Records {
    log: CallLog<FunctionId>,
    times: CallProfiler,
}

struct Recorded {
    writer: CallWriter<FunctionId>,
    timer: CallTimer,
    stack: ShadowStack<FunctionId>,
    hooks: u64,
}

struct Reader;

impl CallReader<FunctionId> for Reader {
    fn begin(&mut self, call: CallBegin<FunctionId>) -> std::result::Result<(), BoxError> {
        if call.depth > 1 << 20 { Err("as planned".into()) } else { Ok(()) }
    }

    fn end(&mut self, end: CallEnd) -> std::result::Result<(), BoxError> {
        black_box(end);
        Ok(())
    }
}

impl Records {
    fn start(cx: &InInitialize<'_>, plan: &Plan) -> Self {
        let room = [1, 64, 4096][plan.number("room") as usize % 3];
        let log = CallLog::new(room, 20).folding(Duration::from_micros(plan.number("folding") % 200));
        if !plan.number("reads").is_multiple_of(4) {
            let _ = log.start(cx, "reads", Duration::from_millis(5), Reader);
        }
        Self { log, times: CallProfiler::with_bound(1 << (plan.number("paths") % 16)) }
    }
}

impl FunctionHooks for Records {
    type Function = u32;
    type Thread = Recorded;
    const UNWINDS: bool = true;
    const SUSPENDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<u32> {
        let number = self.times.number(&cx.names().function(function));
        match select(cx, function) {
            Hook::Exact(()) => Hook::Exact(number),
            Hook::Inlinable(()) => Hook::Inlinable(number),
            _ => Hook::No,
        }
    }

    fn thread_started(&self) -> Recorded {
        Recorded { writer: self.log.writer(), timer: self.times.timer(), stack: ShadowStack::with_bound(100), hooks: 0 }
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut Recorded, function: &u32) {
        thread.writer.enter(cx, cx.function());
        thread.timer.enter(cx, *function);
        thread.stack.enter(cx, cx.function(), drop);
        thread.hooks += 1;
        // A thread's tree takes time.
        if thread.hooks.is_multiple_of(10_000) {
            self.times.add(std::mem::replace(&mut thread.timer, self.times.timer()));
            black_box((self.times.tree().functions().len(), thread.stack.frames().count()));
        }
        act::anywhere(cx, "hook enter");
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut Recorded, _function: &u32) {
        act::anywhere(cx, "hook leave");
        thread.writer.leave(cx);
        thread.timer.leave(cx);
        black_box(thread.stack.leave(cx, drop));
    }

    fn unwound(&self, thread: &mut Recorded, boundary: StackBoundary) {
        thread.writer.unwound(boundary);
        thread.timer.unwound(boundary);
        thread.stack.unwound(boundary, drop);
    }

    fn suspended(&self, cx: &InHook<'_>, thread: &mut Recorded, _function: &u32) {
        thread.writer.suspended(cx);
        thread.timer.suspended(cx);
        black_box(thread.stack.suspended(cx, drop));
    }

    fn resumed(&self, cx: &InHook<'_>, thread: &mut Recorded, function: &u32) {
        thread.writer.enter(cx, cx.function());
        thread.timer.resumed(cx, *function);
        thread.stack.enter(cx, cx.function(), drop);
    }

    fn thread_ended(&self, thread: Recorded) {
        self.times.add(thread.timer);
    }
}

/// With values.
struct ActsOnValues;

/// A third of all functions, by name, so that repeated runs hook the same; and half of them exactly.
fn select(cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
    act::in_callback(cx, "select of hooks");
    let name = cx.names().function(function);
    let Some(plan) = plan::current() else { return Hook::No };
    match plan.number(name.as_str()) % 6 {
        0 => Hook::Inlinable(()),
        3 => Hook::Exact(()),
        _ => Hook::No,
    }
}

impl FunctionHooks for Acts {
    type Function = ();
    type Thread = u64;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) -> u64 {
        0
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut u64, (): &()) {
        *thread += 1;
        act::anywhere(cx, "hook enter");
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut u64, (): &()) {
        *thread += 1;
        act::anywhere(cx, "hook leave");
    }
}

fn read(value: Value<'_>) {
    black_box(value.to_string());
}

impl FunctionHooks for ActsOnValues {
    type Function = ();
    type Thread = u64;
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) -> u64 {
        0
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut u64, (): &(), arguments: &Arguments<'_>) {
        *thread += 1;
        arguments.this().into_iter().chain(arguments.iter()).for_each(read);
        let object = arguments.iter().find_map(|value| if let Value::Object(object) = value { object } else { None });
        act::in_no_gc(cx, "hook enter with values", object);
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut u64, (): &(), value: &ReturnValue<'_>) {
        *thread += 1;
        value.get().into_iter().for_each(read);
        act::in_no_gc(cx, "hook leave with value", None);
    }
}
