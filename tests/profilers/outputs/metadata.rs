//! The calls of the metadata.

// SAFETY, of all calls here: the tokens are those of the module, which is loaded; the places are as the IDL has them.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the one reason for all of them is above")]

use std::ptr::null_mut;

use corprof::metadata::{MetadataImport, Token};
use corprof::prelude::*;
use corprof::sys;
use windows_core::Interface;

use super::marks::{Places, Report};

/// All rows that the program has of each kind, with those that belong to its types and methods.
#[derive(Default)]
struct Rows {
    types: Vec<u32>,
    methods: Vec<u32>,
    fields: Vec<u32>,
    params: Vec<u32>,
    properties: Vec<u32>,
    events: Vec<u32>,
    generic_params: Vec<u32>,
    interface_impls: Vec<u32>,
}

impl Rows {
    fn of(import: &MetadataImport<'_>) -> Result<Self> {
        let mut rows = Self::default();
        for class in import.type_defs()? {
            rows.types.push(class.as_raw());
            rows.fields.extend(import.fields(class)?.iter().map(|row| row.as_raw()));
            rows.properties.extend(import.properties(class)?.iter().map(|row| row.as_raw()));
            rows.events.extend(import.events(class)?.iter().map(|row| row.as_raw()));
            rows.interface_impls.extend(import.interface_impls(class)?.iter().map(|row| row.as_raw()));
            rows.generic_params.extend(import.generic_params(class)?.iter().map(|row| row.token.as_raw()));
            for method in import.methods(class)? {
                rows.methods.push(method.as_raw());
                rows.params.extend(import.params(method)?.iter().map(|row| row.as_raw()));
            }
        }
        Ok(rows)
    }
}

pub(super) fn ask(report: &mut Report, import: &MetadataImport<'_>) -> Result<()> {
    let rows = Rows::of(import)?;
    // SAFETY: the copy lives for this call only, in a callback, while the module is loaded.
    let raw = unsafe { import.as_raw() };
    ask_members(report, raw, &rows);
    ask_types(report, raw, &rows, import)?;
    ask_the_rest(report, raw, &rows, import)?;
    ask_assemblies(report, raw, import)?;
    enumerate(report, raw, &rows);
    Ok(())
}

fn ask_members(report: &mut Report, raw: &sys::IMetaDataImport2, rows: &Rows) {
    for &row in &rows.methods {
        report.list("GetMethodProps", |at, room, count, text| unsafe {
            raw.GetMethodProps(row, at.next(), text, room, count, at.next(), at.next(), at.next(), at.next(), at.next())
        });
        report.list("GetPinvokeMap", |at, room, count, text| unsafe {
            raw.GetPinvokeMap(row, at.next(), text, room, count, at.next())
        });
    }
    for &row in &rows.fields {
        report.list("GetFieldProps", |at, room, count, text| unsafe {
            raw.GetFieldProps(
                row,
                at.next(),
                text,
                room,
                count,
                at.next(),
                at.next(),
                at.next(),
                at.next(),
                at.next(),
                at.next(),
            )
        });
    }
    for &row in &rows.params {
        report.list("GetParamProps", |at, room, count, text| unsafe {
            raw.GetParamProps(row, at.next(), at.next(), text, room, count, at.next(), at.next(), at.next(), at.next())
        });
    }
    for &row in &rows.properties {
        report.list("GetPropertyProps", |at, room, count, text| unsafe {
            let class = at.next();
            let flags = at.next();
            let blob = at.next();
            let size = at.next();
            let element = at.next();
            let value = at.next();
            let units = at.next();
            let setter = at.next();
            let getter = at.next();
            let others = at.next();
            raw.GetPropertyProps(
                row,
                class,
                text,
                room,
                count,
                flags,
                blob,
                size,
                element,
                value,
                units,
                setter,
                getter,
                null_mut(),
                0,
                others,
            )
        });
    }
    for &row in &rows.events {
        report.list("GetEventProps", |at, room, count, text| unsafe {
            let class = at.next();
            let flags = at.next();
            let handler = at.next();
            let add = at.next();
            let remove = at.next();
            let fire = at.next();
            let others = at.next();
            raw.GetEventProps(row, class, text, room, count, flags, handler, add, remove, fire, null_mut(), 0, others)
        });
    }
}

fn ask_types(report: &mut Report, raw: &sys::IMetaDataImport2, rows: &Rows, import: &MetadataImport<'_>) -> Result<()> {
    for &row in &rows.types {
        report.list("GetTypeDefProps", |at, room, count, text| unsafe {
            raw.GetTypeDefProps(row, text, room, count, at.next(), at.next())
        });
        report.single("GetNestedClassProps", |at| unsafe { raw.GetNestedClassProps(row, at.next()) });
    }
    for row in import.type_refs()? {
        report.list("GetTypeRefProps", |at, room, count, text| unsafe {
            raw.GetTypeRefProps(row.as_raw(), at.next(), text, room, count)
        });
    }
    for row in import.type_specs()? {
        report.single("GetTypeSpecFromToken", |at| unsafe {
            raw.GetTypeSpecFromToken(row.as_raw(), at.next(), at.next())
        });
    }
    for &row in &rows.interface_impls {
        report.single("GetInterfaceImplProps", |at| unsafe { raw.GetInterfaceImplProps(row, at.next(), at.next()) });
    }
    for &row in &rows.generic_params {
        report.list("GetGenericParamProps", |at, room, count, text| unsafe {
            raw.GetGenericParamProps(row, at.next(), at.next(), at.next(), at.next(), text, room, count)
        });
    }
    let name: Vec<u16> = "Facts.Base\0".encode_utf16().collect();
    report.single("FindTypeDefByName", |at| unsafe { raw.FindTypeDefByName(name.as_ptr(), 0, at.next()) });
    if let Some(row) = import.type_refs()?.first() {
        let props = import.type_ref(*row)?;
        let name: Vec<u16> = props.name.encode_utf16().chain([0]).collect();
        report.single("FindTypeRef", |at| unsafe { raw.FindTypeRef(props.scope.as_raw(), name.as_ptr(), at.next()) });
    }
    Ok(())
}

fn ask_the_rest(
    report: &mut Report,
    raw: &sys::IMetaDataImport2,
    rows: &Rows,
    import: &MetadataImport<'_>,
) -> Result<()> {
    report.list("GetScopeProps", |_, room, count, text| unsafe {
        let mut mvid = windows_core::GUID::zeroed();
        raw.GetScopeProps(text, room, count, &mut mvid)
    });
    report.single("GetModuleFromScope", |at| unsafe { raw.GetModuleFromScope(at.next()) });
    for row in import.type_refs()?.iter().flat_map(|&parent| import.member_refs(parent)).flatten() {
        report.list("GetMemberRefProps", |at, room, count, text| unsafe {
            raw.GetMemberRefProps(row.as_raw(), at.next(), text, room, count, at.next(), at.next())
        });
    }
    for row in import.method_specs()? {
        report.single("GetMethodSpecProps", |at| unsafe {
            raw.GetMethodSpecProps(row.as_raw(), at.next(), at.next(), at.next())
        });
    }
    for row in import.module_refs()? {
        report.list("GetModuleRefProps", |_, room, count, text| unsafe {
            raw.GetModuleRefProps(row.as_raw(), text, room, count)
        });
    }
    for row in import.user_strings()? {
        report.list("GetUserString", |_, room, count, text| unsafe {
            raw.GetUserString(row.as_raw(), text, room, count)
        });
    }
    for row in import.signatures()? {
        report.single("GetSigFromToken", |at| unsafe { raw.GetSigFromToken(row.as_raw(), at.next(), at.next()) });
    }
    let marker: Vec<u16> = "Facts.MarkerAttribute\0".encode_utf16().collect();
    for &row in rows.fields.iter().chain(&rows.methods) {
        report.single("GetCustomAttributeByName", |at| unsafe {
            raw.GetCustomAttributeByName(row, marker.as_ptr(), at.next(), at.next())
        });
        for attribute in import.custom_attributes(Token::from_raw(row))? {
            report.single("GetCustomAttributeProps", |at| unsafe {
                raw.GetCustomAttributeProps(attribute.as_raw(), at.next(), at.next(), at.next(), at.next())
            });
        }
    }
    Ok(())
}

/// The culture has a buffer of its own inside the data.
const NO_DATA: sys::ASSEMBLYMETADATA = sys::ASSEMBLYMETADATA {
    usMajorVersion: 0,
    usMinorVersion: 0,
    usBuildNumber: 0,
    usRevisionNumber: 0,
    szLocale: null_mut(),
    cbLocale: 0,
    rProcessor: null_mut(),
    ulProcessor: 0,
    rOS: null_mut(),
    ulOS: 0,
};

fn ask_assemblies(report: &mut Report, raw: &sys::IMetaDataImport2, import: &MetadataImport<'_>) -> Result<()> {
    let Ok(raw) = raw.cast::<sys::IMetaDataAssemblyImport>() else { return Ok(()) };
    report.single("GetAssemblyFromScope", |at| unsafe { raw.GetAssemblyFromScope(at.next()) });
    if let Some(assembly) = import.assembly()? {
        report.list("GetAssemblyProps", |at, room, count, text| unsafe {
            let mut data = NO_DATA;
            let key = at.next();
            let size = at.next();
            let hash = at.next();
            let flags = at.next();
            raw.GetAssemblyProps(assembly.as_raw(), key, size, hash, text, room, count, &mut data, flags)
        });
    }
    for row in import.assembly_refs()? {
        let ask = |at: &Places, text, room, count, data: *mut sys::ASSEMBLYMETADATA| unsafe {
            let key = at.next();
            let size = at.next();
            let hash = at.next();
            let hash_size = at.next();
            let flags = at.next();
            raw.GetAssemblyRefProps(row.as_raw(), key, size, text, room, count, data, hash, hash_size, flags)
        };
        report.list("GetAssemblyRefProps", |at, room, count, text| {
            let mut data = NO_DATA;
            ask(at, text, room, count, &mut data)
        });
        report.list("GetAssemblyRefProps of the culture", |at, room, count, text| {
            let mut data = sys::ASSEMBLYMETADATA { szLocale: text, cbLocale: room, ..NO_DATA };
            let code = ask(at, null_mut(), 0, &mut 0, &mut data);
            unsafe { *count = data.cbLocale };
            code
        });
    }
    Ok(())
}

fn enumerate(report: &mut Report, raw: &sys::IMetaDataImport2, rows: &Rows) {
    macro_rules! all {
        ($($call:ident($($parent:expr)?);)*) => { $(
            report.list(stringify!($call), |_, room, count, tokens| unsafe {
                let mut handle = null_mut();
                let code = raw.$call(&mut handle, $($parent,)? tokens, room, count);
                raw.CloseEnum(handle);
                code
            });
        )* };
    }
    all! {
        EnumTypeDefs();
        EnumTypeRefs();
        EnumTypeSpecs();
        EnumModuleRefs();
        EnumUserStrings();
        EnumSignatures();
        EnumMethodSpecs(0);
    }
    for &class in &rows.types {
        all! {
            EnumMethods(class);
            EnumFields(class);
            EnumProperties(class);
            EnumEvents(class);
            EnumInterfaceImpls(class);
            EnumGenericParams(class);
        }
    }
    for &method in &rows.methods {
        all! { EnumParams(method); }
    }
    for &param in &rows.generic_params {
        all! { EnumGenericParamConstraints(param); }
    }
}
