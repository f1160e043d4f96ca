//! Names of types in the spelling of C#, put together from text: one spelling in all outputs.
//!
//! The runtime's events have the name of a class in the form of reflection, `` N.Outer`1+Inner[System.Int32][] ``,
//! which [`class`] spells `N.Outer<int>.Inner[]`. corprof's `Names::csharp` spells the same class in the same way.
//!
//! ```
//! use corprof_il::csharp;
//!
//! assert_eq!(csharp::class("System.Byte[]"), "byte[]");
//! assert_eq!(csharp::class("System.Collections.Generic.List`1[System.Int32]"), "System.Collections.Generic.List<int>");
//! ```

use crate::signature::Primitive;

/// The nesting limit for types in one name.
const MAX_DEPTH: u32 = 48;

/// What events leave without a name: the classes that .NET 11 makes for methods that it suspends itself have no
/// metadata.
const CONTINUATION: &str = "System.Runtime.CompilerServices.Continuation";

/// A class by its name in the form of reflection. A keyword stands inside a name only: `byte[]`, but `System.Byte`.
///
/// Without a name it is a `System.Runtime.CompilerServices.Continuation`: .NET 11 derives a class from it for each
/// layout of what a suspended method keeps.
#[must_use]
pub fn class(text: &str) -> String {
    if text.is_empty() {
        return CONTINUATION.to_owned();
    }
    let mut rest = text;
    let (levels, arguments) = levels_and_arguments(&mut rest, MAX_DEPTH);
    let class = nested(&levels, &arguments);
    if rest.is_empty() {
        return class;
    }
    let class = with_suffixes(as_argument(class), &mut rest);
    // Text that is not understood stays.
    if rest.is_empty() { class } else { text.to_owned() }
}

/// The same with the type arguments of the class, each spelled as in its name.
#[must_use]
pub fn class_with_arguments(text: &str) -> (String, Vec<String>) {
    let mut rest = text;
    let (levels, arguments) = levels_and_arguments(&mut rest, MAX_DEPTH);
    (nested(&levels, &arguments), arguments)
}

/// The names of the types around a class and its own, then what stands in brackets behind them.
fn levels_and_arguments(rest: &mut &str, depth: u32) -> (Vec<String>, Vec<String>) {
    let end = rest.find(['[', ']', ',', '&', '*']).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    *rest = behind;
    let levels = name.split('+').map(str::to_owned).collect();
    let mut arguments = Vec::new();
    // The brackets of an array have no name in them.
    let inner = behind.strip_prefix('[').filter(|inner| depth > 0 && !inner.starts_with([']', ',']));
    if let Some(inner) = inner {
        *rest = inner;
        loop {
            arguments.push(argument(rest, depth - 1));
            match rest.strip_prefix(',') {
                Some(next) => *rest = next,
                None => break,
            }
        }
        *rest = rest.strip_prefix(']').unwrap_or(rest);
    }
    (levels, arguments)
}

/// A class as an argument of another one, with what makes it an array or a pointer.
fn argument(rest: &mut &str, depth: u32) -> String {
    let (levels, arguments) = levels_and_arguments(rest, depth);
    with_suffixes(as_argument(nested(&levels, &arguments)), rest)
}

/// A class with what makes it an array or a pointer.
fn with_suffixes(mut text: String, rest: &mut &str) -> String {
    loop {
        if let Some(next) = rest.strip_prefix('*') {
            *rest = next;
            text.push('*');
        } else if let Some((dimensions, next)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            *rest = next;
            text = array(text, 1 + u32::try_from(dimensions.matches(',').count()).unwrap_or(0));
        } else {
            return text;
        }
    }
}

/// `N.Outer<int>.Inner<string>`: each level with the arguments that its suffix claims, the innermost with all that are
/// left.
#[must_use]
pub fn nested(levels: &[String], arguments: &[String]) -> String {
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
#[must_use]
pub fn as_argument(full: String) -> String {
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
    match Primitive::from_name(name) {
        None if name == "Decimal" => Some("decimal"),
        None | Some(Primitive::TypedRef) => None,
        Some(primitive) => Some(primitive.csharp_name()),
    }
}

/// An array of `element`. C# writes the dimensions of the outer array first.
#[must_use]
pub fn array(mut element: String, rank: u32) -> String {
    let dimensions = element.trim_end_matches(['[', ']', ',']).len();
    element.insert_str(dimensions, &format!("[{}]", ",".repeat(rank.clamp(1, 32) as usize - 1)));
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_events_are_spelled_as_in_csharp() {
        for (text, expected) in [
            ("System.Byte[]", "byte[]"),
            ("System.Byte", "System.Byte"),
            ("System.String", "System.String"),
            ("Shop.Line[,][]", "Shop.Line[][,]"),
            ("System.Nullable`1[System.Int32][]", "int?[]"),
            ("System.Collections.Generic.List`1[Shop.Line]", "System.Collections.Generic.List<Shop.Line>"),
            (
                "System.Collections.Generic.Dictionary`2+Entry[System.String,Shop.Line[]][]",
                "System.Collections.Generic.Dictionary<string, Shop.Line[]>.Entry[]",
            ),
            ("Program+<>c__DisplayClass0_0", "Program.<>c__DisplayClass0_0"),
            ("odd]", "odd]"),
            ("", "System.Runtime.CompilerServices.Continuation"),
        ] {
            assert_eq!(class(text), expected, "{text}");
        }
    }

    #[test]
    fn text_without_sense_ends() {
        for text in ["A`1[", "A`1[B`1[", "A[[[[", "]", "A`1[B]]]", &"A`1[".repeat(10_000)] {
            let _ = (class(text), class_with_arguments(text));
        }
    }

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
