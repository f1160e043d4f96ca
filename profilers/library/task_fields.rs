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
/// Its place in the list.
const OF_CONTINUATION: usize = 1;
/// The place of the address among its values.
const ADDRESS: usize = 1;

/// The fields, in the order in which `corprof tasks` expects them.
pub(crate) fn task_fields(cx: &mut ProfilerThread<'_>) -> corprof::Result<Vec<FieldsOf>> {
    let Some(task) = core_class(cx, TASK)? else { return Ok(Vec::new()) };
    let task = task
        .field(cx, "m_stateFlags")?
        .field(cx, "m_continuationObject")?
        .field(cx, "m_stateObject")?
        .field(cx, "m_action")?;
    let mut fields = vec![task];
    if let Some(continuation) = core_class(cx, CONTINUATION)? {
        // Other runtimes have another class of this name.
        let continuation = continuation.field(cx, "Next").and_then(|of| of.behind(cx, "ResumeInfo", WORD));
        fields.extend(continuation);
    }
    Ok(fields)
}

/// The second word of what resumes a method is an address in the method, for debuggers.
const WORD: usize = size_of::<usize>();

/// A class of the core library.
fn core_class(cx: &mut ProfilerThread<'_>, name: &str) -> corprof::Result<Option<FieldsOf>> {
    for module in cx.enum_modules()? {
        let assembly = cx.module_info(module)?.assembly.and_then(|assembly| cx.assembly_info(assembly).ok());
        if assembly.is_none_or(|assembly| assembly.name != CORE_LIBRARY) {
            continue;
        }
        let definition = cx.metadata(module)?.find_type_def(name, None)?;
        return Ok(definition.map(|definition| FieldsOf::new(module, definition)));
    }
    Ok(None)
}

/// The blocks of a snapshot, the static fields in them, and the addresses at which suspended methods go on.
pub(crate) struct TaskBlocks {
    pub(crate) file: BlockFile,
    pub(crate) statics: StaticFields,
    pub(crate) addresses: BTreeSet<u64>,
}

impl BlockSink for TaskBlocks {
    fn block(&mut self, event: u16, payload: &[u8]) -> io::Result<()> {
        self.statics.add(event, payload);
        self.file.block(event, payload)
    }

    fn fields(&mut self, of: usize, object: u64, values: &[u64]) -> io::Result<()> {
        if of == OF_CONTINUATION {
            self.addresses.extend(values.get(ADDRESS).filter(|address| **address != 0));
        }
        self.file.fields(of, object, values)
    }

    fn end(&mut self) -> io::Result<()> {
        self.file.end()
    }
}
