//! Method bodies: reading them, and putting others in their place.

use corprof_sys as sys;
use windows_core::BOOL;

use crate::context::InTriggers;
use crate::error::{E_OUTOFMEMORY, Error, Result};
use crate::generated::contract::contract;
use crate::id::{FunctionId, ModuleId};
use crate::il_body::{IlMapEntry, check_body};
use crate::info::Info;
use crate::metadata::MethodDef;

const GET_BODY: &str = "GetILFunctionBody";

impl Info {
    /// The body that `method` in `module` was loaded with: its header, its code, and the sections with its exception clauses.
    ///
    /// A body that [`set_il_function_body`](InTriggers::set_il_function_body) has put in its place changes nothing about it, nor
    /// does a ReJIT request. So what is made of it is the same each time: `jit_compilation_started` comes again for each tier
    /// and for on-stack replacement, and code that was added to a body that has it already would run twice, or be invalid.
    /// The body that would be compiled now is [`current_il_function_body`](Self::current_il_function_body).
    #[doc = contract!(GetILFunctionBody)]
    ///
    /// `CORPROF_E_FUNCTION_NOT_IL`: the method is abstract, native or the runtime's own. `CORPROF_E_DATAINCOMPLETE`:
    /// before `module_load_finished`.
    #[doc(alias = "GetILFunctionBody")]
    pub fn il_function_body(&self, module: ModuleId, method: MethodDef) -> Result<Vec<u8>> {
        let module = self.pin(module, GET_BODY)?;
        match self.original_bodies().of(module.as_raw(), method.as_raw()) {
            Some(original) => Ok(original.to_vec()),
            None => self.ask_for_body(module.as_raw(), method),
        }
    }

    /// The body that `method` in `module` is compiled from: the one that the last
    /// [`set_il_function_body`](InTriggers::set_il_function_body) has put in the place of
    /// [its own](Self::il_function_body), if there was one. Bodies of ReJIT requests are not found this way.
    ///
    /// When it may be asked, and its errors, are those of [`il_function_body`](Self::il_function_body).
    pub fn current_il_function_body(&self, module: ModuleId, method: MethodDef) -> Result<Vec<u8>> {
        let module = self.pin(module, GET_BODY)?;
        self.ask_for_body(module.as_raw(), method)
    }

    /// The body that the runtime answers; `module` is held as long as this lasts.
    fn ask_for_body(&self, module: usize, method: MethodDef) -> Result<Vec<u8>> {
        const CALL: &str = GET_BODY;
        let ask = |size: *mut u32| {
            let mut start = std::ptr::null();
            // SAFETY: the call writes a pointer and, unless it is null, the size, and keeps nothing.
            let code =
                unsafe { self.first_version(CALL)?.GetILFunctionBody(module, method.as_raw(), &mut start, size) };
            Error::check(code, CALL).map(|()| start)
        };
        // A dynamic module's method without a body has none to measure either, which the runtime would try to.
        if ask(std::ptr::null_mut())?.is_null() {
            return Err(Error::new(sys::CORPROF_E_FUNCTION_NOT_IL, CALL));
        }
        let mut size = 0;
        let start = ask(&mut size)?;
        if start.is_null() {
            return Err(Error::new(sys::CORPROF_E_FUNCTION_NOT_IL, CALL));
        }
        // SAFETY: the runtime has measured the body, which belongs to the module and is there as long as its id is good.
        Ok(unsafe { std::slice::from_raw_parts(start, size as usize) }.to_vec())
    }
}

impl InTriggers<'_> {
    /// Puts another body in the place of `method`'s in `module`, for all compilations to come. The original is kept: see
    /// [`il_function_body`](Info::il_function_body).
    ///
    /// The place for it is `module_load_finished`, for methods that are known beforehand, or `jit_compilation_started` of
    /// the function itself; what is compiled already stays as it is. There is no way back: for a body that can be
    /// reverted, ReJIT is the way. The bytes are copied.
    ///
    /// A function that was precompiled (ReadyToRun) is not compiled, unless `COR_PRF_DISABLE_ALL_NGEN_IMAGES` is on.
    ///
    /// # Safety
    /// The runtime does not verify IL. The code must be valid for the method in its module (ECMA-335, III): every token
    /// names what it is used for, the stack holds what each instruction expects, and no instruction reads or writes
    /// memory that it may not. What is not valid IL at all ends in an `InvalidProgramException`, but IL that treats a
    /// number as an object or a pointer corrupts the process.
    ///
    /// That the header, the code and the sections end where the bytes end is checked here.
    #[doc = contract!(SetILFunctionBody)]
    ///
    /// `E_INVALIDARG`: the body is shorter or longer than it says, or `method` is no method.
    /// `CORPROF_E_DATAINCOMPLETE`: before `module_load_finished`. `E_OUTOFMEMORY`: there is no room for the body.
    #[doc(alias = "SetILFunctionBody")]
    #[doc(alias = "GetILFunctionBodyAllocator")]
    pub unsafe fn set_il_function_body(&mut self, module: ModuleId, method: MethodDef, body: &[u8]) -> Result<()> {
        const CALL: &str = "SetILFunctionBody";
        let module = self.pin(module, CALL)?;
        let size = check_body(body, CALL)?;
        // Before the body is replaced, so that nobody takes the new one for the original. A method without a body gets its error
        // from the runtime below.
        if self.original_bodies().of(module.as_raw(), method.as_raw()).is_none()
            && let Ok(original) = self.ask_for_body(module.as_raw(), method)
        {
            self.original_bodies().keep(module.as_raw(), method.as_raw(), original);
        }
        let mut allocator = None;
        // SAFETY: the call writes one reference and keeps nothing.
        let code = unsafe { self.first_version(CALL)?.GetILFunctionBodyAllocator(module.as_raw(), &mut allocator) };
        Error::check(code, "GetILFunctionBodyAllocator")?;
        let allocator = allocator.ok_or(Error::new(E_OUTOFMEMORY, "GetILFunctionBodyAllocator"))?;
        // SAFETY: the call takes a number.
        let start: *mut u8 = unsafe { allocator.Alloc(size) }.cast();
        if start.is_null() {
            return Err(Error::new(E_OUTOFMEMORY, "IMethodMalloc::Alloc"));
        }
        // SAFETY: the runtime has made room for `size` bytes just now, so nothing else lies there.
        unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), start, body.len()) };
        self.prevent_detach(CALL);
        // SAFETY: the memory is the runtime's and for good; the body in it ends where it does, and its code is good by
        // the caller's promise.
        let code = unsafe { self.first_version(CALL)?.SetILFunctionBody(module.as_raw(), method.as_raw(), start) };
        Error::check(code, CALL)
    }

    /// Tells debuggers which instructions of the body that `function` was loaded with the instructions of its new body
    /// stand for.
    ///
    /// `is_first` says that it is the first time for this function. For bodies of ReJIT requests it is
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
        // SAFETY: the call reads `count` entries and keeps a copy.
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
