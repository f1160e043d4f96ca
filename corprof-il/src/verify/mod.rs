//! Verifies bodies before a runtime sees them: the flow of control, and how many values of which kinds are on the
//! stack.
//!
//! Level 1 (`regions`, `flow`) needs the body alone: regions are nested, branches stay where they may, every path ends,
//! prefixes fit. Level 2 (`stack`, `step`, `members`, `delegates`) follows the values over all paths and asks metadata
//! by
//! [`Resolve`]: tokens fit their instructions, no value is missing or left over, and each is of the expected kind;
//! value types are distinguished exactly.
//!
//! It does not prove that an object is of the class that a call or a field access expects: there is no hierarchy here.
//! A body of arbitrary instructions therefore remains the responsibility of its author.

mod delegates;
mod facts;
mod flow;
mod kind;
mod members;
mod pops;
mod regions;
mod resolve;
mod rule;
mod stack;
mod step;
#[cfg(test)]
mod tests;

pub use facts::MethodContext;
pub use resolve::{Category, Dispatch, FieldInfo, MethodInfo, Resolve, TypeInfo, WellKnown, is_ref_struct_of_system};
pub use rule::{IlError, Rule};

use std::fmt;

use crate::body::{Body, InsnId, Intervals, RegionId, RegionKind};
use facts::Facts;

/// What [`Rule::GenericParameter`] expects.
const GENERIC_PARAMETER: &str = "a generic parameter of the method or its type";

/// What [`Rule::BadSignature`] expects of `void`.
const NO_VOID: &str = "void only where it is returned or pointed to";

/// Verifies the bodies of one module. It caches the meanings of tokens, so one for many bodies is faster than one for
/// each.
pub struct Verifier<'r, R: Resolve + ?Sized> {
    facts: Facts<'r, R>,
}

impl<R: Resolve + ?Sized> fmt::Debug for Verifier<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// The stack before an instruction, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackText {
    /// How many values there are.
    pub depth: usize,
    /// Their kinds, the top last; of a deep stack only those at the top.
    pub top: Vec<String>,
}

/// The facts about a body without breaches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The most values that are on the stack at any time.
    pub max_stack: u16,
}

impl<'r, R: Resolve + ?Sized> Verifier<'r, R> {
    /// A verifier for the bodies of a module.
    pub fn new(resolve: &'r R) -> Self {
        Self { facts: Facts::new(resolve) }
    }

    /// Verifies a body of a method.
    ///
    /// # Errors
    /// All breaches that were found, each with rule, instruction, and the found and expected kinds.
    pub fn verify(&mut self, body: &Body, method: &MethodContext) -> Result<Verified, Vec<IlError>> {
        let (order, places) = body.in_order();
        let intervals = body.intervals(&places);
        let mut report = Report { body, order: &order, errors: Vec::new() };
        if order.is_empty() {
            report.add(Rule::NoCode, None, String::new(), "an instruction");
            return Err(report.errors);
        }
        let contexts = regions::check(&mut report, &mut self.facts, &intervals, &order);
        let Some(contexts) = contexts else { return Err(report.errors) };
        let Some(frame) = self.facts.frame(method, body.locals()) else {
            let locals = body.locals().map(|token| format!("local variables {token}")).unwrap_or_default();
            report.add(Rule::BadSignature, None, locals, "a signature of local variables");
            return Err(report.errors);
        };
        if let Some(place) = frame.misplaced_void() {
            report.add(Rule::BadSignature, None, format!("void in {place}"), NO_VOID);
        }
        if frame.is_vararg && !self.facts.resolve.has_varargs() {
            report.add(Rule::VarArgUnsupported, None, "a method with a variable number of arguments", "Windows");
        }
        if let Some(missing) = frame.missing_in_locals() {
            report.add(Rule::GenericParameter, None, format!("{missing} in a local variable"), GENERIC_PARAMETER);
        }
        for id in body.region_ids() {
            let Some(RegionKind::Catch(token)) = body.region(id).map(|region| region.kind) else { continue };
            if let Some(missing) = frame.missing(self.facts.needs(token)) {
                report.add_region(Rule::GenericParameter, id.0, missing, GENERIC_PARAMETER);
            }
        }
        flow::check(&mut report, &frame, &contexts, &places);
        let max_stack =
            stack::check(&mut report, &mut self.facts, &frame, &Places { places: &places, contexts, intervals });
        match u16::try_from(max_stack) {
            Ok(max_stack) if report.errors.is_empty() => Ok(Verified { max_stack }),
            _ => Err(report.errors),
        }
    }

    /// The stack before each instruction that a path reaches, as text for human readers. Of a body with
    /// bad regions there is nothing; of one that breaks other rules as much as was found.
    pub fn stacks(&mut self, body: &Body, method: &MethodContext) -> Vec<(InsnId, StackText)> {
        let (order, places) = body.in_order();
        let intervals = body.intervals(&places);
        let mut report = Report { body, order: &order, errors: Vec::new() };
        let contexts = regions::check(&mut report, &mut self.facts, &intervals, &order);
        let (Some(contexts), Some(frame)) = (contexts, self.facts.frame(method, body.locals())) else {
            return Vec::new();
        };
        let all = Places { places: &places, contexts, intervals };
        let stacks = stack::trace(&mut report, &mut self.facts, &frame, &all);
        let name = |kind| self.facts.types.name(kind);
        let stacks = order.iter().zip(stacks).filter_map(|(id, stack)| Some((*id, stack?)));
        stacks.map(|(id, (depth, top))| (id, StackText { depth, top: top.into_iter().map(name).collect() })).collect()
    }

    /// Verifies a body and, if it was edited, sets its max stack to the exact need.
    ///
    /// # Errors
    /// All breaches that were found; the body is as it was.
    pub fn finish(&mut self, body: &mut Body, method: &MethodContext) -> Result<Verified, Vec<IlError>> {
        let verified = self.verify(body, method)?;
        if body.max_stack().is_none() {
            body.set_max_stack(verified.max_stack);
        }
        Ok(verified)
    }
}

/// Where the instructions and regions of a body are.
struct Places<'a> {
    /// The place of each instruction in the order, by its id.
    places: &'a [u32],
    contexts: regions::Contexts,
    intervals: Vec<Intervals>,
}

/// Collects breaches: each rule once an instruction.
struct Report<'b> {
    body: &'b Body,
    order: &'b [InsnId],
    errors: Vec<IlError>,
}

/// The highest number of reported breaches per body.
const MOST_ERRORS: usize = 1000;

impl Report<'_> {
    #[cold]
    fn add(&mut self, rule: Rule, place: Option<u32>, found: impl Into<String>, expected: impl Into<String>) {
        let id = place.and_then(|place| self.order.get(place as usize)).copied();
        let is_known = |error: &IlError| error.rule == rule && error.instruction == id && id.is_some();
        if self.errors.len() >= MOST_ERRORS || self.errors.iter().rev().take(64).any(is_known) {
            return;
        }
        self.errors.push(IlError {
            rule,
            instruction: id,
            region: None,
            offset: id.and_then(|id| self.body.origin(id)),
            index: place,
            text: id.map(|id| self.body.instruction_text(id)).unwrap_or_default(),
            found: found.into(),
            expected: expected.into(),
        });
    }

    #[cold]
    fn add_region(&mut self, rule: Rule, region: u32, found: impl Into<String>, expected: impl Into<String>) {
        let before = self.errors.len();
        let tried = self.body.region(RegionId(region)).map(|region| region.tried.first);
        self.add(rule, None, found, expected);
        if let Some(error) = self.errors.get_mut(before) {
            error.region = Some(RegionId(region));
            error.offset = tried.and_then(|first| self.body.origin(first));
        }
    }
}
