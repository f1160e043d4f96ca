//! Why a value is not read.

use crate::error::Error;
use crate::metadata::signature::SignatureError;

/// Why a value is not told: corprof says so rather than guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Its type is a type parameter, in code that several instantiations share.
    #[error("its type is a type parameter of code that is shared between instantiations")]
    TypeParameter,
    /// One of its type arguments is an array or a pointer, and the API leads to no class of these.
    #[error("one of its type arguments is an array or a pointer, whose class cannot be asked for")]
    TypeArgument,
    /// It is a `typedref`.
    #[error("it is a typed reference, which has no layout that the runtime tells")]
    TypedReference,
    /// The method takes a variable number of arguments, or is called by the rules of another language.
    #[error("the method's calling convention is not the managed one")]
    CallingConvention,
    /// The signature is damaged.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The signature has what only signatures made in memory have.
    #[error("its type is given by an address inside the runtime")]
    InternalType,
    /// The runtime did not tell the layout of its type.
    #[error("the layout of its type is not known: {0}")]
    Layout(Error),
    /// Its type lies in an assembly that is not loaded, or is there several times.
    #[error("its type is in an assembly that is not loaded, or loaded several times: it could be another type")]
    AmbiguousType,
    /// Structs within structs, too many or too deep.
    #[error("it has more fields within fields than corprof follows")]
    TooComplex,
    /// There are more arguments than a hook has room for.
    #[error("the method has more arguments than a hook has room for")]
    TooManyArguments,
    /// What the runtime shows does not have the size or the number that the signature says.
    #[error("what the runtime shows does not fit the signature")]
    Mismatch,
    /// The runtime does not tell it for this function.
    #[error("the runtime does not tell: {0}")]
    NotTold(Error),
    /// .NET Core 3.1 shows of a struct that is returned in registers one register only, on Linux and macOS.
    #[error("this runtime shows only a part of structs that are returned in registers: .NET 5 and later show all")]
    ReturnedInRegisters,
    /// An object behind a by-ref. Such references may point past the end of what they came from, where there is no object:
    /// see [`ByRef::value_unchecked`](super::ByRef::value_unchecked).
    #[error("it is an object reference behind a by-ref, and nothing proves that there is an object")]
    ObjectBehindByRef,
    /// A by-ref leads to memory that is not there, or the system does not let the memory be looked at.
    #[error("there is no memory at its address, or none that can be read safely")]
    NoMemory,
}
