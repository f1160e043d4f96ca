//! Functions that are never hooked, whatever the profiler says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::context::InCallback;
use crate::error::Result;
use crate::id::FunctionId;
use crate::metadata::signature::{MethodSignature, Type};
use crate::metadata::{MetadataImport, MethodProps, TypeDefOrRef, is_suspended_by_the_runtime};

/// The types that can be awaited without an awaiter.
const TASKS: [&str; 4] = [
    "System.Threading.Tasks.Task",
    "System.Threading.Tasks.Task`1",
    "System.Threading.Tasks.ValueTask",
    "System.Threading.Tasks.ValueTask`1",
];

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
