//! The derive's expansion, and its message for each mistake.

use quote::quote;

use super::expand;
use crate::testing::{message, messages, pretty};

#[test]
fn a_unit_struct_with_the_clsid_alone() {
    let found = expand(quote! {
        #[profiler(clsid = "{bdd57a0c-d4f7-486d-a8ca-86070dc12fa0}")]
        pub struct Beeper;
    });
    let wanted = quote! {
        #[automatically_derived]
        impl ::corprof::Profiler for Beeper {
            const CLSID: ::corprof::Guid = ::corprof::Guid::from_u128(0xBDD57A0C_D4F7_486D_A8CA_86070DC12FA0);
            const NAME: &'static ::core::primitive::str = "Beeper";
            fn without_initialize() -> ::core::option::Option<Self> {
                <<Beeper as ::corprof::profiler::Subscriber>::Making as ::corprof::profiler::Making<Beeper>>::without_initialize()
            }
        }
        #[automatically_derived]
        impl ::corprof::profiler::ByDefault for Beeper {
            fn by_default() -> Self { Self {} }
        }
        const _: () = {
            const fn callbacks_come_from_many_threads_at_once<T: ::core::marker::Send + ::core::marker::Sync + 'static>() {}
            callbacks_come_from_many_threads_at_once::<Beeper>()
        };
        const _: () = {
            #[unsafe(export_name = "CORPROF_PROFILER_Beeper")]
            pub static MANIFEST: [::core::primitive::u8; 65] =
                *b"corprof-profiler 1 {BDD57A0C-D4F7-486D-A8CA-86070DC12FA0} Beeper\0";
        };
        ::corprof::export!(Beeper);
        #[cfg(panic = "abort")]
        ::core::compile_error!("panic = \"abort\" would let a panic in the profiler end the application\ncorprof disables a profiler that panics, and needs panic = \"unwind\" for that: remove `panic = \"abort\"` from Cargo.toml's [profile] sections (or from RUSTFLAGS)");
    };
    assert_eq!(pretty(found), pretty(wanted));
}

#[test]
fn the_other_keys_in_one_attribute_or_several() {
    for attributes in [
        quote! { #[profiler(no_export, min_info = 15, clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0",)] },
        quote! { #[profiler(min_info = 0xF)] #[profiler(no_export)] #[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")] },
    ] {
        let found = pretty(expand(quote! { #attributes struct Counter { count: u64 } }));
        assert!(found.contains("const MIN_INFO: ::core::primitive::u8 = 15;"), "{found}");
        assert!(found.contains("for Counter\nwhere\n    for<'any> Counter: ::core::default::Default,"), "{found}");
        assert!(!found.contains("export!"), "{found}");
    }
}

#[test]
fn structs_without_fields_need_no_default() {
    for body in [quote! { ; }, quote! { {} }, quote! { (); }] {
        let found = pretty(expand(quote! {
            #[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
            struct r#loop #body
        }));
        assert!(!found.contains("default::Default"), "{found}");
        assert!(found.contains("CORPROF_PROFILER_loop") && found.contains("for r#loop"), "{found}");
    }
}

#[test]
fn each_mistake_in_the_attribute_has_its_message() {
    let clsid = quote! { clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0" };
    for (attribute, wanted) in [
        (quote! {}, "needs a CLSID"),
        (quote! { #[profiler()] }, "needs a CLSID"),
        (quote! { #[profiler(no_export)] }, "write `#[profiler(clsid = \"…\")]` above the struct: `uuidgen`"),
        (quote! { #[profiler] }, "write `#[profiler(…)]`"),
        (quote! { #[profiler = "BDD57A0C"] }, "write `#[profiler(…)]`"),
        (quote! { #[profiler(clsid)] }, "a value is missing: write `clsid = \"…\"`"),
        (quote! { #[profiler(clsid("BDD57A0C"))] }, "a value is missing: write `clsid = \"…\"`"),
        (quote! { #[profiler(clsid = MY_CLSID)] }, "write the CLSID here as a string"),
        (quote! { #[profiler(clsid = "BDD57A0C")] }, "needs 5 groups of digits and has 1"),
        (quote! { #[profiler(clsid = "00000000-0000-0000-0000-000000000000")] }, "nil CLSID"),
        (quote! { #[profiler(#clsid, #clsid)] }, "`clsid` is given twice"),
        (quote! { #[profiler(#clsid, no_export)] #[profiler(no_export)] }, "`no_export` is given twice"),
        (quote! { #[profiler(#clsid, no_export = true)] }, "`no_export` takes no value"),
        (quote! { #[profiler(#clsid, notification_only = false)] }, "`notification_only` takes no value"),
        (quote! { #[profiler(#clsid, min_info)] }, "a value is missing: write `min_info = N`"),
        (quote! { #[profiler(#clsid, min_info = 13)] }, "14 (.NET 8) or 15 (.NET 9)"),
        (quote! { #[profiler(#clsid, min_info = 16)] }, "14 (.NET 8) or 15 (.NET 9)"),
        (quote! { #[profiler(#clsid, min_info = 268)] }, "14 (.NET 8) or 15 (.NET 9)"),
        (quote! { #[profiler(#clsid, min_info = "15")] }, "14 (.NET 8) or 15 (.NET 9)"),
        (
            quote! { #[profiler(#clsid, guid = 1)] },
            "unknown key: `#[profiler(…)]` takes `clsid = \"…\"`, `min_info = N`, `notification_only` and `no_export`",
        ),
    ] {
        let message = message(expand(quote! { #attribute struct Beeper; }));
        assert!(message.contains(wanted), "{attribute}: {message}");
    }
}

#[test]
fn only_a_struct_without_parameters_will_do() {
    let attribute = quote! { #[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")] };
    for (item, wanted) in [
        (quote! { enum Beeper { Loud, Low } }, "not an enum"),
        (quote! { union Beeper { a: u32, b: i32 } }, "not a union"),
        (quote! { struct Beeper<T>(T); }, "cannot be generic"),
        (quote! { struct Beeper<'a>(&'a str); }, "cannot be generic"),
        (quote! { struct Beeper<const N: usize>; }, "cannot be generic"),
    ] {
        let message = message(expand(quote! { #attribute #item }));
        assert!(message.contains(wanted), "{item}: {message}");
    }
}

#[test]
fn several_mistakes_are_reported_together() {
    assert_eq!(messages(expand(quote! { enum Beeper<T> { Loud(T) } })).len(), 3);
}
