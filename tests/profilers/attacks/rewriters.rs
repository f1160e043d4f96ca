//! Rewrites methods from several threads at once, in every way that there is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corprof::edit::{CallCounter, EditError, InProbe, Probe};
use corprof::instrumentation::{Instrumentation, Outcome, Rewrite, Selection, Selector};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};

static CALLS: CallCounter = CallCounter::new();

/// The threads that rewrite.
const REWRITERS: u64 = 3;

/// What the probes have seen.
#[derive(Default)]
struct Seen {
    begun: AtomicU64,
    ended: AtomicU64,
}

struct Counts(Arc<Seen>);

impl Probe for Counts {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        let known = args.iter().filter(|value| !matches!(value, corprof::values::Value::Unreadable(_))).count();
        self.0.begun.fetch_add(1 + (known as u64 >> 32), Relaxed);
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        self.0.ended.fetch_add(u64::from(result.get().is_some()), Relaxed);
    }

    fn unwound(&self, _cx: &InProbe<'_>) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

#[derive(Default)]
struct Shared {
    seen: Arc<Seen>,
    /// The threads that are done.
    done: AtomicUsize,
}

/// Three threads edit, replace, revert and restore the same methods, while the application calls them.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1220", no_export)]
pub(crate) struct Rewriters(Arc<Shared>);

#[callbacks]
impl Callbacks for Rewriters {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let instrumentation = cx.start_instrumentation()?;
        let rounds: u32 = std::env::var("REWRITERS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(400);
        for number in 1..=REWRITERS {
            let shared = Arc::clone(&profiler.0);
            let instrumentation = instrumentation.clone();
            cx.spawn_profiler_thread(&format!("rewriter {number}"), move |cx| {
                let random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let held = VecDeque::new();
                let gone = Vec::new();
                let rewriter = Rewriter { instrumentation, random, seen: Arc::clone(&shared.seen), held, gone };
                if rewriter.run(cx, rounds, &shared).is_none() {
                    eprintln!("attacks| rewriter {number} stopped early");
                }
            })?;
        }
        Ok(profiler)
    }
}

struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

struct Rewriter {
    instrumentation: Instrumentation,
    random: Random,
    seen: Arc<Seen>,
    /// Those that may be in effect, the newest last.
    held: VecDeque<Rewrite>,
    /// Those that were taken back.
    gone: Vec<Rewrite>,
}

/// How many edits a thread keeps in effect. Probes nest, and the compiler takes minutes for a method with a hundred of
/// them.
const HELD: usize = 24;

impl Rewriter {
    fn run(mut self, cx: &mut ProfilerThread<'_>, rounds: u32, shared: &Shared) -> Option<()> {
        let own = self.instrumentation.select(Selector::method("Rewrites", "Done"), |_| Ok(()));
        until(cx, || !own.rewrites().is_empty())?;
        let module = own.rewrites().first()?.module();
        let methods = methods(cx, module);
        let started = Instant::now();
        let mut selections = Vec::new();
        for _ in 0..rounds {
            self.step(cx, module, &methods, &mut selections)?;
        }
        let stepped = started.elapsed();
        self.held.iter().for_each(Rewrite::revert);
        selections.iter().for_each(Selection::revert);
        own.revert();
        let mut all = std::mem::take(&mut self.gone);
        all.extend(self.held.drain(..));
        all.extend(selections.iter().chain([&own]).flat_map(Selection::rewrites));
        let is_over =
            |rewrite: &Rewrite| rewrite.outcome().is_final() || matches!(rewrite.outcome(), Outcome::Failed(..));
        until(cx, || all.iter().all(is_over))?;
        let mut counts = BTreeMap::<&str, usize>::new();
        for rewrite in &all {
            *counts.entry(kind(&rewrite.outcome())).or_default() += 1;
        }
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
        eprintln!("attacks| {} after {stepped:.1?} and {:.1?}", counts.join(" "), started.elapsed());
        let place = shared.done.fetch_add(1, Relaxed);
        if place + 1 < REWRITERS as usize {
            return Some(());
        }
        let [begun, ended] = [&shared.seen.begun, &shared.seen.ended].map(|count| count.load(Relaxed));
        eprintln!("attacks| begun={begun} ended={ended} counted={}", CALLS.get());
        let replace = |edit: &mut corprof::edit::MethodEdit<'_>| edit.replace_strings("no", "yes").map(drop);
        self.instrumentation.select(Selector::method("Rewrites", "Done"), replace);
        Some(())
    }

    /// One random act.
    fn step(
        &mut self,
        cx: &mut ProfilerThread<'_>,
        module: ModuleId,
        methods: &[MethodDef],
        selections: &mut Vec<Selection>,
    ) -> Option<()> {
        let one = *methods.get(self.random.below(methods.len()))?;
        match self.random.below(10) {
            0 => self.keep(one, module, |edit| edit.replace_strings("plain", "first").map(drop)),
            1 => self.keep(one, module, |edit| edit.count_calls(&CALLS)),
            2 | 3 => {
                let seen = Arc::clone(&self.seen);
                self.keep(one, module, move |edit| edit.probe(Counts(Arc::clone(&seen))));
            }
            4 => self.keep(one, module, |_| Err(EditError::Other("on purpose".into()))),
            5 => {
                let all = methods.iter().map(|method| (module, *method));
                let all = self.instrumentation.edit_all(all, |edit| edit.replace_strings("plain", "second").map(drop));
                // Nobody waits for the first ones.
                all.iter().skip(1).for_each(Rewrite::revert);
                self.held.extend(all);
            }
            6 => {
                // Modules that come and go.
                let name = ["Throw", "Generics"][self.random.below(2)];
                let selector = Selector::assembly(name);
                selections.push(self.instrumentation.select(selector, |edit| edit.count_calls(&CALLS)));
                if selections.len() > 2 {
                    let old = selections.swap_remove(0);
                    old.restore();
                    self.gone.extend(old.rewrites());
                }
            }
            _ if self.held.is_empty() => {}
            act => {
                let held = self.held.get(self.random.below(self.held.len()))?.clone();
                match act {
                    7 => held.revert(),
                    8 => held.restore(),
                    _ => {
                        let new = held.replace(|edit| edit.replace_strings("plain", "third").map(drop));
                        self.held.push_back(new);
                    }
                }
            }
        }
        while self.held.len() > HELD {
            let old = self.held.pop_front()?;
            old.revert();
            self.gone.push(old);
        }
        if self.random.below(3) == 0
            && let Some(last) = self.held.back()
        {
            last.wait(cx, Duration::from_millis(20));
        }
        (!cx.is_stopping()).then_some(())
    }

    fn keep(
        &mut self,
        method: MethodDef,
        module: ModuleId,
        edit: impl Fn(&mut corprof::edit::MethodEdit<'_>) -> Result<(), EditError> + Send + Sync + 'static,
    ) {
        self.held.push_back(self.instrumentation.edit(module, method, edit));
    }
}

/// The methods that return a text.
fn methods(cx: &ProfilerThread<'_>, module: ModuleId) -> Vec<MethodDef> {
    let metadata = cx.metadata(module).unwrap();
    let classes = metadata.type_defs().unwrap().into_iter();
    let methods = classes.flat_map(|class| metadata.methods(class).unwrap());
    methods.filter(|method| metadata.method(*method).unwrap().name.starts_with("Text")).collect()
}

const fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Refused(_) => "refused",
        Outcome::Rejected(_) => "rejected",
        Outcome::Failed(..) => "failed",
        Outcome::Superseded => "superseded",
        Outcome::Reverted => "reverted",
        Outcome::Unloaded => "unloaded",
        _ => "others",
    }
}

/// Waits for something; none if the application ends first.
fn until(cx: &mut ProfilerThread<'_>, mut is_so: impl FnMut() -> bool) -> Option<()> {
    while !is_so() {
        cx.wait(Duration::from_millis(5)).is_continue().then_some(())?;
    }
    Some(())
}
