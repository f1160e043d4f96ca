//! The binary interface against figures that others made.
//!
//! `generated/layout.rs` asks the compiler for the layouts in `corprof-sys`; `oracle/` has the expected ones:
//! `vtables.json` and `layout.json` come from MIDL and a C++ compiler, `windows.json` from Microsoft's Windows
//! metadata, `idl.json` from a second reading of the IDL. Names are compared both ways, so that nothing is skipped
//! because it is missing.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

#[path = "generated/layout.rs"]
#[rustfmt::skip]
mod layout;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use corprof_sys::{HRESULT_NAMES, hresult_name};
use layout::{CONSTANTS, IIDS, RECORDS, SLOTS};
use support::{Idl, LayoutFile, Vtables, Windows, guid, read};
use windows_core::HRESULT;

/// The interfaces of corprof.idl.
fn is_corprof(name: &str) -> bool {
    name.starts_with("ICorProfiler") || name == "IMethodMalloc"
}

fn own_methods(name: &str) -> Vec<&'static str> {
    let row = SLOTS.iter().find(|row| row.0 == name);
    row.unwrap_or_else(|| panic!("{name} is not declared")).4.iter().map(|method| method.0).collect()
}

/// All slots of an interface by name, found by walking up to `IUnknown`.
fn slots(name: &str) -> Vec<&'static str> {
    if name == "IUnknown" {
        return vec!["QueryInterface", "AddRef", "Release"];
    }
    let parent = SLOTS.iter().find(|row| row.0 == name).unwrap_or_else(|| panic!("{name} is not declared")).1;
    let mut all = slots(parent);
    all.extend(own_methods(name));
    all
}

#[test]
fn unknown_has_the_first_three_slots() {
    use std::mem::{offset_of, size_of};
    use windows_core::IUnknown_Vtbl;
    let pointer = size_of::<usize>();
    assert_eq!(offset_of!(IUnknown_Vtbl, QueryInterface), 0);
    assert_eq!(offset_of!(IUnknown_Vtbl, AddRef), pointer);
    assert_eq!(offset_of!(IUnknown_Vtbl, Release), 2 * pointer);
    assert_eq!(size_of::<IUnknown_Vtbl>(), 3 * pointer);
}

#[test]
fn methods_stand_where_their_order_says() {
    let pointer = size_of::<usize>();
    for (name, parent, base, size, methods) in SLOTS {
        let first = slots(parent).len();
        assert_eq!(*base, 0, "{name} does not start with the vtable of {parent}");
        assert_eq!(*size, (first + methods.len()) * pointer, "size of the vtable of {name}");
        for (index, (method, offset, _)) in methods.iter().enumerate() {
            assert_eq!(*offset, (first + index) * pointer, "{name}::{method}");
        }
    }
}

#[test]
fn vtables_are_those_of_midl() {
    let oracle: Vtables = read("vtables.json");
    let ours: BTreeSet<&str> = SLOTS.iter().map(|row| row.0).filter(|name| is_corprof(name)).collect();
    let theirs: BTreeSet<&str> = oracle.interfaces.keys().map(String::as_str).collect();
    assert_eq!(ours, theirs);
    assert_eq!(theirs.len(), 34);
    for (name, expected) in &oracle.interfaces {
        assert_eq!(&slots(name), expected, "{name}");
    }
}

#[test]
fn interfaces_are_those_of_the_windows_metadata() {
    let windows: Windows = read("windows.json");
    let ours: BTreeSet<&str> = SLOTS.iter().map(|row| row.0).collect();
    let theirs: BTreeSet<&str> = windows.interfaces.keys().map(String::as_str).collect();
    // It is older than the last Info; it has two interfaces that are not part of this API.
    assert_eq!(ours.difference(&theirs).copied().collect::<Vec<_>>(), ["ICorProfilerInfo15"]);
    assert_eq!(theirs.difference(&ours).copied().collect::<Vec<_>>(), ["ICeeGen", "IMetaDataWinMDImport"]);
    for (name, parent, _, _, methods) in SLOTS.iter().filter(|row| theirs.contains(row.0)) {
        let expected = &windows.interfaces[*name];
        assert_eq!(expected.parent.as_deref(), Some(*parent), "{name}");
        // A macro of the Windows headers has renamed this one.
        let unmacro = |name| if name == "GetEnvironmentVariableA" { "GetEnvironmentVariable" } else { name };
        let names: Vec<&str> = expected.methods.iter().map(|method| unmacro(method.0.as_str())).collect();
        assert_eq!(own_methods(name), names, "{name}");
        let iid = IIDS.iter().find(|row| row.0 == *name).map(|row| row.1);
        assert_eq!(iid, Some(guid(&expected.iid)), "{name}");
        if cfg!(target_pointer_width = "64") {
            for ((method, _, sizes), expected) in methods.iter().zip(&expected.methods) {
                compare_sizes(&format!("{name}::{method}"), sizes, &expected.1);
            }
        }
    }
}

/// 0 stands for a structure that is passed by value.
fn compare_sizes(method: &str, ours: &[usize], theirs: &[usize]) {
    assert_eq!(ours.len(), theirs.len(), "number of arguments of {method}");
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!(ours == theirs || *theirs == 0, "argument {index} of {method}: {ours}, but should be {theirs}");
    }
}

#[test]
fn iids_and_codes_are_those_of_a_second_reading() {
    let idl: Idl = read("idl.json");
    let ours: BTreeMap<&str, windows_core::GUID> =
        IIDS.iter().filter(|row| row.0 != "IClassFactory").copied().collect();
    let theirs: BTreeMap<&str, windows_core::GUID> =
        idl.iids.iter().map(|(name, iid)| (name.as_str(), guid(iid))).collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 50);
    let ours: BTreeMap<&str, u32> = HRESULT_NAMES
        .iter()
        .filter(|(_, name)| name.starts_with("CORPROF_E_"))
        .map(|(code, name)| (*name, code.0 as u32))
        .collect();
    let theirs: BTreeMap<&str, u32> = idl.codes.iter().map(|(name, code)| (name.as_str(), *code)).collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 45);
}

#[test]
fn codes_are_those_of_the_windows_metadata() {
    let windows: Windows = read("windows.json");
    let mut compared = 0;
    for (code, name) in HRESULT_NAMES {
        let constant = windows.constants.get(*name).map(|value| *value as u32);
        if let Some(expected) = windows.hresults.get(*name).copied().or(constant) {
            assert_eq!(code.0 as u32, expected, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 20, "only {compared} codes were found there");
}

#[test]
fn methods_are_as_many_as_there_should_be() {
    let count = |start: &str| SLOTS.iter().filter(|row| row.0.starts_with(start)).map(|row| row.4.len()).sum::<usize>();
    assert_eq!(count("ICorProfilerCallback"), 95);
    assert_eq!(count("ICorProfilerInfo"), 112);
    assert_eq!(count("ICorProfilerFunctionControl"), 3);
    assert_eq!(count("ICorProfilerAssemblyReferenceProvider"), 1);
    assert_eq!(count("IMethodMalloc"), 1);
    for kind in ["Object", "Function", "Module", "Thread", "Method"] {
        assert_eq!(count(&format!("ICorProfiler{kind}Enum")), 5);
    }
    let metadata = SLOTS.iter().filter(|row| !is_corprof(row.0) && row.0 != "IClassFactory");
    assert_eq!(metadata.clone().count(), 16);
    assert_eq!(metadata.map(|row| row.4.len()).sum::<usize>(), 190);
}

#[test]
#[cfg_attr(not(target_pointer_width = "64"), ignore = "the figures are those of a 64-bit system")]
fn structures_are_those_of_the_c_compiler() {
    let oracle: LayoutFile = read("layout.json");
    for (name, expected) in &oracle.structs {
        let Some((_, size, align, fields)) = RECORDS.iter().find(|row| row.0 == name) else {
            panic!("{name} is not declared");
        };
        assert_eq!((*size, *align), (expected.size, expected.align), "{name}");
        let ours: BTreeMap<&str, (usize, usize)> = fields.iter().map(|row| (row.0, (row.1, row.2))).collect();
        let theirs: BTreeMap<&str, (usize, usize)> =
            expected.fields.iter().map(|(name, field)| (name.as_str(), (field.offset, field.size))).collect();
        assert_eq!(ours, theirs, "{name}");
    }
    // Those that the C++ program did not print, by hand: field by field, as the LLP64 and LP64 rules have it.
    let rest: BTreeMap<&str, (usize, usize)> =
        RECORDS.iter().filter(|row| !oracle.structs.contains_key(row.0)).map(|row| (row.0, (row.1, row.2))).collect();
    let expected = BTreeMap::from([
        ("ASSEMBLYMETADATA", (56, 8)),
        ("COR_PRF_EVENTPIPE_PARAM_DESC", (16, 8)),
        ("COR_PRF_EVENTPIPE_PROVIDER_CONFIG", (32, 8)),
        ("COR_PRF_EVENT_DATA", (16, 8)),
        ("COR_PRF_FILTER_DATA", (16, 8)),
        ("COR_SECATTR", (24, 8)),
        ("FunctionIDOrClientID", (8, 8)),
        ("OSINFO", (12, 4)),
    ]);
    assert_eq!(rest, expected);
}

#[test]
fn constants_are_those_of_the_c_compiler() {
    let oracle: LayoutFile = read("layout.json");
    let ours: BTreeMap<&str, i64> = CONSTANTS.iter().copied().collect();
    for (name, expected) in &oracle.constants {
        assert_eq!(ours.get(name.as_str()), Some(expected), "{name}");
    }
    let of_profiling = |name: &str| name.starts_with("COR_PRF_") || name.starts_with("PROFILER_");
    let missing: Vec<&str> =
        ours.keys().copied().filter(|name| of_profiling(name) && !oracle.constants.contains_key(*name)).collect();
    assert!(missing.is_empty(), "the oracle does not have {missing:?}");
}

#[test]
fn constants_are_those_of_the_windows_metadata() {
    let windows: Windows = read("windows.json");
    let mut missing = BTreeMap::new();
    for (name, value) in CONSTANTS {
        let other = support::OTHER_AGE.iter().find(|row| row.0 == *name);
        match (windows.constants.get(*name), other) {
            // It has every enumeration signed.
            (Some(theirs), None) => assert_eq!(*value as u32, *theirs as u32, "{name}"),
            (Some(theirs), Some((_, known, why))) => {
                assert_eq!(*theirs as u32, *known, "{name}: {why}");
                assert_ne!(*value as u32, *known, "{name} is not an exception any more");
            }
            (None, _) => {
                missing.insert((*name).to_owned(), *value);
            }
        }
    }
    assert_eq!(missing, read::<Idl>("idl.json").constants);
}

#[test]
fn codes_are_found_by_value() {
    assert!(HRESULT_NAMES.is_sorted_by_key(|(code, _)| code.0 as u32));
    for (code, _) in HRESULT_NAMES {
        let name = hresult_name(*code).expect("a name");
        assert!(HRESULT_NAMES.contains(&(*code, name)));
    }
    assert_eq!(hresult_name(corprof_sys::COR_E_ARGUMENT), Some("E_INVALIDARG"));
    assert_eq!(hresult_name(HRESULT(0x8013_FFFF_u32 as i32)), None);
}

#[test]
fn unknown_values_are_kept() {
    use corprof_sys::{COR_PRF_GC_REASON, COR_PRF_MODULE_FLAGS};
    let flags = COR_PRF_MODULE_FLAGS::from_bits_retain(0x8000_0001);
    assert_eq!((flags | COR_PRF_MODULE_FLAGS::COR_PRF_MODULE_NGEN).bits(), 0x8000_0003);
    assert_eq!((!!flags).bits(), flags.bits());
    assert_eq!(format!("{:?}", COR_PRF_GC_REASON(1)), "COR_PRF_GC_INDUCED");
    assert_eq!(format!("{:?}", COR_PRF_GC_REASON(77)), "COR_PRF_GC_REASON(77)");
}
