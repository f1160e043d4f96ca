//! Methods of the runtime itself that no profiler changes or hooks.

use crate::context::InNoGc;
use crate::error::Result;
use crate::id::FunctionId;

use super::signature::{Primitive, Type};
use super::{MetadataImport, MethodProps, TypeDefOrRef};

/// The runtime itself suspends the method (`miAsync` in `CorMethodImpl`; the flag is newer than the IDL).
const IMPL_ASYNC: u32 = 0x2000;

/// The types that can be awaited without an awaiter.
pub(crate) const TASKS: [&str; 4] = [
    "System.Threading.Tasks.Task",
    "System.Threading.Tasks.Task`1",
    "System.Threading.Tasks.ValueTask",
    "System.Threading.Tasks.ValueTask`1",
];

/// The library with the runtime's own types, in every .NET Core and later.
pub(crate) const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// The types that search for the handler of an exception and unwind the functions in between, on .NET 9 and later (in
/// src/coreclr/nativeaot/Runtime.Base/src/System/Runtime/ExceptionHandling.cs and StackFrameIterator.cs, and in
/// src/coreclr/System.Private.CoreLib/src/System/Runtime/ExceptionServices/InternalCalls.cs).
const EXCEPTION_HANDLING: [&str; 3] =
    ["System.Runtime.EH", "System.Runtime.StackFrameIterator", "System.Runtime.ExceptionServices.InternalCalls"];

/// The type whose methods suspend the method that calls them.
pub(crate) const SUSPENDING: &str = "System.Runtime.CompilerServices.AsyncHelpers";

/// The type and the name in its methods (one is local to another) that compiled code calls, on .NET 9 and later, where
/// a collection waits after a call without a transition. Inserted calls are such calls: in this method they would call
/// it again, without end.
const COLLECTION_POLL: (&str, &str) = ("System.Threading.Thread", "PollGC");

/// Marks methods that native code calls.
pub(crate) const NATIVE: &str = "System.Runtime.InteropServices.UnmanagedCallersOnlyAttribute";

/// The type whose methods begin and end threads: on runtimes where native code calls `StartCallback` by other means,
/// stacks have it as well.
const THREAD: &str = "System.Threading.Thread";

/// The type and the method by which the runtime makes explicit tail calls.
const TAIL_CALLS: (&str, &str) = ("System.Runtime.CompilerServices.RuntimeHelpers", "DispatchTailCalls");

/// Whether a function is a part of the runtime that must not be hooked, or that no profiler needs to see:
///
/// - The runtime's own handling of exceptions. Up to .NET 8 it is native code, from .NET 9 on it is managed. Its frames
///   lie below those of the functions that the exception unwinds, the runtime's own walk hides them, and they end
///   without a hook when the runtime cuts the stack.
/// - The functions that suspend a runtime-async method. If one of them has hooks, the .NET 10 compiler omits the
///   suspension, whatever the hooks do (dotnet/runtime issue 124162, fixed in .NET 11 by pull request 124177).
/// - The poll for a collection, which inserted calls make.
pub(crate) fn is_of_the_runtime(metadata: &MetadataImport<'_>, method: &MethodProps) -> bool {
    let answer = || -> Result<bool> {
        let mut class = method.class;
        while let Some(outer) = metadata.enclosing_class(class)? {
            class = outer;
        }
        let class = metadata.type_def(class)?.name;
        let is_of_these = EXCEPTION_HANDLING.contains(&class.as_str())
            || class == SUSPENDING && is_suspended_by_the_runtime(method)
            || class == COLLECTION_POLL.0 && method.name.contains(COLLECTION_POLL.1);
        Ok(is_of_these && is_core_library(metadata)?)
    };
    answer() == Ok(true)
}

/// Whether the runtime makes explicit tail calls by this method, where it has no room for their arguments.
pub(crate) fn dispatches_tail_calls(metadata: &MetadataImport<'_>, method: &MethodProps) -> bool {
    let (class, name) = TAIL_CALLS;
    let answer = || -> Result<bool> {
        Ok(method.name == name && metadata.type_def(method.class)?.name == class && is_core_library(metadata)?)
    };
    answer() == Ok(true)
}

impl InNoGc<'_> {
    /// Whether `function` is one by which the runtime itself calls managed code: a method of the core library that only
    /// native code calls (`UnmanagedCallersOnly`), except those of `Thread`. `false` if in doubt.
    ///
    /// From .NET 11 on the runtime calls `Main` by `Environment.CallEntryPoint`, static constructors by
    /// `InitHelpers.CallClassConstructor`, and throws by `EH.RhThrowEx`; older runtimes do this by native code. Without
    /// these functions stacks begin with `Main` on all runtimes, and transitions are those of the application.
    pub fn is_runtime_entry(&self, function: FunctionId) -> bool {
        let answer = || -> Result<bool> {
            let info = self.function_info(function)?;
            if info.token.is_nil() {
                return Ok(false);
            }
            let metadata = self.metadata(info.module)?;
            if !is_core_library(&metadata)? || metadata.custom_attribute_named(info.token, NATIVE)?.is_none() {
                return Ok(false);
            }
            let class = metadata.method(info.token)?.class;
            Ok(metadata.type_def(class)?.name != THREAD)
        };
        answer() == Ok(true)
    }
}

/// Whether the runtime itself suspends the method (runtime async).
pub(crate) fn is_suspended_by_the_runtime(method: &MethodProps) -> bool {
    method.impl_flags.bits() & IMPL_ASYNC != 0
}

/// Whether this is the library with the runtime's own types.
pub(crate) fn is_core_library(metadata: &MetadataImport<'_>) -> Result<bool> {
    let Some(assembly) = metadata.assembly()? else { return Ok(false) };
    Ok(metadata.assembly_identity(assembly)?.name == CORE_LIBRARY)
}

/// What the body of a method that the runtime suspends returns, if the method returns `returns`: `T` of `Task<T>`,
/// nothing of `Task`. None if that is not a task.
pub(crate) fn awaited(metadata: &MetadataImport<'_>, returns: &Type) -> Option<Type> {
    let (class, argument) = match returns.unmodified() {
        Type::Generic { definition, arguments, .. } => (*definition, arguments.first().cloned()),
        Type::Class(class) | Type::ValueType(class) => (*class, None),
        _ => return None,
    };
    let name = match class {
        TypeDefOrRef::Def(class) => metadata.type_def(class).ok()?.name,
        TypeDefOrRef::Ref(class) => metadata.type_ref(class).ok()?.name,
        TypeDefOrRef::Spec(_) => return None,
    };
    TASKS.contains(&name.as_str()).then(|| argument.unwrap_or(Type::Primitive(Primitive::Void)))
}
