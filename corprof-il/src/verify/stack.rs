//! Level 2: follows the stack over all paths that can be taken.

use super::facts::{Facts, Frame};
use super::kind::Kind;
use super::resolve::Resolve;
use super::{Places, Report, Rule};
use crate::body::{NONE, Part};
use crate::opcode::Flow;

/// The most values that the header of a body can speak of.
const MOST_VALUES: usize = u16::MAX as usize;

/// The limit of stored stack entries at branch targets, for each instruction: code from compilers needs far less.
const STATES_PER_INSTRUCTION: usize = 64;
const STATES: usize = 1 << 16;

/// How much is done for each instruction: looking at it, and carrying a value to a branch target. Each way to a target
/// can change the kinds there twice, so code from compilers needs far less.
const WORK_PER_INSTRUCTION: usize = 128;
const WORK: usize = 1 << 18;

/// The stack at a branch target, as a part of the pool.
#[derive(Clone, Copy)]
struct State {
    start: u32,
    length: u32,
    is_queued: bool,
}

/// The traversal of the instructions.
pub(super) struct Flowing<'a, 'b, 'r, R: Resolve + ?Sized> {
    pub(super) report: &'a mut Report<'b>,
    pub(super) facts: &'a mut Facts<'r, R>,
    pub(super) frame: &'a Frame,
    pub(super) stack: Vec<Kind>,
    pub(super) place: u32,
    max: usize,
    limit: usize,
    all: &'a Places<'a>,
    /// The state of each place that has one.
    at: Vec<u32>,
    states: Vec<State>,
    pool: Vec<Kind>,
    queue: Vec<u32>,
    work: usize,
    /// The stack before each place that a path reaches, if requested.
    seen: Option<Stacks>,
}

/// The most values that are on the stack at once.
pub(super) fn check<R: Resolve + ?Sized>(
    report: &mut Report<'_>,
    facts: &mut Facts<'_, R>,
    frame: &Frame,
    all: &Places<'_>,
) -> usize {
    follow(report, facts, frame, all, false).0
}

/// How many values are on the stack before each instruction, by place, and the kinds of those at its top; nothing where
/// no path comes to.
pub(super) type Stacks = Vec<Option<(usize, Vec<Kind>)>>;

/// The limit of stored values of each stack: a body can have thousands.
const MOST_SHOWN: usize = 32;

/// As [`check`], with the stacks before each instruction.
pub(super) fn trace<R: Resolve + ?Sized>(
    report: &mut Report<'_>,
    facts: &mut Facts<'_, R>,
    frame: &Frame,
    all: &Places<'_>,
) -> Stacks {
    follow(report, facts, frame, all, true).1
}

fn follow<R: Resolve + ?Sized>(
    report: &mut Report<'_>,
    facts: &mut Facts<'_, R>,
    frame: &Frame,
    all: &Places<'_>,
    is_traced: bool,
) -> (usize, Stacks) {
    let count = report.order.len();
    let limit = report.body.max_stack().map_or(MOST_VALUES, usize::from);
    let mut flowing = Flowing {
        report,
        facts,
        frame,
        stack: Vec::with_capacity(8),
        place: 0,
        max: 0,
        limit,
        all,
        at: Vec::new(),
        states: Vec::new(),
        pool: Vec::new(),
        queue: Vec::new(),
        work: count * WORK_PER_INSTRUCTION + WORK,
        seen: is_traced.then(|| vec![None; count]),
    };
    flowing.run(count);
    (flowing.max, flowing.seen.unwrap_or_default())
}

impl<R: Resolve + ?Sized> Flowing<'_, '_, '_, R> {
    fn run(&mut self, count: usize) {
        let body = self.report.body;
        // Where paths meet: branch targets, and where tried code begins.
        let has_joins = body.has_labels() || !self.all.intervals.is_empty();
        if has_joins {
            self.at = vec![NONE; count];
        }
        self.place = 0;
        if self.is_join(0) {
            self.flow_to(0);
            if !self.next_in_queue() {
                return;
            }
        }
        loop {
            let order = self.report.order;
            let Some(insn) = order.get(self.place as usize).and_then(|id| body.get(*id)) else {
                // Ran off the end, which has its own rule.
                if self.next_in_queue() { continue } else { return }
            };
            self.work = self.work.saturating_sub(1);
            if self.work == 0 || self.pool.len() > count * STATES_PER_INSTRUCTION + STATES {
                self.report.add(
                    Rule::TooComplex,
                    Some(self.place),
                    "too many paths",
                    "fewer, or less on the stack there",
                );
                return;
            }
            if let Some(slot) = self.seen.as_mut().and_then(|seen| seen.get_mut(self.place as usize)) {
                let hidden = self.stack.len().saturating_sub(MOST_SHOWN);
                *slot = Some((self.stack.len(), self.stack.get(hidden..).unwrap_or_default().to_vec()));
            }
            self.step(insn);
            let flow = insn.opcode().flow();
            if insn.opcode().is_leave() {
                self.stack.clear();
            }
            for target in insn.targets() {
                if let Some(target) = body.target(*target).and_then(|id| self.all.places.get(id.0 as usize)) {
                    self.flow_to(*target);
                }
            }
            let goes_on = matches!(flow, Flow::Next | Flow::Conditional);
            self.place += 1;
            if goes_on && self.is_join(self.place) {
                self.flow_to(self.place);
            } else if goes_on {
                continue;
            }
            if !self.next_in_queue() {
                return;
            }
        }
    }

    #[inline]
    fn is_join(&self, place: u32) -> bool {
        if self.at.is_empty() {
            return false;
        }
        let id = self.report.order.get(place as usize);
        id.is_some_and(|id| self.report.body.is_join(*id))
    }

    fn next_in_queue(&mut self) -> bool {
        let Some(place) = self.queue.pop() else { return false };
        self.place = place;
        let number = self.at.get(place as usize).copied().unwrap_or(NONE);
        if let Some(state) = self.states.get_mut(number as usize) {
            state.is_queued = false;
            let range = state.start as usize..(state.start + state.length) as usize;
            self.stack.clear();
            self.stack.extend_from_slice(self.pool.get(range).unwrap_or_default());
        }
        true
    }

    /// Carries the stack to a place where paths meet.
    fn flow_to(&mut self, place: u32) {
        self.work = self.work.saturating_sub(1 + self.stack.len());
        if self.work == 0 {
            return;
        }
        let Some(slot) = self.at.get_mut(place as usize) else { return };
        if *slot == NONE {
            *slot = self.states.len() as u32;
            let start = self.pool.len() as u32;
            let length = self.stack.len() as u32;
            self.states.push(State { start, length, is_queued: true });
            self.pool.extend_from_slice(&self.stack);
            self.queue.push(place);
            self.enter(place);
            return;
        }
        let number = *slot as usize;
        let Some(state) = self.states.get(number).copied() else { return };
        let before = self.pool.get_mut(state.start as usize..(state.start + state.length) as usize).unwrap_or_default();
        if before.len() != self.stack.len() {
            let found = self.stack.len();
            let expected = before.len();
            let expected = format!("{expected}, as on another path");
            self.report.add(Rule::PathStackDepth, Some(place), format!("{found} values on the stack"), expected);
            return;
        }
        let mut changed = false;
        let mut bad = None;
        for (old, new) in before.iter_mut().zip(&self.stack) {
            let same = self.frame.is_same_reference(*new, *old).then_some(*old);
            match old.merge(*new).or(same) {
                Some(merged) => {
                    changed |= merged != *old;
                    *old = merged;
                }
                None => bad = bad.or(Some((*new, *old))),
            }
        }
        if let Some((found, expected)) = bad {
            let found = self.name(found);
            let expected = self.name(expected);
            let expected = format!("{expected}, as on another path");
            self.report.add(Rule::PathStackUnexpected, Some(place), found, expected);
        }
        if changed && !state.is_queued {
            if let Some(state) = self.states.get_mut(number) {
                state.is_queued = true;
            }
            self.queue.push(place);
        }
    }

    /// Tried code that is entered needs an empty stack; from now on its handlers can run.
    fn enter(&mut self, place: u32) {
        let all = self.all;
        if all.intervals.is_empty() {
            return;
        }
        let mut handlers = Vec::new();
        for (number, region) in all.intervals.iter().enumerate() {
            if region.tried.0 != place {
                continue;
            }
            if !self.stack.is_empty()
                && self
                    .all
                    .contexts
                    .around(self.all.contexts.at(place))
                    .any(|(_, c)| c.part == Part::Tried && c.start == place)
            {
                let found = format!("{} values on the stack", self.stack.len());
                self.report.add(Rule::TryNonEmptyStack, Some(place), found, "none where tried code begins");
            }
            handlers.extend(region.filter.map(|filter| (filter.0, true)));
            let takes = self.report.body.regions().get(number).is_some_and(|region| region.kind.takes_object());
            handlers.push((region.handler.0, takes));
        }
        if handlers.is_empty() {
            return;
        }
        let stack = std::mem::take(&mut self.stack);
        for (handler, takes) in handlers {
            self.stack.clear();
            if takes {
                self.push(Kind::Object);
            }
            self.flow_to(handler);
        }
        self.stack = stack;
    }

    pub(super) fn name(&self, kind: Kind) -> String {
        self.facts.types.name(kind)
    }

    #[inline]
    pub(super) fn push(&mut self, kind: Kind) {
        self.stack.push(self.facts.types.sized(kind));
        if self.stack.len() > self.max {
            self.max = self.stack.len();
            if self.max > self.limit {
                let expected = format!("at most {}", self.limit);
                let found = format!("{} values on the stack", self.max);
                self.report.add(Rule::StackOverflow, Some(self.place), found, expected);
            }
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Kind {
        self.pop_exact().plain()
    }

    /// As [`pop`](Self::pop), but distinguishes arrays of values from other objects.
    #[inline]
    pub(super) fn pop_exact(&mut self) -> Kind {
        match self.stack.pop() {
            Some(kind) => kind,
            None => {
                self.report.add(Rule::StackUnderflow, Some(self.place), "an empty stack", "a value");
                Kind::Unknown
            }
        }
    }

    /// Reports a breach at the instruction.
    #[cold]
    pub(super) fn breach(&mut self, rule: Rule, found: impl Into<String>, expected: impl Into<String>) {
        self.report.add(rule, Some(self.place), found, expected);
    }
}
