//! Enumerations: newtypes with constants, or `bitflags` where values are combined.
//!
//! Never a Rust `enum`: a value that a newer runtime sends would be undefined behaviour.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{doc, ident};
use crate::model::{Enum, Model};
use crate::sources::Input;

/// The enumerations of an input.
pub(super) fn emit(model: &Model, input: Input) -> TokenStream {
    let enums = model.enums.iter().filter(|enumeration| enumeration.input == input);
    enums.map(|enumeration| if enumeration.bitflags { flags(enumeration) } else { newtype(enumeration) }).collect()
}

fn flags(enumeration: &Enum) -> TokenStream {
    let name = ident(&enumeration.name);
    let constants = enumeration.enumerators.iter().map(|(member, value)| {
        let about = doc(format!("[`{}`]: {}", enumeration.name, hexadecimal(*value)));
        let member = ident(member);
        quote! {
            #about
            pub const #member: #name = #name::#member;
        }
    });
    quote! {
        bitflags_of!(#name);
        #(#constants)*
    }
}

/// The `bitflags!` block of an enumeration. As text: prettyplease does not lay out the inside of macros.
///
/// `_ = !0` makes every bit a known one, so that no operation drops the flags of a newer runtime.
pub(super) fn flags_block(enumeration: &Enum) -> String {
    let name = &enumeration.name;
    let mut text = format!(
        "bitflags::bitflags! {{
    /// Flags `{name}`: values are combined, and unknown bits are kept.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct {name}: u32 {{\n"
    );
    for (member, value) in &enumeration.enumerators {
        let value = hex(*value);
        text.push_str(&format!("        /// `{value}`.\n        const {member} = {value};\n"));
    }
    text.push_str("        const _ = !0;\n    }\n}\n");
    text
}

fn newtype(enumeration: &Enum) -> TokenStream {
    let name = ident(&enumeration.name);
    let text = &enumeration.name;
    let inner = if enumeration.unsigned { quote!(u32) } else { quote!(i32) };
    let about = doc(format!("Enumeration `{text}`; any value may occur."));
    let constants = enumeration.enumerators.iter().map(|(member, value)| {
        let about = doc(format!("[`{text}`]: {value}."));
        let member = ident(member);
        let value = literal(enumeration, *value);
        quote! {
            #about
            pub const #member: #name = #name(#value);
        }
    });
    let members: Vec<_> = enumeration.enumerators.iter().map(|(member, _)| ident(member)).collect();
    let names = enumeration.enumerators.iter().map(|(member, _)| member);
    quote! {
        #about
        #[repr(transparent)]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct #name(pub #inner);

        impl #name {
            /// The enumerators and their IDL names, in the order of the IDL.
            pub const NAMES: &'static [(Self, &'static str)] = &[#((#members, #names)),*];

            /// The IDL name of the first enumerator with this value.
            pub fn name(self) -> Option<&'static str> {
                Self::NAMES.iter().find(|(value, _)| *value == self).map(|(_, name)| *name)
            }
        }

        impl core::fmt::Debug for #name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => f.debug_tuple(#text).field(&self.0).finish(),
                }
            }
        }

        #(#constants)*
    }
}

fn literal(enumeration: &Enum, value: i64) -> Literal {
    // Flags are read as bits; 32-bit values that are negative or small are read as numbers.
    let text = if enumeration.bitflags { hex(value) } else { value.to_string() };
    text.parse().unwrap_or_else(|_| Literal::i64_unsuffixed(value))
}

fn hex(value: i64) -> String {
    format!("0x{:04X}_{:04X}", (value >> 16) & 0xFFFF, value & 0xFFFF)
}

fn hexadecimal(value: i64) -> String {
    format!("`{}`.", hex(value))
}
