//! The two ways of writing a type: as IL assembly does, and as C# does.

use crate::metadata::signature::{CallingConvention, Primitive};

/// How types are written inside a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spelling {
    /// `Outer<int32>+Inner`, `T&`, `string[][,]`
    Il,
    /// `Outer<int>.Inner`, `ref T`, `string[,][]`, `int?`
    CSharp,
}

impl Spelling {
    pub(super) const fn primitive(self, primitive: Primitive) -> &'static str {
        match (self, primitive) {
            (Self::Il, _) => primitive.il_name(),
            (Self::CSharp, Primitive::Int8) => "sbyte",
            (Self::CSharp, Primitive::UInt8) => "byte",
            (Self::CSharp, Primitive::Int16) => "short",
            (Self::CSharp, Primitive::UInt16) => "ushort",
            (Self::CSharp, Primitive::Int32) => "int",
            (Self::CSharp, Primitive::UInt32) => "uint",
            (Self::CSharp, Primitive::Int64) => "long",
            (Self::CSharp, Primitive::UInt64) => "ulong",
            (Self::CSharp, Primitive::Float32) => "float",
            (Self::CSharp, Primitive::Float64) => "double",
            (Self::CSharp, Primitive::NativeInt) => "nint",
            (Self::CSharp, Primitive::NativeUInt) => "nuint",
            (Self::CSharp, Primitive::TypedRef) => "System.TypedReference",
            (Self::CSharp, _) => primitive.il_name(),
        }
    }

    /// Between a type and one that it encloses.
    pub(super) const fn nested(self) -> char {
        match self {
            Self::Il => '+',
            Self::CSharp => '.',
        }
    }

    /// A class inside another name: the core library's types by their keywords.
    pub(super) fn argument(self, full: String) -> String {
        if let Some(keyword) = self.keyword(&full) {
            return keyword.to_owned();
        }
        match self {
            Self::Il => full,
            Self::CSharp => nullable(&full).unwrap_or(full),
        }
    }

    /// A class in a signature, where the types that have an element type of their own are not given by name.
    pub(super) fn named(self, full: String) -> String {
        match self {
            Self::Il => full,
            Self::CSharp => self.argument(full),
        }
    }

    fn keyword(self, full: &str) -> Option<&'static str> {
        let name = full.strip_prefix("System.")?;
        let primitive = match name {
            "Void" => Primitive::Void,
            "Boolean" => Primitive::Bool,
            "Char" => Primitive::Char,
            "SByte" => Primitive::Int8,
            "Byte" => Primitive::UInt8,
            "Int16" => Primitive::Int16,
            "UInt16" => Primitive::UInt16,
            "Int32" => Primitive::Int32,
            "UInt32" => Primitive::UInt32,
            "Int64" => Primitive::Int64,
            "UInt64" => Primitive::UInt64,
            "Single" => Primitive::Float32,
            "Double" => Primitive::Float64,
            "String" => Primitive::String,
            "Object" => Primitive::Object,
            "TypedReference" => Primitive::TypedRef,
            "IntPtr" => Primitive::NativeInt,
            "UIntPtr" => Primitive::NativeUInt,
            "Decimal" if self == Self::CSharp => return Some("decimal"),
            _ => return None,
        };
        Some(self.primitive(primitive))
    }

    pub(super) fn by_ref(self, inner: &str) -> String {
        match self {
            Self::Il => format!("{inner}&"),
            Self::CSharp => format!("ref {inner}"),
        }
    }

    /// An array of what `element` says already. IL writes the dimensions of the outer array last, C# first.
    pub(super) fn array(self, mut element: String, rank: u32) -> String {
        let at = match self {
            Self::Il => element.len(),
            Self::CSharp => start_of_dimensions(&element),
        };
        // The runtime allows 32; whatever else is asked for is not worth the memory.
        let commas = rank.clamp(1, 32) as usize - 1;
        element.insert_str(at, &format!("[{}]", ",".repeat(commas)));
        element
    }

    /// What stands for arguments of any number and type.
    pub(super) const fn variable_arguments(self) -> &'static str {
        match self {
            Self::Il => "...",
            Self::CSharp => "__arglist",
        }
    }

    /// A pointer to a function that takes and returns this.
    pub(super) fn function_pointer(
        self,
        convention: CallingConvention,
        mut parameters: Vec<String>,
        returns: String,
    ) -> String {
        match self {
            Self::Il => format!("method {}{returns} *({})", il_convention(convention), parameters.join(", ")),
            Self::CSharp => {
                parameters.push(returns);
                format!("delegate*{}<{}>", csharp_convention(convention), parameters.join(", "))
            }
        }
    }
}

/// `int?` for `System.Nullable<int>`.
fn nullable(full: &str) -> Option<String> {
    let inner = full.strip_prefix("System.Nullable<")?.strip_suffix('>')?;
    let mut depth = 0_usize;
    for byte in inner.bytes() {
        match byte {
            b'<' => depth += 1,
            // The last bracket closes something else.
            b'>' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    if inner.is_empty() { None } else { Some(format!("{inner}?")) }
}

/// Where the `[]`s at the end of an array's name begin.
fn start_of_dimensions(text: &str) -> usize {
    text.trim_end_matches(['[', ']', ',']).len()
}

/// The words of IL assembly for a function pointer's convention, with a space behind.
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

    #[test]
    fn only_core_types_have_keywords() {
        let argument = |spelling: Spelling, full: &str| spelling.argument(full.to_owned());
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
        assert_eq!(CSharp.argument("System.Nullable<int>".to_owned()), "int?");
        assert_eq!(CSharp.named("System.Nullable<A<b, c>>".to_owned()), "A<b, c>?");
        for full in ["System.Nullable<>", "System.Nullable<int>.Odd<string>", "N.Nullable<int>"] {
            assert_eq!(CSharp.argument(full.to_owned()), full);
        }
        assert_eq!(Il.argument("System.Nullable<int32>".to_owned()), "System.Nullable<int32>");
    }

    #[test]
    fn arrays_of_arrays() {
        let matrix_of_lines = |spelling: Spelling| spelling.array(spelling.array("T".to_owned(), 1), 2);
        assert_eq!(matrix_of_lines(Il), "T[][,]");
        assert_eq!(matrix_of_lines(CSharp), "T[,][]");
        assert_eq!(CSharp.array("A<T[]>".to_owned(), 3), "A<T[]>[,,]");
        assert_eq!(CSharp.array("T[]*".to_owned(), 1), "T[]*[]");
        assert_eq!(Il.array("T".to_owned(), 0), "T[]");
    }
}
