//! Which functions are not hooked, whatever the profiler says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::InCallback;
use crate::error::Result;
use crate::id::FunctionId;
use crate::metadata::signature::{MethodSignature, Type};
use crate::metadata::{MetadataImport, MethodProps, TypeDefOrRef};

/// The method is one that the runtime itself suspends (`miAsync` in `CorMethodImpl`; the flag is newer than the IDL).
const IMPL_ASYNC: u32 = 0x2000;

/// The library that every runtime has its own types in.
const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// The types that look for the handler of an exception and leave the functions in between, on .NET 9 and later (in
/// src/coreclr/nativeaot/Runtime.Base/src/System/Runtime/ExceptionHandling.cs and StackFrameIterator.cs, and in
/// src/coreclr/System.Private.CoreLib/src/System/Runtime/ExceptionServices/InternalCalls.cs).
const EXCEPTION_HANDLING: [&str; 3] =
    ["System.Runtime.EH", "System.Runtime.StackFrameIterator", "System.Runtime.ExceptionServices.InternalCalls"];

/// The type whose methods suspend the method that calls them.
const SUSPENDING: &str = "System.Runtime.CompilerServices.AsyncHelpers";

/// What a method returns that can be awaited without an awaiter.
const TASKS: [&str; 4] = [
    "System.Threading.Tasks.Task",
    "System.Threading.Tasks.Task`1",
    "System.Threading.Tasks.ValueTask",
    "System.Threading.Tasks.ValueTask`1",
];

/// Whether a function is a part of the runtime that must not be hooked, or about which no profiler wants to hear:
///
/// - The runtime's own handling of exceptions. Up to .NET 8 that is native code. From .NET 9 on it is managed. Its frames lie
///   below those of the functions that the exception leaves, the runtime's own walk hides them, and they end without a hook when
///   the runtime cuts the stack.
/// - What suspends a method that the runtime itself suspends. The .NET 10 compiler forgets to suspend it when such a function
///   has hooks, whatever they do (dotnet/runtime issue 124162, mended in .NET 11 by pull request 124177).
pub(super) fn is_of_the_runtime(cx: &InCallback<'_>, function: FunctionId) -> bool {
    let answer = || -> Result<bool> {
        let (metadata, method) = method(cx, function)?;
        let mut class = method.class;
        while let Some(outer) = metadata.enclosing_class(class)? {
            class = outer;
        }
        let class = metadata.type_def(class)?.name;
        let is_of_these =
            EXCEPTION_HANDLING.contains(&class.as_str()) || class == SUSPENDING && is_suspended_by_the_runtime(&method);
        Ok(is_of_these && is_core_library(&metadata)?)
    };
    answer() == Ok(true)
}

/// Whether the runtime itself suspends the method.
pub(super) fn is_suspended_by_the_runtime(method: &MethodProps) -> bool {
    method.impl_flags.bits() & IMPL_ASYNC != 0
}

/// Which functions the wrapper around slow hooks is not made for.
#[derive(Default)]
pub(super) struct SlowPath {
    /// A method was seen that the runtime itself suspends.
    has_suspended: AtomicBool,
}

impl SlowPath {
    /// Takes notice of a function that is compiled, whether the profiler hooks it or not.
    pub(super) fn note(&self, cx: &InCallback<'_>, function: FunctionId) {
        if method(cx, function).is_ok_and(|(_, method)| is_suspended_by_the_runtime(&method)) {
            self.has_suspended.store(true, Relaxed);
        }
    }

    /// Functions may be compiled without the profiler being asked: as if one was suspended by the runtime.
    pub(super) fn note_unasked(&self) {
        self.has_suspended.store(true, Relaxed);
    }

    /// Whether a function can have slow hooks; in doubt not.
    ///
    /// Not one that native code calls. And not one that the runtime itself suspends: on x86-64 it returns its continuation in
    /// rcx, which the wrapper around Leave overwrites (`ProfileLeaveNaked` in vm/amd64/asmhelpers.S and AsmHelpers.asm), so
    /// that the application would crash; and nowhere does it return what its signature says. For a method that returns a task,
    /// there may be a form that returns as those do. It has the same metadata, so none of these is hooked once the runtime has
    /// suspended methods: those that call such a form are compiled before it.
    pub(super) fn is_fit(&self, cx: &InCallback<'_>, function: FunctionId) -> bool {
        let answer = || -> Result<bool> {
            let (metadata, method) = method(cx, function)?;
            let info = cx.function_info(function)?;
            let native = "System.Runtime.InteropServices.UnmanagedCallersOnlyAttribute";
            if metadata.custom_attribute_named(info.token, native)?.is_some() {
                return Ok(false);
            }
            let has_suspended = self.has_suspended.load(Relaxed);
            Ok(!(is_suspended_by_the_runtime(&method) || has_suspended && returns_a_task(&metadata, &method)?))
        };
        answer() == Ok(true)
    }
}

fn method<'cx>(cx: &'cx InCallback<'_>, function: FunctionId) -> Result<(MetadataImport<'cx>, MethodProps)> {
    let info = cx.function_info(function)?;
    let metadata = cx.metadata(info.module)?;
    let method = metadata.method(info.token)?;
    Ok((metadata, method))
}

fn is_core_library(metadata: &MetadataImport<'_>) -> Result<bool> {
    let Some(assembly) = metadata.assembly()? else { return Ok(false) };
    Ok(metadata.assembly_identity(assembly)?.name == CORE_LIBRARY)
}

/// Whether a method returns a task; in doubt it does.
fn returns_a_task(metadata: &MetadataImport<'_>, method: &MethodProps) -> Result<bool> {
    let Ok(signature) = MethodSignature::decode(&method.signature) else { return Ok(true) };
    let class = match signature.return_type.unmodified() {
        Type::Class(class) | Type::ValueType(class) => *class,
        Type::Generic { definition, .. } => *definition,
        _ => return Ok(false),
    };
    let name = match class {
        TypeDefOrRef::Def(class) => metadata.type_def(class)?.name,
        TypeDefOrRef::Ref(class) => metadata.type_ref(class)?.name,
        TypeDefOrRef::Spec(_) => return Ok(true),
    };
    Ok(TASKS.contains(&name.as_str()))
}
