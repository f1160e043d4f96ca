//! The results of a fake module's metadata: the methods that corprof's own reader calls, and those to look types up.

#![allow(non_snake_case, reason = "methods have their names in the IDL")]

use corprof_sys as sys;
use windows_core::{GUID, HRESULT};

use crate::error::{E_INVALIDARG, S_FALSE, S_OK};
use crate::generated::fake_metadata::ImportAnswers;
use crate::metadata::Table;

use super::com::ImportFace;
use super::metadata::{Metadata, row};
use super::out::{code, put, put_list, put_text};

type Answer<T> = Result<T, HRESULT>;

/// The address of every method's body.
const BODY: u32 = 0x2050;

impl ImportFace {
    /// Reads the module's tables.
    fn ask<T>(&self, question: impl FnOnce(&Metadata) -> Option<T>) -> Answer<T> {
        let world = self.runtime.world();
        let module = world.modules.get(&self.module).ok_or(E_INVALIDARG)?;
        question(&module.metadata).ok_or(sys::CLDB_E_RECORD_NOTFOUND)
    }

    /// Makes one call of an enumeration. Its handle is the number of tokens that it has returned, plus one.
    ///
    /// # Safety
    /// As [`put_list`]; `handle` is null or points at a handle of the same enumeration, which may be null.
    unsafe fn enumerate(
        tokens: &[u32],
        handle: *mut sys::HCORENUM,
        room: u32,
        count: *mut u32,
        start: *mut u32,
    ) -> HRESULT {
        if handle.is_null() {
            return E_INVALIDARG;
        }
        // SAFETY: not null; the rest is the caller's promise.
        unsafe {
            let given = (*handle).addr().saturating_sub(1);
            let rest = tokens.get(given..).unwrap_or_default();
            let now = rest.get(..room as usize).unwrap_or(rest);
            put_list(now, room, count, start);
            handle.write(std::ptr::without_provenance_mut(given + now.len() + 1));
            if now.is_empty() { S_FALSE } else { S_OK }
        }
    }
}

impl ImportAnswers for ImportFace {
    /// A handle is a number: closing does nothing.
    unsafe fn CloseEnum(&self, _handle: sys::HCORENUM) {}

    unsafe fn GetScopeProps(&self, name: *mut u16, room: u32, count: *mut u32, mvid: *mut GUID) -> HRESULT {
        // SAFETY: the trait's promise.
        code(self.ask(|tables| Some(tables.name.clone())).map(|found| unsafe {
            put_text(&found, room, count, name);
            put(mvid, GUID::from_u128(self.module as u128));
        }))
    }

    unsafe fn EnumTypeDefs(&self, handle: *mut sys::HCORENUM, tokens: *mut u32, room: u32, count: *mut u32) -> HRESULT {
        // Like a runtime, without the type that every module has.
        let all = self.ask(|tables| Some((2..=tables.types.len() as u32).map(|row| 0x0200_0000 | row).collect()));
        let all: Vec<u32> = all.unwrap_or_default();
        // SAFETY: the trait's promise.
        unsafe { Self::enumerate(&all, handle, room, count, tokens) }
    }

    unsafe fn EnumMethods(
        &self,
        handle: *mut sys::HCORENUM,
        class: u32,
        tokens: *mut u32,
        room: u32,
        count: *mut u32,
    ) -> HRESULT {
        let all = self.ask(|tables| {
            let of_class = (1_u32..).zip(&tables.methods).filter(|(_, method)| method.class == class);
            Some(of_class.map(|(row, _)| 0x0600_0000 | row).collect())
        });
        let all: Vec<u32> = all.unwrap_or_default();
        // SAFETY: the trait's promise.
        unsafe { Self::enumerate(&all, handle, room, count, tokens) }
    }

    unsafe fn FindTypeDefByName(&self, name: *const u16, enclosing: u32, token: *mut u32) -> HRESULT {
        // SAFETY: the trait's promise.
        let name = unsafe { crate::session::wire::utf16_z(name) };
        // A nil token of any table means that the type is not nested.
        let outer = if enclosing & 0x00FF_FFFF == 0 { 0 } else { enclosing };
        let found = self.ask(|tables| {
            let mut rows = (1_u32..).zip(&tables.types);
            rows.find(|(_, row)| row.name == name && row.enclosing == outer).map(|(row, _)| 0x0200_0000 | row)
        });
        // SAFETY: the trait's promise.
        code(found.map(|found| unsafe { put(token, found) }))
    }

    unsafe fn GetTypeDefProps(
        &self,
        token: u32,
        name: *mut u16,
        room: u32,
        count: *mut u32,
        flags: *mut u32,
        extends: *mut u32,
    ) -> HRESULT {
        let found = self.ask(|tables| {
            let row = row(&tables.types, Table::TypeDef, token)?;
            Some((row.name.clone(), if row.enclosing == 0 { sys::tdPublic } else { sys::tdNestedPublic }))
        });
        // SAFETY: the trait's promise.
        code(found.map(|(text, visibility)| unsafe {
            put_text(&text, room, count, name);
            put(flags, visibility.bits());
            // A nil reference: the base type is not modelled.
            put(extends, 0x0100_0000);
        }))
    }

    unsafe fn GetNestedClassProps(&self, nested: u32, enclosing: *mut u32) -> HRESULT {
        let found = self.ask(|tables| {
            let row = row(&tables.types, Table::TypeDef, nested)?;
            (row.enclosing != 0).then_some(row.enclosing)
        });
        // SAFETY: the trait's promise.
        code(found.map(|found| unsafe { put(enclosing, found) }))
    }

    unsafe fn GetTypeRefProps(
        &self,
        token: u32,
        scope: *mut u32,
        name: *mut u16,
        room: u32,
        count: *mut u32,
    ) -> HRESULT {
        let found =
            self.ask(|tables| row(&tables.type_refs, Table::TypeRef, token).map(|row| (row.scope, row.name.clone())));
        // SAFETY: the trait's promise.
        code(found.map(|(of, text)| unsafe {
            put(scope, of);
            put_text(&text, room, count, name);
        }))
    }

    unsafe fn GetMethodProps(
        &self,
        token: u32,
        class: *mut u32,
        name: *mut u16,
        room: u32,
        count: *mut u32,
        flags: *mut u32,
        signature: *mut sys::PCCOR_SIGNATURE,
        signature_size: *mut u32,
        body: *mut u32,
        impl_flags: *mut u32,
    ) -> HRESULT {
        let found = self.ask(|tables| {
            let row = row(&tables.methods, Table::MethodDef, token)?;
            // The bytes do not move as long as the fake CLR lives.
            let blob = (row.signature.as_ptr(), row.signature.len() as u32);
            Some((row.class, row.name.clone(), row.is_static, blob))
        });
        // SAFETY: the trait's promise.
        code(found.map(|(of, text, is_static, blob)| unsafe {
            put(class, of);
            put_text(&text, room, count, name);
            let kind = if is_static { sys::mdStatic } else { sys::CorMethodAttr::empty() };
            put(flags, (sys::mdPublic | kind).bits());
            put(signature, blob.0);
            put(signature_size, blob.1);
            put(body, BODY);
            put(impl_flags, 0);
        }))
    }

    unsafe fn EnumGenericParams(
        &self,
        handle: *mut sys::HCORENUM,
        owner: u32,
        tokens: *mut u32,
        room: u32,
        count: *mut u32,
    ) -> HRESULT {
        let all = self.ask(|tables| Some(tables.params_of(owner))).unwrap_or_default();
        // SAFETY: the trait's promise.
        unsafe { Self::enumerate(&all, handle, room, count, tokens) }
    }

    unsafe fn GetGenericParamProps(
        &self,
        token: u32,
        index: *mut u32,
        flags: *mut u32,
        owner: *mut u32,
        _reserved: *mut u32,
        name: *mut u16,
        room: u32,
        count: *mut u32,
    ) -> HRESULT {
        let found = self.ask(|tables| {
            let row = row(&tables.generic_params, Table::GenericParam, token)?;
            Some((row.index, row.owner, row.name.clone()))
        });
        // SAFETY: the trait's promise.
        code(found.map(|(at, of, text)| unsafe {
            put(index, at);
            put(flags, 0);
            put(owner, of);
            put_text(&text, room, count, name);
        }))
    }
}
