//! Samples by signals, and compares the inlined methods that the IL tells with what the compiler says it may inline.
//!
//! At Shutdown it prints for each two frames in which a method of `INLINED_OF` has called another, `SAMPLES CALLER >
//! INLINED > … > CALLEE`; and `refuted: SAMPLES CALLER > …` for those of all methods of which the compiler never asked
//! whether it may inline one of them where it was found. With INLINED_TRUTH=no nothing is compared: the compiler says
//! nothing about code that is older than the profiler, or precompiled.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corprof::inlined_frames::{InlinedFrames, InlinedMethod};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::sampler::{Mode, Sampler, Strategy};

/// How often the program is sampled.
const INTERVAL: Duration = Duration::from_millis(1);

/// A method by its definition. The programs unload nothing.
type Definition = (ModuleId, MethodDef);

/// What was found between two frames.
#[derive(PartialEq, Eq, Hash)]
struct Chain {
    caller: FunctionId,
    inlined: Vec<Arc<InlinedMethodKey>>,
    callee: FunctionId,
}

type InlinedMethodKey = (Definition, Name);

#[derive(Default)]
struct State {
    samples: HashMap<Chain, u64>,
    /// The caller, and what the compiler asked about there.
    inlinings: HashSet<(Definition, Definition)>,
}

#[derive(Default, Profiler)]
#[profiler(clsid = "6E1B2C64-0A0E-4C9B-9B52-7D3B5E2F0038")]
struct Inlined(Arc<Mutex<State>>);

fn definition(cx: &InNoGc<'_>, function: FunctionId) -> Option<Definition> {
    let info = cx.function_info(function).ok().filter(|info| !info.token.is_nil())?;
    Some((info.module, info.token))
}

impl State {
    fn add(&mut self, caller: FunctionId, inlined: &[Arc<InlinedMethod>], callee: FunctionId) {
        let key = |method: &Arc<InlinedMethod>| Arc::new(((method.module, method.method), method.name.clone()));
        let inlined = inlined.iter().map(key).collect();
        *self.samples.entry(Chain { caller, inlined, callee }).or_default() += 1;
    }

    /// Whether the compiler has asked about each method, for the method around it or for the one that is compiled.
    fn is_told(&self, cx: &InNoGc<'_>, chain: &Chain) -> bool {
        let Some(caller) = definition(cx, chain.caller) else { return false };
        let mut around = caller;
        chain.inlined.iter().all(|method| {
            let outer = std::mem::replace(&mut around, method.0);
            self.inlinings.contains(&(outer, method.0)) || self.inlinings.contains(&(caller, method.0))
        })
    }

    fn print(&self, cx: &InNoGc<'_>) {
        let has_truth = std::env::var("INLINED_TRUTH").as_deref() != Ok("no");
        let of = std::env::var("INLINED_OF").unwrap_or_default();
        let mut shown: BTreeMap<String, u64> = BTreeMap::new();
        let mut refuted: BTreeMap<String, u64> = BTreeMap::new();
        let mut found = 0;
        for (chain, samples) in &self.samples {
            let names = cx.names().csharp();
            let mut path = vec![names.function(chain.caller).to_string()];
            path.extend(chain.inlined.iter().map(|method| method.1.to_string()));
            path.push(names.function(chain.callee).to_string());
            let text = path.join(" > ");
            if !chain.inlined.is_empty() {
                found += samples;
                if has_truth && !self.is_told(cx, chain) {
                    *refuted.entry(text.clone()).or_default() += samples;
                }
            }
            if path.first().is_some_and(|caller| caller.starts_with(&of)) {
                *shown.entry(text).or_default() += samples;
            }
        }
        for (text, samples) in shown {
            eprintln!("{samples} {text}");
        }
        for (text, samples) in refuted {
            eprintln!("refuted: {samples} {text}");
        }
        eprintln!("found: {found}, by the compiler: {}", self.inlinings.len());
    }
}

#[callbacks]
impl Callbacks for Inlined {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let state = Arc::clone(&profiler.0);
        let mut inlined = InlinedFrames::new();
        let sampler = Sampler::every(INTERVAL).mode(Mode::Cpu).budget(1.0).strategy(Strategy::Signals);
        sampler.start(cx, move |round| {
            inlined.learn(round);
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            for sample in round.samples() {
                for frames in sample.frames().windows(2) {
                    let [inner, outer] = frames else { continue };
                    if let (Some(callee), Some(caller)) = (inner.function, outer.function) {
                        state.add(caller, inlined.between(round.cx(), outer, inner), callee);
                    }
                }
            }
        })?;
        Ok(profiler)
    }

    fn jit_inlining(&self, cx: &mut InCallback<'_>, caller: FunctionId, callee: FunctionId) -> bool {
        if let (Some(caller), Some(callee)) = (definition(cx, caller), definition(cx, callee)) {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.inlinings.insert((caller, callee));
        }
        true
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).print(cx);
    }
}
