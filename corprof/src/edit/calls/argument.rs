//! The arguments that an inserted call can pass.

use corprof_il::signature::{Primitive, Type};
use corprof_il::{Instruction, Opcode, Operand};

use super::super::{EditError, Local, MethodEdit};
use super::CallProblem;
use crate::metadata::Constant;

/// An argument of an [inserted call](MethodEdit::call_before): a constant, or the value that an argument or a local
/// variable of the edited method has at that moment.
///
/// Numbers, `bool` and `&str` convert into it: `1_i32.into()` for an `int`, `"text".into()` for a `string`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CallArgument {
    /// A constant of exactly the parameter's type; [`Constant::Null`] for any reference.
    Constant(Constant),
    /// An argument of the edited method by its number: in an instance method 0 is `this`.
    Argument(u16),
    /// A local variable of the edited method by its number.
    Local(u16),
}

macro_rules! from_constants {
    ($($from:ty => $to:ident,)+) => {
        $(impl From<$from> for CallArgument {
            fn from(value: $from) -> Self {
                Self::Constant(Constant::$to(value.into()))
            }
        })+
    };
}

from_constants! {
    bool => Bool,
    i8 => Int8,
    u8 => UInt8,
    i16 => Int16,
    u16 => UInt16,
    i32 => Int32,
    u32 => UInt32,
    i64 => Int64,
    u64 => UInt64,
    f32 => Float32,
    f64 => Float64,
    &str => String,
    String => String,
}

impl From<Constant> for CallArgument {
    fn from(constant: Constant) -> Self {
        Self::Constant(constant)
    }
}

impl From<Local> for CallArgument {
    fn from(local: Local) -> Self {
        Self::Local(local.number())
    }
}

/// What is known of an argument's type.
pub(super) enum Passed {
    /// The null reference, of any type.
    Null,
    /// A value of this type.
    Of(Type),
}

impl Passed {
    /// Whether a parameter takes it: the types are the same, or the parameter is `object` and takes any reference.
    pub(super) fn fits(&self, parameter: &Type) -> bool {
        match self {
            Self::Null => is_reference(parameter),
            Self::Of(ty) => ty == parameter || *parameter == Type::Primitive(Primitive::Object) && is_reference(ty),
        }
    }
}

/// Whether a type is a reference to an object, as its signature says.
pub(super) const fn is_reference(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Primitive(Primitive::String | Primitive::Object)
            | Type::Class(_)
            | Type::SzArray(_)
            | Type::Array(..)
            | Type::Generic { value_type: false, .. }
    )
}

/// The type of a constant; `None` for one that could not be read.
pub(super) fn type_of(constant: &Constant) -> Option<Passed> {
    let primitive = match constant {
        Constant::Bool(_) => Primitive::Bool,
        Constant::Char(_) => Primitive::Char,
        Constant::Int8(_) => Primitive::Int8,
        Constant::UInt8(_) => Primitive::UInt8,
        Constant::Int16(_) => Primitive::Int16,
        Constant::UInt16(_) => Primitive::UInt16,
        Constant::Int32(_) => Primitive::Int32,
        Constant::UInt32(_) => Primitive::UInt32,
        Constant::Int64(_) => Primitive::Int64,
        Constant::UInt64(_) => Primitive::UInt64,
        Constant::Float32(_) => Primitive::Float32,
        Constant::Float64(_) => Primitive::Float64,
        Constant::String(_) => Primitive::String,
        Constant::Null => return Some(Passed::Null),
        Constant::Unreadable(_) => return None,
    };
    Some(Passed::Of(Type::Primitive(primitive)))
}

impl MethodEdit<'_> {
    /// The instruction that loads an argument of a call.
    pub(super) fn load(&self, argument: &CallArgument) -> Result<Instruction, EditError> {
        let constant = match argument {
            CallArgument::Argument(number) => return Ok(Instruction::ldarg(*number)),
            CallArgument::Local(number) => return Ok(Instruction::ldloc(*number)),
            CallArgument::Constant(constant) => constant,
        };
        Ok(match constant {
            Constant::Bool(value) => Instruction::ldc_i4((*value).into()),
            Constant::Char(value) | Constant::UInt16(value) => Instruction::ldc_i4((*value).into()),
            Constant::Int8(value) => Instruction::ldc_i4((*value).into()),
            Constant::UInt8(value) => Instruction::ldc_i4((*value).into()),
            Constant::Int16(value) => Instruction::ldc_i4((*value).into()),
            Constant::Int32(value) => Instruction::ldc_i4(*value),
            // The stack has the bits of a number, without its sign.
            Constant::UInt32(value) => Instruction::ldc_i4(value.cast_signed()),
            Constant::Int64(value) => Instruction::ldc_i8(*value),
            Constant::UInt64(value) => Instruction::ldc_i8(value.cast_signed()),
            Constant::Float32(value) => Instruction::with(Opcode::Ldc_R4, Operand::Float32(value.to_bits()))?,
            Constant::Float64(value) => Instruction::with(Opcode::Ldc_R8, Operand::Float64(value.to_bits()))?,
            Constant::String(text) => Instruction::ldstr(self.string(text)?),
            Constant::Null => Instruction::new(Opcode::Ldnull)?,
            Constant::Unreadable(_) => return Err(EditError::Other(CallProblem::UnreadableConstant.to_string())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{TypeDef, TypeDefOrRef};

    fn of(argument: impl Into<CallArgument>) -> Passed {
        match argument.into() {
            CallArgument::Constant(constant) => type_of(&constant).unwrap(),
            other => panic!("{other:?} is not a constant"),
        }
    }

    const fn primitive(primitive: Primitive) -> Type {
        Type::Primitive(primitive)
    }

    #[test]
    fn numbers_fit_parameters_of_their_own_type_only() {
        let numbers = [
            (of(true), Primitive::Bool),
            (of(1_i8), Primitive::Int8),
            (of(1_u8), Primitive::UInt8),
            (of(1_i16), Primitive::Int16),
            (of(1_u16), Primitive::UInt16),
            (of(Constant::Char(1)), Primitive::Char),
            (of(1_i32), Primitive::Int32),
            (of(1_u32), Primitive::UInt32),
            (of(1_i64), Primitive::Int64),
            (of(1_u64), Primitive::UInt64),
            (of(1_f32), Primitive::Float32),
            (of(1_f64), Primitive::Float64),
        ];
        for (number, own) in &numbers {
            for (_, other) in &numbers {
                assert_eq!(number.fits(&primitive(*other)), own == other, "{own:?} for {other:?}");
            }
            for other in [Primitive::Object, Primitive::String, Primitive::NativeInt, Primitive::NativeUInt] {
                assert!(!number.fits(&primitive(other)), "{own:?} for {other:?}");
            }
            assert!(!number.fits(&Type::Pointer(Box::new(primitive(*own)))));
            assert!(!number.fits(&Type::ByRef(Box::new(primitive(*own)))));
        }
    }

    #[test]
    fn references_fit_object_and_null_fits_references() {
        let class = Type::Class(TypeDefOrRef::Def(TypeDef::from_raw(0x0200_0002)));
        let other = Type::Class(TypeDefOrRef::Def(TypeDef::from_raw(0x0200_0003)));
        let value = Type::ValueType(TypeDefOrRef::Def(TypeDef::from_raw(0x0200_0004)));
        let object = primitive(Primitive::Object);
        let text = of("text");
        assert!(text.fits(&primitive(Primitive::String)) && text.fits(&object) && !text.fits(&class));
        let passed = Passed::Of(class.clone());
        assert!(passed.fits(&class) && passed.fits(&object) && !passed.fits(&other));
        let passed = Passed::Of(value.clone());
        assert!(passed.fits(&value) && !passed.fits(&object));
        assert!(!Passed::Of(Type::ByRef(Box::new(class.clone()))).fits(&object));
        let null = of(Constant::Null);
        assert!(null.fits(&class) && null.fits(&object) && null.fits(&primitive(Primitive::String)));
        assert!(!null.fits(&value) && !null.fits(&primitive(Primitive::Int32)));
        assert!(type_of(&Constant::Unreadable(corprof_sys::ELEMENT_TYPE_PTR)).is_none());
    }
}
