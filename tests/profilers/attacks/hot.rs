//! Edits, takes back and hooks the methods of a program at work, again and again, whatever they are: in the last tier,
//! in a loop that is compiled anew, inlined into each other.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::calls::ShadowStack;
use corprof::edit::{CallArgument, CallCounter, EditError, InProbe, MethodEdit, Probe, ProbeKinds};
use corprof::hooks::{HookValues, InSlowHook, Precompiled};
use corprof::instrumentation::{Instrumentation, Outcome, Rewrite};
use corprof::metadata::MethodDef;
use corprof::metadata::signature::{Primitive, Type};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};
use corprof_il::body::Part;
use fastrand::Rng;

static CALLS: CallCounter = CallCounter::new();

/// The most edits of a thread that are in effect.
const HELD: usize = 40;

/// What has happened.
#[derive(Default)]
pub(super) struct Counts {
    hooks: AtomicU64,
    walks: AtomicU64,
    pub(super) probes: AtomicU64,
    pub(super) values: AtomicU64,
    inserted: AtomicU64,
    edits: AtomicU64,
    recompiled: AtomicU64,
}

pub(super) static COUNTS: Counts = Counts {
    hooks: AtomicU64::new(0),
    walks: AtomicU64::new(0),
    probes: AtomicU64::new(0),
    values: AtomicU64::new(0),
    inserted: AtomicU64::new(0),
    edits: AtomicU64::new(0),
    recompiled: AtomicU64::new(0),
};

/// A word of the environment variable that says what the profiler does.
fn does(word: &str) -> bool {
    std::env::var("ATTACKS_HOT").is_ok_and(|words| words.split_whitespace().any(|known| known == word))
}

fn read(value: Value<'_>) {
    COUNTS.values.fetch_add(1, Relaxed);
    black_box(value.to_string());
}

fn read_all(arguments: &Arguments<'_>) {
    arguments.this().into_iter().chain(arguments.iter()).for_each(read);
}

struct Reads;

impl Probe for Reads {
    fn enter(&self, _cx: &InProbe<'_>, arguments: &Arguments<'_>) {
        COUNTS.probes.fetch_add(1, Relaxed);
        read_all(arguments);
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        result.get().into_iter().for_each(read);
    }
}

fn in_hook(cx: &InHook<'_>, stack: &mut ShadowStack<FunctionId>, number: u64) {
    COUNTS.hooks.fetch_add(1, Relaxed);
    use_vectors();
    if number.is_multiple_of(64) {
        black_box(cx.function_info(cx.function()).is_ok());
        black_box(cx.code_ranges(cx.function()).is_ok());
    }
    black_box(stack.depth());
}

#[derive(Default)]
struct Kept {
    stack: ShadowStack<FunctionId>,
    hooks: u64,
}

struct Fast;

/// The C library copies by the widest registers that there are, and leaves their upper parts at zero.
fn use_vectors() {
    black_box(black_box([1_u8; 600]).to_vec());
}

impl FunctionHooks for Fast {
    type Function = ();
    type Thread = Kept;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) -> Kept {
        Kept::default()
    }

    fn enter(&self, cx: &InHook<'_>, thread: &mut Kept, (): &()) {
        thread.hooks += 1;
        thread.stack.enter(cx, cx.function(), drop);
        in_hook(cx, &mut thread.stack, thread.hooks);
    }

    fn leave(&self, cx: &InHook<'_>, thread: &mut Kept, (): &()) {
        use_vectors();
        thread.stack.leave(cx, drop);
    }

    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Kept, (): &()) {
        use_vectors();
        thread.stack.leave(cx, drop);
    }
}

struct Slow;

/// Walks in some of the hooks.
fn walk(cx: &InSlowHook<'_>, number: u64) {
    if !number.is_multiple_of(97) {
        return;
    }
    COUNTS.walks.fetch_add(1, Relaxed);
    for function in cx.own_stack(64).unwrap_or_default() {
        black_box(cx.names().function(function));
    }
}

impl FunctionHooks for Slow {
    type Function = ();
    type Thread = Kept;
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
        select(cx, function)
    }

    fn thread_started(&self) -> Kept {
        Kept::default()
    }

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut Kept, (): &(), arguments: &Arguments<'_>) {
        thread.hooks += 1;
        thread.stack.enter(cx.hook(), cx.function(), drop);
        read_all(arguments);
        black_box(arguments.with_objects(cx).to_string());
        in_hook(cx.hook(), &mut thread.stack, thread.hooks);
        walk(cx, thread.hooks);
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut Kept, (): &(), value: &ReturnValue<'_>) {
        thread.stack.leave(cx.hook(), drop);
        value.get().into_iter().for_each(read);
        thread.hooks += 1;
        walk(cx, thread.hooks);
    }

    fn tailcall(&self, cx: &InHook<'_>, thread: &mut Kept, (): &()) {
        thread.stack.leave(cx, drop);
    }
}

fn is_ours(name: &str) -> bool {
    // Not the startup, nor what waits.
    !name.starts_with("System.") && !name.starts_with("Microsoft.") && !name.starts_with("Internal.")
}

fn select(cx: &mut InCallback<'_>, function: FunctionId) -> Hook<()> {
    let name = cx.names().function(function);
    if !is_ours(&name) {
        return Hook::No;
    }
    if does("exact") { Hook::Exact(()) } else { Hook::Inlinable(()) }
}

/// See the module.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1270", no_export)]
pub(crate) struct Hot {
    module: Arc<std::sync::OnceLock<ModuleId>>,
}

#[callbacks]
impl Callbacks for Hot {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        if does("fast") {
            cx.hooks(Fast).install()?;
        } else if does("slow") {
            cx.hooks(Slow).install()?;
        } else if does("fast-by-il") {
            cx.hooks(Fast).inserted(Precompiled::Keep).install()?;
        } else if does("slow-by-il") {
            cx.hooks(Slow).inserted(Precompiled::Keep).install()?;
        }
        if does("edits") {
            let instrumentation = cx.start_instrumentation()?;
            for number in 0..2 {
                let module = Arc::clone(&profiler.module);
                let instrumentation = instrumentation.clone();
                cx.spawn_profiler_thread("edits", move |cx| {
                    let random = Rng::with_seed(seed() + number);
                    Editor { instrumentation, random, held: Vec::new() }.run(cx, &module);
                })?;
            }
        }
        Ok(profiler)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let Ok(info) = cx.module_info(module) else { return };
        let program = std::env::var("ATTACKS_PROGRAM").unwrap_or_else(|_| "Hot".to_owned());
        if info.path.ends_with(&format!("{program}.dll")) {
            let _ = self.module.set(module);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let is_of_program = |cx: &InNoGc<'_>| {
            let module = cx.function_info(function).map(|info| info.module);
            module.is_ok_and(|module| self.module.get() == Some(&module))
        };
        if does("once") && is_of_program(cx) {
            let _ = cx.edit_once(function, |edit| {
                edit.drop_tail_calls();
                edit.probe(Leaves)
            });
        }
    }

    fn rejit_compilation_finished(
        &self,
        _cx: &mut InCallback<'_>,
        _function: FunctionId,
        _rejit: ReJitId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        COUNTS.recompiled.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let all = [
            ("hooks", &COUNTS.hooks),
            ("walks", &COUNTS.walks),
            ("probes", &COUNTS.probes),
            ("values", &COUNTS.values),
            ("inserted", &COUNTS.inserted),
            ("edits", &COUNTS.edits),
            ("recompiled", &COUNTS.recompiled),
        ];
        let all: Vec<_> = all.iter().map(|(name, count)| format!("{name}={}", count.load(Relaxed))).collect();
        eprintln!("attacks| {} counted={}", all.join(" "), CALLS.get());
    }
}

pub(super) fn seed() -> u64 {
    std::env::var("ATTACKS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default()
}

struct Editor {
    instrumentation: Instrumentation,
    random: Rng,
    held: Vec<Rewrite>,
}

/// An edit after which a method does what it did.
pub(super) fn edit(edit: &mut MethodEdit<'_>, seed: u64) -> Result<(), EditError> {
    let mut random = Rng::with_seed(seed);
    for _ in 0..random.u32(1..4) {
        match random.u32(0..10) {
            0 => edit.count_calls(&CALLS)?,
            1 | 2 => {
                edit.drop_tail_calls();
                edit.probe(Reads)?;
            }
            3 => edit.probe_entry(|_, arguments| read_all(arguments))?,
            9 => {
                edit.drop_tail_calls();
                edit.probe(Leaves)?;
            }
            4 => {
                edit.add_local(Type::Primitive(Primitive::Object))?;
            }
            _ => insert(edit, &mut random),
        }
    }
    Ok(())
}

/// Calls somewhere.
fn insert(edit: &mut MethodEdit<'_>, random: &mut Rng) {
    let has_value = random.bool();
    let Ok(method) = edit.static_method("Helper", if has_value { "HelpWith" } else { "Help" }) else { return };
    let value = match random.u32(0..3) {
        0 => CallArgument::from(corprof::metadata::Constant::Null),
        1 => CallArgument::Argument(random.u16(0..3)),
        _ => CallArgument::Local(random.u16(0..5)),
    };
    let arguments: Vec<_> = has_value.then_some(value).into_iter().collect();
    let all: Vec<_> = edit.body().iter().map(|(id, _)| id).collect();
    let place = all[random.usize(0..all.len())];
    let regions: Vec<_> = edit.body().region_ids().collect();
    let answer = match random.u32(0..4) {
        0 => edit.call_before_returns(method, &arguments).map(drop),
        1 if !regions.is_empty() => {
            let part = [Part::Tried, Part::Filter, Part::Handler][random.usize(0..3)];
            edit.call_before_exits(regions[random.usize(0..regions.len())], part, method, &arguments).map(drop)
        }
        2 => edit.call_after(place, method, &arguments),
        _ => edit.call_before(place, method, &arguments),
    };
    COUNTS.inserted.fetch_add(u64::from(answer.is_ok()), Relaxed);
}

impl Editor {
    fn run(mut self, cx: &mut ProfilerThread<'_>, module: &std::sync::OnceLock<ModuleId>) {
        while module.get().is_none() {
            if !cx.wait(Duration::from_millis(1)).is_continue() {
                return;
            }
        }
        let Some(&module) = module.get() else { return };
        let methods = methods(cx, module);
        let pause = Duration::from_micros(if does("calm") { 20_000 } else { 300 });
        let mut kinds = BTreeMap::<String, usize>::new();
        while cx.wait(pause).is_continue() {
            self.step(module, &methods, &mut kinds);
        }
        eprintln!("attacks| {kinds:?}");
    }

    fn step(&mut self, module: ModuleId, methods: &[MethodDef], kinds: &mut BTreeMap<String, usize>) {
        let method = methods[self.random.usize(0..methods.len())];
        let seed = self.random.u64(..);
        COUNTS.edits.fetch_add(1, Relaxed);
        match self.random.u32(0..8) {
            0..4 => self.held.push(self.instrumentation.edit(module, method, move |open| edit(open, seed))),
            4 => {
                let some = methods.iter().filter(|_| self.random.u32(0..10) == 0).map(|method| (module, *method));
                let some: Vec<_> = some.collect();
                self.held.extend(self.instrumentation.edit_all(some, move |open| edit(open, seed)));
            }
            5 if !self.held.is_empty() => {
                let at = self.random.usize(0..self.held.len());
                self.held[at] = self.held[at].replace(move |open| edit(open, seed));
            }
            6 if !self.held.is_empty() => {
                let held = self.held.swap_remove(self.random.usize(0..self.held.len()));
                held.restore();
            }
            _ => {}
        }
        while self.held.len() > HELD {
            let held = self.held.swap_remove(self.random.usize(0..self.held.len()));
            let outcome = held.outcome();
            let name = match outcome {
                Outcome::Refused(why) => format!("refused: {why}"),
                Outcome::Rejected(why) => format!("rejected: {why:?}"),
                Outcome::Failed(..) => format!("{:?}", held.outcome()),
                _ => "others".to_owned(),
            };
            *kinds.entry(name.chars().take(100).collect()).or_default() += 1;
            held.revert();
        }
    }
}

/// All methods, but for those that a profiler has called.
fn methods(cx: &ProfilerThread<'_>, module: ModuleId) -> Vec<MethodDef> {
    let metadata = cx.metadata(module).unwrap();
    let classes = metadata.type_defs().unwrap().into_iter();
    let methods = classes.flat_map(|class| metadata.methods(class).unwrap());
    methods.filter(|method| !metadata.method(*method).unwrap().name.starts_with("Help")).collect()
}

struct Leaves;

impl Probe for Leaves {
    const KINDS: ProbeKinds = ProbeKinds::LEAVE;

    fn leave(&self, _cx: &InProbe<'_>, _result: &ReturnValue<'_>) {
        COUNTS.probes.fetch_add(1, Relaxed);
    }
}
