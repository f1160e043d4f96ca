//! Which generic arguments belong where in a name: pure functions on text.
//!
//! The runtime gives the arguments of a nested type in one list, those of the enclosing types first. How many each level
//! takes is written behind the backtick of its metadata name (`` Dictionary`2 ``).

use super::spelling::Spelling;

/// A type's metadata name without its arity suffix, and that arity.
///
/// A backtick with anything but a number behind it belongs to the name.
pub(super) fn split_arity(name: &str) -> (&str, usize) {
    match name.rsplit_once('`') {
        Some((plain, arity)) if !plain.is_empty() && arity.bytes().all(|b| b.is_ascii_digit()) => {
            // An empty or absurdly large number does not parse, and is left in the name.
            arity.parse().map_or((name, 0), |arity| (plain, arity))
        }
        _ => (name, 0),
    }
}

/// The name of a nested type with its arguments: `` ["N.Outer`1", "Inner`1"] `` and `["int32", "string"]` give
/// `N.Outer<int32>+Inner<string>`. `levels` begins with the outermost type.
///
/// With no arguments the suffixes stay, for they are all that is known; C# writes them as it does in `typeof`: `Outer<,>`.
/// Arguments that no suffix claims go to the innermost
/// type, and a suffix that claims more than there are gets what is left.
pub(super) fn chain(spelling: Spelling, levels: &[impl AsRef<str>], arguments: &[impl AsRef<str>]) -> String {
    let mut text = String::new();
    let mut rest = arguments;
    for (at, level) in levels.iter().enumerate() {
        if at > 0 {
            text.push(spelling.nested());
        }
        if arguments.is_empty() {
            push_open(&mut text, spelling, level.as_ref());
            continue;
        }
        let (plain, arity) = split_arity(level.as_ref());
        let innermost = at + 1 == levels.len();
        let (own, others) = rest.split_at(if innermost { rest.len() } else { arity.min(rest.len()) });
        rest = others;
        text.push_str(plain);
        push_arguments(&mut text, own);
    }
    text
}

/// Appends a type whose arguments are not known.
fn push_open(text: &mut String, spelling: Spelling, level: &str) {
    match (spelling, split_arity(level)) {
        // The number is the profiled program's, and not to be believed if it is absurd.
        (Spelling::CSharp, (plain, arity @ 1..=64)) => {
            text.push_str(plain);
            text.push('<');
            text.extend((1..arity).map(|_| ','));
            text.push('>');
        }
        _ => text.push_str(level),
    }
}

/// Appends `<a, b>`; nothing for no arguments.
pub(super) fn push_arguments(text: &mut String, arguments: &[impl AsRef<str>]) {
    if arguments.is_empty() {
        return;
    }
    text.push('<');
    for (at, argument) in arguments.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(argument.as_ref());
    }
    text.push('>');
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn chain(levels: &[&str], arguments: &[&str]) -> String {
        super::chain(Spelling::Il, levels, arguments)
    }

    #[test]
    fn arity_is_a_number_behind_a_backtick() {
        assert_eq!(split_arity("List`1"), ("List", 1));
        assert_eq!(split_arity("Func`17"), ("Func", 17));
        assert_eq!(split_arity("Plain"), ("Plain", 0));
        assert_eq!(split_arity("Odd`"), ("Odd`", 0));
        assert_eq!(split_arity("Odd`x1"), ("Odd`x1", 0));
        assert_eq!(split_arity("`1"), ("`1", 0));
        assert_eq!(split_arity("Odd`99999999999999999999999"), ("Odd`99999999999999999999999", 0));
        assert_eq!(split_arity("A`1`2"), ("A`1", 2));
    }

    #[test]
    fn arguments_go_to_the_level_that_declares_them() {
        assert_eq!(chain(&["N.Outer`1", "Inner`1"], &["int32", "string"]), "N.Outer<int32>+Inner<string>");
        assert_eq!(chain(&["N.Outer`1", "Inner"], &["int32"]), "N.Outer<int32>+Inner");
        assert_eq!(chain(&["Outer", "Inner`2"], &["a", "b"]), "Outer+Inner<a, b>");
        assert_eq!(chain(&["A`2", "B", "C`1"], &["x", "y", "z"]), "A<x, y>+B+C<z>");
        assert_eq!(chain(&["System.String"], &NONE), "System.String");
    }

    #[test]
    fn names_that_disagree_with_their_arguments_lose_none() {
        // No suffix (some compilers and obfuscators): the innermost takes what nobody claims.
        assert_eq!(chain(&["Outer", "Inner"], &["int32"]), "Outer+Inner<int32>");
        assert_eq!(chain(&["Outer`1", "Inner"], &["int32", "string"]), "Outer<int32>+Inner<string>");
        // Too few.
        assert_eq!(chain(&["Outer`3", "Inner`1"], &["int32"]), "Outer<int32>+Inner");
        // None at all: the open type.
        assert_eq!(chain(&["Outer`1", "Inner`1"], &NONE), "Outer`1+Inner`1");
        assert_eq!(chain(&[], &["int32"]), "");
    }

    #[test]
    fn csharp_nests_by_dots() {
        let csharp = |levels: &[&str], arguments: &[&str]| super::chain(Spelling::CSharp, levels, arguments);
        assert_eq!(csharp(&["N.Outer`1", "Inner`1"], &["int", "string"]), "N.Outer<int>.Inner<string>");
        assert_eq!(csharp(&["N.Outer`1", "Plain", "Inner`3"], &[]), "N.Outer<>.Plain.Inner<,,>");
        assert_eq!(csharp(&["Odd`0", "Odd`9999999"], &[]), "Odd`0.Odd`9999999");
    }
}
