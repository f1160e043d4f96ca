//! Custom attributes.

use super::import::MetadataImport;
use super::raw::{Blob, wide};
use super::{CustomAttribute, Token};
use crate::error::{Error, Result, S_FALSE};

/// A custom attribute in the metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CustomAttributeProps {
    /// The row that it is attached to.
    pub owner: Token,
    /// Its constructor, which names its type: a [`MethodDef`](super::MethodDef) or a [`MemberRef`](super::MemberRef).
    pub constructor: Token,
    /// The constructor's arguments and the named ones, encoded as ECMA-335 II.23.3 says.
    pub value: Vec<u8>,
}

impl MetadataImport<'_> {
    /// The custom attributes of `owner`, which may be a row of nearly any table, including the assembly.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumCustomAttributes")]
    pub fn custom_attributes(&self, owner: impl Into<Token>) -> Result<Vec<CustomAttribute>> {
        let raw = self.raw()?;
        let owner = owner.into().as_raw();
        self.tokens("EnumCustomAttributes", CustomAttribute::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle. The nil token stands for all types.
            unsafe { raw.EnumCustomAttributes(handle, owner, 0, start, room, count) }
        })
    }

    /// The owner, constructor and value of a custom attribute.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetCustomAttributeProps")]
    pub fn custom_attribute(&self, attribute: CustomAttribute) -> Result<CustomAttributeProps> {
        let raw = self.raw()?;
        let mut owner = 0;
        let mut constructor = 0;
        let mut start = std::ptr::null();
        let mut size = 0;
        // SAFETY: the call writes the four locals and keeps nothing (fact: outputs).
        let code = unsafe {
            let owner = &mut owner;
            let constructor = &mut constructor;
            raw.GetCustomAttributeProps(attribute.as_raw(), owner, constructor, &mut start, &mut size)
        };
        Error::check(code, "GetCustomAttributeProps")?;
        let blob = Blob { start: start.cast(), size };
        Ok(CustomAttributeProps {
            owner: Token::from_raw(owner),
            constructor: Token::from_raw(constructor),
            // SAFETY: the call that succeeded just now filled it in, and the module is still loaded.
            value: unsafe { blob.copy() },
        })
    }

    /// The value of `owner`'s custom attribute with this full type name; none if it has none. If there are several, one
    /// of them.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have, or a name that has a NUL inside or
    /// is too long.
    #[doc(alias = "GetCustomAttributeByName")]
    pub fn custom_attribute_named(&self, owner: impl Into<Token>, type_name: &str) -> Result<Option<Vec<u8>>> {
        let raw = self.raw()?;
        const CALL: &str = "GetCustomAttributeByName";
        let name = wide(CALL, type_name)?;
        let mut start = std::ptr::null();
        let mut size = 0;
        // SAFETY: the name ends with a NUL; the call writes the two locals and keeps nothing (fact: inputs, outputs).
        let code = unsafe { raw.GetCustomAttributeByName(owner.into().as_raw(), name.as_ptr(), &mut start, &mut size) };
        Error::check(code, CALL)?;
        if code == S_FALSE {
            return Ok(None);
        }
        // SAFETY: the call that succeeded just now filled it in, and the module is still loaded.
        Ok(Some(unsafe { Blob { start: start.cast(), size }.copy() }))
    }
}
