//! The subjects of the rows: one of each kind, all found before the first call.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use corprof::error::E_FAIL;
use corprof::events::Level;
use corprof::id::{EventPipeEventId, EventPipeProviderId, NativeCode};
use corprof::info::{EventPipeEventDefinition, HandleKind, ObjectHandle};
use corprof::metadata::MethodDef;
use corprof::metadata::{FieldDef, TypeDef};
use corprof::prelude::*;

/// One of everything.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) app_domain: AppDomainId,
    pub(super) assembly: AssemblyId,
    pub(super) module: ModuleId,
    pub(super) core_module: ModuleId,
    pub(super) class: ClassId,
    pub(super) class_token: TypeDef,
    pub(super) value_class: ClassId,
    pub(super) program: ClassId,
    pub(super) function: FunctionId,
    pub(super) method: MethodDef,
    pub(super) code: NativeCode,
    pub(super) dynamic: FunctionId,
    pub(super) thread: ThreadId,
    pub(super) field: FieldDef,
    pub(super) thread_field: FieldDef,
    pub(super) rva_class: ClassId,
    pub(super) rva_field: FieldDef,
    /// A provider and an event of it; none where the runtime has no EventPipe for profilers.
    pub(super) provider: Option<(EventPipeProviderId<'static>, EventPipeEventId)>,
    /// The address of an array that is pinned.
    pub(super) pinned: usize,
}

/// Known things, and raw values stored for the place that gathers them.
#[derive(Default)]
pub(super) struct Facts {
    known: OnceLock<Known>,
    handles: Mutex<Vec<ObjectHandle>>,
    pub(super) core_module: OnceLock<ModuleId>,
    pub(super) dynamic: OnceLock<FunctionId>,
    pub(super) pinned: AtomicUsize,
}

/// The answer of a row that has nothing to ask about yet.
pub(super) const NOTHING_YET: Error = Error::new(E_FAIL, "nothing to ask about yet");

impl Facts {
    pub(super) const fn new() -> Self {
        Self {
            known: OnceLock::new(),
            handles: Mutex::new(Vec::new()),
            core_module: OnceLock::new(),
            dynamic: OnceLock::new(),
            pinned: AtomicUsize::new(0),
        }
    }

    /// With these known things.
    pub(super) fn of(known: Known) -> Self {
        Self { known: OnceLock::from(known), ..Self::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.get().is_some()
    }

    pub(super) fn known(&self) -> Result<&Known> {
        self.known.get().ok_or(NOTHING_YET)
    }

    fn handles(&self) -> MutexGuard<'_, Vec<ObjectHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes handles enough for every place that is going to destroy one.
    pub(super) fn make_handles(&self, cx: &InNoGc<'_>, object: ObjectId<'_>) {
        if self.handles().is_empty() {
            // Not under the lock: each makes a callback, which may destroy one.
            let made: Vec<_> = (0..200).map_while(|_| cx.create_handle(object, HandleKind::Weak).ok()).collect();
            self.handles().extend(made);
        }
    }

    /// Keeps a handle for the next place that destroys one.
    #[allow(dead_code, reason = "the generated profilers make theirs one by one")]
    pub(super) fn keep_handle(&self, handle: ObjectHandle) {
        self.handles().push(handle);
    }

    /// One of the handles, to destroy.
    pub(super) fn take_handle(&self) -> Result<ObjectHandle> {
        self.handles().pop().ok_or(NOTHING_YET)
    }

    /// Gathers everything about the program, which is just compiling a method of its main module.
    pub(super) fn gather(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Result<(), BoxError> {
        let module = cx.function_info(function)?.module;
        let assembly = cx.module_info(module)?.assembly.ok_or("no assembly")?;
        let app_domain = cx.assembly_info(assembly)?.app_domain.ok_or("no application domain")?;
        let type_def = |cx: &InNoGc<'_>, name: &str| -> Result<TypeDef, BoxError> {
            Ok(cx.metadata(module)?.find_type_def(name, None)?.ok_or_else(|| format!("no class {name}"))?)
        };
        let [class_token, value_token, program] = ["Holder", "Pair", "Matrix"].map(|name| type_def(cx, name));
        let class_token = class_token?;
        let value_token = value_token?;
        let program_token = program?;
        let rva_token = type_def(cx, "<PrivateImplementationDetails>")?;
        let field = |cx: &InNoGc<'_>, name: &str| -> Result<FieldDef, BoxError> {
            let import = cx.metadata(module)?;
            let fields = import.fields(class_token)?;
            let found = fields.into_iter().find(|&field| import.field(field).is_ok_and(|props| props.name == name));
            Ok(found.ok_or_else(|| format!("no field {name}"))?)
        };
        let compiled = cx.metadata(module)?.methods_named(program_token, "Compiled")?;
        let method = *compiled.first().ok_or("no method Compiled")?;
        let function = cx.function_from_token(module, method)?;
        let known = Known {
            app_domain,
            assembly,
            module,
            core_module: *self.core_module.get().ok_or("no core module")?,
            class: cx.class_from_token(module, class_token, &[])?,
            class_token,
            value_class: cx.class_from_token(module, value_token, &[])?,
            program: cx.class_from_token(module, program_token, &[])?,
            function,
            method,
            code: *cx.native_code(function)?.first().ok_or("Compiled is not compiled")?,
            dynamic: *self.dynamic.get().ok_or("no dynamic method")?,
            thread: cx.current_thread()?.ok_or("not a managed thread")?,
            field: field(cx, "Ordinary")?,
            thread_field: field(cx, "PerThread")?,
            rva_class: cx.class_from_token(module, rva_token, &[])?,
            rva_field: *cx.metadata(module)?.fields(rva_token)?.first().ok_or("no initializer")?,
            provider: provider(cx).ok(),
            pinned: self.pinned.load(Relaxed),
        };
        // No other thread collects facts.
        let _ = self.known.set(known);
        Ok(())
    }
}

fn provider(cx: &mut InCallback<'_>) -> Result<(EventPipeProviderId<'static>, EventPipeEventId)> {
    let provider = cx.event_pipe_create_provider("Corprof-Matrix")?;
    Ok((provider, cx.event_pipe_define_event(provider, &event(1))?))
}

/// An event without fields.
pub(super) fn event(id: u32) -> EventPipeEventDefinition<'static> {
    EventPipeEventDefinition {
        name: "Asked",
        id,
        keywords: 1,
        version: 1,
        level: Level::Informational,
        opcode: 0,
        needs_stack: false,
        fields: &[],
    }
}
