//! Has methods compiled anew from other bodies, and reverts them: for `live/rejit.rs`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use corprof::args::FunctionControl;
use corprof::id::ReJitId;
use corprof::metadata::MethodDef;
use corprof::prelude::*;

/// Messages from the application's threads to the profiler's own: the methods, and the requests.
#[derive(Default)]
struct Wishes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    methods: HashMap<String, (ModuleId, MethodDef)>,
    wishes: Vec<String>,
    /// The function Answer.
    answer: Option<FunctionId>,
}

impl Wishes {
    fn method(&self, name: &str) -> (ModuleId, MethodDef) {
        self.state.lock().unwrap().methods[name]
    }

    fn answer(&self) -> Option<FunctionId> {
        self.state.lock().unwrap().answer
    }

    /// Notes a method of the application; one that asks for something is a wish.
    fn note(&self, name: &str, method: (ModuleId, MethodDef)) {
        let mut state = self.state.lock().unwrap();
        state.methods.insert(name.to_owned(), method);
        if name.starts_with("AskFor") {
            state.wishes.push(name.to_owned());
            self.changed.notify_all();
        }
    }

    /// The next wish, in their order; nothing yet if it takes longer than a moment.
    fn next(&self) -> Option<String> {
        let state = self.state.lock().unwrap();
        let (mut state, _) =
            self.changed.wait_timeout_while(state, Duration::from_millis(20), |state| state.wishes.is_empty()).unwrap();
        (!state.wishes.is_empty()).then(|| state.wishes.remove(0))
    }
}

/// `return NUMBER;`: a header of one byte, `ldc.i4.s`, `ret`.
fn returns(number: u8) -> [u8; 4] {
    [3 << 2 | 0b10, 0x1F, number, 0x2A]
}

fn fulfil(cx: &mut ProfilerThread<'_>, wishes: &Wishes, wish: &str) {
    let [answer, inlined, caller, never] =
        ["Answer", "Inlined", "Caller", "NeverAsked"].map(|name| wishes.method(name));
    let no_method = (answer.0, MethodDef::from_raw(0x06FF_FFFF));
    match wish {
        "AskForAnswer" => {
            eprintln!("rejit| none: {}", cx.request_rejit(&[]).unwrap_err());
            eprintln!("rejit| answer: {:?}", cx.request_rejit(&[answer, no_method]));
        }
        // Answer gets its second body, as its first is in effect by now.
        "AskForInlined" => eprintln!("rejit| inlined: {:?}", cx.request_rejit(&[inlined, answer])),
        "AskForInliners" => {
            eprintln!("rejit| inliners: {:?}", cx.request_rejit_with_inliners(&[inlined], false));
        }
        "AskForRevert" => {
            eprintln!("rejit| revert none: {}", cx.request_revert(&[]).unwrap_err());
            eprintln!("rejit| revert no method: {:?}", cx.request_revert(&[no_method]));
            let bodies =
                |cx: &mut ProfilerThread<'_>| wishes.answer().map(|answer| cx.rejit_ids(answer).unwrap().len());
            let before = bodies(cx);
            eprintln!("rejit| revert: {:?}", cx.request_revert(&[answer, inlined, caller, never]));
            eprintln!("rejit| bodies of Answer: {before:?}, then {:?}", bodies(cx));
        }
        other => eprintln!("rejit| unknown wish {other}"),
    }
}

/// The name of a method of the program; none for others.
fn own_name(cx: &InNoGc<'_>, function: FunctionId) -> Option<String> {
    let name = cx.names().function(function);
    let name = name.as_str().strip_prefix("ReJit.")?;
    Some(name.split_once('(').map_or(name, |(name, _)| name).to_owned())
}

/// Gives two methods a body that returns one more, at the wish of the program, and takes it away again.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2001", no_export)]
struct Replaces {
    wishes: Arc<Wishes>,
}

#[callbacks]
impl Callbacks for Replaces {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let wishes = Arc::clone(&profiler.wishes);
        cx.spawn_profiler_thread("requests", move |cx| {
            while !cx.is_stopping() {
                if let Some(wish) = wishes.next() {
                    fulfil(cx, &wishes, &wish);
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
            self.wishes.note(&name, (info.module, info.token));
            if name == "Answer" {
                self.wishes.state.lock().unwrap().answer = Some(function);
            }
        }
    }

    fn get_rejit_parameters(
        &self,
        _cx: &mut InCallback<'_>,
        module: ModuleId,
        method: MethodDef,
        control: FunctionControl<'_>,
    ) {
        let body = match (module, method) {
            asked if asked == self.wishes.method("Answer") => returns(42),
            asked if asked == self.wishes.method("Inlined") => returns(52),
            _ => {
                eprintln!("rejit| parameters of another method");
                return;
            }
        };
        // SAFETY: both methods take nothing and return a number, as the body does.
        unsafe { control.set_il_function_body(&body) }.unwrap();
    }

    fn rejit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        rejit: ReJitId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        let name = own_name(cx, function).unwrap();
        eprintln!("rejit| finished {name}: {status:?} {}", cx.rejit_ids(function).unwrap().contains(&rejit));
    }

    fn rejit_error(
        &self,
        _cx: &mut InCallback<'_>,
        _module: ModuleId,
        method: MethodDef,
        function: Option<FunctionId>,
        status: Result<()>,
    ) {
        eprintln!("rejit| error {:#x}: {function:?} {}", method.as_raw(), status.unwrap_err());
    }
}

/// Does not implement `get_rejit_parameters`, so that `ENABLE_REJIT` is off.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2002", no_export)]
struct LacksFlag;

#[callbacks]
impl Callbacks for LacksFlag {
    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if own_name(cx, function).as_deref() != Some("AskForAnswer") {
            return;
        }
        let info = cx.function_info(function).unwrap();
        let (tell, told) = mpsc::channel();
        let requests = cx.spawn_profiler_thread("requests", move |cx| {
            let methods = [(info.module, info.token)];
            let rejit = cx.request_rejit(&methods).unwrap_err();
            let inliners = cx.request_rejit_with_inliners(&methods, true).unwrap_err();
            let revert = cx.request_revert(&methods).unwrap_err();
            tell.send([rejit, inliners, revert]).unwrap();
        });
        requests.unwrap();
        // The requests are refused at once, so the thread does not need this one to go on.
        for error in told.recv_timeout(Duration::from_secs(20)).unwrap() {
            eprintln!("rejit| refused {error}");
        }
    }
}

corprof::export!(Replaces, LacksFlag);
