//! The figures in `oracle/`, read.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use windows_core::GUID;

/// Reads a file of `oracle/`.
pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A GUID in its usual form.
pub(crate) fn guid(text: &str) -> GUID {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    GUID::from_u128(u128::from_str_radix(&digits, 16).expect("a GUID"))
}

#[derive(Deserialize)]
pub(crate) struct Vtables {
    pub(crate) interfaces: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
pub(crate) struct LayoutFile {
    pub(crate) constants: BTreeMap<String, i64>,
    pub(crate) structs: BTreeMap<String, Struct>,
}

#[derive(Deserialize)]
pub(crate) struct Struct {
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) fields: BTreeMap<String, Field>,
}

#[derive(Deserialize)]
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

#[derive(Deserialize)]
pub(crate) struct Windows {
    pub(crate) interfaces: BTreeMap<String, WindowsInterface>,
    pub(crate) constants: BTreeMap<String, i64>,
    pub(crate) hresults: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
pub(crate) struct WindowsInterface {
    pub(crate) iid: String,
    pub(crate) parent: Option<String>,
    pub(crate) methods: Vec<(String, Vec<usize>)>,
}

#[derive(Deserialize)]
pub(crate) struct Idl {
    pub(crate) iids: BTreeMap<String, String>,
    pub(crate) codes: BTreeMap<String, u32>,
    pub(crate) constants: BTreeMap<String, i64>,
}

/// Where the Windows metadata is of another age than the headers: name, its value, why.
pub(crate) const OTHER_AGE: [(&str, u32, &str); 3] = [
    ("miUserMask", 0x15FC, "has miSecurityMitigations, has no miAggressiveOptimization"),
    ("gpSpecialConstraintMask", 0x1C, "has no gpAllowByRefLike"),
    ("ofReserved", 0xFFFF_E740, "has ofCheckIntegrity"),
];
