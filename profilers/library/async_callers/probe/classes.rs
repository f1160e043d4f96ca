//! What objects are to the chain of an async method: which class is whose, and which field leads to what awaits it.

use std::sync::Arc;

use corprof::info::FunctionInfo;
use corprof::metadata::signature::MethodSignature;
use corprof::metadata::{MethodDef, TypeDef};
use corprof::prelude::*;
use corprof_async::PROVIDER;

const CORE_LIBRARY: &str = "System.Private.CoreLib.dll";
const TASK: &str = "System.Threading.Tasks.Task";
const BUILDER: &str = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1";
const BOX: &str = "AsyncStateMachineBox`1";
const POOLING_BUILDER: &str = "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder`1";
const POOLED_BOX: &str = "StateMachineBox`1";
/// The most base classes of a class.
const MOST_BASES: usize = 32;

/// Where a task has what awaits it.
const CONTINUATION: &[&str] = &["m_continuationObject"];
/// The same of the state machine of an async iterator.
pub(super) const OF_ITERATOR: &[&str] = &["<>v__promiseOfValueOrEnd", "_continuationState"];
/// The same of a pooled box.
const OF_POOLED: &[&str] = &["_valueTaskSource", "_continuationState"];

/// Other classes of the core library whose objects lead on.
const OTHERS: [(&str, &[&str]); 3] = [
    ("System.Action", &["_target"]),
    ("System.Threading.Tasks.AwaitTaskContinuation", &["m_action"]),
    ("System.Threading.Tasks.ContinueWithTaskContinuation", &["m_task"]),
];

/// What the core library has of it.
pub(in crate::async_callers) struct Core {
    module: ModuleId,
    /// The methods by which boxes have their methods go on.
    resuming: Vec<MethodDef>,
    boxes: [TypeDef; 2],
}

/// `MoveNext` of a state machine. The function is not to be had on a thread of the profiler.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Machine {
    pub(crate) module: ModuleId,
    pub(crate) method: MethodDef,
    pub(crate) name: Arc<str>,
}

/// What an object of a class is.
pub(in crate::async_callers) enum Part {
    /// The box of a suspended method.
    Method(Machine, &'static [&'static str]),
    /// It leads on.
    Passes(&'static [&'static str]),
    /// Nothing is known of who awaits it. The name of the class.
    Ends(Name),
}

impl Core {
    /// That of the core library, if this module is it; none if the runtime tells of async operations by itself.
    pub(super) fn of(cx: &InNoGc<'_>, module: ModuleId) -> Result<Option<Self>> {
        let tells_by_itself = cx.metadata(module)?.find_type_def(PROVIDER, None)?.is_some();
        if tells_by_itself { Ok(None) } else { Self::find(cx, module) }
    }

    /// The same, whether or not the runtime tells.
    pub(in crate::async_callers) fn find(cx: &InNoGc<'_>, module: ModuleId) -> Result<Option<Self>> {
        let metadata = cx.metadata(module)?;
        let mut resuming = Vec::new();
        let mut boxes = Vec::new();
        for (builder, name, parameters) in [(BUILDER, BOX, 1), (POOLING_BUILDER, POOLED_BOX, 0)] {
            let Some(builder) = metadata.find_type_def(builder, None)? else { return Ok(None) };
            let Some(class) = metadata.find_type_def(name, Some(builder))? else { return Ok(None) };
            boxes.push(class);
            for method in metadata.methods_named(class, "MoveNext")? {
                let signature = MethodSignature::decode(&metadata.method(method)?.signature);
                if signature.is_ok_and(|signature| signature.parameters.len() == parameters) {
                    resuming.push(method);
                }
            }
        }
        let boxes = boxes.try_into().ok();
        Ok(boxes.map(|boxes| Self { module, resuming, boxes }))
    }

    pub(in crate::async_callers) fn is_core(cx: &InNoGc<'_>, module: ModuleId) -> bool {
        &*cx.names().module(module) == CORE_LIBRARY
    }

    /// Whether it is by this method that boxes go on.
    pub(super) fn is_resuming(&self, module: ModuleId, method: MethodDef) -> bool {
        module == self.module && self.resuming.contains(&method)
    }

    /// What objects of a class are.
    pub(in crate::async_callers) fn part(&self, cx: &InNoGc<'_>, class: ClassId) -> Part {
        let part = self.find_part(cx, class);
        part.ok().flatten().unwrap_or_else(|| Part::Ends(cx.names().csharp().class(class)))
    }

    fn find_part(&self, cx: &InNoGc<'_>, class: ClassId) -> Result<Option<Part>> {
        let own = cx.class_info(class)?;
        if is_iterator(cx, own.module, own.token)? {
            return Ok(Some(Part::Passes(OF_ITERATOR)));
        }
        // An array's element, for example, has no definition.
        let mut current = Some(class);
        for _ in 0..MOST_BASES {
            let Some(info) = current.map(|class| cx.class_info(class)).transpose()? else { break };
            current = info.parent;
            if info.module != self.module {
                continue;
            }
            if let (true, Some(machine)) = (self.boxes.contains(&info.token), info.type_args.last()) {
                let is_pooled = info.token == self.boxes[1];
                return method_of(cx, *machine, if is_pooled { OF_POOLED } else { CONTINUATION }).map(Some);
            }
            let name = cx.metadata(info.module)?.type_def(info.token)?.name;
            if name == TASK {
                return Ok(Some(Part::Passes(CONTINUATION)));
            }
            if let Some((_, path)) = OTHERS.iter().find(|(other, _)| *other == name) {
                return Ok(Some(Part::Passes(path)));
            }
        }
        Ok(None)
    }
}

/// The method whose state machine has this class. The box of an iterator leads to the machine, in which the consumer
/// waits.
fn method_of(cx: &InNoGc<'_>, machine: ClassId, path: &'static [&'static str]) -> Result<Part> {
    let info = cx.class_info(machine)?;
    let methods = cx.metadata(info.module)?.methods_named(info.token, "MoveNext")?;
    let name = cx.names().csharp().class(machine);
    let Some(method) = methods.first().copied() else { return Ok(Part::Ends(name)) };
    let path = if is_iterator(cx, info.module, info.token)? { &["StateMachine"] } else { path };
    Ok(Part::Method(Machine { module: info.module, method, name: format!("{name}.MoveNext()").into() }, path))
}

/// The state machine of an async iterator, if this is a method by which one moves.
pub(super) fn iterator_of(cx: &InNoGc<'_>, info: &FunctionInfo) -> Option<ClassId> {
    let class = info.class?;
    let method = cx.metadata(info.module).ok()?.method(info.token).ok()?;
    let is_it = method.name == "MoveNext" && is_iterator(cx, info.module, method.class).ok()?;
    is_it.then_some(class)
}

/// Whether a class is the state machine of an async iterator.
fn is_iterator(cx: &InNoGc<'_>, module: ModuleId, class: TypeDef) -> Result<bool> {
    let metadata = cx.metadata(module)?;
    for field in metadata.fields(class)? {
        if metadata.field(field)?.name == OF_ITERATOR[0] {
            return Ok(true);
        }
    }
    Ok(false)
}
