//! Method bodies: reads and replaces them.

use corprof_sys as sys;
use windows_core::BOOL;

use crate::context::InCallback;
use crate::error::{E_OUTOFMEMORY, Error, Result};
use crate::generated::contract::contract;
use crate::id::{FunctionId, ModuleId};
use crate::il_body::{IlMapEntry, check_body};
use crate::info::Info;
use crate::metadata::MethodDef;
use crate::session::liveness::Pinned;

const GET_BODY: &str = "GetILFunctionBody";

impl Info {
    /// The body that `method` in `module` was loaded with: its header, its code, and the sections with its exception
    /// clauses.
    ///
    /// A body set by [`set_il_function_body`](InCallback::set_il_function_body) does not change this result, nor does a
    /// ReJIT request. So a rewritten body is the same each time: `jit_compilation_started` comes again for each tier
    /// and for on-stack replacement, and code that is added to an already rewritten body would run twice, or be invalid
    /// ([`edit_once`](InCallback::edit_once) edits the first time only). For the body that would be compiled now, see
    /// [`current_il_function_body`](Self::current_il_function_body).
    #[doc = contract!(GetILFunctionBody)]
    ///
    /// `CORPROF_E_FUNCTION_NOT_IL`: the method is abstract, native or provided by the runtime.
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `COR_E_OBJECTDISPOSED`: the module is gone; or it is
    /// one that the application emits and can be unloaded, and its assembly has begun to unload.
    #[doc(alias = "GetILFunctionBody")]
    pub fn il_function_body(&self, module: ModuleId, method: MethodDef) -> Result<Vec<u8>> {
        let module = self.pin(module, GET_BODY)?;
        // In this order: another thread that replaces the body keeps the original first.
        let current = self.ask_for_body(&module, method);
        match self.original_bodies().of(module.as_raw(), method.as_raw()) {
            Some(original) => Ok(original.to_vec()),
            None => current,
        }
    }

    /// The body that `method` in `module` is compiled from: the one set by the last
    /// [`set_il_function_body`](InCallback::set_il_function_body), if there was one, otherwise [its
    /// own](Self::il_function_body). Bodies of ReJIT requests are not found this way.
    ///
    /// It has the call class and the errors of [`il_function_body`](Self::il_function_body).
    pub fn current_il_function_body(&self, module: ModuleId, method: MethodDef) -> Result<Vec<u8>> {
        let module = self.pin(module, GET_BODY)?;
        self.ask_for_body(&module, method)
    }

    /// The body that the runtime returns.
    fn ask_for_body(&self, module: &Pinned<'_, ModuleId>, method: MethodDef) -> Result<Vec<u8>> {
        const CALL: &str = GET_BODY;
        let _emitted = self.pin_emitted(module.id(), CALL)?;
        let ask = |size: *mut u32| {
            let mut start = std::ptr::null();
            let info = self.first_version(CALL)?;
            // SAFETY: the module and what was emitted into it are pinned; the call writes a pointer and, unless it is
            // null, the size, and keeps nothing (fact: outputs, pinned, emitted).
            let code = unsafe { info.GetILFunctionBody(module.as_raw(), method.as_raw(), &mut start, size) };
            Error::check(code, CALL).map(|()| start)
        };
        // A method of a dynamic module without a body has no size, but the runtime would try to compute it.
        if ask(std::ptr::null_mut())?.is_null() {
            return Err(Error::new(sys::CORPROF_E_FUNCTION_NOT_IL, CALL));
        }
        let mut size = 0;
        let start = ask(&mut size)?;
        if start.is_null() {
            return Err(Error::new(sys::CORPROF_E_FUNCTION_NOT_IL, CALL));
        }
        // SAFETY: the runtime has computed the size of the body, which belongs to the module and is pinned (fact: bodies,
        // emitted).
        Ok(unsafe { std::slice::from_raw_parts(start, size as usize) }.to_vec())
    }
}

impl InCallback<'_> {
    /// Replaces the body of `method` in `module`, for all later compilations. The original is kept: see
    /// [`il_function_body`](Info::il_function_body).
    ///
    /// Call it in `module_load_finished`, for methods known in advance, or in `jit_compilation_started` of the function
    /// itself; code that is already compiled does not change. The replacement is permanent: use ReJIT for a body that
    /// can be reverted. The bytes are copied.
    ///
    /// A precompiled (ReadyToRun) function is not compiled, unless `COR_PRF_DISABLE_ALL_NGEN_IMAGES` is set.
    ///
    /// # Safety
    /// The runtime does not verify IL. The code must be valid for the method in its module (ECMA-335, III): every token
    /// is of the right kind, the stack has the operands of each instruction, and no instruction accesses memory that it
    /// may not. Malformed IL ends in an `InvalidProgramException`, but IL that treats a number as an object or a
    /// pointer corrupts the process.
    ///
    /// This call checks only that the header, the code and the sections end where the bytes end.
    #[doc = contract!(SetILFunctionBody)]
    ///
    /// `E_INVALIDARG`: the body is shorter or longer than its header says, or `method` is not a method.
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `E_OUTOFMEMORY`: there is no room for the body.
    #[doc(alias = "SetILFunctionBody")]
    #[doc(alias = "GetILFunctionBodyAllocator")]
    pub unsafe fn set_il_function_body(&mut self, module: ModuleId, method: MethodDef, body: &[u8]) -> Result<()> {
        const CALL: &str = "SetILFunctionBody";
        self.refuse_notification_only(CALL)?;
        let module = self.pin(module, CALL)?;
        let size = check_body(body, CALL)?;
        // Before the body is replaced, so that the new one is never taken for the original. A method without a body
        // gets its error from the runtime below.
        if self.original_bodies().of(module.as_raw(), method.as_raw()).is_none()
            && let Ok(original) = self.ask_for_body(&module, method)
        {
            self.original_bodies().keep(module.as_raw(), method.as_raw(), original);
        }
        let mut allocator = None;
        // SAFETY: the module is pinned; the call writes one reference and keeps nothing (fact: pinned, outputs).
        let code = unsafe { self.first_version(CALL)?.GetILFunctionBodyAllocator(module.as_raw(), &mut allocator) };
        Error::check(code, "GetILFunctionBodyAllocator")?;
        let allocator = allocator.ok_or(Error::new(E_OUTOFMEMORY, "GetILFunctionBodyAllocator"))?;
        // SAFETY: the call takes a number.
        let start: *mut u8 = unsafe { allocator.Alloc(size) }.cast();
        if start.is_null() {
            return Err(Error::new(E_OUTOFMEMORY, "IMethodMalloc::Alloc"));
        }
        // SAFETY: the runtime has just allocated `size` bytes there for this body alone (fact: bodies).
        unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), start, body.len()) };
        self.prevent_detach(CALL);
        // SAFETY: the module is pinned; the memory belongs to the runtime and is never freed; the body in it ends where
        // the memory does, and its code is valid by the caller's promise (fact: pinned, bodies).
        let code = unsafe { self.first_version(CALL)?.SetILFunctionBody(module.as_raw(), method.as_raw(), start) };
        Error::check(code, CALL)?;
        self.original_bodies().set_replaced(module.as_raw(), method.as_raw());
        Ok(())
    }

    /// Gives debuggers a map from the instructions of the function's new body to those of the body that it was loaded
    /// with.
    ///
    /// `is_first`: whether this is the first map of this function. For bodies of ReJIT requests use
    /// [`FunctionControl::set_il_instrumented_code_map`](crate::args::FunctionControl::set_il_instrumented_code_map).
    #[doc = contract!(SetILInstrumentedCodeMap)]
    #[doc(alias = "SetILInstrumentedCodeMap")]
    pub fn set_il_instrumented_code_map(
        &mut self,
        function: FunctionId,
        is_first: bool,
        map: &[IlMapEntry],
    ) -> Result<()> {
        const CALL: &str = "SetILInstrumentedCodeMap";
        let function = self.pin(function, CALL)?;
        let (entries, count) = IlMapEntry::to_wire(map, CALL)?;
        // SAFETY: the function is pinned; the call reads `count` entries and keeps a copy (fact: pinned, inputs).
        let code = unsafe {
            self.first_version(CALL)?.SetILInstrumentedCodeMap(
                function.as_raw(),
                BOOL::from(is_first),
                count,
                entries.as_ptr(),
            )
        };
        Error::check(code, CALL)
    }
}
