//! Names of methods in the spelling of C#, from the text of the runtime's events.
//!
//! An event has the name of the class (`` N.Outer`1+Inner[System.Int32] ``), that of the method, and the signature in a
//! spelling of the runtime's own (`instance void  (!0,value class Point&)`). Profilers spell the same method in the
//! same way (`Names::csharp` of corprof), with two exceptions, because the text does not have more: a nested type in a
//! signature is without the types around it, and the type parameters of a method are numbers.

use corprof_il::csharp::{array, as_argument, class_with_arguments, nested};

/// The nesting limit for types in one name.
const MAX_DEPTH: u32 = 48;

/// Types of signatures that are single words, and the classes that they are.
const WORDS: [(&str, &str); 17] = [
    ("void", "System.Void"),
    ("bool", "System.Boolean"),
    ("wchar", "System.Char"),
    ("char", "System.Char"),
    ("int8", "System.SByte"),
    ("unsigned int8", "System.Byte"),
    ("int16", "System.Int16"),
    ("unsigned int16", "System.UInt16"),
    ("int32", "System.Int32"),
    ("unsigned int32", "System.UInt32"),
    ("int64", "System.Int64"),
    ("unsigned int64", "System.UInt64"),
    ("float32", "System.Single"),
    ("float64", "System.Double"),
    ("int", "System.IntPtr"),
    ("unsigned int", "System.UIntPtr"),
    ("refany", "System.TypedReference"),
];

/// What comes before the name of a class, and says nothing in C#.
const PREFIXES: [&str; 3] = ["value class ", "class ", "native "];
/// Modifiers of a type, each with the name of a class.
const MODIFIERS: [&str; 2] = ["required_modifier ", "optional_modifier "];

/// `Namespace.Outer<int>.Inner.Method(ref int, string[])`.
pub(super) fn method(class: &str, name: &str, signature: &str) -> String {
    let (class, arguments) = class_with_arguments(class);
    let class = if class.is_empty() { "<Module>".to_owned() } else { class };
    // The return type ends with two blanks.
    let parameters = signature.split_once("  (").and_then(|(_, rest)| rest.strip_suffix(')'));
    let parameters = parameters.map(|text| parameters_of(text, &arguments).unwrap_or_else(|| text.to_owned()));
    format!("{class}.{name}({})", parameters.unwrap_or_default())
}

/// The name of a method in the text of the runtime's map for `perf`, such as
/// `instance void [Shop] Shop.Order::Total(int32)[Tier1]`. None if the text is not such a one.
pub(crate) fn of_perf_map(text: &str) -> Option<String> {
    let (before, rest) = text.split_once('[')?;
    let (_assembly, method_text) = rest.split_once("] ")?;
    let method_text = match method_text.strip_suffix(']').and_then(|text| text.rsplit_once('[')) {
        Some((without_tier, _tier)) => without_tier,
        None => method_text,
    };
    let begin = method_text.find('(')?;
    let (path, parameters) = method_text.split_at(begin);
    let (class, name) = path.rsplit_once("::")?;
    Some(method(class, name, &format!("{}  {parameters}", before.trim_end())))
}

/// A method without metadata.
pub(super) fn dynamic_method(name: &str) -> String {
    match name {
        "" => "<dynamic method>".to_owned(),
        stub if stub.starts_with("IL_STUB") => format!("<stub {stub}>"),
        name => format!("<dynamic method {name}>"),
    }
}

/// The parameters of a signature, if all of the text is understood.
fn parameters_of(text: &str, arguments: &[String]) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    let mut rest = text;
    let mut all = Vec::new();
    loop {
        let mut signature = Signature { rest, arguments };
        all.push(signature.parameter(MAX_DEPTH)?);
        rest = signature.rest;
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    rest.is_empty().then(|| all.join(", "))
}

/// The text of a signature that is not read yet, and the arguments of its class.
struct Signature<'a> {
    rest: &'a str,
    arguments: &'a [String],
}

impl Signature<'_> {
    fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn parameter(&mut self, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        if self.take("...") {
            return Some("__arglist".to_owned());
        }
        let mut text = self.innermost(depth)?;
        loop {
            if self.take("*") {
                text.push('*');
            } else if self.take("&") {
                text.insert_str(0, "ref ");
            } else if self.take(" pinned") {
            } else if let Some(rest) = self.rest.strip_prefix('[') {
                // `[]`, `[,]`, `[0...5,]`
                let (dimensions, rest) = rest.split_once(']')?;
                self.rest = rest;
                text = array(text, 1 + u32::try_from(dimensions.matches(',').count()).ok()?);
            } else {
                return Some(text);
            }
        }
    }

    /// The type before all that is written behind it.
    fn innermost(&mut self, depth: u32) -> Option<String> {
        while MODIFIERS.iter().any(|modifier| self.take(modifier)) {
            let (_, rest) = self.rest.split_once(' ')?;
            self.rest = rest;
        }
        if self.take("!") {
            let is_of_method = self.take("!");
            let digits = self.rest.len() - self.rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
            let (number, rest) = self.rest.split_at(digits);
            self.rest = rest;
            let argument = number.parse().ok().and_then(|number: usize| self.arguments.get(number));
            return Some(match argument {
                Some(argument) if !is_of_method => argument.clone(),
                _ => format!("{}{number}", if is_of_method { "!!" } else { "!" }),
            });
        }
        let is_class = PREFIXES.iter().any(|prefix| self.take(prefix));
        let end = name_end(self.rest);
        let (name, rest) = self.rest.split_at(end);
        if !is_class {
            // A word with a blank in it is longer than what a name can be.
            let longest =
                WORDS.iter().filter(|(word, _)| self.rest.starts_with(word)).max_by_key(|(word, _)| word.len());
            let (word, class) = longest?;
            self.take(word);
            return Some(as_argument((*class).to_owned()));
        }
        self.rest = rest;
        let mut arguments = Vec::new();
        if self.take("<") {
            loop {
                arguments.push(self.parameter(depth)?);
                if self.take(">") {
                    break;
                }
                if !self.take(",") {
                    return None;
                }
            }
        }
        (!name.is_empty()).then(|| as_argument(nested(&[name.to_owned()], &arguments)))
    }
}

/// Where the name of a class in a signature ends. In a compiler's names, `<` and `>` are letters; where type arguments
/// begin, the number of them comes before.
fn name_end(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut before = ' ';
    let mut has_number = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' if has_number => return at,
            '<' => depth += 1,
            '>' if depth == 0 => return at,
            '>' => depth -= 1,
            ',' | '[' | ']' | '&' | '*' | ' ' | ')' if depth == 0 => return at,
            _ => {}
        }
        has_number = letter.is_ascii_digit() && (has_number || before == '`');
        before = letter;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_spelled_as_profilers_spell_them() {
        for (class, name, signature, expected) in [
            ("Shares", "Burn", "int64  (int32)", "Shares.Burn(int)"),
            ("N.A+B", ".ctor", "instance void  ()", "N.A.B..ctor()"),
            ("", "Main", "void  (class System.String[])", "<Module>.Main(string[])"),
            (
                "System.Collections.Generic.Dictionary`2+ValueCollection+Enumerator[System.Int32,System.__Canon]",
                "MoveNext",
                "instance bool  ()",
                "System.Collections.Generic.Dictionary<int, System.__Canon>.ValueCollection.Enumerator.MoveNext()",
            ),
            (
                "N.Outer`1+Inner`1[System.String,N.Pair`2[System.Int32[],System.Nullable`1[N.Point]]]",
                "M",
                "instance void  (!0,!1&,!!0[,],!!1*)",
                "N.Outer<string>.Inner<N.Pair<int[], N.Point?>>.M(string, ref N.Pair<int[], N.Point?>, !!0[,], !!1*)",
            ),
            (
                "System.Linq.Enumerable",
                "Sum",
                "generic !!1  (class System.Collections.Generic.IEnumerable`1<!!0>,class System.Func`2<!!0,!!1>)",
                "System.Linq.Enumerable.Sum(System.Collections.Generic.IEnumerable<!!0>, System.Func<!!0, !!1>)",
            ),
            (
                "P+<>c__DisplayClass0_0",
                "<Main>b__0",
                "instance void  (value class <Main>d__5&,class <>c,unsigned int8*,int,wchar,...)",
                "P.<>c__DisplayClass0_0.<Main>b__0(ref <Main>d__5, <>c, byte*, nint, char, __arglist)",
            ),
            (
                "A",
                "M",
                "void  (required_modifier System.Runtime.InteropServices.InAttribute value class System.DateTime&,float64[][0...5,])",
                "A.M(ref System.DateTime, double[,][])",
            ),
            ("A", "M", "void  (fnptr odd)", "A.M(fnptr odd)"),
        ] {
            assert_eq!(method(class, name, signature), expected);
        }
    }

    #[test]
    fn names_of_the_map_for_perf_are_spelled_as_others() {
        let text = "instance int32 [Shop.Core] Shop.Basket`1[System.Int32]::Count(int32,!0[])[OptimizedTier1]";
        assert_eq!(of_perf_map(text).as_deref(), Some("Shop.Basket<int>.Count(int, int[])"));
        assert_eq!(of_perf_map("void [Shop] Shop.App::Main()").as_deref(), Some("Shop.App.Main()"));
        assert_eq!(of_perf_map("std::vector<int>::push_back(int const&)"), None);
        assert_eq!(of_perf_map("operator[](int)"), None);
    }

    #[test]
    fn text_without_sense_ends() {
        for text in ["A`1[", "A`1[B`1[", "A[[[[", "]", "A`1[B]]]", &"A`1[".repeat(10_000)] {
            method(text, "M", &format!("void  ({text})"));
            method("A", "M", &format!("void  (class {})", text.replace('[', "<")));
        }
        assert_eq!(dynamic_method("IL_STUB_PInvoke"), "<stub IL_STUB_PInvoke>");
        assert_eq!(dynamic_method("lambda_method1"), "<dynamic method lambda_method1>");
    }
}
