//! Changes a body: instructions come, go and are replaced, regions are added and removed.

use super::region::{holds, parents};
use super::{Body, InsnId, Instruction, Label, LabelEntry, NONE, Node, Part, Range, Region, RegionId, RegionKind};
use crate::opcode::Opcode;

/// A change that was refused; the body is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// An instruction that was removed, or is of another body.
    #[error("instruction {} is not in this body", .0.0)]
    NoSuchInstruction(InsnId),
    /// A region that is not there.
    #[error("region {} is not in this body", .0.0)]
    NoSuchRegion(RegionId),
    /// A label of another body.
    #[error("label {} is not of this body", .0.0)]
    NoSuchLabel(Label),
    /// The instruction is all that a part of a region has: remove the region first.
    #[error("region {} would have an empty part", .0.0)]
    EmptyRegion(RegionId),
    /// The instruction is the last one, and branches go to it or nothing is left.
    #[error("instruction {} is the last one, and needed", .0.0)]
    NeededAtEnd(InsnId),
    /// A range that ends before it begins, or a filter that does not stand right before its handler.
    #[error("a part of the region is not a range of instructions")]
    BadRange,
    /// A region of this kind has no such part: only one with a filter has [`Part::Filter`](super::Part::Filter).
    #[error("region {} has no filter", .0.0)]
    NoSuchPart(RegionId, Part),
    /// A region that lies partly in another one.
    #[error("the region would lie partly in region {}", .0.0)]
    NotNested(RegionId),
    /// The body is to be tried whole, or code is to run before it returns, and it has a `tail.` call, which no region
    /// may have and after which nothing of the body runs: see [`Body::drop_tail_calls`].
    #[error("instruction {} is a `tail.` call, which cannot be in a region and ends the method", .0.0)]
    TailCall(InsnId),
    /// The same with a `jmp`.
    #[error("instruction {} is a `jmp`, which cannot be in a region and ends the method", .0.0)]
    Jmp(InsnId),
    /// The body has no instructions.
    #[error("the body has no code")]
    Empty,
}

impl Body {
    pub(super) fn mark_boundaries(&mut self) {
        for region in &self.regions {
            let filter = match region.kind {
                RegionKind::Filter { first } => Some(first),
                _ => None,
            };
            let ends = [region.tried.first, region.tried.last, region.handler.first, region.handler.last];
            for id in ends.into_iter().chain(filter) {
                if let Some(node) = self.nodes.get_mut(id.0 as usize) {
                    node.is_boundary = true;
                }
            }
        }
    }

    pub(super) const fn edited(&mut self) {
        self.max_stack = None;
    }

    /// The label of an instruction: the one that its branches have, or a new one.
    ///
    /// # Errors
    /// If the instruction is not in this body.
    pub fn label_at(&mut self, id: InsnId) -> Result<Label, EditError> {
        let new = self.labels.len() as u32;
        let node = self.node_mut(id).ok_or(EditError::NoSuchInstruction(id))?;
        if node.label != NONE {
            return Ok(Label(node.label));
        }
        node.label = new;
        self.labels.push(LabelEntry { insn: id.0, next: NONE });
        Ok(Label(new))
    }

    /// A label that has no place yet; it is given one by [`Body::place`].
    pub fn new_label(&mut self) -> Label {
        self.labels.push(LabelEntry { insn: NONE, next: NONE });
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts a label at an instruction, from wherever it was.
    ///
    /// # Errors
    /// If one of them is not of this body.
    pub fn place(&mut self, label: Label, id: InsnId) -> Result<(), EditError> {
        let entry = *self.labels.get(label.0 as usize).ok_or(EditError::NoSuchLabel(label))?;
        let old = self.node(id).ok_or(EditError::NoSuchInstruction(id))?.label;
        if entry.insn == id.0 {
            return Ok(());
        }
        self.unlink_label(label, entry);
        if let Some(node) = self.node_mut(id) {
            node.label = label.0;
        }
        self.set_label(label, LabelEntry { insn: id.0, next: old });
        Ok(())
    }

    fn set_label(&mut self, label: Label, entry: LabelEntry) {
        if let Some(slot) = self.labels.get_mut(label.0 as usize) {
            *slot = entry;
        }
    }

    /// Takes a label out of the list of those at its instruction.
    fn unlink_label(&mut self, label: Label, entry: LabelEntry) {
        let Some(node) = self.nodes.get_mut(entry.insn as usize) else { return };
        if node.label == label.0 {
            node.label = entry.next;
            return;
        }
        let mut at = node.label;
        while let Some(other) = self.labels.get_mut(at as usize) {
            if other.next == label.0 {
                other.next = entry.next;
                return;
            }
            at = other.next;
        }
    }

    /// Moves all labels of one instruction to another.
    pub(super) fn move_labels(&mut self, from: InsnId, to: InsnId) {
        let Some(node) = self.nodes.get_mut(from.0 as usize) else { return };
        let first = std::mem::replace(&mut node.label, NONE);
        let mut at = first;
        let mut last = NONE;
        while let Some(entry) = self.labels.get_mut(at as usize) {
            entry.insn = to.0;
            last = at;
            at = entry.next;
        }
        let Some(node) = self.nodes.get_mut(to.0 as usize).filter(|_| last != NONE) else { return };
        let old = std::mem::replace(&mut node.label, first);
        if let Some(entry) = self.labels.get_mut(last as usize) {
            entry.next = old;
        }
    }

    fn new_node(&mut self, insn: Instruction, prev: u32, next: u32) -> InsnId {
        let id = self.nodes.len() as u32;
        let node = Node { insn, prev, next, origin: NONE, label: NONE, is_boundary: false, is_removed: false };
        self.nodes.push(node);
        match self.nodes.get_mut(prev as usize) {
            Some(prev) => prev.next = id,
            None => self.first = id,
        }
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.prev = id,
            None => self.last = id,
        }
        self.edited();
        InsnId(id)
    }

    /// Adds an instruction at the end, outside of all regions.
    pub fn append(&mut self, insn: Instruction) -> InsnId {
        self.new_node(insn, self.last, NONE)
    }

    /// Links an instruction in before another one, and nothing else.
    pub(super) fn link_before(&mut self, id: InsnId, insn: Instruction) -> Result<InsnId, EditError> {
        let prev = self.node(id).ok_or(EditError::NoSuchInstruction(id))?.prev;
        Ok(self.new_node(insn, prev, id.0))
    }

    pub(super) fn link_after(&mut self, id: InsnId, insn: Instruction) -> Result<InsnId, EditError> {
        let next = self.node(id).ok_or(EditError::NoSuchInstruction(id))?.next;
        Ok(self.new_node(insn, id.0, next))
    }

    /// Has the regions that begin with `from` begin with `to`, but for those that `keep` names.
    pub(super) fn move_starts(&mut self, from: InsnId, to: InsnId, keep: impl Fn(&Region) -> bool) {
        if !self.nodes.get(from.0 as usize).is_some_and(|node| node.is_boundary) {
            return;
        }
        for region in &mut self.regions {
            if keep(region) {
                continue;
            }
            let filter = match &mut region.kind {
                RegionKind::Filter { first } => Some(first),
                _ => None,
            };
            for first in [&mut region.tried.first, &mut region.handler.first].into_iter().chain(filter) {
                if *first == from {
                    *first = to;
                }
            }
        }
        self.mark_boundaries();
    }

    pub(super) fn move_ends(&mut self, from: InsnId, to: InsnId) {
        if !self.nodes.get(from.0 as usize).is_some_and(|node| node.is_boundary) {
            return;
        }
        for region in &mut self.regions {
            for last in [&mut region.tried.last, &mut region.handler.last] {
                if *last == from {
                    *last = to;
                }
            }
        }
        self.mark_boundaries();
    }

    /// Puts another instruction in the place of this one: its name, labels and regions stay. So does the
    /// [`max_stack`](Self::max_stack), if only the operand differs and is neither a method nor a place to go to.
    ///
    /// # Errors
    /// If the instruction is not in this body.
    pub fn replace(&mut self, id: InsnId, insn: Instruction) -> Result<Instruction, EditError> {
        let node = self.node_mut(id).ok_or(EditError::NoSuchInstruction(id))?;
        let opcode = insn.opcode();
        let old = std::mem::replace(&mut node.insn, insn);
        let is_call = matches!(opcode, Opcode::Call | Opcode::Callvirt | Opcode::Calli | Opcode::Newobj);
        let goes_elsewhere = opcode.is_branch() || opcode.is_leave() || opcode == Opcode::Switch;
        if opcode != old.opcode() || is_call || goes_elsewhere {
            self.edited();
        }
        Ok(old)
    }

    /// Removes an instruction. Branches to it go to the next one; regions that began with it begin with the next one.
    ///
    /// # Errors
    /// If it is all that a part of a region has, or the last instruction and branches go to it.
    pub fn remove(&mut self, id: InsnId) -> Result<Instruction, EditError> {
        let node = self.node(id).ok_or(EditError::NoSuchInstruction(id))?;
        let prev = node.prev;
        let next = node.next;
        let has_label = node.label != NONE;
        if next == NONE && (has_label || prev == NONE) {
            return Err(EditError::NeededAtEnd(id));
        }
        for (number, region) in self.regions.iter().enumerate() {
            let is_filter = matches!(region.kind, RegionKind::Filter { first }
                if first == id && self.next(id) == Some(region.handler.first));
            let is_whole = [region.tried, region.handler].iter().any(|part| part.first == id && part.last == id);
            if is_filter || is_whole {
                return Err(EditError::EmptyRegion(RegionId(number as u32)));
            }
        }
        if next != NONE {
            self.move_labels(id, InsnId(next));
            self.move_starts(id, InsnId(next), |_| false);
        }
        if prev != NONE {
            self.move_ends(id, InsnId(prev));
        }
        match self.nodes.get_mut(prev as usize) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.prev = prev,
            None => self.last = prev,
        }
        self.edited();
        let nop = Instruction::plain(crate::opcode::Opcode::Nop, super::Operand::None);
        let node = self.nodes.get_mut(id.0 as usize).ok_or(EditError::NoSuchInstruction(id))?;
        node.is_removed = true;
        Ok(std::mem::replace(&mut node.insn, nop))
    }

    /// Adds a region at its place in the table: before the regions around it, after those inside it and those that try
    /// the same code.
    ///
    /// # Errors
    /// If its parts are not ranges, or lie partly in another region.
    pub fn add_region(&mut self, region: Region) -> Result<RegionId, EditError> {
        let (_, places) = self.in_order();
        let filter = match region.kind {
            RegionKind::Filter { first } => Some(first),
            _ => None,
        };
        let ends = [region.tried.first, region.tried.last, region.handler.first, region.handler.last];
        for id in ends.into_iter().chain(filter) {
            self.node(id).ok_or(EditError::NoSuchInstruction(id))?;
        }
        self.regions.push(region);
        let intervals = self.intervals(&places);
        self.regions.pop();
        let Some((new, others)) = intervals.split_last() else { return Err(EditError::BadRange) };
        if new.parts().any(|(_, (from, to))| from >= to) {
            return Err(EditError::BadRange);
        }
        for (number, other) in others.iter().enumerate() {
            for (_, a) in new.parts() {
                for (_, b) in other.parts() {
                    let is_apart = a.1 <= b.0 || b.1 <= a.0;
                    if !(is_apart || holds(a, b) || holds(b, a)) {
                        return Err(EditError::NotNested(RegionId(number as u32)));
                    }
                }
            }
        }
        // The parents say which regions are around the new one: the first of them in the table comes after it.
        let parents = parents(&intervals);
        let mut around = Vec::new();
        let mut at = parents.last().copied().flatten();
        while let Some(parent) = at.filter(|parent| !around.contains(&parent.region.0)) {
            around.push(parent.region.0);
            at = parents.get(parent.region.0 as usize).copied().flatten();
        }
        let place = around.into_iter().min().map_or(self.regions.len(), |first| first as usize);
        self.regions.insert(place, Region { parent: None, ..region });
        self.edited();
        self.mark_boundaries();
        self.find_parents();
        Ok(RegionId(place as u32))
    }

    /// Removes a region; its instructions stay. The names of the regions after it change.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn remove_region(&mut self, id: RegionId) -> Result<Region, EditError> {
        if id.0 as usize >= self.regions.len() {
            return Err(EditError::NoSuchRegion(id));
        }
        let region = self.regions.remove(id.0 as usize);
        self.edited();
        self.find_parents();
        Ok(region)
    }

    /// All instructions from one to another one, both included.
    pub const fn range(first: InsnId, last: InsnId) -> Range {
        Range { first, last }
    }
}
