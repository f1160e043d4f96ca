//! Literal strings and stand-alone signatures, to which only instructions refer.

use super::import::MetadataImport;
use super::raw::Blob;
use super::{StandAloneSignature, UserString};
use crate::error::{Error, Result};
use crate::ffi::buffer::read_list;

impl MetadataImport<'_> {
    /// The literal strings of the module (`ldstr`).
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumUserStrings")]
    pub fn user_strings(&self) -> Result<Vec<UserString>> {
        let raw = self.raw()?;
        self.tokens("EnumUserStrings", UserString::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumUserStrings(handle, start, room, count) }
        })
    }

    /// A literal string. An unpaired surrogate becomes U+FFFD: [`user_string_units`](Self::user_string_units) keeps it.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetUserString")]
    pub fn user_string(&self, string: UserString) -> Result<String> {
        Ok(String::from_utf16_lossy(&self.user_string_units(string)?))
    }

    /// A literal string as UTF-16 units, which may be ill-formed.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetUserString")]
    pub fn user_string_units(&self, string: UserString) -> Result<Vec<u16>> {
        let raw = self.raw()?;
        // It does not end with a NUL, and may contain some.
        read_list("GetUserString", |room, count, start| {
            // SAFETY: the call writes the count and at most `room` units, and keeps nothing (fact: outputs).
            unsafe { raw.GetUserString(string.as_raw(), start, room, count) }
        })
    }

    /// The stand-alone signatures: of methods' local variables and of `calli` instructions.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "EnumSignatures")]
    pub fn signatures(&self) -> Result<Vec<StandAloneSignature>> {
        let raw = self.raw()?;
        self.tokens("EnumSignatures", StandAloneSignature::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumSignatures(handle, start, room, count) }
        })
    }

    /// A stand-alone signature: see [`Signature::decode`](super::signature::Signature::decode).
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetSigFromToken")]
    pub fn signature(&self, signature: StandAloneSignature) -> Result<Vec<u8>> {
        let raw = self.raw()?;
        let mut blob = Blob::default();
        // SAFETY: the call writes the two halves of the blob and keeps nothing (fact: outputs).
        let code = unsafe { raw.GetSigFromToken(signature.as_raw(), &mut blob.start, &mut blob.size) };
        Error::check(code, "GetSigFromToken")?;
        // SAFETY: the successful call above has filled it in, and the module is still loaded.
        Ok(unsafe { blob.copy() })
    }
}
