//! Adds all rows that safe code may add, from everywhere and at any time, while the application reads the same
//! metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::id::Inert;
use corprof::metadata::{MetadataImport, Token};
use corprof::prelude::*;
use fastrand::Rng;

use super::made_up::define_nonsense;

/// So many rows are added in all: each is found by the next ones, so they become dearer.
const MOST: u64 = 100_000;

#[derive(Default)]
struct Shared {
    reads: AtomicBool,
    emitted: AtomicU64,
    refused: AtomicU64,
}

static ALL: AtomicU64 = AtomicU64::new(0);

fn read(metadata: &MetadataImport<'_>) -> Result<()> {
    for class in metadata.type_defs()?.into_iter().take(20) {
        let _ = metadata.type_def(class);
        for method in metadata.methods(class)? {
            let _ = metadata.method(method);
        }
    }
    metadata.type_refs()?;
    metadata.assembly_refs()?;
    metadata.module_name().map(drop)
}

fn emit(cx: &InNoGc<'_>, module: ModuleId, reads: bool) -> Result<u64> {
    let mut random = Rng::new();
    let emit = cx.metadata_emit(module)?;
    let mut defined = define_nonsense(&mut random, &emit);
    let number = ALL.fetch_add(1, Relaxed);
    let scope = Token::from_raw(0x2300_0001);
    defined += u64::from(emit.define_user_string(&format!("emitted {number}")).is_ok());
    defined += u64::from(emit.define_module_ref(&format!("emitted{number}")).is_ok());
    let class = emit.define_type_ref(scope, &format!("Emitted{number}"));
    defined += u64::from(class.is_ok());
    if let Ok(class) = class {
        let member = emit.define_member_ref(class, &format!("Does{number}"), &[0x00, 0x01, 0x01, 0x0e]);
        defined += u64::from(member.is_ok());
    }
    if reads {
        read(&emit.import()?)?;
    }
    Ok(defined)
}

impl Shared {
    fn add_to(&self, cx: &InNoGc<'_>, module: ModuleId) {
        if self.emitted.load(Relaxed) > MOST {
            return;
        }
        match emit(cx, module, self.reads.load(Relaxed)) {
            Ok(defined) => self.emitted.fetch_add(defined, Relaxed),
            Err(_) => self.refused.fetch_add(1, Relaxed),
        };
    }

    fn add_to_some(&self, cx: &mut InCallback<'_>) {
        let Ok(modules) = cx.enum_modules() else { return };
        if let Some(module) = (!modules.is_empty()).then(|| modules[fastrand::usize(0..modules.len())]) {
            self.add_to(cx, module);
        }
    }
}

/// Emits, and with `import` in `ATTACKS_EMITS` reads what it has emitted as well.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1281", no_export)]
pub(crate) struct Emits(Arc<Shared>);

#[callbacks]
impl Callbacks for Emits {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let reads = std::env::var("ATTACKS_EMITS").is_ok_and(|what| what == "import");
        profiler.0.reads.store(reads, Relaxed);
        for _ in 0..2 {
            let shared = Arc::clone(&profiler.0);
            cx.spawn_profiler_thread("emits", move |cx| {
                while cx.wait(Duration::from_millis(1)).is_continue() {
                    shared.add_to_some(cx);
                }
            })?;
        }
        Ok(profiler)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        self.0.add_to(cx, module);
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        if let Ok(info) = cx.class_info(class) {
            self.0.add_to(cx, info.module);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if let Ok(info) = cx.function_info(function) {
            self.0.add_to(cx, info.module);
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        if let Ok(info) = cx.class_of(thrown).and_then(|class| cx.class_info(class)) {
            self.0.add_to(cx, info.module);
        }
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        self.0.add_to(cx, module);
    }

    fn module_unload_finished(&self, cx: &mut InCallback<'_>, _module: Inert<ModuleId>, _status: Result<()>) {
        self.0.add_to_some(cx);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [emitted, refused] = [&self.0.emitted, &self.0.refused].map(|count| count.load(Relaxed));
        eprintln!("attacks| emitted={emitted} refused={refused}");
    }
}
