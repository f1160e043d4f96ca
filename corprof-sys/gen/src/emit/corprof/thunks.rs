//! `thunks.rs`: one function for each slot of the vtable.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, format_ident, quote};

use super::{event, parse};
use crate::callbacks::Callback;
use crate::emit::{ident, types};
use crate::error::Error;
use crate::model::Model;

pub(super) fn emit(model: &Model, callbacks: &[Callback<'_>]) -> Result<TokenStream, Error> {
    let mut thunks = TokenStream::new();
    for callback in callbacks.iter().filter(|callback| !callback.facts.custom) {
        thunks.extend(thunk(model, callback)?);
    }
    let vtable = vtable(model, callbacks)?;
    Ok(quote! {
        #![allow(non_snake_case, reason = "parameters have their names in the IDL")]
        #![allow(unsafe_op_in_unsafe_fn, reason = "a thunk is nothing but the one call")]

        use core::ffi::c_void;
        use corprof_sys::*;
        use corprof_sys as sys;
        use windows_core::{BOOL, GUID, HRESULT, IUnknown_Vtbl, Ref};

        use crate::adapter::{
            Adapter, bookkeeping, in_no_gc, in_callback, is_for_sdk, is_for_user, lifecycle, without_user,
        };
        use crate::args::*;
        use crate::callback_event::CallbackEvent;
        use crate::error::S_OK;
        use crate::event_mask::Event;
        use crate::id::*;
        use crate::metadata::MethodDef;
        use crate::profiler::Profiler;
        use crate::session::wire;

        #vtable
        #thunks
    })
}

fn thunk(model: &Model, callback: &Callback<'_>) -> Result<TokenStream, Error> {
    let name = format_ident!("{}", callback.name());
    let event = event(callback);
    let params = types::params(model, &callback.method.params);
    let (enter, has_context) = match callback.context() {
        Some("InCallback") => (quote!(in_callback), true),
        Some(_) => (quote!(in_no_gc), true),
        None => (quote!(in_no_gc), false),
    };
    let args: Vec<_> = argument_names(callback)?;
    let wires = match &callback.facts.wire {
        Some(wires) => wires.iter().map(|wire| parse(callback, wire)).collect::<Result<Vec<_>, _>>()?,
        None => {
            let ins = callback.method.params.iter().filter(|param| Some(&param.name) != callback.facts.out.as_ref());
            ins.map(|param| ident(&param.name)).map(|param| quote!(wire::from_wire(cx, #param))).collect()
        }
    };
    if wires.len() != args.len() {
        let problem = format!("[{}]: {} arguments of {} wires", callback.method.name, args.len(), wires.len());
        return Err(Error::Facts { file: "callbacks.toml", problems: vec![problem] });
    }
    let cx = has_context.then(|| quote!(cx,));
    let call = quote!(profiler.#name(#cx #(#args),*));
    let call = match &callback.facts.out {
        Some(out) => {
            let out = ident(out);
            quote!(wire::answer(#out, #call))
        }
        None => call,
    };
    let call = if callback.is_in_every() {
        let value = if args.is_empty() { quote!(#event) } else { quote!(#event { #(#args),* }) };
        quote! {
            if const { P::EVERY.contains(Event::#event) } {
                profiler.every(cx, &CallbackEvent::#value);
            }
            #call
        }
    } else {
        call
    };
    let body = match (args.as_slice(), wires.as_slice()) {
        ([], _) => call,
        ([arg], [wire]) => quote!(if let Some(#arg) = #wire { #call }),
        _ => quote!(if let (#(Some(#args)),*) = (#(#wires),*) { #call }),
    };
    let cx = if has_context || body.to_string().contains("cx") { quote!(cx) } else { quote!(_) };
    let subject = subject(callback);
    let book = callback.facts.book.then(|| {
        let out = callback.facts.out.as_ref();
        let ins = callback.method.params.iter().zip(&params).filter(|(param, _)| Some(&param.name) != out);
        let wires = ins.map(|(param, typed)| {
            let name = ident(&param.name);
            // The user's method needs the interface as well.
            if typed.to_string().contains("Ref <") { quote!(&#name) } else { quote!(#name) }
        });
        let call = quote!(bookkeeping::#name(info, #(#wires),*));
        let call = match out {
            Some(_) => quote!(let allows = info.is_none_or(|info| #call);),
            None => quote!(if let Some(info) = info { #call; }),
        };
        quote! {
            let info = Adapter::<P>::info_of(this);
            #call
        }
    });
    // Constants, so that the compiler makes no code for the many callbacks that a profiler does not implement.
    let enter = quote! {
        if const { is_for_user::<P>(Event::#event) } {
            #enter::<P>(this, Event::#event, #subject, move |profiler, #cx| { #body })
        } else if const { is_for_sdk::<P>(Event::#event) } {
            without_user::<P>(this, Event::#event, #subject)
        } else {
            S_OK
        }
    };
    // Of some questions the SDK decides as well.
    let answered = callback.facts.out.as_ref().filter(|_| callback.facts.book).map(|out| ident(out));
    let enter = match answered {
        Some(out) => quote! {
            let result = #enter;
            bookkeeping::answered(info, Event::#event, allows, #out);
            result
        },
        None => enter,
    };
    Ok(quote! {
        unsafe extern "system" fn #name<P: Profiler>(this: *mut c_void, #(#params),*) -> HRESULT {
            #book
            #enter
        }
    })
}

/// The event's subject, if the bookkeeping tracks it; else 0.
fn subject(callback: &Callback<'_>) -> TokenStream {
    const SUBJECTS: [&str; 7] =
        ["assemblyId", "moduleId", "classId", "threadId", "managedThreadId", "functionId", "thrownObjectId"];
    let params = &callback.method.params;
    let subject = match callback.method.name.as_str() {
        // The function is the first parameter, but the SDK pins the exception.
        "ExceptionCatcherEnter" => params.iter().find(|param| param.name == "objectId"),
        _ => params.first().filter(|param| SUBJECTS.contains(&param.name.as_str())),
    };
    subject.map_or_else(|| quote!(0), |param| ident(&param.name).to_token_stream())
}

/// The names in `args`, which the signature is parsed for.
fn argument_names(callback: &Callback<'_>) -> Result<Vec<proc_macro2::Ident>, Error> {
    let signature: syn::Signature = syn::parse_str(&callback.signature())
        .map_err(|source| Error::Emit { path: format!("callbacks.toml [{}]", callback.method.name), source })?;
    let names = signature.inputs.iter().filter_map(|input| match input {
        syn::FnArg::Typed(typed) => match typed.pat.as_ref() {
            syn::Pat::Ident(name) => Some(name.ident.clone()),
            _ => None,
        },
        syn::FnArg::Receiver(_) => None,
    });
    Ok(names.filter(|name| name != "cx").collect())
}

fn vtable(model: &Model, callbacks: &[Callback<'_>]) -> Result<TokenStream, Error> {
    let mut interfaces: Vec<_> =
        model.interfaces.iter().filter(|interface| interface.name.starts_with("ICorProfilerCallback")).collect();
    interfaces.sort_by_key(|interface| interface.methods.first().map(|method| method.slot));
    let mut base = quote! {
        IUnknown_Vtbl {
            QueryInterface: Self::query_interface,
            AddRef: Self::add_ref,
            Release: Self::release,
        }
    };
    let mut tables = TokenStream::new();
    let mut newest = format_ident!("IUnknown_Vtbl");
    for (version, interface) in (1_usize..).zip(interfaces) {
        newest = format_ident!("{}_Vtbl", interface.name);
        let slots = interface.methods.iter().filter_map(|method| {
            let callback = callbacks.iter().find(|callback| callback.method.name == method.name)?;
            let slot = ident(&method.name);
            let name = format_ident!("{}", callback.name());
            let path = callback.facts.custom.then(|| quote!(lifecycle::));
            Some(quote!(#slot: #path #name::<P>))
        });
        let table = format_ident!("V{version}");
        tables.extend(quote!(const #table: #newest = #newest { base__: #base, #(#slots),* };));
        base = quote!(Self::#table);
    }
    Ok(quote! {
        impl<P: Profiler> Adapter<P> {
            /// The vtable that the runtime calls.
            pub(crate) const VTABLE: &'static #newest = &#base;
            #tables
        }
    })
}
