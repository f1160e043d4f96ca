//! [`Scalar`]: values without parts, and how wide events write them.

/// A value without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool32,
    Bool8,
    Utf16Unit,
    Utf8Unit,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    Pointer,
    Guid,
    /// Sixteen bytes as described, eight as EventSources write it.
    Decimal,
    /// 100 ns since 1601.
    FileTime,
    Utf16Z,
    AnsiZ,
    /// UTF-8 after its length in 16 bits.
    Utf8Counted,
    VarInt,
    VarUInt,
    /// Four bytes that say where in the payload a value is.
    Location,
}

impl Scalar {
    /// How many bytes it takes, if they are always as many.
    pub(crate) fn size(self, is_64_bit: bool) -> Option<usize> {
        Some(match self {
            Self::Bool8 | Self::Utf8Unit | Self::I8 | Self::U8 => 1,
            Self::Utf16Unit | Self::I16 | Self::U16 => 2,
            Self::Bool32 | Self::I32 | Self::U32 | Self::F32 | Self::Location => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::FileTime => 8,
            Self::Guid | Self::Decimal => 16,
            Self::Pointer => {
                if is_64_bit {
                    8
                } else {
                    4
                }
            }
            Self::Utf16Z | Self::AnsiZ | Self::Utf8Counted | Self::VarInt | Self::VarUInt => return None,
        })
    }

    /// How many bytes it takes and whether it has a sign, if it is an integer that C# may convert to a wider one.
    pub(crate) fn convertible(self) -> Option<(usize, bool)> {
        match self {
            Self::U8 => Some((1, false)),
            Self::I8 => Some((1, true)),
            Self::U16 | Self::Utf16Unit => Some((2, false)),
            Self::I16 => Some((2, true)),
            Self::U32 => Some((4, false)),
            Self::I32 => Some((4, true)),
            _ => None,
        }
    }

    /// Whether its width is certain, whoever writes the event. A text may have NULs in it.
    pub(crate) fn has_certain_width(self) -> bool {
        let is_narrow = self.convertible().is_some_and(|(size, _)| size < 4);
        !is_narrow && !matches!(self, Self::Bool32 | Self::Decimal | Self::Utf16Z)
    }
}

/// How wide the values of an event are that describes itself. Descriptions do not say it, and EventSources write
/// several forms under one: [dotnet/runtime#119737](https://github.com/dotnet/runtime/issues/119737).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Widths {
    /// As EventSources with self-describing events write them: a bool has one byte, a decimal is an `f64`.
    SelfDescribing,
    /// As the description says, and as the other EventSources write them: a bool has four bytes.
    Described,
    /// As `WriteEvent(int, int, int)` and the like write them: C# makes an `int` of each smaller integer.
    AtLeast32,
    /// As `WriteEvent(long, long, long)` and the like write them.
    AtLeast64,
    /// None of these: values without a certain width cannot be read, nor those after them.
    Unknown,
}

impl Widths {
    /// In the order to try them in. The first goes before the second, because one byte read as four may swallow the
    /// text after it and fit, but four bytes read as one leave a rest.
    pub(crate) const KNOWN: [Self; 4] = [Self::SelfDescribing, Self::Described, Self::AtLeast32, Self::AtLeast64];

    /// The scalar that is written where the description has `scalar`.
    pub(crate) fn written(self, scalar: Scalar) -> Scalar {
        match (self, scalar) {
            (Self::SelfDescribing, Scalar::Bool32) => Scalar::Bool8,
            (Self::SelfDescribing, Scalar::Decimal) => Scalar::F64,
            _ => scalar,
        }
    }

    /// The least number of bytes of an integer.
    pub(crate) fn least(self) -> usize {
        match self {
            Self::SelfDescribing | Self::Described | Self::Unknown => 1,
            Self::AtLeast32 => 4,
            Self::AtLeast64 => 8,
        }
    }
}
