//! The two spellings of types: those of IL assembly and of C#.

use crate::metadata::signature::{CallingConvention, Primitive};
use crate::session::names::{Cache, Name, NameStore, Named};

/// The spelling of types inside a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spelling {
    /// `Outer<int32>+Inner`, `T&`, `string[][,]`
    Il,
    /// `Outer<int>.Inner`, `ref T`, `string[,][]`, `int?`
    CSharp,
}

impl Spelling {
    /// The cache of names in this spelling.
    pub(super) fn names(self, kept: &NameStore) -> &Cache<Named, Name> {
        match self {
            Self::Il => &kept.il,
            Self::CSharp => &kept.csharp,
        }
    }

    pub(super) const fn primitive(self, primitive: Primitive) -> &'static str {
        match self {
            Self::Il => primitive.il_name(),
            Self::CSharp => primitive.csharp_name(),
        }
    }

    /// The separator between a type and one that it encloses.
    pub(super) const fn nested(self) -> char {
        match self {
            Self::Il => '+',
            Self::CSharp => '.',
        }
    }

    /// Respells the class whose name begins at `start` in `text`, inside another name: the core library's types get
    /// their keywords.
    pub(super) fn argument(self, text: &mut String, start: usize) {
        let full = text.get(start..).unwrap_or_default();
        if let Some(keyword) = self.keyword(full) {
            text.truncate(start);
            text.push_str(keyword);
        } else if self == Self::CSharp && is_nullable(full) {
            let inner = text.split_off(start + NULLABLE.len());
            text.truncate(start);
            text.push_str(inner.strip_suffix('>').unwrap_or(&inner));
            text.push('?');
        }
    }

    /// The same for a class in a signature, where types with an element type do not appear by name.
    pub(super) fn named(self, text: &mut String, start: usize) {
        if self == Self::CSharp {
            self.argument(text, start);
        }
    }

    fn keyword(self, full: &str) -> Option<&'static str> {
        let name = full.strip_prefix("System.")?;
        match Primitive::from_name(name) {
            None if name == "Decimal" && self == Self::CSharp => Some("decimal"),
            primitive => Some(self.primitive(primitive?)),
        }
    }

    /// The text before and behind the type that a by-ref refers to.
    pub(super) const fn by_ref(self) -> (&'static str, &'static str) {
        match self {
            Self::Il => ("", "&"),
            Self::CSharp => ("ref ", ""),
        }
    }

    /// Makes an array of the type that begins at `start` in `text`. IL writes the dimensions of the outer array last,
    /// C# first.
    pub(super) fn array(self, text: &mut String, start: usize, rank: u32) {
        let at = match self {
            Self::Il => text.len(),
            Self::CSharp => start + start_of_dimensions(text.get(start..).unwrap_or_default()),
        };
        // The runtime allows 32; a greater number is not worth the memory.
        match rank.clamp(1, 32) as usize - 1 {
            0 if at == text.len() => text.push_str("[]"),
            0 => text.insert_str(at, "[]"),
            commas => text.insert_str(at, &format!("[{}]", ",".repeat(commas))),
        }
    }

    /// The text for arguments of any number and type.
    pub(super) const fn variable_arguments(self) -> &'static str {
        match self {
            Self::Il => "...",
            Self::CSharp => "__arglist",
        }
    }

    /// The two parts that a pointer to a function of this convention begins with.
    pub(super) const fn function_pointer(self, convention: CallingConvention) -> (&'static str, &'static str) {
        match self {
            Self::Il => ("method ", il_convention(convention)),
            Self::CSharp => ("delegate*", csharp_convention(convention)),
        }
    }
}

const NULLABLE: &str = "System.Nullable<";

/// Whether this is `System.Nullable<…>` with its argument, for which C# writes `int?`.
fn is_nullable(full: &str) -> bool {
    let Some(inner) = full.strip_prefix(NULLABLE).and_then(|rest| rest.strip_suffix('>')) else { return false };
    let mut depth = 0_usize;
    for byte in inner.bytes() {
        match byte {
            b'<' => depth += 1,
            // Otherwise the last bracket closes something else.
            b'>' if depth == 0 => return false,
            b'>' => depth -= 1,
            _ => {}
        }
    }
    !inner.is_empty()
}

/// The start of the `[]`s at the end of an array's name.
fn start_of_dimensions(text: &str) -> usize {
    text.trim_end_matches(['[', ']', ',']).len()
}

/// The convention of a function pointer in IL assembly, with a space behind.
const fn il_convention(convention: CallingConvention) -> &'static str {
    match convention {
        CallingConvention::Default | CallingConvention::VarArg => "",
        CallingConvention::C => "unmanaged cdecl ",
        CallingConvention::StdCall => "unmanaged stdcall ",
        CallingConvention::ThisCall => "unmanaged thiscall ",
        CallingConvention::FastCall => "unmanaged fastcall ",
        _ => "unmanaged ",
    }
}

const fn csharp_convention(convention: CallingConvention) -> &'static str {
    match convention {
        CallingConvention::Default | CallingConvention::VarArg => "",
        CallingConvention::C => " unmanaged[Cdecl]",
        CallingConvention::StdCall => " unmanaged[Stdcall]",
        CallingConvention::ThisCall => " unmanaged[Thiscall]",
        CallingConvention::FastCall => " unmanaged[Fastcall]",
        _ => " unmanaged",
    }
}

#[cfg(test)]
mod tests {
    use super::Spelling::{CSharp, Il};
    use super::*;

    fn argument(spelling: Spelling, full: &str) -> String {
        let mut text = format!("A<{full}");
        spelling.argument(&mut text, 2);
        text.split_off(2)
    }

    fn array(spelling: Spelling, element: &str, rank: u32) -> String {
        let mut text = format!("[]{element}");
        spelling.array(&mut text, 2, rank);
        text.split_off(2)
    }

    #[test]
    fn only_core_types_have_keywords() {
        assert_eq!(argument(Il, "System.Int32"), "int32");
        assert_eq!(argument(CSharp, "System.Int32"), "int");
        assert_eq!(argument(Il, "System.UIntPtr"), "native uint");
        assert_eq!(argument(CSharp, "System.Decimal"), "decimal");
        for full in ["System.__Canon", "My.System.Int32", "Int32", "System.Int32+X"] {
            assert_eq!((argument(Il, full), argument(CSharp, full)), (full.to_owned(), full.to_owned()));
        }
        assert_eq!(argument(Il, "System.Decimal"), "System.Decimal");
    }

    #[test]
    fn nullable_types_have_a_question_mark() {
        assert_eq!(argument(CSharp, "System.Nullable<int>"), "int?");
        let mut text = "ref System.Nullable<A<b, c>>".to_owned();
        CSharp.named(&mut text, 4);
        assert_eq!(text, "ref A<b, c>?");
        for full in ["System.Nullable<>", "System.Nullable<int>.Odd<string>", "N.Nullable<int>"] {
            assert_eq!(argument(CSharp, full), full);
        }
        assert_eq!(argument(Il, "System.Nullable<int32>"), "System.Nullable<int32>");
    }

    #[test]
    fn arrays_of_arrays() {
        let matrix_of_lines = |spelling: Spelling| array(spelling, &array(spelling, "T", 1), 2);
        assert_eq!(matrix_of_lines(Il), "T[][,]");
        assert_eq!(matrix_of_lines(CSharp), "T[,][]");
        assert_eq!(array(CSharp, "A<T[]>", 3), "A<T[]>[,,]");
        assert_eq!(array(CSharp, "T[]*", 1), "T[]*[]");
        assert_eq!(array(Il, "T", 0), "T[]");
    }
}
