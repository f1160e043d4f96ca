//! Makes mutants of real bodies: one or two small changes, such as a rewriter with a bug would make.

use std::collections::HashMap;

use anyhow::{Context, Result};
use corprof_il::body::{Range, Region, RegionId, RegionKind};
use corprof_il::file::Assembly;
use corprof_il::token::{Table, Token};
use corprof_il::{Body, InsnId, Instruction, Opcode, Operand, OperandKind, Prefix};
use fastrand::Rng;

/// The parts of one assembly's bodies.
pub(super) struct Material {
    /// Instructions without targets, to insert elsewhere.
    donors: Vec<Instruction>,
    /// The tokens that instructions name, by their kind.
    pub(super) tokens: HashMap<OperandKind, Vec<Token>>,
    /// The signatures of local variables.
    pub(super) locals: Vec<Token>,
}

/// Changes bodies of one assembly; the same seed makes the same mutants.
pub(super) struct Mutator {
    random: Rng,
    material: Material,
}

/// A change of the bytes is made after all others.
const BYTES: usize = 0;

type Change = fn(&mut Mutator, &mut Body) -> Option<()>;

/// The changes, by the names in reports about holes in the verifier.
const CHANGES: [(&str, Change); 18] = [
    ("bytes", |_, _| Some(())),
    ("remove", Mutator::remove),
    ("insert", Mutator::insert),
    ("insert small", Mutator::insert_small),
    ("opcode", Mutator::opcode),
    ("token", Mutator::token),
    ("token of the same table", Mutator::token_of_table),
    ("swap", Mutator::swap),
    ("retarget", Mutator::retarget),
    ("branch", Mutator::branch),
    ("variable", Mutator::variable),
    ("prefix", Mutator::prefix),
    ("region kind", Mutator::region_kind),
    ("region range", Mutator::region_range),
    ("region removed", Mutator::region_removed),
    ("region added", Mutator::region_added),
    ("locals", Mutator::locals),
    ("max stack", Mutator::max_stack),
];

impl Material {
    pub(super) fn of(assembly: &Assembly) -> Self {
        let mut this = Self { donors: Vec::new(), tokens: HashMap::new(), locals: Vec::new() };
        for method in assembly.methods() {
            let Ok(Some(bytes)) = assembly.body_bytes(method) else { continue };
            let Ok((body, _)) = Body::parse_prefix(bytes) else { continue };
            this.locals.extend(body.locals());
            for (_, insn) in body.iter().filter(|(_, insn)| insn.targets().is_empty()) {
                this.donors.push(insn.clone());
                if let Some(token) = insn.token() {
                    this.tokens.entry(insn.opcode().operand()).or_default().push(token);
                }
            }
        }
        this
    }
}

impl Mutator {
    pub(super) fn new(assembly: &Assembly, seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), material: Material::of(assembly) }
    }

    /// A mutant of the body that these bytes begin with, and the change.
    ///
    /// # Errors
    /// If there is no such body.
    pub(super) fn mutate(&mut self, original: &[u8]) -> Result<(Body, String, bool)> {
        let (mut body, _) = Body::parse_prefix(original).context("the original cannot be parsed")?;
        let mut done = Vec::new();
        let mut changes_bytes = false;
        let count = if self.random.u8(..4) == 0 { 2 } else { 1 };
        while done.len() < count {
            let number = self.random.usize(..CHANGES.len());
            let Some((name, change)) = CHANGES.get(number) else { continue };
            if change(self, &mut body).is_some() {
                changes_bytes |= number == BYTES;
                done.push(*name);
            }
        }
        Ok((body, done.join(" and "), changes_bytes))
    }

    /// Changes bytes, more often those of the clauses than chance would.
    pub(super) fn bytes(&mut self, bytes: &mut [u8], has_regions: bool) {
        let length = bytes.len();
        let from = if has_regions && self.random.bool() { length.saturating_sub(24) } else { 0 };
        let at = self.random.usize(from..length);
        let other = self.random.usize(..length);
        let other = bytes.get(other).copied().unwrap_or_default();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = match self.random.u8(..4) {
                0 => *byte ^ (1 << self.random.u8(..8)),
                1 => other,
                2 => byte.wrapping_add(self.random.u8(..4)).wrapping_sub(2),
                _ => self.random.u8(..),
            };
        }
    }

    fn any(&mut self, body: &Body) -> Option<InsnId> {
        let count = body.count();
        (count > 0).then(|| body.iter().nth(self.random.usize(..count)).map(|(id, _)| id)).flatten()
    }

    /// One of the instructions for which `is` holds.
    fn one(&mut self, body: &Body, is: impl Fn(&Instruction) -> bool) -> Option<InsnId> {
        let all: Vec<InsnId> = body.iter().filter(|(_, insn)| is(insn)).map(|(id, _)| id).collect();
        self.random.choice(all)
    }

    fn remove(&mut self, body: &mut Body) -> Option<()> {
        let id = self.any(body)?;
        body.remove(id).ok().map(drop)
    }

    fn insert(&mut self, body: &mut Body) -> Option<()> {
        let donor = self.random.choice(&self.material.donors)?.clone();
        let id = self.any(body)?;
        body.before(id).ok()?.push(donor);
        Some(())
    }

    fn insert_small(&mut self, body: &mut Body) -> Option<()> {
        use Opcode as O;
        const SMALL: [Opcode; 26] = [
            O::Nop,
            O::Pop,
            O::Dup,
            O::Ldnull,
            O::Ldc_I4_0,
            O::Ret,
            O::Throw,
            O::Rethrow,
            O::Endfinally,
            O::Endfilter,
            O::Localloc,
            O::Add,
            O::Ceq,
            O::Conv_I,
            O::Conv_I8,
            O::Conv_R8,
            O::Ldlen,
            O::Ldind_I4,
            O::Ldind_Ref,
            O::Ldelem_Ref,
            O::Ldarg_0,
            O::Ldloc_0,
            O::Stloc_0,
            O::Arglist,
            O::Ldind_I,
            O::Stind_I4,
        ];
        let opcode = self.random.choice(SMALL)?;
        let id = self.any(body)?;
        body.before(id).ok()?.push(Instruction::new(opcode).ok()?);
        Some(())
    }

    /// Another opcode with the same operand.
    fn opcode(&mut self, body: &mut Body) -> Option<()> {
        let id = self.any(body)?;
        let insn = body.get(id)?.clone();
        let kind = insn.opcode().operand();
        let others: Vec<Opcode> = Opcode::ALL.iter().copied().filter(|opcode| opcode.operand() == kind).collect();
        let opcode = self.random.choice(others).filter(|opcode| *opcode != insn.opcode())?;
        let new = Instruction::with(opcode, insn.operand().clone()).ok()?.prefixed(insn.prefixes().iter().copied());
        body.replace(id, new).ok().map(drop)
    }

    fn replace_token(body: &mut Body, id: InsnId, token: Token) -> Option<()> {
        let insn = body.get(id)?.clone();
        if insn.token() == Some(token) {
            return None;
        }
        let new = Instruction::with(insn.opcode(), Operand::Token(token)).ok()?;
        body.replace(id, new.prefixed(insn.prefixes().iter().copied())).ok().map(drop)
    }

    /// Another token of those that such instructions have.
    fn token(&mut self, body: &mut Body) -> Option<()> {
        let id = self.one(body, |insn| insn.token().is_some())?;
        let kind = body.get(id)?.opcode().operand();
        let token = *self.random.choice(self.material.tokens.get(&kind)?)?;
        Self::replace_token(body, id, token)
    }

    /// A row nearby, or any token at all.
    fn token_of_table(&mut self, body: &mut Body) -> Option<()> {
        let id = self.one(body, |insn| insn.token().is_some())?;
        let old = body.get(id)?.token()?;
        let token = if self.random.u8(..4) == 0 {
            let kinds: Vec<OperandKind> = self.material.tokens.keys().copied().collect();
            let kind = self.random.choice(kinds)?;
            *self.random.choice(self.material.tokens.get(&kind)?)?
        } else {
            Token::from_raw(old.as_raw().wrapping_add(self.random.u32(..9)).wrapping_sub(4))
        };
        Self::replace_token(body, id, token)
    }

    fn swap(&mut self, body: &mut Body) -> Option<()> {
        let id = self.any(body)?;
        let next = body.next(id)?;
        let a = body.get(id)?.clone();
        let b = body.get(next)?.clone();
        if a == b {
            return None;
        }
        body.replace(id, b).ok()?;
        body.replace(next, a).ok().map(drop)
    }

    fn retarget(&mut self, body: &mut Body) -> Option<()> {
        let id = self.one(body, |insn| matches!(insn.operand(), Operand::Target(_)))?;
        let to = self.any(body)?;
        let label = body.label_at(to).ok()?;
        let insn = body.get(id)?.clone();
        body.replace(id, Instruction::with(insn.opcode(), Operand::Target(label)).ok()?).ok().map(drop)
    }

    fn branch(&mut self, body: &mut Body) -> Option<()> {
        use Opcode as O;
        let at = self.any(body)?;
        let to = self.any(body)?;
        let label = body.label_at(to).ok()?;
        let opcode = self.random.choice([O::Br, O::Leave, O::Brtrue, O::Brfalse, O::Beq])?;
        body.before(at).ok()?.push(Instruction::with(opcode, Operand::Target(label)).ok()?);
        Some(())
    }

    fn variable(&mut self, body: &mut Body) -> Option<()> {
        let number = u16::from(self.random.u8(..8));
        let is_variable = |insn: &Instruction| insn.as_ldarg().or(insn.as_ldloc()).or(insn.as_stloc()).is_some();
        let id = self.one(body, is_variable)?;
        let old = body.get(id)?;
        let new = match (old.as_ldarg(), old.as_ldloc()) {
            (Some(_), _) => [Instruction::ldarg(number), Instruction::starg(number), Instruction::ldarga(number)],
            (_, Some(_)) => [Instruction::ldloc(number), Instruction::stloc(number), Instruction::ldloca(number)],
            _ => [Instruction::stloc(number), Instruction::ldloc(number), Instruction::stloc(number)],
        };
        // Most often the same instruction with another number.
        let which = if self.random.u8(..4) > 0 { 0 } else { self.random.usize(..3) };
        body.replace(id, new.get(which)?.clone()).ok().map(drop)
    }

    fn prefix(&mut self, body: &mut Body) -> Option<()> {
        let has_token = |insn: &Instruction| insn.token().is_some() || !insn.prefixes().is_empty();
        let id = self.one(body, has_token)?;
        let insn = body.get(id)?.clone();
        let class = *self.random.choice(self.material.tokens.get(&OperandKind::Type)?)?;
        let prefix = self.random.choice([
            Prefix::Volatile,
            Prefix::Unaligned(1),
            Prefix::Tail,
            Prefix::Readonly,
            Prefix::Constrained(class),
        ])?;
        let mut prefixes = insn.prefixes().to_vec();
        if !prefixes.is_empty() && self.random.bool() {
            prefixes.pop();
        } else {
            prefixes.push(prefix);
        }
        body.replace(id, insn.prefixed(prefixes)).ok().map(drop)
    }

    fn region(&mut self, body: &Body) -> Option<(RegionId, Region)> {
        let id = self.random.choice(body.region_ids().collect::<Vec<_>>())?;
        Some((id, *body.region(id)?))
    }

    fn region_kind(&mut self, body: &mut Body) -> Option<()> {
        let (id, old) = self.region(body)?;
        let class = *self.random.choice(self.material.tokens.get(&OperandKind::Type)?)?;
        let kind = self.random.choice([RegionKind::Finally, RegionKind::Fault, RegionKind::Catch(class)])?;
        body.remove_region(id).ok()?;
        body.add_region(Region::new(kind, old.tried, old.handler)).ok().map(drop)
    }

    /// Moves one end of a region by a few instructions.
    fn region_range(&mut self, body: &mut Body) -> Option<()> {
        let (id, old) = self.region(body)?;
        let mut new = old;
        let end = match self.random.u8(..4) {
            0 => &mut new.tried.first,
            1 => &mut new.tried.last,
            2 => &mut new.handler.first,
            _ => &mut new.handler.last,
        };
        let forward = self.random.bool();
        for _ in 0..self.random.u8(1..4) {
            *end = if forward { body.next(*end)? } else { body.prev(*end)? };
        }
        body.remove_region(id).ok()?;
        if body.add_region(Region::new(new.kind, new.tried, new.handler)).is_err() {
            body.add_region(Region::new(old.kind, old.tried, old.handler)).ok()?;
            return None;
        }
        Some(())
    }

    fn region_removed(&mut self, body: &mut Body) -> Option<()> {
        let (id, _) = self.region(body)?;
        body.remove_region(id).ok().map(drop)
    }

    /// A handler somewhere for code somewhere; now and then one that can be sound: `try` to the end, and a handler
    /// there.
    fn region_added(&mut self, body: &mut Body) -> Option<()> {
        let order: Vec<InsnId> = body.iter().map(|(id, _)| id).collect();
        let mut places = [(); 4].map(|()| self.random.usize(..order.len()));
        places.sort_unstable();
        let [a, b, c, d] = places.map(|place| order.get(place).copied());
        let class = *self.random.choice(self.material.tokens.get(&OperandKind::Type)?)?;
        let kind = self.random.choice([RegionKind::Finally, RegionKind::Fault, RegionKind::Catch(class)])?;
        let mut tried = Range { first: a?, last: b? };
        let mut handler = Range { first: c?, last: d? };
        if self.random.bool() {
            let target = body.label_at(body.first()?).ok()?;
            tried = Range { first: *order.first()?, last: *order.last()? };
            let first = match kind {
                RegionKind::Catch(_) => Instruction::new(Opcode::Pop).ok()?,
                _ => Instruction::new(Opcode::Nop).ok()?,
            };
            let last = match kind {
                RegionKind::Catch(_) => Instruction::leave(target),
                _ => Instruction::new(Opcode::Endfinally).ok()?,
            };
            handler = Range { first: body.append(first), last: body.append(last) };
        }
        body.add_region(Region::new(kind, tried, handler)).ok().map(drop)
    }

    fn locals(&mut self, body: &mut Body) -> Option<()> {
        body.locals()?;
        let token = *self.random.choice(&self.material.locals)?;
        debug_assert_eq!(token.table(), Some(Table::StandAloneSignature));
        body.set_locals(Some(token));
        Some(())
    }

    fn max_stack(&mut self, body: &mut Body) -> Option<()> {
        let lower = body.max_stack()?.checked_sub(1)?;
        body.set_max_stack(lower);
        Some(())
    }
}
