//! Instructions and types that work with addresses of memory.

use corprof_il::signature::{MethodSignature, Primitive, Type};
use corprof_il::{Instruction, Opcode, Prefix};

/// Whether an instruction makes an address of a number or of a number an address, or uses memory by an address that may
/// be any.
///
/// Addresses that `ldflda`, `ldelema`, `ldloca` and others make are those of a field, an element or a variable, and are
/// not meant.
pub(super) fn uses_addresses(insn: &Instruction, next: Option<&Instruction>) -> bool {
    use Opcode as O;
    if insn.prefixes().iter().any(|prefix| matches!(prefix, Prefix::Unaligned(_) | Prefix::No(_))) {
        return true;
    }
    match insn.opcode() {
        O::Arglist
        | O::Calli
        | O::Conv_I
        | O::Conv_U
        | O::Conv_Ovf_I
        | O::Conv_Ovf_I_Un
        | O::Conv_Ovf_U
        | O::Conv_Ovf_U_Un
        | O::Cpblk
        | O::Initblk
        | O::Ldelem_I
        | O::Ldind_I
        | O::Localloc
        | O::Mkrefany
        | O::Refanytype
        | O::Refanyval
        | O::Stelem_I
        | O::Stind_I => true,
        // The length is a native int, which compilers convert or compare with zero at once.
        O::Ldlen => !next.is_some_and(|next| {
            matches!(
                next.opcode(),
                O::Conv_I4
                    | O::Conv_U4
                    | O::Conv_I8
                    | O::Conv_U8
                    | O::Conv_Ovf_I4
                    | O::Conv_Ovf_I4_Un
                    | O::Ldc_I4_0
                    | O::Brtrue
                    | O::Brtrue_S
                    | O::Brfalse
                    | O::Brfalse_S
            )
        }),
        _ => false,
    }
}

/// Whether an instruction takes the address of a function, which a delegate is made of.
pub(super) const fn takes_function(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Ldftn | Opcode::Ldvirtftn)
}

/// Whether an instruction casts an object to a type.
pub(super) const fn casts(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Castclass | Opcode::Isinst | Opcode::Unbox | Opcode::Unbox_Any)
}

/// Whether an instruction computes a number, or an address, of one or two.
pub(super) const fn is_arithmetic(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::Add
            | O::Add_Ovf
            | O::Add_Ovf_Un
            | O::And
            | O::Div
            | O::Div_Un
            | O::Mul
            | O::Mul_Ovf
            | O::Mul_Ovf_Un
            | O::Or
            | O::Rem
            | O::Rem_Un
            | O::Sub
            | O::Sub_Ovf
            | O::Sub_Ovf_Un
            | O::Xor
    )
}

/// Whether values of a type are addresses or may be used as such: pointers, native ints, functions, pinned variables.
pub(super) fn is_address(ty: &Type) -> bool {
    match ty {
        Type::Primitive(primitive) => {
            matches!(primitive, Primitive::TypedRef | Primitive::NativeInt | Primitive::NativeUInt)
        }
        Type::Pointer(_)
        | Type::FunctionPointer(_)
        | Type::Pinned(_)
        | Type::Internal(_)
        | Type::InternalModified { .. } => true,
        Type::ByRef(inner) | Type::SzArray(inner) | Type::Array(inner, _) | Type::Modified { inner, .. } => {
            is_address(inner)
        }
        Type::Generic { arguments, .. } => arguments.iter().any(is_address),
        Type::Class(_) | Type::ValueType(_) | Type::TypeParameter(_) | Type::MethodParameter(_) => false,
        _ => true,
    }
}

/// Whether a signature has such a type.
pub(super) fn has_address(signature: &MethodSignature) -> bool {
    signature.parameters.iter().chain([&signature.return_type]).any(is_address)
}

#[cfg(test)]
mod tests {
    use corprof_il::{Operand, Token};

    use super::*;

    #[test]
    fn a_length_is_a_number_only_if_it_is_converted_at_once() {
        let plain = |opcode| Instruction::new(opcode).unwrap();
        let length = plain(Opcode::Ldlen);
        assert!(!uses_addresses(&length, Some(&plain(Opcode::Conv_I4))));
        assert!(uses_addresses(&length, Some(&plain(Opcode::Ldind_I4))));
        assert!(uses_addresses(&length, None));
    }

    #[test]
    fn unaligned_accesses_are_made_by_pointers() {
        let load = Instruction::new(Opcode::Ldind_I4).unwrap();
        assert!(!uses_addresses(&load, None));
        assert!(uses_addresses(&load.prefixed([Prefix::Unaligned(1)]), None));
        let calli = Instruction::with(Opcode::Calli, Operand::Token(Token::from_raw(0x1100_0001))).unwrap();
        assert!(uses_addresses(&calli, None));
    }

    #[test]
    fn addresses_are_found_at_any_depth() {
        let int = Type::Primitive(Primitive::Int32);
        let native = Type::Primitive(Primitive::NativeInt);
        assert!(!is_address(&Type::SzArray(Box::new(int.clone()))) && !is_address(&Type::ByRef(Box::new(int.clone()))));
        assert!(is_address(&Type::SzArray(Box::new(native))));
        assert!(is_address(&Type::ByRef(Box::new(Type::Pointer(Box::new(int.clone()))))));
        assert!(is_address(&Type::Pinned(Box::new(Type::ByRef(Box::new(int))))));
    }
}
