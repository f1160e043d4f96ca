//! Regions are nested or apart, in order, and filters are where they must be.

use super::facts::Facts;
use super::resolve::Resolve;
use super::{Report, Rule};
use crate::body::{InsnId, Intervals, MOST_REGIONS, Part, RegionKind, holds};
use crate::opcode::Opcode;

/// A part of a region, as an instruction in it sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) region: u32,
    pub(super) part: Part,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) parent: Option<u32>,
    pub(super) kind: RegionKind,
}

/// The innermost part that each instruction is in.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    pub(super) all: Vec<Context>,
    /// By place; empty if there are no regions.
    at: Vec<Option<u32>>,
}

impl Contexts {
    #[inline]
    pub(super) fn at(&self, place: u32) -> Option<u32> {
        self.at.get(place as usize).copied().flatten()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Context> {
        self.all.get(number as usize)
    }

    /// This part and those around it, from the inside.
    pub(super) fn around(&self, from: Option<u32>) -> impl Iterator<Item = (u32, &Context)> {
        let up = |number: &u32| self.get(*number).and_then(|context| context.parent);
        std::iter::successors(from, up).filter_map(|number| self.get(number).map(|context| (number, context)))
    }
}

/// The parts that instructions are in, or nothing if the regions are not nested.
pub(super) fn check<R: Resolve + ?Sized>(
    report: &mut Report<'_>,
    facts: &mut Facts<'_, R>,
    all: &[Intervals],
    order: &[InsnId],
) -> Option<Contexts> {
    if all.is_empty() {
        return Some(Contexts::default());
    }
    if all.len() > MOST_REGIONS {
        report.add(Rule::TooComplex, None, format!("{} regions", all.len()), format!("at most {MOST_REGIONS}"));
        return None;
    }
    let before = report.errors.len();
    for (number, region) in all.iter().enumerate() {
        one(report, facts, number as u32, region, order);
    }
    let kinds: Vec<RegionKind> = report.body.regions().iter().map(|region| region.kind).collect();
    let is_alone = |number: usize| kinds.get(number).is_some_and(|kind| !kind.takes_object());
    for (later, b) in all.iter().enumerate() {
        for (earlier, a) in all.iter().enumerate().take(later) {
            pair(report, (earlier as u32, a), (later as u32, b));
            if a.tried == b.tried && (is_alone(earlier) || is_alone(later)) {
                let expected = "one with a try of its own, around the others";
                report.add_region(Rule::SharedTry, later as u32, "a finally or fault handler beside another", expected);
            }
        }
    }
    let is_bad = |rule| matches!(rule, Rule::BadRegion | Rule::RegionNotNested | Rule::RegionOrder);
    if report.errors.iter().skip(before).any(|error| is_bad(error.rule)) {
        return None;
    }
    Some(contexts(report, all, order))
}

fn one<R: Resolve + ?Sized>(
    report: &mut Report<'_>,
    facts: &mut Facts<'_, R>,
    number: u32,
    region: &Intervals,
    order: &[InsnId],
) {
    if region.parts().any(|(_, (from, to))| from >= to || to as usize > order.len()) {
        report.add_region(Rule::BadRegion, number, "a part that ends before it begins", "ranges of instructions");
        return;
    }
    let t = region.tried;
    let h = region.handler;
    if t.0 < h.1 && h.0 < t.1 {
        report.add_region(Rule::RegionNotNested, number, "a handler in its own tried code", "parts that lie apart");
    }
    if let Some(f) = region.filter {
        if t.0 < f.1 && f.0 < t.1 {
            report.add_region(Rule::RegionNotNested, number, "a filter in its own tried code", "parts that lie apart");
        }
        let last = f.1.checked_sub(1).and_then(|last| order.get(last as usize));
        if last.and_then(|id| report.body.get(*id)).is_none_or(|insn| insn.opcode() != Opcode::Endfilter) {
            report.add_region(Rule::FilterEnd, number, "another last instruction of the filter", "endfilter");
        }
    }
    match report.body.regions().get(number as usize).map(|region| region.kind) {
        Some(RegionKind::Catch(token)) if !facts.is_class(token) => {
            report.add_region(Rule::CatchType, number, token.to_string(), "a token of a type");
        }
        _ => {}
    }
}

/// Two regions, the first of which is earlier in the table.
fn pair(report: &mut Report<'_>, (earlier, a): (u32, &Intervals), (later, b): (u32, &Intervals)) {
    let whole = |region: &Intervals, outer: (u32, u32)| region.parts().all(|(_, part)| holds(outer, part));
    // Several handlers of the same tried code.
    if a.tried == b.tried {
        let overlap = a.parts().skip(1).any(|(_, x)| b.parts().skip(1).any(|(_, y)| x.0 < y.1 && y.0 < x.1));
        if overlap {
            report.add_region(Rule::RegionNotNested, later, "handlers that share code", "handlers that lie apart");
        }
        return;
    }
    for (part, y) in b.parts() {
        for (_, x) in a.parts() {
            if x.1 <= y.0 || y.1 <= x.0 {
                continue;
            }
            if whole(a, y) && part == Part::Filter {
                report.add_region(Rule::RegionInFilter, earlier, "a region in a filter", "none");
                return;
            }
            if whole(a, y) {
                continue;
            }
            if whole(b, x) {
                report.add_region(Rule::RegionOrder, later, "a region inside an earlier one", "inner regions first");
            } else {
                report.add_region(
                    Rule::RegionNotNested,
                    later,
                    "a part that lies partly in another region",
                    "one that \
                     lies in it whole, or apart",
                );
            }
            return;
        }
    }
}

fn contexts(report: &mut Report<'_>, all: &[Intervals], order: &[InsnId]) -> Contexts {
    let kinds: Vec<RegionKind> = report.body.regions().iter().map(|region| region.kind).collect();
    let mut parts: Vec<Context> = Vec::new();
    for (number, region) in all.iter().enumerate() {
        let Some(kind) = kinds.get(number).copied() else { continue };
        for (part, (start, end)) in region.parts() {
            // Of several handlers of the same code, the tried code is one part.
            let is_same =
                |other: &Context| part == Part::Tried && (other.part, other.start, other.end) == (part, start, end);
            if !parts.iter().any(is_same) {
                parts.push(Context { region: number as u32, part, start, end, parent: None, kind });
            }
        }
    }
    parts.sort_by_key(|part| (part.start, std::cmp::Reverse(part.end), std::cmp::Reverse(part.region)));
    let mut at = vec![None; order.len()];
    let mut open: Vec<u32> = Vec::new();
    let ends: Vec<(u32, u32)> = parts.iter().map(|part| (part.start, part.end)).collect();
    let mut next = 0;
    for (place, slot) in at.iter_mut().enumerate() {
        let place = place as u32;
        while open.last().is_some_and(|last| ends.get(*last as usize).is_some_and(|end| end.1 <= place)) {
            open.pop();
        }
        while let Some(part) = parts.get_mut(next).filter(|part| part.start == place) {
            part.parent = open.last().copied();
            open.push(next as u32);
            next += 1;
        }
        *slot = open.last().copied();
    }
    Contexts { all: parts, at }
}
