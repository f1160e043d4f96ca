//! A method body as a list of instructions and a tree of regions.
//!
//! `parse` makes it of bytes and `encode` writes it; `instruction`, `region` and `layout` are its parts, `edit` and
//! `insert` change it, `places` finds where it ends, `wrap` tries all of it.

mod edit;
mod encode;
mod insert;
mod instruction;
mod layout;
mod parse;
mod places;
mod region;
#[cfg(test)]
mod tests;
mod wrap;

pub use edit::EditError;
pub use encode::{EncodeError, Encoded};
pub use insert::Insert;
pub use instruction::{InsnId, Instruction, Label, Operand, Prefix, WrongOperand};
pub use parse::{ParseError, ParseProblem};
pub use region::{Parent, Part, Range, Region, RegionId, RegionKind};
pub use wrap::Wrap;

pub(crate) use region::{Intervals, MOST_REGIONS, holds};

use crate::token::Token;
use layout::Layout;

/// Stands for "none" where an id or an offset is kept in 32 bits.
pub(crate) const NONE: u32 = u32::MAX;

/// An instruction in the arena, with its neighbours.
#[derive(Clone, Debug)]
struct Node {
    insn: Instruction,
    prev: u32,
    next: u32,
    /// The offset in the code that was parsed.
    origin: u32,
    /// The first of the labels at it; the others follow from label to label.
    label: u32,
    /// Whether a region begins or ends with it.
    is_boundary: bool,
    is_removed: bool,
}

#[derive(Clone, Copy, Debug)]
struct LabelEntry {
    insn: u32,
    /// The next label of the same instruction.
    next: u32,
}

/// A method body: instructions in order, regions, and the data of the header.
///
/// Instructions lie in an arena and are named by [`InsnId`]s, which stay good and are never used again. Branches go to
/// [`Label`]s, which belong to instructions.
#[derive(Clone, Debug)]
pub struct Body {
    nodes: Vec<Node>,
    first: u32,
    last: u32,
    labels: Vec<LabelEntry>,
    regions: Vec<Region>,
    layout: Layout,
    locals: Option<Token>,
    init_locals: bool,
    max_stack: Option<u16>,
}

impl Default for Body {
    fn default() -> Self {
        Self::new()
    }
}

impl Body {
    /// A body without instructions, to which some are [added](Body::append). Its header is as small as can be.
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            first: NONE,
            last: NONE,
            labels: Vec::new(),
            regions: Vec::new(),
            layout: Layout::default(),
            locals: None,
            init_locals: false,
            max_stack: None,
        }
    }

    fn node(&self, id: InsnId) -> Option<&Node> {
        self.nodes.get(id.0 as usize).filter(|node| !node.is_removed)
    }

    fn node_mut(&mut self, id: InsnId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize).filter(|node| !node.is_removed)
    }

    /// The instruction with this name; `None` once it was removed.
    #[inline]
    pub fn get(&self, id: InsnId) -> Option<&Instruction> {
        self.node(id).map(|node| &node.insn)
    }

    /// The first instruction.
    pub fn first(&self) -> Option<InsnId> {
        (self.first != NONE).then_some(InsnId(self.first))
    }

    /// The last instruction.
    pub fn last(&self) -> Option<InsnId> {
        (self.last != NONE).then_some(InsnId(self.last))
    }

    /// The instruction after this one.
    pub fn next(&self, id: InsnId) -> Option<InsnId> {
        self.node(id).map(|node| node.next).filter(|next| *next != NONE).map(InsnId)
    }

    /// The instruction before this one.
    pub fn prev(&self, id: InsnId) -> Option<InsnId> {
        self.node(id).map(|node| node.prev).filter(|prev| *prev != NONE).map(InsnId)
    }

    /// All instructions, in order.
    pub fn iter(&self) -> impl Iterator<Item = (InsnId, &Instruction)> {
        std::iter::successors(self.first(), |id| self.next(*id)).filter_map(|id| self.get(id).map(|insn| (id, insn)))
    }

    /// How many instructions there are, counted one by one.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// Where the instruction was in the code that was parsed; `None` for one that was inserted.
    pub fn origin(&self, id: InsnId) -> Option<u32> {
        self.node(id).map(|node| node.origin).filter(|origin| *origin != NONE)
    }

    /// The instruction that was at this offset in the code that was parsed.
    pub fn at_origin(&self, offset: u32) -> Option<InsnId> {
        let at = self.nodes.iter().position(|node| node.origin == offset && !node.is_removed)?;
        Some(InsnId(at as u32))
    }

    /// The instruction that a label belongs to; `None` for a label of another body, or one without a place yet.
    #[inline]
    pub fn target(&self, label: Label) -> Option<InsnId> {
        let entry = self.labels.get(label.0 as usize)?;
        (entry.insn != NONE).then_some(InsnId(entry.insn))
    }

    /// Whether branches may go to this instruction.
    pub fn is_target(&self, id: InsnId) -> bool {
        self.node(id).is_some_and(|node| node.label != NONE)
    }

    pub(crate) const fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// Whether several paths may come to an instruction: it is a target, or a region begins with it.
    #[inline]
    pub(crate) fn is_join(&self, id: InsnId) -> bool {
        self.nodes.get(id.0 as usize).is_some_and(|node| node.label != NONE || node.is_boundary)
    }

    /// The token of the signature of the local variables; `None` if there are none.
    pub const fn locals(&self) -> Option<Token> {
        self.locals
    }

    /// Sets the token of the signature of the local variables.
    pub fn set_locals(&mut self, locals: Option<Token>) {
        self.locals = locals;
    }

    /// Whether local variables and `localloc` memory are set to zero.
    pub const fn init_locals(&self) -> bool {
        self.init_locals
    }

    /// Sets whether local variables and `localloc` memory are set to zero.
    pub fn set_init_locals(&mut self, init: bool) {
        self.init_locals = init;
    }

    /// The most values that are ever on the stack, as the header says; `None` after an edit, until it is
    /// [computed](crate::verify::Verifier::finish) or [set](Body::set_max_stack).
    pub const fn max_stack(&self) -> Option<u16> {
        self.max_stack
    }

    /// Says how many values are on the stack at most.
    pub fn set_max_stack(&mut self, values: u16) {
        self.max_stack = Some(values);
    }

    /// The instructions in order, and the place of each in that order by its id.
    pub(crate) fn in_order(&self) -> (Vec<InsnId>, Vec<u32>) {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut places = vec![NONE; self.nodes.len()];
        let mut at = self.first;
        while let Some(node) = self.nodes.get(at as usize) {
            if let Some(place) = places.get_mut(at as usize) {
                *place = order.len() as u32;
            }
            order.push(InsnId(at));
            at = node.next;
        }
        (order, places)
    }
}
