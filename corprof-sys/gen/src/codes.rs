//! Result codes: the `#define` lines of corerror.h, computed.
//!
//! The macros that make a code of numbers are known here by name; a macro that is not is an error. A name with `_E_`
//! or `_S_` in it is a code, any other define is a number that codes may use.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Diagnostic, Error};
use crate::expr;
use crate::facts::Facts;
use crate::model::Code;
use crate::preprocess::Define;
use crate::sources::SourceFile;

/// Macros whose bodies are not parsed: [`call`] implements them.
const MACROS: [&str; 6] =
    ["SMAKEHR", "EMAKEHR", "MAKE_HRESULT", "_HRESULT_TYPEDEF_", "__HRESULT_FROM_WIN32", "HRESULT_FROM_WIN32"];

/// The facility of the runtime.
const FACILITY_URT: i128 = 0x13;

/// Computes the codes.
pub fn codes(file: &SourceFile, defines: &[Define], facts: &Facts) -> Result<Vec<Code>, Error> {
    let mut known: BTreeMap<String, i128> = BTreeMap::new();
    let fixed = [("SEVERITY_SUCCESS", 0), ("SEVERITY_ERROR", 1)];
    known.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
    known.extend(facts.hresults.iter().chain(&facts.win32).map(|(name, value)| (name.clone(), i128::from(*value))));
    let fact = |(name, value): (&String, &u32)| Code { name: name.clone(), value: *value, from_facts: true };
    let mut codes: Vec<Code> = facts.hresults.iter().map(fact).collect();
    let mut used = BTreeSet::new();
    for define in defines {
        if define.function {
            if !MACROS.contains(&define.name.as_str()) {
                return Err(file.diagnostic(define.offset, format!("the macro `{}` is not known", define.name)).into());
            }
            continue;
        }
        // An include guard.
        if define.body.is_empty() {
            continue;
        }
        if known.contains_key(&define.name) {
            return Err(file.diagnostic(define.offset, format!("`{}` is declared twice", define.name)).into());
        }
        let expression = expr::parse(file, &define.body, define.offset)?;
        let value = expression.value::<Diagnostic>(
            &|name, offset| match known.get(name) {
                Some(value) => Ok(*value),
                None => Err(file.diagnostic(offset, format!("`{name}` is not a known code or number"))),
            },
            &|name, arguments, offset| {
                call(name, arguments).ok_or_else(|| file.diagnostic(offset, format!("`{name}` is not a known macro")))
            },
        )?;
        used.extend(facts.win32.keys().filter(|name| define.body.contains(name.as_str())).cloned());
        known.insert(define.name.clone(), value);
        if !(define.name.contains("_E_") || define.name.contains("_S_")) {
            continue;
        }
        let value = u32::try_from(value)
            .map_err(|_| file.diagnostic(define.offset, format!("`{}` does not fit 32 bits", define.name)))?;
        codes.push(Code { name: define.name.clone(), value, from_facts: false });
    }
    let problems: Vec<String> = facts
        .win32
        .keys()
        .filter(|name| !used.contains(*name))
        .map(|name| format!("[win32] {name}: nothing uses it"))
        .collect();
    if problems.is_empty() { Ok(codes) } else { Err(Error::Facts { file: "facts.toml", problems }) }
}

fn call(name: &str, arguments: &[i128]) -> Option<i128> {
    let make = |severity: i128, facility: i128, code: i128| severity << 31 | facility << 16 | code;
    match (name, arguments) {
        ("SMAKEHR", [code]) => Some(make(0, FACILITY_URT, *code)),
        ("EMAKEHR", [code]) => Some(make(1, FACILITY_URT, *code)),
        ("MAKE_HRESULT", [severity, facility, code]) => Some(make(*severity, *facility, *code)),
        ("_HRESULT_TYPEDEF_", [value]) => Some(*value),
        ("__HRESULT_FROM_WIN32" | "HRESULT_FROM_WIN32", [0]) => Some(0),
        ("__HRESULT_FROM_WIN32" | "HRESULT_FROM_WIN32", [code]) => Some(make(1, 7, code & 0xFFFF)),
        _ => None,
    }
}
