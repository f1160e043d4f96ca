//! Profilers that ask, at the last moment and behind it, about what the application has emitted: for `live/keeps.rs`.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corprof::error::ErrorKind;
use corprof::metadata::{FieldDef, MethodDef, TypeDef};
use corprof::prelude::*;
use corprof::sys;

const CLASS: TypeDef = TypeDef::from_raw(0x0200_0002);
const METHOD: MethodDef = MethodDef::from_raw(0x0600_0001);
const FIELD: FieldDef = FieldDef::from_raw(0x0400_0001);

/// A module that the application has emitted.
struct Emitted {
    assembly: AssemblyId,
    module: ModuleId,
    class: Option<ClassId>,
}

/// The emitted modules that have not been asked about, and what came of the others.
#[derive(Default)]
struct Modules {
    emitted: Mutex<Vec<Emitted>>,
    alive: AtomicU64,
    dead: AtomicU64,
    unexpected: AtomicU64,
}

impl Modules {
    fn emitted(&self) -> MutexGuard<'_, Vec<Emitted>> {
        self.emitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self, cx: &InCallback<'_>, module: ModuleId, assembly: AssemblyId) {
        if cx.module_info(module).is_ok_and(|info| info.flags.contains(sys::COR_PRF_MODULE_DYNAMIC)) {
            self.emitted().push(Emitted { assembly, module, class: None });
        }
    }

    fn loaded(&self, cx: &InCallback<'_>, class: ClassId) {
        let Ok(info) = cx.class_info(class) else { return };
        if let Some(emitted) = self.emitted().iter_mut().find(|it| (it.module, CLASS) == (info.module, info.token)) {
            emitted.class = Some(class);
        }
    }

    /// Asks about each that is `it`.
    fn ask(&self, cx: &InCallback<'_>, it: impl Fn(&Emitted) -> bool) {
        let them: Vec<_> = self.emitted().extract_if(.., |emitted| it(emitted)).collect();
        for Emitted { module, class, .. } in them {
            let Some(class) = class else { continue };
            self.count(cx.il_function_body(module, METHOD));
            self.count(cx.rva_static_address(class, FIELD));
        }
    }

    fn count<T>(&self, answer: Result<T>) {
        let count = match answer {
            Ok(_) => &self.alive,
            Err(error) if error.kind() == ErrorKind::Gone => &self.dead,
            Err(_) => &self.unexpected,
        };
        count.fetch_add(1, Relaxed);
    }

    fn tell(&self) {
        let [alive, dead, unexpected] = [&self.alive, &self.dead, &self.unexpected].map(|count| count.load(Relaxed));
        eprintln!("emitted: alive={alive} dead={dead} unexpected={unexpected}");
    }
}

/// Asks when an assembly begins to unload.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0311", no_export)]
struct InTime(Modules);

#[callbacks]
impl Callbacks for InTime {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self::default())
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, module: ModuleId, assembly: AssemblyId) {
        self.0.attached(cx, module, assembly);
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        self.0.loaded(cx, class);
    }

    fn assembly_unload_started(&self, cx: &mut InCallback<'_>, assembly: AssemblyId) {
        self.0.ask(cx, |it| it.assembly == assembly);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.tell();
    }
}

/// Asks when a module begins to unload, and does not hear of assemblies.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0312", no_export)]
struct TooLate(Modules);

#[callbacks]
impl Callbacks for TooLate {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self::default())
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, module: ModuleId, assembly: AssemblyId) {
        self.0.attached(cx, module, assembly);
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        self.0.loaded(cx, class);
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        self.0.ask(cx, |it| it.module == module);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.tell();
    }
}

corprof::export!(InTime, TooLate);
