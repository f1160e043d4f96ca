//! Suspensions of the state machines that compilers make of async methods.
//!
//! `MoveNext` of a machine returns when it has to wait, and is called again when it goes on. Before it returns so, its
//! builder takes the box that holds the machine in the meantime ([`Part::TakesBox`]); and who calls it to go on is that
//! box ([`Part::Continues`]), perhaps by a tail call. The runtime's compiler must not put either into its caller
//! ([`Part::is_to_stay_apart`]): a machine that goes on would look like a new one.

use std::cell::Cell;

use crate::context::InCallback;
use crate::error::Result;
use crate::id::{ClassId, FunctionId};
use crate::metadata::{MetadataImport, MethodProps, Table, TypeDef, TypeRef, is_core_library};

/// What state machines implement.
const MACHINE: &str = "System.Runtime.CompilerServices.IAsyncStateMachine";

/// The builders with boxes: the others, of `Task`, `ValueTask`, `async void` and iterators, use these.
const BUILDERS: [&str; 2] = [
    "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1",
    "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder`1",
];

/// The types in these whose methods have a machine go on end so: there are others for debuggers and for listeners.
const BOXES: &str = "StateMachineBox`1";

const TAKES_BOX: &str = "GetStateMachineBox";

/// Methods of boxes that end in `MoveNext` of their machines.
const CONTINUES: [&str; 3] = ["MoveNext", "ExecuteFromThreadPool", "ExecutionContextCallback"];

/// The class of a machine; 0 if it is not known, as of code that instantiations share.
pub(super) type Machine = usize;

/// What a function has to do with state machines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Nothing,
    /// `MoveNext` of such a machine.
    Moves(Machine),
    /// It is called once each time that such a machine is about to return because it has to wait.
    TakesBox(Machine),
    /// It has such a machine go on.
    Continues(Machine),
}

impl Part {
    /// Whether suspensions are not told if the function is inlined. `calls_are_one_call_in_optimised_code_as_well`
    /// (tests/live/timer.rs) fails without it.
    pub(super) fn is_to_stay_apart(self) -> bool {
        matches!(self, Self::TakesBox(_) | Self::Continues(_))
    }

    pub(super) fn of(
        cx: &InCallback<'_>,
        metadata: &MetadataImport<'_>,
        method: &MethodProps,
        function: FunctionId,
    ) -> Self {
        Self::try_of(cx, metadata, method, function).unwrap_or(Self::Nothing)
    }

    fn try_of(
        cx: &InCallback<'_>,
        metadata: &MetadataImport<'_>,
        method: &MethodProps,
        function: FunctionId,
    ) -> Result<Self> {
        if method.name == "MoveNext" && is_machine(metadata, method.class)? {
            let class = cx.function_info(function)?.class;
            return Ok(Self::Moves(class.map_or(0, ClassId::as_raw)));
        }
        let class = metadata.type_def(method.class)?.name;
        if method.name == TAKES_BOX && BUILDERS.contains(&class.as_str()) && is_core_library(metadata)? {
            let machine = cx.function_info(function)?.type_args.first().copied();
            return Ok(Self::TakesBox(known_machine(cx, machine)));
        }
        if !class.ends_with(BOXES) || !CONTINUES.contains(&method.name.as_str()) {
            return Ok(Self::Nothing);
        }
        let Some(outer) = metadata.enclosing_class(method.class)? else { return Ok(Self::Nothing) };
        let is_of_builder = BUILDERS.contains(&metadata.type_def(outer)?.name.as_str());
        if !is_of_builder || !is_core_library(metadata)? {
            return Ok(Self::Nothing);
        }
        let class = cx.function_info(function)?.class;
        let machine =
            class.map(|class| cx.class_info(class)).transpose()?.and_then(|info| info.type_args.last().copied());
        Ok(Self::Continues(known_machine(cx, machine)))
    }
}

/// Machines that are classes have no code of their own here, but share it.
fn known_machine(cx: &InCallback<'_>, machine: Option<ClassId>) -> Machine {
    let machine = machine.filter(|&machine| *cx.names().class(machine) != *"System.__Canon");
    machine.map_or(0, ClassId::as_raw)
}

fn is_machine(metadata: &MetadataImport<'_>, class: TypeDef) -> Result<bool> {
    for implementation in metadata.interface_impls(class)? {
        let interface = metadata.interface_impl(implementation)?.interface;
        let name = match interface.table() {
            Some(Table::TypeDef) => metadata.type_def(TypeDef::from_raw(interface.as_raw()))?.name,
            Some(Table::TypeRef) => metadata.type_ref(TypeRef::from_raw(interface.as_raw()))?.name,
            _ => continue,
        };
        if name == MACHINE {
            return Ok(true);
        }
    }
    Ok(false)
}

thread_local! {
    /// The machine on this thread that is about to return because it has to wait.
    static WAITS: Cell<Option<Machine>> = const { Cell::new(None) };
    /// The machine that this thread is about to have go on.
    static GOES_ON: Cell<Option<Machine>> = const { Cell::new(None) };
}

/// A box begins to have its machine go on.
pub(super) fn note_continuing(machine: Machine) {
    GOES_ON.set(Some(machine));
}

/// A box has had its machine go on.
pub(super) fn forget_continuing() {
    GOES_ON.set(None);
}

/// Whether a machine whose `MoveNext` begins goes on, rather than begins.
pub(super) fn goes_on(machine: Machine) -> bool {
    let is_it = GOES_ON.get().is_some_and(|going| going == machine || going == 0 || machine == 0);
    if is_it {
        GOES_ON.set(None);
    }
    is_it
}

/// A machine is about to return because it has to wait.
pub(super) fn note_wait(machine: Machine) {
    WAITS.set(Some(machine));
}

/// Whether a machine that returns now has to wait.
pub(super) fn waits(machine: Machine) -> bool {
    let is_it = WAITS.get().is_some_and(|waiting| waiting == machine || waiting == 0 || machine == 0);
    if is_it {
        WAITS.set(None);
    }
    is_it
}
