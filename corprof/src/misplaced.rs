//! What the compiler says of a call that is made where it is not allowed.
//!
//! A method that a context lacks would only be "not found". Here each method has a shadow on all types, under a bound that
//! no type meets, so that the message says that the method exists and which bound it asks for: the rule, by its name. The
//! prelude has the traits in scope; their methods can never be called. `tests/ledger.rs` checks that none is missing.

/// Met inside a callback: the context of every callback has the method, [`Info`](crate::Info) has not.
///
/// A stand-in for messages: make the call in a callback, with its `cx`. No type implements it.
pub trait InsideACallback {}

/// Met where a collection may start: [`InTriggers`](crate::InTriggers) and the contexts made of it have the method.
///
/// A stand-in for messages: callbacks during a collection, a suspension or an unwind, and those that hand out objects, have
/// an [`InCallback`](crate::InCallback), from which no collection may start. Ask in another callback and keep the answer.
/// No type implements it.
pub trait WhereACollectionMayStart {}

/// Met on a profiler thread, by [`ProfilerThread`](crate::ProfilerThread) alone.
///
/// A stand-in for messages: have a thread made by [`spawn_profiler_thread`](crate::InTriggers::spawn_profiler_thread), and ask there.
/// No type implements it.
pub trait OnAThreadOfTheProfiler {}

macro_rules! shadows {
    ($($shadows:ident if $bound:ident { $($method:ident)* })*) => { $(
        #[doc(hidden)]
        pub trait $shadows {
            $(
                #[doc(hidden)]
                fn $method(&self)
                where
                    Self: Sized,
                {
                }
            )*
        }

        impl<T: $bound> $shadows for T {}
    )* };
}

// `wait` and `is_stopping` are left out: too many other types have methods of these names.
shadows! {
    OnlyInsideACallback if InsideACallback {
        app_domain_static_address array_object_info assembly_info box_class_layout class_of create_handle
        enumerate_non_gc_objects enumerate_object_references function_from_token generation_bounds handle_from_thread
        il_to_native_mapping in_memory_symbols_length initialize_current_thread is_frozen_object jitted_functions
        loh_object_size_threshold metadata metadata_emit names notified_exception_clause_info object_generation object_size
        os_thread_id read_in_memory_symbols runtime_info rva_static_address static_field_info string_layout
        stack_boundary thread_static_address walk_own_stack walk_own_stack_with_registers with_hook_thread
    }
    OnlyWhereACollectionMayStart if WhereACollectionMayStart {
        app_domain_info app_domains_containing_module apply_meta_data class_from_token enum_modules
        enum_threads enumerate_gc_heap_objects event_pipe_add_provider_to_session event_pipe_create_provider
        event_pipe_create_provider_with event_pipe_define_event event_pipe_start_session event_pipe_stop_session
        function_from_token_and_type_args function_version_from_ip jitted_function_versions native_code_ranges
        ngen_inliners rejit_ids set_il_function_body set_il_instrumented_code_map spawn_profiler_thread
    }
    OnlyOnAThreadOfTheProfiler if OnAThreadOfTheProfiler {
        force_gc request_rejit request_rejit_with_inliners request_revert
    }
}
