//! Helpers of the unit tests of both macros: expansions in readable form, and the messages in them.

use proc_macro2::TokenStream;
use syn::{Attribute, File, Item, LitStr};

/// The tokens as formatted source, so that two of them can be compared and a difference read.
pub(crate) fn pretty(tokens: TokenStream) -> String {
    prettyplease::unparse(&parse(tokens))
}

/// The messages of the unconditional `compile_error!`s.
pub(crate) fn messages(tokens: TokenStream) -> Vec<String> {
    let unconditional = |attributes: &[Attribute]| !attributes.iter().any(|it| it.path().is_ident("cfg"));
    let message = |item| match item {
        Item::Macro(call) if unconditional(&call.attrs) && last_is(&call.mac.path, "compile_error") => {
            Some(call.mac.parse_body::<LitStr>().expect("a message").value())
        }
        _ => None,
    };
    parse(tokens).items.into_iter().filter_map(message).collect()
}

/// The only message in the expansion.
pub(crate) fn message(tokens: TokenStream) -> String {
    let source = tokens.to_string();
    let mut messages = messages(tokens);
    assert_eq!(messages.len(), 1, "{messages:?} in {source}");
    messages.remove(0)
}

fn parse(tokens: TokenStream) -> File {
    syn::parse2(tokens.clone()).unwrap_or_else(|error| panic!("{error}: {tokens}"))
}

fn last_is(path: &syn::Path, name: &str) -> bool {
    path.segments.last().is_some_and(|last| last.ident == name)
}
