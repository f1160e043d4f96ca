//! Hooks with values on methods that native code calls, and whether a collection ever runs beside one: for
//! `live/unmanaged.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use corprof::args::{GcReason, Generations};
use corprof::hooks::{HookValues, InSlowHook};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

/// How long a hook takes, so that collections find threads in it.
const IN_HOOK: Duration = Duration::from_micros(5);

#[derive(Default)]
struct Counts {
    entered: AtomicU64,
    left: AtomicU64,
    /// Arguments that are not what the program passes.
    wrong: AtomicU64,
    /// Begins that found the begin before not ended, and ends without a begin.
    unbalanced: AtomicU64,
    /// Hooks that run now.
    running: AtomicU64,
    collections: AtomicU64,
    /// Collections that ran beside a hook: the thread was not in cooperative mode.
    beside: AtomicU64,
}

impl Counts {
    fn hook(&self) {
        self.running.fetch_add(1, SeqCst);
        let begin = Instant::now();
        while begin.elapsed() < IN_HOOK {}
        self.running.fetch_sub(1, SeqCst);
    }

    fn wrong(&self, is_right: bool) {
        self.wrong.fetch_add(u64::from(!is_right), SeqCst);
    }
}

/// The two methods of tests/managed/modern/Unmanaged.cs that native code calls, and one that these call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Compare,
    Work,
    Boxed,
}

impl FunctionHooks for Counts {
    type Function = Method;
    type Thread = Vec<(Method, i64)>;
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Method> {
        let name = cx.names().function(function);
        let known = [("Compare(", Method::Compare), ("Work(", Method::Work), ("Boxed(", Method::Boxed)];
        let found = known
            .into_iter()
            .find(|(start, _)| name.strip_prefix("Unmanaged.").is_some_and(|name| name.starts_with(start)));
        found.map_or(Hook::No, |(_, method)| Hook::Inlinable(method))
    }

    fn thread_started(&self) -> Vec<(Method, i64)> {
        Vec::new()
    }

    fn enter_with_args(
        &self,
        cx: &InSlowHook<'_>,
        calls: &mut Vec<(Method, i64)>,
        method: &Method,
        args: &Arguments<'_>,
    ) {
        self.entered.fetch_add(1, SeqCst);
        // Calls of a callback: the thread is known by now, and its stack is in order.
        self.wrong(cx.current_thread().is_ok());
        let _ = cx.walk_own_stack(|_| ControlFlow::Continue(()));
        let number = match (method, args.get(0), args.get(1)) {
            (Method::Compare, Some(Value::Pointer(a)), Some(Value::Pointer(b))) => {
                self.wrong(a != b && a % 4 == 0);
                0
            }
            (Method::Work, Some(Value::NativeInt(number)), None) => number as i64,
            (Method::Boxed, Some(Value::Int32(number)), None) => number.into(),
            (_, one, other) => {
                eprintln!("unmanaged| {one:?} {other:?}");
                self.wrong(false);
                0
            }
        };
        if *method != Method::Boxed {
            self.unbalanced.fetch_add(u64::from(!calls.is_empty()), SeqCst);
        }
        calls.push((*method, number));
        self.hook();
    }

    fn leave_with_value(
        &self,
        _cx: &InSlowHook<'_>,
        calls: &mut Vec<(Method, i64)>,
        method: &Method,
        value: &ReturnValue<'_>,
    ) {
        self.left.fetch_add(1, SeqCst);
        match calls.pop() {
            Some((begun, number)) if begun == *method => self.wrong(match (method, value.get()) {
                (Method::Compare, Some(Value::Int32(answer))) => (-1..=1).contains(&answer),
                (Method::Work, Some(Value::NativeInt(answer))) => answer as i64 == number + 1,
                (Method::Boxed, Some(Value::Object(Some(_)))) => true,
                _ => false,
            }),
            _ => _ = self.unbalanced.fetch_add(1, SeqCst),
        }
        self.hook();
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0221")]
struct Unmanaged(Arc<Counts>);

#[callbacks]
impl Callbacks for Unmanaged {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        cx.hooks(Arc::clone(&profiler.0)).install()?;
        Ok(profiler)
    }

    /// All threads in cooperative mode wait now.
    fn garbage_collection_started(&self, _cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        self.0.collections.fetch_add(1, SeqCst);
        self.0.beside.fetch_add(u64::from(self.0.running.load(SeqCst) > 0), SeqCst);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let counts = &self.0;
        let [entered, left, wrong, unbalanced, collections, beside] =
            [&counts.entered, &counts.left, &counts.wrong, &counts.unbalanced, &counts.collections, &counts.beside]
                .map(|count| count.load(SeqCst));
        eprintln!(
            "unmanaged| entered={entered} left={left} wrong={wrong} unbalanced={unbalanced} collections={collections} \
             beside={beside}"
        );
    }
}
