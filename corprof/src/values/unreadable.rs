//! Why a value is not read.

use crate::error::Error;
use crate::metadata::signature::SignatureError;

/// The reason why a value cannot be read: corprof does not guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Its type is a type parameter, in code that several instantiations share.
    #[error("its type is a type parameter of code that is shared between instantiations")]
    TypeParameter,
    /// One of its type arguments is an array or a pointer, whose class the API cannot find.
    #[error("one of its type arguments is an array or a pointer, whose class the API cannot find")]
    TypeArgument,
    /// It is a `typedref`.
    #[error("it is a typed reference, whose layout the runtime does not show")]
    TypedReference,
    /// The method takes a variable number of arguments, or is called by the rules of another language.
    #[error("the method's calling convention is not the managed one")]
    CallingConvention,
    /// The signature is malformed.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The signature has an element that only signatures in memory have.
    #[error("its signature names the type by an address inside the runtime")]
    InternalType,
    /// The runtime did not return the layout of its type.
    #[error("the runtime did not return the layout of its type: {0}")]
    Layout(Error),
    /// Its type is in an assembly that is not loaded, or loaded several times.
    #[error("its type is in an assembly that is not loaded, or loaded several times: it could be another type")]
    AmbiguousType,
    /// Too many structs within structs, or too deep.
    #[error("it has more fields within fields than corprof follows")]
    TooComplex,
    /// There are more arguments than a hook has room for.
    #[error("the method has more arguments than a hook has room for")]
    TooManyArguments,
    /// The size or the number of values that the runtime shows contradicts the signature.
    #[error("the values that the runtime shows do not fit the signature")]
    Mismatch,
    /// The runtime does not show it for this function.
    #[error("the runtime does not show it: {0}")]
    NotTold(Error),
    /// An object behind a by-ref. Such references may point past the end of an array or block, where there is no
    /// object: see [`ByRef::value_unchecked`](super::ByRef::value_unchecked).
    #[error("it is an object reference behind a by-ref, and nothing proves that there is an object")]
    ObjectBehindByRef,
    /// It is a struct in a field of an object. The call that finds the layout of its type could start a collection.
    #[error("it is a struct in a field of an object, and its layout cannot be found here")]
    StructInObject,
    /// A by-ref leads to unmapped memory, or the system does not allow probing the memory.
    #[error("there is no memory at its address, or none that can be read safely")]
    NoMemory,
}
