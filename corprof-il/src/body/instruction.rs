//! One instruction: opcode, operand and the prefixes that belong to it.

use crate::opcode::{Opcode, OperandKind};
use crate::token::Token;

/// Names an instruction of one [`Body`](super::Body); it stays good however much is inserted, and is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsnId(pub(crate) u32);

/// A place that branches go to. It belongs to an instruction, and moves to code that is inserted before that
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub(crate) u32);

/// The operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operand {
    /// Nothing.
    None,
    /// A number in one signed byte: of `ldc.i4.s`.
    Int8(i8),
    /// A number in four bytes: of `ldc.i4`.
    Int32(i32),
    /// A number in eight bytes: of `ldc.i8`.
    Int64(i64),
    /// The bits of a floating-point number: of `ldc.r4`.
    Float32(u32),
    /// The bits of a floating-point number: of `ldc.r8`.
    Float64(u64),
    /// The number of a local variable or an argument; at most 255 in a short form.
    Variable(u16),
    /// Where a branch goes.
    Target(Label),
    /// Where `switch` goes, by number.
    Targets(Box<[Label]>),
    /// A token.
    Token(Token),
}

/// A prefix: it modifies its instruction, and nothing can come between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// `unaligned.`: the address may be a multiple of this only (1, 2 or 4).
    Unaligned(u8),
    /// `volatile.`: the access is not moved nor left out.
    Volatile,
    /// `tail.`: the frame goes before the call.
    Tail,
    /// `constrained.`: the type on which a virtual method is called by address.
    Constrained(Token),
    /// `no.`: checks that need not be made. No runtime knows it.
    No(u8),
    /// `readonly.`: the address is not written to.
    Readonly,
}

impl Prefix {
    /// Its opcode.
    pub const fn opcode(self) -> Opcode {
        match self {
            Self::Unaligned(_) => Opcode::Unaligned,
            Self::Volatile => Opcode::Volatile,
            Self::Tail => Opcode::Tail,
            Self::Constrained(_) => Opcode::Constrained,
            Self::No(_) => Opcode::No,
            Self::Readonly => Opcode::Readonly,
        }
    }

    /// Its bytes in the code, operand included.
    #[cfg(test)]
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Volatile | Self::Tail | Self::Readonly => 2,
            Self::Unaligned(_) | Self::No(_) => 3,
            Self::Constrained(_) => 6,
        }
    }
}

/// An instruction with its prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub(crate) opcode: Opcode,
    pub(crate) operand: Operand,
    pub(crate) prefixes: Option<Box<[Prefix]>>,
}

/// An opcode and an operand that do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{opcode}` takes {wanted:?} for an operand")]
pub struct WrongOperand {
    /// The opcode.
    pub opcode: Opcode,
    /// Its operand.
    pub wanted: OperandKind,
}

impl Instruction {
    /// An instruction without an operand of its own; of the others, see [`Instruction::with`].
    ///
    /// # Errors
    /// If the opcode takes an operand, or is a prefix.
    pub fn new(opcode: Opcode) -> Result<Self, WrongOperand> {
        Self::with(opcode, Operand::None)
    }

    /// An instruction with an operand, in exactly this form.
    ///
    /// # Errors
    /// If the opcode does not take this operand, or is a prefix: those are given to [`Instruction::prefixed`].
    pub fn with(opcode: Opcode, operand: Operand) -> Result<Self, WrongOperand> {
        use OperandKind as Kind;
        let fits = match (opcode.operand(), &operand) {
            _ if opcode.flow() == crate::opcode::Flow::Prefix => false,
            (Kind::None, Operand::None)
            | (Kind::Int8, Operand::Int8(_))
            | (Kind::Int32, Operand::Int32(_))
            | (Kind::Int64, Operand::Int64(_))
            | (Kind::Float32, Operand::Float32(_))
            | (Kind::Float64, Operand::Float64(_))
            | (Kind::Variable, Operand::Variable(_))
            | (Kind::Branch | Kind::ShortBranch, Operand::Target(_))
            | (Kind::Switch, Operand::Targets(_)) => true,
            (Kind::ShortVariable, Operand::Variable(number)) => *number <= 255,
            (
                Kind::Type | Kind::Method | Kind::Field | Kind::Signature | Kind::String | Kind::Token,
                Operand::Token(_),
            ) => true,
            _ => false,
        };
        if fits {
            Ok(Self { opcode, operand, prefixes: None })
        } else {
            Err(WrongOperand { opcode, wanted: opcode.operand() })
        }
    }

    /// The same instruction with these prefixes, in this order, in place of those it had.
    #[must_use]
    pub fn prefixed(mut self, prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let prefixes: Box<[Prefix]> = prefixes.into_iter().collect();
        self.prefixes = (!prefixes.is_empty()).then_some(prefixes);
        self
    }

    pub(crate) const fn plain(opcode: Opcode, operand: Operand) -> Self {
        Self { opcode, operand, prefixes: None }
    }

    /// Its opcode, in the form in which it was parsed or made.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Its operand.
    #[inline]
    pub const fn operand(&self) -> &Operand {
        &self.operand
    }

    /// Its prefixes, in order.
    #[inline]
    pub fn prefixes(&self) -> &[Prefix] {
        self.prefixes.as_deref().unwrap_or_default()
    }

    /// The token it has for an operand.
    pub const fn token(&self) -> Option<Token> {
        match self.operand {
            Operand::Token(token) => Some(token),
            _ => None,
        }
    }

    /// The labels it goes to: one of a branch, any number of a `switch`.
    pub fn targets(&self) -> &[Label] {
        match &self.operand {
            Operand::Target(label) => std::slice::from_ref(label),
            Operand::Targets(labels) => labels,
            _ => &[],
        }
    }

    pub(crate) fn targets_mut(&mut self) -> &mut [Label] {
        match &mut self.operand {
            Operand::Target(label) => std::slice::from_mut(label),
            Operand::Targets(labels) => labels,
            _ => &mut [],
        }
    }

    /// The argument that it loads, in whatever form.
    pub fn as_ldarg(&self) -> Option<u16> {
        self.variable(
            [Opcode::Ldarg_0, Opcode::Ldarg_1, Opcode::Ldarg_2, Opcode::Ldarg_3],
            Opcode::Ldarg_S,
            Opcode::Ldarg,
        )
    }

    /// The local variable that it loads, in any form.
    pub fn as_ldloc(&self) -> Option<u16> {
        self.variable(
            [Opcode::Ldloc_0, Opcode::Ldloc_1, Opcode::Ldloc_2, Opcode::Ldloc_3],
            Opcode::Ldloc_S,
            Opcode::Ldloc,
        )
    }

    /// The local variable that it stores to, in any form.
    pub fn as_stloc(&self) -> Option<u16> {
        self.variable(
            [Opcode::Stloc_0, Opcode::Stloc_1, Opcode::Stloc_2, Opcode::Stloc_3],
            Opcode::Stloc_S,
            Opcode::Stloc,
        )
    }

    fn variable(&self, first: [Opcode; 4], short: Opcode, long: Opcode) -> Option<u16> {
        if let Operand::Variable(number) = self.operand {
            return (self.opcode == short || self.opcode == long).then_some(number);
        }
        (0..4).zip(first).find_map(|(number, opcode)| (opcode == self.opcode).then_some(number))
    }

    /// The 32-bit number that it loads, in any form.
    pub fn as_ldc_i4(&self) -> Option<i32> {
        match (&self.operand, self.opcode) {
            (Operand::Int8(number), Opcode::Ldc_I4_S) => Some((*number).into()),
            (Operand::Int32(number), Opcode::Ldc_I4) => Some(*number),
            (Operand::None, opcode) => {
                let byte = opcode.code();
                (0x15..=0x1e).contains(&byte).then(|| i32::from(byte) - 0x16)
            }
            _ => None,
        }
    }

    /// Loads an argument, in the shortest form.
    pub fn ldarg(number: u16) -> Self {
        const FIRST: [Opcode; 4] = [Opcode::Ldarg_0, Opcode::Ldarg_1, Opcode::Ldarg_2, Opcode::Ldarg_3];
        Self::of_variable(number, &FIRST, Opcode::Ldarg_S, Opcode::Ldarg)
    }

    /// Loads the address of an argument, in the shortest form.
    pub fn ldarga(number: u16) -> Self {
        Self::of_variable(number, &[], Opcode::Ldarga_S, Opcode::Ldarga)
    }

    /// Stores to an argument, in the shortest form.
    pub fn starg(number: u16) -> Self {
        Self::of_variable(number, &[], Opcode::Starg_S, Opcode::Starg)
    }

    /// Loads a local variable, in the shortest form.
    pub fn ldloc(number: u16) -> Self {
        const FIRST: [Opcode; 4] = [Opcode::Ldloc_0, Opcode::Ldloc_1, Opcode::Ldloc_2, Opcode::Ldloc_3];
        Self::of_variable(number, &FIRST, Opcode::Ldloc_S, Opcode::Ldloc)
    }

    /// Loads the address of a local variable, in the shortest form.
    pub fn ldloca(number: u16) -> Self {
        Self::of_variable(number, &[], Opcode::Ldloca_S, Opcode::Ldloca)
    }

    /// Stores to a local variable, in the shortest form.
    pub fn stloc(number: u16) -> Self {
        const FIRST: [Opcode; 4] = [Opcode::Stloc_0, Opcode::Stloc_1, Opcode::Stloc_2, Opcode::Stloc_3];
        Self::of_variable(number, &FIRST, Opcode::Stloc_S, Opcode::Stloc)
    }

    fn of_variable(number: u16, first: &[Opcode], short: Opcode, long: Opcode) -> Self {
        if let Some(opcode) = first.get(usize::from(number)) {
            return Self::plain(*opcode, Operand::None);
        }
        Self::plain(if number <= 255 { short } else { long }, Operand::Variable(number))
    }

    /// Loads a 32-bit number, in the shortest form.
    pub fn ldc_i4(number: i32) -> Self {
        let index = u8::try_from(number.wrapping_add(0x16)).ok().filter(|_| (-1..=8).contains(&number));
        if let Some(opcode) = index.and_then(Opcode::from_byte) {
            return Self::plain(opcode, Operand::None);
        }
        match i8::try_from(number) {
            Ok(small) => Self::plain(Opcode::Ldc_I4_S, Operand::Int8(small)),
            Err(_) => Self::plain(Opcode::Ldc_I4, Operand::Int32(number)),
        }
    }

    /// Loads a 64-bit number.
    pub fn ldc_i8(number: i64) -> Self {
        Self::plain(Opcode::Ldc_I8, Operand::Int64(number))
    }

    /// Calls the method of a token, not virtually.
    pub fn call(method: impl Into<Token>) -> Self {
        Self::plain(Opcode::Call, Operand::Token(method.into()))
    }

    /// Calls the function whose address is on the stack, with the signature of a token.
    pub fn calli(signature: impl Into<Token>) -> Self {
        Self::plain(Opcode::Calli, Operand::Token(signature.into()))
    }

    /// Loads a literal string.
    pub fn ldstr(string: impl Into<Token>) -> Self {
        Self::plain(Opcode::Ldstr, Operand::Token(string.into()))
    }

    /// Goes to a label. The form is short, and grows when it is encoded, if it must.
    pub fn br(target: Label) -> Self {
        Self::plain(Opcode::Br_S, Operand::Target(target))
    }

    /// Leaves a region to a label. The form is short, and grows when it is encoded, if it must.
    pub fn leave(target: Label) -> Self {
        Self::plain(Opcode::Leave_S, Operand::Target(target))
    }

    /// The bytes of it in the code in its own form, prefixes included.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        let prefixes: usize = self.prefixes().iter().map(|prefix| prefix.size()).sum();
        let operand = match &self.operand {
            Operand::Targets(labels) => 4 + 4 * labels.len(),
            _ => match self.opcode.operand() {
                OperandKind::None => 0,
                OperandKind::Int8 | OperandKind::UInt8 | OperandKind::ShortVariable | OperandKind::ShortBranch => 1,
                OperandKind::Variable => 2,
                OperandKind::Int64 | OperandKind::Float64 => 8,
                _ => 4,
            },
        };
        prefixes + self.opcode.size() + operand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_the_shortest_and_are_seen_through() {
        for number in [0, 3, 4, 255, 256, 65_535] {
            assert_eq!(Instruction::ldarg(number).as_ldarg(), Some(number));
            assert_eq!(Instruction::ldloc(number).as_ldloc(), Some(number));
            assert_eq!(Instruction::stloc(number).as_stloc(), Some(number));
            let size = if number < 4 {
                1
            } else if number < 256 {
                2
            } else {
                4
            };
            assert_eq!(Instruction::ldarg(number).size(), size);
        }
        for number in [-129, -128, -2, -1, 0, 8, 9, 127, 128, i32::MIN, i32::MAX] {
            assert_eq!(Instruction::ldc_i4(number).as_ldc_i4(), Some(number), "{number}");
        }
        assert_eq!(Instruction::ldc_i4(-1).opcode(), Opcode::Ldc_I4_M1);
        assert_eq!(Instruction::ldc_i4(8).opcode(), Opcode::Ldc_I4_8);
        assert_eq!(Instruction::ldc_i4(9).size(), 2);
        assert_eq!(Instruction::ldarg(1).as_ldloc(), None);
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        assert!(Instruction::with(Opcode::Ldarg_S, Operand::Variable(256)).is_err());
        assert!(Instruction::with(Opcode::Ldarg, Operand::Variable(256)).is_ok());
        assert!(Instruction::new(Opcode::Call).is_err());
        assert!(Instruction::new(Opcode::Volatile).is_err());
        assert!(Instruction::new(Opcode::Ret).is_ok());
    }
}
