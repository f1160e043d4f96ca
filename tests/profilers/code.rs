//! Asks about the code of an application, from every kind of callback that may ask, and expects the answers to fit
//! together: for `live/code.rs`. A contradiction is a panic.

#![allow(clippy::panic, clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use corprof::args::{FunctionControl, GcReason, Generations};
use corprof::id::NativeCode;
use corprof::id::ReJitId;
use corprof::info::{FunctionVersion, IlMapEntry, IlOffset};
use corprof::metadata::{MethodDef, TypeDef};
use corprof::prelude::*;
use corprof::sys;
use corprof_il::{Body, Opcode};

/// Only the test's own threads wait for these, and never while they make a call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// A compiled function of the application, left by a callback that knows one for callbacks that know none.
#[derive(Clone, Copy)]
struct Known {
    module: ModuleId,
    method: MethodDef,
    function: FunctionId,
    code: NativeCode,
}

/// Checks each function of the application when it is compiled, and gives it the body that it has.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0101", no_export)]
struct AsksAboutCode {
    app: Mutex<Option<ModuleId>>,
    core: Mutex<Option<ModuleId>>,
    rewritten: Mutex<HashSet<(ModuleId, MethodDef)>>,
    known: Mutex<Option<Known>>,
    functions: AtomicUsize,
    generic: AtomicUsize,
    dynamic: AtomicUsize,
    exceptions: AtomicUsize,
    collections: AtomicUsize,
}

impl AsksAboutCode {
    /// Calls of `Info`, allowed on any thread, about a compiled function.
    fn ask_anywhere(info: &Info, known: Known) {
        let Known { module, method, function, code } = known;
        assert_eq!(info.function_from_ip(code.into()), Ok(Some(function)));
        assert_eq!(info.code_address(8), None);
        assert_eq!(info.code_address(Self::ask_anywhere as fn(&Info, Known) as usize), None);
        assert!(info.native_code(function).unwrap().contains(&code));
        assert!(!info.is_function_dynamic(function).unwrap());
        let ranges = info.code_ranges(function).unwrap();
        assert!(ranges.iter().all(|range| range.size > 0), "{ranges:?}");
        let body = info.il_function_body(module, method).unwrap();
        assert!(body[0] & 3 == 2 && body.len() == 1 + usize::from(body[0] >> 2) || body[0] & 7 == 3, "{body:02X?}");
    }

    /// Calls allowed in any callback.
    fn ask_in_no_gc(cx: &InNoGc<'_>, known: Known) {
        Self::ask_anywhere(cx, known);
        let Known { module, method, function, code } = known;
        assert!(cx.jitted_functions().unwrap().contains(&function));
        match cx.function_from_token(module, method) {
            Ok(found) => assert_eq!(found, function),
            Err(error) => assert_eq!(error.code(), sys::CORPROF_E_FUNCTION_IS_PARAMETERIZED, "{error}"),
        }
        let mapping = cx.il_to_native_mapping(code).unwrap();
        let offsets: Vec<IlOffset> = mapping.iter().map(|range| range.il).collect();
        assert!(offsets.contains(&IlOffset::Prolog) && offsets.contains(&IlOffset::At(0)), "{mapping:?}");
    }

    /// Calls allowed only where a collection may start.
    fn ask_in_callback(cx: &mut InCallback<'_>, known: Known) {
        Self::ask_in_no_gc(cx, known);
        let Known { function, code, .. } = known;
        let version = FunctionVersion::from(function);
        let ranges = cx.native_code_ranges(code).unwrap();
        assert!(ranges[0].contains(code.as_raw()), "{code:?} {ranges:?}");
        assert_eq!(cx.function_version_from_ip(code.into()), Ok(Some(version)));
        assert!(cx.jitted_function_versions().unwrap().contains(&version));
        assert_eq!(cx.rejit_ids(function), Ok(vec![ReJitId(0)]));
    }

    /// From metadata to the function and its class, with the refusals on the way.
    fn ask_by_token(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        let info = cx.function_info(function).unwrap();
        let Some(class) = info.class else { return };
        let owner = cx.class_info(class).unwrap();
        let name = cx.names().function(function).to_string();
        assert_eq!(cx.class_from_token(owner.module, owner.token, &owner.type_args), Ok(class), "{name}");
        let found = cx.function_from_token_and_type_args(class, info.token, &info.type_args);
        assert_eq!(found, Ok(function), "{name}");
        if !owner.type_args.is_empty() || !info.type_args.is_empty() {
            self.generic.fetch_add(1, Relaxed);
        }

        let too_many: Vec<ClassId> = owner.type_args.iter().copied().chain([class]).collect();
        let refused = cx.class_from_token(owner.module, owner.token, &too_many).unwrap_err();
        assert_eq!((refused.code(), refused.call()), (corprof::error::E_INVALIDARG, "GetClassFromTokenAndTypeArgs"));
        let too_many: Vec<ClassId> = info.type_args.iter().copied().chain([class]).collect();
        let refused = cx.function_from_token_and_type_args(class, info.token, &too_many).unwrap_err();
        assert_eq!((refused.code(), refused.call()), (corprof::error::E_INVALIDARG, "GetFunctionFromTokenAndTypeArgs"));
        for no_class in [0x02FF_FFFF, 0x0200_0000, 0x0100_0001, 0x1B00_0001, u32::MAX] {
            let refused = cx.class_from_token(owner.module, TypeDef::from_raw(no_class), &[]).unwrap_err();
            assert_ne!(refused.code(), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "{no_class:#x}: {refused}");
        }
        for no_method in [0x06FF_FFFF, 0x0600_0000, 0x0AFF_FFFF, 0x0200_0002, u32::MAX].map(MethodDef::from_raw) {
            let refused = cx.function_from_token(owner.module, no_method).unwrap_err();
            assert_eq!(refused.code(), corprof::error::E_INVALIDARG, "{no_method:?}: {refused}");
            let refused = cx.function_from_token_and_type_args(class, no_method, &[]).unwrap_err();
            assert_ne!(refused.code(), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "{no_method:?}: {refused}");
            let refused = cx.il_function_body(owner.module, no_method).unwrap_err();
            assert_ne!(refused.code(), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "{no_method:?}: {refused}");
        }
        if let Some(parent) = owner.parent {
            let refused = cx.function_from_token_and_type_args(parent, info.token, &info.type_args).unwrap_err();
            assert_ne!(refused.code(), sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "{refused}");
        }
    }
}

#[callbacks]
impl Callbacks for AsksAboutCode {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let path = cx.module_info(module).unwrap().path;
        let app = std::env::var("CODE_APP").unwrap();
        if path.contains(&app) {
            *lock(&self.app) = Some(module);
        } else if path.contains("System.Private.CoreLib") {
            *lock(&self.core) = Some(module);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let info = cx.function_info(function).unwrap();
        if Some(info.module) != *lock(&self.app) {
            return;
        }
        if !lock(&self.rewritten).insert((info.module, info.token)) {
            return;
        }
        assert_eq!(cx.native_code(function), Ok(vec![]));
        let none_yet = cx.code_ranges(function).unwrap_err();
        assert_eq!(none_yet.code(), sys::CORPROF_E_FUNCTION_NOT_COMPILED);

        let body = cx.il_function_body(info.module, info.token).unwrap();
        // SAFETY: it is the function's own body.
        unsafe { cx.set_il_function_body(info.module, info.token, &body) }.unwrap();
        assert_eq!(cx.il_function_body(info.module, info.token), Ok(body.clone()));
        // Another one, which does the same, is compiled from now on; the first is still offered.
        let mut edited = Body::parse(&body).unwrap();
        let max_stack = edited.max_stack().unwrap();
        let first = edited.first().unwrap();
        edited.before(first).unwrap().op(Opcode::Nop).unwrap();
        edited.set_max_stack(max_stack);
        let edited = edited.encode().unwrap();
        // SAFETY: it is the function's own body, with an instruction that does nothing.
        unsafe { cx.set_il_function_body(info.module, info.token, &edited) }.unwrap();
        assert_eq!(cx.il_function_body(info.module, info.token), Ok(body.clone()));
        assert_eq!(cx.current_il_function_body(info.module, info.token), Ok(edited));
        let map = [IlMapEntry { old_offset: 0, new_offset: 0, is_accurate: true }];
        cx.set_il_instrumented_code_map(function, true, &map).unwrap();

        // SAFETY: a body that is cut short is refused.
        let refused = unsafe { cx.set_il_function_body(info.module, info.token, &body[..body.len() - 1]) };
        assert_eq!(refused.unwrap_err().code(), corprof::error::E_INVALIDARG);
        let type_def = cx.il_function_body(info.module, MethodDef::from_raw(0x0200_0002)).unwrap_err();
        assert_eq!(type_def.code(), corprof::error::E_INVALIDARG);
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        status.unwrap();
        let info = cx.function_info(function).unwrap();
        if Some(info.module) != *lock(&self.app) {
            return;
        }
        self.functions.fetch_add(1, Relaxed);
        let code = *cx.native_code(function).unwrap().first().unwrap();
        let known = Known { module: info.module, method: info.token, function, code };
        Self::ask_in_callback(cx, known);
        self.ask_by_token(cx, function);
        *lock(&self.known) = Some(known);
    }

    fn dynamic_method_jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        assert!(cx.is_function_dynamic(function).unwrap());
        let Some(range) = cx.code_ranges(function).unwrap().first().copied() else { return };
        let start = cx.code_address(range.start).unwrap();
        assert_eq!(cx.function_from_ip(start), Ok(None));
        assert_eq!(cx.function_version_from_ip(start), Ok(Some(function.into())));
        self.dynamic.fetch_add(1, Relaxed);
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        let known = *lock(&self.known);
        if let Some(known) = known {
            Self::ask_in_no_gc(cx, known);
            self.exceptions.fetch_add(1, Relaxed);
        }
    }

    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        let known = *lock(&self.known);
        if let Some(known) = known {
            Self::ask_in_no_gc(cx, known);
            self.collections.fetch_add(1, Relaxed);
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let known = (*lock(&self.known)).unwrap();
        let app = (*lock(&self.app)).unwrap();
        let core = (*lock(&self.core)).unwrap();
        let info = Info::clone(cx);
        std::thread::spawn(move || Self::ask_anywhere(&info, known)).join().unwrap();

        let not_precompiled = cx.ngen_inliners(app, known.module, known.method).unwrap_err();
        assert_eq!(not_precompiled.code(), sys::CORPROF_E_DATAINCOMPLETE);
        let methods = (1..1000).map(|row| MethodDef::from_raw(0x0600_0000 | row));
        let inliners: usize = methods.map(|method| cx.ngen_inliners(core, core, method).unwrap().methods.len()).sum();
        let count = |counter: &AtomicUsize| counter.load(Relaxed);
        eprintln!(
            "checked: inliners={inliners} functions={} generic={} dynamic={} exceptions={} collections={}",
            count(&self.functions),
            count(&self.generic),
            count(&self.dynamic),
            count(&self.exceptions),
            count(&self.collections)
        );
    }
}

/// Has one function compiled again, from the body that it has, while the application runs.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0102", no_export)]
struct CompilesAgain {
    is_requested: AtomicBool,
}

#[callbacks]
impl Callbacks for CompilesAgain {
    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if !cx.names().function(function).to_string().contains("Packer.Pack(") || self.is_requested.swap(true, Relaxed)
        {
            return;
        }
        let is_in = cx.function_info(function).unwrap();
        cx.spawn_profiler_thread("requests", move |cx| cx.request_rejit(&[(is_in.module, is_in.token)]).unwrap())
            .unwrap();
    }

    fn get_rejit_parameters(
        &self,
        cx: &mut InCallback<'_>,
        module: ModuleId,
        method: MethodDef,
        control: FunctionControl<'_>,
    ) {
        let body = cx.il_function_body(module, method).unwrap();
        control.set_codegen_flags(sys::COR_PRF_CODEGEN_DISABLE_INLINING).unwrap();
        let map = [IlMapEntry { old_offset: 0, new_offset: 0, is_accurate: true }];
        control.set_il_instrumented_code_map(&map).unwrap();
        // SAFETY: a body that is cut short is refused.
        let refused = unsafe { control.set_il_function_body(&body[..body.len() - 1]) };
        assert_eq!(refused.unwrap_err().code(), corprof::error::E_INVALIDARG);
        // SAFETY: it is the function's own body.
        unsafe { control.set_il_function_body(&body) }.unwrap();
    }

    fn rejit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        rejit: ReJitId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        status.unwrap();
        let version = FunctionVersion { function, rejit };
        assert_ne!(rejit, ReJitId(0));
        assert_eq!(cx.rejit_ids(function), Ok(vec![ReJitId(0), rejit]));
        let code = cx.native_code(version).unwrap();
        assert!(!code.is_empty() && !cx.native_code(function).unwrap().contains(&code[0]));
        assert_eq!(cx.function_version_from_ip(code[0].into()), Ok(Some(version)));
        assert!(cx.native_code_ranges(code[0]).unwrap()[0].contains(code[0].as_raw()));
        assert!(cx.jitted_function_versions().unwrap().contains(&version));
        assert!(!cx.il_to_native_mapping(code[0]).unwrap().is_empty());
        eprintln!("compiled again");
    }

    fn rejit_error(
        &self,
        _cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        function: Option<FunctionId>,
        status: Result<()>,
    ) {
        panic!("{function:?}: {status:?}");
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("no complaint");
    }
}

corprof::export!(AsksAboutCode, CompilesAgain);
