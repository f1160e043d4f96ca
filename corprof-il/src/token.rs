//! Metadata tokens: a table in the top byte, a row in the other three.
//!
//! [`Token`] is any of them; the newtypes name one table each, so that a method cannot be asked for as a type. A token
//! means something only together with the module it came from, and dies with that module.

use std::fmt;

/// A metadata token of any table.
///
/// Lives as long as its module, and means nothing in another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Token(pub(crate) u32);

impl Token {
    /// The token with these 32 bits.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The 32 bits, as the runtime passes them.
    pub const fn as_raw(self) -> u32 {
        self.0
    }

    /// The kind of thing it names; `None` for a table that this crate does not know.
    pub fn table(self) -> Option<Table> {
        Table::from_byte(self.table_byte())
    }

    /// The row in its table, counted from one; 0 in a nil token.
    pub const fn row(self) -> u32 {
        self.0 & 0x00FF_FFFF
    }

    /// Whether it names nothing: each table has its own nil token, with row 0.
    pub const fn is_nil(self) -> bool {
        self.row() == 0
    }

    const fn table_byte(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.table() {
            Some(table) => write!(f, "{table:?}({self})"),
            None => write!(f, "Token({self})"),
        }
    }
}

/// A token that turned out to belong to another table than the one asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {found} is not a {wanted:?}")]
pub struct WrongTable {
    /// The table that was asked for.
    pub wanted: Table,
    /// The token that is not in it.
    pub found: Token,
}

macro_rules! tables {
    ($($(#[$doc:meta])+ $name:ident = $byte:literal,)+) => {
        /// The metadata tables that tokens point into.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Table {
            $($(#[$doc])+ $name,)+
        }

        impl Table {
            /// The table with this top byte.
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The top byte of its tokens.
            pub const fn as_byte(self) -> u8 {
                match self {
                    $(Self::$name => $byte,)+
                }
            }
        }

        $(
            $(#[$doc])+
            ///
            /// A token: it lives as long as its module, and means nothing in another one.
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[repr(transparent)]
            pub struct $name(pub(crate) u32);

            impl $name {
                /// The nil token of this table, which names nothing.
                pub const NIL: Self = Self(($byte as u32) << 24);

                /// The token with these 32 bits, as they came from the runtime; the table is not checked.
                pub const fn from_raw(raw: u32) -> Self {
                    Self(raw)
                }

                /// The 32 bits, as the runtime passes them.
                pub const fn as_raw(self) -> u32 {
                    self.0
                }

                /// The same token without its kind.
                pub const fn token(self) -> Token {
                    Token(self.0)
                }

                /// Whether it names nothing.
                pub const fn is_nil(self) -> bool {
                    self.token().is_nil()
                }
            }

            impl From<$name> for Token {
                fn from(token: $name) -> Token {
                    token.token()
                }
            }

            impl TryFrom<Token> for $name {
                type Error = WrongTable;

                fn try_from(token: Token) -> Result<Self, WrongTable> {
                    if token.table_byte() == $byte {
                        Ok(Self(token.0))
                    } else {
                        Err(WrongTable { wanted: Table::$name, found: token })
                    }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.token().fmt(f)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, concat!(stringify!($name), "({})"), self)
                }
            }
        )+
    };
}

tables! {
    /// The module itself.
    Module = 0x00,
    /// A type of another module or assembly, by name.
    TypeRef = 0x01,
    /// A type that this module defines.
    TypeDef = 0x02,
    /// A field that this module defines.
    FieldDef = 0x04,
    /// A method that this module defines.
    MethodDef = 0x06,
    /// A parameter of a method that this module defines.
    ParamDef = 0x08,
    /// "This type implements that interface."
    InterfaceImpl = 0x09,
    /// A method or field of another type, by name and signature.
    MemberRef = 0x0a,
    /// A custom attribute at something.
    CustomAttribute = 0x0c,
    /// A stand-alone signature: of local variables or of a `calli`.
    StandAloneSignature = 0x11,
    /// An event that this module defines.
    Event = 0x14,
    /// A property that this module defines.
    Property = 0x17,
    /// Another module, by name.
    ModuleRef = 0x1a,
    /// A type that only a signature can spell: an instantiation, an array, a pointer.
    TypeSpec = 0x1b,
    /// The assembly whose manifest this module carries.
    Assembly = 0x20,
    /// Another assembly, by name and version.
    AssemblyRef = 0x23,
    /// A file of a multi-module assembly.
    File = 0x26,
    /// A type of this assembly that lives elsewhere.
    ExportedType = 0x27,
    /// A generic parameter of a type or method.
    GenericParam = 0x2a,
    /// A generic method with its type arguments.
    MethodSpec = 0x2b,
    /// A constraint of a generic parameter.
    GenericParamConstraint = 0x2c,
    /// A literal string of the user-string heap.
    UserString = 0x70,
}

/// A type where signatures and metadata tables name one: defined here, elsewhere, or spelt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeDefOrRef {
    /// A type of this module.
    Def(TypeDef),
    /// A type of another module or assembly.
    Ref(TypeRef),
    /// A type that only a signature can spell.
    Spec(TypeSpec),
}

impl TypeDefOrRef {
    /// The token, whichever it is.
    pub const fn token(self) -> Token {
        match self {
            Self::Def(token) => token.token(),
            Self::Ref(token) => token.token(),
            Self::Spec(token) => token.token(),
        }
    }

    /// The token as one of the three; `None` for a nil token or another table's.
    pub fn from_token(token: Token) -> Option<Self> {
        if token.is_nil() {
            return None;
        }
        match token.table()? {
            Table::TypeDef => Some(Self::Def(TypeDef(token.0))),
            Table::TypeRef => Some(Self::Ref(TypeRef(token.0))),
            Table::TypeSpec => Some(Self::Spec(TypeSpec(token.0))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_splits_into_table_and_row() {
        let token = Token::from_raw(0x0600_0012);
        assert_eq!(token.table(), Some(Table::MethodDef));
        assert_eq!(token.row(), 0x12);
        assert!(!token.is_nil());
        assert_eq!(MethodDef::try_from(token), Ok(MethodDef(0x0600_0012)));
        assert_eq!(TypeDef::try_from(token), Err(WrongTable { wanted: Table::TypeDef, found: token }));
    }

    #[test]
    fn every_table_survives_its_byte() {
        for byte in 0..=u8::MAX {
            if let Some(table) = Table::from_byte(byte) {
                assert_eq!(table.as_byte(), byte);
            }
        }
    }

    #[test]
    fn each_table_has_a_nil_token() {
        assert!(MethodDef::NIL.is_nil());
        assert_eq!(TypeSpec::NIL.as_raw(), 0x1b00_0000);
        assert_eq!(TypeDefOrRef::from_token(TypeDef::NIL.token()), None);
        assert_eq!(TypeDefOrRef::from_token(Token(0x0100_0001)), Some(TypeDefOrRef::Ref(TypeRef(0x0100_0001))));
        assert_eq!(TypeDefOrRef::from_token(Token(0x0600_0001)), None);
    }

    #[test]
    fn tokens_print_as_hex() {
        assert_eq!(MethodDef(0x0600_0012).to_string(), "0x06000012");
        assert_eq!(format!("{:?}", TypeDef(0x0200_0003)), "TypeDef(0x02000003)");
        assert_eq!(format!("{:?}", Token(0x0200_0003)), "TypeDef(0x02000003)");
        assert_eq!(format!("{:?}", Token(0xee00_0003)), "Token(0xee000003)");
        assert_eq!(
            WrongTable { wanted: Table::TypeDef, found: Token(0x0600_0001) }.to_string(),
            "token 0x06000001 is not a TypeDef"
        );
    }
}
