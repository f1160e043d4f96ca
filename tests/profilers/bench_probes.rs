//! Probes and counters in the method that bench/Bench.cs calls, for `cargo xtask bench --only probes`.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::calls::HookClock;
use corprof::edit::{CallCounter, InProbe, MethodEdit, Probe, ProbeKinds};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

static CALLS: CallCounter = CallCounter::new();
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Edits the method of the benchmark.
fn edit(
    cx: &mut InCallback<'_>,
    function: FunctionId,
    edit: impl FnOnce(&mut MethodEdit<'_>) -> Result<(), corprof::edit::EditError>,
) {
    if cx.names().function(function).as_str().starts_with("Bench.Next(")
        && let Err(error) = cx.edit_once(function, edit)
    {
        eprintln!("not edited: {error}");
    }
}

/// Adds without a locked instruction: the program has one thread.
fn add(number: u64) {
    SEEN.store(SEEN.load(Relaxed).wrapping_add(number), Relaxed);
}

/// Counts in memory.
#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E11", no_export)]
struct Counter;

#[callbacks]
impl Callbacks for Counter {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        edit(cx, function, |edit| edit.count_calls(&CALLS));
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("counted={}", CALLS.get());
    }
}

/// A probe at the beginning that does nothing but count.
#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E12", no_export)]
struct Enter;

struct Counts;

impl Probe for Counts {
    const KINDS: ProbeKinds = ProbeKinds::ENTER;

    fn enter(&self, _cx: &InProbe<'_>, _args: &Arguments<'_>) {
        add(1);
    }
}

#[callbacks]
impl Callbacks for Enter {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        edit(cx, function, |edit| edit.probe(Counts));
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("counted={}", SEEN.load(Relaxed));
    }
}

/// Probes at the beginning and the end that get the argument and the result, and do nothing.
#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E15", no_export)]
struct Empty;

struct Ignores;

impl Probe for Ignores {
    const KINDS: ProbeKinds = ProbeKinds::ENTER.union(ProbeKinds::LEAVE);

    fn enter(&self, _cx: &InProbe<'_>, _args: &Arguments<'_>) {}

    fn leave(&self, _cx: &InProbe<'_>, _result: &ReturnValue<'_>) {}
}

#[callbacks]
impl Callbacks for Empty {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        edit(cx, function, |edit| edit.probe(Ignores));
    }
}

/// Adds up arguments and results, and sees exceptions.
#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E13", no_export)]
struct Values;

struct Sums;

fn sum(value: Option<Value<'_>>) {
    if let Some(Value::Int32(number)) = value {
        add(u64::from(number.cast_unsigned()));
    }
}

impl Probe for Sums {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        sum(args.get(0));
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        sum(result.get());
    }
}

#[callbacks]
impl Callbacks for Values {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        edit(cx, function, |edit| edit.probe(Sums));
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("sum={}", SEEN.load(Relaxed));
    }
}

/// The same, and it reads the clock each time.
#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E14", no_export)]
struct Timed;

struct Times(HookClock);

impl Probe for Times {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        sum(args.get(0));
        add(self.0.now());
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        sum(result.get());
        add(self.0.now());
    }
}

#[callbacks]
impl Callbacks for Timed {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        edit(cx, function, |edit| edit.probe(Times(HookClock::new())));
    }
}

corprof::export!(Counter, Enter, Empty, Values, Timed);
