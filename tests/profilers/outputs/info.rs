//! The calls of the runtime's Info object.

// SAFETY, of all calls here: the subjects are alive, as nothing is unloaded; the places are as the IDL has them.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the one reason for all of them is above")]

use corprof::prelude::*;
use corprof::sys;
use windows_core::BOOL;

use super::marks::Report;

/// The calls about functions, which are compiled.
pub(super) fn ask_functions(report: &mut Report, cx: &mut InCallback<'_>, functions: &[FunctionId]) -> Result<()> {
    for &function in functions {
        let starts = cx.native_code(function)?;
        let function = function.as_raw();
        // SAFETY: the copy lives for this call only, in a callback.
        let info = unsafe { cx.as_raw::<sys::ICorProfilerInfo14>() }?;
        report.list("GetFunctionInfo2", |at, room, count, ids| unsafe {
            info.GetFunctionInfo2(function, 0, at.next(), at.next(), at.next(), room, count, ids)
        });
        report
            .list("GetCodeInfo2", |_, room, count, ranges| unsafe { info.GetCodeInfo2(function, room, count, ranges) });
        report.list("GetNativeCodeStartAddresses", |_, room, count, starts| unsafe {
            info.GetNativeCodeStartAddresses(function, 0, room, count, starts)
        });
        report.list("GetReJITIDs", |_, room, count, ids| unsafe { info.GetReJITIDs(function, room, count, ids) });
        report.single("IsFunctionDynamic", |at| unsafe { info.IsFunctionDynamic(function, at.next()) });
        for code in starts.iter().map(|code| code.as_raw()) {
            report.list("GetILToNativeMapping3", |_, room, count, map| unsafe {
                info.GetILToNativeMapping3(code, room, count, map)
            });
            report
                .list("GetCodeInfo4", |_, room, count, ranges| unsafe { info.GetCodeInfo4(code, room, count, ranges) });
            let ip = std::ptr::without_provenance(code);
            report.single("GetFunctionFromIP", |at| unsafe { info.GetFunctionFromIP(ip, at.next()) });
            report.single("GetFunctionFromIP3", |at| unsafe { info.GetFunctionFromIP3(ip, at.next(), at.next()) });
        }
    }
    Ok(())
}

/// The other calls, about a class and a method of this module.
pub(super) fn ask(
    report: &mut Report,
    cx: &mut InCallback<'_>,
    module: ModuleId,
    class: ClassId,
    method: u32,
) -> Result<()> {
    let field = cx.class_layout(class)?.fields.first().map_or(0, |field| field.field.as_raw());
    let thread = cx.current_thread()?.map_or(0, |thread| thread.as_raw());
    let assembly = cx.module_info(module)?.assembly.map_or(0, |assembly| assembly.as_raw());
    let domain = cx.app_domains_containing_module(module)?.first().map_or(0, |domain| domain.as_raw());
    let provider = cx.event_pipe_create_provider("Corprof-Outputs")?.as_raw();
    let name: Vec<u16> = "PATH\0".encode_utf16().collect();
    let class = class.as_raw();
    let module = module.as_raw();
    // SAFETY: the copy lives for this call only, in a callback.
    let info = unsafe { cx.as_raw::<sys::ICorProfilerInfo14>() }?;

    report.list("GetModuleInfo2", |at, room, count, text| unsafe {
        info.GetModuleInfo2(module, at.next(), room, count, text, at.next(), at.next())
    });
    report.list("GetAssemblyInfo", |at, room, count, text| unsafe {
        info.GetAssemblyInfo(assembly, room, count, text, at.next(), at.next())
    });
    report.list("GetAppDomainInfo", |at, room, count, text| unsafe {
        info.GetAppDomainInfo(domain, room, count, text, at.next())
    });
    report.list("GetAppDomainsContainingModule", |_, room, count, ids| unsafe {
        info.GetAppDomainsContainingModule(module, room, count, ids)
    });
    report.list("GetEnvironmentVariable", |_, room, count, text| unsafe {
        info.GetEnvironmentVariable(name.as_ptr(), room, count, text)
    });
    report.list("EventPipeGetProviderInfo", |_, room, count, text| unsafe {
        info.EventPipeGetProviderInfo(provider, room, count, text)
    });
    report.list("GetClassIDInfo2", |at, room, count, ids| unsafe {
        info.GetClassIDInfo2(class, at.next(), at.next(), at.next(), room, count, ids)
    });
    report.list("GetClassLayout", |at, room, count, fields| unsafe {
        info.GetClassLayout(class, fields, room, count, at.next())
    });
    report
        .list("GetGenerationBounds", |_, room, count, ranges| unsafe { info.GetGenerationBounds(room, count, ranges) });
    report.list("GetNonGCHeapBounds", |_, room, count, ranges| unsafe { info.GetNonGCHeapBounds(room, count, ranges) });
    report.list("GetRuntimeInformation", |at, room, count, text| unsafe {
        let instance = at.next();
        let family = at.next();
        let major = at.next();
        let minor = at.next();
        let build = at.next();
        let fix = at.next();
        info.GetRuntimeInformation(instance, family, major, minor, build, fix, room, count, text)
    });
    lists(report, info);

    report.single("GetILFunctionBody", |at| unsafe { info.GetILFunctionBody(module, method, at.next(), at.next()) });
    report.single("GetFunctionFromToken", |at| unsafe { info.GetFunctionFromToken(module, method, at.next()) });
    report.single("IsArrayClass", |at| unsafe { info.IsArrayClass(class, at.next(), at.next(), at.next()) });
    report.single("GetStaticFieldInfo", |at| unsafe { info.GetStaticFieldInfo(class, field, at.next()) });
    report.single("GetInMemorySymbolsLength", |at| unsafe { info.GetInMemorySymbolsLength(module, at.next()) });
    report.single("GetStringLayout2", |at| unsafe { info.GetStringLayout2(at.next(), at.next()) });
    report.single("GetLOHObjectSizeThreshold", |at| unsafe { info.GetLOHObjectSizeThreshold(at.next()) });
    report.single("GetEventMask2", |at| unsafe { info.GetEventMask2(at.next(), at.next()) });
    report.single("GetCurrentThreadID", |at| unsafe { info.GetCurrentThreadID(at.next()) });
    report.single("GetThreadInfo", |at| unsafe { info.GetThreadInfo(thread, at.next()) });
    report.single("GetThreadAppDomain", |at| unsafe { info.GetThreadAppDomain(thread, at.next()) });
    report.single("GetThreadContext", |at| unsafe { info.GetThreadContext(thread, at.next()) });
    report.single("GetHandleFromThread", |at| unsafe { info.GetHandleFromThread(thread, at.next()) });
    Ok(())
}

/// The lists that enumerators give.
fn lists(report: &mut Report, info: &sys::ICorProfilerInfo14) {
    macro_rules! enumerators {
        ($($call:ident)*) => { $(
            report.list(stringify!($call), |_, room, count, items| unsafe {
                let mut list = None;
                let code = info.$call(&mut list);
                match list {
                    // One that has fewer answers S_FALSE.
                    Some(list) if code.is_ok() => list.Next(room, items, count),
                    _ => code,
                }
            });
        )* };
    }
    enumerators! { EnumModules EnumThreads EnumJITedFunctions EnumJITedFunctions2 }
}

/// The calls about an object, and the boxed value's class.
pub(super) fn ask_object(report: &mut Report, cx: &InNoGc<'_>, object: ObjectId<'_>) -> Result<()> {
    let class = cx.class_of(object)?;
    let object = object.as_raw();
    // SAFETY: the copy lives for this call only, in a callback.
    let info = unsafe { cx.as_raw::<sys::ICorProfilerInfo14>() }?;
    report.single("GetClassFromObject", |at| unsafe { info.GetClassFromObject(object, at.next()) });
    report.single("GetObjectSize2", |at| unsafe { info.GetObjectSize2(object, at.next()) });
    report.single("IsFrozenObject", |at| unsafe { info.IsFrozenObject(object, at.next::<BOOL>()) });
    report.single("GetBoxClassLayout", |at| unsafe { info.GetBoxClassLayout(class.as_raw(), at.next()) });
    report.array("GetObjectGeneration", 1, |_, range| unsafe { info.GetObjectGeneration(object, range) });
    report
        .array("GetNotifiedExceptionClauseInfo", 1, |_, clause| unsafe { info.GetNotifiedExceptionClauseInfo(clause) });
    handles(report, info, object);
    Ok(())
}

fn handles(report: &mut Report, info: &sys::ICorProfilerInfo14, object: usize) {
    report.single("CreateHandle", |at| unsafe {
        let handle: *mut sys::ObjectHandleID = at.next();
        let code = info.CreateHandle(object, sys::COR_PRF_HANDLE_TYPE_STRONG, handle);
        let found = info.GetObjectIDFromHandle(*handle, at.next());
        let freed = info.DestroyHandle(*handle);
        if code.is_err() {
            code
        } else if found.is_err() {
            found
        } else {
            freed
        }
    });
}

/// An array's shape: of two dimensions.
pub(super) fn ask_array(report: &mut Report, cx: &InNoGc<'_>, array: ObjectId<'_>) -> Result<()> {
    const DIMENSIONS: usize = 2;
    let array = array.as_raw();
    // SAFETY: the copy lives for this call only, in a callback.
    let info = unsafe { cx.as_raw::<sys::ICorProfilerInfo14>() }?;
    report.array("GetArrayObjectInfo", DIMENSIONS, |at, lengths| unsafe {
        info.GetArrayObjectInfo(array, DIMENSIONS as u32, lengths, [0; DIMENSIONS].as_mut_ptr(), at.next())
    });
    report.array("GetArrayObjectInfo of lower bounds", DIMENSIONS, |at, bounds| unsafe {
        info.GetArrayObjectInfo(array, DIMENSIONS as u32, [0; DIMENSIONS].as_mut_ptr(), bounds, at.next())
    });
    Ok(())
}
