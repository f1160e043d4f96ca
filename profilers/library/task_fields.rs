//! What a snapshot of the heap has beside its blocks: for `corprof tasks` the fields of tasks and of suspended methods.

use std::collections::BTreeSet;
use std::io;

use corprof::heap_dump::{BlockFile, BlockSink, FieldsOf};
use corprof::prelude::*;

use crate::class_assembly::CORE_LIBRARY;
use crate::static_fields::StaticFields;

const TASK: &str = "System.Threading.Tasks.Task";
/// What .NET 11 keeps of a method that it has suspended itself (runtime async).
const CONTINUATION: &str = "System.Runtime.CompilerServices.Continuation";
/// The task of an async method with a state machine, a class in that of the builder.
const BUILDER: &str = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1";
const BOX: &str = "AsyncStateMachineBox`1";
/// The state of a state machine, as C# and Visual Basic name it.
const STATES: [&str; 2] = ["<>1__state", "$State"];
/// The place of the address among its values.
const ADDRESS: usize = 1;

/// What fields are of. `corprof tasks` has the same numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOfTasks {
    Task = 0,
    Continuation = 1,
    Machine = 2,
}

/// The fields, in the order in which `corprof tasks` expects them.
pub(crate) fn task_fields(cx: &mut ProfilerThread<'_>) -> corprof::Result<Vec<(PartOfTasks, FieldsOf)>> {
    let Some(module) = core_library(cx)? else { return Ok(Vec::new()) };
    let metadata = cx.metadata(module)?;
    let find = |name, of| metadata.find_type_def(name, of);
    let Some(task) = find(TASK, None)? else { return Ok(Vec::new()) };
    let task = FieldsOf::new(module, task)
        .field(cx, "m_stateFlags")?
        .field(cx, "m_continuationObject")?
        .field(cx, "m_stateObject")?
        .field(cx, "m_action")?;
    let mut fields = vec![(PartOfTasks::Task, task)];
    if let Some(continuation) = find(CONTINUATION, None)? {
        // Other runtimes have another class of this name.
        let continuation = FieldsOf::new(module, continuation).field(cx, "Next");
        let continuation = continuation.and_then(|of| of.behind(cx, "ResumeInfo", WORD));
        fields.extend(continuation.map(|of| (PartOfTasks::Continuation, of)));
    }
    if let Some(builder) = find(BUILDER, None)?
        && let Some(class) = find(BOX, Some(builder))?
    {
        let machine = FieldsOf::new(module, class).first_of(cx, "StateMachine");
        fields.extend(machine.map(|of| (PartOfTasks::Machine, of)));
    }
    Ok(fields)
}

/// The method whose state is read of objects of this class: its module, and its token there.
pub(crate) fn method_of_box(cx: &InNoGc<'_>, class: ClassId) -> Option<(String, u32)> {
    let info = cx.class_info(class).ok()?;
    let machine = cx.class_info(*info.type_args.last()?).ok()?;
    if &*cx.names().module(info.module) != CORE_MODULE {
        return None;
    }
    let metadata = cx.metadata(machine.module).ok()?;
    // What was read is the field that is declared first.
    let first = metadata.fields(machine.token).ok()?.into_iter().min_by_key(|field| field.as_raw())?;
    if !STATES.contains(&&*metadata.field(first).ok()?.name) {
        return None;
    }
    let method = metadata.methods_named(machine.token, "MoveNext").ok()?.first()?.as_raw();
    Some((cx.module_info(machine.module).ok()?.path, method))
}

/// The file of the core library.
const CORE_MODULE: &str = "System.Private.CoreLib.dll";
/// The second word of what resumes a method is an address in the method, for debuggers.
const WORD: usize = size_of::<usize>();

fn core_library(cx: &mut ProfilerThread<'_>) -> corprof::Result<Option<ModuleId>> {
    for module in cx.enum_modules()? {
        let assembly = cx.module_info(module)?.assembly.and_then(|assembly| cx.assembly_info(assembly).ok());
        if assembly.is_some_and(|assembly| assembly.name == CORE_LIBRARY) {
            return Ok(Some(module));
        }
    }
    Ok(None)
}

/// The blocks of a snapshot, the static fields in them, and the addresses at which suspended methods go on.
pub(crate) struct TaskBlocks {
    pub(crate) file: BlockFile,
    pub(crate) statics: StaticFields,
    /// What each of the chosen classes is.
    pub(crate) parts: Vec<PartOfTasks>,
    pub(crate) addresses: BTreeSet<u64>,
}

impl BlockSink for TaskBlocks {
    fn block(&mut self, event: u16, payload: &[u8]) -> io::Result<()> {
        self.statics.add(event, payload);
        self.file.block(event, payload)
    }

    fn fields(&mut self, of: usize, object: u64, values: &[u64]) -> io::Result<()> {
        let Some(part) = self.parts.get(of).copied() else { return Ok(()) };
        if part == PartOfTasks::Continuation {
            self.addresses.extend(values.get(ADDRESS).filter(|address| **address != 0));
        }
        self.file.fields(part as usize, object, values)
    }

    fn end(&mut self) -> io::Result<()> {
        self.file.end()
    }
}
