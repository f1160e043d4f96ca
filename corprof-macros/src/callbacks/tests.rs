//! The attribute's expansion, and its message for each mistake.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::quote;
use syn::Signature;

use super::{expand, nearest};
use crate::generated::CALLBACKS;
use crate::testing::{message, messages, pretty};

fn callbacks(item: TokenStream) -> TokenStream {
    expand(TokenStream::new(), item)
}

fn signature(name: &str) -> &'static str {
    CALLBACKS.iter().find(|callback| callback.name == name).expect("a callback").signature
}

#[test]
fn the_table_agrees_with_itself() {
    let mut names = HashSet::new();
    let mut events = HashSet::new();
    for callback in CALLBACKS {
        let signature: Signature = syn::parse_str(callback.signature).expect(callback.signature);
        assert_eq!(signature.ident, callback.name);
        assert_eq!(signature.inputs.len(), callback.params, "{}", callback.signature);
        assert!(names.insert(callback.name) && events.insert(callback.event), "{} is there twice", callback.name);
    }
}

#[test]
fn events_follow_the_methods_and_everything_else_stays() {
    let found = callbacks(quote! {
        /// Beeps.
        #[allow(unused)]
        impl<'a> corprof::Callbacks for Beeper where u8: Copy {
            /// At each class.
            #[inline]
            fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) { beep() }
            fn thread_assigned_to_os_thread<'t>(self: &Self, _: &'t mut InCallback<'_>, _: ThreadId, _: u32) {}
        }
    });
    let wanted = quote! {
        /// Beeps.
        #[allow(unused)]
        impl<'a> corprof::Callbacks for Beeper where u8: Copy {
            /// At each class.
            #[inline]
            fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) { beep() }
            fn thread_assigned_to_os_thread<'t>(self: &Self, _: &'t mut InCallback<'_>, _: ThreadId, _: u32) {}
        }
        impl<'a> ::corprof::profiler::Subscriber for Beeper where u8: Copy {
            const EVENTS: ::corprof::event_mask::EventSet = {
                let __corprof_events = <Self as ::corprof::profiler::Subscriber>::EVERY;
                let __corprof_events = __corprof_events.with(::corprof::event_mask::Event::ClassLoadFinished);
                let __corprof_events = __corprof_events.with(::corprof::event_mask::Event::ThreadAssignedToOsThread);
                __corprof_events
            };
            const EVERY: ::corprof::event_mask::EventSet = {
                let __corprof_events = ::corprof::event_mask::EventSet::EMPTY;
                __corprof_events
            };
            type Making = ::corprof::profiler::WithoutInitialize;
        }
    };
    assert_eq!(pretty(found), pretty(wanted));
}

#[test]
fn a_callback_that_returns_a_result_reports_its_error() {
    let flat = |text: &str| text.split_whitespace().collect::<String>();
    let found = flat(&pretty(callbacks(quote! {
        impl Callbacks for Beeper {
            fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) -> corprof::Result<()> { beep() }
        }
    })));
    let wanted = pretty(quote! {
        impl Callbacks for Beeper {
            fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) {
                static __CORPROF_HAS_FAILED: ::core::sync::atomic::AtomicBool =
                    ::core::sync::atomic::AtomicBool::new(false);
                let __corprof_result = (move || -> corprof::Result<()> { beep() })();
                ::corprof::__private::callback_result(
                    __corprof_result, "Beeper", "thread_created", &__CORPROF_HAS_FAILED,
                );
            }
        }
    });
    assert!(found.starts_with(&flat(&wanted)), "{found}");
}

#[test]
fn results_that_the_trait_has_and_those_that_nobody_has_stay() {
    for method in [
        quote! { fn jit_inlining(&self, _: &mut InCallback<'_>, _: FunctionId, _: FunctionId) -> Result<bool> { go() } },
        quote! { fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) -> u32 { 1 } },
    ] {
        let found = callbacks(quote! { impl Callbacks for Beeper { #method } });
        assert!(found.to_string().contains(&method.to_string()), "{found}");
    }
}

#[test]
fn no_methods_no_events() {
    let found = callbacks(quote! { impl Callbacks for Quiet {} });
    let wanted = quote! {
        impl Callbacks for Quiet {}
        impl ::corprof::profiler::Subscriber for Quiet {
            const EVENTS: ::corprof::event_mask::EventSet = {
                let __corprof_events = <Self as ::corprof::profiler::Subscriber>::EVERY;
                __corprof_events
            };
            const EVERY: ::corprof::event_mask::EventSet = {
                let __corprof_events = ::corprof::event_mask::EventSet::EMPTY;
                __corprof_events
            };
            type Making = ::corprof::profiler::WithoutInitialize;
        }
    };
    assert_eq!(pretty(found), pretty(wanted));
}

#[test]
fn only_a_profiler_that_may_lack_initialize_needs_default() {
    let by_default = |method: TokenStream| {
        pretty(callbacks(quote! { impl Callbacks for Beeper { #method } })).contains("WithoutInitialize")
    };
    let initialize = quote! { fn initialize(_: &mut InInitialize<'_>) -> Result<Self, BoxError> { Ok(Self) } };
    assert!(!by_default(initialize.clone()));
    assert!(by_default(quote! { #[cfg(windows)] #initialize }));
    assert!(by_default(quote! { fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) {} }));
    // Its own mistake is enough.
    assert!(!by_default(
        quote! { fn initialize(&self, _: &mut InInitialize<'_>) -> Result<Self, BoxError> { Ok(Self) } }
    ));
}

#[test]
fn conditions_go_along_with_the_event() {
    let found = pretty(callbacks(quote! {
        impl Callbacks for Beeper {
            #[cfg(windows)]
            #[doc = "Only there."]
            #[cfg(feature = "loud")]
            #[cfg_attr(test, cfg(unix), inline, cfg_attr(debug_assertions, cold, cfg(not(miri))))]
            #[cfg_attr(windows, inline)]
            fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) {}
        }
    }));
    let wanted = pretty(quote! {
        const EVENTS: ::corprof::event_mask::EventSet = {
            let __corprof_events = <Self as ::corprof::profiler::Subscriber>::EVERY;
            #[cfg(windows)]
            #[cfg(feature = "loud")]
            #[cfg_attr(test, cfg(unix), cfg_attr(debug_assertions, cfg(not(miri))))]
            let __corprof_events = __corprof_events.with(::corprof::event_mask::Event::ThreadCreated);
            __corprof_events
        };
    });
    let flat = |text: &str| text.split_whitespace().collect::<String>();
    assert!(flat(&found).contains(&flat(&wanted)), "{found}");
}

#[test]
fn misspelt_names_lead_to_the_callback_that_was_meant() {
    for (misspelt, meant) in [
        ("class_load_finnished", "class_load_finished"),
        ("class_loaded_finished", "class_load_finished"),
        ("on_thread_created", "thread_created"),
        ("ClassLoadFinished", "class_load_finished"),
        ("jitCompilationStarted", "jit_compilation_started"),
        ("j_i_t_compilation_started", "jit_compilation_started"),
        ("re_jit_compilation_started", "rejit_compilation_started"),
        ("COMClassicVTableCreated", "com_classic_vtable_created"),
        ("c_o_m_classic_v_table_created", "com_classic_vtable_created"),
        ("thread_assigned_to_o_s_thread", "thread_assigned_to_os_thread"),
        ("initialise", "initialize"),
        ("shutdwon", "shutdown"),
    ] {
        assert_eq!(nearest(misspelt).map(|callback| callback.name), Some(meant), "{misspelt}");
    }
    for stranger in ["helper", "new", "f", "print_class", "record"] {
        assert_eq!(nearest(stranger).map(|callback| callback.name), None, "{stranger}");
    }
}

#[test]
fn each_mistake_in_a_method_has_its_message() {
    let right = signature("thread_created");
    for (method, wanted) in [
        (quote! { fn thread_craeted(&self) {} }, "did you mean `thread_created`?"),
        (quote! { fn helper(&self) {} }, "move it to a plain `impl Beeper { … }` block"),
        (quote! { fn thread_created(&mut self, _: &mut InCallback<'_>, _: ThreadId) {} }, "take `&self`"),
        (quote! { fn thread_created(self, _: &mut InCallback<'_>, _: ThreadId) {} }, "take `&self`"),
        (quote! { fn thread_created(self: Arc<Self>, _: &mut InCallback<'_>, _: ThreadId) {} }, "take `&self`"),
        (quote! { fn thread_created(_: &mut InCallback<'_>, _: ThreadId) {} }, "needs `&self`"),
        (quote! { fn thread_created(&self, _: ThreadId) {} }, "has 3 parameters, `&self` included, and this one has 2"),
        (
            quote! { fn initialize(&self, _: &mut InInitialize<'_>) -> Result<(), BoxError> { Ok(()) } },
            "`initialize` makes the profiler, so there is no `self` yet",
        ),
        (
            quote! { fn initialize() -> Result<Self, BoxError> { Ok(Self) } },
            "`initialize` has 1 parameter and this one has 0",
        ),
        (quote! { async fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) {} }, "cannot be async"),
        (quote! { fn thread_created<T>(&self, _: &mut InCallback<'_>, _: T) {} }, "cannot be generic"),
        (quote! { fn thread_created<const N: usize>(&self, _: &mut InCallback<'_>) {} }, "cannot be generic"),
        (quote! { const EVENTS: EventSet = EventSet::EMPTY; }, "remove this line"),
        (quote! { const LIMIT: u32 = 1; }, "`Callbacks` has no constant `LIMIT`"),
        (quote! { type Out = u32; }, "`Callbacks` has no type `Out`"),
        (quote! { methods!(); }, "cannot see the methods that a macro makes"),
    ] {
        let message = message(callbacks(quote! { impl Callbacks for Beeper { #method } }));
        assert!(message.contains(wanted), "{method}: {message}");
        if method.to_string().contains("thread_created") {
            assert!(message.ends_with(&format!("write `{right}`")), "{method}: {message}");
        }
    }
}

#[test]
fn a_method_with_a_mistake_is_left_out_and_the_others_stay() {
    let tokens = callbacks(quote! {
        impl Callbacks for Beeper {
            fn thread_craeted(&self) {}
            fn shutdown(&self) {}
            fn thread_created(&self, _: &mut InCallback<'_>, _: ThreadId) {}
        }
    });
    assert_eq!(messages(tokens.clone()).len(), 2);
    let found = pretty(tokens);
    assert!(!found.contains("fn thread_craeted") && !found.contains("fn shutdown(&self) {"), "{found}");
    assert!(found.contains("fn thread_created") && found.contains("Event::ThreadCreated"), "{found}");
    assert!(!found.contains("Event::Shutdown"), "{found}");
}

#[test]
fn only_an_implementation_of_callbacks_will_do() {
    for (item, wanted) in [
        (quote! { impl Beeper {} }, "implements no trait: write `impl Callbacks for Beeper`"),
        (quote! { impl Display for Beeper {} }, "implements `Display`"),
        (quote! { impl !Callbacks for Beeper {} }, "goes on `impl Callbacks for …`"),
        (quote! { struct Beeper; }, "is not an `impl` block"),
        (quote! { trait Callbacks {} }, "is not an `impl` block"),
    ] {
        let tokens = callbacks(item.clone());
        let message = message(tokens.clone());
        assert!(message.contains(wanted), "{item}: {message}");
        assert!(tokens.to_string().ends_with(&item.to_string()), "the item stays: {tokens}");
    }
}

#[test]
fn it_takes_no_arguments() {
    let message = message(expand(quote! { ClassLoadFinished }, quote! { impl Callbacks for Beeper {} }));
    assert!(message.contains("takes no arguments"), "{message}");
}
