//! The instruction set of ECMA-335 partition III: names, bytes, operands, and where control goes next.

use std::fmt;

/// The operand of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandKind {
    /// Nothing.
    None,
    /// A signed byte.
    Int8,
    /// An unsigned byte.
    UInt8,
    /// Four bytes.
    Int32,
    /// Eight bytes.
    Int64,
    /// A number of four bytes.
    Float32,
    /// A number of eight bytes.
    Float64,
    /// The number of a local variable or argument in one byte.
    ShortVariable,
    /// The number of a local variable or argument in two bytes.
    Variable,
    /// A branch target in one byte.
    ShortBranch,
    /// A branch target in four bytes.
    Branch,
    /// A count and as many branch targets.
    Switch,
    /// A token of a type.
    Type,
    /// A token of a method.
    Method,
    /// A token of a field.
    Field,
    /// A token of a stand-alone signature.
    Signature,
    /// A token of a literal string.
    String,
    /// A token of a type, method or field.
    Token,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To its target.
    Branch,
    /// To its target or one of its targets, or to the next instruction.
    Conditional,
    /// Out of the method, or to a handler: `ret`, `throw`, `rethrow`, `endfinally`, `endfilter`, `jmp`.
    End,
    /// It is not an instruction of its own but a prefix of the next one.
    Prefix,
}

macro_rules! opcodes {
    ($($name:ident $text:literal $code:literal $operand:ident $flow:ident;)+) => {
        /// An opcode. `ldarg.0`, `ldarg.s` and `ldarg` are three: the form is part of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        #[allow(missing_docs, non_camel_case_types)] // The names are those of the standard.
        pub enum Opcode {
            $($name,)+
        }

        impl Opcode {
            /// All opcodes, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its code: one byte, or `0xfe` and another.
            pub const fn code(self) -> u16 {
                const CODES: &[u16] = &[$($code,)+];
                CODES[self as usize]
            }

            /// Its operand.
            pub const fn operand(self) -> OperandKind {
                const KINDS: &[OperandKind] = &[$(OperandKind::$operand,)+];
                KINDS[self as usize]
            }

            /// Where control goes after it.
            pub const fn flow(self) -> Flow {
                const FLOWS: &[Flow] = &[$(Flow::$flow,)+];
                FLOWS[self as usize]
            }

            /// Its name in IL assembly.
            pub const fn name(self) -> &'static str {
                const NAMES: &[&str] = &[$($text,)+];
                NAMES[self as usize]
            }
        }

        const ONE_BYTE: [Option<Opcode>; 256] = table(0);
        const TWO_BYTES: [Option<Opcode>; 256] = table(0xfe);
    };
}

const fn table(first: u16) -> [Option<Opcode>; 256] {
    let mut table = [None; 256];
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let code = Opcode::ALL[at].code();
        if code >> 8 == first {
            table[(code & 0xff) as usize] = Some(Opcode::ALL[at]);
        }
        at += 1;
    }
    table
}

include!("opcode/table.rs");

impl Opcode {
    /// The opcode with this code of one byte.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        ONE_BYTE[byte as usize]
    }

    /// The opcode with this second byte, after `0xfe`.
    #[inline]
    pub const fn from_second_byte(byte: u8) -> Option<Self> {
        TWO_BYTES[byte as usize]
    }

    /// The bytes of the opcode alone: one or two.
    #[inline]
    pub const fn size(self) -> usize {
        if self.code() < 0x100 { 1 } else { 2 }
    }

    /// The form with a target of four bytes, of a branch with one of one byte.
    pub const fn long_form(self) -> Option<Self> {
        Some(match self {
            Self::Br_S => Self::Br,
            Self::Brfalse_S => Self::Brfalse,
            Self::Brtrue_S => Self::Brtrue,
            Self::Beq_S => Self::Beq,
            Self::Bge_S => Self::Bge,
            Self::Bgt_S => Self::Bgt,
            Self::Ble_S => Self::Ble,
            Self::Blt_S => Self::Blt,
            Self::Bne_Un_S => Self::Bne_Un,
            Self::Bge_Un_S => Self::Bge_Un,
            Self::Bgt_Un_S => Self::Bgt_Un,
            Self::Ble_Un_S => Self::Ble_Un,
            Self::Blt_Un_S => Self::Blt_Un,
            Self::Leave_S => Self::Leave,
            _ => return None,
        })
    }

    /// The form with a target of one byte, of a branch with one of four bytes.
    pub fn short_form(self) -> Option<Self> {
        Self::ALL.iter().copied().find(|short| short.long_form() == Some(self))
    }

    /// Whether it is a branch with one target: `br`, `brtrue`, `beq`, `leave` and their kin, in either form.
    pub const fn is_branch(self) -> bool {
        matches!(self.operand(), OperandKind::Branch | OperandKind::ShortBranch)
    }

    /// Whether it is `leave` or `leave.s`.
    pub const fn is_leave(self) -> bool {
        matches!(self, Self::Leave | Self::Leave_S)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_opcodes_map_to_each_other() {
        for &opcode in Opcode::ALL {
            let [first, second] = opcode.code().to_be_bytes();
            let found = if first == 0 { Opcode::from_byte(second) } else { Opcode::from_second_byte(second) };
            assert_eq!(found, Some(opcode));
            assert!(first == 0 || first == 0xfe, "{opcode}");
        }
        assert_eq!(Opcode::ALL.len(), 219);
        assert_eq!(Opcode::from_byte(0x24), None);
        assert_eq!(Opcode::from_byte(0xfe), None);
    }

    #[test]
    fn short_and_long_branches_are_pairs() {
        let shorts: Vec<_> = Opcode::ALL.iter().filter(|o| o.operand() == OperandKind::ShortBranch).collect();
        assert_eq!(shorts.len(), 14);
        for short in shorts {
            let long = short.long_form().unwrap();
            assert_eq!(long.operand(), OperandKind::Branch);
            assert_eq!(long.short_form(), Some(*short));
            assert_eq!(short.name(), format!("{}.s", long.name()));
        }
    }
}
