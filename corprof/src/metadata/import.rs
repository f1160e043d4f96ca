//! [`MetadataImport`]: the runtime's reader of one module's metadata.
//!
//! Each method asks about one token and returns owned values, because the runtime's memory is freed with the module.
//! The questions are in the files beside this one, by subject; `IMetaDataImport2` itself is available through
//! [`MetadataImport::as_raw`].

use std::fmt;
use std::marker::PhantomData;

use corprof_sys as sys;
use windows_core::HRESULT;

use super::raw::{Loaded, Metadata};
use super::{Token, raw};
use crate::error::Result;
use crate::ffi::buffer::read_utf16;
use crate::session::liveness::Lifeline;

/// Reads the metadata of one module.
///
/// Get it from [`InNoGc::metadata`](crate::context::InNoGc::metadata). It reads the module's own memory, and so cannot
/// outlive its callback; getting it again is cheap.
///
/// ```
/// # use corprof::prelude::*;
/// /// The methods of a module's type that are marked as obsolete.
/// fn obsolete(cx: &InNoGc<'_>, module: ModuleId, type_name: &str) -> Result<Vec<String>> {
///     let metadata = cx.metadata(module)?;
///     let mut names = Vec::new();
///     if let Some(class) = metadata.find_type_def(type_name, None)? {
///         for method in metadata.methods(class)? {
///             if metadata.custom_attribute_named(method, "System.ObsoleteAttribute")?.is_some() {
///                 names.push(metadata.method(method)?.name);
///             }
///         }
///     }
///     Ok(names)
/// }
/// ```
pub struct MetadataImport<'cb> {
    metadata: Metadata<sys::IMetaDataImport2>,
    _cb: PhantomData<&'cb ()>,
}

// SAFETY: the runtime makes this object with `MDThreadSafetyOn` (GetMDPublicInterfaceFromInternal, coreclr/md/enc/
// mdinternalrw.cpp): every IMetaDataImport method takes the reader's side of its lock, which it shares with the writers
// of the same metadata, and the reference count is interlocked (RegMeta::AddRef). No part of it belongs to a thread
// (fact: blobs).
unsafe impl Send for MetadataImport<'_> {}
// SAFETY: as above.
unsafe impl Sync for MetadataImport<'_> {}

impl MetadataImport<'_> {
    pub(crate) fn new(raw: sys::IMetaDataImport2, module: Lifeline) -> Self {
        Self { metadata: Metadata { raw, module }, _cb: PhantomData }
    }

    /// The runtime's interface itself, for calls that have no safe form yet.
    ///
    /// # Safety
    /// Do not keep a copy: it reads the memory of the module.
    pub unsafe fn as_raw(&self) -> &sys::IMetaDataImport2 {
        &self.metadata.raw
    }

    /// The module's name from its compilation: usually its file's name.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    #[doc(alias = "GetScopeProps")]
    pub fn module_name(&self) -> Result<String> {
        let raw = self.raw()?;
        read_utf16("GetScopeProps", |start, room, count| {
            let mut mvid = windows_core::GUID::zeroed();
            // SAFETY: the call writes the local, the count, and at most `room` units of text, and keeps nothing
            // (fact: outputs).
            unsafe { raw.GetScopeProps(start, room, count, &mut mvid) }
        })
    }

    /// Whether the module has this token, and is still loaded.
    #[doc(alias = "IsValidToken")]
    pub fn is_valid_token(&self, token: impl Into<Token>) -> bool {
        // SAFETY: the call takes a number and gives one.
        self.raw().is_ok_and(|raw| unsafe { raw.IsValidToken(token.into().as_raw()) }.as_bool())
    }

    #[inline]
    pub(super) fn raw(&self) -> Result<Loaded<'_, sys::IMetaDataImport2>> {
        self.metadata.loaded()
    }

    /// All tokens of an enumeration of this very object: [`raw::tokens`] says what `list` must do. It may write the
    /// handle, the count, and at most as many tokens as there is room for.
    pub(super) fn tokens<T>(
        &self,
        call: &'static str,
        kind: impl Fn(u32) -> T,
        list: impl FnMut(*mut sys::HCORENUM, *mut u32, u32, *mut u32) -> HRESULT,
    ) -> Result<Vec<T>> {
        // SAFETY: the handle comes from an enumeration of this very object, and has no other user.
        raw::tokens(call, kind, list, |handle| unsafe { self.metadata.raw.CloseEnum(handle) })
    }
}

impl fmt::Debug for MetadataImport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataImport").finish_non_exhaustive()
    }
}
