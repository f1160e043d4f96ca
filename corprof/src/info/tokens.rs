//! Finds the loaded class or function for a metadata token.

use std::collections::BTreeSet;

use corprof_sys as sys;

use crate::context::{InCallback, InNoGc};
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::Info;
use crate::metadata::{MethodDef, Token, TypeDef};
use crate::session::ending_threads::refuse_in_thread_destroyed;

use super::nested::Nested;

/// How deep type arguments may nest: the runtime follows them by recursion where it loads a class, without a limit.
const MOST_DEPTH: usize = 128;

impl InNoGc<'_> {
    /// The function for `method`, a [`MethodDef`] or [`MemberRef`](crate::metadata::MemberRef) of `module`.
    ///
    /// It loads nothing: a function whose class is not loaded yet is not found.
    #[doc = contract!(GetFunctionFromToken)]
    ///
    /// `CORPROF_E_FUNCTION_IS_PARAMETERIZED`: the function or its class is generic, so there may be many: call
    /// [`function_from_token_and_type_args`](InCallback::function_from_token_and_type_args). `E_INVALIDARG`: it is not
    /// loaded, or no method. `CORPROF_E_RUNTIME_UNINITIALIZED`: too early, the runtime's own classes are not loaded.
    #[doc(alias = "GetFunctionFromToken")]
    pub fn function_from_token(&self, module: ModuleId, method: impl Into<Token>) -> Result<FunctionId> {
        const CALL: &str = "GetFunctionFromToken";
        let module = self.pin(module, CALL)?;
        let mut function = 0;
        // SAFETY: the module is pinned; the call writes one id and keeps nothing (fact: pinned, outputs).
        let code = unsafe {
            self.first_version(CALL)?.GetFunctionFromToken(module.as_raw(), method.into().as_raw(), &mut function)
        };
        Error::check(code, CALL)?;
        self.function(function).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// Checks that `owner` has as many generic parameters in the metadata as there are type arguments, and that these
    /// do not nest too deep. The runtime checks neither when it makes instantiations.
    fn check_type_args(&self, call: &'static str, module: ModuleId, owner: Token, type_args: &[ClassId]) -> Result<()> {
        let refused = |rule| Err(Error::new(E_INVALIDARG, call).about("type arguments", rule));
        if self.metadata(module)?.generic_params(owner)?.len() != type_args.len() {
            return refused("pass one for each generic parameter");
        }
        if self.nest_too_deep(type_args) {
            return refused("they nest more than 128 deep, and the runtime may run out of stack there");
        }
        Ok(())
    }

    /// Whether classes have parts (type arguments, elements of arrays) that have parts, and so on, too often.
    fn nest_too_deep(&self, classes: &[ClassId]) -> bool {
        let mut level: BTreeSet<ClassId> = classes.iter().copied().collect();
        for _ in 0..MOST_DEPTH {
            if level.is_empty() {
                return false;
            }
            level = level.into_iter().flat_map(|class| self.parts(class)).collect();
        }
        true
    }

    /// The type arguments of a class, or the class of its elements; none of one that the runtime says nothing of.
    fn parts(&self, class: ClassId) -> Vec<ClassId> {
        match self.array_class(class) {
            Ok(Some(array)) => array.element.into_iter().collect(),
            _ => self.class_info(class).map_or_else(|_| Vec::new(), |info| info.type_args),
        }
    }
}

impl Info {
    /// Checks that the calling thread may load classes.
    ///
    /// It must be a managed thread: on others the runtime crashes instead of refusing. And it must not be ending: it has
    /// given back its part of the heap, and the runtime makes objects for a class. What they take of the heap then is
    /// never given back, and a later collection crashes on it (seen on .NET 10).
    fn check_can_load(&self, call: &'static str) -> Result<()> {
        const RULE: &str = "the thread has left the heap, where a class that is loaded needs objects: make this call in \
                            another callback";
        refuse_in_thread_destroyed(call, RULE)?;
        match self.current_thread()? {
            Some(_) => Ok(()),
            None => Err(Error::new(sys::CORPROF_E_NOT_MANAGED_THREAD, call).about(
                "a thread of the profiler's",
                "classes are loaded on managed threads only: make this call in a callback",
            )),
        }
    }
}

impl InCallback<'_> {
    /// The class for `definition` of `module` with these type arguments; those of the enclosing classes come first. It
    /// is loaded if it was not.
    ///
    /// Pass none for a class that is not generic.
    ///
    /// Loading a class may run the application's code, such as handlers of `AssemblyLoadContext.Resolving`. Meanwhile
    /// the module and the modules of the type arguments cannot be unloaded. If they are collectible, that code must not
    /// wait for the finalizer thread (`GC.WaitForPendingFinalizers`) or for the unload: both would wait for ever.
    #[doc = contract!(GetClassFromTokenAndTypeArgs)]
    ///
    /// `E_INVALIDARG`: the class has more or fewer generic parameters, or the type arguments nest more than 128 deep.
    /// `CORPROF_E_RUNTIME_UNINITIALIZED`: too early,
    /// the runtime's own classes are not loaded. If the class cannot be loaded, the code of the exception.
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `thread_destroyed`; or `class_load_finished`, or another callback that
    /// this call makes, loads classes recursively, a dozen deep.
    #[doc(alias = "GetClassFromTokenAndTypeArgs")]
    #[doc(alias = "GetClassFromToken")]
    pub fn class_from_token(
        &mut self,
        module: ModuleId,
        definition: TypeDef,
        type_args: &[ClassId],
    ) -> Result<ClassId> {
        const CALL: &str = "GetClassFromTokenAndTypeArgs";
        self.check_can_load(CALL)?;
        self.check_type_args(CALL, module, definition.token(), type_args)?;
        let module = self.pin(module, CALL)?;
        let _type_args = self.pin_all(type_args, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let _nested = Nested::begin(CALL)?;
        let mut class = 0;
        // SAFETY: the module and the type arguments are pinned. A `ClassId` is transparent over the number on the wire;
        // the call reads as many as there are, and writes one id (fact: pinned, inputs, outputs). There is one type
        // argument for each generic parameter, as has been checked.
        let code = unsafe {
            info.GetClassFromTokenAndTypeArgs(
                module.as_raw(),
                definition.as_raw(),
                type_args.len() as u32,
                type_args.as_ptr().cast(),
                &mut class,
            )
        };
        Error::check(code, CALL)?;
        self.class(class).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// The function for `method` of `class`, with type arguments of its own.
    ///
    /// `class` must be the class that declares the method, with its type arguments if it has any; `method` is a token
    /// of that class's module. Pass no type arguments for a method that is not generic itself.
    ///
    /// The note at [`class_from_token`](Self::class_from_token) on code that runs meanwhile applies here as well.
    #[doc = contract!(GetFunctionFromTokenAndTypeArgs)]
    ///
    /// `E_INVALIDARG`: `class` does not declare the method, the method has more or fewer generic parameters, or the
    /// type arguments nest more than 128 deep. `CORPROF_E_CLASSID_IS_ARRAY` and `CORPROF_E_CLASSID_IS_COMPOSITE`:
    /// `class` declares no methods. corprof checks all of these in the metadata before the call, because the runtime
    /// does not. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `thread_destroyed`.
    #[doc(alias = "GetFunctionFromTokenAndTypeArgs")]
    pub fn function_from_token_and_type_args(
        &mut self,
        class: ClassId,
        method: MethodDef,
        type_args: &[ClassId],
    ) -> Result<FunctionId> {
        const CALL: &str = "GetFunctionFromTokenAndTypeArgs";
        self.check_can_load(CALL)?;
        let owner = self.class_info(class)?;
        if self.metadata(owner.module)?.method(method)?.class != owner.token {
            return Err(Error::new(E_INVALIDARG, CALL).about("class", "pass the class that declares the method"));
        }
        self.check_type_args(CALL, owner.module, method.token(), type_args)?;
        let class = self.pin(class, CALL)?;
        let _type_args = self.pin_all(type_args, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let _nested = Nested::begin(CALL)?;
        let mut function = 0;
        // SAFETY: as for a class; also, the class declares the method, so the class has an entry for it.
        let code = unsafe {
            info.GetFunctionFromTokenAndTypeArgs(
                owner.module.as_raw(),
                method.as_raw(),
                class.as_raw(),
                type_args.len() as u32,
                type_args.as_ptr().cast(),
                &mut function,
            )
        };
        Error::check(code, CALL)?;
        self.function(function).ok_or(Error::new(E_INVALIDARG, CALL))
    }
}
