//! The grammar of signatures, by recursive descent.
//!
//! Every level of recursion is counted, and every loop runs over a count that the reader has checked against the bytes
//! left.

use super::reader::Reader;
use super::{
    ArrayShape, CallingConvention, MethodSignature, Primitive, PropertySignature, Signature, SignatureError,
    SignatureProblem, Type,
};

/// How deeply types may be nested in a signature. Real ones stay far below.
pub const MAX_DEPTH: usize = 64;

/// The runtime's own limit on the dimensions of an array.
pub(super) const MAX_RANK: u32 = 32;

/// How many types are given room before they are seen: counts nested in counts would otherwise each reserve for the
/// whole blob.
const FEW: usize = 8;

/// The element types that are more than one byte, and the byte that separates variable arguments.
pub mod element {
    /// A pointer to the type that follows.
    pub const PTR: u8 = 0x0f;
    /// A managed pointer to the type that follows.
    pub const BYREF: u8 = 0x10;
    /// A value type: a coded token follows.
    pub const VALUETYPE: u8 = 0x11;
    /// A class: a coded token follows.
    pub const CLASS: u8 = 0x12;
    /// A generic parameter of the class: its number follows.
    pub const VAR: u8 = 0x13;
    /// An array: the type and the dimensions follow.
    pub const ARRAY: u8 = 0x14;
    /// A generic type: its kind, its token, and its arguments follow.
    pub const GENERICINST: u8 = 0x15;
    /// A function pointer: a method signature follows.
    pub const FNPTR: u8 = 0x1b;
    /// An array of one dimension from 0: the type follows.
    pub const SZARRAY: u8 = 0x1d;
    /// A generic parameter of the method: its number follows.
    pub const MVAR: u8 = 0x1e;
    /// A required modifier: a coded token, then the type it modifies.
    pub const CMOD_REQD: u8 = 0x1f;
    /// An optional modifier: a coded token, then the type it modifies.
    pub const CMOD_OPT: u8 = 0x20;
    /// A type handle of the runtime, in signatures built in memory.
    pub const INTERNAL: u8 = 0x21;
    /// Newer than the standard: a byte (0 for optional) and a type handle.
    pub const CMOD_INTERNAL: u8 = 0x22;
    /// Variable arguments follow.
    pub const SENTINEL: u8 = 0x41;
    /// The local variable that follows is pinned.
    pub const PINNED: u8 = 0x45;
}

/// Values of the first byte's low half other than calling conventions, and the flags in the high half.
pub(super) mod kind {
    pub(in crate::signature) const MASK: u8 = 0x0f;
    pub(in crate::signature) const FIELD: u8 = 0x06;
    pub(in crate::signature) const LOCALS: u8 = 0x07;
    pub(in crate::signature) const PROPERTY: u8 = 0x08;
    pub(in crate::signature) const METHOD_SPEC: u8 = 0x0a;
    pub(in crate::signature) const GENERIC: u8 = 0x10;
    pub(in crate::signature) const HAS_THIS: u8 = 0x20;
    pub(in crate::signature) const EXPLICIT_THIS: u8 = 0x40;
}

pub(super) struct Decoder<'a> {
    reader: Reader<'a>,
    depth: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(blob: &'a [u8]) -> Self {
        Self { reader: Reader::new(blob), depth: 0 }
    }

    pub(super) fn any(&mut self) -> Result<Signature, SignatureError> {
        match self.reader.peek().map(|byte| byte & kind::MASK) {
            Some(kind::FIELD) => self.field().map(Signature::Field),
            Some(kind::LOCALS) => self.locals().map(Signature::Locals),
            Some(kind::PROPERTY) => self.property().map(Signature::Property),
            Some(kind::METHOD_SPEC) => self.method_spec().map(Signature::MethodSpec),
            _ => self.method().map(Signature::Method),
        }
    }

    pub(super) fn method(&mut self) -> Result<MethodSignature, SignatureError> {
        let start = self.reader.offset();
        let first = self.reader.byte()?;
        let Some(convention) = CallingConvention::from_low_nibble(first) else {
            return Err(SignatureError::new(start, SignatureProblem::WrongKind { wanted: "method", found: first }));
        };
        let generic_parameters = if first & kind::GENERIC == 0 { 0 } else { self.reader.unsigned()? };
        let count = self.reader.count()?;
        let return_type = self.one_type()?;
        let mut parameters = Vec::with_capacity(count.min(FEW));
        let mut sentinel = None;
        for at in 0..count {
            if sentinel.is_none() && self.reader.peek() == Some(element::SENTINEL) {
                self.reader.byte()?;
                sentinel = Some(at);
            }
            parameters.push(self.one_type()?);
        }
        Ok(MethodSignature {
            convention,
            has_this: first & kind::HAS_THIS != 0,
            explicit_this: first & kind::EXPLICIT_THIS != 0,
            generic_parameters,
            return_type,
            parameters,
            sentinel,
        })
    }

    pub(super) fn field(&mut self) -> Result<Type, SignatureError> {
        self.expect(kind::FIELD, "field")?;
        self.one_type()
    }

    pub(super) fn locals(&mut self) -> Result<Vec<Type>, SignatureError> {
        self.expect(kind::LOCALS, "local variable")?;
        self.types()
    }

    pub(super) fn method_spec(&mut self) -> Result<Vec<Type>, SignatureError> {
        self.expect(kind::METHOD_SPEC, "method spec")?;
        self.types()
    }

    pub(super) fn property(&mut self) -> Result<PropertySignature, SignatureError> {
        let first = self.expect(kind::PROPERTY, "property")?;
        let count = self.reader.count()?;
        let value = self.one_type()?;
        let parameters = self.some_types(count)?;
        Ok(PropertySignature { has_this: first & kind::HAS_THIS != 0, value, parameters })
    }

    pub(super) fn type_spec(&mut self) -> Result<Type, SignatureError> {
        self.one_type()
    }

    fn expect(&mut self, kind: u8, wanted: &'static str) -> Result<u8, SignatureError> {
        let start = self.reader.offset();
        let found = self.reader.byte()?;
        if found & kind::MASK == kind {
            Ok(found)
        } else {
            Err(SignatureError::new(start, SignatureProblem::WrongKind { wanted, found }))
        }
    }

    /// A count and that many types.
    fn types(&mut self) -> Result<Vec<Type>, SignatureError> {
        let count = self.reader.count()?;
        self.some_types(count)
    }

    fn some_types(&mut self, count: usize) -> Result<Vec<Type>, SignatureError> {
        let mut types = Vec::with_capacity(count.min(FEW));
        for _ in 0..count {
            types.push(self.one_type()?);
        }
        Ok(types)
    }

    fn one_type(&mut self) -> Result<Type, SignatureError> {
        if self.depth >= MAX_DEPTH {
            return Err(SignatureError::new(self.reader.offset(), SignatureProblem::TooDeep));
        }
        self.depth += 1;
        // An error ends the whole decoding, so the depth need not be right after one.
        let decoded = self.element()?;
        self.depth -= 1;
        Ok(decoded)
    }

    fn boxed(&mut self) -> Result<Box<Type>, SignatureError> {
        self.one_type().map(Box::new)
    }

    fn element(&mut self) -> Result<Type, SignatureError> {
        let start = self.reader.offset();
        let byte = self.reader.byte()?;
        if let Some(primitive) = Primitive::from_element(byte) {
            return Ok(Type::Primitive(primitive));
        }
        Ok(match byte {
            element::PTR => Type::Pointer(self.boxed()?),
            element::BYREF => Type::ByRef(self.boxed()?),
            element::VALUETYPE => Type::ValueType(self.reader.type_token()?),
            element::CLASS => Type::Class(self.reader.type_token()?),
            element::VAR => Type::TypeParameter(self.reader.unsigned()?),
            element::MVAR => Type::MethodParameter(self.reader.unsigned()?),
            element::SZARRAY => Type::SzArray(self.boxed()?),
            element::ARRAY => Type::Array(self.boxed()?, self.shape()?),
            element::GENERICINST => self.generic()?,
            element::FNPTR => Type::FunctionPointer(Box::new(self.method()?)),
            element::CMOD_REQD | element::CMOD_OPT => Type::Modified {
                required: byte == element::CMOD_REQD,
                modifier: self.reader.type_token()?,
                inner: self.boxed()?,
            },
            element::PINNED => Type::Pinned(self.boxed()?),
            element::INTERNAL => Type::Internal(self.reader.pointer()?),
            element::CMOD_INTERNAL => Type::InternalModified {
                required: self.reader.byte()? != 0,
                modifier: self.reader.pointer()?,
                inner: self.boxed()?,
            },
            other => return Err(SignatureError::new(start, SignatureProblem::BadElement(other))),
        })
    }

    fn generic(&mut self) -> Result<Type, SignatureError> {
        let start = self.reader.offset();
        let value_type = match self.reader.byte()? {
            element::CLASS => false,
            element::VALUETYPE => true,
            other => return Err(SignatureError::new(start, SignatureProblem::BadElement(other))),
        };
        let definition = self.reader.type_token()?;
        let arguments = self.types()?;
        Ok(Type::Generic { value_type, definition, arguments })
    }

    fn shape(&mut self) -> Result<ArrayShape, SignatureError> {
        let start = self.reader.offset();
        let rank = self.reader.unsigned()?;
        if rank == 0 || rank > MAX_RANK {
            return Err(SignatureError::new(start, SignatureProblem::BadRank(rank)));
        }
        let sizes = self.reader.count()?;
        let sizes = (0..sizes).map(|_| self.reader.unsigned()).collect::<Result<_, _>>()?;
        let bounds = self.reader.count()?;
        let lower_bounds = (0..bounds).map(|_| self.reader.signed()).collect::<Result<_, _>>()?;
        Ok(ArrayShape { rank, sizes, lower_bounds })
    }
}
