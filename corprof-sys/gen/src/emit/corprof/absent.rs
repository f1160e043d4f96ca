//! `absent.rs`: for each call that not every context offers, a method of `Info` that can never be called. Its bound
//! makes the compiler name the rule and the cure.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::contracts::{Context, Contracts, InfoRow};
use crate::error::Error;

pub(super) fn emit(contracts: &Contracts) -> Result<TokenStream, Error> {
    let mut methods = TokenStream::new();
    for (row, bound) in contracts.info.iter().filter_map(|row| Some((row, bound(row.context())?))) {
        // `Type::method()` is offered by a type that only its context can make.
        for form in row.offered.iter().filter(|form| !form.contains("::")) {
            methods.extend(method(row, form, &format_ident!("{bound}"))?);
        }
    }
    Ok(quote! {
        use crate::session::Info;
        use crate::wrong_context::{AtStartUp, InCallbackContext, MayTriggerGc, OnProfilerThread, never};

        impl Info {
            #methods
        }
    })
}

/// The bound in `corprof/src/wrong_context.rs` for the calls of a context.
fn bound(context: Context) -> Option<&'static str> {
    match context {
        Context::Info => None,
        Context::InNoGc => Some("InCallbackContext"),
        Context::InCallback => Some("MayTriggerGc"),
        Context::InInitialize => Some("AtStartUp"),
        Context::ProfilerThread => Some("OnProfilerThread"),
    }
}

/// The method for a form as `offered` has it: `function_from_token(module, method)`.
fn method(row: &InfoRow, form: &str, bound: &Ident) -> Result<TokenStream, Error> {
    let (name, parameters) = parse(form).map_err(|source| Error::Facts {
        file: "contracts.toml",
        problems: vec![format!("[[info]] {}: offered = `{form}`: {source}", row.method)],
    })?;
    Ok(quote! {
        #[doc(hidden)]
        pub fn #name<R>(&self, #(#parameters: impl Sized),*) -> R
        where
            for<'x> Self: #bound<'x>,
        {
            never((#(#parameters,)*))
        }
    })
}

fn parse(form: &str) -> syn::Result<(Ident, Vec<Ident>)> {
    let call: syn::ExprCall = syn::parse_str(form)?;
    let function: &syn::Expr = &call.func;
    let name = syn::parse2(quote!(#function))?;
    let parameters = call.args.iter().map(|argument| syn::parse2(quote!(#argument)));
    Ok((name, parameters.collect::<syn::Result<_>>()?))
}
