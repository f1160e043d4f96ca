//! `fake_*.rs`: an interface from the runtime's side. A trait with a method for each slot, which answers `E_NOTIMPL`
//! unless the fake CLR says otherwise, and the vtable that leads there.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use crate::emit::{ident, types};
use crate::error::Error;
use crate::model::{Interface, Method, Model};

/// An interface to be faked, with those it extends.
pub(super) struct Fake {
    /// The newest.
    interface: &'static str,
    /// The trait.
    answers: &'static str,
    /// The type in `corprof::testing` that has the answers.
    face: &'static str,
}

/// The runtime itself.
pub(super) const INFO: Fake = Fake { interface: "ICorProfilerInfo15", answers: "InfoAnswers", face: "InfoFace" };
/// A module's metadata.
pub(super) const METADATA: Fake = Fake { interface: "IMetaDataImport2", answers: "ImportAnswers", face: "ImportFace" };

pub(super) fn emit(model: &Model, fake: &Fake) -> Result<TokenStream, Error> {
    let line = lineage(model, fake.interface)?;
    let answers = format_ident!("{}", fake.answers);
    let face = format_ident!("{}", fake.face);
    let methods: Vec<&Method> = line.iter().flat_map(|interface| &interface.methods).collect();
    let defaults = methods.iter().map(|method| default(model, method));
    let thunks = methods.iter().map(|method| thunk(model, method, &answers, &face));
    let names = methods.iter().map(|method| &method.name);
    let (tables, newest, last) = tables(&line, &face);
    let count = methods.len();
    let about =
        format!("The answers of the fake CLR: each method of `{}`, after the call was accepted.", fake.interface);
    Ok(quote! {
        #![allow(non_snake_case, reason = "methods and parameters have their names in the IDL")]
        #![allow(unsafe_op_in_unsafe_fn, reason = "a thunk is nothing but the one call")]
        #![allow(unused_imports, reason = "not every interface needs every name")]

        use core::ffi::c_void;
        use corprof_sys::*;
        use windows_core::{BOOL, GUID, HRESULT, IUnknown, IUnknown_Vtbl, Ref};

        use crate::error::E_NOTIMPL;
        use crate::testing::com::{self, #face};

        /// The methods, by slot, from 3 on.
        pub(crate) const NAMES: [&str; #count] = [#(#names),*];

        #[doc = #about]
        ///
        /// # Safety
        /// Of every method: its pointers are as the IDL has them, or null.
        #[allow(unused_variables, reason = "the default bodies ignore what they are given")]
        #[allow(clippy::too_many_arguments, reason = "they are the IDL's")]
        pub(crate) trait #answers {
            #(#defaults)*
        }

        /// The vtable that a profiler calls.
        pub(crate) const VTABLE: &#newest = &#last;
        #tables
        #(#thunks)*
    })
}

/// `name` and the interfaces that it extends, the oldest first.
fn lineage<'m>(model: &'m Model, name: &str) -> Result<Vec<&'m Interface>, Error> {
    let mut line = Vec::new();
    let mut wanted = name;
    while wanted != "IUnknown" {
        let Some(interface) = model.interfaces.iter().find(|interface| interface.name == wanted) else {
            let problems = vec![format!("there is no {wanted} to fake")];
            return Err(Error::Facts { file: "the IDL", problems });
        };
        line.push(interface);
        wanted = &interface.parent;
    }
    line.reverse();
    Ok(line)
}

fn is_hresult(method: &Method) -> bool {
    method.returns.is_plain("HRESULT")
}

fn default(model: &Model, method: &Method) -> TokenStream {
    let name = ident(&method.name);
    let params = types::params(model, &method.params);
    let returns = types::returns(model, &method.returns);
    let answer = match &returns {
        None => quote!(),
        Some(_) if is_hresult(method) => quote!(E_NOTIMPL),
        Some(_) => quote!(Default::default()),
    };
    quote!(unsafe fn #name(&self, #(#params),*) #returns { #answer })
}

fn thunk(model: &Model, method: &Method, answers: &proc_macro2::Ident, face: &proc_macro2::Ident) -> TokenStream {
    let name = ident(&method.name);
    let params = types::params(model, &method.params);
    let returns = types::returns(model, &method.returns);
    let names = method.params.iter().map(|param| {
        let tail = if model.is_constant(&param.name) { "_" } else { "" };
        ident(&format!("{}{tail}", param.name))
    });
    let slot = Literal::usize_unsuffixed(method.slot);
    let body = if is_hresult(method) {
        quote!(com::called::<#face>(this, #slot, |face| #answers::#name(face, #(#names),*)))
    } else {
        quote!(#answers::#name(com::of::<#face>(this), #(#names),*))
    };
    quote!(unsafe extern "system" fn #name(this: *mut c_void, #(#params),*) #returns { #body })
}

/// The vtables, the name of the newest one's type, and its own.
fn tables(line: &[&Interface], face: &proc_macro2::Ident) -> (TokenStream, proc_macro2::Ident, TokenStream) {
    let mut base = quote! {
        IUnknown_Vtbl {
            QueryInterface: com::query_interface::<#face>,
            AddRef: com::add_ref::<#face>,
            Release: com::release::<#face>,
        }
    };
    let mut tables = TokenStream::new();
    let mut newest = format_ident!("IUnknown_Vtbl");
    for (version, interface) in (1_usize..).zip(line) {
        newest = format_ident!("{}_Vtbl", interface.name);
        let slots = interface.methods.iter().map(|method| ident(&method.name));
        let table = format_ident!("V{version}");
        tables.extend(quote!(const #table: #newest = #newest { base__: #base, #(#slots),* };));
        base = quote!(#table);
    }
    (tables, newest, base)
}
