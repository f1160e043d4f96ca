//! The comparison of single instructions.

use std::collections::BTreeMap;
use std::fmt::Write;

use corprof::info::CodeRange;
use corprof::prelude::*;
use corprof::testing::{SignalStack, SignalStep};

#[cfg(target_arch = "aarch64")]
use super::arm64::Decoded;
#[cfg(target_arch = "x86_64")]
use super::decoded::Decoded;
use super::parts::{Instruction, Part};
use super::reference::{Cookie, Stack, WORD};

/// How many kinds of disagreements are printed, with so many examples.
const MOST_PRINTED: usize = 40;
const MOST_EXAMPLES: usize = 2;

/// How many instructions were compared, and on how many both agree.
#[derive(Clone, Copy, Default)]
struct Count {
    right: u64,
    all: u64,
}

/// The comparison, and what it has found.
pub(crate) struct Comparison<'s> {
    stack: &'s Stack<'s>,
    made: SignalStack,
    step: &'s SignalStep,
    counts: BTreeMap<Part, Count>,
    /// How many instructions the runtime tells no caller of.
    unknown: u64,
    /// Disagreements by part and first bytes: how many, and examples.
    told: BTreeMap<(Part, String), (usize, String)>,
}

/// The values that a function keeps on its stack, and whether and where they are there.
struct Kept<'s> {
    stack: &'s Stack<'s>,
    cookies: Vec<Cookie>,
    places: Option<(isize, isize)>,
}

impl Kept<'_> {
    /// Puts them where they are at an instruction; nowhere if the frame is not made yet.
    fn put(&mut self, places: Option<(isize, isize)>) {
        if self.places == places {
            return;
        }
        for (frame_pointer, removed) in [self.places, places].into_iter().flatten() {
            self.stack.exchange(&mut self.cookies, frame_pointer, removed);
        }
        self.places = places;
    }
}

impl<'s> Comparison<'s> {
    pub(crate) fn new(stack: &'s Stack<'s>, step: &'s SignalStep) -> Self {
        let made = SignalStack::new(stack.stack_pointer(), &stack.words());
        Self { stack, made, step, counts: BTreeMap::new(), unknown: 0, told: BTreeMap::new() }
    }

    /// Compares at each instruction of a piece of code.
    pub(crate) fn compare(&mut self, cx: &InNoGc<'_>, function: FunctionId, range: CodeRange, code: &[u8]) {
        let decoded = Decoded::of(range.start, code);
        let mut kept = Kept { stack: self.stack, cookies: decoded.cookies(), places: None };
        // How far above the frame pointer the caller's frame begins.
        let mut beyond = None;
        // On arm64 the runtime takes the frame of the code whose loop is continued for the work of the first
        // instruction, though it is there before: in the prologue it is an instruction behind.
        let mut is_behind = false;
        for instruction in decoded.instructions() {
            let Instruction { offset, part, frame_pointer, removed, .. } = instruction;
            kept.put((part != Part::Prologue).then_some((frame_pointer, removed)));
            let ip = range.start + offset;
            let anywhere = self.stack.stack_pointer().wrapping_add_signed(frame_pointer);
            let Some(mut expected) = self.stack.caller(cx, ip, anywhere) else {
                self.unknown += 1;
                continue;
            };
            if cfg!(target_arch = "aarch64") && part == Part::Prologue {
                let found = self.step.caller(&mut self.made, ip, anywhere, self.stack.link());
                let found = found.map(|found| [found.ip, found.stack_pointer, found.frame_pointer]);
                let next = self.stack.caller(cx, ip + 4, anywhere);
                is_behind |= offset == 0 && found != Some(expected) && found == next;
                expected = next.filter(|_| is_behind).unwrap_or(expected);
            }
            let [_, above, callers] = expected;
            let frame_pointer = match part {
                // It is the original code's, which points at the last but one word of its frame.
                Part::Prologue if decoded.continues_a_loop() => above - 2 * WORD,
                // If it was saved already, the same is still in the register.
                Part::Prologue => callers,
                _ => anywhere,
            };
            if part == Part::Body {
                beyond.get_or_insert(above.wrapping_sub(frame_pointer));
            }
            let found = self.step.caller(&mut self.made, ip, frame_pointer, self.stack.link());
            let found = found.map(|found| [found.ip, found.stack_pointer, found.frame_pointer]);
            // The walk takes what a handler does for a part of the function, and goes on with the function's caller.
            let is_function =
                part == Part::Handlers && found.map(|[_, above, _]| above.wrapping_sub(frame_pointer)) == beyond;
            // Code that continues a loop has a copy of the caller's frame pointer, which is as good.
            let copy = decoded.continues_a_loop().then(|| self.stack.read(frame_pointer)).flatten();
            let is_same = found
                .is_some_and(|found| found[..2] == expected[..2] && (found[2] == callers || Some(found[2]) == copy));
            let count = self.counts.entry(part).or_default();
            count.all += 1;
            count.right += u64::from(is_function || is_same);
            if !is_function && !is_same {
                self.note(cx, function, code, &instruction, [Some(expected), found]);
            }
        }
        kept.put(None);
    }

    /// Records a disagreement.
    fn note(
        &mut self,
        cx: &InNoGc<'_>,
        function: FunctionId,
        code: &[u8],
        instruction: &Instruction,
        answers: [Option<[usize; 3]>; 2],
    ) {
        let Instruction { offset, size, part, .. } = *instruction;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let key = (part, hex(&code[offset..offset + size.min(2)]));
        let (times, text) = self.told.entry(key).or_default();
        *times += 1;
        if *times <= MOST_EXAMPLES {
            let name = cx.names().function(function);
            let [begin, next] = [0, offset].map(|from| hex(&code[from..code.len().min(from + 24)]));
            let [expected, found] = answers.map(|caller| self.stack.describe(caller));
            let _ = writeln!(text, "    {name}+{offset:#x} of {:#x}: {found} instead of {expected}", code.len());
            let _ = writeln!(text, "        {begin}\n        {next}");
        }
    }

    pub(crate) fn tell(&self) {
        eprintln!("unknown: {} of {0}", self.unknown);
        for (part, Count { right, all }) in &self.counts {
            eprintln!("{part:?}: {right} of {all}");
        }
        let mut told: Vec<_> = self.told.iter().collect();
        told.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
        for ((part, bytes), (times, text)) in told.into_iter().take(MOST_PRINTED) {
            eprint!("  {times} times in {part:?} at {bytes}\n{text}");
        }
    }
}
