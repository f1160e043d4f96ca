//! Interfaces: one `#[interface]` trait each, which makes the type, its vtable and its `_Impl` trait.
//!
//! The methods get their `pub` when the file is laid out: the attribute wants it, Rust's own grammar has no place for
//! it.

use proc_macro2::TokenStream;
use quote::quote;

use super::types::{c_text, idl_text, params, returns};
use super::{doc, ident};
use crate::model::{Interface, Method, Model};

/// The interfaces that `wanted` accepts.
pub(super) fn emit(model: &Model, wanted: &dyn Fn(&Interface) -> bool) -> TokenStream {
    model.interfaces.iter().filter(|interface| wanted(interface)).map(|interface| emit_one(model, interface)).collect()
}

fn emit_one(model: &Model, interface: &Interface) -> TokenStream {
    let name = ident(&interface.name);
    // The macro puts `_Vtbl` and `_Impl` after the whole path.
    let parent = ident(&interface.parent);
    let parent = if interface.parent == "IUnknown" { quote!(windows_core::#parent) } else { quote!(#parent) };
    let iid = &interface.iid;
    let methods = interface.methods.iter().map(|method| emit_method(model, interface, method));
    let since = interface.since.as_ref().map(|since| format!(", since {since}")).unwrap_or_default();
    let slots = match interface.methods.as_slice() {
        [first, .., last] => format!("vtable slots {} to {}", first.slot, last.slot),
        [only] => format!("vtable slot {}", only.slot),
        [] => "no methods of its own".to_owned(),
    };
    let doc = doc(format!("Interface `{}`, {slots}{since}.", interface.name));
    quote! {
        #doc
        #[interface(#iid)]
        pub unsafe trait #name: #parent {
            #(#methods)*
        }
    }
}

fn emit_method(model: &Model, interface: &Interface, method: &Method) -> TokenStream {
    let name = ident(&method.name);
    let params = params(model, &method.params);
    let returns = returns(model, &method.returns);
    let texts: Vec<String> = method.params.iter().map(idl_text).collect();
    let what = doc(format!("`{}::{}`, vtable slot {}.", interface.name, method.name, method.slot));
    let idl = doc(format!("IDL: `{} {}({})`", c_text(&method.returns, ""), method.name, texts.join(", ")));
    quote! {
        #what
        #[doc = ""]
        #idl
        unsafe fn #name(&self, #(#params),*) #returns;
    }
}
