//! Inserts instructions, by the one rule: inserted code belongs where the instruction is that it was inserted before.

use super::{Body, EditError, InsnId, Instruction, Label, Operand, RegionId, WrongOperand};
use crate::opcode::Opcode;
use crate::token::Token;

/// Inserts instructions one after another at a place of a [`Body`].
///
/// Made by [`Body::before`], [`Body::after`] and [`Body::outside`].
#[derive(Debug)]
pub struct Insert<'a> {
    body: &'a mut Body,
    place: Place,
    last: Option<InsnId>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Before { id: InsnId, retargets: bool },
    After(InsnId),
    Outside(RegionId, InsnId),
}

impl Body {
    /// Inserts before an instruction: branches to it run the inserted code, and the regions that cover the instruction
    /// cover it. The other choices are named: [`Insert::without_retargeting`], [`Body::outside`].
    ///
    /// # Errors
    /// If the instruction is not in this body.
    pub fn before(&mut self, id: InsnId) -> Result<Insert<'_>, EditError> {
        self.get(id).ok_or(EditError::NoSuchInstruction(id))?;
        Ok(Insert { body: self, place: Place::Before { id, retargets: true }, last: None })
    }

    /// Inserts after an instruction: only a path that ran that instruction and went on runs the inserted code, and the
    /// regions that cover the instruction cover it.
    ///
    /// # Errors
    /// If the instruction is not in this body.
    pub fn after(&mut self, id: InsnId) -> Result<Insert<'_>, EditError> {
        self.get(id).ok_or(EditError::NoSuchInstruction(id))?;
        Ok(Insert { body: self, place: Place::After(id), last: None })
    }

    /// Inserts before the tried code of a region, and not in it: paths that enter the tried code from outside run the
    /// inserted code; branches back to its beginning from inside do not.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn outside(&mut self, region: RegionId) -> Result<Insert<'_>, EditError> {
        let first = self.region(region).ok_or(EditError::NoSuchRegion(region))?.tried.first;
        Ok(Insert { body: self, place: Place::Outside(region, first), last: None })
    }
}

impl Insert<'_> {
    /// Branches to the instruction skip the inserted code; only the path that falls through runs it.
    #[must_use]
    pub fn without_retargeting(mut self) -> Self {
        if let Place::Before { id, .. } = self.place {
            self.place = Place::Before { id, retargets: false };
        }
        self
    }

    /// Inserts an instruction after those inserted so far.
    pub fn push(mut self, insn: Instruction) -> Self {
        self.add(insn);
        self
    }

    /// Inserts an instruction after those inserted so far, and says its name.
    pub fn add(&mut self, insn: Instruction) -> InsnId {
        // The place was checked when this was made, and the body is borrowed since: it is still there.
        let linked = match (self.last, self.place) {
            (Some(last), _) => {
                let id = self.body.link_after(last, insn);
                if let (Ok(id), Place::After(_)) = (id, self.place) {
                    self.body.move_ends(last, id);
                }
                id
            }
            (None, Place::Before { id, retargets }) => self.body.link_before(id, insn).inspect(|new| {
                if retargets {
                    self.body.move_labels(id, *new);
                }
                self.body.move_starts(id, *new, |_| false);
            }),
            (None, Place::After(id)) => self.body.link_after(id, insn).inspect(|new| self.body.move_ends(id, *new)),
            (None, Place::Outside(region, id)) => {
                self.body.link_before(id, insn).inspect(|new| self.body.enter_from_outside(region, id, *new))
            }
        };
        let id = linked.unwrap_or(InsnId(super::NONE));
        self.last = Some(id);
        id
    }

    /// The last instruction that was inserted.
    pub const fn inserted(&self) -> Option<InsnId> {
        self.last
    }

    /// Inserts an instruction without an operand.
    ///
    /// # Errors
    /// If the opcode takes an operand.
    pub fn op(self, opcode: Opcode) -> Result<Self, WrongOperand> {
        Ok(self.push(Instruction::new(opcode)?))
    }

    /// Inserts an instruction with an operand.
    ///
    /// # Errors
    /// If the opcode does not take it.
    pub fn with(self, opcode: Opcode, operand: Operand) -> Result<Self, WrongOperand> {
        Ok(self.push(Instruction::with(opcode, operand)?))
    }

    /// Loads an argument.
    pub fn ldarg(self, number: u16) -> Self {
        self.push(Instruction::ldarg(number))
    }

    /// Loads a local variable.
    pub fn ldloc(self, number: u16) -> Self {
        self.push(Instruction::ldloc(number))
    }

    /// Stores to a local variable.
    pub fn stloc(self, number: u16) -> Self {
        self.push(Instruction::stloc(number))
    }

    /// Loads a 32-bit number.
    pub fn ldc_i4(self, number: i32) -> Self {
        self.push(Instruction::ldc_i4(number))
    }

    /// Loads a 64-bit number.
    pub fn ldc_i8(self, number: i64) -> Self {
        self.push(Instruction::ldc_i8(number))
    }

    /// Loads a literal string.
    pub fn ldstr(self, string: impl Into<Token>) -> Self {
        self.push(Instruction::ldstr(string))
    }

    /// Calls a method, not virtually.
    pub fn call(self, method: impl Into<Token>) -> Self {
        self.push(Instruction::call(method))
    }

    /// Calls a function by its address, which is on the stack.
    pub fn calli(self, signature: impl Into<Token>) -> Self {
        self.push(Instruction::calli(signature))
    }

    /// Goes to a label.
    pub fn br(self, target: Label) -> Self {
        self.push(Instruction::br(target))
    }
}

impl Body {
    /// Redirects branches from outside of the region's tried code to `old`, its first instruction: they go to `new`.
    fn enter_from_outside(&mut self, region: RegionId, old: InsnId, new: InsnId) {
        let Some(tried) = self.region(region).map(|region| region.tried) else { return };
        let (_, places) = self.in_order();
        let place = |id: InsnId| places.get(id.0 as usize).copied().unwrap_or_default();
        let from = place(old);
        let to = place(tried.last);
        let is_inside = |id: InsnId| (from..=to).contains(&place(id));
        // Branches from inside get a label of their own, which stays.
        self.move_labels(old, new);
        let inside: Vec<InsnId> = self.iter().map(|(id, _)| id).filter(|id| is_inside(*id)).collect();
        let moved = |body: &Self, label: Label| body.target(label) == Some(new);
        let comes_back =
            |body: &Self, id: &InsnId| body.get(*id).is_some_and(|i| i.targets().iter().any(|l| moved(body, *l)));
        if inside.iter().any(|id| comes_back(self, id)) {
            let label = self.new_label();
            // Both are of this body.
            let _ = self.place(label, old);
            for id in inside.into_iter().filter(|id| comes_back(self, id)).collect::<Vec<_>>() {
                let moved: Vec<bool> =
                    self.get(id).map(|i| i.targets().iter().map(|l| moved(self, *l)).collect()).unwrap_or_default();
                if let Some(node) = self.node_mut(id) {
                    let targets = node.insn.targets_mut().iter_mut().zip(moved);
                    targets.filter(|(_, moved)| *moved).for_each(|(target, _)| *target = label);
                }
            }
        }
        // Regions around this one that began here begin with the new code; this one and those inside it do not.
        let holds_region = |other: &super::Region| {
            other.tried.first == old && place(other.tried.last) <= to && other.handler.first != old
        };
        self.move_starts(old, new, holds_region);
    }
}
