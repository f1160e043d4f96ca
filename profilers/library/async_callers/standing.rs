//! The async callers of threads that stand: for one look at an application in which nothing happens any more.
//!
//! A thread that has resumed a suspended method has frames of its box's `MoveNext` and of the state machine's. The
//! latter has a pointer to the state machine, which is in the box, on its stack. The box is the method's task: what
//! awaits it is in a field. So the chain is read from the objects (`Round::object_chains`). It counts if the box is of
//! the class of the two frames, if its method runs (its state is -1), and if it is the only one of which this is true.
//!
//! Not known are those of threads that run, of state machines that are classes (debug builds), of boxes whose methods
//! were inlined into the thread pool's, and of methods that the runtime suspends itself (runtime async).

use std::collections::HashMap;
use std::fmt::Write as _;

use corprof::object_chains::ChainStart;
use corprof::prelude::*;
use corprof::sampler::{Round, Sample};

use super::Role;
use super::probe::{Core, Machine, Part, is_method};

/// The field of a box with the state machine.
const MACHINE: &str = "StateMachine";
/// The state of a state machine, as C# and Visual Basic name it.
const STATES: [&str; 2] = ["<>1__state", "$State"];
/// The state of a method that runs.
const RUNNING: u32 = u32::MAX;
/// The base class of structs.
const VALUE_TYPE: &str = "System.ValueType";

/// The callers of the threads of a round.
#[derive(Default)]
pub(crate) struct StandingCallers {
    by_thread: HashMap<u32, CallersOfThread>,
    /// The threads in resumed methods whose callers were not found.
    unknown: usize,
    /// The threads in methods that the runtime has resumed.
    by_runtime: usize,
}

/// The callers of one thread.
pub(crate) struct CallersOfThread {
    /// How many of its frames stay.
    pub(crate) physical: usize,
    /// The methods that await these, the innermost first.
    pub(crate) names: Vec<Name>,
}

/// What an object is.
#[derive(Clone)]
enum Hop {
    Method(Machine),
    Other,
}

/// A resumed method on a stack.
struct Resumed<'r> {
    os_id: u32,
    function: FunctionId,
    start: ChainStart<'r>,
}

impl StandingCallers {
    /// Finds them.
    pub(crate) fn find(round: &mut Round<'_, '_>) -> Self {
        let mut callers = Self::default();
        let mut core = None;
        let mut resumed = Vec::new();
        for sample in round.samples() {
            let Some(innermost) = Innermost::of(round.cx(), &sample) else { continue };
            if matches!(innermost, Innermost::Runtime) {
                callers.by_runtime += 1;
                continue;
            }
            callers.unknown += 1;
            let Innermost::Box(place, function) = innermost else { continue };
            if !sample.is_waiting() {
                continue;
            }
            let Some(found) = resumed_of(round.cx(), sample, place, function) else { continue };
            let module = round.cx().function_info(function).ok().map(|info| info.module);
            core = core.or_else(|| Core::find(round.cx(), module?).ok().flatten());
            resumed.push(found);
        }
        let Some(core) = core else { return callers };
        let starts: Vec<ChainStart<'_>> = resumed.iter().map(|resumed| resumed.start).collect();
        let chains = round.object_chains(&starts, |cx, class| match core.part(cx, class) {
            Part::Method(machine, path) => (Hop::Method(machine), field_of(path)),
            Part::Passes(path) => (Hop::Other, field_of(path)),
            Part::Ends(_) => (Hop::Other, None),
        });
        let Ok(chains) = chains else { return callers };
        for (resumed, chain) in resumed.iter().zip(chains) {
            let Some(chain) = chain else { continue };
            let mut objects = chain.objects.iter();
            let Some(Hop::Method(first)) = objects.next() else { continue };
            if !is_method(round.cx(), resumed.function, first) {
                continue;
            }
            let names = objects.filter_map(|hop| match hop {
                Hop::Method(machine) => Some((*machine.name).into()),
                Hop::Other => None,
            });
            let of_thread = CallersOfThread { physical: resumed.start.frame + 1, names: names.collect() };
            callers.by_thread.insert(resumed.os_id, of_thread);
            callers.unknown -= 1;
        }
        callers
    }

    /// Those of a thread, if they are known.
    pub(crate) fn of(&self, os_id: Option<u32>) -> Option<&CallersOfThread> {
        self.by_thread.get(&os_id?)
    }

    /// Lines for the command: how many threads lack them.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        if self.unknown > 0 {
            let _ = writeln!(lines, "callers-unknown {}", self.unknown);
        }
        if self.by_runtime > 0 {
            let _ = writeln!(lines, "callers-by-runtime {}", self.by_runtime);
        }
        lines
    }
}

/// The innermost frame by which a method was resumed.
enum Innermost {
    Box(usize, FunctionId),
    /// The box's methods were inlined into the thread pool's.
    Inlined,
    /// The runtime has resumed a method itself.
    Runtime,
}

impl Innermost {
    fn of(cx: &InNoGc<'_>, sample: &Sample<'_>) -> Option<Self> {
        // A method of .NET 11, without which no method of runtime async is resumed.
        const RESUMES: &str = "System.Runtime.CompilerServices.AsyncHelpers.RuntimeAsyncTask<";
        const RUNS: &str = "System.Threading.ExecutionContext.Run";
        // Mostly inlined into the machine's, or that into this.
        const BY_BOX: &str = ".ExecutionContextCallback(object)";
        let mut is_run = false;
        let mut callee = Role::Other;
        for (place, frame) in sample.frames().iter().enumerate() {
            let Some(function) = frame.function else { continue };
            let name = cx.names().csharp().function(function);
            let role = Role::of(&name);
            if role == Role::Box {
                return Some(Self::Box(place, function));
            }
            // A box calls this, and this the machine.
            if is_run {
                return Some(Self::Inlined);
            }
            is_run = callee == Role::StateMachine && name.starts_with(RUNS);
            if !name.ends_with(BY_BOX) {
                callee = role;
            }
            if name.starts_with(RESUMES) && name.contains(">.DispatchContinuations(") {
                return Some(Self::Runtime);
            }
        }
        None
    }
}

/// The method that the box at this place of a stack has resumed.
fn resumed_of<'r>(cx: &InNoGc<'_>, sample: Sample<'r>, place: usize, of_box: FunctionId) -> Option<Resumed<'r>> {
    let (inner, _) = sample.frames().split_at_checked(place)?;
    let is_machine = |function| Role::of(&cx.names().csharp().function(function)) == Role::StateMachine;
    let frame = inner.iter().rposition(|frame| frame.function.is_some_and(is_machine))?;
    let function = inner.get(frame)?.function?;
    let class = cx.function_info(of_box).ok()?.class?;
    // The class that has the machine may be the base class of that of the method.
    let class = match field(cx, class, &[MACHINE]) {
        Some(_) => class,
        None => cx.class_info(class).ok()?.parent?,
    };
    let machine = *cx.class_info(class).ok()?.type_args.last()?;
    let machine_info = cx.class_info(machine).ok()?;
    let base = cx.names().csharp().class(machine_info.parent?);
    if *base != *VALUE_TYPE {
        return None;
    }
    let offset = field(cx, class, &[MACHINE])?;
    let mark = (offset + field(cx, machine, &STATES)?, RUNNING);
    let start = ChainStart { sample, frame, outermost: place, class, offset, mark };
    Some(Resumed { os_id: sample.thread().os_id?, function, start })
}

/// Where a class has a field of its own with one of these names.
fn field(cx: &InNoGc<'_>, class: ClassId, names: &[&str]) -> Option<usize> {
    let info = cx.class_info(class).ok()?;
    let metadata = cx.metadata(info.module).ok()?;
    let fields = cx.class_layout(class).ok()?.fields;
    let is_it = |name: &str| names.contains(&name);
    let field = fields.iter().find(|place| metadata.field(place.field).is_ok_and(|field| is_it(&field.name)))?;
    Some(field.offset as usize)
}

/// The field that leads on. What is in a struct ends the chain.
fn field_of(path: &'static [&'static str]) -> Option<&'static str> {
    match path {
        [field] => Some(field),
        _ => None,
    }
}
