//! Checks signatures before the runtime keeps them: it believes what it reads there.
//!
//! Signatures in memory may hold addresses of the runtime's own structures (`ELEMENT_TYPE_INTERNAL`). The runtime
//! writes such signatures for dynamic methods; where a profiler defines one, it follows the address as well. And it
//! reads nested types by recursion, without a limit.

use corprof_il::signature::{MethodSignature, Signature, SignatureError, Type};

use crate::error::{E_INVALIDARG, Error, Result};

/// Checks a stand-alone signature: of local variables, of a call, or of a field.
pub(super) fn check_any(call: &'static str, blob: &[u8]) -> Result<()> {
    let is_safe = match decoded(call, Signature::decode(blob))? {
        Signature::Method(method) => is_method_safe(&method),
        Signature::Field(ty) => is_safe(&ty),
        Signature::Locals(types) | Signature::MethodSpec(types) => types.iter().all(is_safe),
        Signature::Property(property) => is_safe(&property.value) && property.parameters.iter().all(is_safe),
        // A kind that this has never heard of.
        _ => false,
    };
    check(call, is_safe)
}

/// Checks the signature of a type spec.
pub(super) fn check_type(call: &'static str, blob: &[u8]) -> Result<()> {
    let ty = decoded(call, Type::decode(blob))?;
    check(call, is_safe(&ty))
}

/// Checks the signature of a method spec.
pub(super) fn check_method_spec(call: &'static str, blob: &[u8]) -> Result<()> {
    let arguments = decoded(call, Type::decode_method_spec(blob))?;
    check(call, arguments.iter().all(is_safe))
}

fn decoded<T>(call: &'static str, decoded: Result<T, SignatureError>) -> Result<T> {
    decoded.map_err(|_| {
        Error::new(E_INVALIDARG, call)
            .about("a signature", "the bytes are not a signature of this kind (ECMA-335, II.23.2)")
    })
}

fn check(call: &'static str, is_safe: bool) -> Result<()> {
    if is_safe {
        return Ok(());
    }
    Err(Error::new(E_INVALIDARG, call).about(
        "a signature",
        "the runtime would follow the address of a type handle (`Type::Internal`): name the type by a token",
    ))
}

fn is_method_safe(method: &MethodSignature) -> bool {
    is_safe(&method.return_type) && method.parameters.iter().all(is_safe)
}

/// Whether no address is in it.
fn is_safe(ty: &Type) -> bool {
    match ty {
        Type::Internal(_) | Type::InternalModified { .. } => false,
        Type::Pointer(inner) | Type::ByRef(inner) | Type::SzArray(inner) | Type::Pinned(inner) => is_safe(inner),
        Type::Array(inner, _) | Type::Modified { inner, .. } => is_safe(inner),
        Type::Generic { arguments, .. } => arguments.iter().all(is_safe),
        Type::FunctionPointer(method) => is_method_safe(method),
        Type::Primitive(_)
        | Type::Class(_)
        | Type::ValueType(_)
        | Type::TypeParameter(_)
        | Type::MethodParameter(_) => true,
        // A kind that this has never heard of.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: [u8; 9] = [0x21, 1, 2, 3, 4, 5, 6, 7, 8];

    fn with_handle(begin: &[u8]) -> Vec<u8> {
        [begin, &HANDLE].concat()
    }

    #[test]
    fn addresses_are_refused_wherever_a_type_can_stand() {
        let types: [&[u8]; 9] = [
            &[],
            &[0x0f],                   // a pointer
            &[0x10],                   // a managed pointer
            &[0x1d],                   // an array
            &[0x45],                   // pinned
            &[0x20, 0x05],             // with a modifier
            &[0x15, 0x12, 0x05, 1],    // an argument of a generic type
            &[0x1b, 0x00, 0x00],       // what a function pointer returns
            &[0x1b, 0x00, 0x01, 0x01], // what it takes
        ];
        for begin in types {
            let blob = with_handle(begin);
            assert_eq!(check_type("X", &blob).unwrap_err().code(), E_INVALIDARG, "{blob:?}");
            assert!(check_any("X", &[&[0x07, 1][..], &blob].concat()).is_err());
            assert!(check_any("X", &[&[0x06][..], &blob].concat()).is_err());
            assert!(check_any("X", &[&[0x00, 0x00][..], &blob].concat()).is_err());
            assert!(check_any("X", &[&[0x00, 0x01, 0x01][..], &blob].concat()).is_err());
            assert!(check_method_spec("X", &[&[0x0a, 1][..], &blob].concat()).is_err());
        }
        let modified = [&[0x22, 0][..], &[0; 8], &[0x08]].concat();
        assert!(check_type("X", &modified).unwrap_err().hint().unwrap().contains("type handle"));
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        for blob in [&[][..], &[0x12], &[0x1d], &[0xff], &[0x3f, 1], &[0x1d; 100_000]] {
            let error = check_type("X", blob).unwrap_err();
            assert!(error.to_string().contains("ECMA-335"), "{error}");
        }
    }

    #[test]
    fn ordinary_signatures_pass() {
        check_any("X", &[0x07, 2, 0x08, 0x1d, 0x0e]).unwrap();
        check_any("X", &[0x00, 0x01, 0x01, 0x0e]).unwrap();
        check_type("X", &[0x15, 0x12, 0x05, 1, 0x08]).unwrap();
        check_method_spec("X", &[0x0a, 1, 0x1e, 0]).unwrap();
    }
}
