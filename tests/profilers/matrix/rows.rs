//! The calls of the matrix, each once, by the weakest context that offers it: safe ones; `raw.rs` has the others.
//! `tests/matrix_rows.rs` compares both with the contract table. The generated profilers make these calls, too.

use std::ops::ControlFlow;

use super::facts::{Facts, NOTHING_YET, event};
use super::raw::set_own_body;
use corprof::events::Level;
use corprof::info::{
    EventPipePayload, EventPipeProviderConfig, EventPipeProviderListener, EventPipeProviderState, HandleKind,
    IlMapEntry,
};
use corprof::metadata::MethodDef;
use corprof::prelude::*;

/// Methods of the contract table, and how each is asked in its context.
macro_rules! rows {
    ($(#[$meta:meta])* $rows:ident: $context:ty;
     $($method:ident ($cx:ident $(, $known:ident $(, $facts:ident)?)?) $ask:expr;)*) => {
        $(#[$meta])*
        pub(super) const $rows: &[(&str, fn($context, &Facts) -> Result<()>)] = &[$(
            (stringify!($method), |$cx, facts| {
                let _ = facts;
                $(let $known = facts.known()?; $(let $facts = facts;)?)?
                let answer: Result<_> = $ask;
                answer.map(drop)
            }),
        )*];
    };
}

rows! {
    /// On any thread.
    ANYWHERE: &Info;

    DestroyHandle(info, _known, facts) {
        let _ = info;
        facts.take_handle()?.destroy()
    };
    EventPipeGetProviderInfo(info, known) info.event_pipe_provider_info(known.provider.ok_or(NOTHING_YET)?.0);
    EventPipeWriteEvent(info, known) {
        info.event_pipe_write_event(known.provider.ok_or(NOTHING_YET)?.1, &EventPipePayload::new(), None, None)
    };
    GetClassIDInfo2(info, known) info.class_info(known.class);
    GetClassLayout(info, known) info.class_layout(known.class);
    GetCodeInfo2(info, known) info.code_ranges(known.function);
    GetCurrentThreadID(info) info.current_thread();
    GetDynamicFunctionInfo(info, known) info.dynamic_function_name(known.dynamic);
    GetEnvironmentVariable(info) info.environment_variable("CORPROF_MATRIX");
    GetEventMask2(info) info.event_mask();
    GetFunctionFromIP(info, known) info.function_from_ip(known.code.into());
    GetFunctionInfo2(info, known) info.function_info(known.function);
    GetILFunctionBody(info, known) info.il_function_body(known.module, known.method);
    GetModuleInfo2(info, known) info.module_info(known.module);
    GetNativeCodeStartAddresses(info, known) info.native_code(known.function);
    GetNonGCHeapBounds(info) info.non_gc_heap_bounds();
    GetThreadAppDomain(info, known) info.thread_app_domain(known.thread);
    GetThreadContext(info, known) info.thread_context(known.thread);
    IsArrayClass(info, known) info.array_class(known.class);
    IsFunctionDynamic(info, known) info.is_function_dynamic(known.dynamic);
    SetEnvironmentVariable(info) info.set_environment_variable("CORPROF_MATRIX", Some("asked"));
    SetEventMask2(info) info.set_event_mask(info.event_mask()?);
}

rows! {
    /// In every callback.
    IN_NO_GC: &InNoGc<'_>;

    DoStackSnapshot(cx) cx.walk_own_stack(|_| ControlFlow::Continue(()));
    EnumJITedFunctions(cx) cx.jitted_functions();
    EnumerateNonGCObjects(cx) cx.enumerate_non_gc_objects();
    GetAppDomainStaticAddress(cx, known) cx.app_domain_static_address(known.class, known.field, known.app_domain);
    GetAssemblyInfo(cx, known) cx.assembly_info(known.assembly);
    GetBoxClassLayout(cx, known) cx.box_class_layout(known.value_class);
    GetFunctionFromToken(cx, known) cx.function_from_token(known.module, known.method);
    GetGenerationBounds(cx) cx.generation_bounds();
    GetHandleFromThread(cx, known) cx.handle_from_thread(known.thread);
    GetILToNativeMapping3(cx, known) cx.il_to_native_mapping(known.code);
    GetInMemorySymbolsLength(cx, known) cx.in_memory_symbols_length(known.module);
    GetLOHObjectSizeThreshold(cx) cx.loh_object_size_threshold();
    GetModuleMetaData(cx, known) cx.metadata(known.module);
    GetNotifiedExceptionClauseInfo(cx) cx.notified_exception_clause_info();
    GetRVAStaticAddress(cx, known) cx.rva_static_address(known.rva_class, known.rva_field);
    GetRuntimeInformation(cx) cx.runtime_info();
    GetStaticFieldInfo(cx, known) cx.static_field_info(known.class, known.field);
    GetStringLayout2(cx) cx.string_layout();
    GetThreadInfo(cx, known) cx.os_thread_id(known.thread);
    GetThreadStaticAddress2(cx, known) {
        cx.thread_static_address(known.class, known.thread_field, known.app_domain, Some(known.thread))
    };
    InitializeCurrentThread(cx) cx.initialize_current_thread();
    ReadInMemorySymbols(cx, known) cx.read_in_memory_symbols(known.module, 0, &mut [0; 16]);
}

/// How a method is asked about an object.
type AskOfObject = fn(&InNoGc<'_>, ObjectId<'_>) -> Result<()>;

/// In callbacks that are given an object.
pub(super) const OF_OBJECTS: &[(&str, AskOfObject)] = &[
    ("CreateHandle", |cx, object| cx.create_handle(object, HandleKind::Weak).map(drop)),
    ("EnumerateObjectReferences", |cx, object| cx.enumerate_object_references(object, |_| ControlFlow::Continue(()))),
    // An object that is not an array is an invalid argument.
    ("GetArrayObjectInfo", |cx, object| match cx.array_class(cx.class_of(object)?)? {
        Some(_) => cx.array_object_info(object).map(drop),
        None => match cx.array_object_info(object) {
            Err(error) if error.code() == corprof::error::E_INVALIDARG => Ok(()),
            answer => answer.map(drop),
        },
    }),
    ("GetClassFromObject", |cx, object| cx.class_of(object).map(drop)),
    ("GetObjectGeneration", |cx, object| cx.object_generation(object).map(drop)),
    ("GetObjectIDFromHandle", |cx, object| cx.create_handle(object, HandleKind::Weak)?.get(cx).map(drop)),
    ("GetObjectSize2", |cx, object| cx.object_size(object).map(drop)),
    ("IsFrozenObject", |cx, object| cx.is_frozen_object(object).map(drop)),
];

pub(super) fn provider_config(name: &str) -> EventPipeProviderConfig<'_> {
    EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None }
}

struct Listener;

impl EventPipeProviderListener for Listener {
    fn changed(_state: EventPipeProviderState<'_>) {}
}

rows! {
    /// In callbacks from which a collection may start.
    IN_CALLBACK: &mut InCallback<'_>;

    ApplyMetaData(cx, known) cx.apply_meta_data(known.module);
    EnumJITedFunctions2(cx) cx.jitted_function_versions();
    EnumModules(cx) cx.enum_modules();
    EnumNgenModuleMethodsInliningThisMethod(cx, known) {
        cx.ngen_inliners(known.core_module, known.core_module, MethodDef::from_raw(0x0600_0001))
    };
    EnumThreads(cx) cx.enum_threads();
    EnumerateGCHeapObjects(cx) cx.enumerate_gc_heap_objects(|_, _| ControlFlow::Break(()));
    EventPipeAddProviderToSession(cx) {
        let session = cx.event_pipe_start_session(&[provider_config("Corprof-Matrix")], false)?;
        let added = cx.event_pipe_add_provider_to_session(session, &provider_config("Corprof-Other"));
        cx.event_pipe_stop_session(session).and(added)
    };
    EventPipeCreateProvider(cx) cx.event_pipe_create_provider("Corprof-Made");
    EventPipeCreateProvider2(cx) cx.event_pipe_create_provider_with::<Listener>("Corprof-Listened");
    EventPipeDefineEvent(cx, known) cx.event_pipe_define_event(known.provider.ok_or(NOTHING_YET)?.0, &event(2));
    EventPipeStartSession(cx) {
        let session = cx.event_pipe_start_session(&[provider_config("Corprof-Matrix")], false)?;
        // The stop has its own row.
        let _ = cx.event_pipe_stop_session(session);
        Ok(())
    };
    EventPipeStopSession(cx) {
        let session = cx.event_pipe_start_session(&[provider_config("Corprof-Matrix")], false)?;
        cx.event_pipe_stop_session(session)
    };
    GetAppDomainInfo(cx, known) cx.app_domain_info(known.app_domain);
    GetAppDomainsContainingModule(cx, known) cx.app_domains_containing_module(known.module);
    GetClassFromTokenAndTypeArgs(cx, known) cx.class_from_token(known.module, known.class_token, &[]);
    GetCodeInfo4(cx, known) cx.native_code_ranges(known.code);
    GetFunctionFromIP3(cx, known) cx.function_version_from_ip(known.code.into());
    GetFunctionFromTokenAndTypeArgs(cx, known) {
        let class = cx.function_info(known.function)?.class.ok_or(NOTHING_YET)?;
        cx.function_from_token_and_type_args(class, known.method, &[])
    };
    GetReJITIDs(cx, known) cx.rejit_ids(known.function);
    SetILFunctionBody(cx, known) set_own_body(cx, known);
    SetILInstrumentedCodeMap(cx, known) {
        let map = [IlMapEntry { old_offset: 0, new_offset: 0, is_accurate: true }];
        cx.set_il_instrumented_code_map(known.function, false, &map)
    };
}

rows! {
    /// On a profiler thread.
    ON_PROFILER_THREAD: &mut ProfilerThread<'_>;

    // Before the requests, which are to take effect.
    RequestRevert(cx, known) cx.request_revert(&[(known.module, known.method)]);
    RequestReJIT(cx, known) cx.request_rejit(&[(known.module, known.method)]);
    RequestReJITWithInliners(cx, known) cx.request_rejit_with_inliners(&[(known.module, known.method)], true);
    // Last, as the runtime checks nothing on this thread any more.
    ForceGC(cx) cx.force_gc();
}
