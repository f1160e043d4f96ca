//! Hooks with values, beside those of bench_hooks.rs: the cost of the runtime's slow path, and of reading values.
//! bench/Bench.cs is the program; the book's page "Tracing calls" has the figures.

use corprof::hooks::{HookValues, InSlowHook, Precompiled};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

/// Counts calls by the slow path, and reads nothing.
struct Counts;

impl FunctionHooks for Counts {
    type Function = ();
    type Thread = u64;
    const KINDS: HookKinds = HookKinds::ENTER.union(HookKinds::LEAVE);
    const VALUES: HookValues = HookValues::FRAME;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) -> u64 {
        0
    }

    fn enter_with_args(&self, _cx: &InSlowHook<'_>, calls: &mut u64, (): &(), _args: &Arguments<'_>) {
        *calls += 1;
    }

    fn thread_ended(&self, calls: u64) {
        eprintln!("calls={calls}");
    }
}

/// Adds up the integer arguments and results of methods.
struct Sums;

impl FunctionHooks for Sums {
    type Function = ();
    type Thread = i64;
    const KINDS: HookKinds = HookKinds::ENTER.union(HookKinds::LEAVE);
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Exact(())
    }

    fn thread_started(&self) -> i64 {
        0
    }

    fn enter_with_args(&self, _cx: &InSlowHook<'_>, sum: &mut i64, (): &(), args: &Arguments<'_>) {
        if let Some(Value::Int32(value)) = args.get(0) {
            *sum = sum.wrapping_add(i64::from(value));
        }
    }

    fn leave_with_value(&self, _cx: &InSlowHook<'_>, sum: &mut i64, (): &(), value: &ReturnValue<'_>) {
        if let Some(Value::Int32(value)) = value.get() {
            *sum = sum.wrapping_add(i64::from(value));
        }
    }

    fn thread_ended(&self, sum: i64) {
        eprintln!("sum={sum}");
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E05", no_export)]
struct CountSlowly;

#[callbacks]
impl Callbacks for CountSlowly {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Counts).install()?;
        Ok(Self)
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E06", no_export)]
struct SumValues;

#[callbacks]
impl Callbacks for SumValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Sums).install()?;
        Ok(Self)
    }
}

/// The same hooks, by inserted code.
#[derive(Default, Profiler)]
#[profiler(clsid = "C0A7E500-52B1-4F0E-8E5B-7A9C3D1F6E07", no_export)]
struct SumInserted;

#[callbacks]
impl Callbacks for SumInserted {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Sums).inserted(Precompiled::Keep).install()?;
        Ok(Self)
    }
}

corprof::export!(CountSlowly, SumValues, SumInserted);
