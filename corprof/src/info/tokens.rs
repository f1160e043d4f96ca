//! From metadata to what is loaded: the class or function that a token stands for.

use corprof_sys as sys;

use crate::context::{InCallback, InTriggers};
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::Info;
use crate::metadata::{MethodDef, Token, TypeDef};

use super::nested::Nested;

impl InCallback<'_> {
    /// The function that `method`, a [`MethodDef`] or [`MemberRef`](crate::metadata::MemberRef) of `module`, stands for.
    ///
    /// It loads nothing: a function whose class is not loaded yet is not found.
    #[doc = contract!(GetFunctionFromToken)]
    ///
    /// `CORPROF_E_FUNCTION_IS_PARAMETERIZED`: the function or its class is generic, so there are many: ask
    /// [`function_from_token_and_type_args`](InTriggers::function_from_token_and_type_args). `E_INVALIDARG`: it is not
    /// loaded, or no method. `CORPROF_E_RUNTIME_UNINITIALIZED`: too early, the runtime's own classes are not loaded.
    #[doc(alias = "GetFunctionFromToken")]
    pub fn function_from_token(&self, module: ModuleId, method: impl Into<Token>) -> Result<FunctionId> {
        const CALL: &str = "GetFunctionFromToken";
        let module = self.pin(module, CALL)?;
        let mut function = 0;
        // SAFETY: the call writes one id and keeps nothing.
        let code = unsafe {
            self.first_version(CALL)?.GetFunctionFromToken(module.as_raw(), method.into().as_raw(), &mut function)
        };
        Error::check(code, CALL)?;
        self.function(function).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// Whether the metadata gives `owner` as many generic parameters as these. The runtime takes that for granted where
    /// it makes instantiations.
    fn check_type_args(&self, call: &'static str, module: ModuleId, owner: Token, type_args: &[ClassId]) -> Result<()> {
        if self.metadata(module)?.generic_params(owner)?.len() == type_args.len() {
            return Ok(());
        }
        Err(Error::new(E_INVALIDARG, call).about("type arguments", "there must be one for each generic parameter"))
    }
}

impl Info {
    /// The runtime crashes when it loads a class on a thread that is not its own, and does not refuse.
    fn check_managed(&self, call: &'static str) -> Result<()> {
        match self.current_thread()? {
            Some(_) => Ok(()),
            None => Err(Error::new(sys::CORPROF_E_NOT_MANAGED_THREAD, call)
                .about("a thread of the profiler's", "classes are loaded on managed threads only: ask in a callback")),
        }
    }
}

impl InTriggers<'_> {
    /// The class that `definition` of `module` stands for, with these type arguments, those of the classes around it
    /// first. It is loaded if it was not.
    ///
    /// For a class that is not generic there are none.
    ///
    /// Loading a class may run code of the application's, such as handlers of `AssemblyLoadContext.Resolving`, and as long
    /// as it does, the module and the type arguments' are kept from being unloaded. If they can be, such code must not wait for
    /// the finalizer thread (`GC.WaitForPendingFinalizers`) or for the unload: each would wait for the other for ever.
    #[doc = contract!(GetClassFromTokenAndTypeArgs)]
    ///
    /// `E_INVALIDARG`: the class has more or fewer generic parameters. `CORPROF_E_RUNTIME_UNINITIALIZED`: too early, the
    /// runtime's own classes are not loaded. A class that cannot be loaded is answered with the code of the exception
    /// that says so. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: classes are loaded from within each other's `class_load_finished`, or
    /// another callback that this call makes, a dozen deep.
    #[doc(alias = "GetClassFromTokenAndTypeArgs")]
    #[doc(alias = "GetClassFromToken")]
    pub fn class_from_token(
        &mut self,
        module: ModuleId,
        definition: TypeDef,
        type_args: &[ClassId],
    ) -> Result<ClassId> {
        const CALL: &str = "GetClassFromTokenAndTypeArgs";
        self.check_managed(CALL)?;
        self.check_type_args(CALL, module, definition.token(), type_args)?;
        let module = self.pin(module, CALL)?;
        let _type_args = self.pin_all(type_args, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let _nested = Nested::begin(CALL)?;
        let mut class = 0;
        // SAFETY: a `ClassId` is transparent over the number on the wire; the call reads as many as there are, and writes
        // one id. There is one type argument for each generic parameter, as has been checked.
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

    /// The function that `method` stands for in `class`, with these type arguments of its own.
    ///
    /// `class` is the very class that declares the method, with its type arguments if it has any; `method` is a token of
    /// that class's module. For a method that is not generic itself there are no type arguments.
    ///
    /// What is said of code that runs meanwhile at [`class_from_token`](Self::class_from_token) holds here as well.
    #[doc = contract!(GetFunctionFromTokenAndTypeArgs)]
    ///
    /// `E_INVALIDARG`: `class` does not declare the method, or the method has more or fewer generic parameters.
    /// `CORPROF_E_CLASSID_IS_ARRAY` and `CORPROF_E_CLASSID_IS_COMPOSITE`: `class` declares no methods. All these are found out
    /// from the metadata before the runtime is asked: it would take them for granted.
    #[doc(alias = "GetFunctionFromTokenAndTypeArgs")]
    pub fn function_from_token_and_type_args(
        &mut self,
        class: ClassId,
        method: MethodDef,
        type_args: &[ClassId],
    ) -> Result<FunctionId> {
        const CALL: &str = "GetFunctionFromTokenAndTypeArgs";
        self.check_managed(CALL)?;
        let owner = self.class_info(class)?;
        if self.metadata(owner.module)?.method(method)?.class != owner.token {
            return Err(Error::new(E_INVALIDARG, CALL).about("class", "it must be the one that declares the method"));
        }
        self.check_type_args(CALL, owner.module, method.token(), type_args)?;
        let class = self.pin(class, CALL)?;
        let _type_args = self.pin_all(type_args, CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let _nested = Nested::begin(CALL)?;
        let mut function = 0;
        // SAFETY: as for a class; besides, the class declares the method, so the method has its place in the class's own.
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
