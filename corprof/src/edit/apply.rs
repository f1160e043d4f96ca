//! Makes edits, and hands their results to the runtime.
//!
//! An edit takes its steps in one order, and each has a type: [`EditLookups`] (what edits look up is listed),
//! [`PreparedEdit`] (a body that is edited and verified), [`CheckedBody`] (the runtime knows what the body names, and
//! probes know their values).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use corprof_il::body::Encoded;
use corprof_sys as sys;

use super::method::Finished;
use super::probe::Values;
use super::{EditError, MethodEdit, Refusal};
use crate::args::FunctionControl;
use crate::context::InCallback;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{FunctionId, ModuleId};
use crate::info::{IlMapEntry, Info};
use crate::metadata::MethodDef;
use crate::session::Replacement;
use crate::session::liveness::Lifeline;
use crate::values::{Lookup, Plan, Types};

/// What edits look up has been listed: made by [`InCallback::look_up_for_edits`].
pub(crate) struct EditLookups(());

/// A body that was edited and verified. [`publish`](Self::publish) makes it one that the runtime may have.
pub(crate) struct PreparedEdit {
    body: CheckedBody,
    /// Whether the runtime may not know yet all rows of metadata that the body names.
    has_new_rows: bool,
}

/// A body that was edited and verified, for one method. A clone costs nothing.
///
/// It may be kept, and handed to the runtime on any thread; after the end of the module it is refused.
#[derive(Clone)]
pub struct CheckedBody {
    lifeline: Lifeline,
    module: ModuleId,
    method: MethodDef,
    body: Arc<Encoded>,
    /// The probes that need a plan of the method's values.
    sites: Arc<[&'static Values]>,
}

impl CheckedBody {
    /// The module that the method belongs to.
    pub const fn module(&self) -> ModuleId {
        self.module
    }

    /// The method.
    pub const fn method(&self) -> MethodDef {
        self.method
    }

    /// Header, code, and the sections with exception clauses.
    pub fn bytes(&self) -> &[u8] {
        &self.body.bytes
    }

    /// Where the instructions of the old body are in the new one, for debuggers.
    pub fn il_map(&self) -> Vec<IlMapEntry> {
        let entry = |&(old_offset, new_offset)| IlMapEntry { old_offset, new_offset, is_accurate: true };
        self.body.map.iter().map(entry).collect()
    }
}

impl fmt::Debug for CheckedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("CheckedBody");
        fields.field("module", &self.module).field("method", &self.method);
        fields.field("bytes", &self.body.bytes.len()).finish_non_exhaustive()
    }
}

impl InCallback<'_> {
    /// Edits the body that `method` in `module` was loaded with, and verifies the result. Nothing reaches the runtime
    /// yet but rows of metadata.
    ///
    /// Rows that are added after `module_load_finished` take effect by `ApplyMetaData`, which this calls.
    ///
    /// Call class: as [`metadata_emit`](crate::InNoGc::metadata_emit) and [`apply_meta_data`](Self::apply_meta_data):
    /// **sync**, allowed after attach, may start a GC.
    ///
    /// # Errors
    /// [`EditError`]: the runtime's errors, refusals by name, and the breaches of rules. The closure's own errors are
    /// returned.
    pub fn edit_method(
        &mut self,
        module: ModuleId,
        method: MethodDef,
        edit: impl FnOnce(&mut MethodEdit<'_>) -> Result<(), EditError>,
    ) -> Result<CheckedBody, EditError> {
        self.edit_with(module, method, Types::MayLoad, edit)
    }

    fn edit_with(
        &mut self,
        module: ModuleId,
        method: MethodDef,
        types: Types,
        edit: impl FnOnce(&mut MethodEdit<'_>) -> Result<(), EditError>,
    ) -> Result<CheckedBody, EditError> {
        let lookups = self.look_up_for_edits();
        let prepared = self.prepare_edit(&lookups, module, method, edit)?;
        Ok(prepared.publish(self, types)?)
    }

    /// The first step of edits: has the assemblies listed, where types that the bodies name are looked up.
    pub(crate) fn look_up_for_edits(&mut self) -> EditLookups {
        self.find_suppression();
        let _ = self.list_assemblies(); // types of other modules stay unknown then
        EditLookups(())
    }

    /// The second step of an edit.
    pub(crate) fn prepare_edit(
        &self,
        _lookups: &EditLookups,
        module: ModuleId,
        method: MethodDef,
        edit: impl FnOnce(&mut MethodEdit<'_>) -> Result<(), EditError>,
    ) -> Result<PreparedEdit, EditError> {
        let lifeline = Lifeline::of(self.liveness(), &self.pin(module, "edit_method")?);
        let mut open = MethodEdit::open(self, lifeline.clone(), module, method)?;
        edit(&mut open)?;
        let Finished { body, has_new_rows, sites } = open.finish()?;
        let body = CheckedBody { lifeline, module, method, body: Arc::new(body), sites: sites.into() };
        Ok(PreparedEdit { body, has_new_rows })
    }

    /// Replaces the body of a method by an edited one, for all later compilations.
    ///
    /// It has the rules and the contract of [`set_il_function_body`](Self::set_il_function_body), but is safe: what the
    /// verifier does not prove, the author of the edit has promised ([`MethodEdit::body_mut`]), and the body of a
    /// method that has been compiled, or is being compiled, is not replaced. Whether it is, is known if the profiler
    /// hears of compilations (`COR_PRF_MONITOR_JIT_COMPILATION`) from `initialize` on, or since before the module was
    /// loaded; without, call it in `module_load_finished`.
    ///
    /// # Errors
    /// As [`set_il_function_body`](Self::set_il_function_body); `COR_E_OBJECTDISPOSED` after the end of the module;
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE` if the method has been compiled just in time, or may be being compiled: a
    /// call of it goes on in code that is compiled later (on-stack replacement), at the place of the old body where it
    /// is.
    /// [`instrumentation`](crate::instrumentation) has such methods recompiled.
    pub fn set_checked_body(&mut self, body: &CheckedBody) -> Result<()> {
        let _replacement = begin_replacement(self.info(), body)?;
        self.refuse_compiled(body)?;
        self.hand_over(body)
    }

    fn hand_over(&mut self, body: &CheckedBody) -> Result<()> {
        // The module of this body, not the next one at its address, from here to the end of the call.
        let _loaded = body.lifeline.pin("SetILFunctionBody")?;
        if !body.sites.is_empty() {
            self.keep_apart(body.module, body.method)?;
        }
        // SAFETY: the body was made for this method from its own, and verified with the metadata of this module. What
        // was inserted is of known types, or its author has promised so in `body_mut` (test: live
        // il::what_the_verifier_takes_is_compiled). No code of the first tier goes on in it (test: live
        // attacks::a_body_that_runs_is_not_replaced).
        unsafe { self.set_il_function_body(body.module, body.method, body.bytes()) }
    }

    /// Edits and replaces the body of a function, unless the profiler has replaced it before; returns whether it did.
    ///
    /// Call it in `jit_compilation_started` of the function itself, which comes again for each tier, for on-stack
    /// replacement and for each instantiation of a generic method: they all have one body, which is replaced once. Of
    /// threads that compile instantiations at the same time, each may edit the original; the first one's edit stays.
    ///
    /// A precompiled (ReadyToRun) function is not compiled, unless `COR_PRF_DISABLE_ALL_NGEN_IMAGES` is set. Neither is
    /// a small one that the compiler inlines into each caller: hooks with [`Hook::Exact`](crate::hooks::Hook::Exact)
    /// and an [`Instrumentation`](crate::instrumentation::Instrumentation) see to that.
    ///
    /// # Errors
    /// As [`edit_method`](Self::edit_method) and [`set_checked_body`](Self::set_checked_body), which refuse a function
    /// that has been compiled before the first edit.
    pub fn edit_once(
        &mut self,
        function: FunctionId,
        edit: impl FnOnce(&mut MethodEdit<'_>) -> Result<(), EditError>,
    ) -> Result<bool, EditError> {
        if self.is_function_dynamic(function)? {
            return Err(Refusal::DynamicMethod.into());
        }
        let info = self.function_info(function)?;
        // A thread that only begins to replace it may be too late for the code of this one: both replace it.
        if self.original_bodies().is_replaced(info.module.as_raw(), info.token.as_raw()) {
            return Ok(false);
        }
        self.refuse_compiled_function(function)?;
        let body = self.edit_with(info.module, info.token, Types::AreLoaded, edit)?;
        self.replace_once(&body)
    }

    /// Replaces the body of a method, unless another thread was faster; returns whether it did.
    fn replace_once(&mut self, body: &CheckedBody) -> Result<bool, EditError> {
        let replacement = begin_replacement(self.info(), body);
        if self.original_bodies().is_replaced(body.module.as_raw(), body.method.as_raw()) {
            return Ok(false);
        }
        let _replacement = replacement?;
        self.refuse_compiled(body)?;
        self.hand_over(body)?;
        Ok(true)
    }

    /// Refuses to replace the body of a method that has code of the compiler: the first tier's goes on in other code,
    /// at a place of the body. Precompiled code does not.
    fn refuse_compiled(&self, body: &CheckedBody) -> Result<()> {
        match self.function_from_token(body.module, body.method) {
            Ok(function) => self.refuse_compiled_function(function),
            Err(error) if error.code() == sys::CORPROF_E_FUNCTION_IS_PARAMETERIZED => self.refuse_instantiated(body),
            // Its class is not loaded.
            Err(_) => Ok(()),
        }
    }

    fn refuse_compiled_function(&self, function: FunctionId) -> Result<()> {
        if self.native_code(function)?.is_empty() || !self.jitted_functions()?.contains(&function) {
            return Ok(());
        }
        Err(is_compiled())
    }

    /// The same for all instantiations of a generic method.
    fn refuse_instantiated(&self, body: &CheckedBody) -> Result<()> {
        let is_of_body = |function: FunctionId| {
            self.function_info(function).is_ok_and(|info| info.module == body.module && info.token == body.method)
        };
        if self.jitted_functions()?.into_iter().any(is_of_body) { Err(is_compiled()) } else { Ok(()) }
    }
}

/// Keeps compilations of a method off until the result is dropped, and refuses if one has read the body.
fn begin_replacement<'a>(info: &'a Info, body: &CheckedBody) -> Result<Replacement<'a>> {
    let method_of = |function: FunctionId| {
        let known = info.function_info(function).ok()?;
        Some((known.module.as_raw(), known.token.as_raw()))
    };
    let method = (body.module.as_raw(), body.method.as_raw());
    if info.compilations().may_be_unheard(method, method_of) {
        const RULE: &str = "the compiler may have read the body, as not all compilations were reported: turn \
                            MONITOR_JIT_COMPILATION on in `initialize`, or edit it in `module_load_finished`, or when it \
                            is compiled";
        let error = Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "SetILFunctionBody");
        return Err(error.about("methods that may be being compiled", RULE));
    }
    info.compilations().begin_replacement(method, method_of).ok_or_else(is_compiled)
}

fn is_compiled() -> Error {
    const RULE: &str = "the method has been compiled, and calls of it that run go on in code that is compiled later, at a \
                        place of the old body: edit it in `module_load_finished`, or when it is compiled for the first \
                        time, or have it recompiled by an `Instrumentation`";
    Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, "SetILFunctionBody").about("methods with code", RULE)
}

impl PreparedEdit {
    /// The last step of an edit: has the runtime use the new rows of metadata, and finds out what the probes need to
    /// know about the method's values. `types`: whether those of its signature are loaded.
    ///
    /// # Errors
    /// Those of [`apply_meta_data`](InCallback::apply_meta_data).
    pub(crate) fn publish(self, cx: &mut InCallback<'_>, types: Types) -> Result<CheckedBody> {
        if self.has_new_rows {
            cx.apply_meta_data(self.body.module)?;
        }
        self.body.plan_values(cx, types);
        Ok(self.body)
    }

    /// [`publish`](Self::publish) of several, in their order: the rows of a module are used at once.
    pub(crate) fn publish_all(
        all: impl IntoIterator<Item = Self>,
        cx: &mut InCallback<'_>,
        types: Types,
    ) -> Vec<Result<CheckedBody>> {
        let all: Vec<Self> = all.into_iter().collect();
        let mut applied: BTreeMap<usize, Result<()>> = BTreeMap::new();
        for prepared in all.iter().filter(|prepared| prepared.has_new_rows) {
            let module = prepared.body.module;
            applied.entry(module.as_raw()).or_insert_with(|| cx.apply_meta_data(module));
        }
        let mut finish = |prepared: Self| {
            let applied = applied.get(&prepared.body.module.as_raw()).copied();
            if let Some(applied) = applied.filter(|_| prepared.has_new_rows) {
                applied?;
            }
            Self { has_new_rows: false, ..prepared }.publish(cx, types)
        };
        all.into_iter().map(&mut finish).collect()
    }
}

impl CheckedBody {
    /// Finds out what the probes of the body need to know about the method's values, before its code runs.
    fn plan_values(&self, cx: &mut InCallback<'_>, types: Types) {
        if self.sites.is_empty() {
            return;
        }
        // The module of this body, not the next one at its address. Without it, no code of the body will run.
        let Ok(_loaded) = self.lifeline.pin("edit_method") else { return };
        let plan = Lookup::new(cx).plan_of_method(self.module, self.method, types);
        let plan: &'static Plan = Box::leak(Box::new(plan));
        self.sites.iter().for_each(|site| site.set(plan));
    }
}

impl FunctionControl<'_> {
    /// Sets the new body of the function to an edited one, and its map for debuggers. The bytes are copied.
    ///
    /// Edit on a profiler thread before the request, and only hand over here: other threads that call the method wait
    /// meanwhile.
    ///
    /// # Errors
    /// `E_INVALIDARG`: the body is of another method than the request. `COR_E_OBJECTDISPOSED` after the end of the
    /// module. Otherwise as [`set_il_function_body`](Self::set_il_function_body). Without debugger support in the
    /// runtime the map is left out.
    pub fn set_checked_body(self, body: &CheckedBody) -> Result<()> {
        const CALL: &str = "ICorProfilerFunctionControl::SetILFunctionBody";
        if !self.is_for(body.module, body.method) {
            return Err(Error::new(E_INVALIDARG, CALL).about("edited body", "it was made for another method"));
        }
        let _loaded = body.lifeline.pin(CALL)?;
        // SAFETY: as in `InCallback::set_checked_body`; the request is for this very method.
        unsafe { self.set_il_function_body(body.bytes()) }?;
        match self.set_il_instrumented_code_map(&body.il_map()) {
            Err(error) if error.code() == corprof_sys::CORPROF_E_DEBUGGING_DISABLED => Ok(()),
            answer => answer,
        }
    }
}
