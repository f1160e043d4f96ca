//! The signature decoder on hostile bytes: it must return, and its result must encode to an equal, not longer
//! signature.

#![no_main]

use corprof_il::signature::{MethodSignature, PropertySignature, Signature, Type};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|blob: &[u8]| {
    let _ = MethodSignature::decode(blob);
    let _ = PropertySignature::decode(blob);
    let _ = Type::decode(blob);
    let _ = Type::decode_locals(blob);
    let _ = Type::decode_method_spec(blob);
    if let Ok(signature) = Signature::decode(blob) {
        let again = signature.encode().expect("it came from a blob");
        assert!(again.len() <= blob.len(), "{signature:?} grew out of {blob:x?}");
        assert_eq!(Signature::decode(&again), Ok(signature));
    }
});
