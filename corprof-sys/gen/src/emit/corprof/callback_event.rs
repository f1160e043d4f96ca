//! `callback_event.rs`: `CallbackEvent`, the argument of `every`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::super::doc;
use super::{event, parse};
use crate::callbacks::Callback;
use crate::error::Error;

pub(super) fn emit(callbacks: &[Callback<'_>]) -> Result<TokenStream, Error> {
    let callbacks: Vec<_> = callbacks.iter().filter(|callback| callback.is_in_every()).collect();
    let mut variants = TokenStream::new();
    let mut events = TokenStream::new();
    let mut shown = TokenStream::new();
    for callback in &callbacks {
        let name = event(callback);
        let about = doc(format!("[`{0}`](crate::Callbacks::{0}).", callback.name()));
        let arguments = arguments(callback)?;
        let fields = arguments.iter().map(|(name, ty)| quote!(#name: #ty));
        let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
        let texts = names.iter().map(|name| name.to_string());
        if names.is_empty() {
            variants.extend(quote!(#about #name,));
            events.extend(quote!(Self::#name => Event::#name,));
            shown.extend(quote!(Self::#name => {}));
        } else {
            variants.extend(quote!(#about #name { #(#fields),* },));
            events.extend(quote!(Self::#name { .. } => Event::#name,));
            shown.extend(quote!(Self::#name { #(#names),* } => { #(arguments.add(#texts, #names)?;)* }));
        }
    }
    Ok(quote! {
        use crate::args::*;
        use crate::callback_event::ShownArguments;
        use crate::error::Result;
        use crate::event_mask::Event;
        use crate::id::*;
        use crate::metadata::MethodDef;
        use windows_core::GUID as Guid;

        /// A callback and its arguments, for [`every`](crate::Callbacks::every).
        ///
        /// Each variant has the name of its [`Event`] and the arguments of the callback's own method.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "the fields are the arguments of the callback's method")]
        #[non_exhaustive]
        pub enum CallbackEvent<'cb> { #variants }

        impl CallbackEvent<'_> {
            /// Which callback it is.
            pub const fn event(&self) -> Event {
                match self { #events }
            }

            /// Writes the arguments, in order.
            pub(crate) fn show(&self, arguments: &mut ShownArguments<'_, '_>) -> std::fmt::Result {
                match self { #shown }
                Ok(())
            }
        }
    })
}

/// The names and types of the arguments behind the context.
fn arguments(callback: &Callback<'_>) -> Result<Vec<(proc_macro2::Ident, TokenStream)>, Error> {
    let mut arguments = Vec::new();
    for argument in callback.arguments() {
        let (name, ty) = argument;
        let ty = ty.replace("'_", "'cb").replace('&', "&'cb ");
        arguments.push((format_ident!("{name}"), parse(callback, &ty)?));
    }
    Ok(arguments)
}
