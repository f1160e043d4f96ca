//! Profilers whose hooks read arguments and results, for `live/values.rs`.

#![allow(clippy::panic, reason = "one of them is to")]

use std::fmt::Write;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use corprof::hooks::{HookValues, HookedFunctions, InSlowHook, Precompiled, StackBoundary};
use corprof::prelude::*;
use corprof::values::ByRef;
use corprof::values::{Arguments, ReturnValue, Value};

/// Whether a function is one of the program's own that are called with known values.
fn is_known(name: &Name) -> bool {
    name.starts_with("Values.") || name.starts_with("Shapes.")
}

/// Writes down every call of these; of an object the class, or only that it is one.
struct Writes {
    has_classes: bool,
}

impl FunctionHooks for Writes {
    type Function = Name;
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Name> {
        let name = cx.names().function(function);
        if is_known(&name) { Hook::Exact(name) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, cx: &InSlowHook<'_>, _thread: &mut (), function: &Name, args: &Arguments<'_>) {
        let mut line = String::new();
        if let Some(this) = args.this() {
            let _ = write!(line, "{} ", self.described(cx, this));
        }
        for (at, value) in args.iter().enumerate() {
            let _ = write!(line, "{}={} ", args.name(at).unwrap_or("?"), self.described(cx, value));
        }
        eprintln!("enter {} {}", short(function), line.trim_end());
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, _thread: &mut (), function: &Name, value: &ReturnValue<'_>) {
        match value.get() {
            Some(value) => eprintln!("leave {} {}", short(function), self.described(cx, value)),
            None => eprintln!("leave {} void", short(function)),
        }
    }
}

/// The name without the parameters.
fn short(name: &str) -> &str {
    name.split('(').next().unwrap_or(name)
}

impl Writes {
    /// A value; of an object its class, as addresses are different each time, and of a variable its contents.
    fn described(&self, cx: &InSlowHook<'_>, value: Value<'_>) -> String {
        match value {
            Value::Object(Some(_)) if !self.has_classes => "(object)".to_owned(),
            Value::Object(Some(object)) => match cx.class_of(object) {
                Ok(class) => format!("({})", cx.names().class(class)),
                Err(error) => format!("({error})"),
            },
            Value::ByRef(by_ref) => format!("ref {}", behind(by_ref)),
            value => value.to_string(),
        }
    }
}

/// The contents of a variable. By the rules first; if these do not suffice, as the string that it is known to be.
fn behind(by_ref: ByRef<'_>) -> String {
    match by_ref.value() {
        Value::Unreadable(corprof::values::Unreadable::ObjectBehindByRef) => {
            // SAFETY: the program calls its methods with variables, and once with the address 0x10, which is of no
            // string.
            format!("unchecked {}", unsafe { by_ref.value_unchecked() })
        }
        value => value.to_string(),
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0201", no_export)]
struct WritesValues;

#[callbacks]
impl Callbacks for WritesValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Writes { has_classes: true }).install()?;
        eprintln!("mask: {:?}", cx.event_mask()?);
        Ok(Self)
    }
}

/// Who calls the hooks, by the variable VALUES_BY: inserted code, or the runtime (none).
fn inserted_by() -> Option<Precompiled> {
    match std::env::var("VALUES_BY").as_deref() {
        Ok("il") => Some(Precompiled::Keep),
        Ok("il-all") => Some(Precompiled::Compile),
        _ => None,
    }
}

/// Prints what has become of the methods.
fn report(cx: &InCallback<'_>, inserted: &OnceLock<HookedFunctions>) {
    let Some(inserted) = inserted.get() else { return };
    eprintln!("hooked={} precompiled={}", inserted.hooked(), inserted.precompiled());
    for left_out in inserted.left_out() {
        eprintln!("left out: {} as {}: {}", left_out.count, cx.names().function(left_out.example), left_out.reason);
    }
}

/// Writes what both ways can, the runtime's and that of inserted code.
#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0205", no_export)]
struct WritesEitherWay(OnceLock<HookedFunctions>);

#[callbacks]
impl Callbacks for WritesEitherWay {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let hooks = Writes { has_classes: false };
        match inserted_by() {
            None => drop(cx.hooks(hooks).install()?),
            Some(precompiled) => {
                let _ = profiler.0.set(cx.hooks(hooks).inserted(precompiled).install()?);
            }
        }
        Ok(profiler)
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        report(cx, &self.0);
    }
}

/// Writes the arguments of all methods of the program `AsyncProbes`, by inserted code, which asks for no ends.
struct WritesBeginnings;

impl FunctionHooks for WritesBeginnings {
    type Function = Name;
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;
    const VALUES: HookValues = HookValues::ARGUMENTS;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Name> {
        let name = cx.names().function(function);
        if name.starts_with("AsyncProbes.") { Hook::Exact(name) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, _cx: &InSlowHook<'_>, _thread: &mut (), function: &Name, args: &Arguments<'_>) {
        eprintln!("begins: {}{args}", short(function));
    }
}

#[derive(Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0208", no_export)]
struct WritesSuspended(HookedFunctions);

#[callbacks]
impl Callbacks for WritesSuspended {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self(cx.hooks(WritesBeginnings).inserted(Precompiled::Keep).install()?))
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        for left_out in self.0.left_out() {
            eprintln!("left out: {}", left_out.reason);
        }
    }
}

/// Tries by inserted code what only the runtime's hooks can.
struct Tries;

impl FunctionHooks for Tries {
    type Function = bool;
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<bool> {
        let name = cx.names().function(function);
        if is_known(&name) { Hook::Exact(name.starts_with("Values.References.Object(")) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, cx: &InSlowHook<'_>, _thread: &mut (), is_first: &bool, args: &Arguments<'_>) {
        if let (true, Some(Value::Object(Some(object)))) = (*is_first, args.get(0)) {
            let codes = [
                cx.class_of(object).err(),
                cx.object_size(object).err(),
                cx.current_thread().err(),
                cx.walk_own_stack(|_| ControlFlow::Continue(())).err(),
                cx.frame_info().err(),
            ];
            let codes =
                codes.map(|error| error.map_or_else(|| "answered".to_owned(), |error| error.code().to_string()));
            eprintln!("tried: {}", codes.join(", "));
            eprintln!("name: {}", cx.names().function(cx.function()));
        }
    }

    fn leave_with_value(&self, _cx: &InSlowHook<'_>, _thread: &mut (), is_first: &bool, value: &ReturnValue<'_>) {
        if *is_first {
            eprintln!("not asked for: {value}");
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0206", no_export)]
struct TriesByIl;

#[callbacks]
impl Callbacks for TriesByIl {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        cx.hooks(Tries).inserted(Precompiled::Keep).install()?;
        Ok(Self)
    }
}

/// Reads all values of all functions, and counts.
#[derive(Default)]
struct Counts {
    values: AtomicU64,
    unreadable: AtomicU64,
    entered: AtomicU64,
    left: AtomicU64,
    tail_called: AtomicU64,
    unwound: AtomicU64,
}

impl Counts {
    fn read(&self, value: Value<'_>) {
        self.values.fetch_add(1, SeqCst);
        if let Value::Unreadable(_) = value {
            self.unreadable.fetch_add(1, SeqCst);
        }
        black_box(value.to_string());
    }

    fn print(&self) {
        let [values, unreadable, entered, left, tail, unwound] =
            [&self.values, &self.unreadable, &self.entered, &self.left, &self.tail_called, &self.unwound]
                .map(|count| count.load(SeqCst));
        eprintln!(
            "values={values} unreadable={unreadable} entered={entered} left={left} tail={tail} unwound={unwound}"
        );
    }
}

impl FunctionHooks for Counts {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::all();

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, _cx: &InSlowHook<'_>, _thread: &mut (), (): &(), args: &Arguments<'_>) {
        self.entered.fetch_add(1, SeqCst);
        args.this().into_iter().chain(args.iter()).for_each(|value| self.read(value));
    }

    fn leave_with_value(&self, _cx: &InSlowHook<'_>, _thread: &mut (), (): &(), value: &ReturnValue<'_>) {
        self.left.fetch_add(1, SeqCst);
        value.get().into_iter().for_each(|value| self.read(value));
    }

    fn tailcall_with_frame(&self, cx: &InSlowHook<'_>, _thread: &mut (), (): &()) {
        self.tail_called.fetch_add(1, SeqCst);
        if cx.frame_info().map(|frame| frame.function()) != Ok(cx.function()) {
            eprintln!("no frame info of a tail call: {:?}", cx.frame_info());
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0202", no_export)]
struct ReadsValues(Arc<Counts>);

#[callbacks]
impl Callbacks for ReadsValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        cx.hooks(profiler.0.clone()).install()?;
        Ok(profiler)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        self.0.print();
    }
}

/// The same without frame info, as inserted code has none, and told of exceptions.
struct WithoutFrames(Arc<Counts>);

impl FunctionHooks for WithoutFrames {
    type Function = ();
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS.union(HookValues::RESULT);
    const UNWINDS: bool = true;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Exact(())
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, cx: &InSlowHook<'_>, thread: &mut (), function: &(), args: &Arguments<'_>) {
        self.0.enter_with_args(cx, thread, function, args);
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, thread: &mut (), function: &(), value: &ReturnValue<'_>) {
        self.0.leave_with_value(cx, thread, function, value);
    }

    fn tailcall_with_frame(&self, _cx: &InSlowHook<'_>, _thread: &mut (), (): &()) {
        self.0.tail_called.fetch_add(1, SeqCst);
    }

    fn unwound(&self, _thread: &mut (), _boundary: StackBoundary) {
        self.0.unwound.fetch_add(1, SeqCst);
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0207", no_export)]
struct ReadsValuesByIl(Arc<Counts>, OnceLock<HookedFunctions>);

#[callbacks]
impl Callbacks for ReadsValuesByIl {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let precompiled = inserted_by().unwrap_or(Precompiled::Keep);
        let _ = profiler.1.set(cx.hooks(WithoutFrames(profiler.0.clone())).inserted(precompiled).install()?);
        Ok(profiler)
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.0.print();
        report(cx, &self.1);
    }
}

/// Prints the facts that a slow hook can find: the caller, by the stack and by its pointer, and the type arguments.
struct Looks;

impl Looks {
    fn look(hook: &str, cx: &InSlowHook<'_>, function: &Name) {
        let mut names = Vec::new();
        let mut pointers = Vec::new();
        let walk = cx.walk_own_stack_with_registers(|frame| {
            if let Some(function) = frame.function().filter(|&function| !cx.is_runtime_entry(function)) {
                names.push(short(&cx.names().function(function)).to_owned());
                pointers.extend(frame.registers().map(|registers| registers.stack_pointer() as usize));
            }
            ControlFlow::Continue(())
        });
        let is_callers = pointers.get(1) == Some(&cx.stack_pointer());
        eprintln!("{hook} {function}: {walk:?} {} callers={is_callers}", names.join(" < "));
        let info = cx.frame_info().and_then(|frame| cx.function_info_in_frame(frame));
        let class = |class: &ClassId| cx.names().class(*class).to_string();
        match info {
            Ok(info) => eprintln!(
                "{hook} {function}: class={} arguments={}",
                info.class.as_ref().map_or_else(|| "none".to_owned(), class),
                info.type_args.iter().map(class).collect::<Vec<_>>().join(",")
            ),
            Err(error) => eprintln!("{hook} {function}: {error}"),
        }
    }
}

impl FunctionHooks for Looks {
    type Function = Name;
    type Thread = ();
    const VALUES: HookValues = HookValues::FRAME;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<Name> {
        let name = cx.names().function(function);
        if is_known(&name) { Hook::Inlinable(name) } else { Hook::No }
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, cx: &InSlowHook<'_>, _thread: &mut (), function: &Name, args: &Arguments<'_>) {
        Self::look("enter", cx, function);
        if function.contains("Add(") {
            eprintln!("not asked for: {args}");
        }
    }

    fn leave_with_value(&self, cx: &InSlowHook<'_>, _thread: &mut (), function: &Name, value: &ReturnValue<'_>) {
        Self::look("leave", cx, function);
        if function.contains("Add(") {
            eprintln!("not asked for: {value}");
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0203", no_export)]
struct LooksAround;

#[callbacks]
impl Callbacks for LooksAround {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        cx.hooks(Looks).install()?;
        Ok(Self)
    }
}

/// Panics when one of the methods is entered.
struct Panics;

impl FunctionHooks for Panics {
    type Function = bool;
    type Thread = ();
    const VALUES: HookValues = HookValues::ARGUMENTS;

    fn select(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<bool> {
        Hook::Inlinable(cx.names().function(function).contains("Structs.Several"))
    }

    fn thread_started(&self) {}

    fn enter_with_args(&self, _cx: &InSlowHook<'_>, _thread: &mut (), function: &bool, _args: &Arguments<'_>) {
        if *function {
            panic!("with values");
        }
    }
}

#[derive(Default, Profiler)]
#[profiler(clsid = "3D9A0E10-6C41-4B7E-9E5A-0B6D5C1F0204", no_export)]
struct PanicsWithValues;

#[callbacks]
impl Callbacks for PanicsWithValues {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.hooks(Panics).install()?;
        Ok(Self)
    }
}

corprof::export!(
    WritesValues,
    ReadsValues,
    LooksAround,
    PanicsWithValues,
    WritesEitherWay,
    TriesByIl,
    ReadsValuesByIl,
    WritesSuspended
);
