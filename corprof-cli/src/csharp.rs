//! Names of types in the spelling of C#, put together from text, as corprof's profilers spell them (`Names::csharp` of
//! corprof).

use corprof_il::signature::Primitive;

/// `N.Outer<int>.Inner<string>`: each level with the arguments that its suffix claims, the innermost with all that are
/// left.
pub(crate) fn nested(levels: &[String], arguments: &[String]) -> String {
    let mut text = String::new();
    let mut rest = arguments;
    for (at, level) in levels.iter().enumerate() {
        let (plain, arity) = split_arity(level);
        if at > 0 {
            text.push('.');
        }
        if arguments.is_empty() {
            text.push_str(level);
            continue;
        }
        text.push_str(plain);
        let own = if at + 1 == levels.len() { rest.len() } else { arity.min(rest.len()) };
        let (own, others) = rest.split_at(own);
        rest = others;
        if !own.is_empty() {
            text.push_str(&format!("<{}>", own.join(", ")));
        }
    }
    text
}

/// A type's metadata name without the suffix for its type parameters, and their number.
fn split_arity(name: &str) -> (&str, usize) {
    match name.rsplit_once('`') {
        Some((plain, arity)) if !plain.is_empty() => arity.parse().map_or((name, 0), |arity| (plain, arity)),
        _ => (name, 0),
    }
}

/// A class inside another name: keywords for the core library's types, `int?` for `System.Nullable<int>`.
pub(crate) fn as_argument(full: String) -> String {
    if let Some(keyword) = full.strip_prefix("System.").and_then(keyword) {
        return keyword.to_owned();
    }
    let nullable = full.strip_prefix("System.Nullable<").and_then(|rest| rest.strip_suffix('>'));
    match nullable {
        Some(inner) if !inner.is_empty() => format!("{inner}?"),
        _ => full,
    }
}

/// The keyword of C# for a type of the namespace `System`.
fn keyword(name: &str) -> Option<&'static str> {
    Some(match Primitive::from_name(name) {
        None if name == "Decimal" => "decimal",
        primitive => match primitive? {
            Primitive::Int8 => "sbyte",
            Primitive::UInt8 => "byte",
            Primitive::Int16 => "short",
            Primitive::UInt16 => "ushort",
            Primitive::Int32 => "int",
            Primitive::UInt32 => "uint",
            Primitive::Int64 => "long",
            Primitive::UInt64 => "ulong",
            Primitive::Float32 => "float",
            Primitive::Float64 => "double",
            Primitive::NativeInt => "nint",
            Primitive::NativeUInt => "nuint",
            Primitive::TypedRef => return None,
            // The same as in IL: bool, char, string, object, void.
            other => other.il_name(),
        },
    })
}

/// An array of `element`. C# writes the dimensions of the outer array first.
pub(crate) fn array(mut element: String, rank: u32) -> String {
    let dimensions = element.trim_end_matches(['[', ']', ',']).len();
    element.insert_str(dimensions, &format!("[{}]", ",".repeat(rank.clamp(1, 32) as usize - 1)));
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_core_types_have_keywords() {
        for (full, expected) in [
            ("System.Byte", "byte"),
            ("System.Decimal", "decimal"),
            ("System.Object", "object"),
            ("System.IntPtr", "nint"),
            ("System.TypedReference", "System.TypedReference"),
            ("My.System.Int32", "My.System.Int32"),
            ("System.Int32.Inner", "System.Int32.Inner"),
        ] {
            assert_eq!(as_argument(full.to_owned()), expected);
        }
    }
}
