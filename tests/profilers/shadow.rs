//! Holds the shadow stack against the runtime's own idea of a stack, for `live/shadow.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use corprof::args::JitCache;
use corprof::calls::ShadowStack;
use corprof::hooks::StackBoundary;
use corprof::hooks::{HookValues, HookedFunctions, InSlowHook, Precompiled};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hooked functions, and the results of the comparisons.
#[derive(Default)]
struct Compared {
    /// Of three methods one is left out: that whose token leaves this remainder. None, to leave out none.
    leaves_out: Option<u32>,
    /// Only methods whose names begin with it are hooked; empty for all.
    prefix: String,
    /// How long each selection takes.
    delay: Duration,
    hooked: Mutex<HashSet<FunctionId>>,
    /// What became of them on the slow path, on which some are left out.
    installed: OnceLock<HookedFunctions>,
    /// Those whose hooks were called, and those that were walked before: no more than were left out.
    entered: Mutex<HashSet<FunctionId>>,
    silent: Mutex<HashSet<FunctionId>>,
    /// With inserted hooks: the instantiation that stands for all of a method. Only calls are compared: the inserted
    /// handlers are blocks that the runtime reports as well.
    inserted: Option<Mutex<HashMap<(ModuleId, MethodDef), FunctionId>>>,
    events: Mutex<BTreeMap<&'static str, Outcomes>>,
    enters: AtomicU64,
    /// Hooks at the end of functions.
    ends: AtomicU64,
    /// Those of functions that were not on top.
    strays: AtomicU64,
    lost: AtomicU64,
    /// Entries that were still there when their thread ended.
    remaining: AtomicU64,
    left: AtomicU64,
    deepest: AtomicU64,
}

/// How often the shadow stack was as the runtime says, was not, and the runtime did not walk.
#[derive(Default)]
struct Outcomes {
    same: u64,
    different: u64,
    unwalkable: u64,
    /// The runtime showed frames that an exception had left already, and below them the shadow stack.
    stale: u64,
    /// The shadow stack still had a function that the runtime has left silently: because of a block of a method without
    /// metadata, or of a static constructor whose exception it catches to throw another.
    untold: u64,
    /// The deepest stack that was the same.
    deepest: usize,
}

/// Whether the functions of one stack are all in another one, in the same order.
fn is_within(some: &[FunctionId], all: &[FunctionId]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|function| rest.any(|other| other == function))
}

/// A finally block that an exception runs, as it begins or ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// There is none.
    No,
    /// A block whose begin the runtime reported.
    Known,
    /// A block whose begin the runtime did not report: of a method without metadata.
    Untold,
}

#[derive(Default)]
struct Thread {
    stack: ShadowStack<FunctionId>,
    /// The functions that it has entered.
    entered: HashSet<FunctionId>,
    enters: u64,
    ends: u64,
    strays: u64,
    left: u64,
    deepest: usize,
    /// The stacks of the finally blocks that an exception runs.
    finally: Vec<Vec<FunctionId>>,
}

impl FunctionHooks for Compared {
    type Function = ();
    type Thread = Thread;
    const UNWINDS: bool = true;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        let token = cx.function_info(function).map_or(0, |info| info.token.as_raw());
        if self.leaves_out == Some(token % 3) {
            return Hook::No;
        }
        if !self.prefix.is_empty() && !cx.names().function(function).starts_with(&self.prefix) {
            return Hook::No;
        }
        if let (Some(inserted), Ok(info)) = (&self.inserted, cx.function_info(function)) {
            lock(inserted).insert((info.module, info.token), function);
        }
        lock(&self.hooked).insert(function);
        std::thread::sleep(self.delay);
        // Inserted code leaves out what the compiler inlines, if it may.
        if self.inserted.is_some() { Hook::Exact(()) } else { Hook::Inlinable(()) }
    }

    fn thread_started(&self) -> Thread {
        Thread::default()
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut Thread, (): &()) {
        thread.stack.enter(cx, cx.function(), |_| thread.left += 1);
        if thread.entered.insert(cx.function()) {
            lock(&self.entered).insert(cx.function());
        }
        thread.enters += 1;
        thread.deepest = thread.deepest.max(thread.stack.depth());
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut Thread, (): &()) {
        let left = thread.stack.leave(cx, |_| thread.left += 1);
        thread.strays += u64::from(left != Some(cx.function()));
        thread.ends += 1;
    }

    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Thread, (): &()) {
        self.leave(cx, thread, &());
    }

    fn unwound(&self, thread: &mut Thread, boundary: StackBoundary) {
        thread.stack.unwound(boundary, |_| thread.left += 1);
    }

    fn thread_ended(&self, thread: Thread) {
        for (total, own) in [
            (&self.enters, thread.enters),
            (&self.ends, thread.ends),
            (&self.strays, thread.strays),
            (&self.left, thread.left),
            (&self.lost, thread.stack.lost()),
            (&self.remaining, thread.stack.depth() as u64),
        ] {
            total.fetch_add(own, SeqCst);
        }
        self.deepest.fetch_max(thread.deepest as u64, SeqCst);
    }
}

/// The same by the runtime's slow path, with all of its values.
struct Slow(Arc<Compared>);

impl FunctionHooks for Slow {
    type Function = ();
    type Thread = Thread;
    const UNWINDS: bool = true;
    const VALUES: HookValues = HookValues::all();

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        self.0.select(cx, function)
    }

    fn thread_started(&self) -> Thread {
        self.0.thread_started()
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut Thread, (): &(), _args: &Arguments<'_>) {
        self.0.enter(cx.hook(), thread, &());
        self.compare(cx, "slow enter", thread, None);
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut Thread, (): &(), _value: &ReturnValue<'_>) {
        self.0.leave(cx.hook(), thread, &());
        self.compare(cx, "slow leave", thread, Some(cx.function()));
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, thread: &mut Thread, (): &()) {
        self.0.tailcall(cx.hook(), thread, &());
    }

    fn unwound(&self, thread: &mut Thread, boundary: StackBoundary) {
        self.0.unwound(thread, boundary);
    }

    fn thread_ended(&self, thread: Thread) {
        self.0.thread_ended(thread);
    }
}

impl Slow {
    /// Holds the walk from some of the hooks against the shadow stack, and the function that has just been taken off
    /// it.
    fn compare(&self, cx: &InSlowHook<'_>, event: &'static str, thread: &Thread, ends: Option<FunctionId>) {
        // One in 16, and none where walks are so long that the program would not end.
        if (thread.enters + thread.ends).is_multiple_of(16) && thread.stack.depth() < 200 {
            let shadow = ends.into_iter().chain(thread.stack.frames().rev().copied()).collect();
            self.0.compare_with(cx, event, None, shadow, Block::No);
        }
    }
}

impl Compared {
    fn outcome(&self, event: &'static str, note: impl FnOnce(&mut Outcomes)) {
        note(lock(&self.events).entry(event).or_default());
    }

    /// The functions of a stack, the innermost first.
    fn spell(cx: &InNoGc<'_>, stack: &[FunctionId]) -> String {
        stack.iter().fold(String::new(), |mut text, &function| {
            let _ = write!(text, "{} < ", cx.names().function(function));
            text
        })
    }

    /// The shadow stack of this thread, the innermost first.
    fn shadow(cx: &InNoGc<'_>) -> Result<Vec<FunctionId>> {
        cx.with_hook_thread(|thread: &mut Thread| thread.stack.frames().rev().copied().collect())
    }

    /// Compares it, frame by frame, with the hooked functions that a walk finds. Where the runtime cannot walk,
    /// `running` is the reported function, whose block runs.
    fn compare(&self, cx: &InNoGc<'_>, event: &'static str, running: Option<FunctionId>) {
        if self.inserted.is_some() && event != "probe" {
            return;
        }
        let shadow = match Self::shadow(cx) {
            Ok(shadow) => shadow,
            Err(error) => {
                self.outcome(event, |outcomes| outcomes.different += 1);
                return eprintln!("no shadow stack in {event}: {error}");
            }
        };
        let block = if event.starts_with("finally") { Self::block(cx, running.is_some(), &shadow) } else { Block::No };
        self.compare_with(cx, event, running, shadow, block);
    }

    /// The function that hooks are told of.
    fn stands_for(&self, cx: &InNoGc<'_>, function: FunctionId) -> FunctionId {
        let Some(inserted) = &self.inserted else { return function };
        let Ok(info) = cx.function_info(function) else { return function };
        lock(inserted).get(&(info.module, info.token)).copied().unwrap_or(function)
    }

    /// Which finally block begins or ends: one with a known stack, as the shadow stack equals that at its begin, or
    /// another.
    fn block(cx: &InNoGc<'_>, begins: bool, shadow: &[FunctionId]) -> Block {
        let look = |thread: &mut Thread| {
            if begins {
                thread.finally.push(shadow.to_vec());
                return Block::Known;
            }
            // Blocks that another exception has left do not end.
            while let Some(stack) = thread.finally.pop() {
                if stack == shadow {
                    return Block::Known;
                }
            }
            Block::Untold
        };
        cx.with_hook_thread(look).unwrap_or(Block::No)
    }

    /// Whether the walk finds all but some frames of the shadow stack, which the runtime has left without a word.
    fn is_untold(cx: &InNoGc<'_>, block: Block, walked: &[FunctionId], shadow: &[FunctionId]) -> bool {
        let is_within = is_within(walked, shadow);
        // It makes the exception that it throws in place of the one that it has caught.
        let makes = ["System.TypeInitializationException..ctor", "System.Exception.InternalPreserveStackTrace"];
        let is_made = |function: &FunctionId| {
            let name = cx.names().function(*function);
            makes.iter().any(|prefix| name.starts_with(prefix))
        };
        is_within && (block == Block::Untold || walked.iter().any(is_made))
    }

    /// Whether the hooks of a function that runs were called.
    fn is_heard(&self, function: FunctionId) -> bool {
        let is_heard = self.installed.get().is_none() || lock(&self.entered).contains(&function);
        if !is_heard {
            lock(&self.silent).insert(function);
        }
        is_heard
    }

    /// The same, with a shadow stack that is at hand.
    fn compare_with(
        &self,
        cx: &InNoGc<'_>,
        event: &'static str,
        running: Option<FunctionId>,
        shadow: Vec<FunctionId>,
        block: Block,
    ) {
        // Threads that compile instantiations at once are all asked: the body of any of them may be the one that stays.
        let shadow: Vec<_> = shadow.into_iter().map(|function| self.stands_for(cx, function)).collect();
        let hooked = lock(&self.hooked);
        let mut walked = Vec::new();
        let walk = cx.walk_own_stack_with_registers(|frame| {
            let function = frame.function().map(|function| self.stands_for(cx, function));
            let function = function.filter(|function| hooked.contains(function) && self.is_heard(*function));
            let frame_pointer = frame.registers().map(|registers| registers.frame_pointer());
            walked.extend(function.zip(frame_pointer));
            ControlFlow::Continue(())
        });
        let running = running.filter(|running| hooked.contains(running) && self.is_heard(*running));
        drop(hooked);
        // A filter that is running has a frame of its own, and its function, which has the same frame pointer, is still
        // there. It has been called once.
        let mut calls = HashSet::new();
        walked.reverse();
        walked.retain(|call| calls.insert(*call));
        walked.reverse();
        let walked: Vec<_> = walked.into_iter().map(|(function, _)| function).collect();
        if walk.is_err() {
            self.outcome(event, |outcomes| outcomes.unwalkable += 1);
            if let Some(running) = running.filter(|running| shadow.first() != Some(running)) {
                self.outcome(event, |outcomes| outcomes.different += 1);
                let stack = Self::spell(cx, &shadow);
                let name = cx.names().function(running);
                eprintln!("different in {event}: {name} runs, and the shadow stack is {stack}");
            }
        } else if walked == shadow {
            self.outcome(event, |outcomes| {
                outcomes.same += 1;
                outcomes.deepest = outcomes.deepest.max(shadow.len());
            });
        } else if block == Block::Known
            && walked.ends_with(&shadow)
            && running.is_none_or(|of| shadow.first() == Some(&of))
        {
            self.outcome(event, |outcomes| outcomes.stale += 1);
        } else if Self::is_untold(cx, block, &walked, &shadow) || self.inserted.is_some() && is_within(&shadow, &walked)
        {
            self.outcome(event, |outcomes| outcomes.untold += 1);
            if self.inserted.is_some() {
                let walked = Self::spell(cx, &walked);
                let shadow = Self::spell(cx, &shadow);
                eprintln!("untold in {event}:\n  walked {walked}\n  shadow {shadow}");
            }
        } else {
            self.outcome(event, |outcomes| outcomes.different += 1);
            let walked = Self::spell(cx, &walked);
            let shadow = Self::spell(cx, &shadow);
            eprintln!("different in {event}:\n  walked {walked}\n  shadow {shadow}");
        }
    }
}

#[derive(Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0101")]
struct Shadow(Arc<Compared>, OnceLock<HookedFunctions>);

impl Default for Shadow {
    fn default() -> Self {
        let leaves_out = std::env::var("SHADOW_LEAVES_OUT").ok().and_then(|text| text.parse().ok());
        let prefix = std::env::var("SHADOW_SELECT").unwrap_or_default();
        let delay = std::env::var("SHADOW_DELAY_MS").ok().and_then(|text| text.parse().ok());
        let delay = Duration::from_millis(delay.unwrap_or_default());
        let inserted = std::env::var_os("SHADOW_BY").map(|_| Mutex::default());
        Self(Arc::new(Compared { leaves_out, prefix, delay, inserted, ..Compared::default() }), OnceLock::new())
    }
}

#[callbacks]
impl Callbacks for Shadow {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        if std::env::var_os("SHADOW_VALUES").is_some() {
            let _ = profiler.0.installed.set(cx.hooks(Slow(profiler.0.clone())).install()?);
            return Ok(profiler);
        }
        let precompiled = match std::env::var("SHADOW_BY").as_deref() {
            Ok("il") => Precompiled::Keep,
            Ok("il-all") => Precompiled::Compile,
            _ => {
                cx.hooks(profiler.0.clone()).install()?;
                return Ok(profiler);
            }
        };
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        let _ = profiler.1.set(cx.hooks(profiler.0.clone()).inserted(precompiled).install()?);
        Ok(profiler)
    }

    /// Precompiled functions have no hooks, also if the profiler was asked about them because the compiler wanted to
    /// inline them.
    fn jit_cached_function_search_finished(&self, _cx: &mut InCallback<'_>, function: FunctionId, result: JitCache) {
        if result == JitCache::Found {
            lock(&self.0.hooked).remove(&function);
        }
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, _object: ObjectId<'_>, class: ClassId) {
        if cx.names().class(class) == "Marker" {
            self.0.compare(cx, "probe", None);
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.0.compare(cx, "thrown", None);
    }

    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        self.0.compare(cx, "search", None);
    }

    fn exception_search_filter_enter(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        self.0.compare(cx, "filter", None);
    }

    fn exception_search_filter_leave(&self, cx: &mut InCallback<'_>) {
        self.0.compare(cx, "filter left", None);
    }

    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, _function: FunctionId) {
        self.0.compare(cx, "found", None);
    }

    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        self.0.compare(cx, "finally", Some(function));
    }

    fn exception_unwind_finally_leave(&self, cx: &InNoGc<'_>) {
        self.0.compare(cx, "finally left", None);
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, function: FunctionId, _object: Option<ObjectId<'_>>) {
        self.0.compare(cx, "catch", Some(function));
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        self.0.compare(cx, "catch left", None);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let compared = &self.0;
        if let Some(inserted) = self.1.get() {
            eprintln!("inserted: hooked={} precompiled={}", inserted.hooked(), inserted.precompiled());
            for left_out in inserted.left_out() {
                let example = cx.names().function(left_out.example);
                eprintln!("left out: {} as {example}: {}", left_out.count, left_out.reason);
            }
        }
        let left_out = compared
            .installed
            .get()
            .map_or(0, |installed| installed.left_out().iter().map(|left_out| left_out.count).sum());
        eprintln!("silent: walked={} left-out={left_out}", lock(&compared.silent).len());
        for (event, Outcomes { same, different, unwalkable, stale, untold, deepest }) in &*lock(&compared.events) {
            eprintln!(
                "event {event}: same={same} different={different} unwalkable={unwalkable} stale={stale} untold={untold} \
                 deepest={deepest}"
            );
        }
        let totals = [
            ("enters", &compared.enters),
            ("ends", &compared.ends),
            ("left", &compared.left),
            ("remaining", &compared.remaining),
            ("strays", &compared.strays),
            ("lost", &compared.lost),
            ("deepest", &compared.deepest),
        ];
        eprintln!("hooks: {}", totals.map(|(name, total)| format!("{name}={}", total.load(SeqCst))).join(" "));
    }
}
