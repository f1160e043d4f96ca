//! Generic parameters and their constraints.

use corprof_sys as sys;

use super::import::MetadataImport;
use super::{GenericParam, GenericParamConstraint, Token};
use crate::error::{Error, Result};
use crate::ffi::buffer::read_utf16;

/// A generic parameter in the metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GenericParamProps {
    /// Its token.
    pub token: GenericParam,
    /// Its index, counted from 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Variance and special constraints.
    pub flags: sys::CorGenericParamAttr,
    /// The type or method that it belongs to.
    pub owner: Token,
}

impl MetadataImport<'_> {
    /// The generic parameters of a type or method that the module defines, in order. Those of a nested type include the
    /// parameters of its enclosing types.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumGenericParams")]
    pub fn generic_params(&self, owner: impl Into<Token>) -> Result<Vec<GenericParamProps>> {
        let raw = self.raw()?;
        let owner = owner.into().as_raw();
        let tokens = self.tokens("EnumGenericParams", GenericParam::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumGenericParams(handle, owner, start, room, count) }
        })?;
        let mut params = tokens.into_iter().map(|param| self.generic_param(param)).collect::<Result<Vec<_>>>()?;
        params.sort_by_key(|param| param.index);
        Ok(params)
    }

    /// The name, index and owner of a generic parameter.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetGenericParamProps")]
    pub fn generic_param(&self, param: GenericParam) -> Result<GenericParamProps> {
        let raw = self.raw()?;
        let mut index = 0;
        let mut flags = 0;
        let mut owner = 0;
        let mut reserved = 0;
        let name = read_utf16("GetGenericParamProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe {
                raw.GetGenericParamProps(
                    param.as_raw(),
                    &mut index,
                    &mut flags,
                    &mut owner,
                    &mut reserved,
                    start,
                    room,
                    count,
                )
            }
        })?;
        Ok(GenericParamProps {
            token: param,
            index,
            name,
            flags: sys::CorGenericParamAttr::from_bits_retain(flags),
            owner: Token::from_raw(owner),
        })
    }

    /// The types that the arguments of a generic parameter must derive from or implement.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumGenericParamConstraints")]
    #[doc(alias = "GetGenericParamConstraintProps")]
    pub fn generic_param_constraints(&self, param: GenericParam) -> Result<Vec<Token>> {
        let raw = self.raw()?;
        let rows = self.tokens(
            "EnumGenericParamConstraints",
            GenericParamConstraint::from_raw,
            |handle, start, room, count| {
                // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
                unsafe { raw.EnumGenericParamConstraints(handle, param.as_raw(), start, room, count) }
            },
        )?;
        let constraint = |row: GenericParamConstraint| {
            let mut of = 0;
            let mut constraint = 0;
            // SAFETY: the call writes the two locals and keeps nothing (fact: outputs).
            let code = unsafe { raw.GetGenericParamConstraintProps(row.as_raw(), &mut of, &mut constraint) };
            Error::check(code, "GetGenericParamConstraintProps")?;
            Ok(Token::from_raw(constraint))
        };
        rows.into_iter().map(constraint).collect()
    }
}
