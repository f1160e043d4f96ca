//! Writes signatures: the mirror of `decode`.

use super::decode::{MAX_DEPTH, element, kind};
use super::{ArrayShape, CallingConvention, MethodSignature, PropertySignature, Signature, Type};
use crate::token::TypeDefOrRef;

/// The largest compressed unsigned integer: 29 bits.
const MAX_UNSIGNED: u32 = 0x1fff_ffff;

/// A signature that no blob can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Types nested more deeply than [`MAX_DEPTH`], which the decoder would refuse.
    #[error("types are nested too deeply: {MAX_DEPTH} levels at most")]
    TooDeep,
    /// A number or a count beyond the 29 bits of a compressed integer.
    #[error("{0} does not fit into a compressed integer of 29 bits")]
    TooLarge(u64),
    /// A lower bound of an array beyond the 29 bits of a compressed signed integer.
    #[error("the lower bound {0} does not fit into a compressed signed integer of 29 bits")]
    BoundTooLarge(i32),
    /// A sentinel that stands before no parameter.
    #[error("the sentinel is before parameter {at}, and there are {parameters}")]
    BadSentinel {
        /// Where it should be.
        at: usize,
        /// The number of parameters.
        parameters: usize,
    },
}

type Result<T> = std::result::Result<T, EncodeError>;

impl Signature {
    /// The blob.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        match self {
            Self::Method(method) => method.encode(),
            Self::Field(ty) => ty.encode_field(),
            Self::Locals(types) => Type::encode_locals(types),
            Self::Property(property) => property.encode(),
            Self::MethodSpec(types) => Type::encode_method_spec(types),
        }
    }
}

impl MethodSignature {
    /// The blob.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(|encoder| encoder.method(self, 0))
    }
}

impl PropertySignature {
    /// The blob.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(|encoder| {
            encoder.bytes.push(kind::PROPERTY | if self.has_this { kind::HAS_THIS } else { 0 });
            encoder.count(self.parameters.len())?;
            encoder.one_type(&self.value, 0)?;
            encoder.types(&self.parameters, 0)
        })
    }
}

impl Type {
    /// The blob of a type spec, which is a bare type.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(|encoder| encoder.one_type(self, 0))
    }

    /// The blob of a field of this type.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode_field(&self) -> Result<Vec<u8>> {
        encode(|encoder| {
            encoder.bytes.push(kind::FIELD);
            encoder.one_type(self, 0)
        })
    }

    /// The blob of local variables of these types.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode_locals(types: &[Self]) -> Result<Vec<u8>> {
        encode(|encoder| encoder.list(kind::LOCALS, types))
    }

    /// The blob of a method spec with these generic arguments.
    ///
    /// # Errors
    /// If no blob can hold it: see [`EncodeError`].
    pub fn encode_method_spec(types: &[Self]) -> Result<Vec<u8>> {
        encode(|encoder| encoder.list(kind::METHOD_SPEC, types))
    }
}

impl CallingConvention {
    const fn low_nibble(self) -> u8 {
        match self {
            Self::Default => 0x0,
            Self::C => 0x1,
            Self::StdCall => 0x2,
            Self::ThisCall => 0x3,
            Self::FastCall => 0x4,
            Self::VarArg => 0x5,
            Self::Unmanaged => 0x9,
            Self::NativeVarArg => 0xb,
        }
    }
}

fn encode(write: impl FnOnce(&mut Encoder) -> Result<()>) -> Result<Vec<u8>> {
    let mut encoder = Encoder { bytes: Vec::new() };
    write(&mut encoder)?;
    Ok(encoder.bytes)
}

struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    fn unsigned(&mut self, value: u32) -> Result<()> {
        let [a, b, c, d] = value.to_be_bytes();
        match value {
            0..0x80 => self.bytes.push(d),
            0x80..0x4000 => self.bytes.extend([0x80 | c, d]),
            0x4000..=MAX_UNSIGNED => self.bytes.extend([0xc0 | a, b, c, d]),
            _ => return Err(EncodeError::TooLarge(value.into())),
        }
        Ok(())
    }

    /// A signed integer in the smallest of 7, 14 and 29 bits that holds it: the value shifted left, its sign lowest.
    fn signed(&mut self, value: i32) -> Result<()> {
        let sign = u32::from(value < 0);
        let shifted = (value.cast_unsigned() << 1) | sign;
        match value {
            -0x40..0x40 => self.bytes.push((shifted & 0x7f) as u8),
            -0x2000..0x2000 => self.bytes.extend((0x8000 | (shifted & 0x3fff) as u16).to_be_bytes()),
            -0x1000_0000..0x1000_0000 => {
                self.bytes.extend((0xc000_0000 | (shifted & MAX_UNSIGNED)).to_be_bytes());
            }
            _ => return Err(EncodeError::BoundTooLarge(value)),
        }
        Ok(())
    }

    fn count(&mut self, count: usize) -> Result<()> {
        self.unsigned(u32::try_from(count).map_err(|_| EncodeError::TooLarge(count as u64))?)
    }

    fn token(&mut self, token: TypeDefOrRef) -> Result<()> {
        let tag = match token {
            TypeDefOrRef::Def(_) => 0,
            TypeDefOrRef::Ref(_) => 1,
            TypeDefOrRef::Spec(_) => 2,
        };
        self.unsigned(token.token().row() << 2 | tag)
    }

    fn list(&mut self, kind: u8, types: &[Type]) -> Result<()> {
        self.bytes.push(kind);
        self.count(types.len())?;
        self.types(types, 0)
    }

    fn types(&mut self, types: &[Type], depth: usize) -> Result<()> {
        types.iter().try_for_each(|ty| self.one_type(ty, depth))
    }

    fn method(&mut self, method: &MethodSignature, depth: usize) -> Result<()> {
        let mut first = method.convention.low_nibble();
        for (flag, is_set) in [
            (kind::HAS_THIS, method.has_this),
            (kind::EXPLICIT_THIS, method.explicit_this),
            (kind::GENERIC, method.generic_parameters > 0),
        ] {
            first |= if is_set { flag } else { 0 };
        }
        self.bytes.push(first);
        if method.generic_parameters > 0 {
            self.unsigned(method.generic_parameters)?;
        }
        let parameters = method.parameters.len();
        if let Some(at) = method.sentinel.filter(|at| *at >= parameters) {
            return Err(EncodeError::BadSentinel { at, parameters });
        }
        self.count(parameters)?;
        self.one_type(&method.return_type, depth)?;
        for (at, parameter) in method.parameters.iter().enumerate() {
            if method.sentinel == Some(at) {
                self.bytes.push(element::SENTINEL);
            }
            self.one_type(parameter, depth)?;
        }
        Ok(())
    }

    fn one_type(&mut self, ty: &Type, depth: usize) -> Result<()> {
        if depth >= MAX_DEPTH {
            return Err(EncodeError::TooDeep);
        }
        let depth = depth + 1;
        match ty {
            Type::Primitive(primitive) => self.bytes.push(primitive.as_element()),
            Type::Class(token) => return self.named(element::CLASS, *token),
            Type::ValueType(token) => return self.named(element::VALUETYPE, *token),
            Type::Pointer(inner) => return self.around(element::PTR, inner, depth),
            Type::ByRef(inner) => return self.around(element::BYREF, inner, depth),
            Type::SzArray(inner) => return self.around(element::SZARRAY, inner, depth),
            Type::Pinned(inner) => return self.around(element::PINNED, inner, depth),
            Type::Array(inner, shape) => {
                self.around(element::ARRAY, inner, depth)?;
                self.shape(shape)?;
            }
            Type::Generic { value_type, definition, arguments } => {
                self.bytes.push(element::GENERICINST);
                self.named(if *value_type { element::VALUETYPE } else { element::CLASS }, *definition)?;
                self.count(arguments.len())?;
                self.types(arguments, depth)?;
            }
            Type::TypeParameter(number) => {
                self.bytes.push(element::VAR);
                self.unsigned(*number)?;
            }
            Type::MethodParameter(number) => {
                self.bytes.push(element::MVAR);
                self.unsigned(*number)?;
            }
            Type::FunctionPointer(method) => {
                self.bytes.push(element::FNPTR);
                self.method(method, depth)?;
            }
            Type::Modified { required, modifier, inner } => {
                self.named(if *required { element::CMOD_REQD } else { element::CMOD_OPT }, *modifier)?;
                self.one_type(inner, depth)?;
            }
            Type::Internal(handle) => {
                self.bytes.push(element::INTERNAL);
                self.bytes.extend(handle.to_ne_bytes());
            }
            Type::InternalModified { required, modifier, inner } => {
                self.bytes.extend([element::CMOD_INTERNAL, u8::from(*required)]);
                self.bytes.extend(modifier.to_ne_bytes());
                self.one_type(inner, depth)?;
            }
        }
        Ok(())
    }

    fn named(&mut self, element: u8, token: TypeDefOrRef) -> Result<()> {
        self.bytes.push(element);
        self.token(token)
    }

    fn around(&mut self, element: u8, inner: &Type, depth: usize) -> Result<()> {
        self.bytes.push(element);
        self.one_type(inner, depth)
    }

    fn shape(&mut self, shape: &ArrayShape) -> Result<()> {
        self.unsigned(shape.rank)?;
        self.count(shape.sizes.len())?;
        shape.sizes.iter().try_for_each(|size| self.unsigned(*size))?;
        self.count(shape.lower_bounds.len())?;
        shape.lower_bounds.iter().try_for_each(|bound| self.signed(*bound))
    }
}
