//! Names of tokens and signatures in the spelling of IL assembly, for readers of a body.

use std::fmt::Write;

use super::assembly::Assembly;
use super::resolve::InAssembly;
use super::schema::{MEMBER_REF_PARENT, METHOD_DEF_OR_REF, RESOLUTION_SCOPE};
use crate::signature::{MethodSignature, Signature, Type};
use crate::token::{Table, Token, TypeDef, TypeDefOrRef};

/// Types nested in each other more deeply than that are not spelt out.
const MOST_NESTED: usize = 16;

/// The longest literal string that is shown whole, in UTF-16 units.
const LONGEST_STRING: usize = 200;

impl Assembly {
    /// The names of a type and of the types around it, the outermost first, with its namespace: `Namespace.Outer`1`,
    /// `Inner`.
    ///
    /// `None` if there is no such type, or a name cannot be read.
    pub fn type_path(&self, definition: TypeDef) -> Option<Vec<String>> {
        let mut row = definition.token().row();
        let mut path = Vec::new();
        while path.len() < MOST_NESTED {
            let name = self.string(0x02, row, 1)?;
            let space = self.string(0x02, row, 2)?;
            path.push(if space.is_empty() { name.to_owned() } else { format!("{space}.{name}") });
            match self.enclosing.get(&row) {
                Some(outer) => row = *outer,
                None => {
                    path.reverse();
                    return Some(path);
                }
            }
        }
        None
    }

    /// The type around a nested one.
    pub fn enclosing_type(&self, definition: TypeDef) -> Option<TypeDef> {
        self.enclosing.get(&definition.token().row()).map(|row| type_token(*row))
    }

    /// The type of this name in another one.
    pub fn nested_type(&self, outer: TypeDef, name: &str) -> Option<TypeDef> {
        let outer = outer.token().row();
        let mut nested = self.enclosing.iter().filter(|(_, around)| **around == outer);
        nested.find(|(row, _)| self.string(0x02, **row, 1) == Some(name)).map(|(row, _)| type_token(*row))
    }

    /// The names of a type's methods, in the order of the file, as far as they can be read.
    pub fn method_names(&self, definition: TypeDef) -> impl Iterator<Item = &str> {
        let row = definition.token().row();
        let last = self.metadata.rows(Table::MethodDef);
        let first = self.cell(0x02, row, 5).unwrap_or(last + 1);
        let end = self.cell(0x02, row + 1, 5).unwrap_or(last + 1).min(last + 1);
        (first..end).filter_map(|method| self.string(0x06, method, 3))
    }
}

const fn type_token(row: u32) -> TypeDef {
    TypeDef::from_raw(TypeDef::NIL.as_raw() | row)
}

impl InAssembly<'_> {
    /// The item that a token names, as far as the names can be read: a type, a method with its signature, a field, a
    /// literal string.
    pub fn token_name(&self, token: Token) -> Option<String> {
        let assembly = self.assembly();
        let row = token.row();
        match token.table()? {
            Table::TypeDef => Some(assembly.type_name(row)),
            Table::TypeRef => self.reference_name(row, 0),
            Table::TypeSpec => Some(self.type_name(&Type::decode(assembly.blob(0x1b, row, 0)?).ok()?)),
            Table::MethodDef => {
                let signature = MethodSignature::decode(assembly.blob(0x06, row, 4)?).ok()?;
                let owner = assembly.owner_of(5, row).map(|row| assembly.type_name(row));
                Some(self.method_text(&signature, owner, assembly.string(0x06, row, 3)?, ""))
            }
            Table::FieldDef => {
                let ty = Type::decode_field(assembly.blob(0x04, row, 2)?).ok()?;
                let owner = assembly.owner_of(4, row).map(|row| assembly.type_name(row)).unwrap_or_default();
                Some(format!("{} {owner}::{}", self.type_name(&ty), assembly.string(0x04, row, 1)?))
            }
            Table::MemberRef => self.member_name(row, ""),
            Table::MethodSpec => {
                let generic = assembly.metadata.coded(&assembly.bytes, 0x2b, row, 0, METHOD_DEF_OR_REF)?;
                let arguments = Type::decode_method_spec(assembly.blob(0x2b, row, 1)?).ok()?;
                let arguments = format!("<{}>", self.list(&arguments));
                match generic.table()? {
                    Table::MemberRef => self.member_name(generic.row(), &arguments),
                    _ => {
                        let signature = MethodSignature::decode(assembly.blob(0x06, generic.row(), 4)?).ok()?;
                        let owner = assembly.owner_of(5, generic.row()).map(|row| assembly.type_name(row));
                        Some(self.method_text(&signature, owner, assembly.string(0x06, generic.row(), 3)?, &arguments))
                    }
                }
            }
            Table::UserString => assembly.metadata.user_string(&assembly.bytes, row).map(|units| quoted(&units)),
            Table::StandAloneSignature => match Signature::decode(assembly.blob(0x11, row, 0)?).ok()? {
                Signature::Locals(locals) => {
                    let locals = locals.iter().enumerate().map(|(at, ty)| format!("{at}: {}", self.type_name(ty)));
                    Some(format!("({})", locals.collect::<Vec<_>>().join(", ")))
                }
                Signature::Method(method) => Some(self.method_text(&method, None, "", "")),
                _ => None,
            },
            _ => None,
        }
    }

    /// A type as IL assembly spells it, with names in place of tokens as far as they can be read.
    pub fn type_name(&self, ty: &Type) -> String {
        let named = |token: &TypeDefOrRef| {
            let token = token.token();
            self.token_name(token).unwrap_or_else(|| token.to_string())
        };
        match ty {
            Type::Class(token) => named(token),
            Type::ValueType(token) => format!("valuetype {}", named(token)),
            Type::Pointer(inner) => format!("{}*", self.type_name(inner)),
            Type::ByRef(inner) => format!("{}&", self.type_name(inner)),
            Type::SzArray(inner) => format!("{}[]", self.type_name(inner)),
            Type::Array(inner, shape) => {
                format!("{}[{}]", self.type_name(inner), ",".repeat(shape.rank.clamp(1, 32) as usize - 1))
            }
            Type::Generic { value_type, definition, arguments } => {
                let kind = if *value_type { "valuetype " } else { "" };
                format!("{kind}{}<{}>", named(definition), self.list(arguments))
            }
            Type::FunctionPointer(method) => format!("method {}", self.method_text(method, None, "*", "")),
            Type::Modified { required, modifier, inner } => {
                format!(
                    "{} {}({})",
                    self.type_name(inner),
                    if *required { "modreq" } else { "modopt" },
                    named(modifier)
                )
            }
            Type::Pinned(inner) => format!("{} pinned", self.type_name(inner)),
            other => other.to_string(),
        }
    }

    fn list(&self, types: &[Type]) -> String {
        types.iter().map(|ty| self.type_name(ty)).collect::<Vec<_>>().join(", ")
    }

    fn method_text(&self, signature: &MethodSignature, owner: Option<String>, name: &str, arguments: &str) -> String {
        let this = if signature.has_this { "instance " } else { "" };
        let owner = owner.map_or_else(String::new, |owner| format!("{owner}::"));
        let returns = self.type_name(&signature.return_type);
        let parameters = self.list(&signature.parameters);
        format!("{this}{returns} {owner}{name}{arguments}({parameters})")
    }

    /// A method or a field of another assembly, or of a generic type.
    fn member_name(&self, row: u32, arguments: &str) -> Option<String> {
        let assembly = self.assembly();
        let parent = assembly.metadata.coded(&assembly.bytes, 0x0a, row, 0, MEMBER_REF_PARENT)?;
        let owner = self.token_name(parent).unwrap_or_else(|| parent.to_string());
        let name = assembly.string(0x0a, row, 1)?;
        let blob = assembly.blob(0x0a, row, 2)?;
        if let Ok(ty) = Type::decode_field(blob) {
            return Some(format!("{} {owner}::{name}", self.type_name(&ty)));
        }
        let signature = MethodSignature::decode(blob).ok()?;
        Some(self.method_text(&signature, Some(owner), name, arguments))
    }

    /// `[Assembly]Namespace.Outer/Nested`.
    fn reference_name(&self, row: u32, nested: usize) -> Option<String> {
        let assembly = self.assembly();
        let name = assembly.string(0x01, row, 1)?;
        let space = assembly.string(0x01, row, 2)?;
        let full = if space.is_empty() { name.to_owned() } else { format!("{space}.{name}") };
        let scope = assembly.metadata.coded(&assembly.bytes, 0x01, row, 0, RESOLUTION_SCOPE)?;
        Some(match scope.table() {
            Some(Table::AssemblyRef) => format!("[{}]{full}", assembly.string(0x23, scope.row(), 6)?),
            Some(Table::TypeRef) if nested < MOST_NESTED => {
                format!("{}/{full}", self.reference_name(scope.row(), nested + 1)?)
            }
            _ => full,
        })
    }
}

/// A literal string in quotes, with escapes for unprintable characters.
fn quoted(units: &[u16]) -> String {
    let mut text = String::from("\"");
    let shown = units.get(..LONGEST_STRING).unwrap_or(units);
    for unit in char::decode_utf16(shown.iter().copied()) {
        // Writing to a string cannot fail.
        let _ = match unit {
            Ok(unit) => write!(text, "{}", unit.escape_debug()),
            Err(error) => write!(text, "\\u{:04x}", error.unpaired_surrogate()),
        };
    }
    text.push('"');
    if shown.len() < units.len() {
        let _ = write!(text, "… ({} units)", units.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_shown_in_one_line() {
        assert_eq!(quoted(&"a\n\"b\"".encode_utf16().collect::<Vec<_>>()), r#""a\n\"b\"""#);
        assert_eq!(quoted(&[0xd800]), r#""\ud800""#);
        assert!(quoted(&[65; 300]).ends_with("A\"… (300 units)"));
    }
}
