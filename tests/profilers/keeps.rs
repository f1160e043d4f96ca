//! A profiler that keeps every identifier it meets and never stops asking about all of them: for `live/keeps.rs`.

#![forbid(unsafe_code)]

mod kept;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corprof::error::ErrorKind;
use corprof::metadata::{FieldDef, MethodDef, TypeDef};
use corprof::prelude::*;
use corprof::sys;

use kept::{Answers, Kept};

/// A module that the application has emitted.
#[derive(Clone, Copy)]
struct Emitted {
    assembly: AssemblyId,
    module: ModuleId,
    class: Option<ClassId>,
}

const CLASS: TypeDef = TypeDef::from_raw(0x0200_0002);
const METHOD: MethodDef = MethodDef::from_raw(0x0600_0001);
const FIELD: FieldDef = FieldDef::from_raw(0x0400_0001);

/// Makes calls on a thread of its own, beside the application, and in each callback about its arguments.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0301", no_export)]
struct Keeps {
    ids: Arc<Mutex<HashSet<Kept>>>,
    answers: Arc<Answers>,
    emitted: Mutex<Vec<Emitted>>,
    /// How many of these have ended.
    ended: AtomicU64,
}

impl Keeps {
    fn emitted(&self) -> MutexGuard<'_, Vec<Emitted>> {
        self.emitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unexpected(&self, what: &str) {
        eprintln!("unexpected: {what}");
        self.answers.unexpected.fetch_add(1, Relaxed);
    }

    fn keep(&self, ids: impl IntoIterator<Item = Kept>) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }
}

fn is_gone<T>(answer: Result<T>) -> bool {
    answer.is_err_and(|error| error.kind() == ErrorKind::Gone)
}

#[callbacks]
impl Callbacks for Keeps {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let ids = Arc::clone(&profiler.ids);
        let answers = Arc::clone(&profiler.answers);
        cx.spawn_profiler_thread("asker", move |cx| {
            while cx.wait(Duration::from_millis(1)).is_continue() {
                let kept: Vec<_> = ids.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
                for id in kept {
                    if cx.is_stopping() {
                        break;
                    }
                    answers.ask(cx, id);
                }
            }
        })?;
        Ok(profiler)
    }

    fn assembly_load_finished(&self, _cx: &mut InCallback<'_>, assembly: AssemblyId, status: Result<()>) {
        if status.is_ok() {
            self.keep([Kept::Assembly(assembly)]);
        }
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, module: ModuleId, status: Result<()>) {
        if status.is_ok() {
            self.keep([Kept::Module(module)]);
        }
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, module: ModuleId, assembly: AssemblyId) {
        if cx.module_info(module).is_ok_and(|info| info.flags.contains(sys::COR_PRF_MODULE_DYNAMIC)) {
            self.emitted().push(Emitted { assembly, module, class: None });
        }
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
        if status.is_err() {
            return;
        }
        self.keep([Kept::Class(class)]);
        let Ok(info) = cx.class_info(class) else { return };
        if let Some(emitted) = self.emitted().iter_mut().find(|it| (it.module, CLASS) == (info.module, info.token)) {
            emitted.class = Some(class);
        }
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.keep([Kept::Function(function)]);
        if let Ok(info) = cx.function_info(function) {
            self.keep(info.class.into_iter().chain(info.type_args).map(Kept::Class));
        }
    }

    fn thread_created(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.keep([Kept::Thread(thread)]);
    }

    fn assembly_unload_started(&self, cx: &mut InCallback<'_>, assembly: AssemblyId) {
        let emitted = self.emitted().iter().copied().find(|it| it.assembly == assembly);
        // The last moment for what was emitted.
        if let Some(Emitted { module, class: Some(class), .. }) = emitted
            && (cx.il_function_body(module, METHOD).is_err() || cx.rva_static_address(class, FIELD).is_err())
        {
            self.unexpected("what was emitted is dead when its assembly begins to go");
        }
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        // The last moment, at which everything else about it can still be asked.
        let alive = cx.module_info(module).is_ok() && cx.metadata(module).and_then(|it| it.type_defs()).is_ok();
        if !alive {
            self.unexpected("a module is dead when it begins to go");
        }
        for emitted in self.emitted().extract_if(.., |it| it.module == module) {
            let Some(class) = emitted.class else { continue };
            self.ended.fetch_add(1, Relaxed);
            if !is_gone(cx.il_function_body(module, METHOD)) || !is_gone(cx.rva_static_address(class, FIELD)) {
                self.unexpected("the runtime is asked about what was emitted, which it has freed");
            }
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let ids: Vec<_> = self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        for &id in &ids {
            self.answers.ask(cx, id);
        }
        let [assemblies, modules, classes, functions, threads] = &self.answers.dead;
        eprintln!(
            "kept={} good={} assemblies={} modules={} classes={} functions={} threads={} emitted={} unexpected={}",
            ids.len(),
            self.answers.good.load(Relaxed),
            assemblies.load(Relaxed),
            modules.load(Relaxed),
            classes.load(Relaxed),
            functions.load(Relaxed),
            threads.load(Relaxed),
            self.ended.load(Relaxed),
            self.answers.unexpected.load(Relaxed),
        );
    }
}

corprof::export!(Keeps);
