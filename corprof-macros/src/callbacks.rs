//! `#[callbacks]`: checks the methods of an `impl Callbacks` block against the table in `generated.rs`, and writes
//! `EVENTS` from the implemented ones.
//!
//! Names, receivers and numbers of parameters are checked here, because only here can the message name the cure; the
//! compiler checks the types. A wrong method is left out of the expansion, so that the compiler does not report it a
//! second time.
//!
//! A callback may also be written with a `Result`: its expansion reports the error.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Ident, ImplItem, ImplItemFn, Item, ItemImpl, Meta, Result, ReturnType, Signature, Token, Type,
    parse_quote,
};

use crate::generated::{CALLBACKS, Callback};

/// The attribute: returns the block with its `EVENTS`, and a `compile_error!` for each mistake.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item: Item = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Vec::new();
    if !arguments.is_empty() {
        errors.push(Error::new_spanned(
            arguments,
            "`#[callbacks]` takes no arguments: the methods below decide about the events",
        ));
    }
    let item = match (wrong_item(&item), item) {
        (None, Item::Impl(block)) => with_events(block, &mut errors),
        (error, item) => {
            errors.extend(error);
            item.into_token_stream()
        }
    };
    let errors = errors.into_iter().map(Error::into_compile_error);
    quote! { #(#errors)* #item }
}

/// The reason why the attribute cannot be on this item, if there is one.
fn wrong_item(item: &Item) -> Option<Error> {
    const PLACE: &str = "`#[callbacks]` goes on `impl Callbacks for …`";
    let Item::Impl(block) = item else {
        return Some(Error::new_spanned(item, format!("{PLACE}, and this is not an `impl` block")));
    };
    match &block.trait_ {
        Some((None, path, _)) if path.segments.last().is_some_and(|last| last.ident == "Callbacks") => None,
        Some((_, path, _)) => {
            let message = format!("{PLACE}, and this block implements `{}`", path.to_token_stream());
            Some(Error::new_spanned(path, message))
        }
        None => {
            let ty = &block.self_ty;
            let found = ty.to_token_stream();
            let message = format!("{PLACE}, and this block implements no trait: write `impl Callbacks for {found}`");
            Some(Error::new_spanned(ty, message))
        }
    }
}

/// Removes wrong methods, reports them to `errors`, and adds a block with `EVENTS` for the rest.
fn with_events(mut block: ItemImpl, errors: &mut Vec<Error>) -> TokenStream {
    let helpers = format!("a plain `impl {} {{ … }}` block", block.self_ty.to_token_stream());
    let mut events = Vec::new();
    let mut has_initialize = false;
    let mut every = None;
    let profiler = block.self_ty.to_token_stream().to_string();
    block.items.retain_mut(|item| {
        if let ImplItem::Fn(method) = item
            && method.sig.ident == "every"
        {
            every = Some(every_events(method, errors));
            report_errors(method, &profiler);
            return true;
        }
        match check(item, &helpers) {
            Ok(None) => true,
            Ok(Some((callback, method))) => {
                has_initialize |= callback.name == "initialize" && method.attrs.iter().find_map(condition).is_none();
                events.push(add_event(callback, &method.attrs));
                if !callback.signature.contains("->") {
                    report_errors(method, &profiler);
                }
                true
            }
            Err(error) => {
                has_initialize |= matches!(item, ImplItem::Fn(method) if method.sig.ident == "initialize");
                errors.push(error);
                false
            }
        }
    });
    let making = Ident::new(if has_initialize { "ByInitialize" } else { "WithoutInitialize" }, Span::call_site());
    let conditions = block.attrs.iter().filter_map(condition);
    let (generics, _, bounds) = block.generics.split_for_impl();
    let ty = &block.self_ty;
    // Each `#[cfg]` needs a statement to apply to. A `let` without hygiene may meet a constant of the same name in the
    // user's scope, hence the long name.
    quote! {
        #block
        #(#[#conditions])*
        impl #generics ::corprof::profiler::Subscriber for #ty #bounds {
            const EVENTS: ::corprof::event_mask::EventSet = {
                let __corprof_events = <Self as ::corprof::profiler::Subscriber>::EVERY;
                #(#events)*
                __corprof_events
            };
            const EVERY: ::corprof::event_mask::EventSet = {
                let __corprof_events = ::corprof::event_mask::EventSet::EMPTY;
                #every
                __corprof_events
            };
            type Making = ::corprof::profiler::#making;
        }
    }
}

/// The events of `every`, from its attribute `#[events(…)]`, which it removes.
fn every_events(method: &mut ImplItemFn, errors: &mut Vec<Error>) -> TokenStream {
    let every = "fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>)";
    if method.sig.inputs.len() != 3 || method.sig.receiver().is_none() {
        let message = format!("`every` has other parameters\nwrite `{every}`");
        errors.push(Error::new(method.sig.ident.span(), message));
    }
    let at = method.attrs.iter().position(|attribute| attribute.path().is_ident("events"));
    let Some(at) = at else {
        let message = "`every` does not say which events it is for\n\
                       write `#[events(MONITOR_EXCEPTIONS, ClassLoadFinished)]` above it: flags of the event mask, or single events";
        errors.push(Error::new(method.sig.ident.span(), message));
        return TokenStream::new();
    };
    let attribute = method.attrs.remove(at);
    let names = match attribute.parse_args_with(Punctuated::<Ident, Token![,]>::parse_terminated) {
        Ok(names) => names,
        Err(error) => {
            errors.push(error);
            return TokenStream::new();
        }
    };
    let mut sets = Vec::new();
    for name in &names {
        match event_set(name) {
            Ok(set) => sets.push(set),
            Err(error) => errors.push(error),
        }
    }
    let conditions = method.attrs.iter().filter_map(condition);
    quote! {
        #(#[#conditions])*
        let __corprof_events = __corprof_events #(#sets)*;
    }
}

/// Adds the events that a name in `#[events(…)]` stands for.
fn event_set(name: &Ident) -> Result<TokenStream> {
    let text = name.to_string();
    // Flags are written in capitals; whether there is such a flag, the compiler knows.
    if text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
        return Ok(quote! {
            .union(::corprof::event_mask::EventSet::enabled_by(::corprof::event_mask::EventMask::#name))
        });
    }
    match CALLBACKS.iter().find(|callback| callback.event == text) {
        Some(callback) if callback.is_in_every => Ok(quote!(.with(::corprof::event_mask::Event::#name))),
        Some(callback) => {
            let message = format!("`every` does not hear of `{text}`: write its own method `{}`", callback.name);
            Err(Error::new(name.span(), message))
        }
        None => {
            let hint = match nearest(&text) {
                Some(callback) => format!(": did you mean `{}`?", callback.event),
                None => String::new(),
            };
            Err(Error::new(name.span(), format!("there is no event `{text}`{hint}")))
        }
    }
}

/// The callback that an item implements; `None` if the compiler's own error is better.
fn check<'a>(item: &'a mut ImplItem, helpers: &str) -> Result<Option<(&'static Callback, &'a mut ImplItemFn)>> {
    let (name, kind) = match item {
        ImplItem::Fn(method) => {
            let callback = find(&method.sig.ident, helpers)?;
            check_signature(&method.sig, callback)?;
            return Ok(Some((callback, method)));
        }
        ImplItem::Const(item) if item.ident == "EVENTS" => {
            return Err(Error::new_spanned(
                &item.ident,
                "`#[callbacks]` writes `EVENTS` from the methods in this block: remove this line, or remove `#[callbacks]`",
            ));
        }
        ImplItem::Macro(call) => {
            return Err(Error::new_spanned(
                &call.mac.path,
                "`#[callbacks]` cannot see the methods that a macro makes, so their events would stay off\n\
                 write the methods out, or let the macro make the whole block with `#[callbacks]` on it",
            ));
        }
        ImplItem::Const(item) => (&item.ident, "constant"),
        ImplItem::Type(item) => (&item.ident, "type"),
        _ => return Ok(None),
    };
    Err(Error::new_spanned(name, format!("`Callbacks` has no {kind} `{name}`: move it to {helpers}")))
}

/// The callback of that name; an error with the nearest name if there is none.
fn find(name: &Ident, helpers: &str) -> Result<&'static Callback> {
    if let Some(callback) = CALLBACKS.iter().find(|callback| name == callback.name) {
        return Ok(callback);
    }
    let message = match nearest(&name.to_string()) {
        Some(callback) => format!(
            "there is no callback `{name}`: did you mean `{}`?\n\
             (if it is a helper, move it to {helpers})",
            callback.name
        ),
        None => format!(
            "there is no callback `{name}`, and the runtime would never call it\n\
             if it is a helper, move it to {helpers}; the callbacks are the methods of `corprof::Callbacks`"
        ),
    };
    Err(Error::new(name.span(), message))
}

/// The callback whose name takes the fewest edits, unless there are too many. Underscores and case do not count, so the
/// names of corprof.idl lead to ours.
fn nearest(name: &str) -> Option<&'static Callback> {
    let letters = |name: &str| name.replace('_', "").to_lowercase();
    let wanted = letters(name);
    let distance = |callback: &&Callback| strsim::damerau_levenshtein(&wanted, &letters(callback.name));
    let best = CALLBACKS.iter().min_by_key(distance)?;
    (distance(&best) <= wanted.len().max(3) / 3).then_some(best)
}

/// Reports the mistakes that the compiler would not explain.
fn check_signature(signature: &Signature, callback: &Callback) -> Result<()> {
    let right = callback.signature;
    if let Some(asyncness) = signature.asyncness {
        return Err(Error::new(
            asyncness.span,
            format!(
                "a callback cannot be async: the runtime waits for it to return\n\
                 write `{right}`"
            ),
        ));
    }
    if signature.generics.type_params().next().is_some() || signature.generics.const_params().next().is_some() {
        let message = format!(
            "a callback cannot be generic: the runtime calls it\n\
             write `{right}`"
        );
        return Err(Error::new_spanned(&signature.generics, message));
    }
    let takes_self = right.contains("&self");
    match signature.receiver() {
        None if !takes_self => {}
        Some(receiver) if !takes_self => {
            let message = format!(
                "`{}` makes the profiler, so there is no `self` yet\n\
                 write `{right}`, and return the profiler",
                callback.name
            );
            return Err(Error::new_spanned(receiver, message));
        }
        Some(receiver) if matches!(&*receiver.ty, Type::Reference(ty) if ty.mutability.is_none()) => {}
        Some(receiver) => {
            let message = format!(
                "callbacks come on many threads at once: take `&self`, and keep state in a Mutex or in atomics\n\
                 write `{right}`"
            );
            return Err(Error::new_spanned(receiver, message));
        }
        None => {
            let message = format!(
                "`{}` needs `&self` as its first parameter\n\
                 write `{right}`",
                callback.name
            );
            return Err(Error::new(signature.ident.span(), message));
        }
    }
    if signature.inputs.len() != callback.params {
        let noun = if callback.params == 1 { "parameter" } else { "parameters" };
        let included = if takes_self { ", `&self` included," } else { "" };
        let message = format!(
            "`{}` has {} {noun}{included} and this one has {}\n\
             write `{right}`",
            callback.name,
            callback.params,
            signature.inputs.len()
        );
        return Err(Error::new(signature.ident.span(), message));
    }
    Ok(())
}

/// Turns a callback with the result `Result<(), E>` into one without a result, as the trait has it, which reports the
/// first error. Other results stay, for the compiler's error.
fn report_errors(method: &mut ImplItemFn, profiler: &str) {
    let ReturnType::Type(_, result) = &method.sig.output else { return };
    let is_result =
        matches!(&**result, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Result"));
    if !is_result {
        return;
    }
    let callback = method.sig.ident.to_string();
    let body = &method.block;
    method.block = parse_quote! {{
        static __CORPROF_HAS_FAILED: ::core::sync::atomic::AtomicBool = ::core::sync::atomic::AtomicBool::new(false);
        let __corprof_result = (move || -> #result #body)();
        ::corprof::__private::callback_result(__corprof_result, #profiler, #callback, &__CORPROF_HAS_FAILED);
    }};
    method.sig.output = ReturnType::Default;
}

/// Adds one event, under the `cfg` conditions of its method.
fn add_event(callback: &Callback, attributes: &[Attribute]) -> TokenStream {
    let event = Ident::new(callback.event, Span::call_site());
    let conditions = attributes.iter().filter_map(condition);
    quote! {
        #(#[#conditions])*
        let __corprof_events = __corprof_events.with(::corprof::event_mask::Event::#event);
    }
}

/// The condition in an attribute: `cfg(…)`, and any `cfg(…)` inside `cfg_attr(…)`.
fn condition(attribute: &Attribute) -> Option<Meta> {
    fn of(meta: &Meta) -> Option<Meta> {
        if meta.path().is_ident("cfg") {
            return Some(meta.clone());
        }
        if !meta.path().is_ident("cfg_attr") {
            return None;
        }
        let list = meta.require_list().ok()?.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
        let mut list = list.iter();
        let predicate = list.next()?;
        let kept: Vec<Meta> = list.filter_map(of).collect();
        (!kept.is_empty()).then(|| parse_quote! { cfg_attr(#predicate, #(#kept),*) })
    }
    of(&attribute.meta)
}

#[cfg(test)]
mod tests;
