//! Decides by its signature whether a function has values in vector registers when a hook is called.
//!
//! An argument or result is in a vector register only if it is a floating-point number, or a value type that contains
//! one. So a signature without either proves that a stub need not save vector registers, which is most of its cost. If
//! in doubt, they are saved: a counted call then takes 6.4 ns with its two hooks instead of 5.0 (`cargo xtask bench
//! --only hooks`).

use super::stubs::{OURS, PLAIN_ARGUMENTS, PLAIN_RESULT};
use crate::metadata::signature::{CallingConvention, MethodSignature, Primitive, Type};
use crate::metadata::{MethodProps, is_suspended_by_the_runtime};

/// The tags that say which registers the stubs must save for a function; it may have no metadata.
pub(super) fn tags(method: Option<&MethodProps>) -> usize {
    // The runtime unwraps the result of a runtime-async method.
    let method = method.filter(|method| !is_suspended_by_the_runtime(method));
    let signature = method.and_then(|method| MethodSignature::decode(&method.signature).ok());
    signature.map_or(OURS, |signature| of_signature(&signature))
}

fn of_signature(signature: &MethodSignature) -> usize {
    if signature.convention != CallingConvention::Default {
        // The signature does not describe the variable arguments, or the convention is that of another language.
        return OURS;
    }
    let arguments = if signature.parameters.iter().any(may_be_in_vector) { 0 } else { PLAIN_ARGUMENTS };
    // For a method that returns a `Task<double>`, .NET 10 and later may make a form that returns the double.
    let is_generic = matches!(signature.return_type.unmodified(), Type::Generic { .. });
    let result = if is_generic || may_be_in_vector(&signature.return_type) { 0 } else { PLAIN_RESULT };
    OURS | arguments | result
}

/// Whether a value of this type may travel in a vector register, whole or in part.
fn may_be_in_vector(of: &Type) -> bool {
    match of.unmodified() {
        Type::Primitive(primitive) => {
            matches!(primitive, Primitive::Float32 | Primitive::Float64 | Primitive::TypedRef)
        }
        Type::Class(_)
        | Type::Pointer(_)
        | Type::ByRef(_)
        | Type::SzArray(_)
        | Type::Array(..)
        | Type::FunctionPointer(_)
        | Type::Generic { value_type: false, .. } => false,
        // An enumeration would not, but seeing that needs another look-up; a type parameter may stand for anything.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::stubs::TAGS;

    /// The tags of a static method with these parameters.
    fn tags(result: u8, parameters: &[&[u8]]) -> usize {
        let mut blob = vec![0, parameters.len() as u8, result];
        blob.extend(parameters.concat());
        of_signature(&MethodSignature::decode(&blob).unwrap())
    }

    const VOID: u8 = 0x01;
    const INT32: u8 = 0x08;
    const FLOAT64: u8 = 0x0d;
    const STRING: u8 = 0x0e;

    #[test]
    fn integers_and_references_need_no_vectors() {
        let by_ref_float: &[u8] = &[0x10, FLOAT64];
        let array_of_floats: &[u8] = &[0x1d, FLOAT64];
        let class: &[u8] = &[0x12, 0x49];
        let list_of_floats: &[u8] = &[0x15, 0x12, 0x49, 1, FLOAT64];
        assert_eq!(tags(VOID, &[]), TAGS);
        assert_eq!(tags(INT32, &[&[INT32], &[STRING], by_ref_float]), TAGS);
        assert_eq!(tags(STRING, &[array_of_floats, class, list_of_floats]), TAGS);
    }

    #[test]
    fn floats_value_types_and_type_parameters_do() {
        let value_type: &[u8] = &[0x11, 0x49];
        let nullable: &[u8] = &[0x15, 0x11, 0x49, 1, INT32];
        let type_parameter: &[u8] = &[0x13, 0];
        let method_parameter: &[u8] = &[0x1e, 0];
        let modified_float: &[u8] = &[0x20, 0x49, FLOAT64];
        for parameter in [&[FLOAT64], value_type, nullable, type_parameter, method_parameter, modified_float, &[0x16]] {
            assert_eq!(tags(VOID, &[&[INT32], parameter]), OURS | PLAIN_RESULT, "{parameter:x?}");
        }
        assert_eq!(tags(FLOAT64, &[]), OURS | PLAIN_ARGUMENTS);
    }

    #[test]
    fn variable_arguments_may_be_anything() {
        let signature = MethodSignature::decode(&[0x05, 0, VOID]).unwrap();
        assert_eq!(of_signature(&signature), OURS);
    }
}
