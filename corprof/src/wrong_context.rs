//! The compiler's messages for a call in the wrong context.
//!
//! For a method that a context lacks, the compiler would only say "not found". So [`Info`], to which every context
//! dereferences, has a hidden method for each of them, under a bound that it does not meet: the message begins with the cure,
//! and the bound names the rule. These methods can never be called. A test (`tests/ledger.rs`) checks that none is missing.

use crate::context::{InAttach, InCallback, InInitialize, InTriggers};
use crate::hooks::InSlowHook;
use crate::profiler_thread::ProfilerThread;
use crate::session::Info;

/// The call needs a callback: every callback's `cx` has the method, [`Info`] has not.
#[diagnostic::on_unimplemented(
    message = "this call needs the context of a callback: make it in a callback, on its `cx`",
    label = "not inside a callback, as far as the types tell"
)]
pub trait InCallbackContext<'x> {}

impl InCallbackContext<'_> for InCallback<'_> {}
impl InCallbackContext<'_> for InTriggers<'_> {}
impl InCallbackContext<'_> for InInitialize<'_> {}
impl InCallbackContext<'_> for InAttach<'_> {}
impl InCallbackContext<'_> for InSlowHook<'_> {}
impl InCallbackContext<'_> for ProfilerThread<'_> {}

/// A garbage collection may start: [`InTriggers`] and the contexts that dereference to it have the method.
///
/// Callbacks during a collection, a suspension or an unwind, and callbacks with objects, have an [`InCallback`], from which no
/// collection may start: make the call in another callback, and keep the result.
#[diagnostic::on_unimplemented(
    message = "this call may start a garbage collection: make it in a callback that gets `InTriggers`, and keep the result",
    label = "no garbage collection may start here"
)]
pub trait MayTriggerGc<'x> {}

impl MayTriggerGc<'_> for InTriggers<'_> {}
impl MayTriggerGc<'_> for InInitialize<'_> {}
impl MayTriggerGc<'_> for InAttach<'_> {}
impl MayTriggerGc<'_> for ProfilerThread<'_> {}

/// The call needs a thread that corprof has made: only a [`ProfilerThread`] has the method, as the runtime refuses it in every
/// callback. [`spawn_profiler_thread`](InTriggers::spawn_profiler_thread) makes such a thread.
#[diagnostic::on_unimplemented(
    message = "this call is refused in callbacks: make it on a thread of `cx.spawn_profiler_thread(name, |cx| …)`",
    label = "not on a profiler thread"
)]
pub trait OnProfilerThread<'x> {}

impl OnProfilerThread<'_> for ProfilerThread<'_> {}

/// The application is starting: only [`InInitialize`] has the method, as the runtime accepts such a call at no other time, and
/// never from an attached profiler.
#[diagnostic::on_unimplemented(
    message = "this call is allowed at start-up only: make it in `initialize`, in a profiler that is loaded with the application",
    label = "not in `initialize`"
)]
pub trait AtStartUp<'x> {}

impl AtStartUp<'_> for InInitialize<'_> {}

macro_rules! absent {
    ($($bound:ident { $($method:ident($($argument:ident),*))* })*) => { $($(
        impl Info {
            #[doc(hidden)]
            pub fn $method<R>(&self, $($argument: impl Sized),*) -> R
            where
                for<'x> Self: $bound<'x>,
            {
                $(drop($argument);)*
                unreachable!("`Info` does not meet the bound")
            }
        }
    )*)* };
}

// Without `wait` and `is_stopping`: a message about profiler threads would surprise users who misspell another method.
absent! {
    InCallbackContext {
        app_domain_static_address(class, field, app_domain)
        array_object_info(object)
        assembly_info(assembly)
        box_class_layout(class)
        class_of(object)
        create_handle(object, kind)
        enumerate_non_gc_objects()
        enumerate_object_references(object, visit)
        function_from_token(module, method)
        generation_bounds()
        handle_from_thread(thread)
        il_to_native_mapping(code)
        in_memory_symbols_length(module)
        initialize_current_thread()
        is_frozen_object(object)
        jitted_functions()
        loh_object_size_threshold()
        metadata(module)
        metadata_emit(module)
        names()
        notified_exception_clause_info()
        object_generation(object)
        object_size(object)
        os_thread_id(thread)
        read_in_memory_symbols(module, offset, bytes)
        runtime_info()
        rva_static_address(class, field)
        stack_boundary()
        static_field_info(class, field)
        string_layout()
        thread_static_address(class, field, app_domain, thread)
        walk_own_stack(visit)
        walk_own_stack_with_registers(visit)
        with_hook_thread(look)
    }
    MayTriggerGc {
        app_domain_info(app_domain)
        app_domains_containing_module(module)
        apply_meta_data(module)
        class_from_token(module, definition, type_args)
        enum_modules()
        enum_threads()
        enumerate_gc_heap_objects(visit)
        event_pipe_add_provider_to_session(session, provider)
        event_pipe_create_provider(name)
        event_pipe_create_provider_with(name)
        event_pipe_define_event(provider, event)
        event_pipe_start_session(providers, rundown)
        event_pipe_stop_session(session)
        function_from_token_and_type_args(class, method, type_args)
        function_version_from_ip(ip)
        jitted_function_versions()
        native_code_ranges(code)
        ngen_inliners(inliners, inlinee_module, inlinee)
        rejit_ids(function)
        set_il_function_body(module, method, body)
        set_il_instrumented_code_map(function, is_first, map)
        spawn_profiler_thread(name, run)
    }
    AtStartUp {
        hook_functions(hooks)
        hook_functions_with_values(hooks)
    }
    OnProfilerThread {
        force_gc()
        request_rejit(methods)
        request_rejit_with_inliners(methods, asks_for_inliners)
        request_revert(methods)
    }
}
