//! Assigns generic arguments to the levels of a name: pure functions on text.
//!
//! The runtime gives the arguments of a nested type in one list, those of the enclosing types first. The number at each
//! level is written behind the backtick of its metadata name (`` Dictionary`2 ``).

use super::spelling::Spelling;

/// A type's metadata name without its arity suffix, and that arity.
///
/// A backtick without a number behind it belongs to the name.
pub(super) fn split_arity(name: &str) -> (&str, usize) {
    match name.rsplit_once('`') {
        Some((plain, arity)) if !plain.is_empty() && arity.bytes().all(|b| b.is_ascii_digit()) => {
            // An empty or absurdly large number does not parse, and stays in the name.
            arity.parse().map_or((name, 0), |arity| (plain, arity))
        }
        _ => (name, 0),
    }
}

/// Inserts the arguments of a type and its enclosing types into their names, given in `text` one after another, the
/// outermost first: `` N.Outer`1 `` and `` Inner`1 `` with `int32` and `string` make `N.Outer<int32>+Inner<string>`.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    /// Whether there are no arguments: then the suffixes stay; C# writes them as in `typeof`: `Outer<,>`.
    is_open: bool,
    spelling: Spelling,
}

impl Levels {
    pub(super) const fn new(spelling: Spelling, arguments: usize) -> Self {
        Self { is_open: arguments == 0, spelling }
    }

    /// Ends the level whose name begins at `start` in `text`; returns how many of the remaining arguments belong to it.
    /// Its suffix is removed or respelt.
    ///
    /// Arguments that no suffix claims go to the innermost type, and a suffix that claims too many gets the remaining
    /// ones.
    pub(super) fn end(self, text: &mut String, start: usize, is_innermost: bool, left: usize) -> usize {
        if self.is_open && self.spelling == Spelling::Il {
            return 0;
        }
        let level = text.get(start..).unwrap_or_default();
        let (plain, arity) = split_arity(level);
        let plain = start + plain.len();
        if !self.is_open {
            text.truncate(plain);
            return if is_innermost { left } else { arity.min(left) };
        }
        // The number comes from the profiled program, and an absurd one is ignored.
        if (1..=64).contains(&arity) {
            text.truncate(plain);
            text.push('<');
            (1..arity).for_each(|_| text.push(','));
            text.push('>');
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn chain(levels: &[&str], arguments: &[&str]) -> String {
        chain_in(Spelling::Il, levels, arguments)
    }

    fn chain_in(spelling: Spelling, levels: &[&str], arguments: &[&str]) -> String {
        let ends = Levels::new(spelling, arguments.len());
        let mut text = String::new();
        let mut rest = arguments;
        for (at, level) in levels.iter().enumerate() {
            if at > 0 {
                text.push(spelling.nested());
            }
            let start = text.len();
            text.push_str(level);
            let (own, others) = rest.split_at(ends.end(&mut text, start, at + 1 == levels.len(), rest.len()));
            rest = others;
            if !own.is_empty() {
                text.push_str(&format!("<{}>", own.join(", ")));
            }
        }
        text.to_owned()
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
        // No suffix (some compilers and obfuscators): the innermost takes the unclaimed arguments.
        assert_eq!(chain(&["Outer", "Inner"], &["int32"]), "Outer+Inner<int32>");
        assert_eq!(chain(&["Outer`1", "Inner"], &["int32", "string"]), "Outer<int32>+Inner<string>");
        // Too few arguments.
        assert_eq!(chain(&["Outer`3", "Inner`1"], &["int32"]), "Outer<int32>+Inner");
        // No arguments: the open type.
        assert_eq!(chain(&["Outer`1", "Inner`1"], &NONE), "Outer`1+Inner`1");
        assert_eq!(chain(&[], &["int32"]), "");
    }

    #[test]
    fn csharp_nests_by_dots() {
        let csharp = |levels: &[&str], arguments: &[&str]| chain_in(Spelling::CSharp, levels, arguments);
        assert_eq!(csharp(&["N.Outer`1", "Inner`1"], &["int", "string"]), "N.Outer<int>.Inner<string>");
        assert_eq!(csharp(&["N.Outer`1", "Plain", "Inner`3"], &[]), "N.Outer<>.Plain.Inner<,,>");
        assert_eq!(csharp(&["Odd`0", "Odd`9999999"], &[]), "Odd`0.Odd`9999999");
    }
}
