//! Protected regions: the tried code and its handler.

use super::{Body, InsnId};
use crate::token::Token;

/// The instructions from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The first instruction.
    pub first: InsnId,
    /// The last instruction, which is in the range.
    pub last: InsnId,
}

/// The kind of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionKind {
    /// It takes exceptions of this type.
    Catch(Token),
    /// It takes the exceptions for which its filter, which stands right before it, answers 1.
    Filter {
        /// The first instruction of the filter. The last one is right before the handler: see [`Body::part`].
        first: InsnId,
    },
    /// It runs whenever the tried code is left.
    Finally,
    /// It runs when an exception leaves the tried code.
    Fault,
}

impl RegionKind {
    /// Whether its handler begins with the exception on the stack.
    pub(crate) const fn takes_object(self) -> bool {
        matches!(self, Self::Catch(_) | Self::Filter { .. })
    }
}

/// A clause: code that is tried, and its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The kind of the handler.
    pub kind: RegionKind,
    /// The tried code.
    pub tried: Range,
    /// The handler.
    pub handler: Range,
    pub(crate) parent: Option<Parent>,
    /// The field of a finally or fault clause that means nothing.
    pub(crate) unused: u32,
}

impl Region {
    /// A region whose place among the others is found when it is added: see [`Body::add_region`].
    pub const fn new(kind: RegionKind, tried: Range, handler: Range) -> Self {
        Self { kind, tried, handler, parent: None, unused: 0 }
    }

    /// The region around this one, and the part of it; `None` for one at the top.
    pub const fn parent(&self) -> Option<Parent> {
        self.parent
    }
}

/// The most regions of a body whose nesting is worked out, and that the verifier takes: compilers write some dozens.
pub(crate) const MOST_REGIONS: usize = 4096;

/// Names a region of a body: its place in the table, which is inner before outer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub(crate) u32);

/// The part of a region that something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The tried code.
    Tried,
    /// The filter.
    Filter,
    /// The handler.
    Handler,
}

/// Where in the tree a region or an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parent {
    /// The region.
    pub region: RegionId,
    /// The part of it.
    pub part: Part,
}

/// The parts of a region as half-open intervals of places in the order of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    pub(crate) tried: (u32, u32),
    pub(crate) filter: Option<(u32, u32)>,
    pub(crate) handler: (u32, u32),
}

impl Intervals {
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Part, (u32, u32))> {
        let filter = self.filter.map(|filter| (Part::Filter, filter));
        [Some((Part::Tried, self.tried)), filter, Some((Part::Handler, self.handler))].into_iter().flatten()
    }

    /// From the first to the last place of any part.
    fn span(&self) -> (u32, u32) {
        let from = self.parts().map(|(_, part)| part.0).min().unwrap_or_default();
        let to = self.parts().map(|(_, part)| part.1).max().unwrap_or_default();
        (from, to)
    }
}

pub(crate) const fn holds(outer: (u32, u32), inner: (u32, u32)) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

/// The parent of each region: the smallest part that holds the region whole. Two clauses that try the same code are
/// siblings.
///
/// Of more than [`MOST_REGIONS`] regions it is not worked out: the verifier refuses them.
pub(crate) fn parents(all: &[Intervals]) -> Vec<Option<Parent>> {
    if all.len() > MOST_REGIONS {
        return vec![None; all.len()];
    }
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    let span = |at: u32| all.get(at as usize).map_or((0, 0), Intervals::span);
    // Parts as a forest of intervals: sorted by start, the longer first; a stack holds the open ones.
    order.sort_by_key(|at| (span(*at).0, std::cmp::Reverse(span(*at).1)));
    let mut parts: Vec<((u32, u32), Parent)> = Vec::with_capacity(all.len() * 2);
    for (at, region) in all.iter().enumerate() {
        parts.extend(region.parts().map(|(part, place)| (place, Parent { region: RegionId(at as u32), part })));
    }
    parts.sort_by_key(|(place, _)| (place.0, std::cmp::Reverse(place.1)));
    let mut result = vec![None; all.len()];
    let mut open: Vec<((u32, u32), Parent)> = Vec::new();
    let mut next = parts.into_iter().peekable();
    for at in order {
        let whole = span(at);
        while let Some(part) = next.next_if(|(place, _)| place.0 <= whole.0) {
            while open.last().is_some_and(|(place, _)| place.1 <= part.0.0) {
                open.pop();
            }
            open.push(part);
        }
        let around = open.iter().rev().find(|(place, parent)| parent.region.0 != at && holds(*place, whole));
        if let Some(slot) = result.get_mut(at as usize) {
            *slot = around.map(|(_, parent)| *parent);
        }
    }
    result
}

impl Body {
    /// The regions, in the order of the table: inner before outer.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The region with this name.
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.regions.get(id.0 as usize)
    }

    /// The names of all regions, in the order of the table.
    pub fn region_ids(&self) -> impl Iterator<Item = RegionId> + use<> {
        (0..self.regions.len() as u32).map(RegionId)
    }

    /// The regions right inside a region, or those at the top, in the order of the table.
    pub fn children(&self, of: Option<RegionId>) -> impl Iterator<Item = (RegionId, &Region)> {
        let all = self.region_ids().zip(&self.regions);
        all.filter(move |(_, region)| region.parent.map(|parent| parent.region) == of)
    }

    /// Where the parts of the regions are, given the place of each instruction by id.
    pub(crate) fn intervals(&self, places: &[u32]) -> Vec<Intervals> {
        let place = |id: InsnId| places.get(id.0 as usize).copied().unwrap_or_default();
        let interval = |range: Range| (place(range.first), place(range.last) + 1);
        let regions = self.regions.iter().map(|region| Intervals {
            tried: interval(region.tried),
            filter: match region.kind {
                RegionKind::Filter { first } => Some((place(first), place(region.handler.first))),
                _ => None,
            },
            handler: interval(region.handler),
        });
        regions.collect()
    }
}
