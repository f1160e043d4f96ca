//! Makes windows.json: the facts of Microsoft's own Windows metadata about the interfaces that corprof-sys declares.
//!
//! Not part of any build. It was run once, in a scratch package that depends on windows-metadata 0.59 and serde_json,
//! with the path of the metadata file that the crate windows-bindgen 0.62.1 carries:
//!
//!     cargo run -- ~/.cargo/registry/src/*/windows-bindgen-0.62.1/default/Windows.Win32.winmd > windows.json
//!
//! Sizes of arguments are those of a 64-bit system; 0 stands for a structure that is passed by value.

use serde_json::{Map, Value as Json, json};
use windows_metadata::reader::{HasAttributes, Index, TypeCategory, TypeDef};
use windows_metadata::{Type, Value};

const NAMESPACES: [&str; 2] = ["Windows.Win32.System.Diagnostics.ClrProfiling", "Windows.Win32.System.WinRT.Metadata"];
const SINGLE: [(&str, &str); 1] = [("Windows.Win32.System.Com", "IClassFactory")];
const CODES: [&str; 4] = ["E_", "S_", "COR", "CLASS_E_"];

fn main() {
    let path = std::env::args().nth(1).expect("path of Windows.Win32.winmd");
    let index = Index::read(path).expect("metadata");
    let mut interfaces = Map::new();
    let mut constants = Map::new();
    let mut codes = Map::new();
    for ty in index.all() {
        let ours = NAMESPACES.contains(&ty.namespace());
        if ty.category() == TypeCategory::Interface && (ours || SINGLE.contains(&(ty.namespace(), ty.name()))) {
            if let Some(iid) = iid(&ty) {
                interfaces.insert(ty.name().to_owned(), interface(&index, &ty, iid));
            }
        }
        for field in ty.fields() {
            let Some(value) = field.constant().and_then(|constant| number(constant.value())) else { continue };
            if ours {
                constants.insert(field.name().to_owned(), json!(value));
            } else if ty.namespace() == "Windows.Win32.Foundation"
                && matches!(field.ty(), Type::Name(name) if name.name == "HRESULT")
                && CODES.iter().any(|start| field.name().starts_with(start))
            {
                codes.insert(field.name().to_owned(), json!(value as u32));
            }
        }
    }
    let source = "Windows.Win32.winmd (Microsoft.Windows.SDK.Win32Metadata 63.0.31, in windows-bindgen 0.62.1), \
                  read by extract-windows.rs";
    println!("{{\n\"source\": {}", json!(source));
    for (name, map) in [("interfaces", interfaces), ("constants", constants), ("hresults", codes)] {
        let lines: Vec<String> = map.iter().map(|(name, value)| format!("  {}: {value}", json!(name))).collect();
        println!(",\"{name}\": {{\n{}\n}}", lines.join(",\n"));
    }
    println!("}}");
}

fn interface(index: &Index, ty: &TypeDef<'_>, iid: String) -> Json {
    let parent = ty.interface_impls().next().map(|parent| match parent.interface(&[]) {
        Type::Name(name) => name.name,
        other => panic!("{other:?}"),
    });
    let methods: Vec<Json> = ty
        .methods()
        .map(|method| {
            let sizes: Vec<usize> = method.signature(&[]).types.iter().map(|ty| size(index, ty)).collect();
            json!([method.name(), sizes])
        })
        .collect();
    json!({ "iid": iid, "parent": parent, "methods": methods })
}

fn size(index: &Index, ty: &Type) -> usize {
    match ty {
        Type::Bool | Type::I8 | Type::U8 => 1,
        Type::Char | Type::I16 | Type::U16 => 2,
        Type::I32 | Type::U32 | Type::F32 => 4,
        Type::Name(name) => {
            let Some(def) = index.get(&name.namespace, &name.name).next() else { return 8 };
            let only = def.fields().filter(|field| field.constant().is_none()).collect::<Vec<_>>();
            match (def.category(), only.as_slice()) {
                (TypeCategory::Enum, _) => 4,
                (TypeCategory::Struct, [field]) => size(index, &field.ty()),
                (TypeCategory::Struct, _) => 0,
                _ => 8,
            }
        }
        _ => 8,
    }
}

fn iid(ty: &TypeDef<'_>) -> Option<String> {
    let values: Vec<u64> = ty
        .find_attribute("GuidAttribute")?
        .value()
        .iter()
        .filter_map(|(_, value)| number_of(value).map(|value| value as u64))
        .collect();
    let [a, b, c, rest @ ..] = values.as_slice() else { return None };
    let tail: String = rest.iter().map(|byte| format!("{byte:02X}")).collect();
    Some(format!("{a:08X}-{b:04X}-{c:04X}-{}-{}", &tail[..4], &tail[4..]))
}

fn number(value: Value) -> Option<i64> {
    number_of(&value)
}

fn number_of(value: &Value) -> Option<i64> {
    Some(match value {
        Value::U8(value) => (*value).into(),
        Value::I8(value) => (*value).into(),
        Value::U16(value) => (*value).into(),
        Value::I16(value) => (*value).into(),
        Value::U32(value) => (*value).into(),
        Value::I32(value) => (*value).into(),
        Value::I64(value) => *value,
        _ => return None,
    })
}
