//! A profiler that keeps every identifier it meets and never stops asking about all of them: for `live/keeps.rs`.

#![forbid(unsafe_code)]

mod kept;

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corprof::prelude::*;

use kept::{Answers, Kept};

/// Makes calls on a thread of its own, beside the application, and in each callback about its arguments.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0301", no_export)]
struct Keeps {
    ids: Arc<Mutex<HashSet<Kept>>>,
    answers: Arc<Answers>,
}

impl Keeps {
    fn keep(&self, ids: impl IntoIterator<Item = Kept>) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }
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

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
        if status.is_ok() {
            self.keep([Kept::Class(class)]);
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

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        // The last moment, at which everything about it can still be asked.
        let alive = cx.module_info(module).is_ok() && cx.metadata(module).and_then(|it| it.type_defs()).is_ok();
        if !alive {
            eprintln!("unexpected: a module is dead when it begins to go");
            self.answers.unexpected.fetch_add(1, Relaxed);
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let ids: Vec<_> = self.ids.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        for &id in &ids {
            self.answers.ask(cx, id);
        }
        let [assemblies, modules, classes, functions, threads] = &self.answers.dead;
        eprintln!(
            "kept={} good={} assemblies={} modules={} classes={} functions={} threads={} unexpected={}",
            ids.len(),
            self.answers.good.load(Relaxed),
            assemblies.load(Relaxed),
            modules.load(Relaxed),
            classes.load(Relaxed),
            functions.load(Relaxed),
            threads.load(Relaxed),
            self.answers.unexpected.load(Relaxed),
        );
    }
}

corprof::export!(Keeps);
