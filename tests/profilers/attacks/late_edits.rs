//! Edits a method that runs already, or whose body a compiler has read: its code goes on in code that is compiled
//! later, from where it is.

use std::sync::Mutex;

use corprof::edit::{CallCounter, MethodEdit};
use corprof::metadata::MethodDef;
use corprof::prelude::*;

static CALLS: CallCounter = CallCounter::new();

/// Edits `EditedLate.Loop` in the middle of its first compilation, in the middle of its loop, and when the rest of the
/// loop is compiled.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1269", no_export)]
pub(crate) struct LateEdits {
    /// The method, once its first compilation has begun.
    running: Mutex<Option<FunctionId>>,
}

impl LateEdits {
    fn edit(cx: &mut InCallback<'_>, function: FunctionId, when: &str) {
        match cx.edit_once(function, |edit| edit.count_calls(&CALLS)) {
            Ok(is_set) => eprintln!("late| {when}: {is_set}"),
            Err(error) => eprintln!("late| {when}: refused: {error}"),
        }
        // The same in two steps.
        let Ok(info) = cx.function_info(function) else { return };
        let Ok(body) = cx.edit_method(info.module, info.token, |edit| edit.count_calls(&CALLS)) else { return };
        eprintln!("late| {when}, handed over: {}", if cx.set_checked_body(&body).is_ok() { "set" } else { "refused" });
    }
}

#[callbacks]
impl Callbacks for LateEdits {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = cx.names().function(function).to_string();
        if name.starts_with("EditedLate.Loop") {
            let before = self.running.lock().unwrap().replace(function);
            if before.is_some() {
                Self::edit(cx, function, "compiled again");
            }
        }
        // The loop calls it for the first time.
        if name.starts_with("EditedLate.Called") {
            let running = *self.running.lock().unwrap();
            running.into_iter().for_each(|function| Self::edit(cx, function, "running"));
        }
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        // The compiler asks for the type of a local variable of the loop.
        if &*cx.names().class(class) == "EditedLate+Read" {
            let running = *self.running.lock().unwrap();
            running.into_iter().for_each(|function| Self::edit(cx, function, "being compiled"));
        }
    }
}

/// Edits `EditedLate.Loop` while it is compiled for the first time, and hears of no compilation.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E126A", no_export)]
pub(crate) struct UnheardEdits {
    found: Mutex<Option<(ModuleId, MethodDef)>>,
}

#[callbacks]
impl Callbacks for UnheardEdits {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let find = || {
            let metadata = cx.metadata(module).ok()?;
            let class = metadata.find_type_def("EditedLate", None).ok()??;
            let methods = metadata.methods(class).ok()?;
            methods.into_iter().find(|method| metadata.method(*method).is_ok_and(|method| method.name == "Loop"))
        };
        if let Some(method) = find() {
            *self.found.lock().unwrap() = Some((module, method));
        }
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        if &*cx.names().class(class) != "EditedLate+Read" {
            return;
        }
        let Some((module, method)) = *self.found.lock().unwrap() else { return };
        let words = std::env::var("ATTACKS_UNHEARD").unwrap_or_default();
        if words == "turned on" {
            let _ = cx.add_events(EventMask::MONITOR_JIT_COMPILATION);
        }
        let edit = |edit: &mut MethodEdit<'_>| (0..50).try_for_each(|_| edit.count_calls(&CALLS));
        match cx.edit_method(module, method, edit) {
            Ok(body) => eprintln!("late| unheard: {:?}", cx.set_checked_body(&body)),
            Err(error) => eprintln!("late| unheard: not edited: {error}"),
        }
    }
}
