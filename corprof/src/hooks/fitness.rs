//! Functions that are never hooked, whatever the profiler says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::InCallback;
use crate::error::Result;
use crate::id::FunctionId;
use crate::metadata::signature::{MethodSignature, Type};
use crate::metadata::{MetadataImport, MethodProps, TypeDefOrRef};

/// The runtime itself suspends the method (`miAsync` in `CorMethodImpl`; the flag is newer than the IDL).
const IMPL_ASYNC: u32 = 0x2000;

/// The library with the runtime's own types, in every .NET Core and later.
const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// The types that search for the handler of an exception and unwind the functions in between, on .NET 9 and later (in
/// src/coreclr/nativeaot/Runtime.Base/src/System/Runtime/ExceptionHandling.cs and StackFrameIterator.cs, and in
/// src/coreclr/System.Private.CoreLib/src/System/Runtime/ExceptionServices/InternalCalls.cs).
const EXCEPTION_HANDLING: [&str; 3] =
    ["System.Runtime.EH", "System.Runtime.StackFrameIterator", "System.Runtime.ExceptionServices.InternalCalls"];

/// The type whose methods suspend the method that calls them.
const SUSPENDING: &str = "System.Runtime.CompilerServices.AsyncHelpers";

/// The types that can be awaited without an awaiter.
const TASKS: [&str; 4] = [
    "System.Threading.Tasks.Task",
    "System.Threading.Tasks.Task`1",
    "System.Threading.Tasks.ValueTask",
    "System.Threading.Tasks.ValueTask`1",
];

/// Whether a function is a part of the runtime that must not be hooked, or that no profiler needs to see:
///
/// - The runtime's own handling of exceptions. Up to .NET 8 it is native code, from .NET 9 on it is managed. Its frames lie
///   below those of the functions that the exception unwinds, the runtime's own walk hides them, and they end without a hook when
///   the runtime cuts the stack.
/// - The functions that suspend a runtime-async method. If one of them has hooks, the .NET 10 compiler omits the suspension,
///   whatever the hooks do (dotnet/runtime issue 124162, fixed in .NET 11 by pull request 124177).
pub(super) fn is_of_the_runtime(metadata: &MetadataImport<'_>, method: &MethodProps) -> bool {
    let answer = || -> Result<bool> {
        let mut class = method.class;
        while let Some(outer) = metadata.enclosing_class(class)? {
            class = outer;
        }
        let class = metadata.type_def(class)?.name;
        let is_of_these =
            EXCEPTION_HANDLING.contains(&class.as_str()) || class == SUSPENDING && is_suspended_by_the_runtime(method);
        Ok(is_of_these && is_core_library(metadata)?)
    };
    answer() == Ok(true)
}

/// Whether the runtime itself suspends the method (runtime async).
pub(super) fn is_suspended_by_the_runtime(method: &MethodProps) -> bool {
    method.impl_flags.bits() & IMPL_ASYNC != 0
}

/// Functions that the wrapper around slow hooks is not made for.
#[derive(Default)]
pub(super) struct SlowPath {
    /// Whether a runtime-async method was compiled.
    has_suspended: AtomicBool,
}

impl SlowPath {
    /// Records a function that is being compiled, whether the profiler hooks it or not.
    pub(super) fn note(&self, cx: &InCallback<'_>, function: FunctionId) {
        if method(cx, function).is_ok_and(|(_, method)| is_suspended_by_the_runtime(&method)) {
            self.has_suspended.store(true, Relaxed);
        }
    }

    /// The runtime may compile functions without asking the profiler: assumes that one of them is runtime-async.
    pub(super) fn note_unasked(&self) {
        self.has_suspended.store(true, Relaxed);
    }

    /// Whether a function can have slow hooks; if in doubt, `false`.
    ///
    /// A function that native code calls cannot. Nor can a runtime-async method: on x86-64 it returns its continuation in rcx,
    /// which the wrapper around Leave overwrites (`ProfileLeaveNaked` in vm/amd64/asmhelpers.S and AsmHelpers.asm), so that the
    /// application would crash; and on no processor does it return what its signature says. A method that returns a task may
    /// have a second, runtime-async form with the same metadata, so none of these methods is hooked once a runtime-async method
    /// was compiled: a caller of such a form is compiled before the form.
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

/// What the metadata says of a function, and that itself.
pub(super) fn method<'cx>(cx: &'cx InCallback<'_>, function: FunctionId) -> Result<(MetadataImport<'cx>, MethodProps)> {
    let info = cx.function_info(function)?;
    let metadata = cx.metadata(info.module)?;
    let method = metadata.method(info.token)?;
    Ok((metadata, method))
}

fn is_core_library(metadata: &MetadataImport<'_>) -> Result<bool> {
    let Some(assembly) = metadata.assembly()? else { return Ok(false) };
    Ok(metadata.assembly_identity(assembly)?.name == CORE_LIBRARY)
}

/// Whether a method returns a task; if in doubt, `true`.
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
