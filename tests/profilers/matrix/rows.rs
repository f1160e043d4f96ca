//! The calls of the matrix. First the safe ones, each once, by the weakest context that offers it. Then the raw ones, for places
//! where the runtime must refuse them. `tests/matrix_rows.rs` compares both with the contract table.

use std::ops::ControlFlow;
use std::ptr::{null, null_mut};

use corprof::events::Level;
use corprof::info::{
    EventPipePayload, EventPipeProviderConfig, EventPipeProviderListener, EventPipeProviderState, HandleKind,
    IlMapEntry,
};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::sys;
use windows_core::{BOOL, HRESULT, Interface};

use super::facts::{Facts, Known, NOTHING_YET, event};

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
    GetFunctionFromIP(info, known) info.function_from_ip(known.code.as_raw());
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
    IN_CALLBACK: &InCallback<'_>;

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
type AskOfObject = fn(&InCallback<'_>, ObjectId<'_>) -> Result<()>;

/// In callbacks that are given an object.
pub(super) const OF_OBJECTS: &[(&str, AskOfObject)] = &[
    ("CreateHandle", |cx, object| cx.create_handle(object, HandleKind::Weak).map(drop)),
    ("EnumerateObjectReferences", |cx, object| cx.enumerate_object_references(object, |_| ControlFlow::Continue(()))),
    // An object that is no array is an invalid argument.
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
    IN_TRIGGERS: &mut InTriggers<'_>;

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
    GetFunctionFromIP3(cx, known) cx.function_version_from_ip(known.code.as_raw());
    GetFunctionFromTokenAndTypeArgs(cx, known) {
        let class = cx.function_info(known.function)?.class.ok_or(NOTHING_YET)?;
        cx.function_from_token_and_type_args(class, known.method, &[])
    };
    GetReJITIDs(cx, known) cx.rejit_ids(known.function);
    SetILFunctionBody(cx, known) {
        let body = cx.il_function_body(known.module, known.method)?;
        // SAFETY: it is the function's own body.
        unsafe { cx.set_il_function_body(known.module, known.method, &body) }
    };
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

/// A raw call: the method of the contract table, and a call with good arguments, so that only the place can be the reason of a
/// refusal. `None`: the runtime lacks the interface.
pub(super) type RawRow = (&'static str, fn(&Info, &Known) -> Option<HRESULT>);

macro_rules! raw {
    ($(#[$meta:meta])* $rows:ident; $($interface:ident: { $($method:ident ($info:ident, $known:ident) $call:expr;)* })*) => {
        $(#[$meta])*
        pub(super) const $rows: &[RawRow] = &[$($(
            (stringify!($method), |info, $known| {
                let _ = $known;
                // SAFETY: the copy lives for this call only, while the profiler does.
                let $info = unsafe { info.as_raw::<sys::$interface>() }.ok()?;
                // SAFETY: ids are of things that live as long as the program; every place to write to is large enough for
                // what is asked for, or said to have no room.
                Some(unsafe { $call })
            }),
        )*)*];
    };
}

/// A value to overwrite.
const NO_TYPE: sys::COR_PRF_RUNTIME_TYPE = sys::COR_PRF_RUNTIME_TYPE(0);

raw! {
    /// Refused where no callback is around them.
    SYNC;

    ICorProfilerInfo: {
        GetAssemblyInfo(info, known) {
            info.GetAssemblyInfo(known.assembly.as_raw(), 0, &mut 0, null_mut(), &mut 0, &mut 0)
        };
        GetFunctionFromToken(info, known) {
            info.GetFunctionFromToken(known.module.as_raw(), known.method.as_raw(), &mut 0)
        };
        GetHandleFromThread(info, known) info.GetHandleFromThread(known.thread.as_raw(), &mut null_mut());
        GetModuleMetaData(info, known) {
            let iid = sys::IMetaDataImport::IID;
            info.GetModuleMetaData(known.module.as_raw(), sys::ofRead.bits(), &iid, &mut None)
        };
        GetThreadInfo(info, known) info.GetThreadInfo(known.thread.as_raw(), &mut 0);
    }
    ICorProfilerInfo2: {
        GetAppDomainStaticAddress(info, known) {
            let (class, field) = (known.class.as_raw(), known.field.as_raw());
            info.GetAppDomainStaticAddress(class, field, known.app_domain.as_raw(), &mut null_mut())
        };
        GetBoxClassLayout(info, known) info.GetBoxClassLayout(known.value_class.as_raw(), &mut 0);
        GetGenerationBounds(info, known) info.GetGenerationBounds(0, &mut 0, null_mut());
        GetNotifiedExceptionClauseInfo(info, known) {
            let mut clause = sys::COR_PRF_EX_CLAUSE_INFO {
                clauseType: sys::COR_PRF_CLAUSE_NONE,
                programCounter: 0,
                framePointer: 0,
                shadowStackPointer: 0,
            };
            info.GetNotifiedExceptionClauseInfo(&mut clause)
        };
        GetObjectGeneration(info, known) {
            let mut range = sys::COR_PRF_GC_GENERATION_RANGE {
                generation: sys::COR_PRF_GC_GENERATION(0),
                rangeStart: 0,
                rangeLength: 0,
                rangeLengthReserved: 0,
            };
            info.GetObjectGeneration(known.pinned, &mut range)
        };
        GetRVAStaticAddress(info, known) {
            info.GetRVAStaticAddress(known.rva_class.as_raw(), known.rva_field.as_raw(), &mut null_mut())
        };
    }
    ICorProfilerInfo3: {
        EnumJITedFunctions(info, known) info.EnumJITedFunctions(&mut None);
        GetRuntimeInformation(info, known) {
            let [mut a, mut b, mut c, mut d, mut e] = [0; 5];
            info.GetRuntimeInformation(
                &mut a, &mut NO_TYPE.clone(), &mut b, &mut c, &mut d, &mut e, 0, null_mut(), null_mut(),
            )
        };
        GetStaticFieldInfo(info, known) {
            let mut kind = sys::COR_PRF_FIELD_NOT_A_STATIC;
            info.GetStaticFieldInfo(known.class.as_raw(), known.field.as_raw(), &mut kind)
        };
        GetStringLayout2(info, known) info.GetStringLayout2(&mut 0, &mut 0);
        GetThreadStaticAddress2(info, known) {
            let (class, field) = (known.class.as_raw(), known.thread_field.as_raw());
            info.GetThreadStaticAddress2(class, field, known.app_domain.as_raw(), known.thread.as_raw(), &mut null_mut())
        };
    }
    ICorProfilerInfo4: {
        EnumThreads(info, known) info.EnumThreads(&mut None);
        InitializeCurrentThread(info, known) info.InitializeCurrentThread();
    }
    ICorProfilerInfo7: {
        GetInMemorySymbolsLength(info, known) info.GetInMemorySymbolsLength(known.module.as_raw(), &mut 0);
        ReadInMemorySymbols(info, known) {
            info.ReadInMemorySymbols(known.module.as_raw(), 0, [0; 16].as_mut_ptr(), 16, &mut 0)
        };
    }
    ICorProfilerInfo9: {
        GetILToNativeMapping3(info, known) {
            info.GetILToNativeMapping3(known.code.as_raw(), 0, &mut 0, null_mut())
        };
    }
    ICorProfilerInfo10: {
        EnumerateObjectReferences(info, known) info.EnumerateObjectReferences(known.pinned, None, null_mut());
        GetLOHObjectSizeThreshold(info, known) info.GetLOHObjectSizeThreshold(&mut 0);
        IsFrozenObject(info, known) info.IsFrozenObject(known.pinned, &mut BOOL(0));
    }
    ICorProfilerInfo13: {
        CreateHandle(info, known) info.CreateHandle(known.pinned, sys::COR_PRF_HANDLE_TYPE_WEAK, &mut null_mut());
    }
    ICorProfilerInfo14: {
        EnumerateNonGCObjects(info, known) info.EnumerateNonGCObjects(&mut None);
    }
}

raw! {
    /// Refused outside of callbacks, and in callbacks from which no collection may start.
    TRIGGERING;

    ICorProfilerInfo: {
        GetAppDomainInfo(info, known) {
            info.GetAppDomainInfo(known.app_domain.as_raw(), 0, &mut 0, null_mut(), &mut 0)
        };
        SetILFunctionBody(info, known) {
            info.SetILFunctionBody(known.module.as_raw(), known.method.as_raw(), null())
        };
        SetILInstrumentedCodeMap(info, known) {
            info.SetILInstrumentedCodeMap(known.function.as_raw(), BOOL(0), 0, null())
        };
    }
    ICorProfilerInfo2: {
        GetClassFromTokenAndTypeArgs(info, known) {
            let (module, class) = (known.module.as_raw(), known.class_token.as_raw());
            info.GetClassFromTokenAndTypeArgs(module, class, 0, null(), &mut 0)
        };
        GetFunctionFromTokenAndTypeArgs(info, known) {
            let (module, method) = (known.module.as_raw(), known.method.as_raw());
            info.GetFunctionFromTokenAndTypeArgs(module, method, known.program.as_raw(), 0, null(), &mut 0)
        };
    }
    ICorProfilerInfo3: {
        EnumModules(info, known) info.EnumModules(&mut None);
        GetAppDomainsContainingModule(info, known) {
            info.GetAppDomainsContainingModule(known.module.as_raw(), 1, &mut 0, &mut 0)
        };
    }
    ICorProfilerInfo4: {
        EnumJITedFunctions2(info, known) info.EnumJITedFunctions2(&mut None);
        GetReJITIDs(info, known) info.GetReJITIDs(known.function.as_raw(), 4, &mut 0, [0; 4].as_mut_ptr());
        RequestReJIT(info, known) info.RequestReJIT(1, &known.module.as_raw(), &known.method.as_raw());
        RequestRevert(info, known) {
            info.RequestRevert(1, &known.module.as_raw(), &known.method.as_raw(), &mut HRESULT(0))
        };
    }
    ICorProfilerInfo6: {
        EnumNgenModuleMethodsInliningThisMethod(info, known) {
            let core = known.core_module.as_raw();
            info.EnumNgenModuleMethodsInliningThisMethod(core, core, 0x0600_0001, &mut BOOL(0), &mut None)
        };
    }
    ICorProfilerInfo7: {
        ApplyMetaData(info, known) info.ApplyMetaData(known.module.as_raw());
    }
    ICorProfilerInfo8: {
        GetFunctionFromIP3(info, known) {
            info.GetFunctionFromIP3(std::ptr::without_provenance(known.code.as_raw()), &mut 0, &mut 0)
        };
    }
    ICorProfilerInfo9: {
        GetCodeInfo4(info, known) info.GetCodeInfo4(known.code.as_raw(), 0, &mut 0, null_mut());
    }
    ICorProfilerInfo10: {
        RequestReJITWithInliners(info, known) {
            let (module, method) = (known.module.as_raw(), known.method.as_raw());
            info.RequestReJITWithInliners(sys::COR_PRF_REJIT_BLOCK_INLINING.bits(), 1, &module, &method)
        };
    }
}

raw! {
    /// Refused outside of callbacks, and where a collection could move the object during the call.
    INSPECTING;

    ICorProfilerInfo: {
        GetClassFromObject(info, known) info.GetClassFromObject(known.pinned, &mut 0);
    }
    ICorProfilerInfo2: {
        GetArrayObjectInfo(info, known) {
            info.GetArrayObjectInfo(known.pinned, 1, &mut 0, &mut 0, &mut null_mut())
        };
    }
    ICorProfilerInfo4: {
        GetObjectSize2(info, known) info.GetObjectSize2(known.pinned, &mut 0);
    }
}

raw! {
    /// Refused outside of `initialize`.
    AT_START_UP;

    ICorProfilerInfo: {
        SetEnterLeaveFunctionHooks(info, known) info.SetEnterLeaveFunctionHooks(None, None, None);
    }
    ICorProfilerInfo2: {
        SetEnterLeaveFunctionHooks2(info, known) info.SetEnterLeaveFunctionHooks2(None, None, None);
    }
    ICorProfilerInfo3: {
        SetEnterLeaveFunctionHooks3(info, known) info.SetEnterLeaveFunctionHooks3(None, None, None);
        SetEnterLeaveFunctionHooks3WithInfo(info, known) info.SetEnterLeaveFunctionHooks3WithInfo(None, None, None);
    }
}

raw! {
    /// Refused in callbacks. Elsewhere the runtime accepts it and never checks the thread again, so a thread of its own makes it.
    MARKING;

    ICorProfilerInfo: {
        ForceGC(info, known) info.ForceGC();
    }
}
