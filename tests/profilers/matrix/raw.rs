//! The calls of the matrix that are not safe: raw ones, for places where the runtime must refuse them.

use std::ptr::{null, null_mut};

use corprof::prelude::*;
use corprof::sys;
use windows_core::{BOOL, HRESULT, Interface};

use super::facts::Known;

/// Gives a function the body that it has.
pub(super) fn set_own_body(cx: &mut InCallback<'_>, known: &Known) -> Result<()> {
    let body = cx.il_function_body(known.module, known.method)?;
    // SAFETY: it is the function's own body.
    unsafe { cx.set_il_function_body(known.module, known.method, &body) }
}

/// A raw call: the method of the contract table, and a call with good arguments, so that only the place can be the
/// reason of a refusal. `None`: the runtime lacks the interface.
pub(super) type RawRow = (&'static str, fn(&Info, &Known) -> Option<HRESULT>);

macro_rules! raw {
    ($(#[$meta:meta])* $rows:ident; $($interface:ident: { $($method:ident ($info:ident, $known:ident) $call:expr;)* })*) => {
        $(#[$meta])*
        pub(super) const $rows: &[RawRow] = &[$($(
            (stringify!($method), |info, $known| {
                let _ = $known;
                // SAFETY: the copy lives for this call only, while the profiler does.
                let $info = unsafe { info.as_raw::<sys::$interface>() }.ok()?;
                // SAFETY: ids are of things that live as long as the program; every place to write to is large enough
                // for what is asked for, or said to have no room.
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
    /// Refused in callbacks. Elsewhere the runtime accepts it and never checks the thread again, so a thread of its own
    /// makes it.
    MARKING;

    ICorProfilerInfo: {
        ForceGC(info, known) info.ForceGC();
    }
}
