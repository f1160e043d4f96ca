//! Methods that the compiler has put into their callers, and that so have no frame: those that must have been on a
//! stack, by the IL alone.
//!
//! A method *F* has called a method *N*, says the stack. But the statement of *F* that runs does not call *N*: it calls
//! *C*, which calls *N*. Then *C* was inlined into *F*, whoever compiled that, and whenever: in this process before the
//! attach, or long before in a precompiled image. [`InlinedFrames`] finds such methods for the samples of a
//! [`Round`].
//!
//! # What is certain
//!
//! A method is found only if every way from the statement to the callee leads through it. So nothing is found
//!
//! - in a statement with a call whose target the IL does not say: virtual, by an interface, a delegate or a pointer,
//!   unless the class or the method is sealed;
//! - where two methods of a statement lead to the callee. Of several ways inside a method, what they share is found;
//! - for the innermost frame, which calls nothing;
//! - if the code of the caller is of a body that was requested by ReJIT.
//!
//! A method that ends with a call may have a frame no longer as it was left by a jump (a tail call), and not as it was
//! inlined. So the machine code of the caller must call the callee itself, which is seen on x86-64; or the last method
//! must go on after its call.

mod call_site;
mod calls;
mod chain;
mod statement;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::{InCallback, InNoGc};
use crate::id::{FunctionId, ModuleId};
use crate::metadata::MethodDef;
use crate::names::Name;
use crate::sampler::{Round, SampledFrame};
use crate::system;

use calls::{Definition, KnownCalls};
use chain::{Bodies, Frames, inlined_between};

/// How many calls are remembered. Code that is compiled again and again would have more and more.
const MOST_KNOWN: usize = 100_000;
/// How many new calls of a round are looked at. Stacks come again.
const MOST_NEW: usize = 64;
/// A new call takes up to some milliseconds, as the IL of many methods may be read for it. The first ones may take so
/// much processor time, all of them this part of the time, and those of a round so much that the next one is not late.
const FIRST: Duration = Duration::from_millis(100);
const PART: u32 = 25;
const IN_ROUND: Duration = Duration::from_millis(5);

/// A method without a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct InlinedMethod {
    /// The module that defines it.
    pub module: ModuleId,
    /// Its definition there.
    pub method: MethodDef,
    /// Its name in the spelling of C#, generic parameters by their names.
    pub name: Name,
}

/// Two frames, one next to the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PhysicalCall {
    caller: FunctionId,
    return_address: usize,
    callee: FunctionId,
}

/// What was found of a call.
struct Found {
    /// The names of both: after an unload, other methods may have their ids.
    caller: Name,
    callee: Name,
    /// The outermost first.
    methods: Vec<Arc<InlinedMethod>>,
    /// How often it was seen without an answer; none once there is one. Seldom, but without end, it is looked at again.
    unanswered: Option<u32>,
}

/// Finds inlined methods, and remembers them.
#[derive(Default)]
pub struct InlinedFrames {
    known: HashMap<PhysicalCall, Found>,
    calls: KnownCalls,
    /// The first round.
    begun: Option<Instant>,
    /// The processor time that new calls have taken.
    spent: Duration,
}

impl InlinedFrames {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds the inlined methods of a round. Threads run meanwhile. What it leaves for its length is found in a later
    /// round.
    pub fn learn(&mut self, round: &mut Round<'_, '_>) {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let allowed = (FIRST + begun.elapsed() / PART).saturating_sub(self.spent).min(IN_ROUND);
        if allowed.is_zero() {
            return;
        }
        let before = processor_time();
        let mut taken = Duration::ZERO;
        for call in self.unknown(round, MOST_NEW) {
            if taken >= allowed {
                break;
            }
            self.find(round.cx_mut(), call);
            taken = processor_time().saturating_sub(before);
        }
        self.spent += taken;
    }

    /// The same, however long it takes: for a round that has no successor.
    pub fn learn_all(&mut self, round: &mut Round<'_, '_>) {
        for call in self.unknown(round, usize::MAX) {
            self.find(round.cx_mut(), call);
        }
    }

    /// The methods that were inlined between two frames, one next to the other, the outermost first; none that is not
    /// certain, or not [found](Self::learn) yet.
    pub fn between(&self, cx: &InNoGc<'_>, caller: &SampledFrame, callee: &SampledFrame) -> &[Arc<InlinedMethod>] {
        let Some(call) = PhysicalCall::between(caller, callee) else { return &[] };
        match self.known.get(&call) {
            Some(found) if !found.methods.is_empty() && found.is_of(cx, call) => &found.methods,
            _ => &[],
        }
    }

    /// The calls of a round that are to be looked at, at most so many.
    fn unknown(&mut self, round: &Round<'_, '_>, most: usize) -> HashSet<PhysicalCall> {
        let cx = round.cx();
        let mut unknown = HashSet::new();
        for sample in round.samples() {
            for frames in sample.frames().windows(2) {
                let [callee, caller] = frames else { continue };
                let Some(call) = PhysicalCall::between(caller, callee) else { continue };
                let is_known = self.known.get_mut(&call).is_some_and(|found| found.is_of(cx, call) && !found.is_due());
                if !is_known && unknown.len() < most {
                    unknown.insert(call);
                }
            }
        }
        unknown
    }

    fn find(&mut self, cx: &mut InCallback<'_>, call: PhysicalCall) {
        let seen = self.known.get(&call).and_then(|found| found.unanswered).unwrap_or(1);
        let found = self.methods_of(cx, call);
        let names = cx.names().csharp();
        let (caller, callee) = (names.function(call.caller), names.function(call.callee));
        let (definitions, unanswered) = match found {
            Answer::Certain(methods) => (methods, None),
            Answer::NotYet => (Vec::new(), Some(seen)),
        };
        let method = |Definition { module, method }: Definition| {
            Arc::new(InlinedMethod { module, method, name: names.method_def(module, method) })
        };
        let methods = definitions.into_iter().map(method).collect();
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(call, Found { caller, callee, methods, unanswered });
    }

    fn methods_of(&mut self, cx: &mut InCallback<'_>, call: PhysicalCall) -> Answer {
        const NONE: Answer = Answer::Certain(Vec::new());
        let Some(caller) = definition_of(cx, call.caller) else { return NONE };
        let Some(callee) = definition_of(cx, call.callee) else { return NONE };
        let changes = cx.liveness().changes();
        if cx.list_assemblies().is_err() || !is_first_body(cx, call.caller) {
            return NONE;
        }
        let cx: &InNoGc<'_> = cx;
        let mut bodies = self.calls.reader(cx, changes);
        let calls = bodies.calls(caller);
        let Some(statement) = statement::around(cx, call.caller, call.return_address, &calls.after_stores) else {
            return NONE;
        };
        let mut frames = Frames { caller: &calls, statement, callee, is_direct: true };
        let if_direct = inlined_between(&mut bodies, &frames);
        if if_direct.is_empty() || is_direct(cx, call) {
            return Answer::Certain(if_direct);
        }
        frames.is_direct = false;
        let anyway = inlined_between(&mut bodies, &frames);
        if anyway.is_empty() { Answer::NotYet } else { Answer::Certain(anyway) }
    }
}

enum Answer {
    Certain(Vec<Definition>),
    /// The machine code does not tell what it calls: the runtime changes it when it has compiled the callee.
    NotYet,
}

impl PhysicalCall {
    fn between(caller: &SampledFrame, callee: &SampledFrame) -> Option<Self> {
        Some(Self { caller: caller.function?, return_address: caller.ip, callee: callee.function? })
    }
}

impl Found {
    /// Whether it is to be looked at again, now that it is seen once more.
    fn is_due(&mut self) -> bool {
        let Some(seen) = &mut self.unanswered else { return false };
        *seen = seen.saturating_add(1);
        seen.is_power_of_two()
    }

    fn is_of(&self, cx: &InNoGc<'_>, call: PhysicalCall) -> bool {
        let names = cx.names().csharp();
        self.caller == names.function(call.caller) && self.callee == names.function(call.callee)
    }
}

/// That of this thread: on a busy machine most of the time is spent waiting for a processor.
fn processor_time() -> Duration {
    system::cpu_time(system::os_thread_id()).unwrap_or_default()
}

/// The definition of a function; none of one without metadata.
fn definition_of(cx: &InNoGc<'_>, function: FunctionId) -> Option<Definition> {
    let info = cx.function_info(function).ok().filter(|info| !info.token.is_nil())?;
    Some(Definition { module: info.module, method: info.token })
}

/// Whether a function has had no body by ReJIT, of which no IL is known.
fn is_first_body(cx: &mut InCallback<'_>, function: FunctionId) -> bool {
    cx.rejit_ids(function).is_ok_and(|bodies| bodies.iter().all(|body| body.0 == 0))
}

/// Whether the machine code of the caller calls the callee itself.
fn is_direct(cx: &InNoGc<'_>, call: PhysicalCall) -> bool {
    let Ok(codes) = cx.native_code(call.callee) else { return false };
    let codes: Vec<usize> = codes.into_iter().map(crate::id::NativeCode::as_raw).collect();
    call_site::calls_one_of(call.return_address, &codes)
}
