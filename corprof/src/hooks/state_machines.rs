//! Suspensions of the state machines that compilers make of async methods.
//!
//! `MoveNext` of a machine returns when it has to wait, and is called again when it goes on. Before it returns so, its
//! builder takes the box that holds the machine in the meantime ([`Part::TakesBox`]); and who calls it to go on is that
//! box ([`Part::Continues`]). Where the runtime's compiler puts the box's method into its caller, a machine that goes
//! on looks like a new one.

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

/// The types in these whose methods have a machine go on.
const BOXES: [&str; 2] = ["AsyncStateMachineBox`1", "StateMachineBox`1"];

const TAKES_BOX: &str = "GetStateMachineBox";

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
    /// It has machines go on.
    Continues,
}

impl Part {
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
            // A machine that is a class has no code of its own here.
            let machine = machine.filter(|&machine| *cx.names().class(machine) != *"System.__Canon");
            return Ok(Self::TakesBox(machine.map_or(0, ClassId::as_raw)));
        }
        if !BOXES.contains(&class.as_str()) {
            return Ok(Self::Nothing);
        }
        let Some(outer) = metadata.enclosing_class(method.class)? else { return Ok(Self::Nothing) };
        let is_of_builder = BUILDERS.contains(&metadata.type_def(outer)?.name.as_str());
        Ok(if is_of_builder && is_core_library(metadata)? { Self::Continues } else { Self::Nothing })
    }
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
