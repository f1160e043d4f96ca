//! Compares the signal sampler's walk with the runtime's own unwinder, for each instruction of compiled methods.
//!
//! No thread can be stopped at each instruction. So both walk a stack that is made up: each of its words is a different
//! address in managed code, and so shows by itself from where a return address was read. The runtime walks it by
//! `DoStackSnapshot` from registers, as it walks the stack of a stopped thread.
//!
//! It looks up all functions when `CompareFrames` is compiled, and compares when an exception of that name is thrown:
//! one of `FRAMES_EVERY` pieces of code. It prints on how many instructions both agree, a line for each part of
//! functions: `Body: RIGHT of ALL`; and some on which they do not.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[cfg(target_arch = "aarch64")]
mod arm64;
mod comparison;
#[cfg(target_arch = "x86_64")]
mod decoded;
mod parts;
mod reference;

use std::cell::Cell;
use std::sync::Mutex;

use corprof::args::JitCache;
use corprof::info::CodeRange;
use corprof::prelude::*;
use corprof::testing::SignalStep;

use comparison::Comparison;
use reference::Stack;

#[derive(Default, Profiler)]
#[profiler(clsid = "0F6B2E0A-5B0C-4B06-8C43-3E4C6E6F0001")]
struct Frames(Mutex<State>);

#[derive(Default)]
struct State {
    functions: Vec<FunctionId>,
    looked_up: Option<LookedUp>,
}

/// What to compare.
struct LookedUp {
    step: SignalStep,
    pieces: Vec<(FunctionId, CodeRange)>,
}

/// The first range of each piece of a function's code.
fn pieces(cx: &mut InCallback<'_>, function: FunctionId) -> Vec<CodeRange> {
    let codes = cx.native_code(function).unwrap_or_default();
    codes.into_iter().flat_map(|code| cx.native_code_ranges(code).unwrap_or_default()).collect()
}

/// The bytes of a range of code.
fn bytes(range: CodeRange) -> &'static [u8] {
    // SAFETY: code of a method that is not collectible stays where it is, readable, to the end of the process.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(range.start), range.size) }
}

#[callbacks]
impl Callbacks for Frames {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        Ok(Self::default())
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _: bool) {
        if cx.names().function(function).contains(".CompareFrames") {
            self.look_up(cx);
        }
    }

    fn jit_compilation_finished(&self, _: &mut InCallback<'_>, function: FunctionId, _: Result<()>, _: bool) {
        self.note(function);
    }

    fn jit_cached_function_search_finished(&self, _: &mut InCallback<'_>, function: FunctionId, _: JitCache) {
        self.note(function);
    }

    /// The runtime takes registers as a start only on a thread in cooperative mode, as here.
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if cx.class_of(thrown).is_ok_and(|class| cx.names().class(class).contains("FramesException")) {
            self.compare(cx);
        }
    }
}

impl Frames {
    fn note(&self, function: FunctionId) {
        if let Ok(mut state) = self.0.lock() {
            state.functions.push(function);
        }
    }

    /// Looks up all that was compiled so far.
    fn look_up(&self, cx: &mut InCallback<'_>) {
        let mut functions = self.0.lock().map(|state| state.functions.clone()).unwrap_or_default();
        functions.sort_unstable_by_key(|function| function.as_raw());
        functions.dedup();
        let mut found = LookedUp { step: SignalStep::default(), pieces: Vec::new() };
        for function in functions {
            for piece in pieces(cx, function) {
                found.step.look_up(cx, piece.start);
                found.pieces.push((function, piece));
            }
        }
        if let Ok(mut state) = self.0.lock() {
            state.looked_up = Some(found);
        }
    }

    fn compare(&self, cx: &InNoGc<'_>) {
        let Some(LookedUp { step, pieces }) = self.0.lock().ok().and_then(|mut state| state.looked_up.take()) else {
            return;
        };
        let every = std::env::var("FRAMES_EVERY").ok().and_then(|every| every.parse().ok()).unwrap_or(1);
        let memory = [const { Cell::new(0) }; reference::WORDS];
        // On an empty stack a walk shows the function alone, or nothing.
        let empty = Stack::of(&memory, 0);
        let shown = pieces.iter().filter(|(_, piece)| empty.shows(cx, piece.start));
        let mut addresses = shown.flat_map(|(_, piece)| piece.start + 1..piece.start + piece.size);
        memory.iter().for_each(|word| word.set(addresses.next().unwrap_or_default()));
        let link = addresses.next().unwrap_or_default();
        if memory.last().is_some_and(|word| word.get() == 0) {
            eprintln!("too little code: {} pieces", pieces.len());
            return;
        }
        let stack = Stack::of(&memory, link);
        let mut comparison = Comparison::new(&stack, &step);
        let mut compared = 0_u64;
        for &(function, piece) in pieces.iter().step_by(every) {
            compared += 1;
            comparison.compare(cx, function, piece, bytes(piece));
        }
        eprintln!("pieces: {compared}");
        comparison.tell();
    }
}
