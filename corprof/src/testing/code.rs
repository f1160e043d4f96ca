//! Functions, and their compilation.

use std::ops::Range;
use std::sync::Arc;

use windows_core::{BOOL, HRESULT};

use crate::id::{ClassId, FunctionId, ModuleId};

use super::clr::{FakeClr, made, make, misuse};
use super::contract::Release;
use super::spec::FunctionSpec;
use super::world::Function;

/// The size of every function's code in bytes.
const CODE_SIZE: usize = 0x80;

/// The first release that returns the class of shared code, as seen on .NET 10; .NET 9 was not tried.
const TELLS_SHARED_CLASS: Release = Release(10, 0);

impl FakeClr {
    /// A function of a class; the same one on each call. No callback reports it before it is compiled.
    ///
    /// # Panics
    /// If the class is not loaded, or is an array.
    #[track_caller]
    pub fn function(&self, class: ClassId, function: impl Into<FunctionSpec>) -> FunctionId {
        let spec = function.into();
        let mut world = self.runtime.world_mut();
        let Some(of) = world.classes.get(&class.as_raw()).filter(|class| class.array.is_none()).cloned() else {
            misuse(format_args!("{class:?} is not loaded, or is an array"));
        };
        let signature = spec.spell(&mut world, of.module);
        let Some(home) = world.modules.get_mut(&of.module) else {
            misuse(format_args!("the module of {class:?} is not loaded"));
        };
        let metadata = &mut home.metadata;
        let token = metadata.method(of.token, &spec.name, spec.is_static, signature, &spec.generic_params);
        let new = Function {
            class: if spec.is_shared && self.runtime.release < TELLS_SHARED_CLASS { 0 } else { class.as_raw() },
            module: of.module,
            token,
            type_args: spec.args.iter().map(|arg| arg.as_raw()).collect(),
            dynamic: None,
            code: None,
        };
        let key = |function: &Function| (function.class, function.module, function.token, function.type_args.clone());
        let known = world.functions.iter().find(|(_, known)| key(known) == key(&new)).map(|(&id, _)| id);
        let raw = known.unwrap_or_else(|| {
            let raw = world.new_id();
            world.functions.insert(raw, new);
            raw
        });
        made(FunctionId::from_raw(raw))
    }

    /// A function without metadata, as a program makes at run time.
    ///
    /// # Panics
    /// If the module is not loaded.
    #[track_caller]
    pub fn dynamic_function(&self, module: ModuleId, name: &str) -> FunctionId {
        let mut world = self.runtime.world_mut();
        if !world.modules.get(&module.as_raw()).is_some_and(|module| module.alive) {
            misuse(format_args!("{module:?} is not loaded"));
        }
        let raw = world.new_id();
        let new = Function {
            class: 0,
            module: module.as_raw(),
            // The nil token of the table of methods.
            token: 0x0600_0000,
            type_args: Vec::new(),
            dynamic: Some(Arc::from(name)),
            code: None,
        };
        world.functions.insert(raw, new);
        made(FunctionId::from_raw(raw))
    }

    /// Compiles a function: `JITCompilationStarted`, `JITCompilationFinished`, or the same of a dynamic method. It gets
    /// its code in between.
    ///
    /// # Panics
    /// If there is no such function.
    #[track_caller]
    pub fn jit(&self, function: FunctionId) {
        self.jit_with(function, || ());
    }

    /// Like [`jit`](Self::jit); `meanwhile` does the compiler's work: it loads the classes that the function needs, and
    /// asks which calls it may [`inline`](Self::inline).
    ///
    /// ```
    /// # use corprof::testing::FakeClr;
    /// # fn play(clr: &FakeClr, main: corprof::id::FunctionId, get: corprof::id::FunctionId) {
    /// clr.jit_with(main, || {
    ///     clr.core_class("System.Console");
    ///     clr.inline(main, get);
    /// });
    /// # }
    /// ```
    ///
    /// # Panics
    /// If there is no such function.
    #[track_caller]
    pub fn jit_with(&self, function: FunctionId, meanwhile: impl FnOnce()) {
        let raw = function.as_raw();
        let Some(known) = self.runtime.world().functions.get(&raw).cloned() else {
            misuse(format_args!("{function:?} is not there"));
        };
        self.current_thread();
        let safe = BOOL(1);
        let ok = HRESULT(0);
        if known.dynamic.is_some() {
            // One instruction: `ret`, in a tiny header.
            let il = [0x06_u8, 0x2A];
            let start = il.as_ptr();
            let size = il.len() as u32;
            make!(self, DynamicMethodJitCompilationStarted, |callback| callback
                .DynamicMethodJITCompilationStarted(raw, safe, start, size));
            meanwhile();
            self.give_code(raw);
            make!(self, DynamicMethodJitCompilationFinished, |callback| callback
                .DynamicMethodJITCompilationFinished(raw, ok, safe));
            return;
        }
        make!(self, JitCompilationStarted, |callback| callback.JITCompilationStarted(raw, safe));
        meanwhile();
        self.give_code(raw);
        make!(self, JitCompilationFinished, |callback| callback.JITCompilationFinished(raw, ok, safe));
    }

    fn give_code(&self, function: usize) {
        let mut world = self.runtime.world_mut();
        let code = world.new_code(CODE_SIZE);
        if let Some(function) = world.functions.get_mut(&function) {
            function.code.get_or_insert(code);
        }
    }

    /// The addresses of a function's code; none before it is compiled.
    pub fn code_of(&self, function: FunctionId) -> Option<Range<usize>> {
        self.runtime.world().functions.get(&function.as_raw()).and_then(|function| function.code.clone())
    }

    /// Asks whether a call may be inlined: `JITInlining`. Yes, unless the profiler refuses.
    pub fn inline(&self, caller: FunctionId, callee: FunctionId) -> bool {
        self.current_thread();
        let mut answer = BOOL(1);
        let caller = caller.as_raw();
        let callee = callee.as_raw();
        let out = &raw mut answer;
        make!(self, JitInlining, |callback| callback.JITInlining(caller, callee, out));
        answer.as_bool()
    }

    /// Unloads a dynamic method: `DynamicMethodUnloaded`.
    pub fn unload_dynamic_function(&self, function: FunctionId) {
        self.current_thread();
        let raw = function.as_raw();
        make!(self, DynamicMethodUnloaded, |callback| callback.DynamicMethodUnloaded(raw));
        self.runtime.world_mut().functions.remove(&raw);
    }
}
