//! The table that the ABI tests compare with their figures: names from the model, numbers from the compiler.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::types::param_type;
use super::{ident, output};
use crate::emitter::Output;
use crate::error::Error;
use crate::model::{Interface, Model};
use crate::sources::Input;

/// The table.
pub(super) fn emit(model: &Model, path: &str) -> Result<Output, Error> {
    let slots = model.interfaces.iter().map(|interface| slots(model, interface));
    let iids = model.interfaces.iter().map(|interface| {
        let text = &interface.name;
        let name = ident(text);
        quote!((#text, #name::IID))
    });
    let records = model.records.iter().map(|record| {
        let text = &record.name;
        let name = ident(text);
        // A union's field cannot be borrowed without saying that it is in force.
        let fields = record.fields.iter().filter(|_| !record.union).map(|(text, _)| {
            let field = ident(text);
            quote!((#text, offset_of!(#name, #field), size(|it: &#name| &it.#field)))
        });
        quote!((#text, size_of::<#name>(), align_of::<#name>(), &[#(#fields),*]))
    });
    let constants = model.enums.iter().flat_map(|enumeration| {
        enumeration.enumerators.iter().map(|(name, _)| {
            let constant = ident(name);
            let text = name;
            let value = if enumeration.bitflags { quote!(.bits()) } else { quote!(.0) };
            quote!((#text, #constant #value as i64))
        })
    });
    let body = quote! {
        use core::mem::{align_of, offset_of, size_of};
        use corprof_sys::*;
        use core::ffi::{c_char, c_void};
        use windows_core::{BOOL, GUID, HRESULT, IUnknown, Interface, Ref};

        const fn size<T, F>(_: fn(&T) -> &F) -> usize {
            size_of::<F>()
        }

        /// Interface, its parent; where the parent's vtable starts in its own, size of the vtable; its own methods,
        /// their offsets, the sizes of their arguments.
        pub(crate) const SLOTS: &[Slots] = &[#(#slots),*];
        type Method = (&'static str, usize, &'static [usize]);
        type Slots = (&'static str, &'static str, usize, usize, &'static [Method]);
        type Record = (&'static str, usize, usize, &'static [(&'static str, usize, usize)]);

        /// Interface; its IID.
        pub(crate) const IIDS: &[(&str, GUID)] = &[#(#iids),*];
        /// Structure; size, alignment; fields with their offsets and sizes.
        pub(crate) const RECORDS: &[Record] = &[#(#records),*];
        /// Enumerator; value.
        pub(crate) const CONSTANTS: &[(&str, i64)] = &[#(#constants),*];
    };
    output(model, path, "Names of the model, numbers of the compiler.", &Input::ALL, body)
}

/// Only the interface's own methods: the others stand in the parent's vtable, which `base__` must be the start of.
fn slots(model: &Model, interface: &Interface) -> TokenStream {
    let vtable = format_ident!("{}_Vtbl", interface.name);
    let text = &interface.name;
    let parent = &interface.parent;
    let entries = interface.methods.iter().map(|method| {
        let text = &method.name;
        let name = ident(text);
        let sizes = method.params.iter().map(|param| {
            let ty = param_type(model, param);
            quote!(size_of::<#ty>())
        });
        quote!((#text, offset_of!(#vtable, #name), &[#(#sizes),*]))
    });
    quote!((#text, #parent, offset_of!(#vtable, base__), size_of::<#vtable>(), &[#(#entries),*]))
}
