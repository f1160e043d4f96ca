//! The result of `get_assembly_references`.

use std::ffi::c_void;

use corprof_sys as sys;

use super::AssemblyReferenceProvider;
use crate::error::{E_INVALIDARG, Error, Result};

/// A reference from one assembly to another that a profiler will add to the metadata.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AssemblyReference<'a> {
    /// The simple name of the other assembly.
    pub name: &'a str,
    /// Its version: major, minor, build, revision.
    pub version: [u16; 4],
    /// Its culture; empty for a neutral one.
    pub culture: &'a str,
    /// Its public key, if the flags contain `afPublicKey`, otherwise the key's token; empty if it has none.
    pub public_key_or_token: &'a [u8],
    /// Its hash; may be empty.
    pub hash: &'a [u8],
    /// The flags of the reference.
    pub flags: sys::CorAssemblyFlags,
}

impl AssemblyReferenceProvider<'_> {
    /// Announces that the profiler will add `reference` to the callback's assembly.
    ///
    /// # Errors
    /// `E_INVALIDARG`: a part of the reference is too long for the wire, or the runtime refuses it.
    #[doc(alias = "AddAssemblyReference")]
    pub fn add_assembly_reference(self, reference: &AssemblyReference<'_>) -> Result<()> {
        const CALL: &str = "AddAssemblyReference";
        let size = |length: usize| u32::try_from(length).map_err(|_| Error::new(E_INVALIDARG, CALL));
        let blob = |bytes: &[u8]| -> *mut c_void {
            if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast() }
        };
        let utf16 = |text: &str| -> Vec<u16> { text.encode_utf16().chain([0]).collect() };
        let name = utf16(reference.name);
        let mut culture = utf16(reference.culture);
        let [major, minor, build, revision] = reference.version;
        let mut metadata = sys::ASSEMBLYMETADATA {
            usMajorVersion: major,
            usMinorVersion: minor,
            usBuildNumber: build,
            usRevisionNumber: revision,
            szLocale: culture.as_mut_ptr(),
            cbLocale: size(culture.len())?,
            rProcessor: std::ptr::null_mut(),
            ulProcessor: 0,
            rOS: std::ptr::null_mut(),
            ulOS: 0,
        };
        let info = sys::COR_PRF_ASSEMBLY_REFERENCE_INFO {
            pbPublicKeyOrToken: blob(reference.public_key_or_token),
            cbPublicKeyOrToken: size(reference.public_key_or_token.len())?,
            szName: name.as_ptr(),
            pMetaData: &mut metadata,
            pbHashValue: blob(reference.hash),
            cbHashValue: size(reference.hash.len())?,
            dwAssemblyRefFlags: reference.flags.bits(),
        };
        // SAFETY: all that `info` points to outlives the call, which copies the data that it keeps and writes to none
        // of it.
        let code = unsafe { self.as_raw().AddAssemblyReference(&info) };
        Error::check(code, CALL)
    }
}

#[cfg(test)]
mod tests {
    use windows_core::{HRESULT, IUnknown_Vtbl, Interface, Ref};

    use super::*;
    use crate::error::{E_FAIL, S_OK};
    use crate::session::wire;

    unsafe extern "system" fn query(
        _this: *mut c_void,
        _iid: *const windows_core::GUID,
        _out: *mut *mut c_void,
    ) -> HRESULT {
        E_FAIL
    }

    unsafe extern "system" fn count_reference(_this: *mut c_void) -> u32 {
        1
    }

    /// Succeeds if it receives the test's reference.
    unsafe extern "system" fn add(_this: *mut c_void, info: *const sys::COR_PRF_ASSEMBLY_REFERENCE_INFO) -> HRESULT {
        // SAFETY: the test passes a reference whose parts are alive, its texts with their NULs.
        let is_expected = unsafe {
            let info = &*info;
            let metadata = &*info.pMetaData;
            let token: &[u8] = wire::slice(info.cbPublicKeyOrToken, info.pbPublicKeyOrToken.cast());
            let name: &[u16] = wire::slice(7, info.szName);
            let culture: &[u16] = wire::slice(metadata.cbLocale, metadata.szLocale.cast_const());
            name == [0x48, 0x65, 0x6C, 0x70, 0x65, 0x72, 0]
                && culture == [0x64, 0x65, 0]
                && token == [1, 2, 3, 4, 5, 6, 7, 8]
                && (metadata.usMajorVersion, metadata.usRevisionNumber) == (1, 4)
                && info.pbHashValue.is_null()
                && info.cbHashValue == 0
        };
        if is_expected { S_OK } else { E_INVALIDARG }
    }

    #[test]
    fn a_reference_arrives_whole() {
        static VTABLE: sys::ICorProfilerAssemblyReferenceProvider_Vtbl =
            sys::ICorProfilerAssemblyReferenceProvider_Vtbl {
                base__: IUnknown_Vtbl { QueryInterface: query, AddRef: count_reference, Release: count_reference },
                AddAssemblyReference: add,
            };
        let object = &raw const VTABLE;
        // SAFETY: an interface pointer points at a pointer to its vtable, and this one outlives the test's use.
        let raw =
            unsafe { sys::ICorProfilerAssemblyReferenceProvider::from_raw((&raw const object).cast_mut().cast()) };
        let lent: Ref<'_, sys::ICorProfilerAssemblyReferenceProvider> = Ref::from(&raw);
        let provider = AssemblyReferenceProvider::new(&lent).unwrap();
        let mut reference = AssemblyReference {
            name: "Helper",
            version: [1, 2, 3, 4],
            culture: "de",
            public_key_or_token: &[1, 2, 3, 4, 5, 6, 7, 8],
            ..AssemblyReference::default()
        };
        assert_eq!(provider.add_assembly_reference(&reference), Ok(()));
        reference.name = "helper";
        assert_eq!(provider.add_assembly_reference(&reference).unwrap_err().code(), E_INVALIDARG);
    }
}
