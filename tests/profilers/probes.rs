//! Probes in methods of all kinds: for `live/probes.rs`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how it fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use corprof::edit::{CallCounter, EditError, InProbe, MethodEdit, Probe, ProbeKinds};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue, Value};

/// The full name of a method without its arguments, if it is one of the program's own.
fn own_name(cx: &InNoGc<'_>, function: FunctionId) -> Option<String> {
    let name = cx.names().function(function);
    let name = name.as_str().split('(').next()?;
    let (class, _) = name.rsplit_once('.')?;
    let class = class.trim_end_matches('.').split(['`', '<', '+']).next()?;
    let own = ["Probes", "Pair", "Cell", "Node", "ProbesModern", "Window", "Square", "IShape", "Point", "AsyncProbes"];
    own.contains(&class).then(|| name.to_owned())
}

/// Writes down what it sees.
struct Writes {
    name: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Writes {
    fn line(&self, text: &str) {
        self.lines.lock().unwrap().push(format!("{} {text}", self.name));
    }
}

/// A value as text; by-refs with what they lead to, structs with their fields.
fn text(value: Value<'_>) -> String {
    match value {
        Value::ByRef(place) => format!("&{}", text(place.value())),
        Value::Struct(of) => {
            let fields: Vec<_> = of.fields().map(|field| text(field.value())).collect();
            format!("{{{}}}", fields.join(" "))
        }
        Value::Object(None) => "null".to_owned(),
        Value::Object(Some(_)) => "object".to_owned(),
        Value::Enum(of) => format!("enum {}", text(of.value())),
        Value::Pointer(_) => "pointer".to_owned(),
        Value::Unreadable(why) => format!("?{}", format!("{why:?}").split('(').next().unwrap_or_default()),
        other => other.to_string(),
    }
}

impl Probe for Writes {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        let this = args.this().map(|this| format!("{}.", text(this))).unwrap_or_default();
        let all: Vec<_> = args.iter().map(text).collect();
        self.line(&format!("{this}({})", all.join(", ")));
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        self.line(&format!("= {}", result.get().map_or("void".to_owned(), text)));
    }

    fn exception(&self, _cx: &InProbe<'_>, exception: Option<ObjectId<'_>>) {
        self.line(if exception.is_some() { "throws" } else { "throws null" });
    }

    fn unwound(&self, _cx: &InProbe<'_>) {
        self.line("unwound");
    }
}

/// Writes what each method of the program receives and returns.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B01", no_export)]
struct WritesAll {
    lines: Arc<Mutex<Vec<String>>>,
}

#[callbacks]
impl Callbacks for WritesAll {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Some(name) = own_name(cx, function) else { return };
        let probe = Writes { name: name.clone(), lines: self.lines.clone() };
        if let Err(error) = cx.edit_once(function, |edit| edit.probe(probe)) {
            eprintln!("probes| {name}: {error}");
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        for line in self.lines.lock().unwrap().iter() {
            eprintln!("probes| {line}");
        }
    }
}

/// The same without exceptions.
struct WritesEnds(Writes);

impl Probe for WritesEnds {
    const KINDS: ProbeKinds =
        ProbeKinds::ENTER.union(ProbeKinds::ARGUMENTS).union(ProbeKinds::LEAVE).union(ProbeKinds::RESULT);

    fn enter(&self, cx: &InProbe<'_>, args: &Arguments<'_>) {
        self.0.enter(cx, args);
    }

    fn leave(&self, cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        self.0.leave(cx, result);
    }
}

static CALLS: CallCounter = CallCounter::new();

/// Puts a counter and three probes into each method of the program: without exceptions, with all, and without again.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B05", no_export)]
struct WritesThrice {
    lines: Arc<Mutex<Vec<String>>>,
}

#[callbacks]
impl Callbacks for WritesThrice {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Some(name) = own_name(cx, function) else { return };
        let probe = |place: &str| Writes { name: format!("{place} {name}"), lines: self.lines.clone() };
        let edited = cx.edit_once(function, |edit| {
            edit.count_calls(&CALLS)?;
            edit.probe(WritesEnds(probe("inner")))?;
            edit.probe(probe("middle"))?;
            edit.probe(Arc::new(WritesEnds(probe("outer"))))
        });
        if let Err(error) = edited {
            eprintln!("probes| {name}: {error}");
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let lines = self.lines.lock().unwrap();
        lines.iter().for_each(|line| eprintln!("probes| {line}"));
        let begun = lines.iter().filter(|line| line.starts_with("outer ") && line.contains('(')).count();
        eprintln!("probes| {} counted, {begun} begun", CALLS.get());
    }
}

/// Compares the arguments of `Check` with each other, and its result.
#[derive(Default)]
struct Compares {
    calls: AtomicU64,
    results: AtomicU64,
    thrown: AtomicU64,
    wrong: AtomicU64,
}

fn string(value: Option<Value<'_>>) -> Option<String> {
    match value? {
        Value::String(Some(text)) => String::from_utf16(text.as_utf16()).ok(),
        _ => None,
    }
}

struct Checks(Arc<Compares>);

impl Probe for Checks {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        self.0.calls.fetch_add(1, Relaxed);
        let Some(Value::Int32(number)) = args.get(0) else {
            self.0.wrong.fetch_add(1, Relaxed);
            return;
        };
        let Some(Value::Struct(pair)) = args.get(2) else {
            self.0.wrong.fetch_add(1, Relaxed);
            return;
        };
        let [x, y] = ["X", "Y"].map(|name| pair.field(name).map(|field| field.value()));
        let is_right = string(args.get(1)) == Some(number.to_string())
            && matches!(x, Some(Value::Int32(x)) if x == number)
            && string(y) == Some(format!("y{number}"));
        self.0.wrong.fetch_add(u64::from(!is_right), Relaxed);
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        self.0.results.fetch_add(1, Relaxed);
        let is_right = string(result.get()).is_some_and(|text| text.starts_with('r'));
        self.0.wrong.fetch_add(u64::from(!is_right), Relaxed);
    }
}

struct SeesThrown(Arc<Compares>);

impl Probe for SeesThrown {
    const KINDS: ProbeKinds = ProbeKinds::EXCEPTION.union(ProbeKinds::UNWOUND);

    fn exception(&self, _cx: &InProbe<'_>, exception: Option<ObjectId<'_>>) {
        self.0.thrown.fetch_add(1, Relaxed);
        // An address that is a string's or nothing's would differ now and then.
        let is_object = exception.is_some_and(|object| object.as_raw().is_multiple_of(8));
        self.0.wrong.fetch_add(u64::from(!is_object), Relaxed);
    }

    fn unwound(&self, _cx: &InProbe<'_>) {
        self.0.results.fetch_add(1, Relaxed);
    }
}

/// Compares values while collections run.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B02", no_export)]
struct ComparesAll {
    seen: Arc<Compares>,
}

#[callbacks]
impl Callbacks for ComparesAll {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let name = own_name(cx, function).unwrap_or_default();
        let seen = self.seen.clone();
        let edit = |edit: &mut MethodEdit<'_>| match name.as_str() {
            "Probes.Check" => edit.probe(Checks(seen)),
            _ => edit.probe(SeesThrown(seen)),
        };
        if ["Probes.Check", "Probes.Throws"].contains(&name.as_str()) {
            cx.edit_once(function, edit).unwrap();
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let seen = [&self.seen.calls, &self.seen.results, &self.seen.thrown, &self.seen.wrong];
        let [calls, results, thrown, wrong] = seen.map(|count| count.load(Relaxed));
        eprintln!("probes| {calls} calls, {results} ends, {thrown} thrown, {wrong} wrong");
    }
}

/// Panics in the third call of a probe.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B03", no_export)]
struct Panics {
    has_panicked: Arc<AtomicBool>,
}

#[callbacks]
impl Callbacks for Panics {
    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        if own_name(cx, function).as_deref() != Some("Probes.Fib") {
            return;
        }
        let calls = AtomicU64::new(0);
        let has_panicked = self.has_panicked.clone();
        let edited = cx.edit_once(function, |edit| {
            edit.probe_entry(move |_, args| {
                if has_panicked.load(Relaxed) {
                    eprintln!("probes| called again");
                }
                if calls.fetch_add(1, Relaxed) == 2 {
                    has_panicked.store(true, Relaxed);
                    panic!("on purpose, with {args}");
                }
            })
        });
        edited.unwrap();
    }
}

/// What a probe of every method sees.
#[derive(Default)]
struct Totals {
    edited: AtomicU64,
    enters: AtomicU64,
    leaves: AtomicU64,
    characters: AtomicU64,
}

struct Formats(Arc<Totals>);

impl Probe for Formats {
    fn enter(&self, _cx: &InProbe<'_>, args: &Arguments<'_>) {
        self.0.enters.fetch_add(1, Relaxed);
        // A few suffice: formatting all takes minutes.
        if self.0.enters.load(Relaxed).is_multiple_of(16) {
            self.0.characters.fetch_add(format!("{:?} {args}", args.this()).len() as u64, Relaxed);
        }
    }

    fn leave(&self, _cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        self.0.leaves.fetch_add(1, Relaxed);
        if self.0.leaves.load(Relaxed).is_multiple_of(16) {
            self.0.characters.fetch_add(result.to_string().len() as u64, Relaxed);
        }
    }

    fn exception(&self, _cx: &InProbe<'_>, exception: Option<ObjectId<'_>>) {
        self.0.characters.fetch_add(u64::from(exception.is_some()), Relaxed);
    }
}

/// Puts a probe into every method that is compiled, the runtime's own libraries included.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B04", no_export)]
struct EveryMethod {
    totals: Arc<Totals>,
    others: Mutex<Vec<String>>,
}

#[callbacks]
impl Callbacks for EveryMethod {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::DISABLE_ALL_NGEN_IMAGES)?;
        Ok(Self::default())
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let probe = Formats(self.totals.clone());
        match cx.edit_once(function, |edit| edit.probe(probe)) {
            Ok(is_edited) => _ = self.totals.edited.fetch_add(u64::from(is_edited), Relaxed),
            Err(EditError::Refused(_)) => {}
            Err(error) => {
                let line = format!("{}: {error}", cx.names().function(function));
                self.others.lock().unwrap().push(line);
            }
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let totals = [&self.totals.edited, &self.totals.enters, &self.totals.leaves, &self.totals.characters];
        let [edited, enters, leaves, characters] = totals.map(|count| count.load(Relaxed));
        eprintln!("probes| edited {edited}, entered {enters}, left {leaves}, {characters} characters");
        for line in self.others.lock().unwrap().iter() {
            eprintln!("probes| not edited: {line}");
        }
    }
}

corprof::export!(WritesAll, WritesThrice, ComparesAll, Panics, EveryMethod);
