//! The derive's message for each mistake, and the names that it makes. What the expansion does is tested in
//! `corprof-events`.

use proc_macro2::TokenStream;
use quote::quote;

use super::{camel_case, expand};
use crate::testing::{message, messages};

#[test]
fn names_of_fields_are_in_the_style_of_dotnet() {
    for (rust, dotnet) in [
        ("number", "number"),
        ("customer_name", "customerName"),
        ("a_b_c", "aBC"),
        ("_size", "size"),
        ("ümlaut_über", "ümlautÜber"),
        ("__", "__"),
    ] {
        assert_eq!(camel_case(rust), dotnet);
    }
}

fn with(keys: TokenStream, body: TokenStream) -> TokenStream {
    expand(quote! { #[event(#keys)] struct Order #body })
}

#[test]
fn a_key_that_is_missing_twice_or_unknown() {
    let body = quote! { { number: u32 } };
    for (keys, expected) in [
        (quote! {}, "write `#[event(provider = \"…\", id = N)]` above the struct"),
        (quote! { provider = "Shop" }, "write `#[event(id = N)]` above the struct"),
        (quote! { provider = "Shop", id = 1, id = 2 }, "`id` is given twice: keep one of them"),
        (quote! { provider = "", id = 1 }, "a name in an event is not empty and contains no NUL"),
        (quote! { provider = "Shop\0", id = 1 }, "a name in an event is not empty and contains no NUL"),
        (
            quote! { provider = "Shop", id = 0x1_0000_0000 },
            "this number is too large or has a type: it must fit into `u32`",
        ),
        (
            quote! { provider = "Shop", id = 1, opcode = 256 },
            "this number is too large or has a type: it must fit into `u8`",
        ),
        (
            quote! { provider = "Shop", id = 1, level = Info },
            "a level is one of LogAlways, Critical, Error, Warning, Informational, Verbose",
        ),
        (
            quote! { provider = "Shop", id = 1, needs_stack = true },
            "`needs_stack` takes no value: write just `needs_stack`",
        ),
    ] {
        assert_eq!(message(with(keys, body.clone())), expected);
    }
    let unknown = message(with(quote! { provider = "Shop", id = 1, levels = Error }, body));
    assert!(unknown.starts_with("unknown key: `#[event(…)]` takes `provider = \"…\"`, `id = N`"), "{unknown}");
}

#[test]
fn a_shape_that_is_no_event() {
    let keys = quote! { #[event(provider = "Shop", id = 1)] };
    for (item, expected) in [
        (quote! { enum Order {} }, "an event is a struct, not an enum: write a struct for each event of the provider"),
        (quote! { struct Order(u32); }, "the fields of an event have names: write `struct Name { name: Type }`"),
        (
            quote! { struct Order { a_b: u32, #[event(name = "aB")] c: u32 } },
            "two fields have the name \"aB\" in the event: rename one",
        ),
        (quote! { struct Order { #[event(id = 1)] c: u32 } }, "`#[event(…)]` on a field takes one key: `name = \"…\"`"),
        (
            quote! { struct Order<T> { c: T } },
            "an event is one type: it can have a lifetime, for the texts that it borrows, and no other parameter",
        ),
    ] {
        assert_eq!(message(expand(quote! { #keys #item })), expected);
    }
}

#[test]
fn each_mistake_is_told() {
    assert_eq!(messages(expand(quote! { enum Order<T> { A(T) } })).len(), 3);
}
