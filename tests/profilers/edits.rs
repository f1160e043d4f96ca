//! Edits methods when they are compiled, or by ReJIT: for `live/edits.rs`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use corprof::args::FunctionControl;
use corprof::edit::{CallCounter, CheckedBody, EditError, MethodEdit};
use corprof::id::ReJitId;
use corprof::metadata::signature::{Primitive, Type};
use corprof::metadata::{MethodDef, Token};
use corprof::prelude::*;
use corprof_il::Opcode;

static CALLS: CallCounter = CallCounter::new();

/// The name of a method of the program, without its namespace and arguments; none for others.
fn own_name(cx: &InNoGc<'_>, function: FunctionId) -> Option<String> {
    let name = cx.names().function(function);
    let name = name.as_str().split('(').next().unwrap_or_default();
    let (class, name) = name.rsplit_once('.')?;
    let is_own = class == "Edits" || class.starts_with("Box") || class.starts_with("BuiltType");
    is_own.then(|| name.to_owned())
}

/// Makes the method that returns a number return the number of calls instead.
fn returns_calls(edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
    let local = edit.add_local(Type::Primitive(Primitive::Int64))?.number();
    let address = std::ptr::from_ref(&CALLS).addr() as i64;
    // SAFETY: the counter is a number of eight bytes that is never freed; what is returned is a number as before.
    let body = unsafe { edit.body_mut() };
    let ret = body.iter().filter(|(_, insn)| insn.opcode() == Opcode::Ret).map(|(id, _)| id).last().unwrap();
    let code = body.before(ret)?.op(Opcode::Pop)?.ldc_i8(address).op(Opcode::Conv_U)?.op(Opcode::Ldind_I8)?;
    code.stloc(local).ldloc(local);
    Ok(())
}

/// What is done to a method of the program; nothing for most.
fn change(name: &str, edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
    match name {
        "Greet" => {
            let count = edit.replace_strings("hello", "goodbye")? + edit.replace_strings("hello ", "goodbye ")?;
            assert_eq!(count, 1);
            // Asked for again, it is the same row.
            assert_eq!(edit.string("goodbye")?, edit.string("goodbye")?);
            Ok(())
        }
        "Loop" => edit.count_calls(&CALLS),
        "Seen" => returns_calls(edit),
        "Unsound" => {
            // SAFETY: the verifier refuses it.
            let body = unsafe { edit.body_mut() };
            let last = body.last().unwrap();
            body.before(last)?.op(Opcode::Conv_I4)?.op(Opcode::Add)?;
            Ok(())
        }
        "UnsoundOfAny" => {
            // SAFETY: the verifier refuses it.
            let body = unsafe { edit.body_mut() };
            let last = body.last().unwrap();
            body.before(last)?.op(Opcode::Pop)?.op(Opcode::Ldnull)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_changed(name: &str) -> bool {
    ["Greet", "Loop", "Seen", "Unsound", "UnsoundOfAny", "BuiltMethod"].contains(&name)
}

/// Edits methods when they are compiled.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2A01", no_export)]
struct WhenCompiled;

/// Edits the method by which the runtime makes explicit tail calls.
fn edit_tail_calls(cx: &mut InCallback<'_>, core_library: ModuleId) -> Result<(), EditError> {
    let class = "System.Runtime.CompilerServices.RuntimeHelpers";
    let method = {
        let metadata = cx.metadata(core_library)?;
        let class = metadata.find_type_def(class, None)?.unwrap();
        metadata.methods_named(class, "DispatchTailCalls")?[0]
    };
    cx.edit_method(core_library, method, |edit| edit.count_calls(&CALLS)).map(drop)
}

#[callbacks]
impl Callbacks for WhenCompiled {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if cx.names().module(module) == "System.Private.CoreLib.dll"
            && let Err(error) = edit_tail_calls(cx, module)
        {
            eprintln!("edits| tail calls: {error}");
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Some(name) = own_name(cx, function).filter(|name| is_changed(name)) else { return };
        match cx.edit_once(function, |edit| change(&name, edit)) {
            Ok(is_edited) => eprintln!("edits| {name}: {is_edited}"),
            Err(error) => eprintln!("edits| {name}: {:?}: {error}", error.breaches().first().map(|error| error.rule)),
        }
    }

    fn dynamic_method_jit_compilation_started(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _is_safe_to_block: bool,
        _il: &[u8],
    ) {
        if let Err(error) = cx.edit_once(function, |edit| edit.count_calls(&CALLS)) {
            eprintln!("edits| dynamic: {error}");
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("edits| {} calls", CALLS.get());
    }
}

/// Redirects the calls in `Calls.Main`, and everything to everything else.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1221", no_export)]
struct Redirects;

#[callbacks]
impl Callbacks for Redirects {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if !cx.names().function(function).starts_with("Calls.Main(") {
            return;
        }
        let edited = cx.edit_once(function, |edit| {
            let known = edit.metadata().find_type_def("Known", None)?.unwrap();
            let methods = edit.metadata().methods(known)?;
            let named = |name: &str| edit.metadata().methods_named(known, name).unwrap()[0];
            let fib = named("Fib");
            let deep = named("Deep");
            let filter = named("Filter");
            let mut refused = 0;
            // SAFETY: `Fib` and `Deep` take and return a number, and any number will do.
            let mut redirect = |from: Token, to: Token| unsafe { edit.redirect(from, to) };
            // Nothing of this changes a call: the body makes none to `Filter`, or the signatures differ.
            for (from, to) in [(fib, filter), (filter, deep), (MethodDef::NIL, deep), (fib, MethodDef::NIL)] {
                refused += u32::from(redirect(from.into(), to.into()).is_err());
            }
            for table in 0..64_u32 {
                for row in [0, 1, 0xFF_FFFF] {
                    let nonsense = Token::from_raw(table << 24 | row);
                    refused += u32::from(redirect(fib.into(), nonsense).is_err());
                }
            }
            for from in &methods {
                for to in methods.iter().filter(|to| *to != from) {
                    let is_known = [*from, *to].iter().all(|method| [fib, deep].contains(method));
                    if !is_known && ![fib, deep].contains(from) {
                        refused += u32::from(redirect((*from).into(), (*to).into()).is_err());
                    }
                }
            }
            eprintln!("edits| refused={refused} redirected={}", redirect(fib.into(), deep.into())?);
            Ok(())
        });
        edited.unwrap();
    }
}

#[derive(Default)]
struct State {
    methods: HashMap<String, (ModuleId, MethodDef)>,
    edited: HashMap<(ModuleId, MethodDef), CheckedBody>,
}

/// Edits methods by ReJIT, on its own thread.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2A02", no_export)]
struct ByReJit {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl ByReJit {
    fn edit(cx: &mut ProfilerThread<'_>, shared: &Mutex<State>) {
        let all: Vec<_> = shared.lock().unwrap().methods.clone().into_iter().collect();
        let class = all[0].1.0;
        let mut wanted = Vec::new();
        // Those that are compiled by now, and those that will be.
        let other = {
            let metadata = cx.metadata(class).unwrap();
            let edits = metadata.find_type_def("Edits", None).unwrap().unwrap();
            let methods = metadata.methods(edits).unwrap().into_iter();
            methods.map(|method| (metadata.method(method).unwrap().name, method)).collect::<Vec<_>>()
        };
        for (name, method) in other.into_iter().filter(|(name, _)| is_changed(name)) {
            match cx.edit_method(class, method, |edit| change(&name, edit)) {
                Ok(body) => {
                    shared.lock().unwrap().edited.insert((class, method), body);
                    wanted.push((class, method));
                }
                Err(error) => eprintln!("edits| {name}: {:?}", error.breaches().first().map(|error| error.rule)),
            }
        }
        eprintln!("edits| {} requested: {:?}", wanted.len(), cx.request_rejit(&wanted));
    }
}

#[callbacks]
impl Callbacks for ByReJit {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let shared = Arc::clone(&profiler.shared);
        cx.spawn_profiler_thread("edits", move |cx| {
            while !cx.is_stopping() {
                let state = shared.0.lock().unwrap();
                let is_asked = |state: &mut State| !state.methods.contains_key("AskForEdits");
                let (state, _) = shared.1.wait_timeout_while(state, Duration::from_millis(20), is_asked).unwrap();
                if state.methods.contains_key("AskForEdits") {
                    drop(state);
                    return Self::edit(cx, &shared.0);
                }
            }
        })?;
        Ok(profiler)
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if let Some(name) = own_name(cx, function) {
            let info = cx.function_info(function).unwrap();
            self.shared.0.lock().unwrap().methods.insert(name, (info.module, info.token));
            self.shared.1.notify_all();
        }
    }

    fn get_rejit_parameters(
        &self,
        _cx: &mut InCallback<'_>,
        module: ModuleId,
        method: MethodDef,
        control: FunctionControl<'_>,
    ) {
        let (own, others): (Vec<_>, Vec<_>) = {
            let state = self.shared.0.lock().unwrap();
            state.edited.values().cloned().partition(|body| (body.module(), body.method()) == (module, method))
        };
        for other in others {
            let refused = control.set_checked_body(&other).unwrap_err();
            assert!(refused.to_string().contains("made for another method"), "{refused}");
        }
        eprintln!("edits| given: {:?}", control.set_checked_body(&own[0]));
    }

    fn rejit_compilation_finished(
        &self,
        _cx: &mut InCallback<'_>,
        _function: FunctionId,
        _rejit: ReJitId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if let Err(error) = status {
            eprintln!("edits| not compiled: {error}");
        }
    }
}

corprof::export!(WhenCompiled, ByReJit, Redirects);
