//! Result codes, and the table to look their names up in.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{doc, ident};
use crate::model::{Code, Model};

/// All codes.
pub(super) fn emit(model: &Model) -> TokenStream {
    let constants = model.codes.iter().map(|code| {
        let name = ident(&code.name);
        let value = literal(code);
        let text = hex(code);
        let about = doc(if code.from_facts { format!("`{text}`, COM.") } else { format!("`{text}`.") });
        quote! {
            #about
            pub const #name: HRESULT = HRESULT(#value as i32);
        }
    });
    let mut sorted: Vec<&Code> = model.codes.iter().collect();
    // Stable: of several names for a value, COM's comes first.
    sorted.sort_by_key(|code| code.value);
    let rows = sorted.iter().map(|code| {
        let text = &code.name;
        let name = ident(text);
        quote!((#name, #text))
    });
    quote! {
        #(#constants)*

        /// Every code with its name, sorted by the code as an unsigned number; COM's own name first where a code has
        /// several.
        pub const HRESULT_NAMES: &[(HRESULT, &str)] = &[#(#rows),*];

        /// The IDL name of a code, if it is one of [`HRESULT_NAMES`].
        pub fn hresult_name(code: HRESULT) -> Option<&'static str> {
            let at = HRESULT_NAMES.partition_point(|(other, _)| (other.0 as u32) < (code.0 as u32));
            HRESULT_NAMES.get(at).filter(|(other, _)| *other == code).map(|(_, name)| *name)
        }
    }
}

fn hex(code: &Code) -> String {
    format!("0x{:04X}_{:04X}", code.value >> 16, code.value & 0xFFFF)
}

fn literal(code: &Code) -> Literal {
    format!("{}_u32", hex(code)).parse().unwrap_or_else(|_| Literal::u32_suffixed(code.value))
}
