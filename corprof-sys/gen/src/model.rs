//! The declarations of the inputs, resolved and checked. The emitters work from them.
//!
//! Names are the IDL's. Every type that is mentioned is known ([`Model::type_kind`] answers for it), no name is
//! declared twice, every enumerator has its value, every method its slot.

use std::collections::BTreeMap;

use crate::sources::Input;

/// Everything that the inputs declare, in their order.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Interfaces.
    pub interfaces: Vec<Interface>,
    /// Enumerations.
    pub enums: Vec<Enum>,
    /// Structures and unions.
    pub records: Vec<Record>,
    /// Names for types.
    pub aliases: Vec<Alias>,
    /// Names for functions.
    pub functions: Vec<Function>,
    /// Result codes, those of `facts.toml` first.
    pub codes: Vec<Code>,
    /// The meaning of each declared type name.
    pub(crate) kinds: BTreeMap<String, TypeKind>,
    /// The origin of each input, as the generated files state it.
    pub(crate) stamps: BTreeMap<Input, String>,
}

/// The meaning of a type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeKind {
    /// A type that needs no declaration: how Rust spells it.
    Builtin(&'static str),
    /// `IUnknown` or a declared interface.
    Interface,
    /// An enumeration.
    Enum,
    /// A structure or union.
    Record,
    /// A name for a type.
    Alias,
    /// A name for a function or a pointer to one.
    Function,
    /// A type of another API, of which only pointers are used.
    Opaque,
}

/// An interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Where it is declared.
    pub input: Input,
    /// Its IID, in capitals.
    pub iid: String,
    /// The interface that it extends.
    pub parent: String,
    /// The first release that has it.
    pub since: Option<String>,
    /// Its own methods, in the order of their slots.
    pub methods: Vec<Method>,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Its place in the vtable, counted from `QueryInterface`, which is 0.
    pub slot: usize,
    /// The type that it returns: `HRESULT`, with few exceptions.
    pub returns: CType,
    /// Its parameters, after `this`.
    pub params: Vec<Param>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: CType,
    /// `[in]`, or `_In_`.
    pub is_in: bool,
    /// `[out]`, or `_Out_`.
    pub is_out: bool,
    /// `[string]`: it ends with a zero.
    pub is_string: bool,
    /// `[size_is(...)]`, or the capacity from an annotation.
    pub size_is: Option<String>,
    /// `[length_is(...)]`, or the length from an annotation.
    pub length_is: Option<String>,
}

/// A type as C has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CType {
    /// The named type.
    pub base: String,
    /// It may not be written to.
    pub constant: bool,
    /// How many `*` there are.
    pub pointers: usize,
    /// The text in brackets after the name.
    pub array: Option<ArrayLength>,
}

impl CType {
    /// It is `name` and nothing around it.
    pub fn is_plain(&self, name: &str) -> bool {
        self.base == name && self.pointers == 0 && self.array.is_none()
    }
}

/// The length of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayLength {
    /// `[]`
    Open,
    /// `[n]`
    Fixed(usize),
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Its name.
    pub name: String,
    /// Where it is declared.
    pub input: Input,
    /// Its values are combined.
    pub bitflags: bool,
    /// It is unsigned.
    pub unsigned: bool,
    /// Its enumerators: name and value.
    pub enumerators: Vec<(String, i64)>,
}

/// A structure or union.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// Where it is declared.
    pub input: Input,
    /// It is a union.
    pub union: bool,
    /// Its fields.
    pub fields: Vec<(String, CType)>,
}

/// A name for a type.
#[derive(Clone, Debug)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// Where it is declared.
    pub input: Input,
    /// The type that it stands for.
    pub ty: CType,
}

/// A name for a function.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name.
    pub name: String,
    /// Where it is declared.
    pub input: Input,
    /// The name stands for a pointer to the function already.
    pub pointer: bool,
    /// The type that the function returns.
    pub returns: CType,
    /// Its parameters.
    pub params: Vec<Param>,
}

/// A result code.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u32,
    /// It comes from `facts.toml`, not from corerror.h.
    pub from_facts: bool,
}

/// C's own types and those of the Windows headers, in Rust's words.
pub(crate) const BUILTINS: &[(&str, &str)] = &[
    ("void", "c_void"),
    ("char", "c_char"),
    ("BYTE", "u8"),
    ("UINT8", "u8"),
    ("unsigned char", "u8"),
    ("WORD", "u16"),
    ("USHORT", "u16"),
    ("UINT16", "u16"),
    ("WCHAR", "u16"),
    ("DWORD", "u32"),
    ("ULONG", "u32"),
    ("ULONG32", "u32"),
    ("UINT", "u32"),
    ("UINT32", "u32"),
    ("unsigned int", "u32"),
    ("unsigned long", "u32"),
    ("int", "i32"),
    ("long", "i32"),
    ("INT", "i32"),
    ("INT32", "i32"),
    ("LONG", "i32"),
    ("LONG32", "i32"),
    ("ULONGLONG", "u64"),
    ("ULONG64", "u64"),
    ("UINT64", "u64"),
    ("INT64", "i64"),
    ("LONGLONG", "i64"),
    ("UINT_PTR", "usize"),
    ("ULONG_PTR", "usize"),
    ("DWORD_PTR", "usize"),
    ("SIZE_T", "usize"),
    ("BOOL", "BOOL"),
    ("HRESULT", "HRESULT"),
    ("GUID", "GUID"),
    ("LPCWSTR", "*const u16"),
    ("LPWSTR", "*mut u16"),
    ("PVOID", "*mut c_void"),
    ("LPVOID", "*mut c_void"),
    ("LPCVOID", "*const c_void"),
    ("HANDLE", "*mut c_void"),
    ("REFGUID", "*const GUID"),
    ("REFIID", "*const GUID"),
    ("REFCLSID", "*const GUID"),
    ("LPCGUID", "*const GUID"),
];

impl Model {
    /// The meaning of a type's name.
    pub fn type_kind(&self, name: &str) -> Option<TypeKind> {
        if name == "IUnknown" {
            return Some(TypeKind::Interface);
        }
        let builtin = BUILTINS.iter().find(|(c, _)| *c == name).map(|(_, rust)| TypeKind::Builtin(rust));
        builtin.or_else(|| self.kinds.get(name).copied())
    }

    /// The interface of that name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The interface and those it extends, itself first, `IUnknown` left out.
    pub fn lineage<'m>(&'m self, interface: &'m Interface) -> Vec<&'m Interface> {
        let mut lineage = vec![interface];
        while let Some(parent) = lineage.last().and_then(|last| self.interface(&last.parent)) {
            lineage.push(parent);
        }
        lineage
    }

    /// The name is that of an enumerator or a code.
    pub fn is_constant(&self, name: &str) -> bool {
        let enumerator = |enumeration: &Enum| enumeration.enumerators.iter().any(|(enumerator, _)| enumerator == name);
        self.enums.iter().any(enumerator) || self.codes.iter().any(|code| code.name == name)
    }

    /// The enumeration of that name.
    pub fn enumeration(&self, name: &str) -> Option<&Enum> {
        self.enums.iter().find(|enumeration| enumeration.name == name)
    }

    /// The first lines of a file that is generated from `inputs`.
    pub fn stamp(&self, inputs: &[Input]) -> String {
        let sources: Vec<&str> = inputs.iter().filter_map(|input| self.stamps.get(input)).map(String::as_str).collect();
        let mut stamp = "// @generated by `cargo xtask generate`.".to_owned();
        match sources.as_slice() {
            [one] => stamp.push_str(&format!(" Source: {one}.\n")),
            several => {
                stamp.push('\n');
                several.iter().for_each(|source| stamp.push_str(&format!("// Source: {source}.\n")));
            }
        }
        stamp.push_str("// Do not edit: change corprof-sys/gen and run `cargo xtask generate`.\n");
        stamp
    }
}
