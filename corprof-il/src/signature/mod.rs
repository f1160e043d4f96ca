//! Decodes and encodes signature blobs (ECMA-335 II.23.2): methods, fields, local variables, properties, type and
//! method specs.
//!
//! Blobs come out of files and of profiled programs and are not trusted: decoding never panics, allocates no more than
//! the blob's length accounts for, and ends at [`MAX_DEPTH`] levels; an error names its offset. Bytes after a complete
//! signature are ignored, as the runtime ignores them. The decoded signature is an owned tree that outlives the module,
//! though the tokens in it do not, and encodes to the same bytes. [`cursor`] reads without a tree.

pub mod cursor;
mod decode;
mod display;
mod encode;
mod parts;
mod reader;
#[cfg(test)]
mod tests;

pub use decode::MAX_DEPTH;
pub use encode::EncodeError;

use crate::token::TypeDefOrRef;
use decode::Decoder;

/// The problem of a signature, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad signature at offset {offset}: {problem}")]
pub struct SignatureError {
    /// Where in the blob, in bytes.
    pub offset: usize,
    /// The problem.
    pub problem: SignatureProblem,
}

impl SignatureError {
    const fn new(offset: usize, problem: SignatureProblem) -> Self {
        Self { offset, problem }
    }
}

/// The ways in which a signature can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureProblem {
    /// The blob ends inside the signature.
    #[error("the blob ends here")]
    Truncated,
    /// No compressed integer begins with this byte.
    #[error("no compressed integer begins with {0:#04x}")]
    BadInteger(u8),
    /// A coded token with no row, too large a row, or an unknown table.
    #[error("coded token {0:#x} names no type")]
    BadToken(u32),
    /// A count of things for which too few bytes follow.
    #[error("a count of {0} is more than the blob can hold")]
    CountTooLarge(u32),
    /// The first byte says that this is a signature of another kind.
    #[error("{found:#04x} does not begin a {wanted} signature")]
    WrongKind {
        /// The kind that was asked for.
        wanted: &'static str,
        /// The byte found.
        found: u8,
    },
    /// No type begins with this byte.
    #[error("{0:#04x} is not an element type that may stand here")]
    BadElement(u8),
    /// An array with no dimension, or with more than the runtime allows.
    #[error("an array cannot have {0} dimensions")]
    BadRank(u32),
    /// Types nested more deeply than [`MAX_DEPTH`].
    #[error("types are nested too deeply")]
    TooDeep,
}

/// The types that are a single byte in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// `void`
    Void,
    /// `bool`
    Bool,
    /// `char`, a UTF-16 code unit
    Char,
    /// `int8`
    Int8,
    /// `uint8`
    UInt8,
    /// `int16`
    Int16,
    /// `uint16`
    UInt16,
    /// `int32`
    Int32,
    /// `uint32`
    UInt32,
    /// `int64`
    Int64,
    /// `uint64`
    UInt64,
    /// `float32`
    Float32,
    /// `float64`
    Float64,
    /// `string`
    String,
    /// `object`
    Object,
    /// `typedref`
    TypedRef,
    /// `native int`
    NativeInt,
    /// `native uint`
    NativeUInt,
}

impl Primitive {
    /// The type that this element type stands for, if it is one of these.
    #[inline]
    pub const fn from_element(element: u8) -> Option<Self> {
        Some(match element {
            0x01 => Self::Void,
            0x02 => Self::Bool,
            0x03 => Self::Char,
            0x04 => Self::Int8,
            0x05 => Self::UInt8,
            0x06 => Self::Int16,
            0x07 => Self::UInt16,
            0x08 => Self::Int32,
            0x09 => Self::UInt32,
            0x0a => Self::Int64,
            0x0b => Self::UInt64,
            0x0c => Self::Float32,
            0x0d => Self::Float64,
            0x0e => Self::String,
            0x16 => Self::TypedRef,
            0x18 => Self::NativeInt,
            0x19 => Self::NativeUInt,
            0x1c => Self::Object,
            _ => return None,
        })
    }

    /// The type with this name in the namespace `System` of the core library.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "Void" => Self::Void,
            "Boolean" => Self::Bool,
            "Char" => Self::Char,
            "SByte" => Self::Int8,
            "Byte" => Self::UInt8,
            "Int16" => Self::Int16,
            "UInt16" => Self::UInt16,
            "Int32" => Self::Int32,
            "UInt32" => Self::UInt32,
            "Int64" => Self::Int64,
            "UInt64" => Self::UInt64,
            "Single" => Self::Float32,
            "Double" => Self::Float64,
            "String" => Self::String,
            "Object" => Self::Object,
            "TypedReference" => Self::TypedRef,
            "IntPtr" => Self::NativeInt,
            "UIntPtr" => Self::NativeUInt,
            _ => return None,
        })
    }

    /// The element type that stands for it.
    pub const fn as_element(self) -> u8 {
        match self {
            Self::Void => 0x01,
            Self::Bool => 0x02,
            Self::Char => 0x03,
            Self::Int8 => 0x04,
            Self::UInt8 => 0x05,
            Self::Int16 => 0x06,
            Self::UInt16 => 0x07,
            Self::Int32 => 0x08,
            Self::UInt32 => 0x09,
            Self::Int64 => 0x0a,
            Self::UInt64 => 0x0b,
            Self::Float32 => 0x0c,
            Self::Float64 => 0x0d,
            Self::String => 0x0e,
            Self::TypedRef => 0x16,
            Self::NativeInt => 0x18,
            Self::NativeUInt => 0x19,
            Self::Object => 0x1c,
        }
    }

    /// Its name in IL assembly.
    pub const fn il_name(self) -> &'static str {
        match self {
            Self::Void => "void",
            Self::Bool => "bool",
            Self::Char => "char",
            Self::Int8 => "int8",
            Self::UInt8 => "uint8",
            Self::Int16 => "int16",
            Self::UInt16 => "uint16",
            Self::Int32 => "int32",
            Self::UInt32 => "uint32",
            Self::Int64 => "int64",
            Self::UInt64 => "uint64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::String => "string",
            Self::Object => "object",
            Self::TypedRef => "typedref",
            Self::NativeInt => "native int",
            Self::NativeUInt => "native uint",
        }
    }

    /// Its name in C#: a keyword, but for a typed reference, which has none.
    pub const fn csharp_name(self) -> &'static str {
        match self {
            Self::Int8 => "sbyte",
            Self::UInt8 => "byte",
            Self::Int16 => "short",
            Self::UInt16 => "ushort",
            Self::Int32 => "int",
            Self::UInt32 => "uint",
            Self::Int64 => "long",
            Self::UInt64 => "ulong",
            Self::Float32 => "float",
            Self::Float64 => "double",
            Self::NativeInt => "nint",
            Self::NativeUInt => "nuint",
            Self::TypedRef => "System.TypedReference",
            Self::Void | Self::Bool | Self::Char | Self::String | Self::Object => self.il_name(),
        }
    }
}

/// A type as a signature spells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// A type with a byte of its own.
    Primitive(Primitive),
    /// A reference type, by name.
    Class(TypeDefOrRef),
    /// A value type, by name.
    ValueType(TypeDefOrRef),
    /// An unmanaged pointer.
    Pointer(Box<Type>),
    /// A managed reference (`ref`, `in`, `out`).
    ByRef(Box<Type>),
    /// An array of one dimension that begins at 0.
    SzArray(Box<Type>),
    /// Any other array.
    Array(Box<Type>, ArrayShape),
    /// A generic type with its arguments.
    Generic {
        /// Whether it is a value type.
        value_type: bool,
        /// The generic type.
        definition: TypeDefOrRef,
        /// Its arguments, those of enclosing types first.
        arguments: Vec<Type>,
    },
    /// A generic parameter of the type, counted from 0, those of enclosing types first.
    TypeParameter(u32),
    /// A generic parameter of the method, counted from 0.
    MethodParameter(u32),
    /// A pointer to a function.
    FunctionPointer(Box<MethodSignature>),
    /// A type with a custom modifier.
    Modified {
        /// Whether a compiler that does not know the modifier must refuse the type (`modreq`, not `modopt`).
        required: bool,
        /// The modifier.
        modifier: TypeDefOrRef,
        /// The type that it modifies.
        inner: Box<Type>,
    },
    /// A local variable that keeps its object from moving.
    Pinned(Box<Type>),
    /// A type handle of the runtime: only in signatures that were built in memory, such as those of dynamic methods.
    Internal(usize),
    /// A type with a custom modifier given as a type handle of the runtime; only in signatures built in memory.
    InternalModified {
        /// As in [`Type::Modified`].
        required: bool,
        /// The modifier's type handle.
        modifier: usize,
        /// The type that it modifies.
        inner: Box<Type>,
    },
}

/// The dimensions of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayShape {
    /// The number of dimensions, at least one.
    pub rank: u32,
    /// The sizes of the first dimensions, as far as they are fixed.
    pub sizes: Vec<u32>,
    /// The lower bounds of the first dimensions, as far as they are fixed.
    pub lower_bounds: Vec<i32>,
}

/// How a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallingConvention {
    /// Managed, with a fixed number of arguments.
    Default,
    /// Unmanaged `cdecl`.
    C,
    /// Unmanaged `stdcall`.
    StdCall,
    /// Unmanaged `thiscall`.
    ThisCall,
    /// Unmanaged `fastcall`.
    FastCall,
    /// Managed, with a variable number of arguments.
    VarArg,
    /// Unmanaged; modifiers of the return type say which.
    Unmanaged,
    /// Unmanaged, with a variable number of arguments.
    NativeVarArg,
}

impl CallingConvention {
    /// The convention in the low half of a signature's first byte.
    #[inline]
    const fn from_low_nibble(byte: u8) -> Option<Self> {
        Some(match byte & 0x0f {
            0x0 => Self::Default,
            0x1 => Self::C,
            0x2 => Self::StdCall,
            0x3 => Self::ThisCall,
            0x4 => Self::FastCall,
            0x5 => Self::VarArg,
            0x9 => Self::Unmanaged,
            0xb => Self::NativeVarArg,
            _ => return None,
        })
    }
}

/// The signature of a method: of its definition, of a reference to it, or of a function pointer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MethodSignature {
    /// How it is called.
    pub convention: CallingConvention,
    /// Whether there is a `this` argument.
    pub has_this: bool,
    /// Whether `this` is the first of the parameters instead of being understood.
    pub explicit_this: bool,
    /// The number of its own generic parameters.
    pub generic_parameters: u32,
    /// The return type.
    pub return_type: Type,
    /// The types of the parameters, in order.
    pub parameters: Vec<Type>,
    /// In a reference to a variable-argument method: where in `parameters` the extra arguments begin.
    pub sentinel: Option<usize>,
}

/// The signature of a property.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PropertySignature {
    /// Whether it belongs to an object.
    pub has_this: bool,
    /// The type of its value.
    pub value: Type,
    /// The types of its indices.
    pub parameters: Vec<Type>,
}

/// A signature of any kind that begins with a byte that says which.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signature {
    /// Of a method.
    Method(MethodSignature),
    /// Of a field: its type.
    Field(Type),
    /// Of local variables: their types.
    Locals(Vec<Type>),
    /// Of a property.
    Property(PropertySignature),
    /// Of a method spec: the generic arguments.
    MethodSpec(Vec<Type>),
}

impl Signature {
    /// Decodes a signature of the kind that its first byte names.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode(blob: &[u8]) -> Result<Self, SignatureError> {
        Decoder::new(blob).any()
    }
}

impl MethodSignature {
    /// Decodes the signature of a method, of a reference to one, or a stand-alone one of a `calli`.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode(blob: &[u8]) -> Result<Self, SignatureError> {
        Decoder::new(blob).method()
    }
}

impl MethodSignature {
    /// Whether the number of arguments is variable.
    pub const fn is_vararg(&self) -> bool {
        matches!(self.convention, CallingConvention::VarArg | CallingConvention::NativeVarArg)
    }
}

impl PropertySignature {
    /// Decodes the signature of a property.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode(blob: &[u8]) -> Result<Self, SignatureError> {
        Decoder::new(blob).property()
    }
}

impl Type {
    /// Decodes the signature of a type spec, which is a bare type.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode(blob: &[u8]) -> Result<Self, SignatureError> {
        Decoder::new(blob).type_spec()
    }

    /// Decodes the signature of a field, which is its type.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode_field(blob: &[u8]) -> Result<Self, SignatureError> {
        Decoder::new(blob).field()
    }

    /// Decodes the types of a method's local variables.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode_locals(blob: &[u8]) -> Result<Vec<Self>, SignatureError> {
        Decoder::new(blob).locals()
    }

    /// Decodes the generic arguments of a method spec.
    ///
    /// # Errors
    /// The problem of the blob, and its offset.
    pub fn decode_method_spec(blob: &[u8]) -> Result<Vec<Self>, SignatureError> {
        Decoder::new(blob).method_spec()
    }

    /// The type without the custom modifiers and the pinning around it.
    pub fn unmodified(&self) -> &Self {
        let mut plain = self;
        while let Self::Modified { inner, .. } | Self::InternalModified { inner, .. } | Self::Pinned(inner) = plain {
            plain = inner;
        }
        plain
    }
}
